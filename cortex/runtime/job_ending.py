"""Turns an error that a handler raised into the operation that ends its attempt.

The class of the error decides. The record keeps what is known of it, including the stack.
"""

import random
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs
import orjson
import structlog

from cortex.domain.backoff import Backoff
from cortex.domain.classification import class_name, failure_of
from cortex.domain.classification import leaves as leaves_of
from cortex.domain.control_flow import LeaseLost, Suspended, Unfit, together
from cortex.domain.errors import DivergedError, MisfitKind, UnfitCodeError
from cortex.domain.failure import FINAL, Failure, FailureClass
from cortex.domain.job import Claim, Finish, JobStatus, Misfit, Operation, Release, Suspend
from cortex.domain.redaction import clean_text, redact
from cortex.domain.retry import (
    AskPerson,
    Fail,
    RetryLater,
    TryAgain,
    UsedRetries,
    app_delay_s,
    decide,
)
from cortex.domain.waiting import PERSON

_traceback_of: Final = BaseException.__dict__["__traceback__"].__get__
"""Returns an error's traceback, also of an error that hides it."""
STACK_CHARS_MAX: Final = 16_384
POISON: Final = "poison"
PROCESS_DIED: Final = "process_died"
BROKEN_ANSWERS_FREE: Final = 2
"""A server that goes down and comes back may break that many answers of a job in a row."""

_log = structlog.get_logger(__name__)


def ending_of(
    claim: Claim,
    error: BaseException,
    *,
    backoff: Backoff,
    rng: random.Random,
    final: tuple[type[Exception], ...] = (),
) -> Operation | None:
    """Decide what an error does to its job; None: the lease is lost, touch nothing more.

    A permanent error among several overrules a job's wish to wait. `final`: errors that the
    job's type declares permanent. What this code cannot take fails nothing: see `Misfit`.
    """
    leaves = leaves_of(error)
    if any(isinstance(leaf, LeaseLost) for leaf in leaves):
        return None
    if (misfit := _misfit(claim, leaves)) is not None:
        return misfit
    failure = _worst([leaf for leaf in leaves if not isinstance(leaf, Suspended)], final)
    wishes = [leaf for leaf in leaves if isinstance(leaf, Suspended)]
    suspended = together(wishes) if wishes else None
    may_pass = failure is None or (failure.cls.is_transient and not failure.is_spent)
    if suspended is not None and may_pass:
        if _is_to_blame(claim, suspended):
            return _counted(claim, suspended, backoff, rng=rng)
        if isinstance(suspended, Unfit):
            return _handed_back(claim, suspended.kind, suspended.reason)
        return _suspend(claim, suspended)
    if failure is None:
        raise AssertionError("an error has at least one leaf")
    ending = _failed(claim, failure, backoff, rng=rng, stack=_stack(error))
    is_last = isinstance(ending, Finish)
    _log_failure(claim, error, failure, is_last=is_last)
    return ending


def _misfit(claim: Claim, leaves: Sequence[BaseException]) -> Misfit | None:
    """Return the end of an attempt whose code cannot take the job; None if it can.

    A replay that diverged after the attempt had done something new is a failure: other code would
    not recognise that.
    """
    for leaf in leaves:
        if isinstance(leaf, UnfitCodeError):
            return _handed_back(claim, leaf.kind, leaf.message)
        if isinstance(leaf, DivergedError) and leaf.is_clean:
            return _handed_back(claim, MisfitKind.STEP, leaf.message)
    return None


def _handed_back(claim: Claim, kind: MisfitKind, message: str) -> Misfit:
    error = clean_text(message)
    job_id = str(claim.lease.job_id)
    _log.info("job does not fit this code", job=job_id, type=claim.type, kind=kind, error=error)
    return Misfit(lease=claim.lease, kind=kind.value, error=error)


def _failed(
    claim: Claim, failure: Failure, backoff: Backoff, *, rng: random.Random, stack: str
) -> Operation:
    used = UsedRetries(
        attempts_spent=claim.attempts_spent,
        max_attempts=claim.max_attempts,
        retry_count=claim.retry_count,
        max_retries=claim.max_retries,
        rate_limit_count=claim.rate_limit_count,
    )
    fields = _fields(claim, failure, stack=stack)
    match decide(failure, used, backoff, rng=rng):
        case Fail():
            return Finish(lease=claim.lease, status=JobStatus.FAILED, **fields)
        case TryAgain(delay_s):
            return Release(lease=claim.lease, outcome="failed", delay_s=delay_s, **fields)
        case RetryLater(delay_s):
            return Suspend(
                lease=claim.lease,
                delay_s=delay_s,
                is_counted=True,
                is_rate_limit=failure.is_rate_limit,
                **fields,
            )
        case AskPerson():
            waiting_on = f"{PERSON}{failure.source or claim.type}"
            return Suspend(
                lease=claim.lease, delay_s=None, is_counted=False, waiting_on=waiting_on, **fields
            )


def not_judged(claim: Claim, error: BaseException, second: BaseException) -> Finish:
    """Return the end of a job whose error could not be classified, because of its own defects."""
    log = partial(_log.error, "error not classified", job=str(claim.lease.job_id))
    try:
        log(exc_info=second)
    except BaseException:  # noqa: BLE001 -- formatting runs the errors' own code
        log(no_traceback=class_name(second))
    failure = Failure(
        cls=FailureClass.PERMANENT,
        code="job_failed",
        message=f"{class_name(error)}, which could not be classified: {class_name(second)}",
    )
    return Finish(lease=claim.lease, status=JobStatus.FAILED, **_fields(claim, failure))


