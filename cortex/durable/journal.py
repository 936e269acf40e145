"""The record of one job's steps: replay by memoised keys, and commit of new ones.

On resume the handler runs again from its top; every step that is in the record returns its stored
output at once. A step is in the record exactly when its commit was acknowledged by the database.

While a replay still owes a request for something on record, its code may not be the one that made
the record. The commit of new steps is deferred then, until the replay has settled and before
anything leaves the job. If it diverges instead, the attempt has done nothing new, and other code
can take the job from where it was.

Long because replay, deferral and commit of a step share their state.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from sys import getsizeof
from typing import Any, Final, NoReturn, Protocol, TypeVar

import trio

from cortex.domain.classification import leaves
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import DivergedError, InvalidValueError, UsageError
from cortex.domain.hot import hot
from cortex.domain.job import (
    PATCH_PREFIX,
    Lease,
    OpenEffect,
    Past,
    Step,
    StepDone,
    StepKind,
)
from cortex.domain.limits import CHECKPOINT, MODEL_RESPONSE
from cortex.domain.redaction import secret_in
from cortex.domain.tracing import current
from cortex.domain.usage import Usage
from cortex.durable.codec import NO_INPUT, StepInput, decode, encode, refuse_unstorable
from cortex.durable.divergence import difference, renamed
from cortex.durable.progress import StepUnderWay
from cortex.durable.published import Published
from cortex.durable.replay import Amid, Replay
from cortex.durable.results import ResultType
from cortex.durable.step_clock import StepClock
from cortex.durable.step_outcome import StepLimit, StepOutcome, timed_out
from cortex.durable.step_scope import StepScope
from cortex.durable.tally import Tally
from cortex.durable.tracing import AttemptTrace

KEY_CHARS_MAX: Final = 500
DEFERRED_MAX: Final = 1_000
DEFERRED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Steps, and their outputs, that are deferred until the replay has settled; the next one waits."""
FORGOTTEN_MAX: Final = 5
NO_PAST: Final = Past()
T = TypeVar("T")


_parent: Final = current.step
"""Steps that this code starts are part of that step."""


@contextmanager
def running_in(key: str) -> Iterator[None]:
    """Mark the steps that the block requests as parts of step `key`."""
    token = _parent.set(key)
    try:
        yield
    finally:
        _parent.reset(token)


class Recorder(Protocol):
    """Takes operations: the committer."""

    async def record(self, operation: StepDone) -> None:
        """Return when the operation is committed. Raises `LeaseLost` if it was refused."""

    async def send_ahead(self, operation: StepDone) -> None:
        """Send an operation that is committed before anything that the job sends later.

        Does not wait for that. After `trio.Cancelled` it is not sent.
        """


@hot(kw_only=True)
class LeaveRequest:
    """Whether the attempt's pod shuts down, and how the job leaves it."""

    is_asked: Callable[[], bool]
    hand_back: Callable[[], None]
    """Cancels the attempt; another pod goes on from its last checkpoint."""


@hot(kw_only=True)
class Recorded:
    """The record of a job when an attempt begins."""

    steps: Sequence[Step] = ()
    """Committed by earlier attempts, in order."""
    effects: Sequence[OpenEffect] = ()
    """Those that have begun and whose steps are not recorded."""
    past: Past = NO_PAST
    recall: Callable[[str], Awaitable[str | None]] | None = None
    """Returns the recorded input of the step with a key, as it was kept."""


NOTHING_RECORDED: Final = Recorded()


