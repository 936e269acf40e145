"""Asking for the outcome of a call: transient errors are retried, other errors prove nothing."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cortex.agent.tools import abandon
from cortex.agent.tools.reconcile import asked
from cortex.agent.tools.tool import AnyTool, tool
from cortex.domain.control_flow import LeaseLost
from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import (
    InvalidOutputError,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
)
from cortex.durable.effects import LIMIT_S

INVOCATION = Invocation(
    id=UUID(int=1), job_id=UUID(int=2), attempt=3, tool="pay", arguments={"amount": 1}
)


@attrs.frozen
class Receipt:
    number: int


def made(reconcile: Callable[[Invocation], Awaitable[Any]] | None, timeout: float = 60) -> AnyTool:
    words: dict[str, Any] = {} if reconcile is None else {"reconcile": reconcile}

    @tool(name="pay", effect=True, timeout=timeout, **words)
    async def pay(amount: int) -> Receipt:
        """Pay."""
        return Receipt(number=amount)

    return pay


def saying(verdict: object) -> AnyTool:
    async def reconcile(invocation: Invocation) -> object:
        assert invocation == INVOCATION
        return verdict

    return made(reconcile)


def failing(error: BaseException) -> AnyTool:
    async def reconcile(_: Invocation) -> Verdict:
        raise error

    return made(reconcile)


@pytest.mark.parametrize(
    "said, expected",
    [
        (NotApplied(), NotApplied()),
        (Unknown("gone"), Unknown("gone")),
        (Applied(), Applied()),
        (Applied(Receipt(number=7)), Applied({"number": 7})),
        (Applied({"number": 7}), Applied({"number": 7})),
    ],
)
async def test_a_verdict_is_passed_on(said: Verdict, expected: Verdict) -> None:
    assert await asked(saying(said), INVOCATION) == expected


@pytest.mark.parametrize(
    "said, output",
    [
        (None, "reconcile returned NoneType, not Applied, NotApplied or Unknown"),
        (True, "reconcile returned bool, not Applied, NotApplied or Unknown"),
        (Applied, "reconcile returned type, not Applied, NotApplied or Unknown"),
        (
            Applied({"number": "7"}),
            "reconcile says applied, but tool 'pay': number in the result must be a whole number",
        ),
        (Applied(b"x"), "reconcile says applied, but tool 'pay': the result is bytes"),
    ],
)
async def test_invalid_verdict_counts_as_unknown(said: object, output: str) -> None:
    verdict = await asked(saying(said), INVOCATION)
    assert isinstance(verdict, Unknown)
    assert verdict.why.startswith(output)


@pytest.mark.parametrize(
    "error, output",
    [
        (ValueError("x"), "reconcile failed: ValueError: x"),
        (RejectedError("never heard of it"), "reconcile failed: never heard of it"),
        (ExceptionGroup("g", [ValueError("x")]), "reconcile failed: ValueError: x"),
        (InvalidOutputError("no number", raw="x"), "reconcile failed: no number"),
    ],
)
async def test_failing_reconcile_counts_as_unknown(error: Exception, output: str) -> None:
    verdict = await asked(failing(error), INVOCATION)
    assert isinstance(verdict, Unknown)
    assert verdict.why.startswith(output)


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("it is closed"),
        TransientError("not now"),
        ConnectionRefusedError(111, "nobody listens"),
        ExceptionGroup("g", [ConnectionResetError("cut")]),
    ],
)
async def test_transient_error_of_reconcile_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await asked(failing(error), INVOCATION)
    assert caught.value is error


async def test_control_flow_passes_through_reconcile() -> None:
    with pytest.raises(LeaseLost):
        await asked(failing(LeaseLost()), INVOCATION)


async def test_missing_reconcile_counts_as_unknown() -> None:
    assert await asked(made(None), INVOCATION) == Unknown("the tool has no reconcile")


@pytest.mark.parametrize("timeout, limit_s", [(5, 5), (600, LIMIT_S)])
async def test_the_question_has_a_limit(
    timeout: float, limit_s: float, autojump_clock: trio.abc.Clock
) -> None:
    async def hang(_: Invocation) -> Verdict:
        await trio.sleep_forever()
        return NotApplied()

    began = trio.current_time()
    with pytest.raises(TimedOutError, match=f"reconcile of pay took longer than {limit_s:g} s"):
        await asked(made(hang, timeout), INVOCATION)
    assert trio.current_time() - began == pytest.approx(limit_s)


async def test_a_question_that_ignores_its_cancellation_is_left_behind(
    autojump_clock: trio.abc.Clock,
) -> None:
    released = trio.Event()

    async def ignore(_: Invocation) -> Verdict:
        with trio.CancelScope(shield=True):
            await released.wait()
        return NotApplied()

    began = trio.current_time()
    with pytest.raises(TimedOutError):
        await asked(made(ignore, 1), INVOCATION)
    assert trio.current_time() - began == pytest.approx(1 + abandon.PATIENCE_S)
    released.set()
    await wait_all_tasks_blocked()


async def test_reconcile_can_be_cancelled() -> None:
    begun = trio.Event()

    async def hang(_: Invocation) -> Verdict:
        begun.set()
        await trio.sleep_forever()
        return NotApplied()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked, made(hang), INVOCATION)
        await begun.wait()
        nursery.cancel_scope.cancel()
