"""What a failure does to its job: one pure function over the class and what was used so far."""

import random
from typing import TypeAlias

import attrs

from cortex.domain.backoff import Backoff
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.retry import RATE_LIMIT_RETRIES_MAX, app_delay_s, worker_delay_s


@attrs.frozen(kw_only=True)
class UsedRetries:
    """What a job has used of its chances, this attempt included."""

    attempts_spent: int
    max_attempts: int
    retry_count: int
    max_retries: int
    rate_limit_count: int


@attrs.frozen
class Fail:
    """The job has FAILED, for this reason besides its error."""

    why: str


@attrs.frozen
class TryAgain:
    """The worker layer tries again: the job stays RUNNING."""

    delay_s: float


@attrs.frozen
class RetryLater:
    """The application layer tries again: RETRY, one retry used."""

    delay_s: float


@attrs.frozen
class AskPerson:
    """No retry can help; a person may: the job waits for one."""


Decision: TypeAlias = Fail | TryAgain | RetryLater | AskPerson


def decide(
    failure: Failure, used: UsedRetries, backoff: Backoff, *, rng: random.Random
) -> Decision:
    """Decide what follows from a failure."""
    match failure.cls:
        case FailureClass.TRANSIENT_INFRA:
            return _worker(used)
        case FailureClass.TRANSIENT_APP:
            return _application(failure, used, backoff, rng=rng)
        case FailureClass.BUDGET:
            return AskPerson()
        case FailureClass.PERMANENT | FailureClass.INVALID_OUTPUT | FailureClass.VALID:
            return Fail("it can never succeed as it stands")


def _worker(used: UsedRetries) -> Decision:
    if used.attempts_spent >= used.max_attempts:
        return Fail(f"all {used.max_attempts} worker attempts are spent")
    return TryAgain(worker_delay_s(used.attempts_spent))


def _application(
    failure: Failure, used: UsedRetries, backoff: Backoff, *, rng: random.Random
) -> Decision:
    if used.retry_count >= used.max_retries:
        return Fail(f"all {used.max_retries} retries are spent")
    if failure.is_rate_limit and used.rate_limit_count >= RATE_LIMIT_RETRIES_MAX:
        return Fail(f"rate-limited {RATE_LIMIT_RETRIES_MAX + 1} times")
    return RetryLater(
        app_delay_s(backoff, used.retry_count, rng=rng, retry_after_s=failure.retry_after_s)
    )
