"""`@`: what was done in this sitting, as the commands that do the same, and what it is."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.cells import Cell
from cortex.domain.safe import safe
from cortex_tui.acts import Done
from cortex_tui.desk import Desk
from cortex_tui.model.window import Window
from cortex_tui.render.table import Column, fit
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.virtual_table import VirtualTable


def _at(done: Done, _: datetime) -> Cell:
    return Cell(f"{done.at:%H:%M:%S}Z", "dim")


COLUMNS: Final[Sequence[Column[Done]]] = (
    Column(title="at", width=9, cell=_at),
    Column(title="command", width=24, cell=lambda d, _: Cell(safe(d.command)), grows=True),
    Column(title="what became of it", width=24, cell=lambda d, _: Cell(d.told, d.style)),
)


class LogScreen(Frame):
    """`log`."""

    NAME = "log"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._window: Window[Done, None] = Window(key=lambda done: done.number)
        self._table = VirtualTable(
            desk,
            self._window,
            COLUMNS,
            key=lambda done: done.number,
            empty=lambda: "nothing was done here yet",
        )
        self._window.replace(list(desk.acts.log), above=None, below=None)
        notes = range(len(list(desk.session.notes())))
        self._notes = [Line(desk, partial(self._note, number)) for number in notes]

    def body(self) -> Iterable[Widget]:
        return (*self._notes, self._table)

    def on_mount(self) -> None:
        self._table.focus()

    def paint(self) -> None:
        for note in self._notes:
            note.refresh()
        self._table.refresh()

    def _note(self, number: int, width: int) -> Strip:
        cell = list(self.desk.session.notes())[number]
        text = f"  {fit(cell.text, max(1, width - 2))}"
        return Strip([Segment(text, self.desk.palette[cell.style])])

    def action_move(self, how: str) -> None:
        self._table.move(how)
