"""Effects: calls with an outside result, and the possible fates of unrecorded ones.

An effect's intent is recorded before the call begins, its outcome after it ended. If a pod dies in
between, the other side is asked about the call.
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
"""The breaker that a person opens to stop new effects in all pods; frozen jobs wait for it."""
UNKNOWN_EFFECT: Final = "effect:"
"""Prefix of an invocation's id: jobs wait for it while its outcome is unknown."""
QUOTA: Final = "quota:"
"""Prefix of a quota's name: jobs wait for it while it is used up."""


class EffectStatus(StrEnum):
    """The state of an effect; all but the first two are final."""

    PENDING = "PENDING"
    """The call may be in flight, or was cut off."""
    UNKNOWN = "UNKNOWN"
    """It is unknown whether it was applied: a person decides."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    """It was certainly not applied, and will not be tried again."""
    ABANDONED = "ABANDONED"
    """A person gave it up without knowing its outcome."""


class Resolution(StrEnum):
    """A person's decision about an effect of unknown outcome."""

    APPLIED = "applied"
    NOT_APPLIED = "not-applied"
    GIVE_UP = "give-up"


@attrs.frozen(kw_only=True)
class Invocation:
    """One intended call, the same on every repetition of it.

    `id` is the idempotency key for the other side; `attempt` of the job grows with each owner, so
    that an other side that keeps the highest one can refuse a pod that was paused.
    """

    id: UUID
    job_id: UUID
    attempt: int
    tool: str
    arguments: Mapping[str, Any]


@attrs.frozen
class Applied:
    """It was applied; `result` is the call's result, as plain JSON."""

    result: Any = None


@attrs.frozen
class NotApplied:
    """It was certainly not applied, and no call still in flight can apply it."""


@attrs.frozen
class Unknown:
    """The other side cannot answer."""

    why: str


Verdict: TypeAlias = Applied | NotApplied | Unknown
"""A verdict of `reconcile` about an invocation."""


# --- Whether a failed call certainly changed nothing outside.


NOT_SENT: Final = frozenset({"connection_refused", "host_lookup_failed", "not_sent"})
"""Transient, but the other side was never reached."""
MISFIT: Final = "tool_input"
"""Unfit input: no code of the tool has run."""

UNCERTAIN: Final = frozenset(
    {
        "conflict",  # 409: also what a server says while the first of two equal requests runs
        "too_early",
        "unexpected_status",  # a redirect may follow a change
        # Errors of the machine and the database: they may come after a request was sent.
        "database_forbidden",
        "database_refused",
        "file_not_found",
        "permission_denied",
    }
)
"""Permanent, and yet no proof that nothing happened before."""


class NotSentError(UnavailableError):
    """The other side was not reached, so nothing can have happened there; try again later."""

    code = "not_sent"


class UnsettledError(UnavailableError):
    """It may or may not have been applied: the answer leaves it open.

    `failure`, if given, decides the class of the failure instead of this family.
    """

    code = "unsettled"

    def __init__(
        self, message: str, *, hint: str | None = None, failure: Failure | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure


def changed_nothing(error: BaseException) -> bool:
    """Return whether a call that raised this was certainly not applied.

    Every member of a group must agree. Pass the tool's own error, not a later one, such as for a
    result that is too large.
    """
    return all(is_certain(failure_of(leaf)) for leaf in leaves(error))


def is_certain(failure: Failure) -> bool:
    """Return whether the failed call was certainly not applied; False in doubt."""
    match failure.cls:
        case FailureClass.PERMANENT:
            return failure.code not in UNCERTAIN
        case FailureClass.BUDGET:
            return failure.code == "billing"
        case FailureClass.INVALID_OUTPUT:
            return failure.code == MISFIT
        case _:
            return failure.code in NOT_SENT or failure.scope == "connect"
