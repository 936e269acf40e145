"""Housekeeping: expired rows are deleted in bounded passes; an outage is waited out."""

from collections.abc import MutableMapping
from typing import Any

from cortex.actors.runner import TickBudget
from cortex.runtime.maintenance.housekeeping import BACKLOG_PAUSE_S, BATCH_MAX, Housekeeping
from cortex.store.background import housekeeping
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.servers.postgres import sql

FILL = """
    INSERT INTO cortex.idempotency_key (key, digest, operation, expires_at)
    SELECT $1 || n, sha256(''), 'test', cortex.now() + $2 * interval '1 s'
    FROM generate_series(1, $3) n
"""


def fill(dsn: str, name: str, count: int, *, expires_in_s: float) -> None:
    sql(dsn, FILL, name, expires_in_s, count)


def left(dsn: str) -> int:
    return int(sql(dsn, "SELECT count(*) FROM cortex.idempotency_key")[0][0])


def a_runner(bench: Bench, *, every_s: float = 60.0) -> Housekeeping:
    return Housekeeping(
        bench.port, rng=bench.rng, every_s=every_s, sent_kept_s=86_400.0, lines_kept_s=86_400.0
    )


async def test_housekeeping_pass_is_bounded_and_keeps_young_rows(
    bench: Bench, database: str
) -> None:
    fill(database, "old", BATCH_MAX + 5, expires_in_s=-1)
    fill(database, "young", 3, expires_in_s=3600)
    runner = a_runner(bench)
    behind = await runner.tick(TickBudget(items=BATCH_MAX))
    assert (behind.items, behind.next_s) == (BATCH_MAX, BACKLOG_PAUSE_S)
    assert left(database) == 5 + 3
    done = await runner.tick(TickBudget(items=BATCH_MAX))
    assert (done.items, done.next_s) == (5, 60.0)
    assert left(database) == 3


async def test_a_backlog_does_not_wait_for_the_next_turn(bench: Bench, database: str) -> None:
    fill(database, "old", 2 * BATCH_MAX + 1, expires_in_s=-1)
    await bench.start(a_runner(bench, every_s=3600.0))
    await eventually_async(lambda: left(database) == 0, what="all of the backlog is gone")


async def test_old_budget_usage_is_forgotten_in_bounded_passes(bench: Bench, database: str) -> None:
    """No job of these runs is in the record any more; the oldest hold room and stay."""
    sql(
        database,
        """
        INSERT INTO cortex.budget_use (budget_id, window_key, at, reserved)
        SELECT 1, cortex.uuid7()::text, cortex.now() - (10 + n) * interval '1 day',
               CASE WHEN n > $1 THEN 1 ELSE 0 END FROM generate_series(1, 2 * $1) n
        """,
        BATCH_MAX,
    )

    def count() -> int:
        return len(sql(database, "SELECT FROM cortex.budget_use"))

    runner = a_runner(bench, every_s=3600.0)
    assert (await runner.tick(TickBudget(items=BATCH_MAX))).next_s == BACKLOG_PAUSE_S
    assert count() == 2 * BATCH_MAX
    await bench.start(runner)
    await eventually_async(lambda: count() == BATCH_MAX, what="it went on behind those that stay")


async def test_old_quota_usage_is_forgotten_in_bounded_passes(bench: Bench, database: str) -> None:
    sql(
        database,
        """
        INSERT INTO cortex.quota_use (quota_id, began_at)
        SELECT 1, cortex.now() - n * interval '1 hour' FROM generate_series(0, 2000) n
        """,
    )

    def count() -> int:
        return len(sql(database, "SELECT FROM cortex.quota_use"))

    runner = a_runner(bench, every_s=3600.0)
    assert (await runner.tick(TickBudget(items=BATCH_MAX))).next_s == BACKLOG_PAUSE_S
    assert count() == 2001 - BATCH_MAX
    await bench.start(runner)
    kept = 35 * 24
    await eventually_async(lambda: count() == kept, what="only those of 35 days are left")


async def test_housekeeping_waits_out_an_outage(
    bench: Bench, database: str, log_lines: list[MutableMapping[str, Any]]
) -> None:
    fill(database, "old", 1, expires_in_s=-1)
    bench.port.refuse(housekeeping.sweep)
    await bench.start(a_runner(bench, every_s=0.02))
    await eventually_async(lambda: left(database) == 0, what="it swept after the outage")
    assert [line["event"] for line in log_lines] == ["housekeeping failed"]
