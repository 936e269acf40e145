"""When the pod of a tick leaves: once nothing runs, is due or is left to take over."""

from typing import Any

import attrs
import trio

from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.tick_pod import QUIET_S, end_when_idle


class NothingDue:
    """A dispatcher that finds nothing at each claim."""

    claims_left = 5
    claimed_at = 0.0

    @property
    def found_nothing_at(self) -> float:
        return trio.current_time()


@attrs.define
class DeadPods:
    """A takeover that can judge from one moment on, and has taken all jobs by another one."""

    judges_at: float
    taken_at: float

    @property
    def has_nothing_to_take(self) -> bool:
        now = trio.current_time()
        return now < self.judges_at or now >= self.taken_at

    async def has_unjudged(self) -> bool:
        return trio.current_time() < self.judges_at


async def left_after_s(dead: DeadPods) -> float:
    began_at, shutdown = trio.current_time(), Shutdown()
    parts: dict[str, Any] = {"running": (), "dispatcher": NothingDue(), "takeover": dead}
    await end_when_idle(**parts, shutdown=shutdown)
    assert shutdown.stop.is_set()
    return trio.current_time() - began_at


async def test_tick_pod_leaves_after_a_quiet_while(autojump_clock: object) -> None:
    now = trio.current_time()
    assert QUIET_S <= await left_after_s(DeadPods(judges_at=now, taken_at=now)) < QUIET_S + 0.2


async def test_tick_pod_waits_until_dead_pods_are_judged_and_their_jobs_due(
    autojump_clock: object,
) -> None:
    """An embedded server starts with each tick, and no pod judges another one soon after."""
    now = trio.current_time()
    left_s = await left_after_s(DeadPods(judges_at=now + 5, taken_at=now + 7))
    assert 7 + QUIET_S <= left_s < 7 + 2 * QUIET_S + 0.2
