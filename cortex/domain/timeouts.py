"""How long each thing may take: the default of each scope, and the limit that nobody may exceed.

Scopes nest: job, step, call. An inner limit is capped by what is left of the outer one. A job's own
limit stands with the policy of its type (`policy.POLICIES`, `policy.JOB_HARD`), a tool's with the
tool.
"""

import math
import re
from typing import Final

from attrs import frozen

from cortex.domain.errors import UsageError


@frozen(kw_only=True)
class Limit:
    """One scope. Times are in seconds."""

    of: str
    """What it limits, as a reader is told."""
    default_s: float
    hard_s: float
    """The most that an override may ask for."""

    def refusal(self, value: float) -> str | None:
        """Say what is wrong with an override, reading on from its name; None if nothing is."""
        if math.isfinite(value) and 0 < value <= self.hard_s:
            return None
        limit = f"at most {self.hard_s:g}, the hard limit of {self.of} in seconds"
        return f"must be above 0 and {limit}, got {value:g}"


TIMEOUTS: Final[dict[str, Limit]] = {
    "step": Limit(of="a step", default_s=600, hard_s=900),
    "llm_call": Limit(of="a model call", default_s=300, hard_s=450),
    "llm_idle": Limit(of="the pause in a model's answer", default_s=60, hard_s=450),
    "llm_connect": Limit(of="connecting to a model", default_s=30, hard_s=180),
    "tool_call": Limit(of="a tool call", default_s=120, hard_s=600),
}
"""By scope. A step of an agent is one model response and the tool calls that result."""

JOB_EXPIRY_S: Final = 60.0
"""So long after its time-out another pod ends a job whose own pod has not."""


def check_timeout(scope: str, value: float, source: str) -> None:
    """Raise `UsageError` for an override above the hard limit of its scope, or not above 0.

    `source` names the file or the thing, and the field: "step 'fetch': timeout".
    """
    if refusal := TIMEOUTS[scope].refusal(value):
        raise UsageError(f"{source} {refusal}")


# --- Lengths of time as people type them: 90s, 15m, 2h, 3d.


_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"([0-9]{1,7})([smhdw])")
SPAN_MAX_S: Final = 100 * 365 * 86_400.0
"""Further back there is nothing; and the database's calendar ends somewhere, too."""


def parse_span(text: str) -> float:
    """Return the seconds. Raises `UsageError`."""
    found = _SPAN.fullmatch(text.strip())
    seconds = int(found[1]) * _UNITS_S[found[2]] if found else None
    if seconds is None or seconds > SPAN_MAX_S:
        raise UsageError(f"{text[:80]!r} is not a time such as 90s, 15m, 2h or 3d")
    return float(seconds)
