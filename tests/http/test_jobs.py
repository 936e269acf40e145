"""`/v1/jobs`: submitting, listing, showing and acting on jobs."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from cortex.domain.job import JobStatus
from cortex.domain.policy import JobPolicy
from cortex.durable.registry import job
from cortex.store import codes, job_pages, jobs, pods, specs
from cortex.store.codes import Code
from cortex.store.specs import SpecKind
from cortex.view.resources.jobs import JOB
from tests.support.records.factories import a_pod
from tests.support.records.rows import job_count, job_row, move_clock, new_id, submit
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql

HOSTILE = [
    "type:'; DROP TABLE cortex.job; --'",
    "agent:%' OR '1'='1",
    "tenant:\\",
    "queue:%%%___\\\\",
    "type:" + "*" * 500,
    "type:" + "*a" * 700,
    "tenant:\u202e\ufeff\U0001d4b3",
    "code:$1",
    "id:ffffffff",
    "age>5200w created<9999-12-31",
    "created>0001-01-01 created<2000-01-01",
]
REFUSED = [
    "'",
    "type",
    "status:nope",
    "type:\x00",
    "x" * 2001,
    "a:b",
    "age>-1s",
    "id:%",
    "id:" + ",".join(f"{n:04x}" for n in range(11)),
]


@pytest.fixture
def operator(server: HttpServer) -> str:
    """A token that may act; the type `digest` is known."""
    server.store(lambda db: jobs.ensure_types(db, {"digest": JobPolicy(), "other": JobPolicy()}))
    return server.token("operator", name="ana")


def listed(server: HttpServer, token: str, text: str = "", **more: Any) -> dict[str, Any]:
    extra = "".join(f"&{name}={value}" for name, value in more.items())
    message = server.get(f"/v1/jobs?filter={quote(text)}{extra}", token=token)
    assert message.status == 200, message
    found: dict[str, Any] = message.json
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [each["id"] for each in page["jobs"]]


# --- submitting


def test_a_job_is_submitted_in_the_name_of_its_token(
    server: HttpServer, operator: str, database: str
) -> None:
    server.store(
        lambda db: specs.apply(db, SpecKind.AGENT, new_id=new_id(), name="bot", spec={}, by="li")
    )
    body = {
        "type": "digest",
        "payload": {"urls": ["a"], "note": "é\u202e"},
        "agent": "bot",
        "tenant": "acme",
        "queue": "q",
        "priority": -3,
        "delay_s": 60.5,
        "timeout_s": 5400,
        "max_retries": 0,
        "key": "k",
    }
    message = server.post("/v1/jobs", token=operator, json_body=body)
    assert message.status == 201, message
    job_id = message.json["id"]
    assert message.headers["location"] == f"/v1/jobs/{job_id}"
    row = job_row(database, UUID(job_id))
    assert (row["type"], row["tenant"], row["queue_name"]) == ("digest", "acme", "q")
    assert (row["priority"], row["timeout_s"], row["max_retries"]) == (-3, 5400, 0)
    assert row["submitted_by"] == "ana"
    assert (row["run_at"] - row["created_at"]).total_seconds() == 60.5
    shown = server.get(message.headers["location"], token=operator).json["job"]
    assert (shown["payload"], shown["agent"]) == (body["payload"], "bot")


def test_a_job_continues_the_trace_of_its_request(server: HttpServer, operator: str) -> None:
    def trace_of(header: str, key: str | None = None) -> tuple[str, str]:
        headers = {"traceparent": header} | ({} if key is None else {"Idempotency-Key": key})
        body = {"type": "digest"}
        message = server.post("/v1/jobs", token=operator, json_body=body, headers=headers)
        assert message.status == 201, message
        path = message.headers["location"]
        return message.json["id"], server.get(path, token=operator).json["job"]["trace_id"]

    given = f"00-{'a' * 32}-{'b' * 16}-01"
    job_id, trace_id = trace_of(given, key="once")
    assert trace_id == "a" * 32
    # The client sends it again, in another span of its own.
    assert trace_of(given.replace("b", "c"), key="once")[0] == job_id
    other, own = trace_of("00-broken")  # ignored
    assert own == other.replace("-", "")


NO_JOBS: list[tuple[Any, int, str]] = [
    ({"type": ""}, 422, "type is 0 characters"),
    ({}, 422, "body.type is missing"),
    ({"type": "digest", "payload": []}, 422, "body.payload"),
    ({"type": "digest", "payload": {"urls": 3}}, 422, "payload.urls"),
    ({"type": "digest", "payload": {"ulrs": []}}, 422, "unknown key 'ulrs'"),
    ({"type": "digest", "timeout_s": 5401}, 400, "timeout_s 5401 is above the hard limit"),
    ({"type": "digest", "timeout_s": 0}, 422, "timeout_s is 0"),
    ({"type": "digest", "priority": 32768}, 422, "priority is 32768"),
    ({"type": "digest", "max_retries": 1.0}, 422, "must be a whole number, got 1.0"),
    ({"type": "digest", "agent": "nobody"}, 404, "nobody"),
    ({"type": "digest", "tenant": "x\0"}, 422, "NUL"),
    ({"type": "digest", "payload": {"note": "\ud800"}}, 422, "surrogate"),
    ({"type": "digest", "payload": {"note": "x" * 262_144}}, 422, "262,144"),
    ({"type": "digest", "by": "li"}, 422, "by"),
    ({"type": "run_agent", "payload": {"prompt": "x"}}, 400, "needs an agent"),
    ({"type": "approval_notify", "payload": {"approval": "7f3c"}}, 404, "no approval ends with"),
]


def test_invalid_submission_is_refused_with_a_reason(server: HttpServer, operator: str) -> None:
    for body, status, why in NO_JOBS:
        message = server.post("/v1/jobs", token=operator, json_body=body)
        assert (message.status, job_count(server.dsn, "true")) == (status, 0), message
        assert why in message.json["detail"], ascii(body)


def test_a_payload_is_checked_by_the_schemas_of_ready_pods(
    server: HttpServer, operator: str, database: str
) -> None:
    @job("other")
    async def other(ctx: object, y: int) -> None: ...

    @job("digest")
    async def newer(ctx: object, site: str) -> None: ...

    def submit(job_type: str, **payload: Any) -> tuple[int, str | None]:
        body = {"type": job_type, "payload": payload}
        message = server.post("/v1/jobs", token=operator, json_body=body).json
        return message.get("status", 201), message.get("detail", message.get("remark"))

    assert submit("other", x=[1]) == (201, "no ready pod runs 'other' yet")
    never = "no pod knows job type 'digets' (did you mean 'digest'?)"
    assert submit("digets") == (201, never)
    code = Code(version="v2", arguments={"other": other.schema, "digest": newer.schema})
    pod = a_pod(job_types=("other", "digest"), code=code)
    server.store(lambda db: codes.ensure(db, code))
    server.store(lambda db: pods.register(db, pod))
    sql(database, "UPDATE cortex.pod SET liveness = 'heartbeat'")
    assert submit("other", x=[1]) == (422, "payload of 'other' lacks y; has an unknown key 'x'")
    assert submit("other", y=1) == (201, None)
    # The server's own pod has older code, which would refuse it.
    assert submit("digest", site="x") == (201, None)
    assert submit("digest", sites="x")[0] == 422
    sql(database, "UPDATE cortex.pod SET liveness = 'lock'")  # and no session holds its lock
    assert submit("other", x=[1]) == (201, "no ready pod runs 'other' yet")


def test_only_an_admin_calls_a_tool_without_an_agent(
    server: HttpServer, operator: str, database: str
) -> None:
    body = {"type": "execute_tool", "payload": {"tool": "run_command", "arguments": {}}}
    refused = server.post("/v1/jobs", token=operator, json_body=body)
    assert (refused.status, job_count(database, "true")) == (403, 0), refused
    assert "execute_tool needs a token with role admin" in refused.json["detail"]
    admin = server.token("admin", name="li")
    assert server.post("/v1/jobs", token=admin, json_body=body).status == 201


def test_submission_under_a_key_makes_one_job(
    server: HttpServer, operator: str, database: str
) -> None:
    def send(key: str, note: str = "n", token: str = operator) -> Answered:
        body = {"type": "digest", "payload": {"note": note}}
        return server.post(
            "/v1/jobs", token=token, json_body=body, headers={"Idempotency-Key": key}
        )

    first = send("k-1")
    again = send("k-1")
    assert (first.status, again.status) == (201, 201)
    assert first.json == again.json
    assert again.headers["location"] == first.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = send("k-1", note="another one")
    assert (other.status, other.json["code"]) == (422, "key_reused")
    stranger = send("k-1", token=server.token("operator", name="li"))
    assert (stranger.status, stranger.json["code"]) == (422, "key_reused")
    assert send("").status == 400
    assert send("two words").status == 400
    assert job_count(database, "true") == 1


def test_hundred_submissions_under_one_key_make_one_job(
    server: HttpServer, operator: str, database: str
) -> None:
    def send(_: int) -> tuple[int, str]:
        message = server.post(
            "/v1/jobs",
            token=operator,
            json_body={"type": "digest"},
            headers={"Idempotency-Key": "same"},
        )
        return message.status, message.json.get("id") or message.json["code"]

    with ThreadPoolExecutor(25) as threads:
        message = set(threads.map(send, range(100)))
    made = {what for status, what in message if status == 201}
    assert len(made) == 1
    assert message - {(201, *made)} <= {(409, "conflict")}, "pending"
    assert job_count(database, "true") == 1


def test_the_same_key_means_the_same_on_the_command_line(
    server: HttpServer, operator: str, database: str
) -> None:
    """Only the job is kept under a key, and only the request is compared."""
    headers = {"Idempotency-Key": "k"}
    body = {"type": "digest", "payload": {"note": "n"}}
    server.post("/v1/jobs", token=operator, json_body=body, headers=headers)
    (row,) = sql(database, "SELECT operation, response FROM cortex.idempotency_key")
    assert row["operation"] == "jobs.submit"
    (job,) = sql(database, "SELECT id FROM cortex.job")
    assert json.loads(row["response"]) == {"id": str(job["id"]), "is_new": True}


# --- finding


def test_pages_continue_despite_new_jobs(server: HttpServer, operator: str, database: str) -> None:
    made = [str(submit(database, "digest")) for _ in range(7)]
    seen: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = listed(server, operator, "status:pend", limit=2, **more)
        seen += ids(page)
        submit(database, "digest")
        if page["next_cursor"] is None:
            break
        more = {"cursor": page["next_cursor"]}
    assert seen == made[::-1]


def test_a_list_takes_the_filter_of_the_command_line(
    server: HttpServer, operator: str, database: str
) -> None:
    server.store(
        lambda db: specs.apply(
            db, SpecKind.AGENT, new_id=new_id(), name="invoice-1", spec={}, by="li"
        )
    )
    submit(database, "digest")
    agents_one = str(submit(database, "other", agent="invoice-1", tenant="a_b"))
    move_clock(database, 700)
    assert ids(listed(server, operator, "agent:invoice-* type:other age>10m")) == [agents_one]
    assert ids(listed(server, operator, f"id:{agents_one[-6:]} tenant:a_b")) == [agents_one]
    assert ids(listed(server, operator, "status:run,done")) == []
    (row,) = listed(server, operator, "status:PENDING agent:invoice-1")["jobs"]
    assert (row["agent"], row["status"], row["checkpoint"]) == ("invoice-1", "PENDING", {})
    assert row["created_at"].endswith("Z")


def test_hostile_filter_finds_nothing_and_breaks_nothing(
    server: HttpServer, operator: str, database: str
) -> None:
    submit(database, "digest")
    for text in HOSTILE:
        page = listed(server, operator, text)
        if text.strip("*") != "type:":
            assert page["jobs"] == [], ascii(text)
        assert len(listed(server, operator)["jobs"]) == 1, ascii(text)


def test_invalid_job_filter_is_refused(server: HttpServer, operator: str) -> None:
    for text in REFUSED:
        message = server.get(f"/v1/jobs?filter={quote(text)}", token=operator)
        assert (message.status, message.json["code"]) == (400, "usage"), text


def test_invalid_cursor_is_refused_or_empty(server: HttpServer, operator: str) -> None:
    for cursor in ["x", "AAAA", "é", "_" * 32, "-" * 64, "'", "A" * 22]:
        message = server.get(f"/v1/jobs?cursor={quote(cursor)}", token=operator)
        assert message.status in {200, 400}, ascii(cursor)
        assert message.status == 400 or message.json["jobs"] == [], ascii(cursor)


def test_truncated_page_is_marked_short(
    server: HttpServer, operator: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pages, "LOOKED_MAX", 2)
    first = str(submit(database, "other"))
    for _ in range(3):
        submit(database, "digest")
    page = listed(server, operator, "type:other")
    assert (page["jobs"], page["is_short"]) == ([], True)
    page = listed(server, operator, "type:other", cursor=page["next_cursor"])
    assert ids(page) == [first]


# --- one of them


def test_a_job_is_shown_as_the_command_line_shows_it(
    server: HttpServer, operator: str, database: str
) -> None:
    job_id = submit(database, "digest", {"note": "n"})
    message = server.get(f"/v1/jobs/{job_id}", token=operator)
    assert message.status == 200
    assert set(message.json) == {"job", "attempts", "changes"}
    assert set(message.json["job"]) == {each.name for each in JOB.fields} - {"remark"}
    for path in ("", "/history", "/steps", "/why", "/result"):
        assert server.get(f"/v1/jobs/{new_id()}{path}", token=operator).status == 404, path
        assert server.get(f"/v1/jobs/no-id{path}", token=operator).status == 404, path


def test_why_matches_the_command_line(server: HttpServer, operator: str, database: str) -> None:
    message = server.get(f"/v1/jobs/{submit(database, 'digest')}/why", token=operator).json
    assert (message["cause"], message["facts"]["status"]) == ("no_pods", "PENDING")
    assert message["sentence"]


def test_history_and_steps_come_page_by_page(
    server: HttpServer, operator: str, database: str
) -> None:
    job_id = submit(database, "digest")
    for status in ("RUNNING", "COMPLETED"):
        sql(database, f"UPDATE cortex.job_record SET status = '{status}'")  # noqa: S608
    path = f"/v1/jobs/{job_id}/history?limit=2"
    first = server.get(path, token=operator).json
    assert [each["new"] for each in first["history"]] == ["PENDING", "RUNNING"]
    rest = server.get(f"{path}&after={first['next_after']}", token=operator).json
    assert ([each["new"] for each in rest["history"]], rest["next_after"]) == (["COMPLETED"], None)
    past = server.get(f"{path}&after={10**18 - 1}", token=operator)
    assert (past.status, past.json) == (200, {"history": [], "next_after": None})

    insert = """
        INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at,
                                     finished_at, output, cost_usd)
        SELECT $1, n, 1, 'step', 'step ' || n, '', now(), now(),
               to_json(repeat('x', CASE WHEN n = 2 THEN 4194300 ELSE 10 END)), 0.25
        FROM generate_series(1, 30) n
    """
    sql(database, insert, job_id)
    path = f"/v1/jobs/{job_id}/steps"
    page = server.get(f"{path}?limit=3", token=operator).json
    assert [each["seq"] for each in page["steps"]] == [1, 2, 3]
    assert (page["steps"][0]["output"], page["steps"][0]["cost_usd"]) == (None, 0.25)
    assert server.get(f"{path}?after=29", token=operator).json["next_after"] is None

    seen, after, pages = [], 0, []
    while after is not None:
        page = server.get(f"{path}?outputs=true&limit=200&after={after}", token=operator).json
        pages.append(len(page["steps"]))
        seen += [each["seq"] for each in page["steps"]]
        assert all(set(each["output"]) == {"x"} for each in page["steps"])
        after = page["next_after"]
    assert seen == list(range(1, 31))
    assert pages == [1, 1, 20, 8], "the large one stands alone"


# --- acting


def test_a_job_is_cancelled_with_a_reason(server: HttpServer, operator: str, database: str) -> None:
    job_id = submit(database, "digest")
    path = f"/v1/jobs/{job_id}/cancel"
    message = server.post(path, token=operator, json_body={"reason": "enough"})
    assert (message.status, message.json) == (
        200,
        {"id": str(job_id), "status": "CANCELLED", "pod": None},
    )
    row = job_row(database, job_id)
    assert (row["cancelled_by"], row["cancel_reason"]) == ("ana", "enough")
    again = server.post(path, token=operator)
    assert (again.status, again.json["code"]) == (409, "conflict")
    assert server.post(f"/v1/jobs/{new_id()}/cancel", token=operator).status == 404


def test_cancelling_a_running_job_asks_its_pod(
    server: HttpServer, operator: str, database: str
) -> None:
    job_id = submit(database, "digest")
    sql(
        database,
        "UPDATE cortex_worker.task SET state = 'LOCKED', locked_by = $1, locked_at = now(), "
        "attempt = 1, attempts_spent = 1",
        new_id(),
    )
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING'")
    message = server.post(f"/v1/jobs/{job_id}/cancel", token=operator)
    assert (message.status, message.json["status"]) == (202, "RUNNING")


def test_an_act_under_a_key_is_done_once(server: HttpServer, operator: str, database: str) -> None:
    job_id = submit(database, "digest")
    headers = {"Idempotency-Key": "c"}

    def cancel(reason: str) -> Answered:
        return server.post(
            f"/v1/jobs/{job_id}/cancel",
            token=operator,
            json_body={"reason": reason},
            headers=headers,
        )

    first, again, other = cancel("a"), cancel("a"), cancel("b")
    assert (first.status, again.status, other.status) == (200, 200, 422)
    assert first.json == again.json
    assert again.headers["idempotent-replayed"] == "true"


def test_a_job_that_waits_is_tried_again_now(
    server: HttpServer, operator: str, database: str
) -> None:
    job_id = submit(database, "digest")
    message = server.post(f"/v1/jobs/{job_id}/retry", token=operator, json_body={"reason": "x"})
    assert (message.status, message.json["code"]) == (409, "conflict")
    sql(
        database,
        "UPDATE cortex_worker.task SET state = 'LOCKED', locked_by = $1, locked_at = now()",
        new_id(),
    )
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING'")
    sql(database, "DELETE FROM cortex_worker.task")
    sql(
        database,
        "UPDATE cortex.job_record SET status = 'RETRY', worker_job_id = NULL, "
        "next_retry_at = now() + interval '1 hour'",
    )
    message = server.post(f"/v1/jobs/{job_id}/retry", token=operator, json_body={"reason": "x"})
    assert (message.status, message.json["status"]) == (200, "RETRY"), message
    facts = server.get(f"/v1/jobs/{job_id}", token=operator).json["changes"]
    assert (facts[-1]["data"]["by"], facts[-1]["data"]["reason"]) == ("ana", "x")


def test_viewers_and_approvers_cannot_change_jobs(server: HttpServer, database: str) -> None:
    job_id = submit(database, "digest")
    for role in ("viewer", "approver"):
        token = server.token(role)
        for path in ("", f"/{job_id}/cancel", f"/{job_id}/retry"):
            message = server.post(f"/v1/jobs{path}", token=token, json_body={})
            assert (message.status, message.json["code"]) == (403, "forbidden")
        assert server.get(f"/v1/jobs/{job_id}", token=token).status == 200
    assert job_row(database, job_id)["status"] == JobStatus.PENDING


def test_an_agent_reads_no_folder_that_the_operator_has_not_allowed(server: HttpServer) -> None:
    body = {"type": "run_agent", "agent": "a", "payload": {"prompt": "p", "folder": "/etc"}}
    refused = server.post("/v1/jobs", token=server.token("operator"), json_body=body)
    assert refused.status == 403
    assert "http_folders" in refused.json["hint"]
