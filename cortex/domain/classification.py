"""Classifies errors: the one place that decides whether a failure may be tried again.

`failure_of` is a pure function of the error; its knowledge is in the tables of `failure`. It
recognises errors of libraries that this package may not import by their attributes (`status_code`,
`sqlstate`, `errno`) and by the names of their classes. The errors of a model provider's SDK are
judged by the client that is built on it: see `register_library`.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Final

import attrs

from cortex.domain.errors import CortexError, TimedOutError
from cortex.domain.failure import (
    CANCELLED,
    CODES,
    ERRNOS,
    FAMILIES,
    KINDS,
    LOOKUPS,
    SEVERITY,
    SQLSTATES,
    STATUS_FAMILIES,
    STATUSES,
    UNKNOWN,
    WRAPPERS,
    CallFailure,
    Failure,
    FailureClass,
    LibraryErrors,
)
from cortex.domain.redaction import clean_text
from cortex.domain.retry import now_of, retry_after_of, should_retry_of

# --- Examining foreign errors: members of groups, causes, attributes.


MEMBERS_MAX: Final = 1_000
"""How many members of an exception group are examined, whatever their depth."""
CAUSES_MAX: Final = 50
"""How many errors of a chain of causes are examined."""


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors inside a group in their order; for any other error, itself.

    Runs no code of the errors, whatever they override.
    """
    waiting: list[BaseException] = [error]
    members: list[BaseException] = []
    while waiting and len(members) < MEMBERS_MAX:
        each = waiting.pop()
        if issubclass(type(each), BaseExceptionGroup):
            waiting += reversed(_members_of(each))
        else:
            members.append(each)
    return members


def leading(error: BaseException) -> BaseException:
    """Return the representative error of an exception group, nested or not."""
    members = leaves(error)
    interrupts = [each for each in members if isinstance(each, KeyboardInterrupt)]
    strangers = [each for each in members if not isinstance(each, CortexError)]
    return (interrupts or strangers or members)[0]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its causes, members of groups included."""
    return islice(_chain(error), CAUSES_MAX)


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of an error; some libraries cut the chain, but keep it in args."""
    if error.__cause__ is not None:
        return error.__cause__
    return next((each for each in error.args[:1] if isinstance(each, BaseException)), None)


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute, or None if reading it fails: a property of a strange error may raise."""
    try:
        return getattr(owner, name, None)
    except BaseException:  # noqa: BLE001, ASYNC103 -- any error means that there is no such fact
        return None  # noqa: ASYNC104 -- no cancellation passes: it only reads an error


def class_name(error: BaseException) -> str:
    """Return the name of an error's class, whatever its metaclass overrides."""
    name: str = _name_of(type(error))
    return name


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        if isinstance(following, BaseExceptionGroup):
            for member in following.exceptions:
                yield from _chain(member)
        following = cause_of(following)


# ---


_SOURCE: Final = "__cortex_source__"
_members_of: Final = BaseExceptionGroup.exceptions.__get__
_name_of: Final = type.__dict__["__name__"].__get__
_OK: Final = 200
_SQLSTATE_CHARS: Final = 5
ON_TRIO: Final = (
    "asyncio does not run here: jobs run on trio. Use trio or a library that knows it, such as "
    "anyio or httpx; call one that knows only asyncio by ctx.asyncio(function, …)"
)

ASYNCIO_UNDER_TRIO: Final = (
    *("no running event loop", "no current event loop"),
    "You're within a Trio environment",
)
"""How errors begin that asyncio, or trio_asyncio for it, raises in a trio task."""


_libraries: Final[dict[str, LibraryErrors]] = {}
_kinds: Final = dict(KINDS)
_wrappers: Final = set(WRAPPERS)


def register_library(errors: LibraryErrors) -> None:
    """Have the errors of a library judged as its client says; again: replaces what it said."""
    _libraries[errors.package] = errors
    _kinds.update({f"{errors.package}.{kind}": code for kind, code in errors.kinds.items()})
    _wrappers.update(f"{errors.package}.{kind}" for kind in errors.wrappers)


def classify(error: BaseException) -> FailureClass:
    """Return the class of an error; never VALID."""
    return failure_of(error).cls


def failure_of(error: BaseException, *, now: datetime | None = None) -> Failure:
    """Classify an error. Raises nothing, however badly the error is made.

    The worst member of an exception group decides. A cause is examined only if the error itself
    says nothing. `now` (with a time zone) is for a Retry-After date in a response without a Date.
    Do not pass control flow (`Suspended`, `LeaseLost`).
    """
    return max((_judged_at_least(leaf, now) for leaf in leaves(error)), key=_badness)


