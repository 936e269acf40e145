"""From what the SDK raises to what Cortex raises: one function.

Imports the SDK at once: import this module late.
"""

import socket
from collections.abc import Iterator

import httpx2
from anthropic import APIConnectionError, APIStatusError
from attrs import evolve

from cortex.agent.model_errors import (
    BrokenAnswerError,
    CallFailure,
    ModelRejectedError,
    ModelUnavailableError,
)

TOLD_CHARS_MAX = 300
# Statuses and in-stream error types after which the same call may succeed; the rest never will.
PASSING_STATUSES = frozenset({408, 429})
PASSING_TYPES = frozenset({"api_error", "overloaded_error", "rate_limit_error", "timeout_error"})
HINTS = {
    401: "check ANTHROPIC_API_KEY",
    402: "check the account's billing",
    403: "check what the API key may do",
    404: "check the model's name and ANTHROPIC_BASE_URL",
    413: "shorten the conversation",
}
CHECK_ADDRESS = "check ANTHROPIC_BASE_URL and the network"


def translate(
    error: Exception, blank: CallFailure
) -> ModelUnavailableError | ModelRejectedError | None:
    """The error to raise from `error`, or None if it did not come from the call.

    `blank` tells of the call: model, host, usage. Everything else is taken from `error`.
    """
    match error:
        case APIStatusError():
            return _from_status(error, blank)
        case APIConnectionError() | httpx2.TransportError():
            return _from_connection(error, blank)
        case BrokenAnswerError(type="unknown_stop_reason"):
            return ModelRejectedError(evolve(blank, type=error.type), str(error))
        case BrokenAnswerError():
            hint = CHECK_ADDRESS if error.type == "not_a_stream" else None
            return ModelUnavailableError(evolve(blank, type=error.type), str(error), hint=hint)
        case httpx2.HTTPError() | httpx2.StreamError():
            failure = evolve(blank, type="malformed_answer")
            return ModelUnavailableError(failure, _one_line(str(error)))
        case _:
            return None


def _from_status(
    error: APIStatusError, blank: CallFailure
) -> ModelUnavailableError | ModelRejectedError:
    status = error.status_code
    failure = evolve(
        blank,
        type=error.type or f"http_{status}",
        status=status,
        request_id=error.request_id,
        retry_after=error.response.headers.get("retry-after"),
    )
    told = _one_line(error.api_message or error.message)
    if status == httpx2.codes.OK:  # an error event inside the stream
        passing = error.type is None or error.type in PASSING_TYPES
    else:
        passing = status in PASSING_STATUSES or httpx2.codes.is_server_error(status)
    raised = ModelUnavailableError if passing else ModelRejectedError
    return raised(failure, told, hint=HINTS.get(status))


def _from_connection(
    error: Exception, blank: CallFailure
) -> ModelUnavailableError | ModelRejectedError:
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            failure = evolve(blank, type="host_unknown")
            return ModelRejectedError(failure, "no such host", hint=CHECK_ADDRESS)
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        failure = evolve(blank, type="connect_timeout")
        return ModelUnavailableError(failure, "no connection in time", hint=CHECK_ADDRESS)
    told = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), None)
    told = told or _one_line(str(causes[-1])) or type(causes[-1]).__name__
    if any(isinstance(cause, httpx2.ConnectError) for cause in causes):
        failure = evolve(blank, type="connection_failed")
        return ModelUnavailableError(failure, told, hint=CHECK_ADDRESS)
    return ModelUnavailableError(evolve(blank, type="connection_lost"), told)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it, outermost first, exception groups included."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__


def _one_line(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= TOLD_CHARS_MAX else line[:TOLD_CHARS_MAX] + "…"
