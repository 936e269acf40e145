"""Tables: aligned, and never wider than the terminal."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from cortex.cli.screen.terminal import Terminal
from cortex.view.cells import Cell, pad, width_of
from cortex.view.resource import Field

Row = TypeVar("Row")

GAP: Final = "  "


def lines_of(
    columns: Sequence[Field[Row]],
    rows: Sequence[Row],
    *,
    terminal: Terminal,
    headers: bool,
    is_fitted: bool = True,
) -> Iterator[str]:
    """Yield the lines of a table; for programs with tabs between cells.

    `is_fitted`: no line is longer than the terminal's.
    """
    if terminal.is_tty:
        heads = [Cell(c.heading, "dim") for c in columns]
    else:
        heads = [Cell(c.name) for c in columns]
    body = [[c.cell(row, for_people=terminal.is_tty) for c in columns] for row in rows]
    grid = [heads, *body] if headers else body
    if not terminal.is_tty:
        yield from ("\t".join(cell.text for cell in line) for line in grid)
        return
    widths = [
        max((width_of(line[i].text) for line in grid), default=0) for i in range(len(columns))
    ]
    if is_fitted:
        widths = _fitted(columns, widths, terminal.width)
    for line in grid:
        yield _line(columns, line, widths, terminal).rstrip()


def _line(
    columns: Sequence[Field[Any]], line: Sequence[Cell], widths: Sequence[int], terminal: Terminal
) -> str:
    parts = []
    for column, cell, width in zip(columns, line, widths, strict=True):
        if width:
            text = cell.fitted(width)
            parts.append(pad(terminal.paint(text, cell.style), width, right=column.is_right))
    return GAP.join(parts)


def _fitted(columns: Sequence[Field[Any]], widths: list[int], limit: int) -> list[int]:
    """Cut columns, the widest first, then omit spare ones; their width is 0."""
    spare = [i for i, column in enumerate(columns) if column.is_spare]
    while True:
        fitted = _cut(columns, widths, limit)
        if _total(fitted) <= limit or not spare:
            return fitted
        widths = [0 if i == spare[-1] else width for i, width in enumerate(widths)]
        spare.pop()


def _cut(columns: Sequence[Field[Any]], widths: Sequence[int], limit: int) -> list[int]:
    cut = list(widths)
    while _total(cut) > limit:
        room = [i for i, c in enumerate(columns) if c.least is not None and cut[i] > c.least]
        if not room:
            break
        cut[max(room, key=lambda i: cut[i])] -= 1
    return cut


def _total(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + len(GAP) * (len(shown) - 1)
