"""One call that happens once: the outcome for each answer of the ledger and the other side."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from cortex.domain.canonical import canonical, digest
from cortex.domain.classification import classify
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import DivergedError, InvalidOutputError, RejectedError, TransientError
from cortex.domain.failure import FailureClass
from cortex.domain.job import EffectIntent, IntentReply
from cortex.durable.effects import Done, EffectCall, NotDone, perform
from tests.support.records.factories import LedgerDesk, a_lease
from tests.support.records.rows import new_id

ARGUMENTS = canonical({"amount": 12.5, "to": "ana"})
UNSURE = ConnectionResetError("cut")
LATER = ConnectionRefusedError(111, "nobody listens")


@attrs.define
class OtherSide:
    """The called service; it raises or returns what the test sets, and records its input."""

    ends: list[Any] = attrs.field(factory=lambda: ["paid"])
    says: list[Any] = attrs.field(factory=list)
    called: list[Invocation] = attrs.field(factory=list)
    asked: list[Invocation] = attrs.field(factory=list)

    async def call(self, invocation: Invocation) -> Any:
        self.called.append(invocation)
        return _outcome(self.ends)

    async def reconcile(self, invocation: Invocation) -> Verdict:
        self.asked.append(invocation)
        verdict: Verdict = _outcome(self.says)
        return verdict


def _outcome(of: list[Any]) -> Any:
    outcome = of.pop(0)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def a_call(side: OtherSide, **fields: Any) -> EffectCall:
    defaults: dict[str, Any] = {
        "key": "pay",
        "tool": "pay",
        "arguments": ARGUMENTS,
        "digest": digest(ARGUMENTS),
        "invoke": side.call,
        "reconcile": None,
        "is_idempotent": False,
    }
    return EffectCall(**defaults | fields)


async def performed(side: OtherSide, *verdicts: str, **fields: Any) -> Done | NotDone:
    """The outcome of a call for these ledger answers; `can_ask` lets it be reconciled."""
    if fields.pop("can_ask", False):
        fields["reconcile"] = side.reconcile
    gateway = fields.pop("gateway", None) or LedgerDesk(verdicts=list(verdicts))
    call = a_call(side, **fields)
    return await perform(call, lease=a_lease(3), ledger=gateway, new_id=new_id)


# --- leave


async def test_call_receives_the_arguments_in_the_ledger() -> None:
    side, gateway = OtherSide(), LedgerDesk()
    ended = await performed(side, gateway=gateway)
    (intent,), (invocation,) = gateway.intents, side.called
    assert ended == Done(intent.id, "paid")
    assert (intent.arguments, intent.is_sure) == (ARGUMENTS, False)
    assert (invocation.id, invocation.attempt, invocation.tool) == (intent.id, 3, "pay")
    assert invocation.job_id == intent.lease.job_id
    assert invocation.arguments == {"amount": 12.5, "to": "ana"}


async def test_completed_effect_is_not_called() -> None:
    side = OtherSide()
    ended = await performed(side, "done")
    assert isinstance(ended, Done)
    assert (ended.result, side.called) == ("recorded", [])


@pytest.mark.parametrize(
    "verdict, output",
    [
        ("never", "pay: 2 is more than quota q ever allows, 1"),
        ("no_amount", "pay: quota q finds no amount in its arguments"),
    ],
)
async def test_effect_that_no_quota_allows_is_not_done(verdict: str, output: str) -> None:
    side = OtherSide()
    ended = await performed(side, verdict)
    assert isinstance(ended, NotDone)
    assert (ended.id, str(ended.error), side.called) == (None, output, [])


@pytest.mark.parametrize(
    "verdict, waiting_on, delay_s", [("frozen", "effects:all", 0.0), ("quota", "quota:q", 60.0)]
)
@pytest.mark.parametrize("idempotent", [True, False])
async def test_frozen_or_limited_effect_suspends_without_a_call(
    verdict: str, waiting_on: str, delay_s: float, *, idempotent: bool
) -> None:
    side = OtherSide()
    with pytest.raises(Suspended) as caught:
        await performed(side, verdict, is_idempotent=idempotent)
    assert (caught.value.waiting_on, caught.value.delay_s) == (waiting_on, delay_s)
    assert not side.called


@pytest.mark.parametrize(
    "verdict, error",
    [
        ("abandoned", RejectedError),
        ("diverged", DivergedError),
        ("unapproved", RejectedError),
        ("a new word", AssertionError),
    ],
)
async def test_final_verdict_raises_without_a_call(verdict: str, error: type[Exception]) -> None:
    side = OtherSide()
    with pytest.raises(error):
        await performed(side, verdict)
    assert not side.called


async def test_effect_is_not_called_after_a_lost_lease() -> None:
    class LostDesk(LedgerDesk):
        async def intend(self, intent: EffectIntent) -> IntentReply:
            raise LeaseLost(str(intent.lease.job_id))

    side = OtherSide()
    with pytest.raises(LeaseLost):
        await performed(side, gateway=LostDesk())
    assert not side.called


# --- taken up again


class OldNames(LedgerDesk):
    """Knows the call as it was begun, before a parameter was renamed."""

    async def intend(self, intent: EffectIntent) -> IntentReply:
        answer = await super().intend(intent)
        recorded = canonical({"amount": 12.5, "payee": "ana"})
        if intent.digest == digest(recorded):
            return attrs.evolve(answer, verdict="recheck")
        return attrs.evolve(answer, verdict="diverged", result=recorded, why="pay")


async def test_an_open_call_is_the_same_under_a_renamed_parameter() -> None:
    side, gateway = OtherSide(says=[Applied("earlier")]), OldNames()
    ended = await performed(side, gateway=gateway, is_named=False, can_ask=True)
    assert ended == Done(gateway.intents[0].id, "earlier")
    assert not side.called
    assert side.asked[0].arguments == {"amount": 12.5, "to": "ana"}, "by the names of the code"


@pytest.mark.parametrize(
    "to, is_named", [("bo", False), ("ana", True)], ids=["another value", "a tool's argument"]
)
async def test_an_open_call_with_other_arguments_diverges(to: str, *, is_named: bool) -> None:
    text = canonical({"amount": 12.5, "to": to})
    fields = {"arguments": text, "digest": digest(text), "is_named": is_named}
    side = OtherSide()
    with pytest.raises(DivergedError):
        await performed(side, gateway=OldNames(), **fields)
    assert not side.called


@pytest.mark.parametrize("idempotent", [True, False])
async def test_reconciled_as_applied_is_recorded_without_a_call(*, idempotent: bool) -> None:
    side = OtherSide(says=[Applied("earlier")])
    gateway = LedgerDesk(verdicts=["recheck"])
    ended = await performed(side, gateway=gateway, can_ask=True, is_idempotent=idempotent)
    assert ended == Done(gateway.intents[0].id, "earlier")
    assert not side.called
    assert [intent.is_sure for intent in gateway.intents] == [False]


async def test_reconciled_as_not_applied_is_called_under_the_same_id() -> None:
    side = OtherSide(says=[NotApplied()])
    gateway = LedgerDesk(verdicts=["recheck"])
    ended = await performed(side, gateway=gateway, can_ask=True)
    assert ended == Done(gateway.intents[0].id, "paid")
    assert side.asked == side.called
    assert [intent.is_sure for intent in gateway.intents] == [False, True]


async def test_reconciled_as_not_applied_still_respects_a_freeze() -> None:
    side = OtherSide(says=[NotApplied()])
    with pytest.raises(Suspended, match="frozen"):
        await performed(side, "recheck", "frozen", can_ask=True)
    assert not side.called


@pytest.mark.parametrize("can_ask", [True, False])
async def test_unknown_outcome_suspends_for_a_person(*, can_ask: bool) -> None:
    side = OtherSide(says=[Unknown("two look like it")])
    gateway = LedgerDesk(verdicts=["recheck"])
    with pytest.raises(Suspended) as caught:
        await performed(side, gateway=gateway, can_ask=can_ask)
    (unknown,) = caught.value.unknown
    assert (unknown.id, caught.value.delay_s) == (gateway.intents[0].id, None)
    assert caught.value.waiting_on == f"effect:{unknown.id}"
    assert unknown.why in (
        "two look like it",
        "there is no way to find out whether it was applied",
    )
    assert not side.called


async def test_idempotent_effect_is_repeated_without_reconcile() -> None:
    side, gateway = OtherSide(), LedgerDesk(verdicts=["recheck"])
    assert isinstance(await performed(side, gateway=gateway, is_idempotent=True), Done)
    assert [intent.is_sure for intent in gateway.intents] == [False, True]


async def test_certain_failure_of_a_repeated_call_proves_nothing_about_the_first() -> None:
    """That the password does not fit any more is no proof that it did not then."""
    side, gateway = OtherSide(ends=[RejectedError("no")]), LedgerDesk(verdicts=["recheck"])
    with pytest.raises(RejectedError):
        await performed(side, gateway=gateway, is_idempotent=True)
    assert gateway.reports == []


async def test_idempotent_effect_is_called_again_when_reconcile_is_unsure() -> None:
    side = OtherSide(says=[Unknown("?")])
    ended = await performed(side, "recheck", can_ask=True, is_idempotent=True)
    assert isinstance(ended, Done)
    assert len(side.called) == 1


async def test_a_question_that_fails_is_asked_later() -> None:
    side = OtherSide(says=[LATER])
    with pytest.raises(ConnectionRefusedError):
        await performed(side, "recheck", can_ask=True)
    assert not side.called


async def test_a_decision_is_not_lost_between_two_questions() -> None:
    """A person may say that it was applied while the other side is asked."""
    side = OtherSide(says=[NotApplied()])
    ended = await performed(side, "recheck", "done", can_ask=True)
    assert isinstance(ended, Done)
    assert (ended.result, side.called) == ("recorded", [])


# --- the call fails


@pytest.mark.parametrize("can_ask", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_certain_failure_is_not_done_without_reconcile(
    *, can_ask: bool, idempotent: bool
) -> None:
    error = RejectedError("no such account")
    side, gateway = OtherSide(ends=[error]), LedgerDesk()
    ended = await performed(side, gateway=gateway, can_ask=can_ask, is_idempotent=idempotent)
    assert ended == NotDone(gateway.intents[0].id, error)
    assert not side.asked


async def test_a_group_is_certain_only_when_each_of_it_is() -> None:
    """The worst of it decides its class, and says nothing of the others."""
    error = ExceptionGroup("both", [RejectedError("no"), ConnectionResetError("cut")])
    assert classify(error) is FailureClass.PERMANENT
    with pytest.raises(Suspended) as caught:
        await performed(OtherSide(ends=[error]))
    assert caught.value.unknown
    both = ExceptionGroup("both", [RejectedError("no"), LATER])
    assert isinstance(await performed(OtherSide(ends=[both])), NotDone)


@pytest.mark.parametrize(
    "said, expected",
    [(Applied("after all"), Done), (NotApplied(), NotDone)],
)
async def test_an_open_failure_is_asked_for_at_once(said: Verdict, expected: type) -> None:
    side, gateway = OtherSide(ends=[UNSURE], says=[said]), LedgerDesk()
    ended = await performed(side, gateway=gateway, can_ask=True)
    assert isinstance(ended, expected)
    assert ended.id == gateway.intents[0].id
    assert not isinstance(ended, NotDone) or (ended.error, ended.is_applied) == (UNSURE, False)


@pytest.mark.parametrize("can_ask", [True, False])
async def test_uncertain_failure_without_an_answer_suspends_for_a_person(*, can_ask: bool) -> None:
    side = OtherSide(ends=[UNSURE], says=[Unknown("?")])
    with pytest.raises(Suspended) as caught:
        await performed(side, can_ask=can_ask)
    assert "ConnectionResetError: cut; " in caught.value.unknown[0].why
    assert caught.value.__cause__ is UNSURE


@pytest.mark.parametrize("can_ask", [True, False])
async def test_an_open_failure_of_an_idempotent_one_is_tried_again_later(*, can_ask: bool) -> None:
    side = OtherSide(ends=[UNSURE], says=[Unknown("?")])
    with pytest.raises(ConnectionResetError):
        await performed(side, can_ask=can_ask, is_idempotent=True)


async def test_an_open_failure_that_cannot_be_asked_for_is_asked_later() -> None:
    side = OtherSide(ends=[UNSURE], says=[LATER])
    with pytest.raises(ConnectionRefusedError):
        await performed(side, can_ask=True)


async def test_an_answer_of_the_wrong_type_was_applied() -> None:
    error = InvalidOutputError("no number", raw="x")
    ended = await performed(OtherSide(ends=[error]))
    assert isinstance(ended, NotDone)
    assert ended.is_applied


async def test_failure_of_a_call_that_changes_nothing_is_not_applied() -> None:
    error = TransientError("not now")
    side = OtherSide(ends=[error])
    ended = await performed(side, is_idempotent=True, changes_nothing=True)
    assert isinstance(ended, NotDone)
    assert (ended.error, ended.is_applied) == (error, False)


@pytest.mark.parametrize("error", [LeaseLost("gone"), KeyboardInterrupt(), SystemExit(3)])
async def test_control_flow_passes_through_an_effect(error: BaseException) -> None:
    side = OtherSide(ends=[error])
    with pytest.raises(type(error)):
        await performed(side, can_ask=True)
    assert not side.asked


# --- cancelled


class Slow(LedgerDesk):
    """Never answers."""

    async def intend(self, intent: EffectIntent) -> IntentReply:
        self.intents.append(intent)
        await trio.sleep_forever()
        raise AssertionError


async def for_ever(_: Invocation) -> Any:
    await trio.sleep_forever()


async def test_cancellation_while_intending_prevents_the_call() -> None:
    side = OtherSide()
    await cancelled(lambda: performed(side, gateway=Slow()))
    assert not side.called


async def test_cancellation_during_the_call_reports_no_outcome() -> None:
    """The intent is in the ledger without an outcome: the next attempt asks."""
    gateway = LedgerDesk()
    side = OtherSide()
    await cancelled(lambda: performed(side, gateway=gateway, can_ask=True, invoke=for_ever))
    assert (gateway.reports, side.asked) == ([], [])


async def test_cancellation_during_reconcile_prevents_the_call() -> None:
    side = OtherSide()
    await cancelled(lambda: performed(side, "recheck", reconcile=for_ever))
    assert not side.called


async def test_cancelled_in_the_question_after_a_failure() -> None:
    side, gateway = OtherSide(ends=[UNSURE]), LedgerDesk()
    await cancelled(lambda: performed(side, gateway=gateway, reconcile=for_ever))
    assert gateway.reports == []


async def cancelled(work: Callable[[], Awaitable[object]]) -> None:
    """Run it until it waits, then cancel it; it must have been cancelled, not ended."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
