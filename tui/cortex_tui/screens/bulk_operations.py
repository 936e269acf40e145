"""Bulk operations on dead letters: progress, pause and end, and the letters left unsettled."""

from collections.abc import Iterable
from typing import Final

from textual.widget import Widget

from cortex.domain import bulk_operation
from cortex.domain.bulk_operation import CANCEL, PAUSE, RESUME, BulkChange, BulkState
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.dead import ACTS_MAX, FAILURES_MAX
from cortex_tui.backend.protocol import ActRow
from cortex_tui.model.window import Window
from cortex_tui.render.bulk_rows import ACT_COLUMNS, FAILURE_COLUMNS, act_words, is_over
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.strip_line import StripLine
from cortex_tui.widgets.virtual_table import VirtualTable

VERBS: Final = {PAUSE: "pause", RESUME: "resume", CANCEL: "cancel"}


def rest(desk: AppContext, strip: StripLine, row: ActRow | None) -> None:
    """Ask whether to pause a bulk operation, or to resume a paused one."""
    if row is None or is_over(row):
        strip.show("no act is under way here", "dim")
    elif row["state"] == BulkState.PAUSED:
        _ask(desk, strip, row, RESUME, f"let {act_words(row)} go on")
    else:
        _ask(desk, strip, row, PAUSE, f"pause {act_words(row)}")


def end(desk: AppContext, strip: StripLine, row: ActRow | None) -> None:
    """Ask whether to end a bulk operation."""
    if row is None or is_over(row):
        strip.show("no act is under way here", "dim")
    else:
        left = bulk_operation.left(row)
        _ask(desk, strip, row, CANCEL, f"end {act_words(row)}; {left:,} stay as they are")


def _ask(desk: AppContext, strip: StripLine, row: ActRow, how: BulkChange, text: str) -> None:
    act_id, by, verb = row["id"], desk.session.actor, VERBS[how]
    agreed = ("--yes",) if how is CANCEL else ()

    def act(reason: str) -> Action:
        async def done() -> str:
            await desk.backend.dead.change(act_id, how, by=by, reason=reason)
            return f"act {act_id} was {how.name}"

        command = ("dead", "acts", verb, str(act_id), *because(reason), *agreed)
        return Action(question=text, command=command, work=done)

    propose(desk, strip, text, act, is_required=False)


class BulkOperationsScreen(Frame):
    """The bulk operations, running ones first."""

    NAME = "acts"

    def __init__(self, desk: AppContext) -> None:
        super().__init__(desk)
        self._window: Window[ActRow, None] = Window(key=lambda row: row["id"])
        self._table = VirtualTable(
            desk, self._window, ACT_COLUMNS, key=lambda row: row["id"], empty=self._nothing
        )
        self._is_read = False

    def path(self) -> tuple[str, ...]:
        return ("dead", "acts")

    def body(self) -> Iterable[Widget]:
        return (self._table,)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()

    async def look(self) -> bool:
        rows = await self.desk.backend.dead.acts()
        is_first, self._is_read = not self._is_read, True
        self._table.show_cut("older ones: cortex dead acts ls" if len(rows) >= ACTS_MAX else "")
        return self._window.refill(rows) or is_first

    def action_move(self, how: str) -> None:
        self._table.move(how)

    def action_open(self) -> None:
        if (row := self._window.current) is None:
            self.strip.show(self._window.why_none(self._nothing()), "dim")
        else:
            self.desk.open("act", row)

    def action_errors(self) -> None:
        self.app.call_later(self.app.run_action, "app.back")

    def action_rest(self) -> None:
        rest(self.desk, self.strip, self._window.current)

    def action_end(self) -> None:
        end(self.desk, self.strip, self._window.current)

    def _nothing(self) -> str:
        told = "nothing was begun for all letters of an error: R or X does, on one in 5 dead"
        return told if self._is_read else "reading …"


class BulkOperationScreen(Frame):
    """The dead letters that one operation could not settle."""

    NAME = "act"

    def __init__(self, desk: AppContext, act: ActRow) -> None:
        self._act = act
        super().__init__(desk)
        self._window: Window[ActRow, None] = Window(key=lambda row: row["nth"])
        self._table = VirtualTable(
            desk, self._window, FAILURE_COLUMNS, key=lambda row: row["nth"], empty=self._nothing
        )
        self._is_read = False

    def path(self) -> tuple[str, ...]:
        return ("dead", "acts", f"act {self._act['id']}")

    def body(self) -> Iterable[Widget]:
        return (self._table,)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()

    def info(self) -> Cell:
        return Cell(f"{safe(self._act['which'])} ", "dim")

    async def look(self) -> bool:
        rows = await self.desk.backend.dead.failures(self._act["id"])
        is_first, self._is_read = not self._is_read, True
        more = f"more of them: cortex dead acts show {self._act['id']} --limit 10000"
        self._table.show_cut(more if len(rows) >= FAILURES_MAX else "")
        return self._window.refill(rows) or is_first

    def action_move(self, how: str) -> None:
        self._table.move(how)

    def action_open(self) -> None:
        if (row := self._window.current) is None:
            self.strip.show(self._window.why_none(self._nothing()), "dim")
        else:
            self.desk.open("job", row["job_id"])

    def _nothing(self) -> str:
        return "it has settled each letter that had its turn" if self._is_read else "reading …"
