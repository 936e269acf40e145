"""One call with an outside result: intent before, outcome after, reconciliation in between.

The intent is committed before the call begins. An attempt that finds an open intent of an earlier
one asks the other side, or repeats a call that may be repeated, or lets a person decide. Killed at
any instant, the other side sees the same invocation id at every repetition.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, get_type_hints
from uuid import UUID

import attrs
import trio

from cortex.crash_points import crash_point
from cortex.domain.canonical import digest, parse
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import (
    FREEZE,
    QUOTA,
    UNKNOWN_EFFECT,
    Applied,
    Invocation,
    NotApplied,
    Unknown,
    Verdict,
    changed_nothing,
)
from cortex.domain.errors import (
    DivergedError,
    InvalidOutputError,
    RejectedError,
    TimedOutError,
    UsageError,
)
from cortex.domain.failure import UNKNOWN
from cortex.domain.job import EffectIntent, EffectReport, IntentReply, Lease, UnknownEffect
from cortex.domain.redaction import clean_text
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.codec import decode, encode
from cortex.durable.divergence import difference, is_renamed
from cortex.durable.gates import frozen_arguments
from cortex.durable.threads import called, is_async

CALLS_MAX = 3
"""How often one attempt asks for permission: first, after a "not applied", and once more."""


class Ledger(Protocol):
    """Takes intents and outcomes: the committer."""

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for permission. Raises `LeaseLost`."""

    async def record(self, operation: EffectReport) -> None: ...


@attrs.frozen(kw_only=True)
class EffectCall:
    """A call that must happen once."""

    key: str
    """The key of its step."""
    tool: str
    arguments: str
    """Canonical JSON: exactly the arguments of the call."""
    digest: bytes
    """SHA-256 of `arguments`."""
    invoke: Callable[[Invocation], Awaitable[Any]]
    reconcile: Callable[[Invocation], Awaitable[Verdict]] | None
    """Asks the other side whether an invocation was applied."""
    is_idempotent: bool
    """The other side applies it once for each invocation id."""
    changes_nothing: bool = False
    """Only its approval is used up: on any error, nothing has happened."""
    approval_id: UUID | None = None
    """The decision that permits it."""
    is_named: bool = True
    """It is a tool's, whose name counts: that of a function may change."""
    limit_s: float = TIMEOUTS["tool_call"].default_s
    """The most seconds that it may take."""
    in_thread: Callable[..., Any] | None = None
    """The function that runs in a thread, if one does."""


@attrs.frozen
class Done:
    """The call succeeded."""

    id: UUID | None
    """None for a call that is no effect."""
    result: Any


@attrs.frozen
class NotDone:
    """The call was certainly not applied, for this reason; or it was, with an unusable result."""

    id: UUID | None
    """None if nothing was intended."""
    error: Exception
    is_applied: bool = False


async def perform(
    call: EffectCall, *, lease: Lease, ledger: Ledger, new_id: Callable[[], UUID]
) -> Done | NotDone:
    """Make the call unless it was made; its outcome is to be recorded with its step.

    Raises `Suspended` when it must wait: for a person, a quota, the end of a freeze. Raises the
    call's own error when it is unknown whether it was applied and it may be asked for again, and
    `DivergedError`, `RejectedError` for what can never go on. If it is cancelled at any point, the
    ledger determines what the next attempt does.
    """
    # Without a claim of ours the ledger says go only where nothing can have been applied.
    leave, is_first = await _leave(call, lease, ledger, new_id, is_sure=False), True
    for _ in range(CALLS_MAX):
        if isinstance(leave, Done | NotDone):
            return leave
        invocation = _invocation(call, leave, lease)
        if leave.verdict == "go":
            return await _called(call, invocation, is_first=is_first)
        verdict = await _verdict(call, invocation)
        if isinstance(verdict, Applied):
            return Done(leave.id, verdict.result)
        if isinstance(verdict, Unknown) and not call.is_idempotent:
            raise _doubt(call, leave.id, verdict.why)
        is_first = isinstance(verdict, NotApplied)
        leave = await _leave(call, lease, ledger, new_id, is_sure=True)
    raise AssertionError(f"effect {call.key!r} was certain and is no longer")


