"""What a job shows, over HTTP: its chunks as events, its state and progress."""

from uuid import UUID

from tests.http.conftest import own_server, server
from tests.support.events import follow
from tests.support.records.rows import new_id, submit
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql

__all__ = ["own_server", "server"]

CHUNKS = """
    INSERT INTO cortex.job_step (
        job_id, seq, attempt, kind, key, digest, started_at, finished_at, output)
    SELECT $1, n, 1, CASE WHEN n % 2 = 0 THEN 'emit' ELSE 'step' END, 'step ' || n, '',
           cortex.now(), cortex.now(), to_json(repeat('x', $3) || n)
    FROM generate_series(1, $2::int) n
"""
COUNT = 60
CHARS = 60_000


def complete(dsn: str, job_id: UUID) -> None:
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
    for status in ("RUNNING", "COMPLETED"):
        sql(
            dsn,
            "UPDATE cortex.job_record SET status = $2::text::cortex.job_status WHERE id = $1",
            job_id,
            status,
        )


def test_followers_get_each_large_chunk_once_and_in_order(
    server: HttpServer, database: str
) -> None:
    job_id = submit(database, "work", {})
    sql(database, CHUNKS, job_id, COUNT, CHARS)
    complete(database, job_id)
    path, token = f"/v1/jobs/{job_id}/events", server.token("viewer")
    with follow((server.host, server.port), path, token=token) as stream:
        events = list(stream)
    chunks = [each.data["chunk"] for each in events if each.name == "chunk"]
    assert chunks == ["x" * CHARS + str(number) for number in range(2, COUNT + 1, 2)]
    assert len([each for each in events if each.name == "step"]) == COUNT // 2
    assert not [each for each in events if each.name == "step" and "chunk" in each.data]
    assert events[-1].name == "end"


def test_state_is_served_and_unknown_jobs_are_not(server: HttpServer, database: str) -> None:
    job_id, token = submit(database, "work", {}), server.token("viewer")
    path = f"/v1/jobs/{job_id}/state"
    empty: dict[str, object] = {"state": {}, "progress": None, "changed_at": None}
    assert server.get(path, token=token).json == empty
    publish = (
        "INSERT INTO cortex.job_published (job_id, attempt, number, state, done, total, unit) "
        "VALUES ($1, 1, 1, '{\"phase\": \"load\"}', 3, 10, 'pages')"
    )
    sql(database, publish, job_id)
    found = server.get(path, token=token).json
    assert found["state"] == {"phase": "load"}
    assert found["progress"] == {"done": 3.0, "total": 10.0, "unit": "pages"}
    (listed,) = server.get("/v1/jobs", token=token).json["jobs"]
    assert listed["progress"] == found["progress"]
    assert server.get(f"/v1/jobs/{new_id()}/state", token=token).status == 404
