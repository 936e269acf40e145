"""`cortex bench client` measures submits and waits that really happened."""

from cortex.bench.client import BULKS, WARM_UP, client
from tests.support.servers.postgres import sql


def test_client_is_measured_beside_bare_calls(database: str) -> None:
    figures = client(database, count=5, bulk=30)
    assert figures["single_ratio"] > 0
    assert figures["bulk_ratio"] > 0
    # 0: the wait woke before the end was acknowledged.
    assert 0 <= figures["wake_p50_ms"] <= figures["wake_max_ms"] < 30_000
    counts = {
        row["status"]: row["count"]
        for row in sql(database, "SELECT status, count(*) FROM cortex.job GROUP BY 1")
    }
    pairs = WARM_UP + 5 + BULKS * 30
    assert counts == {"PENDING": 2 * pairs, "CANCELLED": 1}
