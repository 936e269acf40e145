"""Circuit breakers as values: one for each called system, and the legal transitions of its states.

Pure functions from a breaker and an event to the next breaker. An event without a change returns
the same object, so callers know that nothing has to be written.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

import attrs

from cortex.domain.effect import FREEZE
from cortex.domain.errors import UsageError
from cortex.domain.failure import Failure
from cortex.domain.retry import RETRY_AFTER_MAX_S

RETRY_AFTER_STEP_S: Final = 1.0
"""Simultaneous answers ask for about the same pause: smaller differences are ignored."""
HOLD_MIN_S: Final = 1.0
HOLD_MAX_S: Final = 30 * 86_400.0
"""A person who holds a breaker open for longer holds it without an end."""
QUIET_S: Final = 3600.0
"""A breaker that may be probed but is not called for this long is forgotten."""
NAME_MAX: Final = 300
ERROR_MAX: Final = 500
"""Characters of an error that are kept."""


class BreakerState(StrEnum):
    """CLOSED lets calls pass, OPEN none, HALF_OPEN one across all pods: the probe."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


TRANSITIONS: Final[dict[BreakerState, frozenset[BreakerState]]] = {
    BreakerState.CLOSED: frozenset({BreakerState.OPEN}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN, BreakerState.CLOSED}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.OPEN, BreakerState.CLOSED}),
}
"""The legal transitions; only a person goes from OPEN straight to CLOSED."""


@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """When a breaker of one kind opens and closes."""

    opens_after: int
    """Failures in a row."""
    volume_min: int = 0
    """Calls since it last closed, below which it stays closed."""
    open_s: float
    closes_after: int
    """Probes in a row that succeeded."""
    escalates_after: int | None = None
    """Failures in a row after which a person is notified, once per outage."""
    is_ramped: bool = True
    """Calls that begin together are admitted in growing rounds. Not for tools: their first answer
    may well take minutes, and their failures are local."""


_MODEL: Final = BreakerPolicy(opens_after=3, open_s=30.0, closes_after=1, escalates_after=5)
_HOST: Final = BreakerPolicy(opens_after=5, volume_min=10, open_s=60.0, closes_after=2)

POLICIES: Final[dict[str, BreakerPolicy]] = {
    "llm": _MODEL,
    "tool": attrs.evolve(_MODEL, is_ramped=False),
    "mcp": attrs.evolve(_MODEL, is_ramped=False),
    "http": _HOST,
    "notify": attrs.evolve(_HOST, is_ramped=False),
}
"""By the kind of the called system, the prefix of a breaker's name: `llm:NAME`."""


def policy_of(name: str) -> BreakerPolicy:
    """Return the policy of a breaker. Raises `UsageError` for an invalid name."""
    if name == FREEZE:
        raise UsageError(
            f"{FREEZE} is the freeze of effects and no circuit breaker",
            hint="cortex freeze on, or cortex freeze off",
        )
    kind, colon, rest = name.partition(":")
    if kind not in POLICIES or not colon or not rest or len(name) > NAME_MAX:
        raise UsageError(
            f"{name[:NAME_MAX]!r} is not the name of a circuit breaker",
            hint="their names are " + ", ".join(f"{kind}:NAME" for kind in POLICIES),
        )
    return POLICIES[kind]


@attrs.frozen(kw_only=True)
class Breaker:
    """A circuit breaker; instants are aware and by the database's clock."""

    name: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """In a row."""
    successes: int = 0
    """Of probes, in a row."""
    requests: int = 0
    """Reported calls since it last closed: healthy pods report none."""
    opened_at: datetime | None = None
    """Beginning of the outage; None while CLOSED."""
    open_until: datetime | None = None
    """When it may be probed; None while CLOSED, and while a person holds it open without an end."""
    probe: int = 0
    """Number of the last probe, never used again: its fence."""
    probe_by: UUID | None = None
    """The pod whose probe is in flight."""
    probe_until: datetime | None = None
    """When that probe counts as lost, unless its pod renews it."""
    forced_by: str | None = None
    """The person who holds it open."""
    forced_reason: str | None = None
    forced_at: datetime | None = None
    last_error: str | None = None
    escalated_at: datetime | None = None
    """When a person was notified, in this outage."""
    version: int = 0
    """Raised by each write, and never reused; 0: not stored."""

    @property
    def is_healthy(self) -> bool:
        """Calls pass, and no failure is counted."""
        return self.state is BreakerState.CLOSED and self.failures == 0

    def may_be_probed(self, now: datetime) -> bool:
        """The next call may take the probe."""
        match self.state:
            case BreakerState.OPEN:
                return self.open_until is not None and self.open_until <= now
            case BreakerState.HALF_OPEN:
                return self.probe_until is None or self.probe_until <= now
            case BreakerState.CLOSED:
                return False

    def is_probe(self, probe: int | None) -> bool:
        """Return whether this is the number of the current probe."""
        return (
            self.state is BreakerState.HALF_OPEN
            and self.probe_by is not None
            and probe == self.probe
        )


