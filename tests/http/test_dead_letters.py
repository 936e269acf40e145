"""`/v1/dead-letters`: finding failed jobs, going on from them, giving them up."""

import json
from typing import Any
from uuid import UUID

import pytest

from cortex.store import specs
from cortex.store.specs import SpecKind
from cortex.view.resources.dead_letters import LETTER
from tests.support.records.dead_letters import fail
from tests.support.records.rows import job_row, new_id
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql

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
    assert errors[1]["on_retry"] == "continues after step 2 · step 2"
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


FILTERS: list[tuple[str, int]] = [
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
]


def test_filters(server: HttpServer, operator: str) -> None:
    fail(server.dsn, submitted={"tenant": "acme"})
    for query, count in FILTERS:
        for path, name in (("", "letters"), ("/errors", "errors")):
            output = server.get(f"{PATH}{path}?{query}", token=operator)
            assert (output.status, len(output.json[name])) == (200, count), output


NO_FILTERS: list[str] = [
    "since=soon",
    "since=2",
    "state=open",
    "error_class=X",
    "fingerprint=zz",
    "limit=0",
    "x=1",
]


def test_invalid_dead_letter_filter_is_refused(server: HttpServer, operator: str) -> None:
    for query in NO_FILTERS:
        assert server.get(f"{PATH}?{query}", token=operator).status == 400, ascii(query)


def test_dead_letter_shows_cause_and_consequences(server: HttpServer, operator: str) -> None:
    (job_id,) = fail(server.dsn, steps=1, submitted={"payload": '{"a": 1}'})
    shown = server.get(f"{PATH}/{job_id}", token=operator)
    assert shown.status == 200
    assert {field.name for field in LETTER.fields} | {"attempts"} == set(shown.json)
    assert (shown.json["payload"], shown.json["spent_usd"]) == ({"a": 1}, 0.25)
    assert shown.json["on_retry"] == "continues after step 1 · step 1"
    for unknown in (new_id(), "nonsense"):
        assert server.get(f"{PATH}/{unknown}", token=operator).status == 404


