"""What went wrong, as one value: its class decides what happens next."""

from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from cortex.domain.model import Usage
from cortex.domain.redaction import clean_text


class FailureClass(StrEnum):
    """How the outcome of a call or of a job's code is judged."""

    VALID = "VALID"
    TRANSIENT_INFRA = "TRANSIENT_INFRA"
    TRANSIENT_APP = "TRANSIENT_APP"
    PERMANENT = "PERMANENT"
    INVALID_OUTPUT = "INVALID_OUTPUT"
    BUDGET = "BUDGET"

    @property
    def is_transient(self) -> bool:
        """The same call may succeed later; only these count as failures of a dependency."""
        return self in (FailureClass.TRANSIENT_INFRA, FailureClass.TRANSIENT_APP)


RAW_CHARS_MAX: Final = 65_536
"""What is kept of an invalid output."""


@frozen(kw_only=True)
class Failure:
    """One failure in the words of the record."""

    cls: FailureClass
    code: str
    """Stable, lower case: rate_limit, overloaded, connect_timeout, idle_timeout …"""
    message: str
    """One line for people."""
    retry_after_s: float | None = None
    """What the server asked for, if it did."""
    source: str | None = None
    """Name of what failed, as its breaker is named: llm:NAME, tool:NAME, http:HOST."""
    scope: str | None = None
    """Which limit fired, for a time-out: job, step, call, connect or idle."""
    limit_s: float | None = None
    is_escalated: bool = False
    """A person must be told at once: bad credentials, a suspended account."""
    raw: str | None = None
    """What came instead of a valid output, for INVALID_OUTPUT."""

    @property
    def is_rate_limit(self) -> bool:
        """The server said that it was asked too often."""
        return self.code == "rate_limit"

    def to_json(self) -> dict[str, Any]:
        """What the record keeps of it besides its code and source; the unknown is left out."""
        known = {
            "class": self.cls.value,
            "message": self.message,
            "scope": self.scope,
            "limit_s": self.limit_s,
            "retry_after_s": self.retry_after_s,
            "escalated": self.is_escalated or None,
            "raw": None if self.raw is None else clean_text(str(self.raw), limit=RAW_CHARS_MAX),
        }
        return {name: value for name, value in known.items() if value is not None}


@frozen(kw_only=True)
class CallFailure:
    """The facts of a failed model call, not yet judged.

    `type` is the API's own `error.type` where it gave one, else one of our codes (connect_timeout,
    ended_early …), else http_<status>. `detail` is the API's own code for the cause, which few
    errors have. `status` is that of the HTTP response (200 when the error came inside the stream),
    None without one. `retry_after` is the header as sent, `retry_after_s` what it means. `limit_s`
    is the limit that fired. `usage` is what had been billed when it broke off.
    """

    model: str
    host: str
    type: str
    detail: str | None = None
    status: int | None = None
    request_id: str | None = None
    retry_after: str | None = None
    retry_after_s: float | None = None
    limit_s: float | None = None
    usage: Usage = field(factory=Usage)

    @property
    def source(self) -> str:
        """The name of its circuit breaker."""
        return f"llm:{self.model}"

    def line(self, told: str) -> str:
        """One line that names the model, the host, what went wrong and the request."""
        status = "" if self.status in (None, 200) else f"{self.status} "
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"model {self.model!r} at {self.host}: {status}{self.type}: {told}{request}"
