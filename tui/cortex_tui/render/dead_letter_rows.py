"""Dead letters in lines: grouped by error, and one by one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from cortex.domain.dead_letter import (
    DeadLetter,
    DeadLetterGroup,
    DeadLetterHead,
    DeadLetterState,
    FailureCause,
    prospect,
)
from cortex.domain.phrases import NOTHING, age, short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.steps import last_step, step_label
from cortex_tui.render.table import Column

BRIEF_CHARS: Final = 80
_STATES: Final = {
    DeadLetterState.OPEN: Cell("✗ open", "fail"),
    DeadLetterState.ESCALATED: Cell("◆ escal.", "warn"),
    DeadLetterState.ARCHIVED: Cell("○ arch.", "warn"),
}
_BREAKERS: Final = {"CLOSED": "done", "HALF_OPEN": "warn"}


def on_retry(row: DeadLetterHead) -> str:
    """Return what a retry would do; not safe yet."""
    return prospect(FailureCause.of(row), step=row.step and last_step(row.step))


def error_words(row: DeadLetterHead) -> str:
    """Name an error; not safe yet."""
    return f"{row.error_code or row.error_class or 'error'}: {row.error_message or ''}"


def error_briefly(row: DeadLetterHead) -> str:
    """Name an error in a question, with the start of its message; not safe yet."""
    words = error_words(row)
    return words if len(words) <= BRIEF_CHARS else f"{words[: BRIEF_CHARS - 1]}…"


def letter_words(row: DeadLetter) -> str:
    """Name a dead letter in a question; not safe yet."""
    return f"{row.agent or row.type} {short_id(row.job_id)}"


def _what(row: DeadLetterHead, _: datetime) -> Cell:
    return Cell(safe(row.agent)) if row.agent else Cell(safe(row.type), "dim")


def _count(row: DeadLetterGroup, _: datetime) -> Cell:
    return Cell(f"{row.count:,}{'' if row.is_all else '+'}", "bold")


def _breaker(row: DeadLetterHead, _: datetime) -> Cell:
    state = row.breaker
    if state is None:
        return Cell(NOTHING, "dim")
    return Cell(safe(state.lower().replace("_", " ")), _BREAKERS.get(state, "alarm"))


def _age(instant: datetime, now: datetime) -> Cell:
    return Cell(age((now - instant).total_seconds()), "dim")


def _code(row: DeadLetterHead, _: datetime) -> Cell:
    return Cell(safe(row.error_code or NOTHING), "fail" if row.error_code else "dim")


def state_cell(state: str | None) -> Cell:
    """Return the glyph and word for a letter's state; None: the letter is gone."""
    if state is None:
        return Cell(NOTHING, "dim")
    return _STATES.get(DeadLetterState(state), Cell(state.lower(), "dim"))


def _step(row: DeadLetter, _: datetime) -> Cell:
    return Cell(safe(step_label(row.step.partition(" ")[2]))) if row.step else Cell(NOTHING, "dim")


def _message(row: DeadLetterHead, _: datetime) -> Cell:
    return Cell(safe(row.error_message or ""))


_PROSPECT: Final[Column[Any]] = Column(
    title="on retry", width=34, cell=lambda row, _: Cell(safe(on_retry(row)), "dim"), spare=9
)

ERROR_COLUMNS: Final[Sequence[Column[DeadLetterGroup]]] = (
    Column(title="count", width=7, cell=_count, is_right=True),
    Column(title="agent", width=14, cell=_what),
    Column(title="code", width=16, cell=_code, spare=2),
    Column(title="error", width=16, cell=_message, grows=True),
    _PROSPECT,
    Column(title="breaker", width=9, cell=_breaker),
    Column(
        title="first",
        width=5,
        cell=lambda row, now: _age(row.first_at, now),
        is_right=True,
        spare=1,
    ),
    Column(title="last", width=4, cell=lambda row, now: _age(row.last_at, now), is_right=True),
)

LETTER_COLUMNS: Final[Sequence[Column[DeadLetter]]] = (
    Column(title="id", width=7, cell=lambda row, _: Cell(short_id(row.job_id), "bold")),
    Column(title="state", width=8, cell=lambda row, _: state_cell(row.state)),
    Column(title="agent", width=14, cell=_what),
    Column(title="last step", width=14, cell=_step, spare=2),
    Column(title="error", width=16, cell=_message, grows=True),
    _PROSPECT,
    Column(title="age", width=4, cell=lambda row, now: _age(row.created_at, now), is_right=True),
)
