"""Runners: what background work last did in any process, and whether it is late."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from cortex.postgres.database import Database
from cortex.store.rows import rows_of

ERROR_MAX: Final = 2000
LATE_INTERVALS: Final = 5
"""A runner that has not succeeded for this many of its intervals is late; as cortex.late_from."""
DISPATCH: Final = "dispatch"
"""The runner that claims jobs."""
TICK: Final = "tick "
"""How the name of a process that is no pod begins; as in cortex.ticked_at."""


@attrs.frozen(kw_only=True)
class LastRun:
    ago_s: float
    """Seconds since it started."""
    duration_s: float
    items: int
    error: str | None
    """Why it failed; None: it succeeded."""


@attrs.frozen(kw_only=True)
class RunnerRuns:
    """What one process adds to the record of a runner."""

    name: str
    interval_s: float
    """The longest time between two of its runs."""
    last: LastRun | None
    """None: all were skipped."""
    succeeded_ago_s: float | None
    run_count: int
    item_count: int
    error_count: int
    skip_count: int
    busy_s: float


@attrs.frozen(kw_only=True)
class RunnerRow:
    """A runner: its last run in any process, and its totals."""

    name: str
    interval_s: float
    first_at: datetime
    started_at: datetime | None
    """Of the last run; None: it was only skipped so far."""
    duration_s: float | None
    items: int | None
    error: str | None
    holder: str | None
    """The process that ran it."""
    succeeded_at: datetime | None
    run_count: int
    item_count: int
    error_count: int
    skip_count: int
    skipped_in_a_row: int
    """Since a run was last recorded, by any process."""
    busy_s: float
    is_late: bool
    """It has not succeeded for five intervals."""
    now: datetime = attrs.field(eq=False)


async def record(db: Database, runs: Sequence[RunnerRuns], *, holder: str) -> list[str]:
    """Add runs of one process; return the runners that have become late, each once.

    A lost reply must not be answered by a repetition, which would count the runs twice.
    """
    ordered = sorted(runs, key=lambda each: each.name)
    last = [each.last for each in ordered]
    rows = await db.fetch(
        "runners.record",
        holder,
        [each.name for each in ordered],
        [each.interval_s for each in ordered],
        [None if each is None else each.ago_s for each in last],
        [None if each is None else each.duration_s for each in last],
        [None if each is None else each.items for each in last],
        [None if each is None or each.error is None else each.error[:ERROR_MAX] for each in last],
        [each.succeeded_ago_s for each in ordered],
        [each.run_count for each in ordered],
        [each.item_count for each in ordered],
        [each.error_count for each in ordered],
        [each.skip_count for each in ordered],
        [each.busy_s for each in ordered],
    )
    return [row["name"] for row in rows]


async def page(db: Database) -> list[RunnerRow]:
    """Return all runners by name."""
    return rows_of(RunnerRow, await db.fetch("runners.list"))
