"""All fields of a row: their names, their values as people see them and exactly, their meaning."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from rich.cells import cell_len

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, date_time, exact
from cortex.view.resource import Field, Shape
from cortex_tui.render.approval_page import chopped, wrapped
from cortex_tui.render.table import fit

Row = TypeVar("Row")
Line: TypeAlias = tuple[Cell, ...]

GAP: Final = 2
NAME_CELLS_MAX: Final = 24
WIDE: Final = 100
"""Cells; from here on the meaning stands beside the value."""
VALUE_SHARE: Final = 0.5
"""The share of the value in the room beside the name."""
CHARS_MAX: Final = 4_000
"""Of a value: the lines are made anew each second."""


@attrs.frozen(kw_only=True)
class FieldLines:
    """The page about a row."""

    lines: Sequence[Line]
    starts: Sequence[int]
    """The first line of each field."""


def exact_value(field: Field[Any], row: Any) -> str:
    return exact(field.exact(row))


def field_lines(shape: Shape[Row], row: Row, width: int) -> FieldLines:
    """Return each field of a row in lines of at most `width` cells; nothing is left out."""
    name_room = max(len(each.name) for each in shape.fields)
    name_room = min(name_room, NAME_CELLS_MAX, width // 3)
    room = max(2, width - name_room - GAP)
    value_room = int(room * VALUE_SHARE) - GAP if width >= WIDE else room
    lines: list[Line] = []
    starts = []
    for field in shape.fields:
        starts.append(len(lines))
        values, meaning_text = list(_value(field, row, value_room)), field.meaning
        names = chopped(field.name, name_room)
        beside = wrapped(meaning_text, room - value_room - GAP) if value_room < room else []
        below = [] if beside else [(Cell(each, "dim"),) for each in wrapped(meaning_text, room)]
        stack = [*values, *(line for line in below if line[0].text)]
        for name, cells, meaning in zip_longest(names, stack, beside):
            line = [Cell(fit(name or "", name_room) + " " * GAP, "accent"), *(cells or ())]
            if meaning:
                taken = sum(cell_len(each.text) for each in cells or ())
                line += [Cell(" " * (value_room + GAP - taken)), Cell(meaning, "dim")]
            lines.append(tuple(line))
    return FieldLines(lines=lines, starts=starts)


def _value(field: Field[Row], row: Row, room: int) -> Iterator[Line]:
    """Yield the value as people see it and, where that is another text, exactly."""
    cell = field.cell(row)
    text = safe(cell.text) or NOTHING
    in_full = "" if field.is_for_people else _in_full(field, row)
    if in_full in (text, NOTHING):
        in_full = ""
    if in_full and cell_len(text) + GAP + cell_len(in_full) <= room:
        yield Cell(text, cell.style), Cell(" " * GAP), Cell(in_full, "dim")
        return
    for piece in _pieces(text, room):
        yield (Cell(piece, cell.style),)
    for piece in _pieces(in_full, room) if in_full else ():
        yield (Cell(piece, "dim"),)


def _in_full(field: Field[Row], row: Row) -> str:
    value = field.exact(row)
    return date_time(value) if isinstance(value, datetime) else exact(value)


def _pieces(text: str, room: int) -> Iterator[str]:
    yield from chopped(text[:CHARS_MAX], room)
    if len(text) > CHARS_MAX:
        yield from wrapped(f"… {len(text) - CHARS_MAX:,} more characters: c copies them", room)
