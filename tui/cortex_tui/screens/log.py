"""`@`: the actions of this session as shell commands, with their outcomes.

Below the list, the command under the cursor is shown whole, to be copied.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from rich.segment import Segment
from textual import on
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import day_time
from cortex_tui.actions import ActionResult
from cortex_tui.app_context import AppContext
from cortex_tui.key_table import shown
from cortex_tui.model.selected import Selected
from cortex_tui.model.window import Window
from cortex_tui.render.approval_page import chopped, wrapped
from cortex_tui.render.table import Column, fit
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.virtual_table import VirtualTable

CHARS_MAX: Final = 1_000
"""Of a command in the list, more than any line is wide; below the list it is shown whole."""


def _at(done: ActionResult, _: datetime) -> Cell:
    return Cell(day_time(done.at), "dim")


def _command(done: ActionResult, _: datetime) -> Cell:
    return Cell(safe(done.command[:CHARS_MAX]))


COLUMNS: Final[Sequence[Column[ActionResult]]] = (
    Column(title="at", width=9, cell=_at),
    Column(title="command", width=24, cell=_command, grows=True),
    Column(title="what became of it", width=24, cell=lambda d, _: Cell(d.outcome, d.style)),
)


class LogScreen(Frame):
    NAME = "log"
    DEFAULT_CSS = """
    LogScreen Page { height: 8; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._window: Window[ActionResult, None] = Window(key=lambda done: done.number)
        self._table = VirtualTable(
            context,
            self._window,
            COLUMNS,
            key=lambda done: done.number,
            empty=lambda: "nothing was done here yet",
        )
        self._window.replace(list(context.actions.log), above=None, below=None)
        self._page = Page(context, head=self._head)
        self._in_page = 0
        """Number of the action on the page."""
        notes = range(len(list(context.session.notes())))
        self._notes = [Line(context, partial(self._note, number)) for number in notes]

    def body(self) -> Iterable[Widget]:
        return (*self._notes, self._table, self._page)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def resource(self) -> Selected | None:
        done = self._window.current
        return None if done is None else Selected(command=done.command)

    def paint(self) -> None:
        done = list(self.context.actions.log)
        if done != self._window.rows:  # an action ended meanwhile
            self._window.rearrange(done)
            self._show_current()
        for note in self._notes:
            note.redraw()
        self._table.redraw()

    def _note(self, number: int, width: int) -> Strip:
        cell = list(self.context.session.notes())[number]
        text = f"  {fit(cell.text, max(1, width - 2))}"
        return Strip([Segment(text, self.context.palette[cell.style])])

    def action_move(self, how: str) -> None:
        if not self._page.turns(how):
            self._table.move(how)

    @on(VirtualTable.Moved)
    @on(Page.Resized)
    def _show_current(self) -> None:
        done, room = self._window.current, self._page.room
        lines: list[tuple[Cell, ...]] = []
        if done is not None:
            lines += [(Cell(line),) for line in chopped(safe(done.command), room)]
            lines += [(), *((Cell(line, done.style),) for line in wrapped(done.outcome, room))]
        number = 0 if done is None else done.number
        self._page.show(lines, is_other=number != self._in_page)
        self._in_page = number

    def _head(self) -> tuple[Cell, Cell]:
        done = self._window.current
        if done is None:
            return Cell(""), Cell("")
        copy = shown(self.context.keys.named("copy").keys[0])
        text = f"what does the same as the action at {day_time(done.at)}"
        return Cell(text, "dim"), Cell(f"{copy} c copies it", "dim")