def test_dead_letter_is_settled_once_and_a_conflict_names_the_person(
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


def test_a_failed_job_is_retried_as_its_dead_letter_is(server: HttpServer, operator: str) -> None:
    as_job, as_letter = fail(server.dsn, 2, steps=2)
    retry_job = f"/v1/jobs/{as_job}/retry"
    by_job = server.post(
        retry_job, token=operator, json_body={"reason": "x"}, headers={"Idempotency-Key": "k"}
    )
    by_letter = act(server, operator, f"/{as_letter}/retry", {})
    assert (by_job.status, by_job.json["status"], by_letter.status) == (200, "FAILED", 200)
    heirs = [job_row(server.dsn, each.json["retried_as"]) for each in (by_job, by_letter)]
    assert [heir["origin_id"] for heir in heirs] == [as_job, as_letter]
    differs = {"id", "origin_id", "lineage_id", "trace_id", "worker_job_id", "now"}
    times = {name for name in heirs[0] if name.endswith("_at")}
    first, second = (
        {name: value for name, value in heir.items() if name not in differs | times}
        for heir in heirs
    )
    assert first == second
    assert first["checkpoint"]["seq"] == 2
    of_job, of_letter = sql(
        server.dsn, "SELECT state, resolved_by, reason FROM cortex.dead_letter ORDER BY job_id"
    )
    assert tuple(of_job) == tuple(of_letter) == ("RETRIED", "ana", "x")

    replayed = server.post(
        retry_job, token=operator, json_body={"reason": "x"}, headers={"Idempotency-Key": "k"}
    )
    assert replayed.json == by_job.json
    again = server.post(retry_job, token=operator, json_body={"reason": "x"})
    assert (again.status, again.json["code"]) == (409, "conflict")
    assert "was retried by ana" in again.json["detail"]


def test_a_version_that_no_agent_has_is_documented(server: HttpServer, operator: str) -> None:
    server.store(
        lambda db: specs.apply(db, SpecKind.AGENT, new_id=new_id(), name="bot", spec={}, by="li")
    )
    (job_id,) = fail(server.dsn, submitted={"agent": "bot"})
    output = act(server, operator, f"/{job_id}/retry", {"agent_version": 9})
    assert (output.status, output.json["code"]) == (404, "not_found")
    assert states(server.dsn) == ["OPEN"]


def request_of(server: HttpServer, job_id: str) -> dict[str, Any]:
    """Request that the job of a bulk operation was submitted with."""
    row = job_row(server.dsn, UUID(job_id))
    assert (row["type"], row["queue_name"], row["submitted_by"]) == ("bulk", "bulk", "ana")
    request: dict[str, Any] = json.loads(row["payload"])["request"]
    return request


def test_many_are_chosen_tried_out_and_then_changed_by_a_job(
    server: HttpServer, operator: str
) -> None:
    ids = fail(server.dsn, 5)
    fail(server.dsn, error_code="other")
    choice = {"which": {"code": "job_failed"}, "limit": 3}
    tried = act(server, operator, "/discard", choice | {"dry_run": True}).json
    assert (len(tried["letters"]), tried["done_count"]) == (3, 0)
    assert (tried["has_more"], tried["is_dry_run"]) == (True, True)
    begun = act(server, operator, "/discard", choice | {"rate": 2.5})
    assert (begun.status, begun.json["count"], begun.json["has_more"]) == (202, 3, True)
    assert set(states(server.dsn)) == {"OPEN"}, "no letter is settled in the request"
    assert request_of(server, begun.json["id"]) == {
        "verb": "discard",
        "reason": "x",
        "jobs": "letter:unresolved code:job_failed",
        "job_ids": [str(each) for each in sorted(ids)[:3]],
        "limit": 3,
        "rate_per_s": 2.5,
    }
    shown = server.get(begun.headers["location"], token=operator)
    assert (shown.status, shown.json["job"]["status"]) == (200, "PENDING")
    tried = act(server, operator, "/retry", {"which": {"filter": "code:job_*"}, "dry_run": True})
    assert len(tried.json["letters"]) == 5
    listed = server.get(f"{PATH}?filter=code%3Aoth*&since=1h", token=operator)
    assert [row["error_code"] for row in listed.json["letters"]] == ["other"]
    again = act(server, operator, "/discard", {"which": {"code": "nothing"}})
    assert (again.status, again.json["letters"], again.json["done_count"]) == (200, [], 0)


def test_a_selection_takes_letters_of_every_cause(server: HttpServer, operator: str) -> None:
    fail(server.dsn, 2, submitted={"type": "work"})
    fail(server.dsn, error_code="diverged", submitted={"type": "work"})
    choice = {"which": {"type": "work"}}
    tried = act(server, operator, "/retry", choice | {"dry_run": True}).json
    assert len(tried["letters"]) == 3
    anew = act(server, operator, "/retry", choice | {"from_start": True}).json
    request = request_of(server, anew["id"])
    assert (anew["count"], request["limit"], request["from_start"]) == (3, 3, True)


def test_a_letter_is_retried_with_another_payload(server: HttpServer, operator: str) -> None:
    (failed,) = fail(server.dsn, submitted={"type": "work", "payload": '{"url": "a", "n": 1}'})
    path = f"/v1/dead-letters/{failed}"
    body = {"reason": "typo", "payload": {"url": "b", "n": 1}}
    same = server.post(
        f"{path}/retry", token=operator, json_body=body | {"payload": {"url": "a", "n": 1}}
    )
    assert (same.status, same.json["code"]) == (400, "usage")
    done = server.post(f"{path}/retry", token=operator, json_body=body)
    assert done.status == 200
    heir = job_row(server.dsn, UUID(done.json["retried_as"]))
    assert json.loads(heir["payload"]) == {"url": "b", "n": 1}
    shown = server.get(path, token=operator).json
    assert (shown["payload"], shown["payload_changes"]) == (
        {"url": "a", "n": 1},
        [{"field": "url", "old": '"a"', "new": '"b"'}],
    )


def test_retry_reports_that_its_job_waits_for_code(server: HttpServer, operator: str) -> None:
    (typo,) = fail(server.dsn, submitted={"type": "digest", "payload": '{"typo": 1}'})
    (other,) = fail(server.dsn, submitted={"type": "unknown"})
    done = act(server, operator, f"/{typo}/retry", {})
    assert (done.status, done.json["retried_as"] is None) == (200, False)
    assert "'typo'" in done.json["waiting"]
    assert done.json["waiting"].endswith(": the new job waits for code that takes it")
    assert act(server, operator, f"/{other}/retry", {}).json["waiting"] is None
    assert act(server, operator, f"/{new_id()}/retry", {}).status == 404


def test_only_an_administrator_edits_the_payload_of_a_tool_call(
    server: HttpServer, operator: str
) -> None:
    (failed,) = fail(server.dsn, submitted={"type": "execute_tool", "payload": '{"tool": "a"}'})
    body = {"reason": "typo", "payload": {"tool": "b"}}
    path = f"/v1/dead-letters/{failed}/retry"
    assert server.post(path, token=operator, json_body=body).status == 403


def test_a_job_of_that_type_is_submitted_in_no_other_way(server: HttpServer, operator: str) -> None:
    body = {"type": "bulk", "payload": {"request": {"verb": "cancel", "jobs": "", "reason": ""}}}
    refused = server.post("/v1/jobs", token=operator, json_body=body)
    assert (refused.status, refused.json["code"]) == (400, "usage")
    assert "not submitted by hand" in refused.json["detail"]
    refused = server.post("/v1/jobs", token=operator, json_body={"type": "work", "queue": "bulk"})
    assert (refused.status, refused.json["code"]) == (400, "usage")
    assert "is for bulk operations" in refused.json["detail"]


def test_each_named_letter_has_its_own_outcome(server: HttpServer, operator: str) -> None:
    good, settled = fail(server.dsn, 2)
    act(server, operator, f"/{settled}/discard", {})
    unknown = new_id()
    ids = [str(good), str(settled), str(unknown), str(good)]
    output = act(server, operator, "/retry", {"job_ids": ids}).json
    codes = {each["job_id"]: (each["error"] or {}).get("code") for each in output["letters"]}
    assert codes == {ids[0]: None, ids[1]: "conflict", ids[2]: "not_found"}
    assert output["done_count"] == 1


CHOSEN_BY_NOBODY: list[tuple[dict[str, Any], int]] = [
    ({}, 400),
    ({"which": {}}, 400),
    ({"which": {"type": "work"}, "job_ids": [str(new_id())]}, 400),
    ({"which": {"since": "soon"}}, 400),
    ({"which": {"filter": "typ:work"}}, 400),
    ({"which": {"filter": "type:'work", "tenant": "it's"}}, 400),
    ({"job_ids": [str(new_id())] * 501}, 400),
    ({"job_ids": ["x"]}, 422),
    ({"which": {"typ": "work"}}, 422),
    ({"which": {"type": "work"}, "limit": 10_001}, 422),
    ({"which": {"type": "work"}, "reason": ""}, 422),
]


def test_dead_letters_without_a_valid_selection_stay_open(
    server: HttpServer, operator: str
) -> None:
    fail(server.dsn)
    for body, status in CHOSEN_BY_NOBODY:
        for path in ("/retry", "/discard"):
            assert act(server, operator, path, body).status == status, ascii(body)
        assert states(server.dsn) == ["OPEN"], ascii(body)


def test_bulk_retry_under_a_key_submits_one_job(server: HttpServer, operator: str) -> None:
    """Also when nothing is left to choose by the time that it is asked for again."""
    ids = fail(server.dsn, 2)
    body = {"which": {"type": "work"}, "rate": 1000.0}
    headers = {"Idempotency-Key": "k"}
    first = act(server, operator, "/retry", body, headers=headers)
    for job_id in ids:
        act(server, operator, f"/{job_id}/discard", {})
    again = act(server, operator, "/retry", body, headers=headers)
    assert (first.status, again.status) == (202, 202)
    assert first.json["id"] == again.json["id"]
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    count = "SELECT count(*) AS n FROM cortex.job WHERE type = 'bulk'"
    assert sql(server.dsn, count)[0]["n"] == 1
    assert act(server, operator, "/discard", body, headers=headers).json["code"] == "key_reused"


def test_named_letters_under_a_key_are_settled_once(server: HttpServer, operator: str) -> None:
    body = {"job_ids": [str(each) for each in fail(server.dsn, 2)]}
    headers = {"Idempotency-Key": "k"}
    first = act(server, operator, "/retry", body, headers=headers)
    again = act(server, operator, "/retry", body, headers=headers)
    assert (first.status, again.status) == (200, 200)
    assert first.json["letters"] == again.json["letters"]
    assert again.headers["idempotent-replayed"] == "true"
    assert states(server.dsn) == ["RETRIED", "RETRIED"]


def test_retries_of_named_letters_become_due_at_the_rate(server: HttpServer, operator: str) -> None:
    ids = [str(each) for each in fail(server.dsn, 2)]
    assert act(server, operator, "/retry", {"job_ids": ids, "rate": 1.0}).json["done_count"] == 2
    query = "SELECT run_at - created_at AS delay FROM cortex.job WHERE origin_id IS NOT NULL"
    delays = sorted(row["delay"].total_seconds() for row in sql(server.dsn, query))
    assert delays == [0.0, 1.0]


def test_viewers_cannot_settle_dead_letters(server: HttpServer) -> None:
    (job_id,) = fail(server.dsn)
    token = server.token("viewer")
    assert server.get(f"{PATH}/{job_id}", token=token).status == 200
    for path in (f"/{job_id}/retry", f"/{job_id}/discard", "/retry", "/discard"):
        assert act(server, token, path, {"which": {"type": "work"}}).status == 403
    assert states(server.dsn) == ["OPEN"]
