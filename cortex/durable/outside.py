"""The outside actions of one attempt: effects, and questions to people."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import attrs

from cortex.crash_points import crash_point
from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.classification import describe, name_and_text
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Invocation, UnsettledError, changed_nothing
from cortex.domain.errors import DivergedError, InvalidOutputError, InvalidValueError
from cortex.domain.job import EffectOutcome, EffectReport, StepKind
from cortex.domain.limits import CHECKPOINT
from cortex.domain.redaction import clean_text
from cortex.domain.retry import CALL_RETRIES
from cortex.durable.attempt import Attempt, ToolPlan
from cortex.durable.codec import StepInput, encode
from cortex.durable.effects import Done, EffectCall, NotDone, OwnEffect, call_of, perform
from cortex.durable.gates import Decision, Gate, decided, frozen_arguments
from cortex.durable.repeating import repeated
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.threads import thread_for
from cortex.durable.tracing import tool_attributes, traced

SAID_CHARS_MAX = 4_000


class Outside:
    """The effects and gates of one attempt."""

    __slots__ = ("_attempt", "_gateway", "_journal", "_lease")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lease = attempt.claim.lease
        self._journal = attempt.journal
        self._gateway = attempt.services.gateway

    async def make(self, own: OwnEffect) -> StepOutcome:
        """Call a function of the job once; raises its error when it was certainly not applied."""
        limit_s = own.timeout_s or (await self._attempt.limits()).step_s
        ended = await self.perform(call_of(own, limit_s))
        if isinstance(ended, NotDone):
            await self.report(ended)
            raise ended.error
        return await self.outcome(own.key, ended)

    async def perform(self, effect: EffectCall) -> Done | NotDone:
        """Make a call that happens once: see `effects.perform`.

        Before each call the pod must be sure that it owns the job: after an outage, another pod may
        be about to ask the other side about the call. The same holds before the intent: no other
        pod can know that a recorded intent was not called yet.
        """
        effect = attrs.evolve(effect, invoke=partial(self._when_sure, effect))
        if effect.is_idempotent and not effect.changes_nothing:
            effect = attrs.evolve(effect, invoke=partial(self._repeatedly, effect))
        count = partial(self._attempt.services.meter.effect_ended, effect.tool)
        new_id = self._gateway.new_id
        await self._journal.settled(effect.key)
        await self._attempt.limits()  # a known outcome after the call must not be lost in an outage
        await self._gateway.until_it_may_begin(effect.limit_s)
        news = 0 if self._journal.has_begun(effect.key) else 1
        self._journal.news += news
        try:
            ended = await perform(effect, lease=self._lease, ledger=self._gateway, new_id=new_id)
        except Suspended as wish:
            if wish.unknown:
                count("unknown")
            raise
        except DivergedError as error:  # the ledger let nothing begin
            raise self._journal.diverges(error, own=news) from None
        if ended.id is not None:
            count("completed" if isinstance(ended, Done) or ended.is_applied else "failed")
        return ended

    async def _when_sure(self, effect: EffectCall, invocation: Invocation) -> Any:
        # The pod must be sure when the call begins, and that is when there is a thread for it.
        async with AsyncExitStack() as stack:
            if effect.in_thread is not None:
                await stack.enter_async_context(thread_for(effect.in_thread))
            await self._gateway.until_it_may_begin(effect.limit_s)
            return await traced(
                self._journal.trace,
                effect.key,
                f"effect {effect.tool}",
                tool_attributes(effect.tool, **{"effect.id": str(invocation.id)}),
                partial(effect.invoke, invocation),
            )

    async def call_tool(self, tool: str, key: str, plan: ToolPlan) -> Any:
        """Call a tool that changes nothing outside."""
        run = partial(plan.run, None)
        name, attributes = f"execute_tool {tool}", tool_attributes(tool)
        return await traced(self._journal.trace, key, name, attributes, run)

    async def _repeatedly(self, effect: EffectCall, invocation: Invocation) -> Any:
        """Repeat an idempotent call inside the step."""
        services = self._attempt.services
        caller = attrs.evolve(await self._attempt.caller(effect.key), retry=CALL_RETRIES["default"])
        is_open = False

        async def call() -> Any:
            nonlocal is_open
            try:
                return await effect.invoke(invocation)
            except Exception as error:
                if not changed_nothing(error):
                    is_open = True
                elif is_open:
                    message = f"{describe(error)}; the call before may have been applied"
                    raise UnsettledError(message) from error
                raise

        return await repeated(
            call, caller=caller, facts=services.facts, rng=services.rng, final=self._attempt.final
        )

    async def outcome(self, key: str, done: Done) -> StepOutcome:
        """Return what the step records; a result that cannot be recorded is reported and raised."""
        if done.id is None:
            return StepOutcome(value=done.result)
        try:
            encode(done.result, what=f"output of step {key!r}", limit=CHECKPOINT)
        except InvalidValueError as error:
            not_done = NotDone(done.id, error, is_applied=True)
            await self.report(not_done)  # noqa: ASYNC120 -- a cancellation wins
            raise
        return StepOutcome(value=done.result, effect=EffectOutcome(done.id))

    def effect_outcome(self, ended: NotDone) -> EffectOutcome | None:
        """Return the effect's outcome for the step that records it."""
        if ended.id is None:
            return None
        return EffectOutcome(ended.id, None if ended.is_applied else name_and_text(ended.error))

    async def report(self, ended: NotDone) -> None:
        """Record the outcome of an effect without a step; the error is still to be raised.

        Raises `LeaseLost`.
        """
        if ended.id is None:
            return
        raw = ended.error.raw if isinstance(ended.error, InvalidOutputError) else None
        operation = EffectReport(
            lease=self._lease,
            id=ended.id,
            is_applied=ended.is_applied,
            why=name_and_text(ended.error),
            result=None if raw is None else encode(clean_text(raw), what="what came back"),
        )
        await self._gateway.record(operation)

    async def ask(
        self,
        gate: Gate,
        key: str,
        *,
        tool: str | None,
        arguments: Mapping[str, Any],
        said: str | None = None,
    ) -> Decision:
        """Return people's decision, a step of its own; else raise the wish to wait for it.

        Raises `Suspended`, `ApprovalExpiredError`, and `InvalidValueError` for arguments that
        cannot be recorded. The decision may be a denial.
        """
        text, digest = frozen_arguments(arguments, what=f"arguments of {tool or key}")

        async def find() -> StepOutcome:
            request = ApprovalRequest(
                id=self._gateway.new_id(),
                key=key,
                tool=tool,
                arguments=text,
                digest=digest,
                said=None if not said else clean_text(said, limit=SAID_CHARS_MAX),
                **attrs.asdict(gate, recurse=False),
            )
            earlier = await self._gateway.decision(self._attempt.lineage_id, key)
            if earlier is not None and earlier.waited_s is not None:
                meter = self._attempt.services.meter
                meter.approval_decided(earlier.status, waited_s=earlier.waited_s)
                if self._journal.trace is not None:
                    self._journal.trace.waited(key, earlier)
            try:
                decision = decided(request, earlier, job_id=self._lease.job_id)
            except Suspended as wish:
                if wish.requests:  # a new question
                    await self._journal.settled(key)  # noqa: ASYNC120 -- a cancellation wins
                raise
            crash_point("before_approval")
            return StepOutcome(value=decision.to_json())

        stored = await self._journal.once(
            StepKind.APPROVAL, key, given=StepInput(digest[:16], text.encode()), run=find
        )
        crash_point("after_approval")
        restore = partial(Decision.from_json, stored, asked=arguments)
        return self._journal.restored(key, restore)
