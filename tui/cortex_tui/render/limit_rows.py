"""Limits of job types on one line each, and all about the one under the cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.job_limits import of_agent
from cortex.domain.safe import safe
from cortex.store.limits import LimitRow
from cortex.view.cells import Cell
from cortex.view.resources.limits import LIMITS
from cortex_tui.render.labelled import Line, labelled
from cortex_tui.render.table import Column, column
from cortex_tui.render.words import countdown


def page_head(row: LimitRow) -> Cell:
    return Cell(safe(row.name), "bold")


def page_lines(row: LimitRow, now: datetime, room: int) -> Iterator[Line]:
    """Yield all of a limit, in lines of `room` cells."""
    yield from labelled("type", row.type, room)
    most, each = LIMITS.field("limit").cell(row), LIMITS.field("key").cell(row)
    yield from labelled("at most", f"{most.text} for {each.text}", room)
    used, full = LIMITS.field("busiest_used").cell(row), LIMITS.field("full_keys").cell(row)
    yield from labelled("most used", used.text, room, used.style)
    yield from labelled("keys full", full.text, room, full.style)
    waiting = LIMITS.field("waiting_jobs").cell(row)
    yield from labelled("jobs wait", waiting.text, room, waiting.style)
    since = countdown((now - row.changed_at).total_seconds())
    by = "the file of the agent" if row.type.startswith(of_agent("")) else "the code of a pod"
    yield from labelled("declared", f"for {since}, by {by}", room, "dim")


LIMIT_COLUMNS: Final[Sequence[Column[LimitRow]]] = (
    column(LIMITS, "name", width=28, grows=True),
    column(LIMITS, "limit", width=23),
    # The name ends with the key: without room, that is enough.
    column(LIMITS, "key", title="for", width=16, spare=2),
    column(LIMITS, "busiest_used", width=14, spare=1),
    column(LIMITS, "full_keys", width=9),
    column(LIMITS, "waiting_jobs", width=9),
)
