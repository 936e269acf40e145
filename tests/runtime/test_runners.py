"""The one list of runners: each ticks without a pod, one process at a time, and takes hints."""

import trio
from trio.testing import MockClock

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.config import Settings
from cortex.domain.clock import Chance
from cortex.domain.job import Suspend
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.hints import BATCH, EXPIRY, POD_LOST, REMINDER, RETRY, WAKE
from cortex.runtime.liveness.listener import BREAKER, CONTROL, LIMIT, OUTBOX, WAKES
from cortex.runtime.maintenance.runners import Means, runners, suspended
from tests.support.eventually import virtually
from tests.support.holder import holding
from tests.support.records.approvals import a_request, suspension
from tests.support.records.dead_letters import fail
from tests.support.records.factories import Bench, a_claim
from tests.support.records.rows import assert_one_truth, hold_turns, seeded_random
from tests.support.servers.postgres import sql

LOCKS = {
    "retries": ["retries"],
    "expire_approvals": ["expire_approvals"],
    "notifications": ["remind_approvals"],
    "schedules": ["schedules"],
    "dead_letters": ["triage"],
    "alarms": ["alarms"],
    "reconcile": ["budgets.sweep", "budgets.wake_next"],
    "limits": ["limits"],
    "housekeeping": ["housekeeping"],
    "retention": ["retention"],
}
"""The turns of each runner that is a singleton."""
OTHERS = frozenset({"batches", "children", "line", "outbox", "sweep_zombies", "wakes"})
"""All pods deliver, hold other batches and take other rows; `test_sweeper` shows that one process
sweeps."""


def made(bench: Bench) -> tuple[Runner, ...]:
    chance = Chance(bench.rng, lambda: 1_700_000_000_000)
    unsettled = PendingSettlements(bench.port)
    return runners(
        Means(
            port=bench.port,
            chance=chance,
            unsettled=unsettled,
            settings=Settings(sweep_s=10.0),
        )
    )


async def test_each_runner_ticks_without_a_pod(bench: Bench, database: str) -> None:
    fail(database, 3)
    all_ = made(bench)
    assert len({each.name for each in all_}) == len(all_)
    hints = {hint for each in all_ for hint in each.woken_by}
    local = {BATCH, EXPIRY, POD_LOST, REMINDER, RETRY, WAKE}
    assert hints <= {*local, BREAKER, CONTROL, LIMIT, OUTBOX, WAKES}
    for each in all_:
        assert not (await each.tick(TickBudget())).is_skipped, each.name
    assert_one_truth(database)


async def test_tick_is_skipped_while_another_process_ticks(bench: Bench, database: str) -> None:
    """Nothing waits: a pod that is stopped within its tick must not hold up the others."""
    fail(database, 3)
    with holding(database, hold_turns(*(name for each in LOCKS.values() for name in each))):
        for each in made(bench):
            assert each.name in LOCKS.keys() | OTHERS, "it needs a lock, or to be on all pods"
            result = await each.tick(TickBudget())
            assert (result.items, result.is_skipped) == (0, each.name in LOCKS), each.name
    assert not sql(database, "SELECT FROM cortex.dead_letter WHERE state <> 'OPEN'")


class Noting(Runner):
    """Notes when it ticks, and has nothing to do."""

    name = failure = "noting"

    def __init__(self, *hints: str) -> None:
        super().__init__(rng=seeded_random())
        self.woken_by = frozenset(hints)  # type: ignore[misc]
        self.at: list[float] = []

    async def tick(self, _: TickBudget, /) -> TickResult:
        self.at.append(trio.current_time())
        return TickResult(next_s=30.0)


async def test_idle_runners_wake_for_what_a_pod_suspends(
    autojump_clock: MockClock,
) -> None:
    retries, expiries = Noting(RETRY), Noting(EXPIRY)
    later = Suspend(lease=a_claim().lease, delay_s=9.0, is_counted=True)
    sooner = Suspend(lease=a_claim().lease, delay_s=4.0, is_counted=True)
    asks = suspension(a_claim(), a_request(expires_s=7.0), a_request(expires_s=12.0))
    async with trio.open_nursery() as nursery:
        for each in (retries, expiries):
            await nursery.start(each.run)
        await virtually(1.0)
        suspended((retries, expiries), [later, sooner, asks])
        await virtually(20.0)
        nursery.cancel_scope.cancel()
    assert (retries.at, expiries.at) == ([0.0, 5.0], [0.0, 8.0])
