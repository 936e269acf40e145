"""Tables whose columns keep their widths over time; one column takes the remaining room."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, Generic, TypeVar

import attrs
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.strip import Strip

from cortex.domain.safe import MARKS_MAX
from cortex.view.cells import Cell
from cortex.view.resource import Shape
from cortex_tui.palette import Palette

Row = TypeVar("Row")

GAP: Final = 2
GUTTER: Final = 2
"""Cells before the first column: the cursor's bar and the mark."""


@attrs.frozen(kw_only=True)
class Column(Generic[Row]):
    """One property of a row."""

    title: str
    width: int
    """Cells; for the growing column, the minimum."""
    cell: Callable[[Row, datetime], Cell]
    """Returns the cell of a row at the database's now."""
    is_right: bool = False
    grows: bool = False
    spare: int = 0
    """As the table narrows, the largest leaves first; 0 stays."""
    is_fixed: bool = False
    """The cell depends on the row alone, not on the time: its line is cached, and the column is as
    wide as its rows need, up to `width`."""
    reads_now: bool = False
    """The cell depends on the row's own `now`: `cell` takes a row that is `evolved`."""


def column(
    shape: Shape[Row],
    name: str,
    *,
    width: int,
    title: str | None = None,
    grows: bool = False,
    spare: int = 0,
    is_fixed: bool = False,
) -> Column[Row]:
    """Return a column of a resource's field; `title` replaces its heading where room is scarce."""
    field = shape.field(name)
    return Column(
        title=field.heading if title is None else title,
        width=width,
        cell=lambda row, _: field.cell(row),
        is_right=field.is_right,
        grows=grows,
        spare=spare,
        is_fixed=is_fixed,
        reads_now=not is_fixed,
    )


def evolved(row: Row, now: datetime) -> Row:
    """Return a row as of now: its ages and countdowns go on after it was read."""
    return attrs.evolve(row, now=now) if hasattr(row, "now") else row  # type: ignore[misc]


def moved_on(own: Row, row: Row, now: datetime) -> Row:
    """Return `own`, which `evolved` has made of `row`, as of a later now.

    It is changed in place: another copy of each visible row would be half the time of a repaint.
    """
    if own is not row:
        object.__setattr__(own, "now", now)
    return own


LINES_KEPT: Final = 512
"""Some screenfuls: an unchanged line is not laid out again."""
CELLS_KEPT: Final = 2_048
"""A few screenfuls: most cells of a changed line are unchanged."""

Layout = Sequence[tuple[Column[Row], int]]


def layout(
    columns: Sequence[Column[Row]], width: int, needed: Mapping[str, int] | None = None
) -> Layout[Row]:
    """Choose the columns that fit, and their widths; with the gaps they fill the line.

    `needed`: cells that the rows need, by title, for columns that may be narrower.
    """

    def cells(column: Column[Row]) -> int:
        return min(column.width, (needed or {}).get(column.title, column.width))

    kept = list(columns)
    while (over := GUTTER + sum(cells(c) + GAP for c in kept) - width) > 0:
        spare = max(kept, key=lambda c: c.spare)
        if not spare.spare:
            break
        kept.remove(spare)
    return [(c, cells(c) - over if c.grows else cells(c)) for c in kept]


def cells_needed(columns: Sequence[Column[Row]], row: Row, now: datetime) -> Mapping[str, int]:
    """Return the cells that a row needs, by title, in columns that do not change with time."""
    return {
        c.title: max(cell_len(c.title), cell_len(c.cell(row, now).text))
        for c in columns
        if c.is_fixed and not c.grows
    }


def head_line(shown: Layout[Row], palette: Palette, width: int) -> Strip:
    cells = [(Cell(column.title, "dim"), column.is_right, room) for column, room in shown]
    return _line((Cell(" " * GUTTER),), tuple(cells), palette, width)


def row_line(
    shown: Layout[Row],
    row: Row,
    *,
    now: datetime,
    palette: Palette,
    width: int,
    is_cursor: bool = False,
    is_marked: bool = False,
    is_dim: bool = False,
) -> Strip:
    return cells_line(
        shown,
        [column.cell(row, now) for column, _ in shown],
        palette=palette,
        width=width,
        is_cursor=is_cursor,
        is_marked=is_marked,
        is_dim=is_dim,
    )


def cells_line(
    shown: Layout[Row],
    row_cells: Sequence[Cell],
    *,
    palette: Palette,
    width: int,
    is_cursor: bool = False,
    is_marked: bool = False,
    is_dim: bool = False,
) -> Strip:
    if is_dim:
        row_cells = [Cell(cell.text, "dim") for cell in row_cells]
    cells = [
        (cell, column.is_right, room) for cell, (column, room) in zip(row_cells, shown, strict=True)
    ]
    start = (Cell("▌" if is_cursor else " ", "accent"), Cell("*" if is_marked else " ", "warn"))
    line = _line(start, tuple(cells), palette, width)
    return palette.lit(line, "cursor") if is_cursor else line


@lru_cache(LINES_KEPT)
def _line(
    start: Sequence[Cell], cells: Sequence[tuple[Cell, bool, int]], palette: Palette, width: int
) -> Strip:
    """Lay out cells, each with its alignment and room.

    Emits one segment per style, because every segment adds cost at each stage of painting.
    """
    fitted = [(cell.text, cell.style) for cell in start]
    for cell, is_right, room in cells:
        text = cell.text if cell.shrink is None else cell.fitted(room)
        fitted.append((_filled(text, room, right=is_right), cell.style))
    segments = []
    text, style = fitted[0]
    for more, other in fitted[1:]:
        if other == style or more.isspace():
            text += more
        else:
            segments.append(Segment(text, palette[style]))
            text, style = more, other
    segments.append(Segment(text, palette[style]))
    taken = GUTTER + sum(max(0, room) + GAP for _, _, room in cells)
    return Strip(segments, taken).adjust_cell_length(width)


@lru_cache(CELLS_KEPT)
def _filled(text: str, room: int, *, right: bool) -> str:
    return fit(text, room, right=right) + " " * GAP


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return text in exactly `width` cells: padded, or truncated with `…`.

    The number of characters is bounded, too, by what safe text can have in that many cells.
    """
    if width <= 0:
        return ""
    text = text[: (width + 1) * (1 + MARKS_MAX)]
    long = len(text) if text.isascii() else cell_len(text)
    if long > width:
        return set_cell_size(text, width - 1) + "…"
    space = " " * (width - long)
    return space + text if right else text + space
