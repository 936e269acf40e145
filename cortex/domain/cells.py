"""Text measured in terminal cells: an ideogram or an emoji takes two, an accent none."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import attrs

Row = Mapping[str, Any]
"""What the store returns of one thing."""

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


@attrs.frozen
class Cell:
    """One piece of text on one line, already safe, and the style that it is painted in."""

    text: str
    style: str = ""


def width_of(text: str) -> int:
    """Return how many cells a line takes; our own colours take none."""
    text = _STYLE.sub("", text)
    if text.isascii():
        return len(text)
    return sum(_width_of_char(char) for char in text)


def fit(text: str, width: int) -> str:
    """Return text without styles cut to so many cells, with `…` where something is missing."""
    if width_of(text) <= width:
        return text
    kept: list[str] = []
    left = width - 1
    for char in text:
        left -= _width_of_char(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return text filled up with spaces to so many cells; `right` moves it to the right."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def bar(done: int, of: int, cells: int) -> str:
    """Return so much of a whole as a bar: it is full when all is done, and not before."""
    full = cells * done // of if of else 0
    return "█" * full + "░" * (cells - full)


def _width_of_char(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me") else 1