class Journal:
    """Steps of one attempt of one job. Concurrent steps of the job may use it at once."""

    __slots__ = (
        "_ahead",
        "_decisions",
        "_deferred",
        "_deferred_bytes",
        "_lease",
        "_leave",
        "_memo",
        "_past",
        "_patches",
        "_promised",
        "_recall",
        "_recorder",
        "_replay",
        "_requested",
        "_sending",
        "_tally",
        "clock",
        "diverged",
        "news",
        "progress",
        "published",
        "step_scope",
        "trace",
    )

    def __init__(
        self,
        lease: Lease,
        recorder: Recorder,
        recorded: Recorded = NOTHING_RECORDED,
        *,
        leave: LeaveRequest | None = None,
        step_scope: StepScope | None = None,
    ) -> None:
        steps = recorded.steps
        self._lease = lease
        self._leave = leave
        self._recall = recorded.recall
        self._replay = Replay(steps, recorded.effects)
        self.diverged: DivergedError | None = None
        """Why the replay cannot go on."""
        self.news = 0
        """New steps and outside calls of this attempt. The end of a begun effect is not new."""
        self._deferred: list[StepDone] = []
        self._deferred_bytes = 0
        self._past = recorded.past
        self._patches: dict[str, bool] = {}
        self._ahead: list[StepDone] = []
        """Decisions about patches, to be sent before anything else is."""
        self._sending: trio.Lock | None = None
        self._recorder = recorder
        self._memo = {step.key: step for step in steps}
        self._tally = Tally(steps)
        self._requested: dict[str, int] = {}
        self._promised: dict[str, Coroutine[Any, Any, Any]] = {}
        self._decisions: dict[str, str] = {}
        self.clock: StepClock | None = None
        """The limit that stands still while something is recorded."""
        self.progress = self._tally.progress
        self.step_scope = step_scope
        """For the limits of steps in the handler's own task; None: each needs its own scope."""
        self.trace: AttemptTrace | None = None
        """Records the spans of the attempt; None: nobody does."""
        self.published: Published | None = None
        """The state and the progress that job code publishes; None: it has published nothing."""

    @property
    def current_key(self) -> str | None:
        """Key of the step that this code runs in."""
        return _parent.get()

    @property
    def usage(self) -> Usage:
        """Tokens that the job's steps have used so far."""
        return self._tally.usage

    @property
    def cost_usd(self) -> Decimal:
        """Cost of the job's steps so far, as far as prices are known."""
        return self._tally.cost_usd

    def key(self, name: str) -> str:
        """Return the key of the next step of this name: `name`, then `name#2`, then `name#3`.

        Call this in the order in which job code requests steps, not in which concurrent steps begin
        to run: that order is up to trio, and a replay must find the same keys. Raises
        `InvalidValueError` for a name that cannot be recorded.
        """
        count = self._requested.get(name, 0) + 1
        while count > 1 and f"{name}#{count}" in self._requested:
            count += 1  # job code has given a step exactly this name
        key = name if count == 1 else f"{name}#{count}"
        if not (type(key) is str and key.isascii() and "\0" not in key):
            if not isinstance(key, str):
                raise InvalidValueError(f"the name of a step is not text: {key!r:.40}")
            refuse_unstorable(key, "the name of a step")
        if key not in self._memo and (secret := secret_in(key)):
            # Redacted in the record, it would not be found again.
            raise InvalidValueError(f"the name of a step holds secret {secret}")
        if not 1 <= len(key) <= KEY_CHARS_MAX:
            raise InvalidValueError(
                f"the name of a step has {len(key)} characters, outside 1 to {KEY_CHARS_MAX}: "
                f"{key[:40]!r}",
                hint="distinguish long arguments by a number or a digest",
            )
        self._requested[name] = count
        self._requested.setdefault(key, 1)
        return key

    @property
    def requested(self) -> Sequence[str]:
        """Keys of the attempt's steps, in the order in which job code requested them."""
        return tuple(self._requested)

    async def once(  # noqa: C901, PLR0912, PLR0915 -- each call in it costs every step
        self,
        kind: StepKind,
        key: str,
        *,
        given: StepInput,
        run: Callable[[], Awaitable[Any]],
        limit_s: StepLimit | None = None,
        result: ResultType | None = None,
    ) -> Any:
        """Return the step's recorded output, or run it, commit its output and return that.

        `run` returns a `StepOutcome`, or only a value with `limit_s`, the seconds that it may take.
        The output has gone through JSON in both cases, so that a replay sees the same, and is then
        converted to `result`. Raises `DivergedError` if the key was recorded with another input or
        is no `result` any more, `LeaseLost` if another attempt owns the job, else the error of
        `run`: then nothing is recorded. On a pod that shuts down no step begins any more: the job
        is handed back instead. If cancelled while committed, the step may be in the record.
        """
        self._promised.pop(key, None)
        memo = self._memo.get(key)
        if memo is not None:
            return await self._recalled(memo, kind, given, result)
        if self.diverged is not None:
            raise self.diverged
        amid, parent_key = self._replay.amid, _parent.get()
        self._replay.mark_requested(key)
        if self._leave is not None and self._leave.is_asked() and parent_key is None:
            await self._stop_here(self._leave)
        started = trio.current_time()
        step = self.progress.begin(kind, key, now=started)
        try:
            token = _parent.set(key)
            try:
                if limit_s is None:
                    outcome: StepOutcome = await run()
                else:
                    began = started
                    if callable(limit_s):
                        limit_s, began = await limit_s(), trio.current_time()
                    with trio.CancelScope(deadline=began + limit_s) as scope:
                        outcome = StepOutcome(value=await run())
                    if scope.cancelled_caught:
                        raise timed_out(key, limit_s)
            finally:
                _parent.reset(token)
            done = self._done(step, given, outcome, amid=amid, parent_key=parent_key)
            answer = decode(done.output)
            if result is not None:  # a result of another type is not recorded
                answer = result.restore(answer, f"output of step {key!r}")
            if self._ahead or self.published is not None:
                await self._send_first()
            if self.clock is not None:
                with self.clock.stopped():
                    await self._record_in_turn(done)
            elif self._replay.is_open or self._deferred:
                await self._record_in_turn(done)
            else:
                self.news += 1
                await self._recorder.record(done)
        except BaseException as error:
            self._broke_off(step, error, parent_key)
            raise
        if self.trace is not None:
            self.trace.stepped(done, started)
        self.progress.end(step)
        self._replay.ended()
        if kind is StepKind.APPROVAL:
            self._decisions[key] = done.output
        return answer

    async def _send_first(self) -> None:
        """Send what must be on record before a step is."""
        if self.published is not None:
            await self.published.send()
        if self._ahead and not self._replay.is_open:
            await self.send_patches()

    async def group(
        self, key: str, *, given: StepInput, run: Callable[[], Awaitable[StepOutcome]]
    ) -> Any:
        """Run a step whose function only requests steps of its own."""
        return await self.once(StepKind.STEP, key, given=given, run=run)

    def _done(
        self,
        step: StepUnderWay,
        given: StepInput,
        outcome: StepOutcome,
        *,
        amid: Amid | None,
        parent_key: str | None,
    ) -> StepDone:
        kind, key, ended = step.kind, step.key, trio.current_time()
        usage = outcome.usage
        # A child may return as much as any job, which its parent has no other way to read.
        is_large = kind in (StepKind.MODEL, StepKind.CHILD)
        limit = MODEL_RESPONSE if is_large else CHECKPOINT
        return StepDone(
            lease=self._lease,
            kind=kind,
            key=key,
            digest=given.digest,
            duration_s=ended - step.began,
            output=encode(outcome.value, what=f"output of step {key!r}", limit=limit),
            usage=None if usage is None else encode(usage, what="usage"),
            cost_usd=outcome.cost_usd,
            effect=outcome.effect,
            given=given.kept,
            amid=amid,
            parent_key=parent_key,
            spent=usage,
            ended_at=ended,
            tally=self._tally,
        )

    async def _record_in_turn(self, done: StepDone) -> None:
        """Commit a step after those that were deferred, or defer it: see the head of this file."""
        outside = (StepKind.EFFECT, StepKind.MODEL, StepKind.MESSAGE, StepKind.CHILD)
        is_outside = done.effect is not None or done.kind in outside
        is_outside = is_outside or done.cost_usd is not None
        if not is_outside and not self._replay.lets(done.key):
            size = self._deferred_bytes + getsizeof(done.output)
            if len(self._deferred) < DEFERRED_MAX and size <= DEFERRED_BYTES_MAX:
                self._deferred.append(done)
                self._deferred_bytes = size
                return
            await self.settled(done.key)
        if not self._replay.has_begun(done.key):
            await self.record_deferred()
            self.news += 1
        await self.send_patches()
        await self._recorder.record(done)

    async def record_deferred(self) -> None:
        """Send the steps that were deferred until now, in their order."""
        if self._deferred:
            await self.send_patches()
            self.news += len(self._deferred)
            try:
                await self._send(self._deferred)
            finally:
                self._deferred_bytes = sum(getsizeof(each.output) for each in self._deferred)

    async def flush(self) -> None:
        """Send everything that the next attempt needs, before this one is left."""
        if self.diverged is None and self._replay.lets(""):
            await self.record_deferred()
        await self.send_patches()
        if self.published is not None:
            await self.published.send(is_over=True)

    def _broke_off(self, step: StepUnderWay, error: BaseException, parent_key: str | None) -> None:
        self.progress.broke_off(step, error)
        if self.trace is not None:
            self.trace.broke_off(step, parent_key, error)
        is_failure = any(not isinstance(leaf, Suspended | LeaseLost) for leaf in leaves(error))
        self._replay.broke_off(step.key, is_failure=is_failure)

    async def settled(self, key: str) -> None:
        """Wait until a new outside call may begin for step `key`: see `replay`.

        Raises `DivergedError`, also if the handler went on after one.
        """
        if self.diverged is not None:
            raise self.diverged
        if self._replay.lets(key):
            if self._deferred and not self._replay.has_begun(key):
                await self.record_deferred()
            await self.send_patches()
            return
        step = self.progress.under_way(key)
        if step is not None:
            step.is_held = True
        leave = self._leave
        try:
            is_settled = await self._replay.settled(
                key, is_over=lambda: leave is not None and leave.is_asked()
            )
        except DivergedError as error:
            raise self.diverges(error) from None
        if leave is not None and not is_settled:
            await self._stop_here(leave)
        if step is not None:
            step.is_held = False
        await self.record_deferred()
        await self.send_patches()

    def diverges(self, error: DivergedError, *, own: int = 0) -> DivergedError:
        """Return the error with which the attempt ends, even if its handler catches it.

        `own`: how many of the new steps and calls came to nothing by this error.
        """
        error.is_clean = self.news == own
        self.diverged = error
        return error

    def restored(self, key: str, restore: Callable[[], T]) -> T:
        """Return a recorded answer in the types of this release.

        Raises `DivergedError` if it cannot: a newer release has recorded it.
        """
        try:
            return restore()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"what is on record of {key!r} cannot be read by this release: {error!r}"
            hint = "run pods of one version of Cortex, the newest one that has run here"
            raise self.diverges(DivergedError(message, hint=hint)) from error

    async def _recalled(
        self, memo: Step, kind: StepKind, given: StepInput, result: ResultType | None
    ) -> Any:
        """Return the output on record of a step that is requested again."""
        if kind is StepKind.APPROVAL and memo.kind is not kind:
            # The database checks only of steps of this kind that people made the decision.
            message = f"step {memo.key!r} was recorded as {memo.kind}, not as a decision"
            raise self.diverges(DivergedError(message))
        if memo.digest != given.digest:
            await self._check_changed(memo, given)
        self._replay.mark_recorded(memo.key)
        recorded = decode(memo.output)
        return recorded if result is None else self.converted(memo.key, recorded, result)

    def converted(self, key: str, recorded: Any, result: ResultType) -> Any:
        """Return a recorded output in its declared type. Raises `DivergedError`."""
        try:
            return result.restore(recorded, f"the recorded output of step {key!r}")
        except InvalidValueError as error:
            message = f"{error.message}: it is no {result.name} any more"
            hint = "run the code that recorded it, or give new fields defaults"
            raise self.diverges(DivergedError(message, hint=hint)) from error

    def patched(self, patch: str) -> bool:
        """Return which branch of a change to its code the job takes: see `Context.patched`."""
        key = f"{PATCH_PREFIX}{patch}"
        decided = self._patches.get(key)
        if decided is not None:
            return decided
        memo = self._memo.get(key)
        is_taken = key in self._requested if memo is None else memo.kind is not StepKind.PATCH
        if is_taken:
            raise UsageError(
                f"patch {patch!r} has the name of a step: {key!r}", hint="rename the step"
            )
        # From here on a step of this name is another one.
        self.key(key)
        if memo is not None:
            decided = bool(decode(memo.output))
        else:
            decided = self._past.is_same_code or (
                self._replay.is_caught_up
                and all(question in self._requested for question in self._past.questions)
            )
            step = StepUnderWay(StepKind.PATCH, key, trio.current_time())
            outcome = StepOutcome(value=decided)
            parent_key = _parent.get()
            self._ahead.append(
                self._done(step, NO_INPUT, outcome, amid=None, parent_key=parent_key)
            )
        self._patches[key] = decided
        return decided

    def noted(self, key: str, value: Callable[[], str]) -> str:
        """Return a value that takes no time to make: the recorded one, or a new one.

        A new one is recorded with the next step, or before the job calls anything outside or waits.
        Raises `UsageError` if too many wait for that.
        """
        if self.diverged is not None:
            raise self.diverged
        memo = self._memo.get(key)
        if memo is not None:
            if memo.digest != NO_INPUT.digest:
                message = f"step {key!r} was recorded as another one: with an input"
                raise self.diverges(DivergedError(message, hint="give the new one another name"))
            self._replay.mark_recorded(key)
            recorded: str = decode(memo.output)
            return recorded
        if len(self._deferred) >= DEFERRED_MAX:
            raise UsageError(
                f"{key!r}: {DEFERRED_MAX:,} values wait to be recorded with the next step",
                hint="make many in one step: await ctx.step(…)",
            )
        amid = self._replay.amid
        self._replay.mark_requested(key)
        step = StepUnderWay(StepKind.STEP, key, trio.current_time())
        made = value()
        outcome, parent_key = StepOutcome(value=made), _parent.get()
        self._deferred.append(self._done(step, NO_INPUT, outcome, amid=amid, parent_key=parent_key))
        return made

    @property
    def is_replaying(self) -> bool:
        """Whether job code still has to request something on record that lies on its way."""
        return not self._replay.lets("")

    async def send_patches(self) -> None:
        """Send the decisions that no other operation has carried."""
        if self._ahead:
            await self._send(self._ahead)

    async def _send(self, steps: list[StepDone]) -> None:
        """Send them in turn. One that a cancellation keeps back is sent with the next ones."""
        if self._sending is None:
            self._sending = trio.Lock()
        async with self._sending:
            while steps:
                await self._recorder.send_ahead(steps[0])
                del steps[0]

    def promised(self, key: str, step: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a step that job code has made and must await; see `check_end`."""
        self._promised[key] = step
        return step

    def key_of(self, wait: object) -> str | None:
        """Return the key of a step that job code has made and not awaited yet."""
        return next((key for key, step in self._promised.items() if step is wait), None)

    def adopt(self, key: str, parts: Sequence[str]) -> None:
        """Take steps as parts of another one, which binds them no longer than it lasts itself."""
        self._replay.adopt(key, parts)

    def seq_of(self, key: str) -> int | None:
        """Return the place in the record of a step that an earlier attempt has recorded."""
        memo = self._memo.get(key)
        return None if memo is None else memo.seq

    def close(self) -> None:
        """Close the steps that were never awaited, so that Python does not warn of them."""
        for step in self._promised.values():
            if inspect.getcoroutinestate(step) == inspect.CORO_CREATED:
                step.close()
        self._promised.clear()

    def check_end(self) -> None:
        """Check the record when the handler has returned.

        Raises `DivergedError` if the record has other steps, and `UsageError` if the handler has
        made a step and not awaited it.
        """
        if self.diverged is not None:
            raise self.diverged
        forgotten = [
            key
            for key, step in self._promised.items()
            if inspect.getcoroutinestate(step) == inspect.CORO_CREATED
        ]
        if forgotten:
            names = ", ".join(map(repr, forgotten[:FORGOTTEN_MAX]))
            more = len(forgotten) - FORGOTTEN_MAX
            raise UsageError(
                f"the handler has returned without awaiting {names}"
                + (f" and {more} more steps" if more > 0 else ""),
                hint="write: await ctx.step(…); a step that is not awaited does nothing",
            )
        try:
            self._replay.check_end(has_new=bool(self._deferred))
        except DivergedError as error:
            raise self.diverges(error) from None

    async def _check_changed(self, recorded: Step, given: StepInput) -> None:
        """Raise `DivergedError` unless only parameters of the step's function were renamed."""
        kept = None if self._recall is None else await self._recall(recorded.key)
        if kept is not None and recorded.kind in (StepKind.STEP, StepKind.EFFECT):
            names = renamed(kept, given.kept)
            if names is not None and given.has_digest(recorded.digest, renamed=names):
                return
        if kept is None:
            was, now = recorded.digest.hex()[:12], given.digest.hex()[:12]
            message = f"was recorded with input {was}, the code now asks for input {now}"
        else:
            changed = difference(kept, given.kept) or "only in secrets, which are not kept"
            message = f"has another input now than the recorded one: {changed}"
        raise self.diverges(
            DivergedError(
                f"step {recorded.key!r} {message}",
                hint="run the code that recorded it, or keep both branches: ctx.patched",
            )
        )

    async def _stop_here(self, leave: LeaveRequest) -> NoReturn:
        """Hand the job back once its other steps, which may be paid for, are recorded.

        The job is cancelled then; where job code is shielded, `LeaseLost` ends it.
        """
        await self.progress.none_under_way()
        await self.flush()
        leave.hand_back()
        await trio.lowlevel.checkpoint()
        raise LeaseLost("the pod is shutting down, the job goes on elsewhere")

    def has_begun(self, key: str) -> bool:
        """Return whether an earlier attempt left an effect of this key open."""
        return self._replay.has_begun(key)

    def has_asked(self, key: str) -> bool:
        """Return whether an earlier attempt has asked people under this key."""
        return key in self._past.questions or key in self._memo

    def forget(self, key: str) -> None:
        """Let the replay go on without the step of this key, if it is on record."""
        self._replay.mark_recorded(key)

    @property
    def has_asked_people(self) -> bool:
        """Whether an earlier attempt has recorded a decision of people."""
        return any(step.kind is StepKind.APPROVAL for step in self._memo.values())

    def recorded(self, key: str) -> bool:
        """Return whether an earlier attempt has recorded a step under this key."""
        return key in self._memo

    def decision(self, key: str) -> Any:
        """Return the recorded output of a decision of this or an earlier attempt, or None."""
        memo = self._memo.get(key)
        return decode(self._decisions.get(key) if memo is None else memo.output)
