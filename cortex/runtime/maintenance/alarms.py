"""Announces what lasts: work that no pod serves, dead letters that grow in number.

Reads: ready tasks and living pods, unresolved dead letters. Writes: the kinds of work that are
stranded, alarms, facts and messages; and fails jobs that waited too long for code.
Invariants: each is announced once, in the transaction that notes it, and again only after it has
ended, or doubled; one process at a time does this. A stranded task is never the head of a named
queue for long: others of its queue go before it.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

import structlog

from cortex.actors.runner import AT_ONCE, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store.background import alarms

POLL_S: Final = 3.0
"""Work that no pod serves is seen, and announced, within three of these."""

_log = structlog.get_logger(__name__)


class Alarms(Runner):
    name = "alarms"
    failure = "alarms not checked"

    def __init__(self, port: Port, *, rng: random.Random, code_wait_s: float) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._code_wait_s = code_wait_s

    async def tick(self, _: TickBudget, /) -> TickResult:
        crash_point("before_alarms")
        new = await self._port(alarms.check, code_wait_s=self._code_wait_s)
        crash_point("after_alarms")
        if new is None:
            return TickResult(is_skipped=True, next_s=POLL_S)
        for each in new.announced:
            _log.warning("alarm", about=each)
        return TickResult(items=len(new.announced), next_s=AT_ONCE if new.is_more_due else POLL_S)
