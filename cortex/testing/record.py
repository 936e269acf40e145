"""The record of one job in memory: its steps, its ledger of effects, its questions to people.

Takes what a committer takes. An attempt that was killed gets nothing more into it.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import orjson
import trio

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Decided
from cortex.domain.clock import Chance
from cortex.domain.effect import Resolution
from cortex.domain.job import (
    Claim,
    EffectIntent,
    EffectReport,
    IntentReply,
    Lease,
    Past,
    Publish,
    StepDone,
    StepKind,
)
from cortex.domain.signals import ReceivedSignal
from cortex.durable.journal import Recorded
from cortex.testing.children import MemoryFamily
from cortex.testing.clock import BEGIN
from cortex.testing.crash import Crash
from cortex.testing.ledger import Ledger
from cortex.testing.published import PublishedRecord
from cortex.testing.signals import SignalQueue
from cortex.testing.steps import StepRecord


@attrs.define
class OutsideCalls:
    """The calls of one effect: the other side's own record."""

    intent: EffectIntent
    count: int = 0
    is_begun: bool = False
    """The attempt that intends it has called."""
    is_over: bool = True
    """No attempt is between its intent and its outcome."""
    applied: str | None = None
    """The result of a call that ended well, as JSON text."""


_begun: ContextVar[OutsideCalls | None] = ContextVar("begun effect", default=None)
"""The effect whose intent this task has recorded last."""


@attrs.define
class JobRecord:
    """What a database would keep of one job."""

    chance: Chance
    crash: Crash = attrs.field(factory=Crash)
    steps: StepRecord = attrs.field(factory=StepRecord)
    published: PublishedRecord = attrs.field(factory=PublishedRecord)
    ledger: Ledger = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: Ledger(self.steps.output, self.covers), takes_self=True),
    )
    signals: SignalQueue = attrs.field(factory=SignalQueue)
    began: datetime = BEGIN
    """When the job began, by the clock of the test."""
    family: MemoryFamily = attrs.field(factory=MemoryFamily)
    questions: dict[str, ApprovalRequest] = attrs.field(factory=dict)
    """The newest request of each step."""
    decisions: dict[str, Decided] = attrs.field(factory=dict)
    calls: dict[UUID, OutsideCalls] = attrs.field(factory=dict)
    """By effect."""
    broken: str | None = None
    """The first promise that an effect has broken, in words for people."""

    def recorded(self) -> Recorded:
        """Return what the next attempt finds."""
        done = set(self.steps.keys)
        questions = tuple(key for key in self.questions if key not in done)
        return Recorded(
            steps=[*self.steps.steps],
            effects=self.ledger.unrecorded(done),
            past=Past(questions=questions, is_same_code=True),
            recall=self.steps.recall,
        )

    @property
    def has_open(self) -> bool:
        """Whether a claim says that there are effects or questions."""
        return bool(self.ledger.effects or self.questions)

    def ask(self, request: ApprovalRequest) -> None:
        """Keep a question; an earlier one of its step is withdrawn."""
        self.questions[request.key] = request
        self.decisions.pop(request.key, None)

    def withdraw(self, losers: Mapping[str, Any]) -> None:
        """Withdraw what a step of kind `first` names, as the database does."""
        for key in losers.get("approvals", ()):
            if key not in self.decisions:
                self.questions.pop(key, None)
        for key in losers.get("signals", ()):
            self.signals.withdraw(key)
        for key in losers.get("children", ()):
            self.family.cancel(key)

    def covers(self, intent: EffectIntent) -> bool:
        """Return whether people have approved a call as it is intended."""
        return any(
            decided.id == intent.approval_id
            and decided.digest == intent.digest
            and decided.status is ApprovalStatus.APPROVED
            and self.questions[key].tool == intent.tool
            for key, decided in self.decisions.items()
        )

    def find_out(self) -> None:
        """Let a person look at the other side, and resolve each effect of unknown outcome."""
        for each in self.ledger.effects:
            if each.status == "UNKNOWN":
                applied = self.calls[each.id].applied
                said = Resolution.NOT_APPLIED if applied is None else Resolution.APPLIED
                self.ledger.resolve(each.id, said, result=applied)

    def attempt(self, lease: Lease) -> "AttemptRecord":
        """Begin an attempt in this task."""
        _begun.set(None)
        return AttemptRecord(self, lease)


