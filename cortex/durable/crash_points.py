"""Named points at which a test kills this very process: what is left must be enough to go on.

`CORTEX_CRASH_AT=point:nth` ends the process with SIGKILL at the nth passing of a point. It is read
once, at import; unset, passing a point calls an empty function.
"""

import os
import signal
from collections.abc import Callable
from typing import Final

from cortex.domain.errors import UsageError

VARIABLE: Final = "CORTEX_CRASH_AT"

POINTS: Final[dict[str, str]] = {
    "before_intent": "an effect is about to be entered in the ledger",
    "after_intent": "its intent is committed, the call has not begun",
    "during_call": "the call is under way; no code of ours passes it, a test's own tool does",
    "after_call": "the call has ended, nothing is recorded of it",
    "before_outcome": "the committer is about to write its outcome",
    "after_outcome": "its outcome is committed, nobody has been told",
    "before_reconcile": "the other side is about to be asked what became of a call",
    "after_reconcile": "it has answered, nothing is recorded of that",
    "before_approval": "a decision was found, its step is about to be written",
    "after_approval": "the decision's step is committed, its call is not intended",
    "before_suspend": "the committer is about to write what a job asks of people",
    "after_suspend": "that is committed, nobody has been told",
}
"""Every point, with what is true when it is passed."""


def crash_points(setting: str | None, *, crash: Callable[[], None]) -> Callable[[str], None]:
    """Return what to call at a point, with its name. Raises `UsageError` for a bad setting."""
    if not setting:
        return _pass_by
    point, _, nth = setting.partition(":")
    if point not in POINTS or not (nth.isascii() and nth.isdecimal() and int(nth)):
        raise UsageError(
            f"{VARIABLE} is {setting!r}, not point:nth", hint=f"the points: {', '.join(POINTS)}"
        )
    left = int(nth)

    def passed(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                crash()

    return passed


def _pass_by(name: str) -> None:
    """Nothing happens here."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


crash_point: Final = crash_points(os.environ.get(VARIABLE), crash=_die)
"""To be called at each point with its name."""
