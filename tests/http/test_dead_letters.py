"""`/v1/dead-letters`: finding failed jobs, going on from them, giving them up."""

from typing import Any

import pytest

from cortex.cli.dead_show import FIELDS
from cortex.store import agents
from tests.support.http_server import Answered, HttpServer
from tests.support.letters import fail
from tests.support.postgres import sql
from tests.support.rows import job_row, new_id

PATH = "/v1/dead-letters"


@pytest.fixture
def operator(server: HttpServer) -> str:
    return server.token("operator", name="ana")


def act(server: HttpServer, token: str, path: str, body: dict[str, Any], **more: Any) -> Answered:
    return server.post(f"{PATH}{path}", token=token, json_body={"reason": "x"} | body, **more)


def states(dsn: str) -> list[str]:
    query = "SELECT state FROM cortex.dead_letter ORDER BY created_at, job_id"
    return [row["state"] for row in sql(dsn, query)]


def test_letters_are_listed_by_their_errors_and_one_by_one(
    server: HttpServer, operator: str
) -> None:
    same = fail(server.dsn, 3, steps=2)
    (other,) = fail(server.dsn, error_code="not_found", error_class="PERMANENT")
    errors = server.get(f"{PATH}/errors", token=operator).json["errors"]
    assert [(each["count"], each["error_code"]) for each in errors] == [
        (1, "not_found"),
        (3, "job_failed"),
    ]
    assert errors[1]["on_retry"] == "go on after step 2 step 2"
    fingerprint = errors[1]["fingerprint"]

    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        found = server.get(
            f"{PATH}?fingerprint={fingerprint[:6]}&limit=2{cursor}", token=operator
        ).json
        seen += [each["job_id"] for each in found["letters"]]
        cursor = found["next_cursor"] and f"&cursor={found['next_cursor']}"
    assert sorted(seen) == sorted(map(str, same))
    (letter,) = server.get(f"{PATH}?code=not_found&since=1h", token=operator).json["letters"]
    assert (letter["job_id"], letter["state"]) == (str(other), "OPEN")


@pytest.mark.parametrize(
    "query, count",
    [
        ("type=work", 1),
        ("type=none", 0),
        ("tenant=acme", 1),
        ("tenant=%25", 0),
        ("agent=nobody", 0),
        ("error_class=TRANSIENT_INFRA", 1),
        ("error_class=PERMANENT", 0),
        ("state=OPEN&state=RETRIED", 1),
        ("state=RETRIED", 0),
        ("since=2d", 1),
        ("code=%27%20OR%201=1", 0),
    ],
)
def test_filters(server: HttpServer, operator: str, query: str, count: int) -> None:
    fail(server.dsn, submitted={"tenant": "acme"})
    for path, name in (("", "letters"), ("/errors", "errors")):
        told = server.get(f"{PATH}{path}?{query}", token=operator)
        assert (told.status, len(told.json[name])) == (200, count), told


@pytest.mark.parametrize(
    "query",
    ["since=soon", "since=2", "state=open", "error_class=X", "fingerprint=zz", "limit=0", "x=1"],
)
def test_what_is_no_filter_is_refused(server: HttpServer, operator: str, query: str) -> None:
    assert server.get(f"{PATH}?{query}", token=operator).status == 400


def test_a_letter_tells_why(server: HttpServer, operator: str) -> None:
    (job_id,) = fail(server.dsn, steps=1, submitted={"payload": '{"a": 1}'})
    shown = server.get(f"{PATH}/{job_id}", token=operator)
    assert shown.status == 200
    assert set(FIELDS) | {"on_retry", "attempts"} <= set(shown.json)
    assert (shown.json["payload"], shown.json["spent_usd"]) == ({"a": 1}, 0.25)
    assert shown.json["on_retry"] == "go on after step 1 step 1"
    for unknown in (new_id(), "nonsense"):
        assert server.get(f"{PATH}/{unknown}", token=operator).status == 404


def test_one_is_retried_once_and_the_next_one_is_told_by_whom(
    server: HttpServer, operator: str
) -> None:
    (job_id,) = fail(server.dsn, steps=2)
    first = act(server, operator, f"/{job_id}/retry", {})
    assert first.status == 200, first
    heir = job_row(server.dsn, first.json["retried_as"])
    assert (heir["origin_id"], heir["checkpoint"]["seq"]) == (job_id, 2)
    for path in ("retry", "discard"):
        again = act(server, operator, f"/{job_id}/{path}", {})
        assert (again.status, again.json["code"]) == (409, "conflict")
        assert "was retried by ana" in again.json["detail"]
    (row,) = sql(server.dsn, "SELECT resolved_by, reason FROM cortex.dead_letter")
    assert tuple(row) == ("ana", "x")
    assert act(server, operator, f"/{new_id()}/retry", {}).status == 404


