"""Circuit breakers: the figures of each kind, and only legal ways through their states."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cortex.domain import breaker as rules
from cortex.domain.breaker import (
    POLICIES,
    TRANSITIONS,
    Breaker,
    BreakerState,
    policy_of,
)
from cortex.domain.errors import UsageError
from cortex.domain.failure import Failure, FailureClass

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POD = UUID(int=1)
LEASE_S = 30.0


def a_failure(**fields: object) -> Failure:
    defaults = {"cls": FailureClass.TRANSIENT_APP, "code": "overloaded", "message": "too busy"}
    return Failure(**(defaults | fields))  # type: ignore[arg-type]


def later(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def after_failures(count: int, name: str = "llm:m", *, requests: int = 1) -> Breaker:
    breaker = Breaker(name=name)
    for _ in range(count):
        breaker = rules.failed(breaker, a_failure(), T0, requests=requests)
    return breaker


def half_open(name: str = "llm:m") -> Breaker:
    opened = rules.failed(Breaker(name=name), a_failure(retry_after_s=1.0), T0)
    return rules.probe_taken(opened, later(1), by=POD, lease_s=LEASE_S)


# --- the figures


@pytest.mark.parametrize(
    "kind, opens_after, volume_min, open_s, closes_after, escalates_after",
    [
        ("llm", 3, 0, 30, 1, 5),
        ("tool", 3, 0, 30, 1, 5),
        ("mcp", 3, 0, 30, 1, 5),
        ("http", 5, 10, 60, 2, None),
        ("notify", 5, 10, 60, 2, None),
    ],
)
def test_policies_are_those_of_the_specification(  # noqa: PLR0917
    kind: str,
    opens_after: int,
    volume_min: int,
    open_s: float,
    closes_after: int,
    escalates_after: int | None,
) -> None:
    policy = policy_of(f"{kind}:x")
    assert attrs.astuple(policy)[:5] == (
        opens_after,
        volume_min,
        open_s,
        closes_after,
        escalates_after,
    )
    assert len(POLICIES) == 5


@pytest.mark.parametrize("name", ["", "llm", "llm:", ":x", "disk:/", "llm:" + "x" * 300])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a circuit breaker"):
        policy_of(name)


@pytest.mark.parametrize("kind", POLICIES)
def test_breaker_opens_after_consecutive_failures_for_its_time(kind: str) -> None:
    policy = POLICIES[kind]
    before = after_failures(policy.opens_after - 1, f"{kind}:x", requests=10)
    assert before.state is BreakerState.CLOSED
    opened = rules.failed(before, a_failure(), T0, requests=10)
    assert opened.state is BreakerState.OPEN
    assert (opened.opened_at, opened.open_until) == (T0, later(policy.open_s))
    assert opened.last_error == "overloaded: too busy"
    assert not opened.may_be_probed(later(policy.open_s - 0.1))
    assert opened.may_be_probed(later(policy.open_s))


def test_a_host_that_is_called_seldom_stays_closed() -> None:
    assert after_failures(9, "http:x").state is BreakerState.CLOSED
    assert after_failures(10, "http:x").state is BreakerState.OPEN


def test_a_success_ends_the_row_but_not_the_volume() -> None:
    breaker = rules.succeeded(after_failures(4, "http:x"), requests=6)
    assert (breaker.failures, breaker.requests) == (0, 10)
    assert breaker.is_healthy
    assert rules.succeeded(breaker) is breaker


@pytest.mark.parametrize("cls", [each for each in FailureClass if not each.is_transient])
def test_permanent_failures_do_not_count(cls: FailureClass) -> None:
    breaker = after_failures(2)
    assert rules.failed(breaker, a_failure(cls=cls, retry_after_s=9.0), T0) is breaker


@pytest.mark.parametrize("asked_s, given_s", [(0.5, 0.5), (20.0, 20.0), (1e9, 300.0)])
def test_a_server_that_asks_for_a_pause_gets_it_at_once(asked_s: float, given_s: float) -> None:
    opened = rules.failed(Breaker(name="http:x"), a_failure(retry_after_s=asked_s), T0)
    assert opened.state is BreakerState.OPEN
    assert opened.open_until == later(given_s)


def test_a_longer_pause_is_believed_if_the_operator_permits_it() -> None:
    asked = a_failure(retry_after_s=1e9)
    assert rules.failed(Breaker(name="llm:x"), asked, T0).open_until == later(300.0)
    opened = rules.failed(Breaker(name="llm:x"), asked, T0, retry_after_max_s=3600.0)
    assert opened.open_until == later(3600.0)
    again = rules.failed(opened, a_failure(retry_after_s=9e9), later(60), retry_after_max_s=3600.0)
    assert again.open_until == later(3660.0)


@pytest.mark.parametrize("asked_s", [0.0, -5.0, float("nan")])
def test_empty_pause_is_ignored(asked_s: float) -> None:
    counted = rules.failed(Breaker(name="llm:x"), a_failure(retry_after_s=asked_s), T0)
    assert (counted.state, counted.failures) == (BreakerState.CLOSED, 1)


def test_longer_pause_extends_an_open_breaker_and_equal_ones_change_nothing() -> None:
    opened = rules.failed(Breaker(name="llm:x"), a_failure(retry_after_s=20.0), T0)
    for _ in range(4):
        opened = rules.failed(opened, a_failure(), T0)
    again = rules.failed(opened, a_failure(retry_after_s=20.0), later(0.9))
    assert again is opened
    longer = rules.failed(opened, a_failure(retry_after_s=20.0), later(5))
    assert longer.open_until == later(25)
    assert rules.failed(longer, a_failure(retry_after_s=3.0), later(6)) is longer


# --- probing


def test_one_probe_at_a_time_until_it_counts_as_lost() -> None:
    breaker = half_open()
    assert breaker.state is BreakerState.HALF_OPEN
    taken = rules.probe_taken(breaker, later(30), by=UUID(int=2), lease_s=LEASE_S)
    assert taken is breaker
    renewed = rules.renewed(breaker, later(30), probe=breaker.probe, lease_s=LEASE_S)
    assert rules.probe_taken(renewed, later(59), by=UUID(int=2), lease_s=LEASE_S) is renewed
    taken = rules.probe_taken(renewed, later(60), by=UUID(int=2), lease_s=LEASE_S)
    assert (taken.probe, taken.probe_by) == (breaker.probe + 1, UUID(int=2))
    for late in (
        rules.succeeded(taken, probe=breaker.probe),
        rules.given_back(taken, probe=breaker.probe),
        rules.renewed(taken, later(61), probe=breaker.probe, lease_s=LEASE_S),
    ):
        assert late is taken


def test_failed_probe_reopens_the_breaker_in_the_same_outage() -> None:
    breaker = half_open()
    opened = rules.failed(breaker, a_failure(), later(2), probe=breaker.probe)
    assert opened.state is BreakerState.OPEN
    assert (opened.opened_at, opened.open_until) == (T0, later(32))
    assert opened.probe_by is None


def test_a_failure_of_a_call_that_began_before_does_not_decide_for_the_probe() -> None:
    breaker = half_open()
    counted = rules.failed(breaker, a_failure(), later(2))
    assert (counted.state, counted.failures) == (BreakerState.HALF_OPEN, 2)
    assert rules.succeeded(counted) is counted
    asked = rules.failed(counted, a_failure(retry_after_s=7.0), later(2))
    assert (asked.state, asked.open_until) == (BreakerState.OPEN, later(9))


def test_probe_without_an_outcome_is_given_back() -> None:
    breaker = half_open()
    permanent = a_failure(cls=FailureClass.PERMANENT)
    for free in (
        rules.given_back(breaker, probe=breaker.probe),
        rules.failed(breaker, permanent, later(2), probe=breaker.probe),
    ):
        assert free.state is BreakerState.HALF_OPEN
        assert free.may_be_probed(later(2))


@pytest.mark.parametrize("kind", POLICIES)
def test_breaker_closes_after_its_number_of_probes(kind: str) -> None:
    breaker = half_open(f"{kind}:x")
    for _ in range(POLICIES[kind].closes_after - 1):
        breaker = rules.succeeded(breaker, probe=breaker.probe)
        assert breaker.state is BreakerState.HALF_OPEN
        breaker = rules.probe_taken(breaker, later(2), by=POD, lease_s=LEASE_S)
    closed = rules.succeeded(breaker, probe=breaker.probe)
    assert closed.is_healthy
    assert (closed.opened_at, closed.open_until, closed.requests) == (None, None, 0)
    assert closed.probe == breaker.probe  # its number is never used again


# --- people


def test_a_person_is_asked_once_an_outage() -> None:
    breaker = after_failures(4)
    assert breaker.escalated_at is None
    asked = rules.failed(breaker, a_failure(), later(1))
    assert asked.escalated_at == later(1)
    assert rules.changes(breaker, asked) == ["breaker_escalated"]
    assert rules.failed(asked, a_failure(), later(2)) is asked
    probed = rules.probe_taken(asked, later(40), by=POD, lease_s=LEASE_S)
    again = rules.failed(probed, a_failure(), later(41), probe=probed.probe)
    assert again.escalated_at == later(1)
    assert rules.changes(probed, again) == ["breaker_opened"]
    assert rules.closed(again).escalated_at is None


def test_breaker_opened_by_a_person_is_closed_only_by_a_person() -> None:
    held = rules.forced_open(half_open(), later(5), by="ana", reason="maintenance")
    assert held.state is BreakerState.OPEN
    assert not held.may_be_probed(later(1e6))
    assert rules.failed(held, a_failure(retry_after_s=1.0), later(6)) is held
    assert rules.succeeded(held, probe=held.probe) is held
    assert rules.probe_taken(held, later(1e6), by=POD, lease_s=LEASE_S) is held
    closed = rules.closed(held)
    assert closed.is_healthy
    assert closed.forced_by is None
    assert rules.changes(half_open(), held, is_by_person=True) == ["breaker_forced_open"]
    assert rules.changes(held, closed, is_by_person=True) == ["breaker_forced_closed"]


def test_timed_hold_stays_unchanged_until_its_end() -> None:
    held = rules.forced_open(after_failures(1), later(5), by="ana", reason="deploy", for_s=60.0)
    assert (held.state, held.open_until) == (BreakerState.OPEN, later(65))
    assert not held.may_be_probed(later(64))
    assert rules.failed(held, a_failure(retry_after_s=900.0), later(6)) is held
    assert rules.probe_taken(held, later(64), by=POD, lease_s=LEASE_S) is held
    probed = rules.probe_taken(held, later(65), by=POD, lease_s=LEASE_S)
    assert (probed.state, probed.forced_by) == (BreakerState.HALF_OPEN, None)
    assert (probed.forced_reason, probed.forced_at) == (None, None)
    assert rules.changes(held, probed) == ["breaker_half_opened"]
    again = rules.failed(probed, a_failure(), later(66), probe=probed.probe)
    assert (again.state, again.forced_by, again.open_until) == (
        *(BreakerState.OPEN, None),
        later(66 + 30),
    )
    assert rules.succeeded(probed, probe=probed.probe).is_healthy


# --- whatever happens


class AnyLife(RuleBasedStateMachine):
    """Calls, probes and people in any order, on a monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(name="llm:x")
        self.now = T0
        self.alive: set[int] = set()
        """Probes given out and neither ended nor lost."""
        self.given: set[int] = set()

    def become(self, after: Breaker, *, is_by_person: bool = False) -> None:
        before = self.breaker
        if after.state is not before.state:
            assert after.state in TRANSITIONS[before.state]
            straight = (before.state, after.state) == (BreakerState.OPEN, BreakerState.CLOSED)
            assert not straight or is_by_person
            assert rules.changes(before, after, is_by_person=is_by_person)
        assert is_by_person or after is before or after != before
        self.breaker = after
        if after.probe_by is None:
            self.alive.clear()

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        until = self.breaker.probe_until
        if until is not None and until <= self.now:
            self.alive.clear()

    @rule(
        kind=st.sampled_from(list(FailureClass)),
        asked_s=st.none() | st.floats(0, 100),
        is_probe=st.booleans(),
    )
    def fail(self, kind: FailureClass, asked_s: float | None, *, is_probe: bool) -> None:
        probe = self.breaker.probe if is_probe and self.alive else None
        failure = a_failure(cls=kind, retry_after_s=asked_s)
        self.become(rules.failed(self.breaker, failure, self.now, probe=probe))

    @rule(probe=st.none() | st.integers(0, 5))
    def succeed(self, probe: int | None) -> None:
        self.become(rules.succeeded(self.breaker, probe=probe))

    @rule()
    def take_probe(self) -> None:
        after = rules.probe_taken(self.breaker, self.now, by=POD, lease_s=LEASE_S)
        if after is not self.breaker:
            assert not self.alive
            assert after.probe not in self.given
            self.given.add(after.probe)
        self.become(after)
        if after.probe_by is not None and after.probe_until == later_than(self.now):
            self.alive.add(after.probe)

    @precondition(lambda self: self.alive)
    @rule()
    def give_back(self) -> None:
        self.become(rules.given_back(self.breaker, probe=self.breaker.probe))

    @rule(for_s=st.none() | st.floats(1, 100))
    def force_open(self, for_s: float | None) -> None:
        after = rules.forced_open(self.breaker, self.now, by="ana", reason="why", for_s=for_s)
        self.become(after, is_by_person=True)

    @rule()
    def close(self) -> None:
        self.become(rules.closed(self.breaker), is_by_person=True)

    @invariant()
    def is_of_one_piece(self) -> None:
        b = self.breaker
        is_closed = b.state is BreakerState.CLOSED
        assert (b.opened_at is None) == is_closed
        assert not is_closed or b.open_until is None
        assert is_closed or b.open_until is not None or b.forced_by is not None
        assert b.probe_by is None or b.state is BreakerState.HALF_OPEN
        assert (b.probe_by is None) == (b.probe_until is None)
        assert b.forced_by is None or b.state is BreakerState.OPEN
        assert not (is_closed and b.failures >= policy_of(b.name).opens_after)
        assert b.escalated_at is None or not is_closed
        assert len(self.alive) <= 1


def later_than(now: datetime) -> datetime:
    return now + timedelta(seconds=LEASE_S)


TestAnyLife = AnyLife.TestCase
