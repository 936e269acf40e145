"""Errors of model calls without an answer."""

from typing import Any

from cortex.domain.errors import RejectedError, UnavailableError, UsageError
from cortex.domain.failure import CallFailure


class ModelUnavailableError(UnavailableError):
    """The model gave no complete answer; the same call may succeed later.

    `failure` holds the facts: they, and not this family, decide the class of the failure.
    """

    code = "model_unavailable"

    def __init__(self, failure: CallFailure, message: str, *, hint: str | None = None) -> None:
        super().__init__(failure.line(message), hint=hint)
        self.failure = failure


class ModelRejectedError(RejectedError):
    """The model's API refuses this call and will refuse it again."""

    code = "model_rejected"

    def __init__(self, failure: CallFailure, message: str, *, hint: str | None = None) -> None:
        super().__init__(failure.line(message), hint=hint)
        self.failure = failure


class ModelNotSetUpError(UsageError):
    """This pod has no usable key, or no package, for the model."""


class BrokenAnswerError(Exception):
    """The stream is no complete answer; `type` is that of the resulting `CallFailure`."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_


class ErrorEventError(Exception):
    """The API reported an error inside the stream; `body` is the event, below `headers`."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("error")))
        self.body = body
        self.headers: Any = {}
