"""The long poll: its answer when a job ends or continues, or the client or the pod leaves."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.records.rows import new_id, submit
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql

CROWD = 1_000
WATCHED_S = 4.0


@pytest.fixture
def viewer(server: HttpServer) -> str:
    return server.token("viewer")


def path(job_id: UUID, wait_ms: int | None = None) -> str:
    return f"/v1/jobs/{job_id}/result" + ("" if wait_ms is None else f"?wait_ms={wait_ms}")


def end(dsn: str, job_id: UUID, change: str) -> None:
    """Let the job end, as some other pod would."""
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
    sql(dsn, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", job_id)
    sql(dsn, f"UPDATE cortex.job_record SET {change} WHERE id = $1", job_id)  # noqa: S608


DONE = """status = 'COMPLETED', result = '{"text": "two\\nlines"}'"""
FAILED = """status = 'FAILED', error_message = 'no such page', error_code = 'not_found',
            error_class = 'PERMANENT'"""
CANCELLED = "status = 'CANCELLED', cancelled_by = 'li', cancel_reason = 'enough'"


def waiting(server: HttpServer, count: int) -> None:
    eventually(lambda: len(server.hall.waiters) == count, what=f"{count} wait")


def test_completed_job_returns_its_result(server: HttpServer, viewer: str, database: str) -> None:
    job_id = submit(database, "digest")
    end(database, job_id, DONE)
    output = server.get(path(job_id), token=viewer)
    assert output.status == 200
    assert output.json == {
        "id": str(job_id),
        "status": "COMPLETED",
        "finished_at": output.json["finished_at"],
        "result": {"text": "two\nlines"},
    }
    assert output.json["finished_at"].endswith("Z")


def test_a_job_that_failed_is_a_problem_with_its_own_code(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    end(database, job_id, FAILED)
    output = server.get(path(job_id), token=viewer)
    assert (output.status, output.headers["content-type"]) == (422, "application/problem+json")
    assert output.json["type"] == "urn:cortex:job:failed"
    assert (output.json["code"], output.json["detail"]) == ("not_found", "no such page")
    assert (output.json["job_status"], output.json["error_class"]) == ("FAILED", "PERMANENT")


def test_cancelled_job_is_a_problem_of_its_own(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    end(database, job_id, CANCELLED)
    output = server.get(path(job_id), token=viewer)
    assert output.status == 422
    assert output.json["type"] == "urn:cortex:job:cancelled"
    assert (output.json["code"], output.json["job_status"]) == ("job_cancelled", "CANCELLED")
    assert output.json["detail"] == "the job was cancelled by li: enough"
    assert (output.json["cancelled_by"], output.json["cancel_reason"]) == ("li", "enough")


def test_unfinished_job_answers_202_with_retry_after(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    for wait_ms in (0, 300):
        began = time.monotonic()
        output = server.get(path(job_id, wait_ms), token=viewer)
        assert (output.status, output.headers["retry-after"]) == (202, "1")
        assert output.json == {
            "id": str(job_id),
            "has_ended": False,
            "waiting_on": None,
            "misfit": None,
        }
        assert wait_ms / 1000 <= time.monotonic() - began
    assert server.ask("HEAD", path(job_id, 30_000), token=viewer).status == 202


def test_limits(server: HttpServer, viewer: str) -> None:
    assert server.get(path(new_id()), token=viewer).status == 404
    for wait_ms in (30_001, -1):
        assert server.get(path(new_id(), wait_ms), token=viewer).status == 400


def test_waiting_clients_are_answered_when_the_job_ends(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(server.get, path(job_id, 30_000), token=viewer) for _ in range(3)]
        waiting(server, 3)
        end(database, job_id, DONE)
        began = time.monotonic()
        assert [each.result().status for each in asked] == [200, 200, 200]
        assert time.monotonic() - began < 25, "before the wait that was asked for is over"


def test_a_client_that_leaves_is_forgotten_at_once(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    with server.connect() as connection:
        connection.sendall(request(job_id, viewer))
        waiting(server, 1)
    waiting(server, 0)
    assert server.get("/v1/pods", token=viewer).status == 200


def test_waiting_clients_are_answered_when_the_pod_drains(
    server: HttpServer, viewer: str, database: str
) -> None:
    job_id = submit(database, "digest")
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(server.get, path(job_id, 30_000), token=viewer) for _ in range(3)]
        waiting(server, 3)
        began = time.monotonic()
        server.drain()
        output = [each.result() for each in asked]
        assert [each.status for each in output] == [202, 202, 202]
        assert time.monotonic() - began < 25, "before the wait that was asked for is over"
    late = server.get(path(job_id, 30_000), token=viewer)
    assert late.status == 202
    end(database, job_id, DONE)
    assert server.get(path(job_id, 30_000), token=viewer).status == 200


def test_too_many_waiting_clients_get_503(
    server: HttpServer, viewer: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.result_waiters.WAITERS_MAX", 1)
    job_id = submit(database, "digest")
    with server.connect() as connection:
        connection.sendall(request(job_id, viewer))
        waiting(server, 1)
        output = server.get(path(job_id), token=viewer)
        assert (output.status, output.headers["retry-after"]) == (503, "1")


@pytest.mark.timeout(300)
def test_thousand_waiting_clients_cost_few_statements(
    server: HttpServer, viewer: str, database: str
) -> None:
    ids = submit_many(database, CROWD)
    with ExitStack() as stack:
        sockets = [stack.enter_context(server.connect()) for _ in ids]
        for job_id, connection in zip(ids, sockets, strict=True):
            connection.sendall(request(job_id, viewer))
        eventually(lambda: len(server.hall.waiters) == CROWD, what="all wait", within_s=150.0)
        counted, began = server.calls.counts.total(), time.monotonic()
        eventually(lambda: time.monotonic() > began + WATCHED_S, what="a while went by")
        statements = server.calls.counts.total() - counted
        assert 1 <= statements < 5 * (time.monotonic() - began)
        assert len(server.hall.waiters) == CROWD
        sql(database, "DELETE FROM cortex_worker.task")
        sql(database, "UPDATE cortex.job_record SET status = 'RUNNING'")
        sql(database, f"UPDATE cortex.job_record SET {DONE}")  # noqa: S608
        for connection in sockets:
            assert connection.recv(64).startswith(b"HTTP/1.1 200")


def submit_many(dsn: str, count: int) -> list[UUID]:
    query = "SELECT cortex.submit_job('digest') AS id FROM generate_series(1, $1)"
    return [row["id"] for row in sql(dsn, query, count)]


def request(job_id: UUID, token: str) -> bytes:
    head = f"GET {path(job_id, 30_000)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}\r\n".encode()
