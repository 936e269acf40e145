"""What the errors of OpenAI's APIs, and of servers compatible with them, mean; without the SDK."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cortex.agent.models.failures import Headers, is_too_long
from cortex.domain.classification import attribute
from cortex.domain.failure import PROMPT_TOO_LONG, STATUSES, LibraryErrors
from cortex.domain.retry import within_a_day

CODES: Final[Mapping[str, str]] = {
    "account_deactivated": "account_suspended",
    "billing_hard_limit_reached": "billing",
    "billing_not_active": "billing",
    "context_length_exceeded": PROMPT_TOO_LONG,
    "insufficient_quota": "billing",
    "invalid_api_key": "authentication",
    "model_not_found": "not_found",
}
"""Codes that are more specific than the status: an account without credit is a 429."""
IN_STREAM: Final[Mapping[str, str]] = {
    **CODES,
    "invalid_prompt": "invalid_request",
    "invalid_request_error": "invalid_request",
    "overloaded": "overloaded",
    "rate_limit_exceeded": "rate_limit",
    "server_error": "api_error",
    "server_overloaded": "overloaded",
    "slow_down": "overloaded",
}
"""Codes and types of errors that come inside a stream. Those about an image or a policy are
`refused`."""
_REFUSED: Final = re.compile(r".*(image|policy|moderation).*")
_TRANSIENT_STATUS: Final = 500
_TOO_MANY_REQUESTS: Final = 429
_RESET: Final = re.compile(r"x-ratelimit-reset-([a-z-]{1,40})")
_PARTS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def code_of(status: int, *, code: object, type_: object, message: str) -> str | None:
    """Return the code of an HTTP error that says more than its status; None: it does not."""
    for word in (code, type_):
        if isinstance(word, str) and word in CODES:
            return CODES[word]
    is_invalid = STATUSES.get(status) == "invalid_request"
    return PROMPT_TOO_LONG if is_invalid and is_too_long(message) else None


def code_in_stream(*, code: object, type_: object, message: str) -> str:
    """Return the code of an error that came inside a stream. Gateways put a status there."""
    if isinstance(code, int) and not isinstance(code, bool):
        return STATUSES.get(code) or ("api_error" if code >= _TRANSIENT_STATUS else "refused")
    for word in (code, type_):
        if isinstance(word, str) and word in IN_STREAM:
            found = IN_STREAM[word]
            is_too_much = found == "invalid_request" and is_too_long(message)
            return PROMPT_TOO_LONG if is_too_much else found
    if isinstance(code, str) and _REFUSED.fullmatch(code):
        return "refused"
    return "api_error"


def until_reset(headers: Headers) -> float | None:
    """Return the seconds until the limits that are used up have room again.

    If the server does not say which ones are, until the first one has.
    """
    exhausted: list[float] = []
    others: list[float] = []
    for name in headers:
        match = _RESET.fullmatch(name.lower())
        length_s = None if match is None else _length_s(headers.get(name) or "")
        if match is None or length_s is None:
            continue
        left = headers.get(f"x-ratelimit-remaining-{match[1]}")
        (exhausted if left is not None and left.strip() == "0" else others).append(length_s)
    if exhausted:
        return within_a_day(max(exhausted))
    return within_a_day(min(others)) if others else None


def _length_s(text: str) -> float | None:
    """Return the seconds in a length such as 6m0s or 20ms; None if it is invalid."""
    text = text.strip()
    parts = _PARTS.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _code_of_error(error: BaseException) -> str | None:
    status = attribute(error, "status_code")
    code, type_ = attribute(error, "code"), attribute(error, "type")
    message = str(attribute(error, "message") or "")
    if isinstance(status, int) and not isinstance(status, bool):
        return code_of(status, code=code, type_=type_, message=message)
    if type(error).__name__ == "APIError":  # how the SDK raises an error inside a stream
        return code_in_stream(code=code, type_=type_, message=message)
    return None


def _pause_s(error: BaseException, now: datetime) -> float | None:  # noqa: ARG001 -- lengths
    response: Any = attribute(error, "response")
    if attribute(response, "status_code") != _TOO_MANY_REQUESTS:
        return None
    return until_reset(response.headers)


ERRORS: Final = LibraryErrors(
    package="openai",
    kinds={
        "APITimeoutError": "timed_out",
        "APIConnectionError": "connection_failed",
        "APIResponseValidationError": "malformed_answer",
        "LengthFinishReasonError": "invalid_request",
        "OAuthError": "authentication",
    },
    wrappers=frozenset({"APIConnectionError", "APITimeoutError"}),
    code_of=_code_of_error,
    pause_s=_pause_s,
)
"""For job code that calls the SDK itself."""
