"""Deletes what has expired: idempotency keys, model output for watchers, old usage.

Reads and writes: expired keys, which count as free already; budget usage of past days, and of runs
whose jobs have all ended; quota usage of past hours and days; model output for watchers that poll.
Invariants: oldest first, at most 1000 of each per pass; any number of pods may run it at once, each
skips what another one deletes.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final

from cortex.actors.runner import Runner
from cortex.postgres.bridge import Port
from cortex.store import budgets, idempotency, quotas, watches
from cortex.store.budgets import BudgetUse

BATCH_MAX: Final = 1000
BACKLOG_PAUSE_S: Final = 1.0
"""After a full pass more is due: a thousand rows per second and pod exceed the inflow."""
DAY_KEPT_S: Final = 35 * 86_400.0
RUN_KEPT_S: Final = 7 * 86_400.0
"""A failed job that is continued later gets a fresh run budget."""


class Housekeeping(Runner):
    """The runner."""

    name = "housekeeping"
    failure = "housekeeping failed"

    def __init__(self, port: Port, *, rng: random.Random, every_s: float) -> None:
        super().__init__(rng=rng, interval_s=every_s)
        self._port = port
        self._after: BudgetUse | None = None

    async def tick(self) -> float | None:
        """Delete one batch of each kind."""
        keys = await self._port(idempotency.sweep, limit=BATCH_MAX)
        _, self._after = await self._port(
            budgets.forget,
            day_s=DAY_KEPT_S,
            run_s=RUN_KEPT_S,
            limit=BATCH_MAX,
            after=self._after,
        )
        uses = await self._port(quotas.forget, kept_s=DAY_KEPT_S, limit=BATCH_MAX)
        words = await self._port(watches.forget)
        is_behind = BATCH_MAX in (keys, uses, words) or self._after is not None
        return BACKLOG_PAUSE_S if is_behind else None
