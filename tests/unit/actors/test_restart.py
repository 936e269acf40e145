"""Back-off grows to its limit, jitter only shortens it, and a policy must be able to give up."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.actors.restart import CrashWindow, RestartPolicy
from cortex.domain.backoff import Backoff


def test_backoff_doubles_up_to_its_maximum() -> None:
    policy = RestartPolicy(max_restarts=5, window_s=100, backoff=Backoff(base_s=1.0, cap_s=5.0))
    assert [policy.backoff.longest_s(n) for n in (1, 2, 3, 4, 99_999)] == [1.0, 2.0, 4.0, 5.0, 5.0]


@given(nth=st.integers(1, 10_000), seed=st.integers())
def test_jitter_takes_off_at_most_half(nth: int, seed: int) -> None:
    policy = RestartPolicy()
    longest_s = policy.backoff.longest_s(nth)
    assert longest_s / 2 <= policy.backoff_s(nth, random.Random(seed)) <= longest_s


def test_a_policy_that_could_never_give_up_is_refused() -> None:
    with pytest.raises(ValueError, match="restart for ever"):
        RestartPolicy(max_restarts=10, window_s=60, backoff=Backoff(base_s=1, cap_s=30))


@pytest.mark.parametrize("wrong", [{"max_restarts": -1}, {"backoff": Backoff(base_s=0.0)}])
def test_silly_policies_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        RestartPolicy(**wrong)


def test_the_window_forgets_crashes_as_old_as_itself() -> None:
    window = CrashWindow(10.0)
    assert [window.add(now) for now in (0.0, 5.0, 9.9, 10.0, 15.0, 40.0)] == [1, 2, 3, 3, 3, 1]
