"""Results and events for people who wait for a job or follow it.

Every event has a position; with the last one a watcher can resume.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.job import JobStatus, StepKind

_INT_MAX: Final = 2**31 - 1
_BIGINT_MAX: Final = 2**63 - 1


@attrs.frozen(kw_only=True)
class JobState:
    """A job that has ended."""

    job_id: UUID
    status: JobStatus
    finished_at: datetime
    result: str | None = None
    """JSON text, for a COMPLETED one."""
    error_code: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None


@attrs.frozen
class CodeWait:
    """A job that waits for code that can take it: it does not end soon."""

    misfit: str | None
    """What did not fit the last code that looked; None: no pod has its type or its tools."""


@attrs.frozen
class Position:
    """How far a job has been followed."""

    history_id: int = 0
    ended_attempt: int = 0
    seq: int = 0
    claimed_attempt: int = 0

    def __str__(self) -> str:
        return f"{self.history_id}.{self.ended_attempt}.{self.seq}.{self.claimed_attempt}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read a position from its text. Raises `UsageError`."""
        parts = text.split(".")
        limits = (_BIGINT_MAX, _INT_MAX, _INT_MAX, _INT_MAX)
        if len(parts) == len(limits) and all(_is_number(part) for part in parts):
            numbers = [int(part) for part in parts]
            if all(number <= limit for number, limit in zip(numbers, limits, strict=True)):
                return cls(*numbers)
        raise UsageError(f"{text[:80]!r} is no position in a job's events", hint="leave it out")


START: Final = Position()


class EventKind(StrEnum):
    MOVED = "moved"
    """The job changed its state."""
    CLAIMED = "claimed"
    """A pod took the job over under a new attempt; its state did not change."""
    STEP = "step"
    """A step was committed: it will never run again."""
    EMITTED = "emitted"
    """The job has emitted a chunk, which `data` has as `chunk`."""
    ATTEMPT_ENDED = "attempt_ended"
    """An attempt ended before the job did."""


@attrs.frozen(kw_only=True)
class JobEvent:
    """One recorded event of a job."""

    kind: EventKind
    at: datetime
    position: Position
    """After the event: a follower resumes here."""
    data: Mapping[str, Any]
    """The row, JSON values only. Its text comes from a model or a job: not safe for a terminal."""

    @property
    def is_ending(self) -> bool:
        """It is the job's last one."""
        return self.kind is EventKind.MOVED and JobStatus(self.data["new"]).is_terminal


@attrs.frozen(kw_only=True)
class Happened:
    """The recorded history of one job after a position: rows in order, JSON values only."""

    history: Sequence[Mapping[str, Any]] = ()
    attempts: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    claim: Mapping[str, Any] | None = None
    """`at`, `attempt` and `pod` of the newest claim, if the position does not include it."""
    is_ended: bool = False
    is_complete: bool = True
    """No more rows are waiting to be read."""

    @property
    def is_over(self) -> bool:
        """The job has ended, and these are its last events."""
        return self.is_ended and self.is_complete


def events_after(position: Position, happened: Happened) -> list[JobEvent]:
    """Merge the history into one order, keeping each kind's; the job's end comes last."""
    heads = [list(reversed(each)) for each in _lanes(position, happened)]
    events: list[JobEvent] = []
    while any(heads):
        lane = min((each for each in heads if each), key=lambda each: _order(each[-1]))
        event = lane.pop()
        position = _moved_on(position, event)
        events.append(attrs.evolve(event, position=position))
    return events


def _lanes(after: Position, happened: Happened) -> list[list[JobEvent]]:
    history = [_event(EventKind.MOVED, row, row["at"], after) for row in happened.history]
    if not happened.is_complete and history and history[-1].is_ending:
        history.pop()  # the end comes after all other events
    steps = [_event(_kind(row), row, row["finished_at"], after) for row in happened.steps]
    ended = [
        _event(EventKind.ATTEMPT_ENDED, row, row["ended_at"], after) for row in happened.attempts
    ]
    begun = max([after.claimed_attempt, *(each.data["attempt"] for each in history)])
    claim = happened.claim
    claims = (
        [_event(EventKind.CLAIMED, claim, claim["at"], after)]
        if happened.is_complete and claim is not None and claim["attempt"] > begun
        else []
    )
    return [history, steps, ended, claims]


def _kind(step: Mapping[str, Any]) -> EventKind:
    return EventKind.EMITTED if step["kind"] == StepKind.EMIT else EventKind.STEP


def _event(kind: EventKind, row: Mapping[str, Any], at: str, after: Position) -> JobEvent:
    return JobEvent(kind=kind, at=datetime.fromisoformat(at), position=after, data=row)


_RANKS: Final = {
    EventKind.MOVED: 0,
    EventKind.STEP: 1,
    EventKind.EMITTED: 1,
    EventKind.ATTEMPT_ENDED: 2,
    EventKind.CLAIMED: 3,
}


def _order(event: JobEvent) -> tuple[bool, datetime, int]:
    """By time; at the same instant an end comes before its consequences."""
    return event.is_ending, event.at, _RANKS[event.kind]


def _moved_on(position: Position, event: JobEvent) -> Position:
    data = event.data
    match event.kind:
        case EventKind.MOVED:
            claimed = max(position.claimed_attempt, data["attempt"])
            return attrs.evolve(position, history_id=data["id"], claimed_attempt=claimed)
        case EventKind.STEP | EventKind.EMITTED:
            return attrs.evolve(position, seq=data["seq"])
        case EventKind.ATTEMPT_ENDED:
            return attrs.evolve(position, ended_attempt=data["attempt"])
        case EventKind.CLAIMED:
            return attrs.evolve(position, claimed_attempt=data["attempt"])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_BIGINT_MAX))
