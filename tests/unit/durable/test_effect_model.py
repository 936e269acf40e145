"""Any sequence of crashes, failures, answers and decisions: a model of the ledger and of the world.

The ledger here says what `cortex.intend` says, in ten lines; that Postgres does is shown elsewhere.
Whatever happens, a call whose outcome is open is not made again unless the other side honours its
key; and when nothing goes wrong any more, it was made once.
"""

from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex.domain.canonical import canonical, digest
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Applied, EffectStatus, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import RejectedError, TransientError
from cortex.domain.job import EffectIntent, EffectReport, IntentReply, Lease
from cortex.durable.effects import Done, EffectCall, NotDone, perform
from tests.support.records.rows import new_id

ARGUMENTS = canonical({"amount": 1})
ATTEMPTS_MAX = 60
EXAMPLES = 400
"""The rarest of the known mistakes needs a row of four certain faults."""


class Killed(BaseException):
    """The pod is gone."""


class Fault(StrEnum):
    """Faults at places where a pod waits for another party; places take them in order."""

    NONE = "none"
    DIES_BEFORE = "dies before it reaches the other"
    DIES_AFTER = "dies before it hears of it"
    FAILS_BEFORE = "fails before anything happened, without saying so"
    FAILS_AFTER = "fails after it happened"
    REFUSED = "is refused for certain"
    VAGUE = "is not told"


FAULTS = st.lists(st.sampled_from(Fault), max_size=12)
WORDS = st.lists(st.booleans(), max_size=4)


@attrs.define
class World:
    """The other side, the ledger's one row, and the faults that are still to come."""

    faults: list[Fault]
    honours_key: bool
    gives_up: list[bool]
    """For each question to a person, whether they give up instead of answering truthfully."""
    applied: int = 0
    is_open: bool = False
    """A call was begun whose outcome neither the ledger nor a person knows."""
    row: IntentReply | None = None
    status: EffectStatus = EffectStatus.PENDING
    is_sure: bool = False
    new_id = staticmethod(new_id)

    def fault(self) -> Fault:
        return self.faults.pop(0) if self.faults else Fault.NONE

    # --- the other side

    async def call(self, invocation: Invocation) -> int:
        await trio.lowlevel.checkpoint()
        assert self.row is not None
        assert invocation.id == self.row.id, "the same id at every repetition"
        assert self.honours_key or not self.is_open, "called again while its outcome was open"
        fault = self.fault()
        self.is_open = True
        if fault is Fault.REFUSED:
            raise RejectedError("no")
        if fault is Fault.DIES_BEFORE:
            raise Killed
        if fault is not Fault.FAILS_BEFORE:
            self.applied = 1 if self.honours_key else self.applied + 1
        if fault is Fault.DIES_AFTER:
            raise Killed
        if fault in (Fault.FAILS_BEFORE, Fault.FAILS_AFTER):
            raise ConnectionResetError("cut")
        return 7

    async def reconcile(self, _: Invocation) -> Verdict:
        await trio.lowlevel.checkpoint()
        match self.fault():
            case Fault.DIES_BEFORE | Fault.DIES_AFTER:
                raise Killed
            case Fault.FAILS_BEFORE | Fault.FAILS_AFTER | Fault.REFUSED:
                raise TransientError("not now")
            case Fault.VAGUE:
                return Unknown("?")
            case Fault.NONE:
                pass
        self.is_open = bool(self.applied)
        return Applied(7) if self.applied else NotApplied()

    # --- the ledger

    async def intend(self, intent: EffectIntent) -> IntentReply:
        fault = self.fault()
        if fault is Fault.DIES_BEFORE:
            raise Killed
        answer = self.leave(intent)
        if fault is Fault.DIES_AFTER:
            raise Killed
        return answer

    def leave(self, intent: EffectIntent) -> IntentReply:
        if self.row is None:
            self.row = _intended(intent.id)
            return self.row
        if self.status is EffectStatus.COMPLETED:
            return attrs.evolve(self.row, verdict="done", result="7")
        if self.status is EffectStatus.ABANDONED:
            return attrs.evolve(self.row, verdict="abandoned")
        if intent.is_sure or self.is_sure or self.status is EffectStatus.FAILED:
            self.status, self.is_sure = EffectStatus.PENDING, False
            return self.row
        return attrs.evolve(self.row, verdict="recheck")

    async def record(self, operation: EffectReport) -> None:
        raise AssertionError(f"{operation} is recorded by who called `perform`")

    def settle(self, status: EffectStatus) -> bool:
        """Write the outcome; return whether its pod lives to see it."""
        fault = self.fault()
        if fault is Fault.DIES_BEFORE:
            return False
        self.status, self.is_open = status, False
        return fault is not Fault.DIES_AFTER

    def ends(self) -> None:
        """Fail the job: an open call stays unknown."""
        if self.status is not EffectStatus.ABANDONED:
            assert self.honours_key, "what cannot be repeated ends as it is, or with a person"
            assert self.is_open
            self.status = EffectStatus.UNKNOWN

    # --- people

    def ask(self, wish: Suspended) -> None:
        """A person looks at the other side, or gives up."""
        assert wish.unknown
        assert not self.honours_key, "nobody is asked of what may be called again"
        if self.fault() is Fault.DIES_BEFORE:
            return  # no person was asked
        self.status = EffectStatus.UNKNOWN
        if self.gives_up and self.gives_up.pop(0):
            self.status = EffectStatus.ABANDONED
        elif self.applied:
            self.status = EffectStatus.COMPLETED
        else:
            self.status, self.is_sure, self.is_open = EffectStatus.PENDING, True, False


