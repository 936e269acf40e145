"""Dead letters in lines: grouped by error, and one by one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, DeadLetterHead
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.resources.dead_letters import ERRORS, LETTERS
from cortex_tui.render.table import Column, column

BRIEF_CHARS: Final = 80
PROSPECT_CELLS: Final = 34


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


ERROR_COLUMNS: Final[Sequence[Column[DeadLetterGroup]]] = (
    column(ERRORS, "count", width=7),
    Column(title="agent", width=14, cell=_what),
    column(ERRORS, "error_code", width=16, spare=2),
    column(ERRORS, "error_message", width=16, grows=True),
    column(ERRORS, "on_retry", width=PROSPECT_CELLS, spare=9),
    column(ERRORS, "breaker", width=9),
    column(ERRORS, "first_at", width=5, spare=1),
    column(ERRORS, "last_at", width=4),
)

LETTER_COLUMNS: Final[Sequence[Column[DeadLetter]]] = (
    column(LETTERS, "job_id", width=7),
    column(LETTERS, "state", width=11),
    Column(title="agent", width=14, cell=_what),
    column(LETTERS, "step", width=14, spare=2),
    column(LETTERS, "error_message", width=16, grows=True),
    column(LETTERS, "on_retry", width=PROSPECT_CELLS, spare=9),
    column(LETTERS, "created_at", width=4),
)
