"""Announces what lasts: work that no pod serves, dead letters that grow in number.

Reads: ready tasks and living pods, unresolved dead letters. Writes: alarms, facts and messages.
Invariants: each is announced once, in the transaction that notes it, and again only after it has
ended, or doubled; one process at a time does this.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random

import structlog

from cortex.actors.runner import IDLE, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store.background import alarms

_log = structlog.get_logger(__name__)


class Alarms(Runner):
    """The runner."""

    name = "alarms"
    failure = "alarms not checked"

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, _: TickBudget, /) -> TickResult:
        crash_point("before_alarms")
        new = await self._port(alarms.check)
        crash_point("after_alarms")
        for each in new or ():
            _log.warning("alarm", about=each)
        return TickResult(items=len(new or ()), is_skipped=new is None, next_s=IDLE.cap_s)
