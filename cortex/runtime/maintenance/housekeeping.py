"""Deletes what has expired: keys, old usage, model output, log lines, upkeep jobs, pods.

Reads and writes: expired keys, which count as free already; budget usage of past days, and of runs
whose jobs have all ended; quota usage of past hours and days; usage of limits that no longer
counts; instants of schedules that were dealt with a month ago; model output for watchers that poll;
messages that were sent; jobs of built-in schedules that ended well a day ago; pods that ended or
died a day ago and that no record names; old log lines of jobs; signals to keys that no job has
asked for within a day; keys of singletons whose jobs ended.
Invariants: oldest first, at most 1000 of each per pass and 20,000 lines, each kind in a transaction
of its own; one process at a time deletes.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store.background import housekeeping
from cortex.store.budgets import BudgetUse

BATCH_MAX: Final = 1000
BACKLOG_PAUSE_S: Final = 1.0
"""After a full pass more is due: a thousand rows per second and pod exceed the inflow."""


class Housekeeping(Runner):
    name = "housekeeping"
    failure = "housekeeping failed"
    items_max = BATCH_MAX

    def __init__(
        self,
        port: Port,
        *,
        rng: random.Random,
        every_s: float,
        sent_kept_s: float,
        lines_kept_s: float,
    ) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._every_s = every_s
        self._sent_kept_s = sent_kept_s
        self._lines_kept_s = lines_kept_s
        self._after: BudgetUse | None = None

    @property
    def longest_s(self) -> float:
        return max(self._every_s, super().longest_s)

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Delete one batch of each kind."""
        crash_point("before_housekeeping")
        done = await self._port(
            housekeeping.sweep,
            limit=budget.items,
            after=self._after,
            sent_kept_s=self._sent_kept_s,
            lines_kept_s=self._lines_kept_s,
        )
        crash_point("after_housekeeping")
        if done is None:
            return TickResult(is_skipped=True, next_s=self._every_s)
        self._after = done.after
        next_s = BACKLOG_PAUSE_S if done.is_behind else self._every_s
        return TickResult(items=done.count, next_s=next_s)
