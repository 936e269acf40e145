"""The phases in which a pod leaves, and what it tells of the one that it is in."""

from enum import StrEnum
from typing import Final, Self

import attrs

from cortex.domain.errors import Trouble


class DrainPhase(StrEnum):
    """Where a leaving pod stands, in this order."""

    INTAKE = "intake"
    """The API takes no more work, nothing more is claimed."""
    JOBS = "jobs"
    """Jobs go on to their next checkpoint."""
    HAND_BACK = "hand_back"
    """Those that still ran are cancelled and go on elsewhere."""
    FLUSH = "flush"
    """What was to be committed is being committed."""
    SIGN_OFF = "sign_off"
    """The heartbeat ends, then the connections."""


INTAKE_S: Final = 1.0
SHARES: Final = {DrainPhase.HAND_BACK: 0.85, DrainPhase.FLUSH: 0.95, DrainPhase.SIGN_OFF: 1.0}
"""Of the time from the abort until everything is closed: by then each of these must be over.

Most is for jobs that hear of their cancellation late: a child process gets two seconds, a tool that
ignores it eight. What one does not use is left to the next.
"""


@attrs.frozen
class DrainRequest:
    """A person asked the pod to take no more jobs; its process stays."""

    jobs_left: int
    """Those that have not come to a checkpoint yet; 0: it has drained."""


@attrs.frozen(kw_only=True)
class DrainStatus:
    """A leaving pod at one instant."""

    phase: DrainPhase
    jobs_left: int
    abort_in_s: float
    """Until jobs that still run are handed back; 0 from then on."""
    closed_in_s: float
    """Until everything is closed and the process ends, at the latest."""


@attrs.frozen(kw_only=True)
class MovedGroup:
    """Jobs that a pod handed back, and of which the same became."""

    what: str
    """runs · waits · ended · lost: nothing will ever run them."""
    pod: str | None
    """Name of the pod where they run."""
    count: int


@attrs.frozen(kw_only=True)
class Moved:
    """What became of the jobs that a pod has handed back since it leaves or is drained."""

    groups: tuple[MovedGroup, ...]
    is_whole: bool
    """None is left out because there were too many."""


# --- What shows the others that a pod lives.


class Liveness(StrEnum):
    """By what its death is noticed."""

    LOCK = "lock"
    """Its session lock, free within a second of its death; and its heartbeat, when it hangs."""
    HEARTBEAT = "heartbeat"
    """Its heartbeat alone: behind a pooler no lock can be held."""

    @classmethod
    def of(cls, *, is_pooled: bool) -> Self:
        """Return that of a pod with a pooler between it and Postgres, or without."""
        return cls("heartbeat" if is_pooled else "lock")


@attrs.frozen
class TroubleReport:
    """What a pod suffers from, and for how long by now."""

    trouble: Trouble
    for_s: float
