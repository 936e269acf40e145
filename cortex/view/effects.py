"""Describes effects to people: state, reason, and what a person can do."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id, time_of_day
from cortex.view.cells import Cell, Row

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
"""Filters accept a state as stored and as displayed."""


def state_cell(row: Row) -> Cell:
    """Return glyph and words of an effect's state."""
    return STATES[EffectStatus(row["status"])]


def remark(row: Row) -> str:
    """Return the reason for the state, or who resolved it; "" when there is none."""
    if EffectStatus(row["status"]) is EffectStatus.UNKNOWN:
        why = f"{row['why']}; " if row["why"] else ""
        return f"{why}see cortex effects show {short_id(row['id'])}"
    if row["resolution"]:
        return f"{row['resolution']}, by {row['resolved_by']}"
    if row["calls_count"] > 1:
        again = f"called {row['calls_count']} times under the same id"
        return f"{again}: {row['why']}" if row["why"] else again
    return row["why"] or ""


def prospects(effect: dict[str, Any]) -> dict[Resolution, str]:
    """Describe the consequence of each resolution of an unknown effect."""
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
        Resolution.GIVE_UP: f"{heir} does not call; the call raises an error there",
    }


# --- Breaker overrides in words


def is_held(row: Mapping[str, Any], now: datetime) -> bool:
    """Whether a person holds the breaker open, and the override has not ended."""
    until = row["open_until"]
    return row["forced_by"] is not None and (until is None or until > now)


def held_text(row: Mapping[str, Any], now: datetime) -> str:
    """Describe an override: `held open by ana until 12:30 "deploy"`.

    `row` has `forced_by`, `forced_reason` and `open_until`. Contains text of people: pass it
    through `safe`.
    """
    by, until = row["forced_by"], row["open_until"]
    if until is not None and until <= now:
        return f"was held open by {by} until {time_of_day(until, now)}: the next call tries it"
    when = "" if until is None else f" until {time_of_day(until, now)}"
    return f'held open by {by}{when} "{row["forced_reason"]}"'
