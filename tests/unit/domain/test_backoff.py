"""Pauses grow to their cap, random draws stay in their bounds, limits only grow until a restart."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.backoff import Backoff, GrowingLimit, grown


def test_pauses_grow_by_the_multiplier_up_to_the_cap() -> None:
    backoff = Backoff(base_s=1.0, cap_s=20.0, multiplier=3.0)
    assert [backoff.longest_s(nth) for nth in (1, 2, 3, 4, 5)] == [1.0, 3.0, 9.0, 20.0, 20.0]


@pytest.mark.parametrize("multiplier", [1, 2, 10])
def test_no_number_of_failures_is_too_large(multiplier: int) -> None:
    backoff = Backoff(base_s=3600.0, cap_s=86_400.0, multiplier=multiplier)
    assert backoff.longest_s(10**9) == (3600.0 if multiplier == 1 else 86_400.0)


@given(nth=st.integers(1, 1000), seed=st.integers(), least=st.floats(0, 1))
def test_a_pause_is_drawn_between_its_bounds(nth: int, seed: int, least: float) -> None:
    backoff = Backoff(base_s=0.1, cap_s=5.0)
    pause_s = backoff.pause_s(nth, rng=random.Random(seed), least=least)
    longest_s = backoff.longest_s(nth)
    assert least * longest_s <= pause_s <= longest_s * (1 + 1e-9)


def test_pauses_of_the_same_failure_differ() -> None:
    rng = random.Random(1)
    assert len({Backoff().pause_s(3, rng=rng) for _ in range(10)}) == 10


def test_growth_by_parts() -> None:
    assert grown(16, 2.0, 0.5) == pytest.approx(16 * math.sqrt(2))
    assert grown(16, 2.0, 1e9) < math.inf


def test_growing_limit_grows_lifts_and_restarts() -> None:
    limit = GrowingLimit(first=4, unlimited_from=10)
    assert limit.value == 4
    limit.grow_to(3)
    assert limit.value == 4, "it never shrinks by growing"
    limit.grow_to(9)
    assert (limit.value, limit.is_unlimited) == (9, False)
    limit.grow_to(10)
    assert limit.is_unlimited
    limit.grow_to(5)
    assert limit.is_unlimited
    limit.restart()
    assert limit.value == 4
    limit.lift()
    assert limit.is_unlimited
