"""A question on as many lines as it needs: nobody confirms text that was cut off."""

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from cortex_tui.palette import Palette
from cortex_tui.render.approval_page import wrapped
from cortex_tui.render.table import fit

LINES_MAX: Final = 5
"""Leaves room on the smallest screen for the object of the question."""


def question_lines(
    text: str, how: str, width: int, *, mark: str = "?"
) -> Sequence[tuple[str, str]] | None:
    """Return the lines: the question, and what may be typed; None if they do not fit.

    Both share `width` cells. On a single line, what may be typed stands at the right.
    """
    asked = f"{text}{mark}"
    if cell_len(asked) + cell_len(how) <= width:
        return [(fit(asked, width - cell_len(how)), how)]
    *lines, last = [(line, "") for line in wrapped(asked, width)]
    if cell_len(last[0]) + cell_len(how) <= width:
        lines.append((last[0], how))
    elif cell_len(how) <= width:
        lines += [last, ("", how)]
    else:
        lines += [last, *(("", f"  {each}") for each in wrapped(how.strip(), width - 2))]
    return lines if len(lines) <= LINES_MAX else None


def closed_lines(text: str, how: str, width: int) -> Sequence[tuple[str, str]]:
    """Return the lines of a question that is over: its first words if it does not fit."""
    lines = question_lines(text, how, width, mark="")
    if lines is not None:
        return lines
    left = width - cell_len(how)
    return [(fit(text, left), how)] if left > 0 else [(fit(text, width), "")]


def question_strip(lines: Sequence[tuple[str, str]], y: int, palette: Palette, width: int) -> Strip:
    strip = palette["strip"]
    asked, how = lines[y] if y < len(lines) else ("", "")
    parts = [
        Segment("▌", strip + palette["warn"]),
        Segment(asked, strip + palette["bold"]),
        Segment(how, strip + palette["accent"]),
    ]
    return palette.lit(Strip(parts).adjust_cell_length(width, strip), "strip")
