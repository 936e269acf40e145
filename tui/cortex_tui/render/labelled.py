"""Lines of a page: labels with text, titles, quoted text; safe, within the given width."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex_tui.render.approval_page import chopped, wrapped
from cortex_tui.render.table import fit

Line: TypeAlias = tuple[Cell, ...]

LABEL: Final = 10
LINES_MAX: Final = 2_000
SAID_CHARS_MAX: Final = 2_000


def labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    """Yield a label and its text, on separate lines if the label is long."""
    if not text:
        return
    name = safe(label)
    if len(name) < LABEL:
        first, room = Cell(name.ljust(LABEL), "dim"), width - LABEL
    else:
        yield (Cell(chopped(name, width)[0], "dim"),)
        first, room = Cell("  ", "dim"), width - 2
    for line in _lines(text, room):
        yield first, Cell(line, style)
        first = Cell(" " * len(first.text))


def valued(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    """Yield a short label and its text on one line, truncated to the width."""
    room = max(1, width - LABEL)
    shown = fit(safe(text or NOTHING), room)
    yield Cell(label.ljust(LABEL), "dim"), Cell(shown.rstrip(" "), style if text else "dim")


def titled(title: str) -> Iterator[Line]:
    """Yield an empty line and a title."""
    yield (Cell(""),)
    yield (Cell(title, "dim"),)


def said(text: str, width: int, *, style: str) -> Iterator[Line]:
    """Yield the beginning of a text, short enough to be redrawn each second."""
    lines = _lines(text[:SAID_CHARS_MAX] or NOTHING, width)
    yield from ((Cell(line, style if text else "dim"),) for line in lines)
    if len(text) > SAID_CHARS_MAX:
        yield (Cell(f"… {len(text) - SAID_CHARS_MAX:,} more characters", "dim"),)


def text_lines(text: str, width: int) -> Iterator[Line]:
    """Yield a text in its own lines, wrapped where they are too long."""
    yield from ((Cell(line),) for line in _lines(text, width))


def _lines(text: str, width: int) -> Sequence[str]:
    lines: list[str] = []
    for line in safe(text, newline="\n").split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))][: width // 2]
        room = max(2, width - len(indent))
        lines += [indent + each for each in wrapped(line.strip(" "), room)]
        if len(lines) > LINES_MAX:
            break
    return lines
