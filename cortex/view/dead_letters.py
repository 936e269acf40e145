"""Describes dead letters: state, cause, effect of a retry."""

from datetime import datetime
from typing import Final

from cortex.domain.dead_letter import (
    DeadLetter,
    DeadLetterHead,
    DeadLetterState,
    FailureCause,
    prospect,
)
from cortex.domain.phrases import rfc3339, short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, ReadAt, age, since_s
from cortex.view.steps import last_step

_STATES: Final = {
    DeadLetterState.OPEN: ("✗ open", "fail"),
    DeadLetterState.ESCALATED: ("◆ escalated", "warn"),
    DeadLetterState.RETRIED: ("↻ retried", "retry"),
    DeadLetterState.DISCARDED: ("⊘ discarded", "dim"),
    DeadLetterState.ARCHIVED: ("○ archived", "warn"),
}
_BREAKERS: Final = {"CLOSED": "done", "HALF_OPEN": "warn"}


def state_cell(state: DeadLetterState) -> Cell:
    """Return glyph and word of a dead letter's state."""
    return Cell(*_STATES[state])


def breaker_cell(row: DeadLetterHead) -> Cell:
    """Return the state of the breaker of what failed."""
    if row.breaker is None:
        return Cell(NOTHING, "dim")
    style = _BREAKERS.get(row.breaker, "alarm")
    return Cell(safe(row.breaker.lower().replace("_", " ")), style)


def on_retry(row: DeadLetterHead) -> str:
    """Describe the effect of a retry, or how the dead letter was resolved."""
    if not isinstance(row, DeadLetter) or row.state.is_unresolved:
        return prospect(FailureCause.of(row), step=row.step and last_step(row.step))
    heir = f" as {short_id(row.retried_as)}" if row.retried_as else ""
    return f"was {row.state.value.lower()}{heir} by {row.resolved_by}"


def error_text(row: DeadLetterHead) -> str:
    """Return the class, code and source of an error, as far as they are recorded."""
    text = (row.error_class, row.error_code, row.error_source)
    return " · ".join(each for each in text if each)


def letters_text(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"


def when(row: ReadAt, instant: datetime | None, *, is_tty: bool) -> str:
    """Return an instant of a row: relative for people who watch, else exact."""
    if instant is None:
        return ""
    if not is_tty:
        return rfc3339(instant)
    passed = age(since_s(row, instant))
    return "just now" if passed == "now" else f"{passed} ago"
