"""Describes effects to people: state, reason, and what a person can do."""

from datetime import datetime
from typing import Final, Protocol

from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.phrases import short_id
from cortex.store.effects import EffectDetail, EffectRow
from cortex.view.cells import Cell
from cortex.view.phrases import time_of_day

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


def state_cell(row: EffectRow) -> Cell:
    """Return glyph and words of an effect's state."""
    return STATES[row.status]


def remark(row: EffectRow) -> str:
    """Return the reason for the state, or who resolved it; "" when there is none."""
    if row.status is EffectStatus.UNKNOWN:
        why = f"{row.why}; " if row.why else ""
        return f"{why}see cortex effects show {short_id(row.id)}"
    if row.resolution:
        return f"{row.resolution}, by {row.resolved_by}"
    if row.calls_count > 1:
        again = f"called {row.calls_count} times under the same id"
        return f"{again}: {row.why}" if row.why else again
    return row.why or ""


def people_missing(count: int) -> str:
    """Say how many more people must say that an approved call was not applied."""
    return "1 more person must say the same" if count == 1 else f"{count} more people must say so"


def agreed_text(effect: EffectDetail) -> str:
    """Say who has said that an approved call was not applied, of how many; "" if nobody has."""
    if not effect.agreed_by or effect.people is None:
        return ""
    names = ", ".join(effect.agreed_by)
    return f"not applied, says {names}: {len(effect.agreed_by)} of {effect.people} people"


def prospects(effect: EffectDetail) -> dict[Resolution, str]:
    """Describe the consequence of each resolution of an unknown effect."""
    found = _prospects(effect)
    if effect.people is not None and len(effect.agreed_by) + 1 < effect.people:
        missing = effect.people - len(effect.agreed_by) - 1
        found[Resolution.NOT_APPLIED] = f"{people_missing(missing)} before the call is made again"
    return found


def _prospects(effect: EffectDetail) -> dict[Resolution, str]:
    if not effect.job_status.is_terminal:
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


class Held(Protocol):
    """A breaker that a person may hold open."""

    @property
    def forced_by(self) -> str | None: ...

    @property
    def forced_reason(self) -> str | None: ...

    @property
    def open_until(self) -> datetime | None: ...


def is_held(row: Held, now: datetime) -> bool:
    """Whether a person holds the breaker open, and the override has not ended."""
    until = row.open_until
    return row.forced_by is not None and (until is None or until > now)


def held_text(row: Held, now: datetime) -> str:
    """Say who holds it open, until when and why: `held open by ana until 12:30 "deploy"`.

    Text of people, to be made safe.
    """
    by, until = row.forced_by, row.open_until
    if until is not None and until <= now:
        return f"was held open by {by} until {time_of_day(until, now)}: the next call tries it"
    when = "" if until is None else f" until {time_of_day(until, now)}"
    return f'held open by {by}{when} "{row.forced_reason}"'
