"""Bounds and distribution of every pause before something is tried again."""

import random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.backoff import Backoff
from cortex.domain.policy import POLICIES
from cortex.domain.retry import (
    CALL_RETRIES,
    RETRY_AFTER_MAX_S,
    CallRetry,
    app_delay_s,
    worker_delay_s,
)

backoffs = st.builds(
    Backoff,
    base_s=st.floats(0.01, 3600),
    cap_s=st.floats(0.01, 86_400),
    multiplier=st.floats(1, 10),
)
seeds = st.integers(0, 2**32).map(random.Random)


@pytest.mark.parametrize(
    "spent, delay_s",
    list(enumerate([2.7, 7.4, 20.1, 54.6, 148.4, 403.4, 1096.6, 2981, 8103, 22026, 22026], 1)),
)
def test_the_worker_layer_waits_longer_each_time(spent: int, delay_s: float) -> None:
    assert worker_delay_s(spent) == pytest.approx(delay_s, rel=0.02)


@given(backoffs, st.integers(0, 100), seeds)
def test_an_application_retry_waits_within_its_backoff(
    backoff: Backoff, retry_count: int, rng: random.Random
) -> None:
    delay_s = app_delay_s(backoff, retry_count, rng=rng)
    assert 0 <= delay_s <= min(backoff.cap_s, backoff.base_s * backoff.multiplier**retry_count)


@given(backoffs, st.integers(0, 100), seeds, st.floats(0, 1e9))
def test_a_server_may_ask_for_more_up_to_a_limit(
    backoff: Backoff, retry_count: int, rng: random.Random, asked_s: float
) -> None:
    again = random.Random()
    again.setstate(rng.getstate())
    unasked_s = app_delay_s(backoff, retry_count, rng=again)
    delay_s = app_delay_s(backoff, retry_count, rng=rng, retry_after_s=asked_s)
    assert delay_s == max(unasked_s, min(asked_s, RETRY_AFTER_MAX_S))


@pytest.mark.parametrize("job_type", sorted(POLICIES))
@pytest.mark.parametrize("retry_count", [0, 1, 5, 50])
def test_the_jitter_is_full_and_even(job_type: str, retry_count: int) -> None:
    backoff = POLICIES[job_type].backoff
    highest_s = min(backoff.cap_s, backoff.base_s * backoff.multiplier**retry_count)
    rng = random.Random(f"{job_type} {retry_count}")
    delays = sorted(app_delay_s(backoff, retry_count, rng=rng) for _ in range(4_000))
    # Uniform: each tenth holds a tenth of them, give or take five standard deviations.
    for tenth in range(10):
        low, high = highest_s * tenth / 10, highest_s * (tenth + 1) / 10
        assert 300 <= sum(low <= delay < high for delay in delays) <= 500
    assert mean(delays) == pytest.approx(highest_s / 2, rel=0.05)


@given(
    st.sampled_from(list(CALL_RETRIES.values())),
    st.integers(1, 50),
    seeds,
    st.none() | st.floats(0, 1e6),
)
def test_a_call_waits_at_least_its_backoff_and_at_most_half_as_much_again(
    retry: CallRetry, failures: int, rng: random.Random, asked_s: float | None
) -> None:
    least_s = min(retry.cap_s, retry.base_s * 2.0 ** (failures - 1))
    delay_s = retry.delay_s(failures, rng=rng, retry_after_s=asked_s)
    believed_s = min(asked_s or 0, RETRY_AFTER_MAX_S)
    assert max(least_s, believed_s) <= delay_s <= max(1.5 * least_s, believed_s)
