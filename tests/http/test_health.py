"""`/healthz`, `/readyz` and the OpenAPI document: for everybody, and without a secret."""

import pytest

from cortex.domain.drain import DrainPhase, DrainRequest, DrainStatus
from cortex.http.routes import ALL
from tests.support.servers.http_server import HttpServer


def test_a_pod_that_answers_is_alive(server: HttpServer) -> None:
    output = server.get("/healthz")
    assert (output.status, output.json) == (200, {"status": "ok"})


def test_a_pod_that_takes_work_is_ready(server: HttpServer) -> None:
    output = server.get("/readyz")
    assert output.status == 200
    assert output.json == {
        "status": "ready",
        "database": True,
        "claiming": True,
        "not_draining": True,
        "workers": True,
        "drain_request": None,
        "database_trouble": None,
        "database_trouble_s": None,
        "liveness": "lock",
        "phase": None,
        "jobs_left": None,
        "abort_in_s": None,
        "closed_in_s": None,
    }


def test_leaving_pod_reports_its_progress(server: HttpServer) -> None:
    server.drain()
    server.leaving = DrainStatus(
        phase=DrainPhase.JOBS, jobs_left=3, abort_in_s=28.04, closed_in_s=38.04
    )
    output = server.get("/readyz")
    assert (output.status, output.json["status"]) == (503, "not ready")
    assert (output.json["phase"], output.json["jobs_left"]) == ("jobs", 3)
    assert (output.json["abort_in_s"], output.json["closed_in_s"]) == (28.0, 38.0)


@pytest.mark.parametrize("jobs_left, word", [(2, "draining"), (0, "drained")])
def test_drained_pod_reports_its_drain_request(
    server: HttpServer, jobs_left: int, word: str
) -> None:
    server.drain_request = DrainRequest(jobs_left)
    output = server.get("/readyz")
    assert (output.status, output.json["not_draining"]) == (503, False)
    assert (output.json["drain_request"], output.json["jobs_left"]) == (word, jobs_left)
    assert output.json["phase"] is None


@pytest.mark.parametrize("missing", ["database", "claiming", "not_draining", "workers"])
def test_unready_pod_names_the_failed_check(server: HttpServer, missing: str) -> None:
    server.is_sure = missing != "database"
    server.is_claiming = missing != "claiming"
    server.are_workers_ready = missing != "workers"
    if missing == "not_draining":
        server.drain()
    output = server.get("/readyz")
    assert output.status == 503
    assert [key for key, holds in output.json.items() if holds is False] == [missing]
    assert server.get("/healthz").status == 200


def test_health_needs_no_database_and_has_no_limit(server: HttpServer) -> None:
    connection_count = 200
    assert {server.get("/readyz").status for _ in range(connection_count)} == {200}


def test_openapi_document_lists_every_api_route(server: HttpServer) -> None:
    document = server.get("/v1/openapi.json").json
    assert document["openapi"] == "3.1.0"
    output = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert output == {(route.method.value, route.path) for route in ALL if route.is_documented}
    pods = document["paths"]["/v1/pods"]["get"]
    assert pods["security"] == [{"bearer": []}]
    assert {"200", "401", "403", "429"} <= set(pods["responses"])
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert "x-shape" not in str(document)


def test_every_operation_has_an_id_of_its_own(server: HttpServer) -> None:
    document = server.get("/v1/openapi.json").json
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
