"""The record of one job's steps: replay by memoised keys, and commit of new ones.

On resume the handler runs again from its top; every step that is in the record returns its stored
output at once. A step is in the record exactly when its commit was acknowledged by the database.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Final, NoReturn, Protocol

import attrs
import trio

from cortex.domain.errors import DivergedError, InvalidValueError, LeaseLost
from cortex.domain.job import EffectOutcome, Lease, Step, StepDone, StepKind
from cortex.domain.limits import CHECKPOINT, MODEL_RESPONSE
from cortex.domain.redaction import secret_in
from cortex.domain.usage import Usage
from cortex.durable.codec import decode, encode, refuse_unstorable
from cortex.durable.step_clock import StepClock
from cortex.durable.tally import Tally

KEY_CHARS_MAX: Final = 500

_in_step: ContextVar[bool] = ContextVar("in_step", default=False)
"""Whether this code runs inside a step: what it asks for then is part of that."""


class Recorder(Protocol):
    """Where operations go: the committer."""

    async def record(self, operation: StepDone) -> None:
        """Return when the operation is committed. Raises `LeaseLost` if it was refused."""


@attrs.frozen(kw_only=True)
class Outcome:
    """What a step returns to its journal."""

    value: Any
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    effect: EffectOutcome | None = None
    """Of the effect that the step is: recorded with it, at once."""


@attrs.frozen(kw_only=True)
class Leave:
    """Whether the pod of an attempt leaves, and how the job gets away from it."""

    is_asked: Callable[[], bool]
    hand_back: Callable[[], None]
    """Cancels the attempt; another pod goes on from its last checkpoint."""


class Journal:
    """Steps of one attempt of one job. Concurrent steps of the job may use it at once."""

    def __init__(
        self,
        lease: Lease,
        recorder: Recorder,
        steps: Sequence[Step],
        *,
        leave: Leave | None = None,
    ) -> None:
        """`steps` are those that earlier attempts committed, in order."""
        self._lease = lease
        self._leave = leave
        self._recorder = recorder
        self._memo = {step.key: step for step in steps}
        self._tally = Tally(steps)
        self._asked: dict[str, int] = {}
        self._decisions: dict[str, str] = {}
        self.clock: StepClock | None = None
        """The limit that stands still while something is recorded."""
        self.progress = self._tally.progress

    @property
    def usage(self) -> Usage:
        """Tokens that the job's steps used so far."""
        return self._tally.usage

    @property
    def cost_usd(self) -> Decimal:
        """What the job's steps cost so far, as far as prices are known."""
        return self._tally.cost_usd

    def key(self, name: str) -> str:
        """Return the key of the next step of this name: `name`, then `name#2`, then `name#3`.

        To be called in the order in which job code asks, not in the order in which concurrent
        steps begin to run: trio leaves that to chance, and a replay must find the same keys.
        Raises `InvalidValueError` for a name that the record cannot hold.
        """
        count = self._asked.get(name, 0) + 1
        while count > 1 and f"{name}#{count}" in self._asked:
            count += 1  # somebody gave a step this very name
        key = name if count == 1 else f"{name}#{count}"
        refuse_unstorable(key, "the name of a step")
        if key not in self._memo and (secret := secret_in(key)):
            # Redacted in the record, it would not be found again.
            raise InvalidValueError(f"the name of a step holds secret {secret}")
        if not 1 <= len(key) <= KEY_CHARS_MAX:
            raise InvalidValueError(
                f"the name of a step has {len(key)} characters, outside 1 to {KEY_CHARS_MAX}: "
                f"{key[:40]!r}",
                hint="tell long arguments apart by a number or a digest",
            )
        self._asked[name] = count
        self._asked.setdefault(key, 1)
        return key

    async def once(
        self, kind: StepKind, key: str, *, digest: bytes, run: Callable[[], Awaitable[Outcome]]
    ) -> Any:
        """Return the step's recorded output, or run it, commit its output and return that.

        What comes back has gone through JSON in either case, so that a replay sees the same.
        Raises `DivergedError` if the key was recorded with another input, `LeaseLost` if another
        attempt owns the job, else whatever `run` raises: then nothing is recorded.
        On a pod that leaves no step begins any more: the job is handed back instead.
        If cancelled while it is being committed, the step may or may not be in the record.
        """
        memo = self._memo.get(key)
        if memo is not None:
            if memo.digest != digest:
                raise DivergedError(
                    f"step {key!r} was recorded with input {memo.digest.hex()[:12]}, "
                    f"the code now asks for input {digest.hex()[:12]}",
                    hint="give changed steps new keys, or submit the job anew",
                )
            return decode(memo.output)
        if self._leave is not None and self._leave.is_asked() and not _in_step.get():
            await self._stop_here(self._leave)
        started = trio.current_time()
        step = self.progress.begin(kind, key, now=started)
        try:
            outcome = await _inside(run)
            limit = MODEL_RESPONSE if kind is StepKind.MODEL else CHECKPOINT
            output = encode(outcome.value, what=f"output of step {key!r}", limit=limit)
            ended = trio.current_time()
            done = StepDone(
                lease=self._lease,
                kind=kind,
                key=key,
                digest=digest,
                duration_s=ended - started,
                output=output,
                usage=None if outcome.usage is None else encode(outcome.usage, what="usage"),
                cost_usd=outcome.cost_usd,
                effect=outcome.effect,
                number=lambda: self._tally.number(kind, key, outcome.usage, outcome.cost_usd),
                committed=lambda: self._tally.committed(
                    key, outcome.usage, outcome.cost_usd, at=ended
                ),
            )
            if self.clock is None:
                await self._recorder.record(done)
            else:
                with self.clock.stopped():
                    await self._recorder.record(done)
        except BaseException as error:
            self.progress.broke_off(step, error)
            raise
        self.progress.end(step)
        if kind is StepKind.APPROVAL:
            self._decisions[key] = output
        return decode(output)

    async def _stop_here(self, leave: Leave) -> NoReturn:
        """Hand the job back when its other steps, which may be paid for, are in the record.

        Cancelled then, unless job code is shielded: there it is `LeaseLost` that ends it.
        """
        await self.progress.none_under_way()
        leave.hand_back()
        await trio.lowlevel.checkpoint()
        raise LeaseLost("the pod leaves, and the job goes on elsewhere")

    def decision(self, key: str) -> Any:
        """Return the recorded output of a decision, of this attempt or before; None if none is."""
        memo = self._memo.get(key)
        return decode(self._decisions.get(key) if memo is None else memo.output)


async def _inside(run: Callable[[], Awaitable[Outcome]]) -> Outcome:
    token = _in_step.set(True)
    try:
        return await run()
    finally:
        _in_step.reset(token)
