"""Tables: aligned, and never wider than the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import attrs

from cortex.cli.screen.terminal import Terminal
from cortex.domain.phrases import NOTHING, date_time, exact
from cortex.view.cells import Cell, pad, width_of

Row = TypeVar("Row")

GAP: Final = "  "


@attrs.frozen(kw_only=True)
class Column(Generic[Row]):
    """One property of a row: its value for machines and its display for people."""

    name: str
    """The key in JSON, and in `--columns`."""
    value: Callable[[Row], Any] = attrs.Factory(lambda self: _field(self.name), takes_self=True)
    """For machines; defaults to the row's field of this name."""
    shown: Callable[[Row], Cell] | None = None
    """For people; None: the exact value, instants in local time."""
    title: str | None = None
    is_right: bool = False
    least: int | None = None
    """Minimum cells when the terminal is narrow; None: never cut."""
    is_spare: bool = False
    """Whether it may be omitted when the terminal is narrow; the last one goes first."""
    is_default: bool = True
    """Whether it is shown unless columns were chosen."""
    is_for_people: bool = False
    """Whether it is absent from JSON: a remark made of other columns."""

    def exact(self, row: Row) -> Any:
        """Return the value for machines; seconds (`…_s`) to the millisecond."""
        value = self.value(row)
        return round(value, 3) if self.name.endswith("_s") and isinstance(value, float) else value

    def cell(self, row: Row, *, for_people: bool) -> Cell:
        """Return the cell of the table; for machines it is empty where there is no value."""
        if self.shown is not None and (for_people or self.is_for_people):
            cell = self.shown(row)
            return cell if for_people or cell.text != NOTHING else Cell("")
        value = self.exact(row)
        if for_people and isinstance(value, datetime):
            return Cell(date_time(value))
        return Cell("" if not for_people and value in (None, "") else exact(value))


def _field(name: str) -> Callable[[Any], Any]:
    def value(row: Any) -> Any:
        return row[name] if isinstance(row, Mapping) else getattr(row, name)

    return value


def only_on_demand(*names: str) -> tuple[Column[Any], ...]:
    """Return plain columns for documents, shown in a table only on request."""
    return tuple(Column(name=name, is_default=False) for name in names)


def lines_of(
    columns: Sequence[Column[Row]], rows: Sequence[Row], *, terminal: Terminal, headers: bool
) -> Iterator[str]:
    """Yield the lines of a table: fitted to a terminal, else in full with tabs between cells."""
    if terminal.is_tty:
        heads = [Cell(c.title or c.name, "dim") for c in columns]
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
    widths = _fitted(columns, widths, terminal.width)
    for line in grid:
        yield _line(columns, line, widths, terminal).rstrip()


def _line(
    columns: Sequence[Column[Any]], line: Sequence[Cell], widths: Sequence[int], terminal: Terminal
) -> str:
    parts = []
    for column, cell, width in zip(columns, line, widths, strict=True):
        if width:
            text = cell.fitted(width)
            parts.append(pad(terminal.paint(text, cell.style), width, right=column.is_right))
    return GAP.join(parts)


def _fitted(columns: Sequence[Column[Any]], widths: list[int], limit: int) -> list[int]:
    """Cut columns, the widest first, then omit spare ones; their width is 0."""
    spare = [i for i, column in enumerate(columns) if column.is_spare]
    while True:
        fitted = _cut(columns, widths, limit)
        if _total(fitted) <= limit or not spare:
            return fitted
        widths = [0 if i == spare[-1] else width for i, width in enumerate(widths)]
        spare.pop()


def _cut(columns: Sequence[Column[Any]], widths: Sequence[int], limit: int) -> list[int]:
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
