"""The first of several waits: which one ended, on record before the handler sees it.

What is true already wins at once, in the order of the arguments; what an earlier attempt has
recorded before it was killed wins first of all. Otherwise the job waits for all of them together.
Steps run meanwhile, and so the job stays in its pod while one does; its waits are looked at again
when the pod notices that something has come for one, and every few seconds, since it may miss that.

The losers are withdrawn by the statement that records the winner: a request to people is cancelled,
a signal that was taken is the first of its queue again, a child that is not detached is cancelled
soon. A timer is gone with its job's wait.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from cortex.domain.approvals.approval import APPROVAL
from cortex.domain.control_flow import Suspended, Unfit
from cortex.domain.errors import (
    ApprovalExpiredError,
    ChildFailedError,
    DeniedError,
    InvalidSignalError,
    TimedOutError,
    UsageError,
)
from cortex.domain.job import StepKind
from cortex.domain.waiting import CHILD, SIGNAL, SLEEP
from cortex.domain.waits import DecisionWait, Wait
from cortex.durable.attempt import Attempt
from cortex.durable.codec import StepInput, input_of
from cortex.durable.contenders import WaitKind
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.stray_errors import raise_all, unless_cancelled
from cortex.durable.timers import waits_outside

T = TypeVar("T")
LOOK_S: Final = 0.5
"""The first pause between two looks at the waits beside a step that runs; then ever longer ones."""
LOOK_MAX_S: Final = 5.0
WAITS_MAX: Final = 100
OUTCOMES: Final = (
    ApprovalExpiredError,
    ChildFailedError,
    DeniedError,
    InvalidSignalError,
    TimedOutError,
)
"""Errors that are the end of a wait, and the same on every replay."""


@attrs.frozen
class Winner(Generic[T]):
    """Which of several waits ended first."""

    index: int
    """Its place among the arguments, from 0."""
    name: str
    """The name of its step: `payment` of `ctx.receive("payment")`."""
    value: T
    """What it returned; None for a timer."""


@attrs.frozen
class _Entry:
    key: str
    kind: WaitKind
    look: Callable[[], Awaitable[Any]]
    ends: str
    """Key of the step that records its end."""
    withdraws: str
    """Key by which a loser is withdrawn."""


@attrs.define
class _Race:
    """The waits of one `first` in one attempt."""

    attempt: Attempt
    entries: Sequence[_Entry]
    wishes: dict[int, tuple[Suspended, float]] = attrs.field(factory=dict)
    """By place: why it waits, and since when by trio's clock."""
    winner: int | None = None
    value: Any = None
    error: Exception | None = None
    has_value: bool = False

    async def run(self) -> StepOutcome:
        """Return the outcome of the step; raises `Suspended` while there is none."""
        for entry in self.entries:
            # They are requested by now, as far as they are on record, whichever is looked at.
            self.attempt.journal.forget(entry.key)
            self.attempt.journal.forget(entry.ends)
        on_record = self._first_on_record()
        if on_record is not None:
            self.winner = on_record
        elif not await self._look():
            await self._run_steps()
        if self.winner is None:
            raise self._together()
        return StepOutcome(value={"index": self.winner, **self._losers(self.winner)})

    def _first_on_record(self) -> int | None:
        """Return the place of what ended first before an earlier attempt was killed."""
        journal = self.attempt.journal
        places = {
            seq: place
            for place, each in enumerate(self.entries)
            if each.kind is not WaitKind.SLEEP and (seq := journal.seq_of(each.ends)) is not None
        }
        return places[min(places)] if places else None

    async def _look(self) -> bool:
        """Look at each wait in turn; return whether one has ended."""
        for place, entry in enumerate(self.entries):
            if entry.kind is not WaitKind.STEP and await self._has_ended(place, entry):
                return True
        return False

    async def _has_ended(self, place: int, entry: _Entry) -> bool:
        try:
            value = await entry.look()
        except Unfit:
            raise
        except Suspended as wish:
            self.wishes[place] = wish, trio.current_time()
            return False
        except OUTCOMES as error:
            self._ends(place, None, error)
        else:
            self._ends(place, value, None)
        return True

    def _ends(self, place: int, value: Any, error: Exception | None) -> None:
        if self.winner is None:
            self.winner, self.value, self.error, self.has_value = place, value, error, True

    async def _run_steps(self) -> None:
        """Run the steps, and look at the waits while they run; return once one has ended."""
        steps = {place: each for place, each in enumerate(self.entries) if each.kind is _STEP}
        running = set(steps)
        raised: list[BaseException] = []

        async def guarded(call: Callable[[], Awaitable[None]]) -> None:
            try:
                await call()
            except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised below
                raised.append(unless_cancelled(error))
            if raised or not running or self.winner is not None:
                nursery.cancel_scope.cancel(reason="the first one has ended, or failed")

        async def run(place: int) -> None:
            try:
                self._ends(place, await steps[place].look(), None)
            except Suspended as wish:
                self.wishes[place] = wish, trio.current_time()
            finally:
                running.discard(place)

        try:
            async with trio.open_nursery() as nursery:
                for place in steps:
                    nursery.start_soon(guarded, partial(run, place))
                if steps and len(steps) < len(self.entries):
                    nursery.start_soon(guarded, self._look_again)
        except BaseExceptionGroup as group:
            raised += group.exceptions
        if self.winner is None and raised:
            raise_all(raised)

    async def _look_again(self) -> None:
        """Look at the waits when something comes, and ever more rarely, until one has ended."""
        pause_s, has_ended, has_come = LOOK_S, False, False
        while not has_ended:
            if has_come:  # another part of the job has taken it: not at once again
                await trio.sleep(min(LOOK_S, self._due_in_s()))
            has_come = False
            with trio.move_on_after(min(pause_s, self._due_in_s())):
                has_come = await self._arrival()
            has_ended = await self._look()
            pause_s = min(LOOK_MAX_S, 2 * pause_s)

    async def _arrival(self) -> bool:
        """Return when something has come for one of the waits, as far as the pod notices."""
        wishes = [wish for wish, _ in self.wishes.values()]
        waits: list[Wait] = [each for wish in wishes for each in wish.waits]
        waits += [_decision(each) for wish in wishes for each in wish.awaited]
        if not waits:
            await trio.sleep_forever()
        await self.attempt.services.arrivals.come(self.attempt.claim, waits)
        return True

    def _due_in_s(self) -> float:
        """Return in how many seconds the first of the times is over."""
        now = trio.current_time()
        ends = [
            since + wish.delay_s for wish, since in self.wishes.values() if wish.delay_s is not None
        ]
        return max(0.0, min(ends, default=math.inf) - now)

    def _together(self) -> Suspended:
        """Return the wish to wait for all of them, until the first of their times is over."""
        wishes = [self.wishes[place][0] for place in sorted(self.wishes)]
        delay_s = self._due_in_s()
        if len(wishes) == 1 and not (wishes[0].requests or wishes[0].awaited):
            if wishes[0].delay_s is not None:
                wishes[0].delay_s = delay_s
            return wishes[0]
        requests = tuple(each for wish in wishes for each in wish.requests)
        awaited = tuple(each for wish in wishes for each in wish.awaited)
        decisions = (*(each.id for each in requests), *awaited)
        shown = min(wishes, key=_rank)
        reason = "; ".join(dict.fromkeys(wish.reason for wish in wishes))
        return Suspended(
            shown.waiting_on,
            reason if len(wishes) == 1 else f"the first of: {reason}",
            delay_s=None if delay_s == math.inf else delay_s,
            requests=requests,
            awaited=awaited,
            unknown=tuple(each for wish in wishes for each in wish.unknown),
            waits=(
                *(each for wish in wishes for each in wish.waits),
                *map(_decision, dict.fromkeys(decisions)),
            ),
        )

    def _losers(self, winner: int) -> dict[str, list[str]]:
        """Return the keys of the losers that are to be withdrawn, by kind."""
        losers: dict[str, list[str]] = {}
        for place, entry in enumerate(self.entries):
            if place != winner and (name := _WITHDRAWN.get(entry.kind)) is not None:
                losers.setdefault(name, []).append(entry.withdraws)
        return losers


