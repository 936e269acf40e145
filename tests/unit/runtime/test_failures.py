"""The consequence of a handler's error for its job: a retry, a failure, or a suspension."""

import random
from collections.abc import Iterator, MutableMapping
from decimal import Decimal
from typing import Any

import attrs
import orjson
import pytest
from structlog.testing import capture_logs

from cortex.domain.backoff import Backoff
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import (
    DivergedError,
    InvalidOutputError,
    InvalidValueError,
    NotFoundError,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
    UsageError,
)
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Claim, Finish, JobStatus, Operation, Release, Suspend
from cortex.domain.retry import worker_delay_s
from cortex.runtime.job_ending import STACK_CHARS_MAX, ending_of, not_judged
from tests.support.records.factories import a_claim


def failed(claim: Claim, error: BaseException) -> Operation | None:
    return ending_of(claim, error, backoff=Backoff(), rng=random.Random(1))


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """Failures are logged: here they are expected."""
    with capture_logs() as lines:
        yield lines


class BadlyMadeError(Exception):
    """Its own text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError("x"),
        UnavailableError("x"),
        SystemExit(1),
        BadlyMadeError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("spent", [1, 2])
def test_transient_error_releases_the_job_after_its_delay(error: BaseException, spent: int) -> None:
    claim = a_claim(attempts_spent=spent, max_attempts=3)
    ending = failed(claim, error)
    assert isinstance(ending, Release)
    assert (ending.outcome, ending.is_counted) == ("failed", True)
    assert ending.delay_s == worker_delay_s(spent)
    assert ending.error


def test_the_last_attempt_fails_the_job() -> None:
    for spent in (3, 4):
        ending = failed(a_claim(attempts_spent=spent, max_attempts=3), ValueError("x"))
        assert isinstance(ending, Finish)
        assert (ending.status, ending.code, ending.error) == (
            JobStatus.FAILED,
            "job_failed",
            "ValueError: x",
        )


@pytest.mark.parametrize(
    "error",
    [
        RejectedError("x"),
        InvalidValueError("x"),
        DivergedError("x"),
        UsageError("x"),
        NotFoundError("x"),
        InvalidOutputError("x", raw="?"),
    ],
    ids=lambda error: error.code,
)
def test_permanent_error_fails_the_job_under_its_code(error: UsageError) -> None:
    ending = failed(a_claim(), error)
    assert isinstance(ending, Finish)
    assert (ending.status, ending.code, ending.error) == (JobStatus.FAILED, error.code, "x")


class SpentError(Exception):
    """A step whose own tries are spent."""

    failure = Failure(
        cls=FailureClass.TRANSIENT_INFRA,
        code="connect_timeout",
        message="x",
        source="http:host",
        is_spent=True,
    )


def test_spent_tries_fail_the_job_and_leave_its_source_to_the_triage() -> None:
    wish = Suspended("llm:x", "open", delay_s=20)
    for error in (SpentError(), BaseExceptionGroup("g", [OSError("x"), SpentError(), wish])):
        ending = failed(a_claim(), error)
        assert isinstance(ending, Finish)
        assert (ending.error_class, ending.error_source) == ("TRANSIENT_INFRA", "http:host")


def test_the_code_of_the_last_failure_is_kept() -> None:
    ending = failed(a_claim(attempts_spent=3), UnavailableError("too slow"))
    assert isinstance(ending, Finish)
    assert ending.code == "unavailable"


def test_the_worst_of_a_group_decides_at_any_depth() -> None:
    deep = ExceptionGroup("inner", [OSError("y"), RejectedError("never")])
    group = ExceptionGroup("outer", [ValueError("x"), deep])
    ending = failed(a_claim(), group)
    assert isinstance(ending, Finish)
    assert ending.error == "never"
    harmless = ExceptionGroup("outer", [ValueError("first"), OSError("second")])
    ending = failed(a_claim(), harmless)
    assert isinstance(ending, Release)
    assert ending.error == "ValueError: first"


@pytest.mark.parametrize(
    "error",
    [
        LeaseLost("gone"),
        BaseExceptionGroup("g", [LeaseLost("gone"), RejectedError("x")]),
        BaseExceptionGroup("g", [BaseExceptionGroup("h", [LeaseLost("a"), LeaseLost("b")])]),
    ],
    ids=["alone", "with others", "twice"],
)
def test_lost_lease_writes_no_ending(error: BaseException) -> None:
    assert failed(a_claim(), error) is None


def test_suspension_uses_no_retry_and_names_its_wait() -> None:
    error = Suspended("llm:x", "breaker llm:x is open", delay_s=20)
    ending = failed(a_claim(attempts_spent=3, retry_count=5, max_retries=5), error)
    assert isinstance(ending, Suspend)
    assert (ending.delay_s, ending.is_counted, ending.waiting_on) == (20, False, "llm:x")
    assert ending.error == "breaker llm:x is open"


def test_suspension_outranks_transient_and_yields_to_permanent_errors() -> None:
    wish = Suspended("llm:x", "open", delay_s=20)
    for passing in (OSError("x"), TransientError("x"), BaseExceptionGroup("g", [OSError("y")])):
        ending = failed(a_claim(), BaseExceptionGroup("g", [passing, wish]))
        assert isinstance(ending, Suspend)
        assert not ending.is_counted
    ending = failed(a_claim(), BaseExceptionGroup("g", [wish, RejectedError("never")]))
    assert isinstance(ending, Finish)
    assert ending.error == "never"


def test_an_application_error_uses_a_retry() -> None:
    ending = failed(a_claim(), TransientError("busy", retry_after_s=120))
    assert isinstance(ending, Suspend)
    assert (ending.delay_s, ending.is_counted, ending.waiting_on) == (120, True, None)
    assert (ending.error, ending.code, ending.error_class) == ("busy", "transient", "TRANSIENT_APP")


def test_fact_keeps_the_stack_and_the_limits_used() -> None:
    with pytest.raises(ValueError, match="deep down") as caught:
        raise ValueError("deep down")
    ending = failed(a_claim(attempts_spent=2, retry_count=1), caught.value)
    assert isinstance(ending, Release)
    assert ending.fact is not None
    fact = orjson.loads(ending.fact)
    assert fact["stack"].rstrip().endswith("ValueError: deep down")
    assert "test_fact_keeps_the_stack" in fact["stack"]
    expected = {"attempt": 2, "max": 3, "retry_count": 1, "class": "TRANSIENT_INFRA"}
    assert expected.items() <= fact.items()


def test_unprintable_error_still_leaves_a_bounded_stack() -> None:
    for error in (BadlyMadeError(), ValueError("x" * 100_000), ValueError("\0\ud800")):
        ending = failed(a_claim(), error)
        assert isinstance(ending, Release)
        assert ending.fact is not None
        assert len(ending.fact) < 4 * STACK_CHARS_MAX
        assert "\\u0000" not in ending.fact


@pytest.mark.parametrize(
    "error",
    [
        InvalidOutputError("x", raw="half \ud800 and nul \0"),
        InvalidOutputError("x", raw=b"bytes"),  # type: ignore[arg-type]
        InvalidOutputError("x", raw="x" * 1_000_000),
        TransientError("x", retry_after_s="5"),  # type: ignore[arg-type]
        TransientError("x", retry_after_s="soon"),  # type: ignore[arg-type]
        TransientError("x", retry_after_s=float("nan")),
        TimedOutError("x", scope="step", limit_s=Decimal(3)),  # type: ignore[arg-type]
        TimedOutError("x", scope="step", limit_s=float("inf")),
    ],
    ids=["half", "bytes", "long", "text", "words", "nan", "decimal", "endless"],
)
def test_fields_of_a_malformed_error_are_storable(error: Exception) -> None:
    ending = failed(a_claim(attempts_spent=3), error)
    assert isinstance(ending, Finish | Suspend | Release)
    assert ending.fact is not None
    fact = orjson.loads(ending.fact)
    assert len(ending.fact) < 100_000
    assert "\\u0000" not in ending.fact
    assert fact.get("limit_s") in (None, 3.0)


def test_an_error_that_cannot_be_judged_fails_its_job() -> None:
    ending = not_judged(a_claim(), BadlyMadeError(), TypeError("no number"))
    assert (ending.status, ending.code) == (JobStatus.FAILED, "job_failed")
    assert ending.error == "BadlyMadeError, which could not be classified: TypeError"


OWN = Failure(cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy", source="llm:x")


@pytest.mark.parametrize(
    "before_unix_s, opened_unix_s, is_counted",
    [
        (None, 100.0, False),  # its first failure: likely an outage
        (100.0, 95.0, False),  # open since before: the same outage
        (100.0, 99.999, False),
        (100.0, None, False),
        (100.0, 100.001, True),  # closed in between: others got through
    ],
)
def test_an_outage_uses_no_retry_but_a_call_that_always_fails_does(
    before_unix_s: float | None, opened_unix_s: float | None, is_counted: bool
) -> None:
    wish = Suspended("llm:x", "open", delay_s=30, failure=OWN, opened_unix_s=opened_unix_s)
    claim = a_claim(own_failure_unix_s=before_unix_s)
    ending = ending_of(claim, wish, backoff=Backoff(), rng=random.Random(1))
    assert isinstance(ending, Suspend)
    assert (ending.is_counted, ending.is_own_failure) == (is_counted, True)
    assert ending.waiting_on == "llm:x"
    assert ending.delay_s is not None
    assert ending.delay_s >= 30


@pytest.mark.parametrize("code", ["ended_early", "connection_lost", "idle_timeout"])
@pytest.mark.parametrize(
    "before, is_paid, retry_count, is_counted",
    [
        (None, True, 0, False),
        (1, True, 0, False),  # twice in a row: a server that comes back may break again
        (2, True, 0, True),
        (7, True, 0, True),
        (9, False, 0, False),  # nothing has come: an outage
        (2, True, 3, True),
        (1, True, 3, False),
        (9, False, 3, False),
    ],
)
def test_answers_that_always_break_in_the_middle_use_retries(
    code: str, before: int | None, is_paid: bool, retry_count: int, is_counted: bool
) -> None:
    failure = attrs.evolve(OWN, code=code, is_paid=is_paid)
    wish = Suspended("llm:x", "open", delay_s=30, failure=failure, opened_unix_s=1.0)
    own_failure_unix_s = None if before is None else 50.0
    claim = a_claim(
        own_failure_unix_s=own_failure_unix_s,
        broken_answers=5 if before is None else before,  # stale without a failure of its own
        retry_count=retry_count,
        max_retries=3,
    )
    ending = failed(claim, wish)
    if is_counted and retry_count == 3:
        assert isinstance(ending, Finish)
        assert (ending.status, ending.code) == (JobStatus.FAILED, code)
        return
    assert isinstance(ending, Suspend)
    assert (ending.is_counted, ending.waiting_on) == (is_counted, "llm:x")
    assert (ending.is_own_failure, ending.is_broken_answer) == (True, is_paid)


def test_job_that_only_waits_is_not_blamed() -> None:
    wish = Suspended("llm:x", "open", delay_s=30, opened_unix_s=501.0)
    ending = failed(a_claim(own_failure_unix_s=500.0), wish)
    assert isinstance(ending, Suspend)
    assert (ending.is_counted, ending.is_own_failure) == (False, False)


def test_a_call_that_always_fails_ends_its_job_by_its_own_failure() -> None:
    wish = Suspended("llm:x", "open", delay_s=30, failure=OWN, opened_unix_s=501.0)
    ending = failed(a_claim(own_failure_unix_s=500.0, retry_count=5, max_retries=5), wish)
    assert isinstance(ending, Finish)
    assert (ending.status, ending.error, ending.code) == (JobStatus.FAILED, "busy", "overloaded")


@pytest.mark.parametrize("spent, level", [(1, "warning"), (3, "error")])
def test_the_failure_that_ends_a_job_is_logged_as_an_error(
    log_lines: list[MutableMapping[str, Any]], spent: int, level: str
) -> None:
    failed(a_claim(attempts_spent=spent, max_attempts=3), ValueError("x"))
    assert [line["log_level"] for line in log_lines] == [level]
