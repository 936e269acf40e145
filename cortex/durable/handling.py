"""One run of a handler: replay what is recorded, run the rest, encode the result."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from cortex.domain.control_flow import Suspended
from cortex.domain.errors import MisfitKind, UnfitCodeError, UsageError
from cortex.domain.hot import hot
from cortex.domain.job import Claim, OpenEffect, Past, Step
from cortex.domain.tracing import current
from cortex.durable.attempt import Services
from cortex.durable.codec import encode
from cortex.durable.context import Context
from cortex.durable.journal import NO_PAST, Journal, LeaveRequest, Recorder
from cortex.durable.registry import ArgumentsError, Registry
from cortex.durable.step_scope import StepScope


@hot(kw_only=True)
class Recorded:
    """The record of a job when an attempt begins."""

    steps: Sequence[Step]
    effects: Sequence[OpenEffect]
    """Those that have begun and whose steps are not recorded."""
    recall: Callable[[str], Awaitable[str | None]] | None
    """Returns the recorded input of the step with a key."""
    past: Past = NO_PAST

    def journal(
        self,
        claim: Claim,
        recorder: Recorder,
        leave: LeaveRequest,
        step_scope: StepScope | None = None,
    ) -> Journal:
        """Return the journal of an attempt that begins with this record."""
        return Journal(
            claim.lease,
            recorder,
            self.steps,
            effects=self.effects,
            past=self.past,
            recall=self.recall,
            leave=leave,
            step_scope=step_scope,
        )


NOTHING_RECORDED: Final = Recorded(steps=(), effects=(), recall=None)


async def run_handler(
    registry: Registry, claim: Claim, journal: Journal, services: Services
) -> str:
    """Run the handler of a claim's type; return its result as JSON.

    Raises what the handler raises, and the error of a payload or a result that does not fit its
    type; `UnfitCodeError` for a type or arguments that only other code takes. Once its replay has
    diverged, that error is raised, even if the handler catches it.
    """
    current.enter(claim)
    try:
        job_type = registry.get(claim.type)
        arguments = job_type.arguments(claim.payload)
    except UsageError as error:
        raise UnfitCodeError(error.message, kind=MisfitKind.TYPE) from error
    except ArgumentsError as error:
        raise UnfitCodeError(error.message, kind=MisfitKind.ARGUMENTS) from error
    context = Context(claim, journal, services, final=job_type.final)
    try:
        handler = registry.resources.bind(job_type.handler, (context,), *arguments)
        result = await handler(context, **arguments)
        journal.check_end()
        await journal.record_deferred()
    except (Exception, Suspended):
        if journal.diverged is not None:
            raise journal.diverged from None
        await journal.flush()  # noqa: ASYNC120 -- a cancellation wins
        raise
    finally:
        journal.close()
    return encode(result, what=f"result of job type {claim.type!r}")
