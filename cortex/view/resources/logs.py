"""Log lines: what code of jobs logged and printed."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.log_line import LEVELS
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.logs import LogRow
from cortex.view.cells import Cell
from cortex.view.logs import STYLES, fields_text
from cortex.view.phrases import NOTHING, date_time
from cortex.view.resource import Field, Resource, on_demand


def line_text(row: LogRow) -> str:
    """Return message and fields in one line, safe on a terminal."""
    return " ".join(filter(None, (safe(row.message), fields_text(row.fields))))


def _level(row: LogRow) -> str:
    return row.level.word


def _text(text: str | None) -> Cell:
    return Cell(safe(text)) if text else Cell(NOTHING, "dim")


FIELDS: Final[Sequence[Field[LogRow]]] = (
    Field(name="at", shown=lambda r: Cell(date_time(r.at), "dim")),
    Field(
        name="level",
        doc=", ".join(LEVELS),
        value=_level,
        shown=lambda r: Cell(r.level.word, STYLES[r.level]),
    ),
    Field(name="job_id", title="job", shown=lambda r: Cell(short_id(r.job_id), "bold")),
    Field(
        name="job_type",
        title="type",
        doc="type of the job; null in the log of one job",
        shown=lambda r: _text(r.job_type),
        least=8,
        is_spare=True,
    ),
    Field(name="attempt", doc="the attempt that wrote it", is_right=True),
    Field(name="step", doc="null: the handler", shown=lambda r: _text(r.step), least=8),
    Field(
        name="source",
        doc="the logger's name, stdout or stderr; null: ctx.log",
        shown=lambda r: _text(r.source),
        least=8,
        is_spare=True,
        is_default=False,
    ),
    Field(name="message", shown=lambda r: Cell(line_text(r)), least=16),
    *on_demand(
        fields="what was logged beside the message",
        dropped="number of lines that are missing here; the message says why",
        number="order within the attempt",
        id="order of arrival",
    ),
)

LOGS: Final = Resource(
    name="LogLine",
    noun="logs",
    doc="A line that code of a job logged or printed.",
    row=LogRow,
    fields=FIELDS,
    empty="no lines",
    unlisted=frozenset({"now"}),
)
