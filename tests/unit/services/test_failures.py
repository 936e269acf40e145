"""What a handler's error does to its job: tried again, failed for good, or given up."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from cortex.domain.errors import (
    DivergedError,
    InvalidValueError,
    LeaseLost,
    NotFoundError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from cortex.domain.job import Finish, JobStatus, Release
from cortex.domain.retry import worker_delay_s
from cortex.durable.codec import TEXT_MAX
from cortex.services.job_actor import describe, failed
from tests.support.factories import a_claim


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
        TimedOutError("x"),
        UnavailableError("x"),
        NotFoundError("x"),
        SystemExit(1),
        BadlyMadeError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("spent", [1, 2])
def test_what_may_pass_is_tried_again_after_its_delay(error: BaseException, spent: int) -> None:
    claim = a_claim(attempts_spent=spent, max_attempts=3)
    ending = failed(claim, error)
    assert isinstance(ending, Release)
    assert (ending.outcome, ending.is_counted) == ("failed", True)
    assert ending.delay_s == worker_delay_s(spent)
    assert ending.error == describe(error)


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
    [RejectedError("x"), InvalidValueError("x"), DivergedError("x"), UsageError("x")],
    ids=lambda error: error.code,
)
def test_what_can_never_succeed_fails_at_once_under_its_own_code(error: UsageError) -> None:
    ending = failed(a_claim(), error)
    assert isinstance(ending, Finish)
    assert (ending.status, ending.code, ending.error) == (JobStatus.FAILED, error.code, "x")


def test_the_code_of_the_last_failure_is_kept() -> None:
    ending = failed(a_claim(attempts_spent=3), TimedOutError("too slow"))
    assert isinstance(ending, Finish)
    assert ending.code == "timed_out"


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
def test_a_lost_lease_says_nothing_to_the_database(error: BaseException) -> None:
    assert failed(a_claim(), error) is None


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("two\nlines\tand  more"), "ValueError: two lines and more"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (RejectedError("as it is"), "as it is"),
        (ValueError("a\0b\ud800c"), "ValueError: a\ufffdb\ufffdc"),
        (BadlyMadeError(), "BadlyMadeError"),
    ],
    ids=["lines", "key", "empty", "ours", "NUL", "badly made"],
)
def test_an_error_is_told_in_one_line_that_can_be_stored(error: Exception, line: str) -> None:
    assert describe(error) == line


def test_a_long_text_is_cut() -> None:
    assert len(describe(ValueError("x" * 10_000))) == TEXT_MAX


def test_an_error_made_of_another_error_is_told_by_its_text() -> None:
    assert describe(RejectedError(ValueError("no such account"))) == "no such account"  # type: ignore[arg-type]
