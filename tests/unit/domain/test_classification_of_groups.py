"""Errors made of errors: groups of any shape, and causes where they decide."""

from collections.abc import Callable, Iterator

import httpx2
import trio
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain import errors
from cortex.domain.classification import CAUSES_MAX, MEMBERS_MAX, causes, classify, failure_of
from cortex.domain.failure import FailureClass

INFRA = FailureClass.TRANSIENT_INFRA
APP = FailureClass.TRANSIENT_APP
PERMANENT = FailureClass.PERMANENT
INVALID = FailureClass.INVALID_OUTPUT
BUDGET = FailureClass.BUDGET


def chained(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


def answered(status: int, **headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "http://example.org")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, request=request, headers=named)
    return httpx2.HTTPStatusError("told", request=request, response=response)


# --- causes


def test_cause_decides_only_for_an_uninformative_error() -> None:
    gone = errors.RejectedError("never")
    assert classify(chained(ValueError("mine"), gone)) is INFRA
    assert classify(chained(httpx2.ReadTimeout("mine"), gone)) is APP
    assert classify(chained(httpx2.ConnectError("not mine"), gone)) is PERMANENT
    assert classify(chained(OSError("not mine"), ExceptionGroup("g", [gone]))) is PERMANENT


def test_circular_causes_end() -> None:
    first, second = OSError("first"), OSError("second")
    chained(first, ExceptionGroup("g", [second, first, second]))
    chained(second, first)
    assert failure_of(first).code == "job_failed"
    assert len(list(causes(first))) == CAUSES_MAX


def test_very_long_chain_of_causes_ends() -> None:
    error: BaseException = errors.RejectedError("never reached")
    for _ in range(10_000):
        error = chained(OSError("wrapped"), error)
    assert failure_of(error).code == "job_failed"


# --- exception groups

SAMPLES: dict[FailureClass, Callable[[], Exception]] = {
    INFRA: lambda: ConnectionResetError("x"),
    APP: lambda: trio.TooSlowError("x"),
    INVALID: lambda: errors.InvalidOutputError("x", raw=""),
    BUDGET: lambda: answered(402),
    PERMANENT: lambda: errors.RejectedError("x"),
}
WORST_FIRST = [PERMANENT, BUDGET, INVALID, APP, INFRA]


def grouped(members: st.SearchStrategy[Exception]) -> st.SearchStrategy[Exception]:
    groups = st.lists(members, min_size=1, max_size=4)
    return groups.map(lambda inside: ExceptionGroup("g", inside))


trees = st.recursive(
    st.sampled_from(list(SAMPLES.values())).map(lambda make: make()), grouped, max_leaves=12
)


def members_of(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for member in error.exceptions:
            yield from members_of(member)
    else:
        yield error


@given(trees)
def test_the_worst_member_decides_however_deep_it_lies(error: Exception) -> None:
    found = {classify(member) for member in members_of(error)}
    assert classify(error) is next(each for each in WORST_FIRST if each in found)


@given(st.permutations(list(SAMPLES)))
def test_order_of_group_members_does_not_matter(order: list[FailureClass]) -> None:
    group = ExceptionGroup("g", [SAMPLES[each]() for each in order])
    assert classify(group) is PERMANENT


def test_most_important_of_equal_group_members_is_chosen() -> None:
    group = ExceptionGroup("g", [answered(404), answered(401)])
    assert failure_of(group).is_escalated
    pauses = ExceptionGroup("g", [answered(429, retry_after="3"), answered(429, retry_after="9")])
    assert failure_of(pauses).retry_after_s == 9
    equals = ExceptionGroup("g", [ValueError("first"), ValueError("second")])
    assert failure_of(equals).message == "ValueError: first"


def test_groups_of_any_size_and_depth_are_judged() -> None:
    wide = ExceptionGroup("g", [ValueError("x")] * (10 * MEMBERS_MAX))
    assert classify(wide) is INFRA
    deep: Exception = errors.RejectedError("at the bottom")
    for _ in range(5_000):
        deep = ExceptionGroup("g", [deep])
    assert classify(deep) is PERMANENT
