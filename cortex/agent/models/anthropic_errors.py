"""What the errors of the Messages API mean, without its SDK."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cortex.agent.models.failures import Headers, is_too_long
from cortex.domain.classification import attribute
from cortex.domain.failure import PROMPT_TOO_LONG, STATUSES, LibraryErrors
from cortex.domain.retry import within_a_day

TYPES: Final[Mapping[str, str]] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "request_too_large",
    "rate_limit_error": "rate_limit",
    "api_error": "api_error",
    "timeout_error": "gateway_timeout",
    "overloaded_error": "overloaded",
}
"""The API's error types: they decide when the error comes inside a stream."""
CAUSES: Final[Mapping[str, str]] = {
    "contract_spend_limit_reached": "billing",
    "enforced_spend_limit_reached": "billing",
    "linked_organization_billing_unavailable": "billing",
    "linked_organization_spend_limit_reached": "billing",
    "organization_on_hold": "account_suspended",
}
"""Causes named by the API that are more specific than its status: a spent limit is a 429."""
_OK: Final = 200
_TOO_MANY_REQUESTS: Final = 429
_RESET: Final = re.compile(r"anthropic-ratelimit-([a-z-]{1,40})-reset")


def code_of(status: int, *, type_: object, cause: object, message: str = "") -> str | None:
    """Return the code of an error that says more than its status; None: it does not."""
    if isinstance(cause, str) and cause in CAUSES:
        return CAUSES[cause]
    listed = TYPES.get(type_) if isinstance(type_, str) else None
    if listed == "billing":
        return listed
    if STATUSES.get(status) == "invalid_request" and is_too_long(message):
        return PROMPT_TOO_LONG
    is_in_stream = status // 100 == _OK // 100 and isinstance(type_, str)
    return (listed or "api_error") if is_in_stream else None


def until_reset(headers: Headers, now: datetime) -> float | None:
    """Return the seconds until the limits that are used up have room again.

    If the server does not say which ones are, until the first one has.
    """
    exhausted: list[float] = []
    others: list[float] = []
    for name, moment in _resets(headers):
        left = headers.get(f"anthropic-ratelimit-{name}-remaining")
        is_exhausted = left is not None and left.strip() == "0"
        (exhausted if is_exhausted else others).append(max(0.0, (moment - now).total_seconds()))
    if exhausted:
        return within_a_day(max(exhausted))
    return within_a_day(min(others)) if others else None


def _resets(headers: Headers) -> Iterator[tuple[str, datetime]]:
    for name in headers:
        match = _RESET.fullmatch(name.lower())
        moment = None if match is None else _moment(headers.get(name) or "")
        if match is not None and moment is not None:
            yield match[1], moment


def _moment(value: str) -> datetime | None:
    """Return the instant of an RFC 3339 date, or of seconds since 1970; None if it is invalid."""
    try:
        if value.isascii() and value.isdecimal():
            return datetime.fromtimestamp(int(value), UTC)
        moment = datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _code_of_error(error: BaseException) -> str | None:
    status = attribute(error, "status_code")
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    return code_of(
        status,
        type_=attribute(error, "type"),
        cause=attribute(error, "error_code"),
        message=str(attribute(error, "api_message") or ""),
    )


def _pause_s(error: BaseException, now: datetime) -> float | None:
    response: Any = attribute(error, "response")
    if attribute(response, "status_code") != _TOO_MANY_REQUESTS:
        return None
    return until_reset(response.headers, now)


ERRORS: Final = LibraryErrors(
    package="anthropic",
    kinds={
        "APITimeoutError": "timed_out",
        "APIConnectionError": "connection_failed",
        "APIResponseValidationError": "malformed_answer",
        "CredentialsError": "authentication",
    },
    wrappers=frozenset({"APIConnectionError", "APITimeoutError"}),
    code_of=_code_of_error,
    pause_s=_pause_s,
)
"""For job code that calls the SDK itself."""
