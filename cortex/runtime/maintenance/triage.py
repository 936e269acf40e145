"""Triages dead letters: retries what recovered, reports the rest, archives the unreadable.

Reads: dead letters that were not triaged, and the breakers of their causes. Writes: the dead
letters, and new jobs that continue them.
Invariants: one process at a time. At most `RETRIED_MAX` retries per pass, so that a provider that
has just recovered is not overrun (one dead letter while its breaker is half-open), and fewer after
the database refused that many. A dead letter whose retry was cancelled in the database comes after
all others from then on. A lineage of jobs is retried automatically once, then a person decides; a
person also decides about the leftovers of a time-out.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import IDLE, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.clock import Chance
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import BREAKER
from cortex.store.triage import Triaged, triage

CALM_S: Final = 60.0
"""Delay before an automatic retry: the cause may still be failing."""
JUDGED_MAX: Final = 200
RETRIED_MAX: Final = 10
AGAIN_S: Final = 5.0
"""Between two passes that find work, so that retries begin slowly."""
PUT_OFF_MAX: Final = JUDGED_MAX // 2
"""Fewer than are read: there is always room for others."""

_log = structlog.get_logger(__name__)


class Triage(Runner):
    name = "dead_letters"
    failure = "dead letters not triaged"
    woken_by = frozenset({BREAKER})

    def __init__(self, port: Port, *, rng: random.Random, chance: Chance) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._chance = chance
        self._retried_max = RETRIED_MAX
        self._put_off: list[UUID] = []
        """Dead letters whose retry was cancelled alone, as far as this pod tried; the newest
        last."""

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Triage one batch, unless another process is at it."""
        crash_point("before_triage")
        done = await self._port(
            triage,
            new_id=self._chance.new_id,
            calm_s=CALM_S,
            judged_max=min(JUDGED_MAX, budget.items),
            retried_max=self._retried_max,
            put_off=self._put_off,
        )
        crash_point("after_triage")
        if done is None:
            return TickResult(is_skipped=True)
        _log_result(done)
        self._put_off = _put_off(self._put_off, done)
        self._retried_max = (
            max(1, done.refused_count // 2)
            if done.refused_count
            else min(2 * self._retried_max, RETRIED_MAX)
        )
        has_worked = done.handled_count or done.refused_count
        return TickResult(items=done.handled_count, next_s=AGAIN_S if has_worked else _next_s(done))


def _next_s(done: Triaged) -> float | None:
    return None if done.next_s is None else min(done.next_s, IDLE.cap_s)


def _put_off(before: Sequence[UUID], done: Triaged) -> list[UUID]:
    left = [job_id for job_id in before if job_id not in {*done.retried, done.called_off}]
    return [*left, *([] if done.called_off is None else [done.called_off])][-PUT_OFF_MAX:]


def _log_result(done: Triaged) -> None:
    for fingerprint, count in done.escalated.items():
        hint = f"cortex dead ls --fingerprint {fingerprint}"
        _log.warning("dead letters need an operator", letters=count, hint=hint)
    if done.retried or done.archived_count:
        retried, archived = len(done.retried), done.archived_count
        _log.info("dead letters triaged", retried=retried, archived=archived)
