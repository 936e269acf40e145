"""Log lines of a job on one line each, and all of the one under the cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.safe import safe
from cortex.store.logs import LogRow
from cortex.view.cells import Cell
from cortex.view.logs import STYLES
from cortex.view.phrases import clock_time, date_time
from cortex.view.resources.logs import LOGS, line_text
from cortex_tui.render.labelled import Line, labelled, text_lines, titled
from cortex_tui.render.table import Column, column

LINE_CHARS_MAX: Final = 400
"""Of a line in the list, more than any window is wide; the page below has all of it."""


def _at(row: LogRow, _: datetime) -> Cell:
    return Cell(clock_time(row.at), "dim")


def _message(row: LogRow, _: datetime) -> Cell:
    text = line_text(row)
    cut = text if len(text) <= LINE_CHARS_MAX else f"{text[:LINE_CHARS_MAX]}…"
    return Cell(cut, STYLES[row.level] if row.dropped is None else "warn")


LOG_COLUMNS: Final[Sequence[Column[LogRow]]] = (
    Column(title="at", width=12, cell=_at, is_fixed=True),
    column(LOGS, "level", width=8, is_fixed=True),
    column(LOGS, "attempt", title="try", width=3, is_fixed=True),
    column(LOGS, "step", width=14, is_fixed=True, spare=1),
    Column(title="message", width=24, cell=_message, grows=True, is_fixed=True),
)


def page_head(row: LogRow) -> Cell:
    return Cell(safe(f"{row.level.word} · {date_time(row.at)}"), STYLES[row.level] or "bold")


def page_lines(row: LogRow, room: int) -> Iterator[Line]:
    """Yield all of a line, in lines of `room` cells."""
    yield from labelled("step", row.step or "the handler", room)
    yield from labelled("attempt", str(row.attempt), room)
    yield from labelled("source", row.source or "ctx.log", room)
    yield from titled("message")
    yield from text_lines(row.message, room)
    if row.fields:
        yield from titled("fields")
        for name, value in row.fields.items():
            yield from labelled(name, value if isinstance(value, str) else repr(value), room)
