"""`?`: all keys of the previous screen, from the table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from textual.widget import Widget

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.window import Window
from cortex_tui.render.bars import help_lines
from cortex_tui.render.table import Column
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.virtual_table import VirtualTable

Line = tuple[str, str, str]
"""Group, keys, action; a group has its own line before its keys."""


def _keys(line: Line, _: datetime) -> Cell:
    group, keys = line[:2]
    return Cell(keys, "accent") if keys else Cell(group.partition(" (")[0], "bold")


def _meaning(line: Line, _: datetime) -> Cell:
    group, keys, meaning = line
    return Cell(meaning) if keys else Cell(group.partition(" (")[2].rstrip(")"), "dim")


COLUMNS: Final[Sequence[Column[Line]]] = (
    Column(title="keys", width=18, cell=_keys),
    Column(title="what they do", width=20, cell=_meaning, grows=True),
)


class HelpScreen(Frame):
    NAME = "help"

    def __init__(self, context: AppContext, about: str) -> None:
        super().__init__(context)
        self._about = about
        window: Window[Line, None] = Window(key=lambda line: line)
        window.replace(_grouped(list(help_lines(context.keys, about))), above=None, below=None)
        self._table = VirtualTable(context, window, COLUMNS, key=lambda line: line, empty=str)

    def body(self) -> Iterable[Widget]:
        return (self._table,)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()

    def path(self) -> tuple[str, ...]:
        return (self._about, "keys")

    def action_move(self, how: str) -> None:
        self._table.move(how)


def _grouped(lines: list[Line]) -> list[Line]:
    """Write the name of each group once, before its first line."""
    shown: list[Line] = []
    for line in lines:
        if not shown or shown[-1][0] != line[0]:
            shown.append((line[0], "", ""))
        shown.append(line)
    return shown
