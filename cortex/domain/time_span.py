"""Spans of time as people type them: 90s, 15m, 2h, 3d."""

import re
from typing import Final

from cortex.domain.errors import UsageError

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"([0-9]{1,7})([smhdw])")
SPAN_MAX_S: Final = 100 * 365 * 86_400.0
"""There is nothing older; and the database's calendar is limited, too."""


def parse_span(text: str) -> float:
    """Return the seconds. Raises `UsageError`."""
    match = _SPAN.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else None
    if seconds is None or seconds > SPAN_MAX_S:
        raise UsageError(f"{text[:80]!r} is not a time such as 90s, 15m, 2h or 3d")
    return float(seconds)