_STEP: Final = WaitKind.STEP
_WITHDRAWN: Final = {
    WaitKind.APPROVAL: "approvals",
    WaitKind.SIGNAL: "signals",
    WaitKind.CHILD: "children",
}
_SHOWN: Final = (APPROVAL, SIGNAL, CHILD, SLEEP)
"""What people see of several waits: the one first of which they can do something about it."""


def _rank(wish: Suspended) -> int:
    ranks = (rank for rank, each in enumerate(_SHOWN) if wish.waiting_on.startswith(each))
    return next(ranks, len(_SHOWN))


def _decision(approval: Any) -> DecisionWait:
    return DecisionWait(id=approval)


def first_of(
    attempt: Attempt, name: str, waits: Sequence[Awaitable[Any]]
) -> Coroutine[Any, Any, Winner[Any]]:
    """Return the first of several waits. Raises `UsageError` for what cannot be one of them."""
    journal = attempt.journal
    try:
        entries = _entries(attempt, waits)
    except UsageError:
        for each in waits:
            if inspect.iscoroutine(each):
                each.close()
        raise
    key = journal.key(name)
    journal.adopt(key, [part for each in entries for part in {each.key, each.ends}])
    given = input_of({"of": [each.key for each in entries]}, what=f"step {key!r}")
    return journal.promised(key, _first(attempt, key, given, entries, waits))