def out_of_time(claim: Claim) -> Finish:
    """Return the end of a job whose own limit has passed."""
    failure = Failure(
        cls=FailureClass.TRANSIENT_APP,
        code="job_timed_out",
        message=f"Job timed out after {claim.timeout_s} seconds",
        scope="job",
        limit_s=claim.timeout_s,
    )
    return Finish(lease=claim.lease, status=JobStatus.FAILED, **_fields(claim, failure))


def process_died(claim: Claim, how: str, *, has_stepped: bool, deaths_max: int) -> Finish | Release:
    """Return the end of an attempt whose own process has died; `how` is text for people.

    After `deaths_max` deaths in a row without a step in between, the job is to blame.
    """
    deaths = 1 if has_stepped else claim.process_deaths + 1
    is_poison = deaths >= deaths_max
    times = "" if deaths == 1 else f" {deaths} times in a row"
    failure = Failure(
        cls=FailureClass.PERMANENT if is_poison else FailureClass.TRANSIENT_INFRA,
        code=POISON if is_poison else PROCESS_DIED,
        message=f"its own process died{times}: {how}",
    )
    fields = _fields(claim, failure)
    if is_poison:
        return Finish(lease=claim.lease, status=JobStatus.FAILED, **fields)
    return Release(lease=claim.lease, outcome=PROCESS_DIED, is_counted=False, **fields)


def _suspend(claim: Claim, suspended: Suspended) -> Suspend:
    return Suspend(
        lease=claim.lease,
        delay_s=suspended.delay_s,
        is_counted=False,
        is_own_failure=suspended.failure is not None,
        is_broken_answer=suspended.failure is not None and suspended.failure.is_paid,
        waiting_on=suspended.waiting_on,
        error=clean_text(suspended.reason),
        requests=suspended.requests,
        awaited=suspended.awaited,
        unknown=suspended.unknown,
        waits=suspended.waits,
    )


def _is_to_blame(claim: Claim, suspended: Suspended) -> bool:
    """Return whether this is no outage: other calls succeeded, or all of its own began well.

    In an outage calls fail before any content. A call that fails in the middle of its answer again
    and again, with the pause of the breaker in between, is too long for a proxy or the server, and
    each try is paid for.

    A breaker that opened after the job's last failure had been closed in between. Both instants are
    the database's: with durations of several clocks, an outage would seem to begin now and then.
    """
    if suspended.failure is None:
        return False
    if claim.own_failure_unix_s is None:
        return False
    if suspended.failure.is_paid and claim.broken_answers >= BROKEN_ANSWERS_FREE:
        return True
    if suspended.opened_unix_s is None:
        return False
    return suspended.opened_unix_s > claim.own_failure_unix_s


def _counted(
    claim: Claim, suspended: Suspended, backoff: Backoff, *, rng: random.Random
) -> Operation:
    """Wait for the breaker, using a retry; without one left, fail by the job's own failure."""
    failure = suspended.failure
    if failure is None:
        raise AssertionError("only a failure is counted")
    fields = _fields(claim, failure)
    if claim.retry_count >= claim.max_retries:
        return Finish(lease=claim.lease, status=JobStatus.FAILED, **fields)
    pause_s = app_delay_s(backoff, claim.retry_count, rng=rng)
    return Suspend(
        lease=claim.lease,
        delay_s=max(pause_s, suspended.delay_s or 0.0),
        is_counted=True,
        is_own_failure=True,
        is_broken_answer=failure.is_paid,
        is_rate_limit=failure.is_rate_limit,
        waiting_on=suspended.waiting_on,
        **fields,
    )


def _fields(claim: Claim, failure: Failure, *, stack: str | None = None) -> dict[str, Any]:
    """The fields of a failure that the operations record."""
    fact = {
        **failure.to_json(),
        "attempt": claim.attempts_spent,
        "max": claim.max_attempts,
        "retry_count": claim.retry_count,
        "max_retries": claim.max_retries,
    }
    if stack is not None:
        fact["stack"] = stack
    return {
        "error": failure.message,
        "code": failure.code,
        "error_class": failure.cls.value,
        "error_source": failure.source,
        "fact": orjson.dumps(fact).decode(),
    }


def _worst(errors: Sequence[BaseException], final: tuple[type[Exception], ...]) -> Failure | None:
    if not errors:
        return None
    if named := next((leaf for leaf in errors if isinstance(leaf, final)), None):
        return attrs.evolve(failure_of(named), cls=FailureClass.PERMANENT, code=FINAL)
    return failure_of(errors[0] if len(errors) == 1 else BaseExceptionGroup("several", errors))


def _stack(error: BaseException) -> str:
    """The last part of the traceback; an error whose own text is unavailable has only its place."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 -- formatting runs the error's own code
        text = "".join(traceback.format_tb(_traceback_of(error)))
    return clean_text(redact(text)[-STACK_CHARS_MAX:], limit=STACK_CHARS_MAX)


def _log_failure(claim: Claim, error: BaseException, failure: Failure, *, is_last: bool) -> None:
    context: dict[str, Any] = {
        "job": str(claim.lease.job_id),
        "type": claim.type,
        "attempt": claim.lease.attempt,
        "cls": failure.cls.value,
        "error": failure.message,
    }
    if failure.is_escalated:
        context["escalated"] = True
    log = _log.error if is_last or failure.is_escalated else _log.warning
    try:
        log("attempt failed", exc_info=error, **context)
    except BaseException as second:  # noqa: BLE001 -- formatting runs the error's own code
        log("attempt failed", no_traceback=class_name(second), **context)
