"""Effects of a job's own code, and the steps that record them."""

from typing import Any

import pytest
import trio

from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.effect import Applied, Invocation, NotApplied, Verdict
from cortex.domain.errors import (
    InvalidOutputError,
    InvalidValueError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from cortex.domain.job import EffectReport, StepDone
from cortex.domain.limits import CHECKPOINT
from cortex.durable.context import Context
from tests.support.records.factories import FactList, LedgerDesk, Record, a_claim, a_context


class Kept(Record):
    """A record that keeps the operations, too."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[StepDone] = []

    async def record(self, operation: StepDone) -> None:
        await super().record(operation)
        self.operations.append(operation)


class Calls:
    """A function with an outside result."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)
        self.invocations: list[Invocation] = []

    async def pay(self, invocation: Invocation, amount: int) -> Any:
        assert invocation.arguments == {"amount": amount}
        self.invocations.append(invocation)
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end


async def applied(_: Invocation) -> Verdict:
    return Applied("earlier")


async def not_applied(_: Invocation) -> Verdict:
    return NotApplied()


def attempt(record: Record, gateway: LedgerDesk, **lent: Any) -> Context:
    return a_context(record, a_claim(), gateway=gateway, **lent)


async def test_an_effect_is_made_once_in_the_life_of_the_job() -> None:
    record, gateway, calls = Kept(), LedgerDesk(), Calls("paid")
    first = attempt(record, gateway)
    assert await first.effect("pay", calls.pay, 5) == "paid"
    assert await attempt(record, gateway).effect("pay", calls.pay, 5) == "paid"
    (intent,), (operation,), (invocation,) = gateway.intents, record.operations, calls.invocations
    assert operation.effect is not None
    assert intent.id == invocation.id == operation.effect.id
    assert (intent.key, intent.tool) == ("pay", "Calls.pay")
    assert (operation.kind, operation.effect.why_not) == ("effect", None)
    assert (invocation.job_id, invocation.attempt) == (first.job_id, first.attempt)
    assert gateway.reports == []


@pytest.mark.parametrize("timeout, limit_s", [(None, 600.0), (5, 5.0)])
async def test_each_call_asks_first_whether_the_job_is_still_this_pods(
    autojump_clock: object, timeout: float | None, limit_s: float
) -> None:
    """Also before it is intended, and at each repetition of one that the other side does once."""
    calls, gateway = Calls(ConnectionResetError("cut"), "paid"), LedgerDesk()
    paid = attempt(Record(), gateway).effect("pay", calls.pay, 5, idempotent=True, timeout=timeout)
    assert await paid == "paid"
    assert gateway.waits == [limit_s] * 3


async def test_a_call_waits_for_that_and_ends_with_its_job() -> None:
    class UnsureDesk(LedgerDesk):
        async def until_it_may_begin(self, call_s: float) -> None:  # noqa: ARG002
            await trio.sleep_forever()

    calls, gateway = Calls("paid"), UnsureDesk()
    with trio.move_on_after(0.05) as job:
        await attempt(Record(), gateway).effect("pay", calls.pay, 5)
    assert job.cancelled_caught
    assert calls.invocations == []
    assert gateway.intents == [], (
        "taken over now, a person would be asked about what was never called"
    )


async def test_a_function_without_an_invocation_is_called_as_it_is() -> None:
    async def plain(amount: int) -> int:
        return amount

    assert await attempt(Record(), LedgerDesk()).effect("pay", plain, amount=5) == 5


async def test_certain_failure_is_reported_before_it_is_raised() -> None:
    record, gateway = Kept(), LedgerDesk()
    with pytest.raises(RejectedError, match="no such account"):
        await attempt(record, gateway).effect("pay", Calls(RejectedError("no such account")).pay, 5)
    (text,) = gateway.reports
    assert (text.id, text.is_applied) == (gateway.intents[0].id, False)
    assert text.why == "RejectedError: no such account"
    assert record.operations == []


async def test_effect_that_returned_is_applied_even_if_unstorable() -> None:
    too_long = "x" * CHECKPOINT.bytes_max
    for result in (object(), float("nan"), too_long):
        gateway = LedgerDesk()
        with pytest.raises(InvalidValueError, match="output of step 'pay'"):
            await attempt(Record(), gateway).effect("pay", Calls(result).pay, 5)
        (text,) = gateway.reports
        assert text.is_applied


async def test_wrongly_typed_result_keeps_its_text() -> None:
    gateway = LedgerDesk()
    error = InvalidOutputError("no number", raw="sev\0en")
    with pytest.raises(InvalidOutputError):
        await attempt(Record(), gateway).effect("pay", Calls(error).pay, 5)
    (text,) = gateway.reports
    assert (text.is_applied, text.result) == (True, '"sev\ufffden"')


async def test_lease_lost_while_reporting_ends_the_attempt() -> None:
    class LostDesk(LedgerDesk):
        async def record(self, operation: EffectReport) -> None:
            raise LeaseLost(str(operation.id))

    with pytest.raises(LeaseLost):
        await attempt(Record(), LostDesk()).effect("pay", Calls(RejectedError("no")).pay, 5)


async def test_a_call_that_takes_too_long_may_have_been_applied(autojump_clock: object) -> None:
    async def slow(invocation: Invocation) -> str:
        await trio.sleep_forever()
        raise AssertionError

    ctx = attempt(Record(), LedgerDesk())
    with pytest.raises(Suspended) as caught:
        await ctx.effect("pay", slow, timeout=2)
    assert "took longer than 2 seconds" in caught.value.unknown[0].why
    assert await attempt(Record(), LedgerDesk()).effect(
        "pay", slow, timeout=2, reconcile=applied
    ) == ("earlier")
    gateway = LedgerDesk()
    with pytest.raises(TimedOutError):
        await attempt(Record(), gateway).effect("pay", slow, timeout=2, reconcile=not_applied)
    assert [text.is_applied for text in gateway.reports] == [False]


async def test_an_open_effect_is_called_again_when_it_was_not_applied() -> None:
    gateway, calls = LedgerDesk(verdicts=["recheck"]), Calls("paid")
    ctx = attempt(Record(), gateway)
    assert await ctx.effect("pay", calls.pay, 5, reconcile=not_applied) == "paid"
    assert [invocation.id for invocation in calls.invocations] == [gateway.intents[0].id]


async def test_a_reconcile_that_cannot_be_called_is_refused_before_anything() -> None:
    async def find(invocation: Invocation, number: int) -> Applied | NotApplied:
        raise AssertionError

    gateway, calls = LedgerDesk(), Calls("paid")
    with pytest.raises(UsageError, match=r"'pay' cannot be called: missing .* 'number'"):
        await attempt(Record(), gateway).effect("pay", calls.pay, 5, reconcile=find)
    assert (gateway.intents, calls.invocations) == ([], [])


async def test_arguments_that_no_record_can_hold_are_refused_before_anything() -> None:
    gateway, calls = LedgerDesk(), Calls("paid")
    with pytest.raises(InvalidValueError):
        await attempt(Record(), gateway).effect("pay", calls.pay, object())
    assert gateway.intents == []
    assert calls.invocations == []


# --- idempotent: called again inside the step


async def test_an_idempotent_call_is_repeated_under_one_id(autojump_clock: object) -> None:
    calls, facts = Calls(ConnectionResetError("cut"), UnavailableError("busy"), "paid"), FactList()
    gateway = LedgerDesk()
    ctx = attempt(Record(), gateway, facts=facts)
    assert await ctx.effect("pay", calls.pay, 5, idempotent=True) == "paid"
    assert [invocation.id for invocation in calls.invocations] == [gateway.intents[0].id] * 3
    assert (len(facts.failures), facts.resolved_count) == (2, 2)


async def test_a_certain_failure_after_an_open_one_is_open(autojump_clock: object) -> None:
    """That it is refused now is no proof that it was not applied before."""
    refusals = [RejectedError("the password has changed") for _ in range(9)]
    calls, gateway = Calls(ConnectionResetError("cut"), *refusals), LedgerDesk()
    with pytest.raises(UnavailableError, match="the call before may have been applied"):
        await attempt(Record(), gateway).effect("pay", calls.pay, 5, idempotent=True)
    assert gateway.reports == []


async def test_a_certain_failure_from_the_first_on_is_certain(autojump_clock: object) -> None:
    calls = Calls(ConnectionRefusedError(111, "closed"), RejectedError("no"))
    gateway = LedgerDesk()
    with pytest.raises(RejectedError):
        await attempt(Record(), gateway).effect("pay", calls.pay, 5, idempotent=True)
    assert [text.is_applied for text in gateway.reports] == [False]


# --- an outage around the call


async def test_limits_are_read_before_an_effect_is_intended() -> None:
    """Else an outage would make an open outcome of a certain one."""

    class NoPolicies:
        async def limits(self, _: object) -> Any:
            raise UnavailableError("no database")

    gateway, calls = LedgerDesk(), Calls("paid")
    with pytest.raises(UnavailableError):
        await attempt(Record(), gateway, policies=NoPolicies()).effect("pay", calls.pay, 5)
    assert gateway.intents == []
