"""Tool calls: checked, approved if necessary, made once; their failures recorded or raised."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Invocation
from cortex.domain.errors import ApprovalExpiredError, InvalidOutputError, RejectedError, UsageError
from cortex.durable.attempt import Attempt, EffectTerms, Planner, ToolCall, ToolPlan
from cortex.durable.effects import Done, EffectCall, NotDone
from cortex.durable.gates import Decision, Gate, frozen_arguments, refused
from cortex.durable.outside import Outside
from cortex.durable.step_outcome import StepOutcome

OnError = Callable[[Exception], Any]


async def call_tool(
    attempt: Attempt,
    outside: Outside,
    call: ToolCall,
    on_error: OnError | None,
    *,
    planner: Planner | None = None,
) -> StepOutcome:
    """Make a call once; a failure is raised, or recorded as the result of `on_error`.

    `planner` plans a call that is none of the pod's tools.

    An effect whose outcome is unknown is never reported to the model: the other side is asked, the
    call is repeated under the same id, or it waits for a person.
    """
    planner = attempt.services.tools.plan if planner is None else planner
    if attempt.journal.has_begun(call.key) or attempt.journal.has_asked(call.gate_key):
        call = attrs.evolve(call, computed=frozenset())  # it has fitted the code that went before
    ended = await _ended(attempt, outside, call, planner)
    if isinstance(ended, Done):
        return await outside.outcome(call.key, ended)
    if on_error is None:
        await outside.report(ended)
        raise ended.error
    try:
        result = on_error(ended.error)
    except Exception:
        await outside.report(ended)  # noqa: ASYNC120 -- a cancellation wins
        raise
    failure = attrs.evolve(failure_of(ended.error), source=f"tool:{call.tool}")
    await attempt.services.facts.failed(
        await attempt.caller(call.key), failure, resolution="reported to the model"
    )
    return StepOutcome(value=result, effect=outside.effect_outcome(ended))


async def refusing(error: Exception, attempt: Attempt, call: ToolCall) -> ToolPlan:
    """Plan a call that must not run: raise the error.

    Only a call that an earlier attempt has begun is planned, so that its fate is found out; it is
    not called again.
    """
    journal = attempt.journal
    journal.forget(call.gate_key)
    if not journal.has_begun(call.key):
        raise error
    plan = await attempt.services.tools.plan(attempt, call)

    async def refuse(_: Invocation | None) -> Any:
        raise error

    return attrs.evolve(plan, gate=None, run=refuse)


async def _ended(
    attempt: Attempt, outside: Outside, call: ToolCall, planner: Planner
) -> Done | NotDone:
    try:
        plan = await planner(attempt, call)
    except (RejectedError, InvalidOutputError, UsageError) as error:
        return NotDone(None, error)
    if plan.gate is None:
        return await _made(outside, call, plan, None)
    gate = plan.gate
    decision = await _decision(outside, call, plan, gate)
    if isinstance(decision, NotDone):
        return decision
    if decision.was_edited:
        try:
            edited = attrs.evolve(call, arguments=decision.arguments, computed=frozenset())
            plan = await planner(attempt, edited)
        except (RejectedError, InvalidOutputError, UsageError) as error:
            return NotDone(None, error)
        if plan.gate is not None and not gate.covers(plan.gate):
            return NotDone(None, _beyond(call, decision, plan.gate))
    return await _made(outside, call, plan, decision)


def _beyond(call: ToolCall, decision: Decision, gate: Gate) -> RejectedError:
    """The error of a call that was edited into one that needs more than the decision."""
    people = f"{gate.people} people" if gate.people > 1 else "a person"
    return RejectedError(
        f"{call.tool} was not called: as {decision.by} approved it, with other arguments than "
        f"were asked for, it is {gate.risk} and {people} must be asked for that",
        hint="call it with those arguments to have people asked",
    )


async def _decision(
    outside: Outside, call: ToolCall, plan: ToolPlan, gate: Gate
) -> Decision | NotDone:
    """Ask people; a denial is reported or raised, as the gate says."""
    try:
        decision = await outside.ask(
            gate, call.gate_key, tool=call.tool, arguments=plan.arguments, said=call.said
        )
    except ApprovalExpiredError as error:
        if gate.on_expiry == "fail":
            raise
        return NotDone(None, error)
    except RejectedError as error:  # arguments that cannot be recorded
        return NotDone(None, error)
    if decision.is_approved:
        return decision
    if gate.on_deny == "fail":
        raise refused(decision, call.tool)
    return NotDone(None, refused(decision, call.tool))


async def _made(
    outside: Outside, call: ToolCall, plan: ToolPlan, decision: Decision | None
) -> Done | NotDone:
    if plan.effect is None and decision is None:
        try:
            return Done(
                None, await plan.guard(partial(outside.call_tool, call.tool, call.key, plan))
            )
        except Exception as error:  # noqa: BLE001 -- reported or raised unchanged
            return NotDone(None, error)
    try:
        effect = _effect(call, plan, decision)
    except RejectedError as error:
        return NotDone(None, error)
    ended: Done | NotDone | None = None

    async def perform() -> Done | NotDone:
        nonlocal ended
        ended = await outside.perform(effect)
        return ended

    try:
        made: Done | NotDone = await plan.guard(perform)
    except Suspended:
        if isinstance(ended, NotDone):  # its failure opened the breaker, but its outcome is certain
            await outside.report(ended)  # noqa: ASYNC120 -- a cancellation wins
        raise
    return made


def _effect(call: ToolCall, plan: ToolPlan, decision: Decision | None) -> EffectCall:
    """Return the call; raises `RejectedError` for arguments that cannot be recorded."""
    # Exactly the approved arguments, although defaults are filled in before it runs.
    arguments = plan.arguments if decision is None else decision.arguments
    text, digest = frozen_arguments(arguments, what=f"arguments of {call.tool}")
    # An intent uses the decision up; a call that changes nothing may be repeated.
    terms = plan.effect or EffectTerms(is_idempotent=True, reconcile=None)
    return EffectCall(
        key=call.key,
        tool=call.tool,
        arguments=text,
        digest=digest,
        invoke=plan.run,
        reconcile=terms.reconcile,
        is_idempotent=terms.is_idempotent,
        changes_nothing=plan.effect is None,
        approval_id=None if decision is None else decision.approval_id,
        limit_s=plan.limit_s,
    )
