"""Effects: calls with an outside result, and what is known of one whose outcome was not recorded.

An effect's intent is in the record before the call begins, its outcome after it ended. Between the
two a pod may die: then the other side is asked what became of the call.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from cortex.domain.classification import failure_of, leaves
from cortex.domain.errors import UnavailableError
from cortex.domain.failure import Failure, FailureClass

FREEZE: Final = "effects:all"
"""The breaker that a person opens to stop new effects in all pods; what frozen jobs wait for."""
UNKNOWN_EFFECT: Final = "effect:"
"""Before an invocation's id: what a job waits for while nobody knows whether it was applied."""
QUOTA: Final = "quota:"
"""Before a quota's name: what a job waits for while that is used up."""


class EffectStatus(StrEnum):
    """Where an effect stands; all but the first two are final."""

    PENDING = "PENDING"
    """The call may be under way, or was cut off."""
    UNKNOWN = "UNKNOWN"
    """Nobody can tell whether it was applied: a person decides."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    """It was certainly not applied, and will not be tried again."""
    ABANDONED = "ABANDONED"
    """A person gave it up without knowing."""


class Resolution(StrEnum):
    """What a person says of an effect that nobody knows the outcome of."""

    APPLIED = "applied"
    NOT_APPLIED = "not-applied"
    GIVE_UP = "give-up"


@attrs.frozen(kw_only=True)
class Invocation:
    """One intended call, the same on every repetition of it.

    `id` is the idempotency key for the other side; `attempt` of the job grows with each owner, so
    that a side that keeps the highest it saw can refuse a pod that was paused.
    """

    id: UUID
    job_id: UUID
    attempt: int
    tool: str
    arguments: Mapping[str, Any]


@attrs.frozen
class Applied:
    """It happened; `result` is what the call would have returned, as plain JSON."""

    result: Any = None


@attrs.frozen
class NotApplied:
    """It certainly did not happen, and no call that is still on its way can make it happen."""


@attrs.frozen
class Unknown:
    """The other side cannot tell."""

    why: str


Verdict: TypeAlias = Applied | NotApplied | Unknown
"""What `reconcile` says of an invocation."""


# --- Whether a failed call certainly changed nothing outside.


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
