"""The list of the sweeps that any pod does for all."""

from cortex.domain.clock import Chance
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.liveness.listener import BREAKER, CONTROL
from cortex.runtime.maintenance.sweeps import sweeps
from tests.support.records.dead_letters import fail
from tests.support.records.factories import Bench
from tests.support.records.rows import assert_one_truth


async def test_each_ticks_without_a_pod(bench: Bench, database: str) -> None:
    fail(database, 3)
    chance = Chance(bench.rng, lambda: 1_700_000_000_000)
    runners = sweeps(
        bench.port, unsettled=PendingSettlements(bench.port), chance=chance, sweep_s=10.0
    )
    assert len({each.name for each in runners}) == len(runners)
    assert {channel for each in runners for channel in each.woken_by} <= {BREAKER, CONTROL}
    for each in runners:
        await each.tick()
    assert_one_truth(database)
