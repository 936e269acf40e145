"""Why a model call gave no answer."""

from typing import Any

from attrs import field, frozen

from cortex.domain.errors import RejectedError, UnavailableError
from cortex.domain.usage import Usage


@frozen(kw_only=True)
class CallFailure:
    """The facts of a failed call, for the record and for whoever decides about a retry.

    `type` is the API's own `error.type` where it gave one, else one of ours: connection_failed,
    host_unknown, connect_timeout, total_timeout, idle_timeout, connection_lost, ended_early,
    malformed_answer, not_a_stream, unknown_stop_reason, http_<status>.
    `status` is that of the HTTP response (200 when the error came inside the stream), None without
    one. `retry_after` is the header as sent. `usage` is what had been billed when it broke off.
    """

    model: str
    host: str
    type: str
    status: int | None = None
    request_id: str | None = None
    retry_after: str | None = None
    usage: Usage = field(factory=Usage)

    def line(self, told: str) -> str:
        """One line that names the model, the host, what went wrong and the request."""
        status = "" if self.status in (None, 200) else f"{self.status} "
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"model {self.model!r} at {self.host}: {status}{self.type}: {told}{request}"


class ModelUnavailableError(UnavailableError):
    """The model gave no complete answer; the same call may succeed later."""

    code = "model_unavailable"

    def __init__(self, failure: CallFailure, told: str, *, hint: str | None = None) -> None:
        super().__init__(failure.line(told), hint=hint)
        self.failure = failure


class ModelRejectedError(RejectedError):
    """The model's API refuses this call and will refuse it again."""

    code = "model_rejected"

    def __init__(self, failure: CallFailure, told: str, *, hint: str | None = None) -> None:
        super().__init__(failure.line(told), hint=hint)
        self.failure = failure


class BrokenAnswerError(Exception):
    """The stream is no complete answer; `type` is that of the `CallFailure` it becomes."""

    def __init__(self, type_: str, told: str) -> None:
        super().__init__(told)
        self.type = type_


class ErrorEventError(Exception):
    """The API reported an error inside the stream; `body` is the event."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("error")))
        self.body = body
