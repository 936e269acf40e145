"""Identifiers: ordered by their time, unique, and UUIDs of version 7."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.clock import Chance, system_chance, uuid7

MILLISECONDS = st.integers(min_value=0, max_value=2**48 - 1)
SEEDS = st.integers()


@given(early=MILLISECONDS, late=MILLISECONDS, seed=SEEDS)
def test_later_millisecond_sorts_later_whatever_the_random_bits(
    early: int, late: int, seed: int
) -> None:
    rng = Random(seed)
    first, second = uuid7(early, rng), uuid7(late, rng)
    if early != late:
        assert (first < second) == (early < late)
        assert (str(first) < str(second)) == (early < late)  # as text, too


@given(ms=MILLISECONDS, seed=SEEDS)
def test_id_is_a_version_7_uuid_with_its_time(ms: int, seed: int) -> None:
    made = uuid7(ms, Random(seed))
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert made.int >> 80 == ms


def test_all_74_random_bits_are_used() -> None:
    rng = Random(1)
    seen_set = seen_clear = 0
    for _ in range(200):
        bits = uuid7(0, rng).int
        seen_set |= bits
        seen_clear |= ~bits
    both_seen = seen_set & seen_clear & (2**128 - 1)
    assert both_seen.bit_count() == 74


def test_ids_within_a_millisecond_are_distinct() -> None:
    rng = system_chance().rng
    assert len({uuid7(1_700_000_000_000, rng) for _ in range(20_000)}) == 20_000


def test_two_processes_have_chances_of_their_own() -> None:
    one, other = system_chance(), system_chance()
    with pytest.raises(NotImplementedError):
        one.rng.getstate()  # a source with a state would repeat itself after a fork
    assert one.new_id() != other.new_id()


def test_chance_uses_the_given_clock_and_randomness() -> None:
    first, again = (Chance(Random(5), lambda: 1234) for _ in range(2))
    assert first.new_id() == again.new_id()
    assert first.new_id().int >> 80 == 1234
