"""How states are shown: a glyph and a word, never a colour alone."""

from typing import Final

from cortex.domain.job import JobStatus
from cortex.domain.job_filter import STATE_WORDS

GLYPHS: Final = {
    JobStatus.PENDING: "○",
    JobStatus.RUNNING: "●",
    JobStatus.WAITING_FOR_APPROVAL: "◆",
    JobStatus.RETRY: "↻",
    JobStatus.COMPLETED: "✓",
    JobStatus.FAILED: "✗",
    JobStatus.CANCELLED: "⊘",
}


def style_of(status: JobStatus) -> str:
    """Return the word of the style, which is also the word of the state."""
    return STATE_WORDS[status]


def state_words(status: JobStatus) -> str:
    """Return glyph and word."""
    return f"{GLYPHS[status]} {STATE_WORDS[status]}"
