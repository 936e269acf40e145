"""`/v1/facts`, page by page."""

import pytest

from tests.support.records.dead_letters import fail
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql

PATH = "/v1/facts"
INSERT = """
    INSERT INTO cortex.fact (type, subtype, source, data, amount, currency)
    SELECT (ARRAY['error', 'cost'])[1 + n % 2], 'x', 'llm:m' || n % 3, '{"n": 1}',
           CASE WHEN n % 2 = 1 THEN 0.5 END, CASE WHEN n % 2 = 1 THEN 'USD' END
    FROM generate_series(1, 10) n
"""


@pytest.fixture
def viewer(server: HttpServer) -> str:
    return server.token("viewer")


def test_pages_show_each_fact_once(server: HttpServer, viewer: str) -> None:
    sql(server.dsn, INSERT)
    seen: list[int] = []
    more = ""
    while more is not None:
        page = server.get(f"{PATH}?limit=4&type=error&type=cost{more}", token=viewer).json
        seen += [each["id"] for each in page["facts"]]
        more = page["next_before"] and f"&before={page['next_before']}"
    assert len(seen) == len(set(seen)) == 10
    assert seen == sorted(seen, reverse=True)
    costs = server.get(f"{PATH}?type=cost&source=llm:m1", token=viewer).json["facts"]
    assert [(each["amount"], each["data"]) for each in costs] == [(0.5, {"n": 1})] * len(costs)
    assert 0 < len(costs) < 5


def test_facts_are_filtered_by_job_and_invalid_filters_refused(
    server: HttpServer, viewer: str
) -> None:
    (job_id,) = fail(server.dsn)
    sql(
        server.dsn,
        "INSERT INTO cortex.fact (type, subtype, job_id) VALUES ('error', 'x', $1)",
        job_id,
    )
    (fact,) = server.get(f"{PATH}?job_id={job_id}&type=error", token=viewer).json["facts"]
    assert (fact["job_id"], fact["is_resolved"]) == (str(job_id), False)
    for query in ("type=x", "since=soon", "job_id=x", "before=0", "limit=201"):
        assert server.get(f"{PATH}?{query}", token=viewer).status == 400, query


def test_costs_are_summed_by_group_and_in_total(server: HttpServer, viewer: str) -> None:
    nothing = server.get("/v1/costs", token=viewer).json
    assert (nothing["costs"], nothing["total"]["calls"]) == ([], 0)
    sql(server.dsn, INSERT)
    by_agent = server.get("/v1/costs?since=1h", token=viewer).json
    (row,) = by_agent["costs"]
    assert (row["name"], row["calls"], row["cost_usd"]) == ("", 5, 2.5)
    assert by_agent["total"] == row | {"name": None}
    for query in ("by=colour", "since=soon", "limit=1001"):
        assert server.get(f"/v1/costs?{query}", token=viewer).status == 400, query
