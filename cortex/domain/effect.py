"""Effects: calls with an outside result, and what is known of one whose outcome was not recorded.

An effect's intent is in the record before the call begins, its outcome after it ended. Between the
two a pod may die: then the other side is asked what became of the call.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

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