@attrs.frozen
class AttemptRecord:
    """The record as one attempt sees it: recorder of its journal, and gateway of its effects."""

    job: JobRecord
    lease: Lease

    @property
    def new_id(self) -> Callable[[], UUID]:
        return self.job.chance.new_id

    async def record(self, operation: StepDone | EffectReport) -> None:
        await trio.lowlevel.checkpoint()  # a commit takes time
        if isinstance(operation, EffectReport):
            self.job.calls[operation.id].is_over = True
            self.reach("before the outcome of an effect was recorded")
            self.job.ledger.report(operation)
            self.reach("after the outcome of an effect was recorded")
            return
        what, effect = f"{operation.kind} {operation.key!r}", operation.effect
        if effect is not None and (calls := self.job.calls.get(effect.id)) is not None:
            self._ended(calls, operation)
        self.reach(f"after {what} ran, before it was recorded")
        self.job.steps.append(operation)
        if operation.kind is StepKind.FIRST:
            self.job.withdraw(orjson.loads(operation.output))
        if effect is not None:
            self.job.ledger.step(effect)
        self.reach(f"after {what} was recorded")

    async def send_ahead(self, operation: StepDone) -> None:
        await self.record(operation)

    async def publish(self, change: Publish) -> None:
        self.reach("before what it publishes was recorded")
        self.job.published.take(change)
        self.reach("after what it publishes was recorded")

    async def until_it_may_begin(self, call_s: float) -> None:  # noqa: ARG002 -- it may at once
        calls = _begun.get()
        if calls is None or calls.is_over:
            self.job.crash.check(self.lease)
            return
        intent = calls.intent
        self.reach(f"before the call of effect {intent.key!r}")
        calls.is_begun = True
        calls.count += 1
        if calls.applied is not None and not intent.is_idempotent:
            self._breaks(
                f"effect {intent.key!r} was called again although it had been applied: its "
                "reconcile did not find that"
            )

    async def intend(self, intent: EffectIntent) -> IntentReply:
        await trio.lowlevel.checkpoint()
        self.reach(f"before the intent of effect {intent.key!r}")
        reply = self.job.ledger.intend(intent)
        if reply.verdict in ("go", "recheck"):
            calls = self.job.calls.setdefault(reply.id, OutsideCalls(intent))
            calls.is_begun = calls.is_over = False
            _begun.set(calls)
        self.reach(f"after the intent of effect {intent.key!r}")
        return reply

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        self.job.crash.check(self.lease)
        return self.job.decisions.get(key)

    async def take(
        self,
        claim: Claim,  # noqa: ARG002 -- the record is that of one job
        *,
        step: str,
        name: str,
        key: str | None,
    ) -> ReceivedSignal | None:
        await trio.lowlevel.checkpoint()
        self.job.crash.check(self.lease)
        began, now_s = self.job.began, trio.current_time()
        signal = self.job.signals.take(step, name, key, began=began, now_s=now_s)
        if signal is not None:
            self.reach(f"after step {step!r} took a signal, before that was recorded")
        return signal

    def _ended(self, calls: OutsideCalls, operation: StepDone) -> None:
        calls.is_over = True
        if operation.effect is None or operation.effect.why_not is not None:
            return
        if not calls.is_begun and calls.applied is None:
            self._breaks(
                f"effect {operation.key!r} is recorded as applied and was never called: its "
                "reconcile has found another call; look for call.id"
            )
        calls.applied = operation.output

    def _breaks(self, message: str) -> None:
        self.job.broken = self.job.broken or message

    def reach(self, point: str) -> None:
        """Pass a point at which the attempt may be killed."""
        self.job.crash.reach(self.lease, point)
