"""After an outage a pod claims slowly at first; otherwise without a limit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.runtime.jobs.dispatcher import DOUBLES_IN_S, FIRST, FULL, ClaimSlowStart

CLIMB_S = DOUBLES_IN_S * math.log2(FULL / FIRST)


def test_without_an_outage_there_is_no_ramp() -> None:
    ramp = ClaimSlowStart()
    ramp.claimed(10_000)
    assert ramp.room(0.0) == math.inf


def test_slow_start_begins_when_the_database_is_back() -> None:
    ramp = ClaimSlowStart()
    ramp.broken()
    ramp.broken()
    assert ramp.room(100.0) == FIRST
    ramp.claimed(FIRST)
    assert ramp.room(100.0) == 0
    assert ramp.room(100.0 + DOUBLES_IN_S) == FIRST


def test_slow_start_ends_after_its_climb() -> None:
    ramp = ClaimSlowStart()
    ramp.broken()
    ramp.room(0.0)
    ramp.claimed(FIRST)
    assert ramp.room(CLIMB_S + 0.01) == math.inf
    assert CLIMB_S < 2


def test_a_second_outage_begins_a_second_ramp() -> None:
    ramp = ClaimSlowStart()
    ramp.broken()
    ramp.room(0.0)
    ramp.claimed(FIRST)
    ramp.broken()
    assert ramp.room(1.0) == FIRST


@given(looks=st.lists(st.floats(min_value=0, max_value=CLIMB_S), min_size=1, max_size=50))
def test_hints_do_not_steepen_the_slow_start(looks: list[float]) -> None:
    """However often it is asked, by an instant it has let through what that instant allows."""
    ramp, claimed = ClaimSlowStart(), 0
    ramp.broken()
    ramp.room(0.0)
    for now in sorted(looks):
        room = ramp.room(now)
        if room == math.inf:
            return
        claimed += int(room)
        ramp.claimed(int(room))
        assert claimed <= FIRST * 2 ** (now / DOUBLES_IN_S)


@pytest.mark.parametrize("count", [FIRST, 1])
def test_unused_room_can_be_claimed_later(count: int) -> None:
    ramp = ClaimSlowStart()
    ramp.broken()
    ramp.room(0.0)
    ramp.claimed(count)
    assert ramp.room(0.0) == FIRST - count


def test_slow_start_ends_even_if_asked_much_later() -> None:
    """A pod that is asked to drain right after an outage claims nothing for hours."""
    ramp = ClaimSlowStart()
    ramp.broken()
    ramp.room(0.0)
    assert ramp.room(86_400.0) == math.inf
