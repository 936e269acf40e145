"""Sparklines: a line of bars."""

import math
from collections.abc import Sequence
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇"
"""No bar fills its cell, so that stacked lines stay apart."""
UNKNOWN: Final = "·"


def spark(values: Sequence[float | None], *, each: int = 1) -> str:
    """Return a bar of `each` cells per value, scaled to the largest; None is unknown.

    Zero is the lowest bar, and any greater value at least the next one.
    """
    most = max((value for value in values if value is not None), default=0.0)
    return "".join(_bar(value, most) * each for value in values)


def _bar(value: float | None, most: float) -> str:
    if value is None:
        return UNKNOWN
    return BARS[math.ceil(value / most * (len(BARS) - 1))] if value > 0 else BARS[0]
