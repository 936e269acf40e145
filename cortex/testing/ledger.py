"""The ledger of one job's effects in memory, by the rules of `cortex.intend` in SQL.

A test runs the same cases on both. There are no quotas, no freeze and no other jobs.
"""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.effect import Resolution
from cortex.domain.job import (
    EffectIntent,
    EffectOutcome,
    EffectReport,
    IntentReply,
    JobStatus,
    OpenEffect,
    UnknownEffect,
)

OPEN: Final = frozenset({"PENDING", "UNKNOWN"})


@attrs.define(eq=False)
class LedgerEffect:
    """An effect on the ledger."""

    id: UUID
    intent: EffectIntent
    """The first one."""
    attempt: int
    """The last one that has begun it."""
    status: str = "PENDING"
    is_sure: bool = False
    """No call can have been applied."""
    result: str | None = None
    """JSON text, unless its step has it."""
    why: str | None = None
    calls_count: int = 1
    """How often a call was permitted."""
    is_settled: bool = False
    """A person has said that it was applied, or has given it up."""


@attrs.define
class Ledger:
    """Permits calls, and keeps their outcomes."""

    output: Callable[[str], str | None]
    """Returns the output of a step on record."""
    is_approved: Callable[[EffectIntent], bool]
    """Whether people have approved a call with this approval."""
    effects: list[LedgerEffect] = attrs.field(factory=list)

    def get(self, effect_id: UUID) -> LedgerEffect:
        return next(each for each in self.effects if each.id == effect_id)

    def unrecorded(self, recorded: Iterable[str]) -> list[OpenEffect]:
        """Return the effects that may have been applied and whose steps are not recorded."""
        done = set(recorded)
        return [
            OpenEffect(each.intent.key, each.status)
            for each in self.effects
            if each.intent.key not in done and each.status != "FAILED"
        ]

    def intend(self, intent: EffectIntent) -> IntentReply:
        """Answer an attempt that owns the job."""
        attempt = intent.lease.attempt
        known = self._known(intent)
        if known is None:
            if intent.approval_id is not None and not self._may_use(intent):
                return _reply(intent.id, "unapproved", attempt)
            self.effects.append(LedgerEffect(intent.id, intent, attempt))
            return _reply(intent.id, "go", attempt)
        verdict, before = _verdict(known, intent), known.attempt
        if verdict in ("go", "recheck"):
            known.attempt = attempt
        if verdict == "diverged":
            first = known.intent
            return _reply(known.id, verdict, before, result=first.arguments, why=first.tool)
        if verdict != "go" or known.id == intent.id:
            result = known.result or self.output(intent.key) if verdict == "done" else None
            return _reply(known.id, verdict, before, result=result, why=known.why)
        known.status, known.is_sure, known.why = "PENDING", False, None
        known.calls_count += 1
        return _reply(known.id, verdict, before)

    def _known(self, intent: EffectIntent) -> LedgerEffect | None:
        """Return the effect that the intent is about: certainly not applied, it may be another."""

        def nearness(each: LedgerEffect) -> tuple[bool, bool, bool]:
            is_same = each.intent.digest == intent.digest
            return is_same and each.status != "FAILED", each.status in OPEN, is_same

        found = [
            each
            for each in self.effects
            if each.intent.key == intent.key
            and (each.intent.digest == intent.digest or each.status != "FAILED")
        ]
        return max(found, key=nearness, default=None)

    def _may_use(self, intent: EffectIntent) -> bool:
        is_used = any(each.intent.approval_id == intent.approval_id for each in self.effects)
        return not is_used and self.is_approved(intent)

    def report(self, operation: EffectReport) -> bool:
        """Record an outcome without a step; return whether the attempt may."""
        effect = self.get(operation.id)
        if effect.attempt != operation.lease.attempt or effect.is_settled:
            return False
        effect.status = "COMPLETED" if operation.is_applied else "FAILED"
        effect.result = (operation.result or "null") if operation.is_applied else None
        effect.why, effect.is_sure = operation.why, False
        return True

    def step(self, outcome: EffectOutcome) -> None:
        """Record the outcome of an effect whose step has just been recorded."""
        effect = self.get(outcome.id)
        if effect.status not in {"COMPLETED", "ABANDONED"}:
            effect.status = "COMPLETED" if outcome.why_not is None else "FAILED"
            effect.why, effect.is_sure = outcome.why_not, False

    def doubt(self, unknown: UnknownEffect) -> None:
        """Let an effect wait for a person who knows whether it was applied."""
        effect = self.get(unknown.id)
        if effect.status in OPEN and not effect.is_sure:
            effect.status, effect.why = "UNKNOWN", unknown.why

    def resolve(self, effect_id: UUID, said: Resolution, *, result: str | None = None) -> None:
        """Record what a person says of an effect of unknown outcome, while its job waits."""
        effect = self.get(effect_id)
        if effect.status != "UNKNOWN":
            raise AssertionError(f"effect {effect.intent.key!r} is {effect.status}")
        match said:
            case Resolution.APPLIED:
                effect.status, effect.result = "COMPLETED", result or "null"
            case Resolution.NOT_APPLIED:
                effect.status = "PENDING"
            case Resolution.GIVE_UP:
                effect.status = "ABANDONED"
        effect.is_sure = said is Resolution.NOT_APPLIED
        effect.is_settled = said is not Resolution.NOT_APPLIED

    def close(self, status: JobStatus) -> None:
        """End what is open when its job ends."""
        for each in self.effects:
            if each.status != "PENDING":
                continue
            if each.is_sure:
                each.status, why = "FAILED", "before it was called"
            else:
                each.status, why = "UNKNOWN", "while the call was under way"
            each.is_sure, each.why = False, f"its job was {status.value} {why}"


def _verdict(known: LedgerEffect, intent: EffectIntent) -> str:
    first = known.intent
    if first.digest != intent.digest or (intent.is_named and first.tool != intent.tool):
        return "diverged"
    if known.status == "COMPLETED":
        return "done"
    if known.status == "ABANDONED":
        return "abandoned"
    if known.status == "PENDING" and known.id == intent.id:  # this very intent, repeated
        return "go"
    if intent.is_sure or known.is_sure or known.status == "FAILED":
        return "go"
    return "recheck"


def _reply(
    effect_id: UUID,
    verdict: str,
    attempt: int,
    *,
    result: str | None = None,
    why: str | None = None,
) -> IntentReply:
    return IntentReply(
        id=effect_id,
        verdict=verdict,
        attempt=attempt,
        result=result,
        why=why,
        quota=None,
        used=None,
        limit=None,
        amount=None,
        wait_s=None,
    )
