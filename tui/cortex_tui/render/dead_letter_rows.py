"""Dead letters on lines: by their error, and one by one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from cortex.domain.dead_letter import DeadLetterState, FailureCause, prospect
from cortex.domain.phrases import NOTHING, age, short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.backend.protocol import LetterRow
from cortex_tui.render.table import Column

BRIEF_CHARS: Final = 80
_STATES: Final = {
    DeadLetterState.OPEN: Cell("✗ open", "fail"),
    DeadLetterState.ESCALATED: Cell("◆ escal.", "warn"),
}
_BREAKERS: Final = {"CLOSED": "done", "HALF_OPEN": "warn"}


def on_retry(row: LetterRow) -> str:
    """Say what another try would do; not safe yet."""
    return prospect(FailureCause.of(row), step=row["step"])


def error_words(row: LetterRow) -> str:
    """Name an error; not safe yet."""
    return f"{row['error_code'] or row['error_class'] or 'error'}: {row['error_message'] or ''}"


def error_briefly(row: LetterRow) -> str:
    """Name an error in a question, with the beginning of what it says; not safe yet."""
    words = error_words(row)
    return words if len(words) <= BRIEF_CHARS else f"{words[: BRIEF_CHARS - 1]}…"


def letter_words(row: LetterRow) -> str:
    """Name a letter in a question; not safe yet."""
    return f"{row['agent'] or row['type']} {short_id(row['job_id'])}"


def _what(row: LetterRow, _: datetime) -> Cell:
    return Cell(safe(row["agent"])) if row["agent"] else Cell(safe(row["type"]), "dim")


def _count(row: LetterRow, _: datetime) -> Cell:
    return Cell(f"{row['count']:,}{'' if row['is_all'] else '+'}", "bold")


def _breaker(row: LetterRow, _: datetime) -> Cell:
    state = row["breaker"]
    if state is None:
        return Cell(NOTHING, "dim")
    return Cell(safe(state.lower().replace("_", " ")), _BREAKERS.get(state, "alarm"))


def _age_of(name: str) -> Any:
    return lambda row, now: Cell(age((now - row[name]).total_seconds()), "dim")


def _code(row: LetterRow, _: datetime) -> Cell:
    return Cell(safe(row["error_code"] or NOTHING), "fail" if row["error_code"] else "dim")


def state_cell(row: LetterRow) -> Cell:
    """Return glyph and word of a letter's state; none: it has no letter any more."""
    if row["state"] is None:
        return Cell(NOTHING, "dim")
    return _STATES.get(DeadLetterState(row["state"]), Cell(row["state"].lower(), "dim"))


def _step(row: LetterRow, _: datetime) -> Cell:
    return Cell(safe(row["step"])) if row["step"] else Cell(NOTHING, "dim")


def _message(row: LetterRow, _: datetime) -> Cell:
    return Cell(safe(row["error_message"] or ""))


_PROSPECT: Final[Column[LetterRow]] = Column(
    title="on retry", width=34, cell=lambda row, _: Cell(safe(on_retry(row)), "dim"), spare=9
)

ERROR_COLUMNS: Final[Sequence[Column[LetterRow]]] = (
    Column(title="count", width=7, cell=_count, is_right=True),
    Column(title="agent", width=14, cell=_what),
    Column(title="code", width=16, cell=_code, spare=2),
    Column(title="error", width=16, cell=_message, grows=True),
    _PROSPECT,
    Column(title="breaker", width=9, cell=_breaker),
    Column(title="first", width=5, cell=_age_of("first_at"), is_right=True, spare=1),
    Column(title="last", width=4, cell=_age_of("last_at"), is_right=True),
)

LETTER_COLUMNS: Final[Sequence[Column[LetterRow]]] = (
    Column(title="id", width=7, cell=lambda row, _: Cell(short_id(row["job_id"]), "bold")),
    Column(title="state", width=8, cell=lambda row, _: state_cell(row)),
    Column(title="agent", width=14, cell=_what),
    Column(title="last step", width=14, cell=_step, spare=2),
    Column(title="error", width=16, cell=_message, grows=True),
    _PROSPECT,
    Column(title="age", width=4, cell=_age_of("created_at"), is_right=True),
)
