"""Describes the time limit that fired in an attempt, and the step that it interrupted.

The error identifies the limit; a limit that an outer one overtook has no effect. The attempt's
progress identifies the interrupted step.
"""

import math
from collections.abc import Sequence
from typing import Final

import trio

from cortex.domain.classification import failure_of, leaves
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import Failure
from cortex.domain.hot import hot
from cortex.domain.job import Claim, Finish, Operation, Release, StepKind, Suspend
from cortex.domain.timeouts import FinalAction, Interruption, Phase, Scope
from cortex.durable.progress import Progress, StepUnderWay, timed_out_by

PHASES: Final = {
    StepKind.MODEL: Phase.MODEL,
    StepKind.TOOL: Phase.TOOL,
    StepKind.STEP: Phase.STEP,
    StepKind.EFFECT: Phase.EFFECT,
    StepKind.APPROVAL: Phase.STEP,
    StepKind.MESSAGE: Phase.STEP,
    StepKind.PATCH: Phase.STEP,
    StepKind.EMIT: Phase.STEP,
    StepKind.CHILD: Phase.STEP,
    StepKind.FIRST: Phase.STEP,
}
SCOPES_IN_JOB: Final = frozenset(Scope) - {Scope.JOB}
ACTIONS: Final = {
    Finish: FinalAction.FAILED,
    Release: FinalAction.RELEASED,
    Suspend: FinalAction.RETRY,
}


@hot(eq=False)
class Attempt:
    """An attempt that runs here, and its progress."""

    claim: Claim
    progress: Progress
    began: float
    """Trio's clock."""


def of_job(attempt: Attempt, *, deadline: float) -> Interruption:
    """The job's own limit has ended it, at or after `deadline` by trio's clock."""
    limit_s = float(attempt.claim.timeout_s)
    return _interruption(
        attempt,
        Scope.JOB,
        limit_s,
        attempt.progress.cut_since(deadline),
        elapsed_s=limit_s + max(0.0, trio.current_time() - deadline),
        action=FinalAction.FAILED,
    )


def of_error(attempt: Attempt, error: BaseException, operation: Operation) -> Interruption | None:
    """The limit for which a handler failed, or waits for a breaker; None if it was none.

    `operation` is the decision about the error.
    """
    is_wish = isinstance(operation, Suspend) and operation.code is None
    timeouts = [
        timed_out_by(leaf) for leaf in leaves(error) if isinstance(leaf, Suspended) is is_wish
    ]
    timed_out = next(filter(None, timeouts), None)
    failure = None if is_wish else failure_of(error)
    steps = attempt.progress.cut_since(-math.inf)
    if timed_out is not None and (failure is None or failure.scope == timed_out.failure.scope):
        failure, steps = timed_out.failure, [timed_out.step]
    if failure is None:
        return None
    return of_call(attempt, failure, steps, action=ACTIONS[type(operation)])


def of_call(
    attempt: Attempt, failure: Failure, steps: Sequence[StepUnderWay], *, action: FinalAction
) -> Interruption | None:
    """A limit inside the job has ended these steps, or a call in them; None if it was no limit."""
    limit = _limit(failure)
    if limit is None:
        return None
    scope, limit_s = limit
    elapsed_s = max(limit_s, _elapsed_s(scope, steps))
    return _interruption(attempt, scope, limit_s, steps, elapsed_s=elapsed_s, action=action)


def _limit(failure: Failure) -> tuple[Scope, float] | None:
    """The scope and the seconds; None if the error has none, or has invalid ones of its own.

    Only Cortex ends a job for the job's limit.
    """
    scope, limit_s = failure.scope, failure.limit_s
    if not isinstance(scope, str) or not isinstance(limit_s, int | float):
        return None
    if scope not in SCOPES_IN_JOB or not 0 <= limit_s < math.inf:
        return None
    return Scope(scope), float(limit_s)


def _elapsed_s(scope: Scope, steps: Sequence[StepUnderWay]) -> float:
    """Seconds since the scope began, as far as known: for a silence, only its limit is known."""
    if not steps or scope is Scope.IDLE:
        return 0.0
    began = steps[0].began
    if scope in (Scope.CALL, Scope.CONNECT) and steps[0].answer.call_began is not None:
        began = steps[0].answer.call_began
    return trio.current_time() - began


def _interruption(
    attempt: Attempt,
    scope: Scope,
    limit_s: float,
    steps: Sequence[StepUnderWay],
    *,
    elapsed_s: float,
    action: FinalAction,
) -> Interruption:
    """Describe an interruption; of several steps that were cut at once, name the first.

    Changed files count from the start of the first of these steps, except files older than the last
    checkpoint: a parallel step that is committed may have written those.
    """
    progress, step = attempt.progress, steps[0] if steps else None
    if step is not None:
        step.scopes.append(scope)
        began = min(each.began for each in steps)
    else:
        began = attempt.began if progress.checkpoint_at is None else progress.checkpoint_at
    now = trio.current_time()
    settled = began if progress.checkpoint_at is None else max(began, progress.checkpoint_at)
    return Interruption(
        lease=attempt.claim.lease,
        scope=scope,
        limit_s=limit_s,
        elapsed_s=elapsed_s,
        phase=Phase.HANDLER if step is None else PHASES[step.kind],
        step_key=None if step is None else step.key,
        step_elapsed_s=now - began,
        unsettled_s=now - settled,
        checkpoint_seq=progress.checkpoint_seq,
        checkpoint_key=progress.checkpoint_key,
        retry_count=attempt.claim.retry_count,
        final_action=action,
        nth=1 if step is None else step.scopes.count(scope),
        partial_text=None if step is None else step.answer.text,
    )
