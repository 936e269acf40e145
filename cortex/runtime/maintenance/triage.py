"""Triages dead letters: retries what recovered, tells operators, puts away the unreadable.

Reads: letters that nobody has looked at, and the breakers of their causes. Writes: the letters,
and new jobs that go on from them.
Invariants: one pod at a time; at most `RETRIED_MAX` retries a pass, so that a provider that has
just come back is not run over (one letter while its breaker is half-open), and fewer after the
database refused as many; one whose retry somebody cancels in the database comes after all others
from then on; a line of jobs is retried by itself once, then a person decides, as of what a
time-out left half done.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import Runner
from cortex.domain.clock import Chance
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store.triage import Triaged, triage

CALM_S: Final = 60.0
"""A letter waits so long before it is retried by itself: what failed may be failing still."""
JUDGED_MAX: Final = 200
RETRIED_MAX: Final = 10
PUT_OFF_MAX: Final = JUDGED_MAX // 2
"""Fewer than are looked at: there is always room for others."""

_log = structlog.get_logger(__name__)


class Triage(Runner):
    """The runner."""

    name = "triage"
    failure = "dead letters not looked through"

    def __init__(
        self, port: Port, *, rng: random.Random, chance: Chance, every_s: float = 5.0
    ) -> None:
        super().__init__(rng=rng, interval_s=every_s)
        self._port = port
        self._chance = chance
        self._retried_max = RETRIED_MAX
        self._put_off: list[UUID] = []
        """Letters whose retry was cancelled alone, as far as this pod tried; the last one last."""

    async def tick(self) -> None:
        """Look through one batch, unless another pod is at it."""
        crash_point("before_triage")
        done = await self._port(
            triage,
            new_id=self._chance.new_id,
            calm_s=CALM_S,
            judged_max=JUDGED_MAX,
            retried_max=self._retried_max,
            put_off=self._put_off,
        )
        crash_point("after_triage")
        if done is not None:
            _tell(done)
            self._put_off = _put_off(self._put_off, done)
            self._retried_max = (
                max(1, done.refused_count // 2)
                if done.refused_count
                else min(2 * self._retried_max, RETRIED_MAX)
            )


def _put_off(before: Sequence[UUID], done: Triaged) -> list[UUID]:
    left = [job_id for job_id in before if job_id not in {*done.retried, done.called_off}]
    return [*left, *([] if done.called_off is None else [done.called_off])][-PUT_OFF_MAX:]


def _tell(done: Triaged) -> None:
    for fingerprint, count in done.escalated.items():
        hint = f"cortex dead ls --fingerprint {fingerprint}"
        _log.warning("dead letters need an operator", letters=count, hint=hint)
    if done.retried or done.archived_count:
        retried, archived = len(done.retried), done.archived_count
        _log.info("triaged dead letters", retried=retried, archived=archived)
