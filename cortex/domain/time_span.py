"""Lengths of time as people type them: 90s, 15m, 2h, 3d."""

import re
from typing import Final

from cortex.domain.errors import UsageError

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
