"""Schedules: which job is submitted when, and what a tick has to do about one that is due."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any, Final

import attrs

from cortex.domain.canonical import canonical
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.job import BULK, RUN_AGENT
from cortex.domain.phrases import parse_span, span
from cortex.domain.policy import NAME_MAX as TENANT_MAX
from cortex.domain.schedules.cron import Cron, CronError, jitter

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
"""As in the schema."""
GRACE_S: Final = 60
"""So late an instant still counts as on time, whatever the backfill period is."""
BACKFILL_MAX_S: Final = 366 * 86_400
JITTER_MAX_S: Final = 3600
PAYLOAD_MAX_BYTES: Final = 250_000
"""A little less than a job may have: the instant comes on top."""
MISSED_COUNTED: Final = 1000
"""Missed instants are counted up to here; after a year without a pod there may be a million."""
_REFERENCE: Final = datetime(2024, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_GAPS_SEEN: Final = 50
"""Pauses between instants that are compared with the jitter."""


class Overlap(StrEnum):
    """What happens when an instant comes while a job of an earlier one has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancel_previous"


class Origin(StrEnum):
    """Where a schedule was declared."""

    BUILT_IN = "built_in"
    CODE = "code"
    FILE = "file"


class Outcome(StrEnum):
    """What became of an instant."""

    SUBMITTED = "SUBMITTED"
    QUEUED = "QUEUED"
    """It waits for the job of an earlier one."""
    SKIPPED = "SKIPPED"
    """The job of an earlier one had not ended."""
    MISSED = "MISSED"
    """With those after it: too late for the backfill period, or in a pause."""
    FAILED = "FAILED"
    """Its job could not be submitted."""


class ScheduleError(UsageError):
    """A schedule that cannot be used; `field` is the one to change."""

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


