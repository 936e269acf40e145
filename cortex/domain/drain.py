"""The phases in which a pod leaves, and what it tells of the one that it is in."""

from enum import StrEnum
from typing import Final

import attrs


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
