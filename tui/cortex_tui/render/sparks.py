"""Figures that are read from afar: a line of bars, and digits of three lines."""

import math
from collections.abc import Sequence
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇"
"""None fills its cell, so that lines one below the other stay apart."""
UNKNOWN: Final = "·"
DIGIT_LINES: Final = 3

_DIGITS: Final = {
    "0": ("┌─┐", "│ │", "└─┘"),
    "1": (" ┐ ", " │ ", " ┴ "),
    "2": ("──┐", "┌─┘", "└──"),
    "3": ("──┐", " ─┤", "──┘"),
    "4": ("│ │", "└─┤", "  │"),
    "5": ("┌──", "└─┐", "──┘"),
    "6": ("┌──", "├─┐", "└─┘"),
    "7": ("──┐", "  │", "  │"),
    "8": ("┌─┐", "├─┤", "└─┘"),
    "9": ("┌─┐", "└─┤", "──┘"),
}


def spark(values: Sequence[float | None], *, each: int = 1) -> str:
    """Return a bar of `each` cells a value, the largest one highest; None is not known.

    Nothing is the lowest bar, and anything above it at least the next one.
    """
    most = max((value for value in values if value is not None), default=0.0)
    return "".join(_bar(value, most) * each for value in values)


def _bar(value: float | None, most: float) -> str:
    if value is None:
        return UNKNOWN
    return BARS[math.ceil(value / most * (len(BARS) - 1))] if value > 0 else BARS[0]


def digits(text: str, *, gap: int = 0) -> tuple[str, str, str]:
    """Return a number in three lines; what is no digit stands small in the last one.

    `gap`: cells between two digits.
    """
    big = [_DIGITS.get(sign, (" ", " ", sign)) for sign in text]
    space = " " * gap
    first, second, third = (space.join(sign[line] for sign in big) for line in range(DIGIT_LINES))
    return first, second, third