def failure_of_call(facts: CallFailure, message: str) -> Failure:
    """Classify a failed model call; `message` is one line for people."""
    code = _code_of_call(facts)
    meaning = CODES[code]
    return Failure(
        cls=_obedient(meaning.cls, should_retry=facts.should_retry),
        code=code,
        message=message,
        retry_after_s=facts.retry_after_s,
        source=facts.source,
        scope=meaning.scope,
        limit_s=facts.limit_s,
        is_escalated=meaning.is_escalated,
        call_id=facts.call_id,
        is_paid=facts.has_content,
    )


def mark_source(error: BaseException, breaker: str) -> None:
    """Note the breaker behind which a call failed: the source of its failure, if that may pass."""
    with suppress(Exception):  # an error whose class refuses attributes stays without it
        setattr(error, _SOURCE, breaker)


def code_of_status(status: int) -> str | None:
    """Return the code of an HTTP status; None for 2xx, which is no failure."""
    if status // 100 == _OK // 100:
        return None
    return STATUSES.get(status) or STATUS_FAMILIES.get(status // 100, UNKNOWN)


def class_of_status(status: int) -> FailureClass:
    """Return the class of an HTTP status; VALID for 2xx."""
    code = code_of_status(status)
    return FailureClass.VALID if code is None else CODES[code].cls


def describe(error: BaseException) -> str:
    """Return one line for people that names the error and can be stored."""
    try:
        if isinstance(error, CortexError):
            return clean_text(error.message)
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001, ASYNC103 -- an error without text still has a name
        text = ""
    name = class_name(error)
    return clean_text(f"{name}: {text}" if text else name)


def name_and_text(error: BaseException) -> str:
    """Return an error's class and whole text, line breaks included, so that it can be stored."""
    try:
        text = "".join([str(error)])  # an instance of `str` itself
    except BaseException:  # noqa: BLE001, ASYNC103 -- an error without text still has a name
        text = ""
    return clean_text(f"{class_name(error)}: {text}")


# --- one error


def _judged_at_least(error: BaseException, now: datetime | None) -> Failure:
    """Classify an error that is no group; one whose own code fails meanwhile says nothing."""
    try:
        failure = _judged(error, now, set())
        source = attribute(error, _SOURCE)
        if failure.source is not None or not isinstance(source, str):
            return failure
        # A mistake of this side does not pass when the other side recovers.
        is_theirs = failure.cls.is_transient and failure.code != UNKNOWN
        return attrs.evolve(failure, source=source) if is_theirs else failure
    except BaseException:  # noqa: BLE001, ASYNC103 -- attributes and texts of errors are foreign code
        return Failure(cls=CODES[UNKNOWN].cls, code=UNKNOWN, message=describe(error))  # noqa: ASYNC104 -- no cancellation passes: it only reads an error


def _judged(error: BaseException, now: datetime | None, visited: set[int]) -> Failure:
    """Classify an error that is no group.

    `visited` bounds the walk down its causes, even in a circle.
    """
    visited.add(id(error))
    carried = attribute(error, "failure")
    if isinstance(carried, Failure):
        return carried
    if isinstance(carried, CallFailure):
        return failure_of_call(carried, describe(error))
    if isinstance(error, CortexError):
        return _of_ours(error)
    kind, library = _kind(error), _library(error)
    code = (
        (library.code_of(error) if library is not None else None)
        or _code_of_response(error)
        or _code_of_database(error)
        or _code_of_system(error, kind)
    )
    if code is None and _is_asyncio_under_trio(error):
        code = "asyncio_called"
    if code is None and kind in _wrappers:
        within = _of_cause(error, now, visited)
        if within is not None and within.code != UNKNOWN:
            return within
    code = code or _kinds.get(kind, UNKNOWN)
    meaning = CODES[code]
    return Failure(
        cls=_obedient(meaning.cls, should_retry=_should_retry(error)),
        code=code,
        message=f"{describe(error)}; {ON_TRIO}" if code == "asyncio_called" else describe(error),
        retry_after_s=_retry_after_s(error, library, now),
        scope=meaning.scope,
        is_escalated=meaning.is_escalated,
    )


def _obedient(cls: FailureClass, *, should_retry: bool | None) -> FailureClass:
    """Return the class of a failure whose server says whether a retry can help."""
    if should_retry is False and cls.is_transient:
        return FailureClass.PERMANENT
    if should_retry is True and cls is FailureClass.PERMANENT:
        return FailureClass.TRANSIENT_APP
    return cls


_OF_SCOPES: Final = {
    "connect": FailureClass.TRANSIENT_INFRA,
    "signal": FailureClass.PERMANENT,  # on record: it is the same in the next attempt
}


def _of_ours(error: CortexError) -> Failure:
    """Classify an error of our own by its family; it keeps its code."""
    meaning = next(meaning for family, meaning in FAMILIES if isinstance(error, family))
    # Each of these belongs to one family; a user's own subclass may lack even attributes.
    scope = attribute(error, "scope") if isinstance(error, TimedOutError) else None
    cls = _OF_SCOPES.get(scope, meaning.cls) if isinstance(scope, str) else meaning.cls
    return Failure(
        cls=cls,
        code=error.code,
        message=describe(error),
        retry_after_s=_seconds(attribute(error, "retry_after_s")),
        scope=scope,
        limit_s=_seconds(attribute(error, "limit_s")),
        is_escalated=meaning.is_escalated,
        raw=_raw(attribute(error, "raw")),
    )


def _seconds(value: object) -> float | None:
    """Return a time of a foreign error; None for an invalid one."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _raw(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)


def _of_cause(error: BaseException, now: datetime | None, visited: set[int]) -> Failure | None:
    """Classify the cause of an error; None if there is none, or it was classified before."""
    cause = cause_of(error)
    fresh = [leaf for leaf in leaves(cause) if id(leaf) not in visited] if cause is not None else []
    judged = [_judged(leaf, now, visited) for leaf in fresh if len(visited) < CAUSES_MAX]
    return max(judged, key=_badness, default=None)


def _badness(failure: Failure) -> tuple[int, bool, bool, bool, float]:
    """The sort key in a group: the greatest decides, the first among equals."""
    return (
        SEVERITY.index(failure.cls),
        failure.is_spent,
        failure.code != CANCELLED,
        failure.is_escalated,
        failure.retry_after_s or 0.0,
    )


# --- from an error to its code


def _code_of_call(facts: CallFailure) -> str:
    if facts.code is not None:
        return facts.code
    if facts.status is None:
        return facts.type if facts.type in CODES else UNKNOWN
    # An error inside a stream comes under the status 200.
    return code_of_status(facts.status) or "api_error"


def _code_of_response(error: BaseException) -> str | None:
    """Return the code of an error that carries an HTTP response, None for others."""
    status = attribute(error, "status_code")
    if status is None:
        status = attribute(attribute(error, "response"), "status_code")
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    return code_of_status(status)


def _code_of_database(error: BaseException) -> str | None:
    state = attribute(error, "sqlstate")
    if not isinstance(state, str) or len(state) != _SQLSTATE_CHARS:
        return None
    return SQLSTATES.get(state) or SQLSTATES.get(state[:2])


def _code_of_system(error: BaseException, kind: str) -> str | None:
    if not isinstance(error, OSError):
        return None
    number = attribute(error, "errno")
    if not isinstance(number, int) or kind == "ssl.SSLError":  # that errno is one of OpenSSL's
        return None
    return (LOOKUPS if kind == "socket.gaierror" else ERRNOS).get(number)


def _is_asyncio_under_trio(error: BaseException) -> bool:
    """Return whether asyncio or trio raised it because asyncio was called in a trio task."""
    text = error.args[0] if error.args and isinstance(error.args[0], str) else ""
    match error:
        case RuntimeError():
            return text.startswith(ASYNCIO_UNDER_TRIO)
        case TypeError():
            return text.startswith("trio.run received unrecognized yield message")
        case AttributeError():  # asyncio's own code found that its loop is None
            return _raised_in(error).startswith("asyncio.")
        case _:
            return False


def _raised_in(error: BaseException) -> str:
    """Return the name of the module whose code raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", ""))


def _kind(error: BaseException) -> str:
    """Return the row of an error in the tables: that of its class or of the nearest one above."""
    for each in type(error).__mro__:
        name = f"{str(each.__module__).partition('.')[0]}.{each.__name__}"
        if name in _kinds or name in _wrappers:
            return name
    return ""


def _library(error: BaseException) -> LibraryErrors | None:
    packages = (str(each.__module__).partition(".")[0] for each in type(error).__mro__)
    return next((_libraries[each] for each in packages if each in _libraries), None)


def _retry_after_s(
    error: BaseException, library: LibraryErrors | None, now: datetime | None
) -> float | None:
    headers = attribute(attribute(error, "response"), "headers")
    if not callable(attribute(headers, "get")):
        return None
    try:
        requested_s = retry_after_of(headers, now=now)
        if requested_s is None and library is not None:
            moment = now_of(headers, now)
            return None if moment is None else library.pause_s(error, moment)
        return requested_s
    except Exception:  # noqa: BLE001 -- not the headers of HTTP that they looked like
        return None


def _should_retry(error: BaseException) -> bool | None:
    headers = attribute(attribute(error, "response"), "headers")
    if not callable(attribute(headers, "get")):
        return None
    try:
        return should_retry_of(headers)
    except Exception:  # noqa: BLE001 -- as above
        return None
