"""Pauses on one line each, and all about the one under the cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from cortex.domain.phrases import short_id
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.safe import safe
from cortex.store.pauses import PauseRow
from cortex.view.cells import Cell
from cortex.view.phrases import date_time
from cortex.view.resources.pauses import PAUSES
from cortex_tui.render.labelled import Line, labelled
from cortex_tui.render.table import Column, column
from cortex_tui.render.words import countdown


def words_of(target: Pausable) -> str:
    """Name what is paused in a sentence, a job by the end of its id; not safe yet."""
    is_job = target.kind is PauseKind.JOB
    return f"job {short_id(UUID(target.name))}" if is_job else target.words


def page_head(row: PauseRow) -> Cell:
    return Cell(safe(str(row.target)), "bold")


def page_lines(row: PauseRow, now: datetime, room: int) -> Iterator[Line]:
    """Yield who has paused it and why, in lines of `room` cells."""
    since = countdown((now - row.paused_at).total_seconds())
    yield from labelled("paused", f"{date_time(row.paused_at)} · for {since}", room)
    yield from labelled("by", row.paused_by, room)
    yield from labelled("why", row.reason, room)
    if row.held:
        yield from labelled("held", f"{row.held:,} due tasks are set aside", room)


def _target(row: PauseRow, _: datetime) -> Cell:
    return Cell(safe(words_of(row.target)), "bold")


PAUSE_COLUMNS: Final[Sequence[Column[PauseRow]]] = (
    Column(title="paused", width=28, cell=_target, is_fixed=True),
    column(PAUSES, "paused_by", width=16, is_fixed=True),
    column(PAUSES, "paused_at", width=20, is_fixed=True),
    column(PAUSES, "held", width=7, spare=1),
    column(PAUSES, "reason", width=20, title="why", grows=True),
)
