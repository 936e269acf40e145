"""What the errors of the Gemini API mean, without its SDK."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from cortex.agent.models.failures import is_too_long
from cortex.domain.classification import attribute
from cortex.domain.failure import PROMPT_TOO_LONG, STATUSES, LibraryErrors
from cortex.domain.retry import within_a_day

STATUS_CODES: Final[Mapping[str, str]] = {
    "DEADLINE_EXCEEDED": "gateway_timeout",
    "INTERNAL": "api_error",
    "INVALID_ARGUMENT": "invalid_request",
    "NOT_FOUND": "not_found",
    "PERMISSION_DENIED": "permission",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "UNAUTHENTICATED": "authentication",
    "UNAVAILABLE": "overloaded",
}
"""The API's names of its statuses: a 503 means that the model is overloaded."""
REASONS: Final[Mapping[str, str]] = {
    "API_KEY_EXPIRED": "authentication",
    "API_KEY_INVALID": "authentication",
    "BILLING_DISABLED": "billing",
    "CONSUMER_SUSPENDED": "account_suspended",
}
"""Reasons in the details: a wrong key is a 400."""
_DELAY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


def code_of(error: Mapping[str, Any], status: int) -> str | None:
    """Return the code of an `error` object that says more than its HTTP status; None: it doesn't.

    Inside a stream the HTTP status is 200, and the object's own `code` counts.
    """
    for detail in _details(error):
        reason = detail.get("reason")
        if isinstance(reason, str) and reason in REASONS:
            return REASONS[reason]
    listed = STATUS_CODES.get(str(error.get("status")))
    if listed is None:
        own = error.get("code")
        listed = STATUSES.get(own) if isinstance(own, int) and own != status else None
    if (listed or STATUSES.get(status)) == "invalid_request" and is_too_long(
        str(error.get("message"))
    ):
        return PROMPT_TOO_LONG
    return listed


def delay_s(error: Mapping[str, Any]) -> float | None:
    """Return the seconds of a RetryInfo."""
    for detail in _details(error):
        match = _DELAY.fullmatch(str(detail.get("retryDelay") or ""))
        if match is not None:
            return within_a_day(float(match[1]))
    return None


def error_of(details: object) -> Mapping[str, Any]:
    """Return the `error` object of an answer's JSON, which may be in a list."""
    if isinstance(details, list) and details:
        details = details[0]
    if not isinstance(details, Mapping):
        return {}
    inner = details.get("error", details)
    return inner if isinstance(inner, Mapping) else {}


def _details(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    details = error.get("details")
    for each in details if isinstance(details, list) else ():
        if isinstance(each, Mapping):
            yield each


def _code_of_error(error: BaseException) -> str | None:
    status = attribute(error, "code")
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    return code_of(error_of(attribute(error, "details")), 0) or STATUSES.get(status)


def _pause_s(error: BaseException, now: datetime) -> float | None:  # noqa: ARG001 -- lengths
    return delay_s(error_of(attribute(error, "details")))


ERRORS: Final = LibraryErrors(package="google", kinds={}, code_of=_code_of_error, pause_s=_pause_s)
"""For job code that calls the SDK itself."""