async def _leave(
    call: EffectCall,
    lease: Lease,
    ledger: Ledger,
    new_id: Callable[[], UUID],
    *,
    is_sure: bool,
) -> IntentReply | Done | NotDone:
    """Ask for permission; return it when the call may go on (`go`, `recheck`), else the end."""
    intent = EffectIntent(
        lease=lease,
        id=new_id(),
        key=call.key,
        tool=call.tool,
        arguments=call.arguments,
        digest=call.digest,
        is_sure=is_sure,
        can_reconcile=call.reconcile is not None,
        approval_id=call.approval_id,
        is_named=call.is_named,
        is_idempotent=call.is_idempotent,
    )
    answer = await ledger.intend(intent)
    recorded = answer.result or "{}"
    if answer.verdict == "diverged" and not call.is_named and is_renamed(recorded, call.arguments):
        again = attrs.evolve(intent, arguments=recorded, digest=digest(recorded))
        answer = await ledger.intend(again)
    match answer.verdict:
        case "go" | "recheck":
            return answer
        case "done":
            return Done(answer.id, None if answer.result is None else parse(answer.result))
        case "never" | "no_amount":
            return NotDone(None, _beyond_quota(call, answer))
        case "frozen":
            message = f": {answer.why}" if answer.why else ""
            raise Suspended(FREEZE, f"effects are frozen{message}", delay_s=0.0)
        case "quota":
            message = f"{call.tool} has used up {answer.quota}: {answer.used:f} of {answer.limit:f}"
            raise Suspended(f"{QUOTA}{answer.quota}", message, delay_s=answer.wait_s)
        case "abandoned":
            raise RejectedError(f"{call.tool} was given up by a person, whether applied or not")
        case "diverged":
            raise DivergedError(
                f"effect {call.key!r} was begun as another call: {_changed(call, answer)}",
                hint=f"say what became of it: cortex effects resolve {answer.id}",
            )
        case "unapproved":
            raise RejectedError(f"the approval of {call.tool} does not cover these arguments")
        case verdict:
            raise AssertionError(f"unknown verdict {verdict!r}")


def _changed(call: EffectCall, answer: IntentReply) -> str:
    changed = difference(answer.result or "{}", call.arguments)
    if call.is_named and answer.why != call.tool:
        return (
            f"{answer.why} → {call.tool}, {changed}" if changed else f"{answer.why} → {call.tool}"
        )
    return changed


def _beyond_quota(call: EffectCall, answer: IntentReply) -> RejectedError:
    if answer.verdict == "no_amount":
        return RejectedError(f"{call.tool}: quota {answer.quota} finds no amount in its arguments")
    return RejectedError(
        f"{call.tool}: {answer.amount:f} is more than quota {answer.quota} ever allows, "
        f"{answer.limit:f}"
    )


async def _called(call: EffectCall, invocation: Invocation, *, is_first: bool) -> Done | NotDone:
    """Call; `is_first`: no earlier call can have been applied, so this call's error is decisive."""
    try:
        result = await call.invoke(invocation)
        crash_point("after_call")
        return Done(invocation.id, result)
    except InvalidOutputError as error:
        is_applied = not (is_first and changed_nothing(error))
        return NotDone(invocation.id, error, is_applied=is_applied)
    except Exception as error:
        if call.changes_nothing or (is_first and changed_nothing(error)):
            return NotDone(invocation.id, error)
        if call.reconcile is None and call.is_idempotent:
            raise
        # The failure leaves open whether it was applied: ask at once.
        verdict = await _verdict(call, invocation)  # noqa: ASYNC120 -- a cancellation wins
        match verdict:
            case Applied(result):
                return Done(invocation.id, result)
            case NotApplied():
                return NotDone(invocation.id, error)
            case Unknown(why):
                if call.is_idempotent:
                    raise
                message = f"{failure_of(error).message}; {why}"
                raise _doubt(call, invocation.id, message) from error


async def _verdict(call: EffectCall, invocation: Invocation) -> Verdict:
    if call.reconcile is None:
        return Unknown("there is no way to find out whether it was applied")
    crash_point("before_reconcile")
    verdict = await call.reconcile(invocation)
    crash_point("after_reconcile")
    return verdict


def _doubt(call: EffectCall, effect_id: UUID, why: str) -> Suspended:
    message = clean_text(why)
    return Suspended(
        f"{UNKNOWN_EFFECT}{effect_id}",
        f"unknown whether {call.tool} was applied: {message}",
        delay_s=None,
        unknown=(UnknownEffect(effect_id, message),),
    )


