"""Frees the jobs of pods that are silent although they live or their lock proves nothing.

Reads and writes: jobs whose heartbeat is older than the threshold, and their tasks. It also ends
jobs that outlive their time-out although their pod lives: their handler ignores cancellation, or
the pod does not enforce the limit.
Invariants: oldest first, at most `batch_max` in each period of all pods together, so that an outage
does not become a stampede. No pod is swept before the server, and this pod's own link to it, have
been healthy for one full threshold: until then the other pods' heartbeats may be late for the same
reason. A process without a pod does not live that long: there the checks of all such processes must
have followed each other without a gap. Jobs past their time-outs end sooner after a trouble, once
their pods could report what they kept back meanwhile.

Jobs that neither the sweeper nor a takeover can take, since another session holds their rows, are
reported as long as that lasts: in the log, as a metric, and as a fact once it has lasted for
`ALARM_S`.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import math
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.drain import TroubleReport
from cortex.domain.errors import UnavailableError
from cortex.domain.phrases import to_plain
from cortex.postgres.bridge import Port
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.self_fence import SelfFence
from cortex.store import pods, tasks

OVERDUE_S: Final = 15.0
"""A dead pod's job is taken in two seconds; its own sessions end within ten, also if it is
suspended."""
ALARM_S: Final = 20.0
"""Longer than any transaction of a pod may stay open."""
CALM_S: Final = 30.0
"""After a database trouble, pods report the ends that they kept back; their pauses are at most
five seconds."""
ALARM_AGAIN_S: Final = 600.0
TURN: Final = 0.9
"""Part of the period in which no pod sweeps again: no pod's own pause is shorter."""

_log = structlog.get_logger(__name__)


class Sweeper(Runner):
    name = "sweep_zombies"
    failure = "sweep failed"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID | None,
        self_fence: SelfFence | None,
        zombie_s: float,
        sweep_s: float,
        batch_max: int,
        rng: random.Random,
        metrics: Metrics | None = None,
        trouble: Callable[[], TroubleReport | None] = lambda: None,
        on_retries: Callable[[], None] = lambda: None,
    ) -> None:
        """`self_fence`: without one, a process that is no pod relies on the checks of all such.

        `trouble`: the database trouble of this process's calls.

        `on_retries` is called when it has put jobs into RETRY.
        """
        super().__init__(rng=rng)
        self._sweep_s = sweep_s
        self._trouble = trouble
        self._port = port
        self._pod_id = pod_id
        self._metrics = metrics or Metrics()
        self._self_fence = self_fence
        self._zombie_s = zombie_s
        self._batch_max = batch_max
        self._on_retries = on_retries
        self._troubled_at = -math.inf
        self._blocked_since = math.inf

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Take one batch of jobs whose pods are silent, if it is this pod's turn."""
        result = TickResult()
        if self._trouble() is not None:
            self._troubled_at = trio.current_time()
        calm_s = min(CALM_S, self._zombie_s)
        limit = min(self._batch_max, budget.items)
        try:
            is_steady = await self._is_steady()
            is_calm = is_steady or self._is_steady_for(calm_s)
            if is_steady:
                result = await self._sweep(limit)
            if is_calm:
                expired_count = await self._expire(limit)
                result = attrs.evolve(result, items=result.items + expired_count)
            if self._self_fence is None or self._self_fence.is_sure:
                await self._report_blocked()
        except UnavailableError as error:
            if not error.is_locked:
                self._troubled_at = trio.current_time()
            raise
        return attrs.evolve(result, next_s=self._sweep_s if is_calm else min(self._sweep_s, calm_s))

    @property
    def longest_s(self) -> float:
        return max(self._sweep_s, super().longest_s)

    async def _is_steady(self) -> bool:
        """Return whether the others' heartbeats could arrive for one full threshold."""
        if self._self_fence is None:
            is_watched = await self._port(tasks.is_watched, gap_s=self._zombie_s)
            return is_watched and trio.current_time() >= self._troubled_at + self._zombie_s
        return self._is_steady_for(self._zombie_s)

    def _is_steady_for(self, seconds: float) -> bool:
        """Return whether a pod has seen no trouble for this long."""
        if self._self_fence is None or trio.current_time() < self._troubled_at + seconds:
            return False
        return self._self_fence.is_steady_for(seconds)

    async def _sweep(self, limit: int) -> TickResult:
        crash_point("before_sweep")
        swept = await self._port(
            tasks.sweep,
            silent_s=self._zombie_s,
            limit=limit,
            rng=self._rng,
            every_s=TURN * self._sweep_s,
        )
        if swept.is_skipped:
            return TickResult(is_skipped=True)
        if swept.count:
            crash_point("after_sweep")
        if swept.retried_count:
            self._on_retries()
        if swept.count:
            self._metrics.recovered("swept", freed=swept.retried_count, failed=swept.failed_count)
            _log.warning(
                "jobs of silent pods swept",
                retried=swept.retried_count,
                failed=swept.failed_count,
                cancelled=swept.cancelled_count,
            )
        crash_point("before_retire")
        await self._port(pods.retire_silent, silent_s=2 * self._zombie_s)
        crash_point("after_retire")
        return TickResult(items=swept.count)

    async def _expire(self, limit: int) -> int:
        """End jobs that outlive their time-outs; return how many."""
        crash_point("before_overrun")
        count = await self._port(tasks.expire, limit=limit, every_s=TURN * self._sweep_s)
        crash_point("after_overrun")
        if count:
            self._metrics.expired(count)
            _log.warning("jobs past their time-out ended", failed=count)
        return count

    async def _report_blocked(self) -> None:
        """Report the jobs that cannot be taken."""
        blocked_jobs = await self._port(tasks.blocked, silent_s=self._zombie_s, overdue_s=OVERDUE_S)
        if not blocked_jobs:
            self._blocked_since = math.inf
            return
        self._metrics.blocked(len(blocked_jobs))
        self._blocked_since = min(self._blocked_since, trio.current_time())
        for_s = trio.current_time() - self._blocked_since
        oldest = blocked_jobs[0]
        _log.warning(
            "jobs of lost pods locked by another session",
            jobs=len(blocked_jobs),
            for_s=round(for_s),
            job=str(oldest.job_id),
            pod=oldest.pod,
            held_by=oldest.held_by,
            holder=to_plain(oldest.holder),
        )
        if for_s >= ALARM_S:
            await self._port(
                tasks.record_blocked,
                pod_id=self._pod_id,
                blocked_jobs=blocked_jobs,
                for_s=for_s,
                again_s=ALARM_AGAIN_S,
            )