async def _first(
    attempt: Attempt,
    key: str,
    given: StepInput,
    entries: Sequence[_Entry],
    waits: Sequence[Awaitable[Any]],
) -> Winner[Any]:
    journal = attempt.journal
    race = _Race(attempt, entries)
    try:
        with waits_outside():
            recorded = await journal.once(StepKind.FIRST, key, given=given, run=race.run)
            place: int = recorded["index"]
            entry = entries[place]
            if not race.has_value and entry.kind is not WaitKind.SLEEP:
                race.value = await entry.look()  # it is on record
    finally:
        for wait in waits:
            if inspect.iscoroutine(wait):
                wait.close()
    journal.forget(key)  # what the losers have on record is not asked for any more
    if race.error is not None:
        raise race.error
    return Winner(place, entry.key, race.value)


def _entries(attempt: Attempt, waits: Sequence[Awaitable[Any]]) -> list[_Entry]:
    if not 1 <= len(waits) <= WAITS_MAX:
        raise UsageError(
            f"ctx.first has {len(waits)} things to wait for, outside 1 to {WAITS_MAX}",
            hint='such as: ctx.first(ctx.receive("payment"), ctx.sleep("too late", days=3))',
        )
    if len({id(wait) for wait in waits}) < len(waits):
        raise UsageError("ctx.first has the same call twice", hint="make one for each place")
    return [_entry(attempt, place, wait) for place, wait in enumerate(waits)]


def _entry(attempt: Attempt, place: int, wait: Awaitable[Any]) -> _Entry:
    key = attempt.journal.key_of(wait)
    if key is None:
        raise UsageError(
            f"ctx.first: argument {place + 1} is {type(wait).__name__}, no call of ctx that was "
            "just made",
            hint="give it calls such as ctx.receive(…), ctx.sleep(…), ctx.approve(…), ctx.step(…)",
        )
    contender = attempt.contenders.get(key)
    if contender is not None:
        ends, withdraws = contender.ends or key, contender.withdraws or key
        return _Entry(key, contender.kind, contender.look, ends, withdraws)
    if not _is_plain_step(wait):
        raise UsageError(
            f"ctx.first: {key!r} cannot be withdrawn once it has begun",
            hint="wait for signals, timers, children, approvals and steps; make the call after it",
        )
    return _Entry(key, WaitKind.STEP, lambda: wait, key, key)


def _is_plain_step(wait: Awaitable[Any]) -> bool:
    if not inspect.iscoroutine(wait) or wait.__name__ != "once":
        return False
    return inspect.getcoroutinelocals(wait).get("kind") is StepKind.STEP
