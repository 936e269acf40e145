"""The phases of a pod's shutdown, and its report of the present one."""

from enum import StrEnum
from typing import Final, Self

import attrs

from cortex.domain.errors import Trouble


class DrainPhase(StrEnum):
    """The phases of a shutdown, in this order."""

    INTAKE = "intake"
    """The API takes no more work, nothing more is claimed."""
    JOBS = "jobs"
    """Jobs go on to their next checkpoint."""
    HAND_BACK = "hand_back"
    """Jobs that still ran are cancelled and go on elsewhere."""
    FLUSH = "flush"
    """Remaining operations are being committed."""
    SIGN_OFF = "sign_off"
    """The heartbeat ends, then the connections."""


INTAKE_S: Final = 1.0
SHARES: Final = {DrainPhase.HAND_BACK: 0.85, DrainPhase.FLUSH: 0.95, DrainPhase.SIGN_OFF: 1.0}
"""Shares of the time from the abort until everything is closed: the deadline of each phase.

Most is for jobs that notice their cancellation late: a child process gets two seconds, a tool that
ignores it eight. Unused time is left to the next phase."""


@attrs.frozen
class DrainRequest:
    """A person asked the pod to take no more jobs; its process stays."""

    jobs_left: int
    """Jobs that have not reached a checkpoint yet; 0: it has drained."""


@attrs.frozen(kw_only=True)
class DrainStatus:
    """The shutdown of a pod at one instant."""

    phase: DrainPhase
    jobs_left: int
    abort_in_s: float
    """Until jobs that still run are handed back; 0 from then on."""
    closed_in_s: float
    """Until everything is closed and the process ends, at the latest."""


class Whereabouts(StrEnum):
    """The fate of a job that a pod handed back."""

    RUNS = "runs"
    WAITS = "waits"
    ENDED = "ended"
    LOST = "lost"
    """No pod will ever run it."""


@attrs.frozen(kw_only=True)
class MovedGroup:
    """Jobs that a pod handed back and that share the same fate."""

    what: Whereabouts
    pod: str | None
    """Name of the pod where they run."""
    count: int


@attrs.frozen(kw_only=True)
class Moved:
    """The fate of the jobs that a pod has handed back since its shutdown or drain began."""

    groups: tuple[MovedGroup, ...]
    is_whole: bool
    """No job is left out for lack of room."""


# --- How other pods know that a pod lives.


class PodState(StrEnum):
    READY = "READY"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    """It has drained and ended."""
    DEAD = "DEAD"
    """Ended without a drain."""


class Liveness(StrEnum):
    """How the death of a pod is noticed."""

    LOCK = "lock"
    """By its session lock, free within a second of its death; and by its heartbeat, when it
    hangs."""
    HEARTBEAT = "heartbeat"
    """By its heartbeat alone: behind a pooler no lock can be held."""

    @classmethod
    def of(cls, *, is_pooled: bool) -> Self:
        """Return that of a pod with a pooler between it and Postgres, or without."""
        return cls("heartbeat" if is_pooled else "lock")


@attrs.frozen(kw_only=True)
class ReadyChecks:
    """Whether a pod takes work, and the reasons if not."""

    database: bool
    """It holds its lock, a recent heartbeat succeeded, and its calls are answered."""
    claiming: bool
    """It takes jobs."""
    not_draining: bool
    """It was not asked to end or to drain."""

    @property
    def are_passed(self) -> bool:
        return self.database and self.claiming and self.not_draining


@attrs.frozen
class TroubleReport:
    """A pod's database trouble, and its duration so far."""

    trouble: Trouble
    for_s: float
