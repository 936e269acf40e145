"""`/v1/health` and `/v1/retention`: the same as `cortex health` and `cortex retention show`."""

from tests.support.records.rows import submit
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql


def test_measures_have_thresholds_and_words(server: HttpServer) -> None:
    submit(server.dsn, "digest")
    sql(server.dsn, "UPDATE cortex_worker.task SET run_at = run_at - interval '20 min'")
    found = server.get("/v1/health", token=server.token("viewer"))
    assert found.status == 200
    measures = {each["name"]: each for each in found.json["measures"]}
    assert measures["due_jobs"]["value"] == 1
    oldest = measures["oldest_due_s"]
    assert (oldest["word"], oldest["warn_over"], oldest["bad_over"]) == ("bad", 60, 600)
    assert found.json["word"] == "bad"
    assert measures["failure_rate"]["value"] is None


def test_the_retention_is_shown(server: HttpServer) -> None:
    token = server.token("viewer")
    assert server.get("/v1/retention", token=token).json == {"retention": None}
    sql(server.dsn, "SELECT cortex.set_retention(86400, NULL, NULL, '/srv/old', '{}', 'why')")
    shown = server.get("/v1/retention", token=token).json["retention"]
    assert (shown["completed_s"], shown["failed_s"], shown["archive"]) == (86400, None, "/srv/old")
    assert (shown["changed_by"], shown["reason"], shown["held_until"]) == ("postgres", "why", None)


def test_queue_health_needs_a_token(server: HttpServer) -> None:
    assert server.get("/v1/health").status == 401


def test_a_named_queue_is_made_strict(server: HttpServer) -> None:
    operator = server.token("operator")
    body = {"queue": "mail", "order": "strict", "reason": "in order"}
    made = server.post("/v1/queues/order", token=operator, json_body=body)
    assert made.status == 200
    ((mail),) = made.json["queues"]
    assert (mail["queue"], mail["is_strict"]) == ("mail", True)
    listed = server.get("/v1/queues", token=operator).json["queues"]
    assert [(each["queue"], each["is_strict"]) for each in listed] == [
        (None, False),
        ("mail", True),
    ]
    refused = server.post("/v1/queues/order", token=operator, json_body=body | {"queue": "bulk"})
    assert refused.status == 400
