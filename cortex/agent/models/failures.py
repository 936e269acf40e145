"""Translates the errors of a call into Cortex's: one function for all providers.

A provider's `ErrorReader` gives the facts that only its API states; `cortex.domain.classification`
decides what they mean for the job.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import attrs

from cortex.agent.models.client import CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import BrokenAnswerError, ModelRejectedError, ModelUnavailableError
from cortex.domain.classification import causes, failure_of, failure_of_call
from cortex.domain.failure import CallFailure
from cortex.domain.redaction import excerpt
from cortex.domain.retry import now_of, retry_after_of, should_retry_of

TOO_LONG = (
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "context length",
    "context_length_exceeded",
)
"""How the APIs, and gateways in front of other models, say that the context is full."""


class Headers(Protocol):
    """Headers of a response, whatever HTTP library they come from."""

    def get(self, name: str, /) -> str | None: ...

    def __iter__(self) -> Any: ...


@attrs.frozen(kw_only=True)
class ApiError:
    """What an API says of a request that it did not answer."""

    status: int
    type: str | None
    message: str
    code: str | None
    """The client's judgement, one of `CODES`; None if the status says it all."""
    headers: Headers
    request_id: str | None = None
    pause_s: Callable[[datetime], float | None] = lambda _: None
    """Returns the seconds that it asks for by other means than Retry-After."""


@attrs.frozen(kw_only=True)
class ErrorReader:
    """Reads the errors of one provider's SDK."""

    protocol: str
    connection_errors: tuple[type[Exception], ...]
    read: Callable[[Exception], ApiError | None]
    """Returns the API's answer in an error; None: it has none."""


def translate(
    error: Exception,
    blank: CallFailure,
    *,
    reader: ErrorReader,
    endpoint: Endpoint,
    limits: CallLimits,
    now: datetime,
) -> ModelUnavailableError | ModelRejectedError | None:
    """Return the error to raise from `error`, or None if it did not come from the call.

    `blank` describes the call: model, host, usage. Everything else is taken from `error`. `now` is
    for a Retry-After date in an answer without a Date.
    """
    import httpx2  # noqa: PLC0415 -- part of the SDKs, and as slow to import

    hints = _hints(endpoint)
    if (answer := reader.read(error)) is not None:
        return _raised(_facts(answer, blank, now), excerpt(answer.message), hints)
    if isinstance(error, BrokenAnswerError):
        facts = attrs.evolve(blank, type=error.type)
        return _raised(_with_limit(facts, limits), str(error), hints)
    if isinstance(error, (httpx2.TransportError, *reader.connection_errors)):
        if (refused := _refused_redirect(error)) is not None:
            return _raised(attrs.evolve(blank, type=refused.type), str(refused), hints)
        facts = attrs.evolve(blank, type=failure_of(error).code)
        return _raised(_with_limit(facts, limits), _message(error), hints)
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
        return _raised(attrs.evolve(blank, type="malformed_answer"), excerpt(str(error)), hints)
    return None


def is_too_long(text: str) -> bool:
    """Return whether an API's message says that the context is full."""
    return any(each in text.lower() for each in TOO_LONG)


def _hints(endpoint: Endpoint) -> Mapping[str, str]:
    address = f"check {endpoint.address_from} and the network"
    connection = (
        *("connect_timeout", "connection_failed", "connection_refused", "host_lookup_failed"),
        *("host_unknown", "host_unreachable", "network_unreachable", "not_a_stream"),
        *("not_messages_api", "tls_failed"),
    )
    return {
        **dict.fromkeys(connection, address),
        "authentication": f"check {endpoint.key_from}",
        "billing": "check the account's billing",
        "account_suspended": f"ask {endpoint.vendor}'s support why the account is on hold",
        "permission": "check what the API key may do",
        "not_found": f"check the model's name and {endpoint.address_from}",
        "request_too_large": "shorten the conversation",
        "prompt_too_long": "shorten the conversation",
        "redirected": f"if that host is the model's, set {endpoint.address_from} to it",
    }


def _refused_redirect(error: Exception) -> BrokenAnswerError | None:
    """Return our own error that the SDK took for one of the connection."""
    return next((each for each in causes(error) if isinstance(each, BrokenAnswerError)), None)


def _raised(
    facts: CallFailure, message: str, hints: Mapping[str, str]
) -> ModelUnavailableError | ModelRejectedError:
    failure = failure_of_call(facts, message)
    family = ModelUnavailableError if failure.cls.is_transient else ModelRejectedError
    return family(facts, message, hint=hints.get(failure.code))


def _facts(answer: ApiError, blank: CallFailure, now: datetime) -> CallFailure:
    headers = answer.headers
    requested_s = retry_after_of(headers, now=now)
    if requested_s is None:
        requested_s = answer.pause_s(now_of(headers, now) or now)
    return attrs.evolve(
        blank,
        type=answer.type or f"http_{answer.status}",
        code=answer.code,
        status=answer.status,
        request_id=answer.request_id or blank.request_id,
        retry_after=headers.get("retry-after"),
        retry_after_s=requested_s,
        should_retry=should_retry_of(headers),
    )


def _with_limit(facts: CallFailure, limits: CallLimits) -> CallFailure:
    """Add the seconds of the limit that fired, if it was one of ours."""
    ours = {
        "connect_timeout": limits.connect_s,
        "total_timeout": limits.total_s,
        "idle_timeout": limits.idle_s,
    }
    return attrs.evolve(facts, limit_s=ours.get(facts.type))


def _message(error: Exception) -> str:
    """Return the system's own message about the connection, if it has any."""
    chain = list(causes(error))
    if any(type(each).__name__ == "ConnectTimeout" for each in chain):
        return "no connection in time"
    words = (each.strerror for each in chain if isinstance(each, OSError))
    system = next(filter(None, words), None)
    return excerpt(system or str(chain[-1])) or type(chain[-1]).__name__
