"""How an effect is described to people: its state, why it stands so, what a person can do."""

from typing import Any, Final

from cortex.domain.cells import Cell, Row
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id

STATES: Final = {
    EffectStatus.PENDING: Cell("● pending", "run"),
    EffectStatus.UNKNOWN: Cell("? unknown", "appr"),
    EffectStatus.COMPLETED: Cell("✓ applied", "done"),
    EffectStatus.FAILED: Cell("✗ not applied", "fail"),
    EffectStatus.ABANDONED: Cell("⊘ given up", "dim"),
}
WORDS: Final = {
    **{status.value.lower(): status for status in EffectStatus},
    "applied": EffectStatus.COMPLETED,
    "not-applied": EffectStatus.FAILED,
    "given-up": EffectStatus.ABANDONED,
}
"""What filters take: as the record has it, and as it is shown."""


def state_cell(row: Row) -> Cell:
    """Return glyph and words of an effect's state."""
    return STATES[EffectStatus(row["status"])]


def remark(row: Row) -> str:
    """Say why it stands so, or who has said it; "" when there is nothing to say."""
    if EffectStatus(row["status"]) is EffectStatus.UNKNOWN:
        why = f"{row['why']}; " if row["why"] else ""
        return f"{why}see cortex effects show {short_id(row['id'])}"
    if row["resolution"]:
        return f"{row['resolution']}, said {row['resolved_by']}"
    if row["calls_count"] > 1:
        again = f"called {row['calls_count']} times under the same id"
        return f"{again}: {row['why']}" if row["why"] else again
    return row["why"] or ""


def prospects(effect: dict[str, Any]) -> dict[Resolution, str]:
    """Say what would come of each thing that a person can say of an unknown effect."""
    if not JobStatus(effect["job_status"]).is_terminal:
        return {
            Resolution.APPLIED: "the job goes on with its --result and does not call again",
            Resolution.NOT_APPLIED: "the job goes on and calls again, under the same id",
            Resolution.GIVE_UP: "the job goes on and finds the call given up, which is an error",
        }
    heir = "a job that goes on from this one"
    return {
        Resolution.APPLIED: f"{heir} gets its --result and does not call again",
        Resolution.NOT_APPLIED: f"{heir} calls again, under the same id",
        Resolution.GIVE_UP: f"{heir} does not call: it is an error there",
    }