def test_a_version_that_no_agent_has_is_told(server: HttpServer, operator: str) -> None:
    server.store(lambda db: agents.apply(db, new_id=new_id(), name="bot", spec={}, by="li"))
    (job_id,) = fail(server.dsn, submitted={"agent": "bot"})
    told = act(server, operator, f"/{job_id}/retry", {"agent_version": 9})
    assert (told.status, told.json["code"]) == (404, "not_found")
    assert states(server.dsn) == ["OPEN"]


def test_many_are_chosen_tried_out_and_then_acted_on(server: HttpServer, operator: str) -> None:
    fail(server.dsn, 5)
    fail(server.dsn, error_code="other")
    choice = {"which": {"code": "job_failed"}, "limit": 3}
    tried = act(server, operator, "/discard", choice | {"dry_run": True}).json
    assert (len(tried["letters"]), tried["done_count"]) == (3, 0)
    assert (tried["has_more"], tried["is_dry_run"]) == (True, True)
    assert set(states(server.dsn)) == {"OPEN"}
    done = act(server, operator, "/discard", choice).json
    assert [each["job_id"] for each in done["letters"]] == [
        each["job_id"] for each in tried["letters"]
    ]
    assert (done["done_count"], done["has_more"]) == (3, True)
    rest = act(server, operator, "/retry", choice | {"rate": 1.0}).json
    assert (rest["done_count"], rest["has_more"]) == (2, False)
    assert sorted(states(server.dsn)) == ["DISCARDED"] * 3 + ["OPEN"] + ["RETRIED"] * 2
    query = "SELECT run_at - created_at AS delay FROM cortex.job WHERE origin_id IS NOT NULL"
    delays = sorted(row["delay"].total_seconds() for row in sql(server.dsn, query))
    assert delays == [0.0, 1.0]


def test_of_many_named_ones_each_has_its_own_outcome(server: HttpServer, operator: str) -> None:
    good, settled = fail(server.dsn, 2)
    act(server, operator, f"/{settled}/discard", {})
    unknown = new_id()
    ids = [str(good), str(settled), str(unknown), str(good)]
    told = act(server, operator, "/retry", {"job_ids": ids}).json
    codes = {each["job_id"]: (each["error"] or {}).get("code") for each in told["letters"]}
    assert codes == {ids[0]: None, ids[1]: "conflict", ids[2]: "not_found"}
    assert told["done_count"] == 1


@pytest.mark.parametrize(
    "body, status",
    [
        ({}, 400),
        ({"which": {}}, 400),
        ({"which": {"type": "work"}, "job_ids": [str(new_id())]}, 400),
        ({"which": {"since": "soon"}}, 400),
        ({"job_ids": [str(new_id())] * 501}, 400),
        ({"job_ids": ["x"]}, 422),
        ({"which": {"typ": "work"}}, 422),
        ({"which": {"type": "work"}, "limit": 501}, 422),
        ({"which": {"type": "work"}, "reason": ""}, 422),
    ],
)
def test_nothing_is_done_to_letters_that_nobody_chose(
    server: HttpServer, operator: str, body: dict[str, Any], status: int
) -> None:
    fail(server.dsn)
    for path in ("/retry", "/discard"):
        assert act(server, operator, path, body).status == status
    assert states(server.dsn) == ["OPEN"]


def test_under_a_key_many_are_acted_on_once(server: HttpServer, operator: str) -> None:
    fail(server.dsn, 3)
    body = {"which": {"type": "work"}, "limit": 2}
    headers = {"Idempotency-Key": "k"}
    first = act(server, operator, "/retry", body, headers=headers)
    again = act(server, operator, "/retry", body, headers=headers)
    assert (first.status, again.status) == (200, 200)
    assert first.json["letters"] == again.json["letters"]
    assert again.headers["idempotent-replayed"] == "true"
    assert sorted(states(server.dsn)) == ["OPEN", "RETRIED", "RETRIED"]
    assert act(server, operator, "/discard", body, headers=headers).json["code"] == "key_reused"


def test_who_only_reads_settles_nothing(server: HttpServer) -> None:
    (job_id,) = fail(server.dsn)
    token = server.token("viewer")
    assert server.get(f"{PATH}/{job_id}", token=token).status == 200
    for path in (f"/{job_id}/retry", f"/{job_id}/discard", "/retry", "/discard"):
        assert act(server, token, path, {"which": {"type": "work"}}).status == 403
    assert states(server.dsn) == ["OPEN"]
