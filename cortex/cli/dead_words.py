"""How a dead letter is described to people: its state, its cause, what would come of a retry."""

from typing import Any, Final

from cortex.cli.table import Cell, Column, Row, only_on_demand
from cortex.domain.dead_letter import Cause, LetterState, prospect
from cortex.domain.phrases import age, rfc3339, short_id, since_s
from cortex.domain.safe import safe

_STATES: Final = {
    LetterState.OPEN: ("✗ open", "fail"),
    LetterState.ESCALATED: ("◆ escalated", "warn"),
    LetterState.RETRIED: ("↻ retried", "retry"),
    LetterState.DISCARDED: ("⊘ discarded", "dim"),
    LetterState.ARCHIVED: ("○ archived", "dim"),
}


def state_cell(row: Row) -> Cell:
    """Return glyph and word of a letter's state."""
    return Cell(*_STATES[LetterState(row["state"])])


def on_retry(row: Row) -> str:
    """Say what a retry would do, or what became of the letter."""
    state = LetterState(row.get("state", LetterState.OPEN))
    if state.is_unresolved:
        return prospect(Cause.of(row), step=row["step"])
    heir = f" as {short_id(row['retried_as'])}" if row["retried_as"] else ""
    return f"was {state.value.lower()}{heir} by {row['resolved_by']}"


def error_told(row: Row) -> str:
    """Return class, code and source of an error, as far as they are known."""
    told = (row["error_class"], row["error_code"], row["error_source"])
    return " · ".join(each for each in told if each)


def letters_told(count: int) -> str:
    """Return a number of letters."""
    return "1 letter" if count == 1 else f"{count:,} letters"


def _age_of(name: str) -> Any:
    return lambda row: Cell(age(since_s(row, row[name])))


_ERROR: Final = (
    Column(name="error_code", title="code", least=8),
    Column(
        name="error_message",
        title="error",
        shown=lambda r: Cell(safe(r["error_message"])),
        least=16,
    ),
    Column(
        name="on_retry",
        title="on retry",
        value=on_retry,
        shown=lambda r: Cell(safe(on_retry(r)), "dim"),
        least=16,
    ),
)
_MORE: Final = (
    Column(name="error_source", title="source", is_default=False),
    Column(name="breaker", is_default=False),
    Column(name="agent", is_default=False),
    Column(name="error_class", is_default=False),
    Column(name="step", title="last step", is_default=False),
)

GROUP_COLUMNS: Final = (
    Column(name="fingerprint", shown=lambda r: Cell(r["fingerprint"], "bold")),
    Column(name="count", is_right=True),
    Column(name="type", least=8),
    *_ERROR,
    Column(name="first_at", title="first", shown=_age_of("first_at"), is_right=True, is_spare=True),
    Column(name="last_at", title="last", shown=_age_of("last_at"), is_right=True),
    Column(name="escalated_count", title="escalated", is_default=False),
    Column(name="job_id", title="newest", is_default=False),
    *_MORE,
)

LETTER_COLUMNS: Final = (
    Column(name="job_id", title="id", shown=lambda r: Cell(short_id(r["job_id"]), "bold")),
    Column(name="type", least=8),
    Column(name="state", shown=state_cell),
    *_ERROR,
    Column(name="created_at", title="age", shown=_age_of("created_at"), is_right=True),
    *only_on_demand("fingerprint", "tenant", "retried_as", "resolved_by", "resolved_at", "reason"),
    *only_on_demand("is_automatic", "lineage_id"),
    *_MORE,
)


def when(row: Row, name: str, *, is_tty: bool) -> str:
    """Return an instant of a row: how long ago for people who watch, else exact."""
    if not is_tty:
        return rfc3339(row[name])
    passed = age(since_s(row, row[name]))
    return "just now" if passed == "now" else f"{passed} ago"
