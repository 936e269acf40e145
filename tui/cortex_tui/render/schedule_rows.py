"""Schedules on one line each, and the last instants of the one under the cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs

from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import Cell, pad
from cortex.view.phrases import date_time, localised
from cortex.view.resources.schedules import SCHEDULES
from cortex.view.schedules import (
    OVERLAPS,
    instant_cell,
    instant_words,
    runs,
    state_of,
)
from cortex_tui.render.approval_page import wrapped
from cortex_tui.render.table import Column, column, fit

_WORD_CELLS: Final = 24


def page_head(row: ScheduleRow) -> Cell:
    """Return the full name, and what it runs."""
    return Cell(safe(f"{row.name} · {runs(row)}"), "bold")


def page_lines(
    row: ScheduleRow, instants: Sequence[InstantRow] | None, now: datetime, room: int
) -> Iterator[tuple[Cell, ...]]:
    """Yield the terms of a schedule and its last instants, in lines of `room` cells."""
    _, words, style = state_of(attrs.evolve(row, now=now))
    for line in wrapped(safe(words), room):
        yield (Cell(line, style),)
    terms = [
        f"{row.cron} {row.zone}",
        OVERLAPS[row.overlap],
        f"backfill {span(row.backfill_s)}" if row.backfill_s else "no backfill",
        *([f"jitter {span(row.jitter_s)}"] if row.jitter_s else []),
        *([f"{row.missed_count:,} missed"] if row.missed_count else []),
    ]
    for line in wrapped(safe(" · ".join(terms)), room):
        yield (Cell(line, "dim"),)
    if instants is None:
        yield (Cell("reading …", "dim"),)
        return
    for each in instants:
        yield tuple(_instant(each, room))


def _instant(row: InstantRow, room: int) -> Iterator[Cell]:
    cell = instant_cell(row)
    at = date_time(row.instant)
    words = localised(instant_words(row) or "")
    what = words if row.job_id is None else short_id(row.job_id)
    yield Cell(f"{at}  ", "dim")
    yield Cell(pad(cell.text, _WORD_CELLS), cell.style)
    yield Cell(fit(safe(what or ""), max(0, room - len(at) - _WORD_CELLS - 2)).rstrip(), "dim")


SCHEDULE_COLUMNS: Final[Sequence[Column[ScheduleRow]]] = (
    column(SCHEDULES, "name", width=20),
    column(SCHEDULES, "cron", width=14),
    column(SCHEDULES, "zone", width=14, spare=2),
    column(SCHEDULES, "next_at", width=19),
    column(SCHEDULES, "last_instant", width=18, spare=1),
    column(SCHEDULES, "state", width=12, grows=True),
)
