"""Translates the SDK's errors into Cortex's: one function.

It only collects the facts of the failure; `cortex.domain.classification` decides their meaning. It
imports the SDK at once: import this module late.
"""

from datetime import datetime

import httpx2
from anthropic import APIConnectionError, APIStatusError
from attrs import evolve

from cortex.agent.models.client import CallLimits
from cortex.agent.models.errors import BrokenAnswerError, ModelRejectedError, ModelUnavailableError
from cortex.domain.classification import causes, failure_of, failure_of_call
from cortex.domain.failure import PROMPT_TOO_LONG, CallFailure
from cortex.domain.redaction import excerpt
from cortex.domain.retry import retry_after_of, should_retry_of

CHECK_ADDRESS = "check ANTHROPIC_BASE_URL and the network"
HINTS = {
    "authentication": "check ANTHROPIC_API_KEY",
    "billing": "check the account's billing",
    "account_suspended": "ask Anthropic's support why the account is on hold",
    "permission": "check what the API key may do",
    "not_found": "check the model's name and ANTHROPIC_BASE_URL",
    "request_too_large": "shorten the conversation",
    "connect_timeout": CHECK_ADDRESS,
    "connection_failed": CHECK_ADDRESS,
    "connection_refused": CHECK_ADDRESS,
    "host_lookup_failed": CHECK_ADDRESS,
    "host_unknown": CHECK_ADDRESS,
    "host_unreachable": CHECK_ADDRESS,
    "network_unreachable": CHECK_ADDRESS,
    "not_a_stream": CHECK_ADDRESS,
    "not_messages_api": CHECK_ADDRESS,
    "prompt_too_long": "shorten the conversation",
    "redirected": "if that host is the model's, set ANTHROPIC_BASE_URL to it",
    "tls_failed": CHECK_ADDRESS,
}
_TOO_LONG = (
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context window",
    "context length",
    "context_length_exceeded",
)
"""How the API and gateways in front of other models say that the context is full."""


def translate(
    error: Exception, blank: CallFailure, *, limits: CallLimits, now: datetime
) -> ModelUnavailableError | ModelRejectedError | None:
    """Return the error to raise from `error`, or None if it did not come from the call.

    `blank` describes the call: model, host, usage. Everything else is taken from `error`. `now` is
    for a Retry-After date in an answer without a Date.
    """
    match error:
        case APIStatusError():
            facts = _facts_of_status(error, blank, now)
            return _raised(facts, excerpt(error.api_message or error.message))
        case APIConnectionError() if (refused := _refused_redirect(error)) is not None:
            return _raised(evolve(blank, type=refused.type), str(refused))
        case APIConnectionError() | httpx2.TransportError():
            facts = evolve(blank, type=failure_of(error).code)
            return _raised(_with_limit(facts, limits), _message(error))
        case BrokenAnswerError():
            facts = evolve(blank, type=error.type)
            return _raised(_with_limit(facts, limits), str(error))
        case httpx2.HTTPError() | httpx2.StreamError():
            return _raised(evolve(blank, type="malformed_answer"), excerpt(str(error)))
        case _:
            return None


def _refused_redirect(error: Exception) -> BrokenAnswerError | None:
    """Return our own error that the SDK took for one of the connection."""
    return next((each for each in causes(error) if isinstance(each, BrokenAnswerError)), None)


def _raised(facts: CallFailure, message: str) -> ModelUnavailableError | ModelRejectedError:
    failure = failure_of_call(facts, message)
    family = ModelUnavailableError if failure.cls.is_transient else ModelRejectedError
    return family(facts, message, hint=HINTS.get(failure.code))


def _facts_of_status(error: APIStatusError, blank: CallFailure, now: datetime) -> CallFailure:
    headers = error.response.headers
    detail = error.error_code
    if detail is None and failure_of(error).code == "invalid_request":
        text = f"{error.api_message or error.message}".lower()
        detail = PROMPT_TOO_LONG if any(each in text for each in _TOO_LONG) else None
    return evolve(
        blank,
        type=error.type or f"http_{error.status_code}",
        detail=detail,
        status=error.status_code,
        request_id=error.request_id,
        retry_after=headers.get("retry-after"),
        retry_after_s=retry_after_of(headers, now=now, status=error.status_code),
        should_retry=should_retry_of(headers),
    )


def _with_limit(facts: CallFailure, limits: CallLimits) -> CallFailure:
    """Add the seconds of the limit that fired, if it was one of ours."""
    ours = {
        "connect_timeout": limits.connect_s,
        "total_timeout": limits.total_s,
        "idle_timeout": limits.idle_s,
    }
    return evolve(facts, limit_s=ours.get(facts.type))


def _message(error: Exception) -> str:
    """Return the system's own message about the connection, if it has any."""
    chain = list(causes(error))
    if any(isinstance(each, httpx2.ConnectTimeout) for each in chain):
        return "no connection in time"
    words = (each.strerror for each in chain if isinstance(each, OSError))
    system = next(filter(None, words), None)
    return excerpt(system or str(chain[-1])) or type(chain[-1]).__name__
