"""Whether a failed call certainly changed nothing outside.

Only of a call that raised: what is certain may be told and tried again, all else must be asked for.
A tool that makes several calls outside gives up this knowledge: let it make one.
"""

from typing import Final

from cortex.domain.causes import leaves
from cortex.domain.classification import failure_of
from cortex.domain.errors import UnavailableError
from cortex.domain.failure import Failure, FailureClass

NOT_SENT: Final = frozenset({"connection_refused", "host_lookup_failed", "not_sent"})
"""Transient, but nobody was there to be told."""
MISFIT: Final = "tool_input"
"""Input that does not fit: no code of the tool has run."""

UNCERTAIN: Final = frozenset(
    {
        "conflict",  # 409: also what a server says while the first of two equal requests runs
        "too_early",
        "unexpected_status",  # a redirect may follow a change
        "unknown_stop_reason",
        # The machine's own, and the database's: they may come after a request was sent.
        "database_forbidden",
        "database_refused",
        "file_not_found",
        "permission_denied",
    }
)
"""Permanent, and yet no proof that nothing happened before."""


class NotSentError(UnavailableError):
    """Nobody outside was reached, so nothing can have happened there; try again later."""

    code = "not_sent"


class UnsettledError(UnavailableError):
    """It may have happened or not: the answer does not tell.

    `failure`, where given, decides the class of the failure in place of this family.
    """

    code = "unsettled"

    def __init__(
        self, message: str, *, hint: str | None = None, failure: Failure | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure


def changed_nothing(error: BaseException) -> bool:
    """Whether a call that raised this was certainly not applied.

    Of a group each member must say so. To be asked of what the tool itself raised, not of what
    followed: that its result is too large, for one.
    """
    return all(is_certain(failure_of(leaf)) for leaf in leaves(error))


def is_certain(failure: Failure) -> bool:
    """Whether the call that failed so was certainly not applied; in doubt it is not certain."""
    match failure.cls:
        case FailureClass.PERMANENT:
            return failure.code not in UNCERTAIN
        case FailureClass.BUDGET:
            return failure.code == "billing"
        case FailureClass.INVALID_OUTPUT:
            return failure.code == MISFIT
        case _:
            return failure.code in NOT_SENT or failure.scope == "connect"
