"""The consequence of a failure for its job, by its class and the attempts used."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.backoff import Backoff
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.retry import (
    RATE_LIMIT_RETRIES_MAX,
    AskPerson,
    Decision,
    Fail,
    RetryLater,
    TryAgain,
    UsedRetries,
    decide,
    worker_delay_s,
)

BACKOFF = Backoff(base_s=2, cap_s=60, multiplier=3)


def a_failure(cls: FailureClass, *, code: str = "x", retry_after_s: float | None = None) -> Failure:
    return Failure(cls=cls, code=code, message="it broke", retry_after_s=retry_after_s)


def used(**fields: int) -> UsedRetries:
    defaults = {
        "attempts_spent": 1,
        "max_attempts": 3,
        "retry_count": 0,
        "max_retries": 5,
        "rate_limit_count": 0,
    }
    return UsedRetries(**defaults | fields)


def decided(failure: Failure, chances: UsedRetries) -> Decision:
    return decide(failure, chances, BACKOFF, rng=random.Random(1))


@pytest.mark.parametrize("spent", [1, 2])
def test_infrastructure_failure_is_retried_by_the_worker_layer(spent: int) -> None:
    failure = a_failure(FailureClass.TRANSIENT_INFRA, retry_after_s=200)
    ended = decided(failure, used(attempts_spent=spent, retry_count=5))
    assert ended == TryAgain(worker_delay_s(spent))


def test_spent_worker_attempts_fail_the_job_even_with_retries_left() -> None:
    ended = decided(a_failure(FailureClass.TRANSIENT_INFRA), used(attempts_spent=3))
    assert ended == Fail("all 3 worker attempts are spent")


def test_application_failure_is_retried_by_the_application_layer() -> None:
    ended = decided(a_failure(FailureClass.TRANSIENT_APP), used(attempts_spent=3))
    assert isinstance(ended, RetryLater)
    assert 0 <= ended.delay_s <= BACKOFF.base_s


def test_retry_after_of_a_server_sets_the_delay() -> None:
    failure = a_failure(FailureClass.TRANSIENT_APP, retry_after_s=90)
    assert decided(failure, used()) == RetryLater(90)


def test_spent_retries_fail_the_job() -> None:
    ended = decided(a_failure(FailureClass.TRANSIENT_APP), used(retry_count=5))
    assert ended == Fail("all 5 retries are spent")


def test_a_rate_limit_has_a_limit_of_its_own() -> None:
    failure = a_failure(FailureClass.TRANSIENT_APP, code="rate_limit")
    chances = {"retry_count": 50, "max_retries": 100}
    before = used(rate_limit_count=RATE_LIMIT_RETRIES_MAX - 1, **chances)
    assert isinstance(decided(failure, before), RetryLater)
    spent = used(rate_limit_count=RATE_LIMIT_RETRIES_MAX, **chances)
    assert isinstance(decided(failure, spent), Fail)
    assert isinstance(decided(a_failure(FailureClass.TRANSIENT_APP), spent), RetryLater)


def test_a_budget_asks_a_person() -> None:
    assert decided(a_failure(FailureClass.BUDGET), used(attempts_spent=3)) == AskPerson()


@given(
    st.sampled_from(FailureClass),
    st.integers(1, 100),
    st.integers(1, 100),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_failure_is_never_retried_beyond_its_limits(
    cls: FailureClass, spent: int, attempts: int, retries: int, retries_max: int
) -> None:
    chances = used(
        attempts_spent=spent, max_attempts=attempts, retry_count=retries, max_retries=retries_max
    )
    ended = decided(a_failure(cls), chances)
    if isinstance(ended, TryAgain):
        assert spent < attempts
    if isinstance(ended, RetryLater):
        assert retries < retries_max
    assert isinstance(ended, TryAgain | RetryLater) <= cls.is_transient
