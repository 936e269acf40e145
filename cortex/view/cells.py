"""Text measured in terminal cells: an ideogram or an emoji takes two, an accent none."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

Row = Mapping[str, Any]
"""One record as the store returns it."""

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


@attrs.frozen
class Cell:
    """One piece of text on one line, already safe, and its style."""

    text: str
    style: str = ""
    shrink: Callable[[int], str] | None = None
    """Returns a shorter text of the given width, where a plain cut would change the meaning."""

    def fitted(self, width: int) -> str:
        """Return the text in at most `width` cells."""
        if self.shrink is None or width_of(self.text) <= width:
            return fit(self.text, width)
        return fit(self.shrink(width), width)


def count_cell(count: int, style: str = "") -> Cell:
    """Return a count, faint when it is zero."""
    return Cell(f"{count:,}", style if count else "dim")


def width_of(text: str) -> int:
    """Return the width of a line in cells, ignoring our own colours."""
    text = _STYLE.sub("", text)
    if text.isascii():
        return len(text)
    return sum(_width_of_char(char) for char in text)


def fit(text: str, width: int) -> str:
    """Return text without styles cut to `width` cells, with `…` where something is missing."""
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


def chopped(text: str, width: int) -> list[str]:
    """Split a line into pieces of at most `width` cells."""
    if width_of(text) <= width:
        return [text]
    pieces, left = [""], width
    for char in text:
        cells = _width_of_char(char)
        if cells > left:
            pieces.append("")
            left = width
        pieces[-1] += char
        left -= cells
    return pieces


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pad text with spaces to `width` cells; `right` aligns it to the right."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def bar(done: int, of: int, cells: int) -> str:
    """Return a progress bar that is full only when everything is done."""
    full = cells * done // of if of else 0
    return "█" * full + "░" * (cells - full)


def _width_of_char(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me") else 1