def failed(
    breaker: Breaker,
    failure: Failure,
    now: datetime,
    *,
    requests: int = 1,
    probe: int | None = None,
    retry_after_max_s: float = RETRY_AFTER_MAX_S,
) -> Breaker:
    """A call failed; `requests` calls have ended since the same pod's last report.

    Failures that would repeat themselves say nothing about the called system: they only give a
    probe back. A server that asks for a pause gets it at once, up to `retry_after_max_s`.
    """
    if not failure.cls.is_transient:
        return given_back(breaker, probe=probe)
    policy = policy_of(breaker.name)
    requested_s = _requested_s(failure, retry_after_max_s)
    if breaker.state is BreakerState.OPEN:
        return _failed_while_open(breaker, failure, now, requested_s=requested_s)
    counted = _counted(breaker, failure, requests=requests)
    is_too_much = counted.failures >= policy.opens_after and counted.requests >= policy.volume_min
    is_closed = breaker.state is BreakerState.CLOSED
    if requested_s is not None or breaker.is_probe(probe) or (is_closed and is_too_much):
        until = now + timedelta(seconds=policy.open_s if requested_s is None else requested_s)
        counted = _opened(counted, now, until=until)
    return _escalated(counted, now)


def succeeded(breaker: Breaker, *, requests: int = 1, probe: int | None = None) -> Breaker:
    """A call succeeded: the run of failures ends, or the probe is answered."""
    if breaker.is_probe(probe):
        answered = attrs.evolve(given_back(breaker, probe=probe), successes=breaker.successes + 1)
        is_enough = answered.successes >= policy_of(breaker.name).closes_after
        return closed(answered) if is_enough else answered
    if breaker.state is BreakerState.CLOSED and breaker.failures:
        return attrs.evolve(breaker, failures=0, requests=breaker.requests + requests)
    return breaker


def moved_on(breaker: Breaker, now: datetime) -> Breaker:
    """Apply the transitions that are due by time alone.

    An OPEN breaker becomes HALF_OPEN when its pause is over, which also ends a limited override. A
    HALF_OPEN breaker that was not probed for `QUIET_S` closes.
    """
    if breaker.open_until is None or breaker.open_until > now:
        return breaker
    if breaker.state is BreakerState.OPEN:
        return _half_open(breaker)
    is_probed = breaker.probe_until is not None and breaker.probe_until > now
    is_quiet = breaker.open_until + timedelta(seconds=QUIET_S) <= now
    return closed(breaker) if is_quiet and not is_probed else breaker


def probe_taken(breaker: Breaker, now: datetime, *, by: UUID, lease_s: float) -> Breaker:
    """A pod takes the probe, if it is available, for `lease_s` seconds unless it renews it.

    This also ends a limited override.
    """
    if not breaker.may_be_probed(now):
        return breaker
    return attrs.evolve(
        _half_open(breaker),
        probe=breaker.probe + 1,
        probe_by=by,
        probe_until=now + timedelta(seconds=lease_s),
    )


def renewed(breaker: Breaker, now: datetime, *, probe: int, lease_s: float) -> Breaker:
    """The probe is still in flight."""
    if not breaker.is_probe(probe):
        return breaker
    return attrs.evolve(breaker, probe_until=now + timedelta(seconds=lease_s))


def given_back(breaker: Breaker, *, probe: int | None) -> Breaker:
    """The probe ended without a result: the next one may be taken at once."""
    if not breaker.is_probe(probe):
        return breaker
    return attrs.evolve(breaker, probe_by=None, probe_until=None)


def forced_open(
    breaker: Breaker, now: datetime, *, by: str, reason: str, for_s: float | None = None
) -> Breaker:
    """A person holds it open, as a pause that nothing ends earlier; None: without an end."""
    until = None if for_s is None else now + timedelta(seconds=for_s)
    held = _opened(breaker, now, until=until)
    return attrs.evolve(held, forced_by=by, forced_reason=reason, forced_at=now)


