"""Submits the jobs of schedules whose instants are due.

Reads and writes: schedules, their instants, and new jobs.
Invariants: one job per instant, whichever processes tick: the instant and its job are committed
together. Only the database's clock counts. One process at a time does this.

On failure: an outage is waited out; a schedule that cannot be fired is logged, and delays no other.
On stop: nothing to do; the other pods run it, too.
"""

import random
from collections.abc import Sequence

import structlog

from cortex.actors.backoff import retry_while_locked
from cortex.actors.runner import IDLE, SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.schedules.schedule import Schedule
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import BREAKER
from cortex.store.background import schedules
from cortex.store.background.schedule_ticks import FiredSchedules, fire_due
from cortex.store.pods import Pod

_log = structlog.get_logger(__name__)


async def declare(
    port: Port, declared: Sequence[Schedule], pod: Pod, *, rng: random.Random
) -> None:
    """Record the schedules that the code of a pod declares; wait while another pod fires them."""
    crash_point("before_declare")
    if declared:
        await retry_while_locked(
            lambda: port(schedules.declare, declared, pod_id=pod.id, pod=pod.name),
            log=_log,
            event="schedules not declared",
            rng=rng,
        )
    crash_point("after_declare")


class Schedules(Runner):
    name = "schedules"
    failure = "due schedules not read"
    woken_by = frozenset({BREAKER})
    """A schedule that was applied or resumed is notified on the channel of breakers and quotas."""

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._problems: frozenset[tuple[str, str]] = frozenset()

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_fire")
        fired = await self._port(fire_due, limit=budget.items)
        if fired.instants:
            crash_point("after_fire")
        for name, problem in set(fired.problems) - self._problems:
            _log.warning("schedule not fired", schedule=name, problem=problem)
        self._problems = frozenset(fired.problems)
        return TickResult(items=fired.instants, is_skipped=fired.is_skipped, next_s=_next_s(fired))


def _next_s(fired: FiredSchedules) -> float | None:
    """Return the pause: soon if more is due, idle while what is due is held by another session."""
    if fired.next_s is None or fired.next_s > 0:
        return IDLE.cap_s if fired.next_s is None else min(fired.next_s, IDLE.cap_s)
    return SOON_S if fired.instants else None