@attrs.frozen(kw_only=True)
class Schedule:
    """A job and when it is submitted. `make` checks; the class itself does not."""

    name: str
    cron: Cron
    type: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    agent: str | None = None
    tenant: str | None = None
    backfill_s: int = 0
    """Instants that are later than this are missed, apart from a minute of grace."""
    overlap: Overlap = Overlap.SKIP
    jitter_s: int = 0
    instant_as: str | None = None
    """The argument in which the job gets its instant."""

    @classmethod
    def make(
        cls,
        *,
        name: str,
        cron: str,
        tz: str = "UTC",
        type: str | None = None,  # noqa: A002 -- the word of the column and of the job
        arguments: Mapping[str, Any] | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        backfill: str | int = 0,
        overlap: str = Overlap.SKIP,
        jitter: str | int = 0,
        instant_as: str | None = None,
    ) -> "Schedule":
        """Return a checked schedule. Raises `ScheduleError` with field, value and way out."""
        _fits("name", name, NAME)
        kind = _job_type(type, agent)
        if tenant is not None and not 1 <= len(tenant) <= TENANT_MAX:
            raise ScheduleError(
                "tenant", f"{tenant[:40]!r} does not have 1 to {TENANT_MAX} characters"
            )
        if overlap not in set(Overlap):
            raise ScheduleError(
                "overlap", f"{overlap!r} is none of {', '.join(Overlap)}", hint="choose one"
            )
        given = _arguments(arguments or {}, instant_as)
        try:
            parsed = Cron.parse(cron, tz)
        except CronError as error:
            raise ScheduleError(error.field, error.message, hint=error.hint) from error
        jitter_s = _seconds("jitter", jitter, JITTER_MAX_S)
        _refuse_long_jitter(parsed, jitter_s)
        return cls(
            name=name,
            cron=parsed,
            type=kind,
            arguments=given,
            agent=agent,
            tenant=tenant,
            backfill_s=_seconds("backfill", backfill, BACKFILL_MAX_S),
            overlap=Overlap(overlap),
            jitter_s=jitter_s,
            instant_as=instant_as,
        )

    def due_at(self, instant: datetime) -> datetime:
        """Return when the job of an instant is submitted."""
        return instant + jitter(self.name, instant, self.jitter_s) if self.jitter_s else instant

    def arguments_at(self, instant: datetime) -> dict[str, Any]:
        """Return the payload of an instant's job."""
        extra = {} if self.instant_as is None else {self.instant_as: instant.isoformat()}
        return {**self.arguments, **extra}

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first instant after this one; None if there is none for fifty years."""
        return next(self.cron.after(instant), None)

    def plan(
        self, next_at: datetime, *, now: datetime, limit: int, pause: "Pause | None" = None
    ) -> "Plan":
        """Return what to do now, given the first instant that nothing was done about.

        At most `limit` instants fire, the oldest first; those older than the backfill period are
        missed. `pause`: instants that fell into it do not fire.
        """
        oldest = now - timedelta(seconds=max(self.backfill_s, GRACE_S))
        if pause is not None:  # its instants were noted when it ended
            oldest = min(oldest, pause.since + _TICK)
        first: datetime | None = next_at
        missed: Missed | None = None
        if self.due_at(next_at) < oldest:
            missed, first = self._missed(next_at, oldest)
        fire: list[datetime] = []
        while first is not None and len(fire) < limit and self.due_at(first) <= now:
            if pause is not None and pause.since < self.due_at(first) <= pause.until:
                _, first = self._missed(first, pause.until + _TICK)
                continue
            fire.append(first)
            first = self.next_after(first)
        return Plan(fire=tuple(fire), missed=missed, next_at=first)

    def resumed(self, next_at: datetime, pause: "Pause") -> "Plan":
        """Return the instants that fell into a pause that ends now, and the next instant to handle.

        That is an instant from before the pause if one is left: those of the pause come after it.
        """
        first: datetime | None = next_at
        if self.due_at(next_at) <= pause.since:
            _, first = self._missed(next_at, pause.since + _TICK)
        if first is None or self.due_at(first) > pause.until:
            return Plan(fire=(), missed=None, next_at=next_at)
        missed, after = self._missed(first, pause.until + _TICK)
        return Plan(fire=(), missed=missed, next_at=after if first == next_at else next_at)

    def _missed(self, next_at: datetime, oldest: datetime) -> "tuple[Missed, datetime | None]":
        count, last = 1, next_at
        # An instant before `oldest` may be due after it, by its jitter.
        start = oldest - timedelta(seconds=self.jitter_s, microseconds=1)
        for instant in islice(self.cron.after(next_at), MISSED_COUNTED):
            if self.due_at(instant) >= oldest:
                return Missed(first=next_at, last=last, count=count), instant
            count, last = count + 1, instant
        is_more = last < start
        first = next(
            (each for each in self.cron.after(max(last, start)) if self.due_at(each) >= oldest),
            None,
        )
        return Missed(first=next_at, last=last, count=count, is_more=is_more), first


@attrs.frozen
class Pause:
    """Instants that are due after `since`, up to `until`, fell into it."""

    since: datetime
    until: datetime


@attrs.frozen(kw_only=True)
class Missed:
    """Instants that never fire: older than the backfill period, or in a pause."""

    first: datetime
    last: datetime
    """The last one that was counted."""
    count: int
    is_more: bool = False
    """There may be more than were counted."""


@attrs.frozen(kw_only=True)
class Plan:
    """What a tick does about one schedule."""

    fire: tuple[datetime, ...]
    missed: Missed | None
    next_at: datetime | None
    """The first instant that is left for a later tick."""


def _job_type(name: str | None, agent: str | None) -> str:
    if name is None and agent is None:
        raise ScheduleError("job", "is missing", hint="name a job type, or an agent")
    kind = name or RUN_AGENT
    _fits("job", kind, NAME)
    if kind == BULK:
        raise ScheduleError("job", f"{kind!r} is not submitted by hand")
    if agent is not None and kind != RUN_AGENT:
        raise ScheduleError("agent", f"{agent!r} is of no use to job type {kind!r}")
    if agent is None and kind == RUN_AGENT:
        raise ScheduleError("agent", f"is missing: {RUN_AGENT} needs one")
    return kind


def _arguments(given: Mapping[str, Any], instant_as: str | None) -> dict[str, Any]:
    if instant_as is not None and not instant_as.isidentifier():
        raise ScheduleError("instant_as", f"{instant_as!r} is not the name of an argument")
    if instant_as in given:
        raise ScheduleError("instant_as", f"{instant_as!r} is given in the arguments, too")
    try:
        size = len(canonical(dict(given), what="arguments").encode())
    except InvalidValueError as error:
        raise ScheduleError("arguments", f"cannot be stored: {error.message}") from error
    if size > PAYLOAD_MAX_BYTES:
        raise ScheduleError("arguments", f"have {size:,} bytes, at most {PAYLOAD_MAX_BYTES:,}")
    return dict(given)


def _fits(field: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        raise ScheduleError(
            field,
            f"{value[:120]!r} does not match {pattern.pattern}",
            hint="use letters, digits, '.', '_' and '-', at most 100",
        )


def _seconds(field: str, value: str | int, longest_s: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ScheduleError(field, f"{value!r:.80} is not a time", hint="such as 0, 90s or 6h")
    try:
        seconds = value if isinstance(value, int) else int(parse_span(value))
    except UsageError as error:
        raise ScheduleError(field, error.message, hint="such as 90s or 6h; 0 for none") from error
    if not 0 <= seconds <= longest_s:
        raise ScheduleError(field, f"{value!r:.80} is outside 0 to {span(longest_s)}")
    return seconds


def _refuse_long_jitter(cron: Cron, jitter_s: int) -> None:
    """Keep the order of instants: a jitter must end before the next one."""
    if not jitter_s:
        return
    seen = list(islice(cron.after(_REFERENCE), _GAPS_SEEN))
    shortest = min(((b - a).total_seconds() for a, b in pairwise(seen)), default=jitter_s)
    if jitter_s > shortest:
        raise ScheduleError(
            "jitter", f"{jitter_s} s is longer than the {shortest:g} s between two instants"
        )
