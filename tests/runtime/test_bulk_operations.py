"""Acts on many dead letters in pods: hinted, shared out, sat out, forgotten at last."""

import pytest

from cortex.domain.bulk_operation import BulkVerb
from cortex.domain.clock import Chance
from cortex.runtime.maintenance.bulk_operations import BulkOperations
from cortex.runtime.maintenance.housekeeping import OPERATIONS_MAX, Housekeeping
from cortex.store import bulk_operations
from tests.support.eventually import eventually_async
from tests.support.records.bulk_operations import an_act
from tests.support.records.dead_letters import fail
from tests.support.records.factories import Bench
from tests.support.records.rows import job_count, move_clock, seeded_random
from tests.support.servers.postgres import sql


def a_runner(bench: Bench) -> BulkOperations:
    chance = Chance(seeded_random(), lambda: 1_700_000_000_000)
    return BulkOperations(bench.port, rng=bench.rng, chance=chance)


def state(dsn: str, act_id: int) -> tuple[str, int, int]:
    (row,) = sql(dsn, "SELECT * FROM cortex.dead_act WHERE id = $1", act_id)
    return row["state"], row["done_count"], row["failed_count"]


async def test_a_pass_tells_when_to_look_again(bench: Bench, database: str) -> None:
    runner = a_runner(bench)
    assert await runner.tick() is None
    await bench.port(bulk_operations.begin, an_act(fail(database, 2), rate_per_s=0.5))
    assert await runner.tick() == 0
    assert await runner.tick() == pytest.approx(1, abs=1)


async def test_it_goes_on_by_itself_from_a_hint(bench: Bench, database: str) -> None:
    runner = a_runner(bench)
    await bench.start(runner)
    act_id = await bench.port(bulk_operations.begin, an_act(fail(database, 50)))
    runner.wake()
    await eventually_async(
        lambda: state(database, act_id) == ("DONE", 50, 0), what="all have had their turn"
    )


async def test_an_outage_is_waited_out(bench: Bench, database: str) -> None:
    bench.port.refuse(bulk_operations.work_off)
    bench.port.lose_reply(bulk_operations.work_off)
    act_id = await bench.port(bulk_operations.begin, an_act(fail(database, 50)))
    await bench.start(a_runner(bench))
    await eventually_async(
        lambda: state(database, act_id) == ("DONE", 50, 0), what="all have had their turn"
    )
    assert bench.port.faults_left == 0
    assert job_count(database, "origin_id IS NOT NULL") == 50


async def test_old_ones_are_forgotten_a_few_at_a_time(bench: Bench, database: str) -> None:
    runner = a_runner(bench)
    for job_id in fail(database, OPERATIONS_MAX + 1):
        await bench.port(bulk_operations.begin, an_act([job_id], BulkVerb.DISCARD))
        while await runner.tick() is not None:
            pass
    move_clock(database, 36 * 86_400)
    keeper = Housekeeping(bench.port, rng=bench.rng, every_s=60.0)
    assert await keeper.tick()
    assert not await keeper.tick()
    assert sql(database, "SELECT FROM cortex.dead_act") == []