def _invocation(call: EffectCall, leave: IntentReply, lease: Lease) -> Invocation:
    return Invocation(
        id=leave.id,
        job_id=lease.job_id,
        attempt=lease.attempt,
        tool=call.tool,
        arguments=parse(call.arguments),
    )


# --- Asking the other side about a call, by a reconcile function of user code.


LIMIT_S: Final = 30.0
"""The most that one question may take."""

Reconcile = Callable[..., Any]
"""Takes the invocation, and resources; async, or to be run in a thread."""


async def asked(
    reconcile: Reconcile, invocation: Invocation, *, limit_s: float = LIMIT_S
) -> Verdict:
    """Return a reconcile function's verdict; an invalid one counts as unknown.

    Raises transient errors, such as a refused connection, and `TimedOutError`: ask again later.
    """
    with trio.move_on_after(limit_s):
        try:
            verdict = await called(reconcile, invocation)
        except Exception as error:
            if passes(error):
                raise
            return Unknown(f"reconcile failed: {failure_of(error).message}")
        if isinstance(verdict, Applied | NotApplied | Unknown):
            return verdict
        kind = type(verdict).__name__
        return Unknown(f"reconcile returned {kind}, not Applied, NotApplied or Unknown")
    message = f"reconcile of {invocation.tool} took longer than {limit_s:g} seconds"
    raise TimedOutError(message, scope="call", limit_s=limit_s)


def passes(error: Exception) -> bool:
    """Return whether an error means that the other side cannot be asked now."""
    failure = failure_of(error)
    return failure.cls.is_transient and failure.code != UNKNOWN


def takes_invocation(function: Callable[..., Any]) -> bool:
    """Return whether a function's first parameter is annotated `Invocation`."""
    hints = getattr(function, "__annotations__", None)
    if isinstance(hints, dict) and not any(map(_may_be_invocation, hints.values())):
        return False
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
        hints = get_type_hints(function)
    except (TypeError, ValueError, NameError):  # callables without a signature, unknown names
        return False
    return first is not None and hints.get(first.name) is Invocation


def _may_be_invocation(hint: Any) -> bool:
    return hint is Invocation or isinstance(hint, str)


# --- Effects in a job's own code: a plain async function becomes a call that happens once.


NAME_CHARS_MAX: Final = 200


@attrs.frozen(kw_only=True)
class OwnEffect:
    """A function with an outside result, and its arguments."""

    key: str
    """The key of its step."""
    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    given: dict[str, Any]
    """The values of both, by the names of the function's parameters."""
    has_invocation: bool
    """The function's first parameter is filled in."""
    reconcile: Reconcile | None
    is_idempotent: bool
    timeout_s: float | None
    """None: the limit of the job's steps."""


def _check_reconcile(reconcile: Reconcile, key: str) -> None:
    """Raise `UsageError` if it cannot be called: else only a crash in a call would show that."""
    try:
        inspect.signature(reconcile).bind(object())
    except TypeError as error:
        message = f"reconcile of effect {key!r} cannot be called: {error}"
        raise UsageError(message, hint="it takes one argument, the Invocation") from error
    except ValueError:  # a callable without a signature
        return


def call_of(own: OwnEffect, limit_s: float) -> EffectCall:
    """Return the call of a function.

    Raises for an input that cannot be recorded, and `UsageError` for a wrong `reconcile`.
    """
    if own.reconcile is not None:
        _check_reconcile(own.reconcile, own.key)
    what = f"input of effect {own.key!r}"
    plain = decode(encode(own.given, what=what))
    text, digest = frozen_arguments(plain, what=what)
    return EffectCall(
        key=own.key,
        tool=own.name[-NAME_CHARS_MAX:],
        arguments=text,
        digest=digest,
        invoke=partial(_invoke, own, limit_s),
        reconcile=None if own.reconcile is None else partial(asked, own.reconcile),
        is_idempotent=own.is_idempotent,
        is_named=False,
        limit_s=limit_s,
        in_thread=None if is_async(own.function) else own.function,
    )


async def _invoke(own: OwnEffect, limit_s: float, invocation: Invocation) -> Any:
    leading = (invocation,) if own.has_invocation else ()
    with trio.move_on_after(limit_s):
        return await called(own.function, *leading, *own.args, **own.kwargs)
    message = f"effect {own.key!r} took longer than {limit_s:g} seconds"
    raise TimedOutError(message, scope="step", limit_s=limit_s)