def _intended(effect_id: UUID) -> IntentReply:
    nothing: dict[str, Any] = dict.fromkeys(("result", "why", "quota", "used", "limit", "amount"))
    return IntentReply(id=effect_id, verdict="go", attempt=1, wait_s=None, **nothing)


async def attempt(world: World, call: EffectCall, number: int) -> bool:
    """One attempt of the job; whether the job has ended with it."""
    lease = Lease(UUID(int=1), number)
    try:
        ended = await perform(call, lease=lease, ledger=world, new_id=world.new_id)
    except Killed:
        return False
    except Suspended as wish:
        world.ask(wish)
        return False
    except RejectedError:
        world.ends()
        return True
    except (TransientError, ConnectionResetError):
        return False
    match ended:
        case Done(result=result):
            assert (result, world.applied) == (7, 1)
            return world.settle(EffectStatus.COMPLETED)
        case NotDone():
            assert world.applied == 0, "what was applied is never said to be not"
            return world.settle(EffectStatus.FAILED) and world.fault() is Fault.REFUSED


async def run(world: World, *, can_ask: bool, idempotent: bool) -> None:
    call = EffectCall(
        key="pay",
        tool="pay",
        arguments=ARGUMENTS,
        digest=digest(ARGUMENTS),
        invoke=world.call,
        reconcile=world.reconcile if can_ask else None,
        is_idempotent=idempotent,
    )
    for number in range(1, ATTEMPTS_MAX):
        if await attempt(world, call, number):
            break
    else:
        raise AssertionError("the job never ends")
    assert world.applied <= 1
    match world.status:
        case EffectStatus.COMPLETED:
            assert world.applied == 1, "never lost"
        case EffectStatus.FAILED:
            assert world.applied == 0, "never silently done"
        case status:
            assert status is not EffectStatus.PENDING, "it is without an end"


@settings(max_examples=EXAMPLES)
@given(FAULTS, WORDS, st.booleans())
def test_unrepeatable_call_is_never_repeated_while_open(
    faults: list[Fault], gives_up: list[bool], can_ask: bool
) -> None:
    world = World(faults, honours_key=False, gives_up=gives_up)
    trio.run(partial(run, world, can_ask=can_ask, idempotent=False))


@settings(max_examples=EXAMPLES)
@given(FAULTS, st.booleans())
def test_idempotent_call_is_applied_once_without_asking_people(
    faults: list[Fault], can_ask: bool
) -> None:
    world = World(faults, honours_key=True, gives_up=[])
    trio.run(partial(run, world, can_ask=can_ask, idempotent=True))