def closed(breaker: Breaker) -> Breaker:
    """Everything is healthy again: all counts restart, only the last error is kept."""
    return Breaker(
        name=breaker.name,
        probe=breaker.probe,
        last_error=breaker.last_error,
        version=breaker.version,
    )


def changes(before: Breaker, after: Breaker, *, is_by_person: bool = False) -> list[str]:
    """Return the names of the facts to record for a change."""
    if is_by_person:
        return ["breaker_forced_open" if after.forced_by else "breaker_forced_closed"]
    names = []
    if after.state is not before.state:
        names.append(_ENTERED[after.state])
    if after.escalated_at is not None and before.escalated_at is None:
        names.append("breaker_escalated")
    return names


OPENED: Final = "breaker_opened"
_ENTERED: Final = {
    BreakerState.CLOSED: "breaker_closed",
    BreakerState.OPEN: OPENED,
    BreakerState.HALF_OPEN: "breaker_half_opened",
}


def _failed_while_open(
    breaker: Breaker, failure: Failure, now: datetime, *, requested_s: float | None
) -> Breaker:
    """A late result of an earlier call: it counts towards escalation, may lengthen the pause."""
    if breaker.forced_by is not None or breaker.open_until is None:
        return breaker  # results of calls do not matter while a person holds it open
    if requested_s is not None:
        until = now + timedelta(seconds=requested_s)
        if until > breaker.open_until + timedelta(seconds=RETRY_AFTER_STEP_S):
            breaker = attrs.evolve(breaker, open_until=until)
    if breaker.failures < (policy_of(breaker.name).escalates_after or 0):
        breaker = _counted(breaker, failure, requests=1)
    return _escalated(breaker, now)


def _counted(breaker: Breaker, failure: Failure, *, requests: int) -> Breaker:
    return attrs.evolve(
        breaker,
        failures=breaker.failures + 1,
        requests=breaker.requests + requests,
        last_error=f"{failure.code}: {failure.message}"[:ERROR_MAX],
    )


def _half_open(breaker: Breaker) -> Breaker:
    return attrs.evolve(
        breaker,
        state=BreakerState.HALF_OPEN,
        forced_by=None,
        forced_reason=None,
        forced_at=None,
    )


def _opened(breaker: Breaker, now: datetime, *, until: datetime | None) -> Breaker:
    return attrs.evolve(
        breaker,
        state=BreakerState.OPEN,
        opened_at=breaker.opened_at or now,
        open_until=until,
        successes=0,
        probe_by=None,
        probe_until=None,
    )


def _escalated(breaker: Breaker, now: datetime) -> Breaker:
    limit = policy_of(breaker.name).escalates_after
    is_new = breaker.state is not BreakerState.CLOSED and breaker.escalated_at is None
    if limit is None or breaker.failures < limit or not is_new:
        return breaker
    return attrs.evolve(breaker, escalated_at=now)


def _requested_s(failure: Failure, most_s: float) -> float | None:
    requested_s = failure.retry_after_s
    if requested_s is None or not requested_s > 0:  # NaN is no request
        return None
    return min(requested_s, most_s)


PAST_S: Final = 3600.0
ERRORS_MAX: Final = 3
"""As many as open the breaker of a model or a tool."""


@attrs.frozen(kw_only=True)
class Turn:
    """A change of a breaker's state."""

    at: datetime
    before: Annotated[BreakerState | str, str]
    after: Annotated[BreakerState | str, str]
    """A newer release may have recorded other states."""


@attrs.frozen(kw_only=True)
class CountedError:
    """An error that counts for a breaker."""

    at: datetime
    code: str
    message: str


@attrs.frozen(kw_only=True)
class Past:
    """The last hour of a breaker."""

    turns: tuple[Turn, ...] = ()
    """The oldest first."""
    known_since: datetime | None = None
    """Turns before that instant are unknown; None: all are known."""
    errors: tuple[CountedError, ...] = ()
    """The newest first."""


def openings(past: Past) -> int:
    """Return how many outages began, as far as known: a failed probe begins none."""
    turned = ((turn.before, turn.after) for turn in past.turns)
    return sum(turn == (BreakerState.CLOSED, BreakerState.OPEN) for turn in turned)


def is_calm(state: str, past: Past) -> bool:
    """It was closed all the hour, as far as known."""
    return state == BreakerState.CLOSED and not past.turns
