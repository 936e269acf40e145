"""How fast time passes: exactly while anything happens, in strides while nothing does.

A stride resembles a machine that was asleep for a moment: every timer of that moment fires once, at
its end. Idle pods poll the database several times a second and mostly find nothing. In strides they
do so several times a minute, and an hour of theirs costs a second.
"""

import heapq
from collections.abc import Callable
from typing import Any, Final

from chaos.sim.clock import Clock

EXACT_S: Final = 0.5
"""After something has happened."""
SHARE: Final = 2.0
"""A stride is this multiple of the time in which nothing has happened."""
BUSY_MAX_S: Final = 15.0
"""While a job runs: half a heartbeat."""
LEAVING_MAX_S: Final = 0.5
"""While a pod drains, which it has to do in time."""
IDLE_MAX_S: Final = 115.0
"""A heartbeat due just after a stride began comes at its end. The stride plus its own 30 s must
stay below half the threshold of silent pods, which is what I11 allows healthy ones."""

ROUTINE: Final = frozenset(
    {
        "approvals.pending",
        "breakers.look",
        "dead_letters.lock_triage",
        "effects.list",
        "pods.beat",
        "pods.lock",
        "pods.probe",
        "retention.turn",
        "runners.alarms_turn",
        "runners.record",
        "schedules.pause_s",
        "schedules.turn",
        "subscriptions.all",
        "tasks.is_watched",
    }
)
"""Statements by which nothing happens, whatever they return."""

STANDING: Final = frozenset({"due_in_s", "is_held", "is_skipped"})
"""Columns of a pass that say what it left alone."""

STATE: Final = """
    SELECT extract(epoch FROM min(due) - cortex.now())::float8 AS due_s,
           EXISTS (SELECT FROM cortex.job_state WHERE state = 'RUNNING') AS is_busy
    FROM (
        SELECT run_at AS due FROM cortex_worker.task
        UNION ALL SELECT cortex.now() + interval '1 microsecond' FROM cortex_worker.task
            WHERE state = 'LATER' AND run_at <= cortex.now()
                AND run_at > cortex.now() - interval '5 seconds'
        UNION ALL SELECT next_retry_at FROM cortex.job WHERE status = 'RETRY'
        UNION ALL SELECT expires_at FROM cortex.approval WHERE status = 'PENDING'
    ) later WHERE due > cortex.now()
"""
"""A job that has just become due is due until a pod has promoted it, which takes a poll."""


class Pace:
    """Decides where the clock jumps."""

    def __init__(
        self,
        clock: Clock,
        *,
        query: Callable[[str], list[dict[str, Any]]],
        is_under_way: Callable[[], bool],
        is_leaving: Callable[[], bool],
    ) -> None:
        """`query` reads the database, while no virtual time passes.

        `is_under_way`: a message is in flight between machines and must not be late. `is_leaving`:
        a pod got SIGTERM and has not ended.
        """
        self._clock = clock
        self._query = query
        self._is_under_way = is_under_way
        self._is_leaving = is_leaving
        self.asleep_until_s = 0.0
        """Until then all machines are asleep, whatever they have to do."""
        self._moved_s = 0.0
        self._appointments: list[float] = []
        clock.strides = self.jump

    def moved(self) -> None:
        """Something just happened."""
        self._moved_s = self._clock.now

    def ran(self, query: str, result: Any) -> bool:
        """Record a statement's result; return whether it changed anything."""
        has_moved = query not in ROUTINE and not _is_nothing(result)
        if has_moved:
            self.moved()
        return has_moved

    def appoint(self, at_s: float) -> None:
        """Be exact about this instant."""
        heapq.heappush(self._appointments, at_s)

    def jump(self, deadline: float) -> float:
        """Where to jump instead of the next deadline."""
        now = self._clock.now
        if self.asleep_until_s > now:
            return self.asleep_until_s
        still_s = now - self._moved_s
        if still_s < EXACT_S or self._is_under_way():
            return deadline
        while self._appointments and self._appointments[0] <= now:
            heapq.heappop(self._appointments)
        longest_s = min(SHARE * still_s, LEAVING_MAX_S if self._is_leaving() else IDLE_MAX_S)
        if self._appointments:
            longest_s = min(longest_s, self._appointments[0] - now)
        if now + longest_s <= deadline:
            return deadline
        state = self._query(STATE)[0]
        if state["is_busy"]:
            longest_s = min(longest_s, BUSY_MAX_S)
        if state["due_s"] is not None:
            longest_s = min(longest_s, max(0.0, state["due_s"]))
        return max(deadline, now + longest_s)


def _is_nothing(result: Any) -> bool:
    """No rows, or one in which nothing is counted."""
    if not result or isinstance(result, str):
        return True
    counts = {name: value for name, value in result[0].items() if name not in STANDING}
    return len(result) == 1 and not any(counts.values())
