"""One run of a handler: replay what is recorded, run the rest, encode the result."""

from cortex.domain.control_flow import Suspended
from cortex.domain.errors import MisfitKind, UnfitCodeError, UsageError
from cortex.domain.job import Claim
from cortex.domain.tracing import current
from cortex.durable.attempt import Attempt, Services
from cortex.durable.codec import encode
from cortex.durable.context import Context
from cortex.durable.journal import Journal
from cortex.durable.registry import ArgumentsError, Registry


async def run_handler(
    registry: Registry, claim: Claim, journal: Journal, services: Services
) -> str:
    """Run the handler of a claim's type; return its result as JSON.

    Raises what the handler raises, and the error of a payload or a result that does not fit its
    type; `UnfitCodeError` for a type or arguments that only other code takes. Once its replay has
    diverged, that error is raised, even if the handler catches it.
    """
    current.enter(claim, services.log)
    try:
        job_type = registry.get(claim.type)
        arguments = job_type.arguments(claim.payload)
    except UsageError as error:
        raise UnfitCodeError(error.message, kind=MisfitKind.TYPE) from error
    except ArgumentsError as error:
        raise UnfitCodeError(error.message, kind=MisfitKind.ARGUMENTS) from error
    attempt = Attempt(claim, journal, services, final=job_type.final, find_type=registry.find)
    context = Context(attempt)
    try:
        handler = registry.resources.bind(job_type.handler, (context,), *arguments)
        result = await handler(context, **arguments)
        journal.check_end()
        await journal.record_deferred()
        if journal.published is not None:
            await journal.published.send(is_over=True)
    except (Exception, Suspended):
        if journal.diverged is not None:
            raise journal.diverged from None
        await journal.flush()  # noqa: ASYNC120 -- a cancellation wins
        raise
    finally:
        journal.close()
    return encode(result, what=f"result of job type {claim.type!r}")
