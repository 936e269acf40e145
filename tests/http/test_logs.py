"""`/v1/jobs/{job_id}/logs` and `/v1/logs`: read page by page, and followed."""

from uuid import UUID

import pytest

from tests.support.records.dead_letters import fail
from tests.support.records.rows import new_id
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql

INSERT = """
    INSERT INTO cortex.log_line (job_id, attempt, number, at, level, message, fields)
    SELECT $1, 1 + n / 4, n, cortex.now(), CASE WHEN n % 2 = 0 THEN 20 ELSE 40 END, 'line',
           '{"n": 1}'
    FROM generate_series($2::int, $3::int) n
"""


@pytest.fixture
def viewer(server: HttpServer) -> str:
    return server.token("viewer")


@pytest.fixture
def job_id(server: HttpServer) -> UUID:
    (made,) = fail(server.dsn)
    sql(server.dsn, INSERT, made, 1, 6)
    return made


def test_pages_and_what_comes_later_show_each_line_once(
    server: HttpServer, viewer: str, job_id: UUID
) -> None:
    path, after = f"/v1/jobs/{job_id}/logs", ""
    numbers: list[int] = []
    while True:
        page = server.get(f"{path}?limit=4&after={after}", token=viewer).json
        numbers += [row["number"] for row in page["logs"]]
        after = page["next_after"]
        if not page["has_more"]:
            break
    assert numbers == [1, 2, 3, 4, 5, 6]
    sql(server.dsn, INSERT, job_id, 7, 7)
    page = server.get(f"{path}?after={after}", token=viewer).json
    assert [(row["number"], row["attempt"], row["level"]) for row in page["logs"]] == [
        (7, 2, "error")
    ]
    errors = server.get(f"{path}?level=error&attempt=1", token=viewer).json["logs"]
    assert [row["number"] for row in errors] == [1, 3]
    assert errors[0]["fields"] == {"n": 1}


def test_lines_of_all_jobs_are_listed_the_newest_first(
    server: HttpServer, viewer: str, job_id: UUID
) -> None:
    page = server.get("/v1/logs?level=error&limit=2", token=viewer).json
    assert [row["number"] for row in page["logs"]] == [5, 3]
    page = server.get(f"/v1/logs?level=error&before={page['next_before']}", token=viewer).json
    assert ([row["number"] for row in page["logs"]], page["next_before"]) == ([1], None)
    assert page["logs"][0]["job_id"] == str(job_id)


def test_invalid_request_is_refused(server: HttpServer, viewer: str, job_id: UUID) -> None:
    path = f"/v1/jobs/{job_id}/logs"
    for query in ("after=x", "level=loud", "limit=0", "attempt=0"):
        assert server.get(f"{path}?{query}", token=viewer).status == 400, query
    assert server.get(f"/v1/jobs/{new_id()}/logs", token=viewer).status == 404
    assert server.get(path).status == 401
