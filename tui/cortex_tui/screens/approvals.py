"""The inbox: open requests, shown in full and decided by a few deliberate keys.

The operator decides what was shown: requests are identified by the id and digest taken when the
question opened. New rows never move the cursor; any other change of a request closes its question.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from rich.segment import Segment
from textual import events, on
from textual.containers import Horizontal, Vertical
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.approvals.approval import Approval
from cortex.view.cells import Cell
from cortex.view.resources.approvals import APPROVAL
from cortex_tui.app_context import AppContext
from cortex_tui.model.approvals_state import ApprovalsState
from cortex_tui.model.inbox import Inbox
from cortex_tui.model.selected import Selected
from cortex_tui.model.verdict import Silence
from cortex_tui.render import approval_front, approval_lines, approval_rows
from cortex_tui.screens.approval_briefs import ArgumentReader
from cortex_tui.screens.approvals_controller import ApprovalsController
from cortex_tui.screens.approvals_loader import ApprovalsLoader
from cortex_tui.screens.decision_flow import REASON_LINES, Decider, DecisionFlow
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.request_pane import RequestPane
from cortex_tui.screens.steps_beside import StepsBeside
from cortex_tui.widgets.json_editor import KEYS as EDITOR_KEYS
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.side import THIRD_MIN
from cortex_tui.widgets.virtual_table import VirtualTable

WIDE: Final = 100
"""Cells; from here on the list stands beside the request."""


class ApprovalsScreen(Frame):
    """The inbox of requests for approval."""

    NAME = "approvals"
    AUTO_FOCUS = "#list"
    DEFAULT_CSS = """
    ApprovalsScreen #panes { height: 1fr; }
    ApprovalsScreen #list { width: 3fr; max-width: 84; }
    ApprovalsScreen #right { width: 2fr; min-width: 48; border-left: vkey $border; }
    ApprovalsScreen #reasons { display: none; height: auto; }
    ApprovalsScreen.-denying #reasons { display: block; }
    ApprovalsScreen #one { display: none; }
    ApprovalsScreen.-narrow #one { display: block; }
    ApprovalsScreen.-narrow #list { width: 0; min-width: 0; }
    ApprovalsScreen.-narrow #right { width: 1fr; border: none; }
    """
    SIDE_FROM = THIRD_MIN

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        inbox = Inbox(deciding=lambda: context.recall.ids)
        self.state = state = ApprovalsState(inbox=inbox)
        session, clock = context.session, context.session.clock
        self._silence = silence = Silence(
            now=clock.now,
            came=lambda: session.key_came_at,
            wait=lambda until: clock.wait(asyncio.Event(), until=until),
            start=self.run_worker,
            is_shown=lambda: self.is_attached,
            redraw=self.strip.redraw,
        )
        self._arguments = arguments = ArgumentReader(context)
        self._table = table = VirtualTable(
            context,
            inbox.window,
            approval_rows.columns(arguments.briefs),
            key=lambda row: row.id,
            empty=lambda: approval_lines.nothing(inbox),
        )
        table.id = "list"
        table.marked = inbox.marked
        self._pane = pane = RequestPane(
            context,
            state,
            self,
            focus=table,
            approve=lambda: self._decisions.approve_edited(),  # noqa: PLW0108 -- made below
        )
        pane.id = "right"
        self._steps = steps = StepsBeside(context, of=state.job_under_cursor)
        decider = Decider(context, silence.guard, scroll=pane.page.scroll_page)
        self.controller = controller = ApprovalsController(
            context,
            state,
            self,
            silence=silence,
            table=table,
            pane=pane,
            steps=steps,
            briefs=arguments.briefs,
            own=decider.own,
        )
        self._loader = ApprovalsLoader(
            context,
            state,
            controller,
            strip=self.strip,
            table=table,
            arguments=arguments,
            steps=steps,
        )
        self._decisions = DecisionFlow(
            context, state, controller, decider, self, silence=silence, pane=pane
        )

    def body(self) -> Iterable[Widget]:
        context, inbox, briefs = self.context, self.state.inbox, self._arguments.briefs
        return (
            Line(
                context, lambda width: approval_lines.tabs(inbox, context.palette, width), id="tabs"
            ),
            Line(
                context,
                lambda width: approval_lines.one(
                    inbox, briefs, context.session.now, context.palette, width
                ),
                id="one",
            ),
            Horizontal(self._table, self._pane, self._steps.pane, id="panes"),
            Vertical(
                *(Line(context, _reason(context, text)) for text in REASON_LINES), id="reasons"
            ),
        )

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < WIDE, "-narrow")
        super().on_resize(event)

    def on_screen_suspend(self) -> None:
        self._pane.stop_editing()
        self.context.recall.send()  # elsewhere it could not be seen and undone

    def watched(self) -> None:
        self._silence.restart()

    def armed_at(self) -> float:
        return self._silence.guard.armed_at

    async def look(self) -> bool:
        return await self._loader.look()

    def paint(self) -> None:
        self._table.redraw()
        self._pane.page.redraw()
        self._steps.pane.follow()
        for line in ("#tabs", "#one"):
            self.query_one(line, Line).redraw()
        self.controller.withdraw_if_over()

    def info(self) -> Cell:
        if (left := self.context.recall.bar) is not None:
            return left
        if self.state.subject is not None and (silence := self._silence.bar) is not None:
            return silence
        return approval_front.marks(self.state)

    def writing(self) -> Sequence[tuple[str, str]]:
        return EDITOR_KEYS if self._pane.is_editing else ()

    def resource(self) -> Selected | None:
        row = self.state.inbox.window.current
        return None if row is None else _selected(self.context, row.id)

    # --- keys

    def pressed(self) -> None:
        """Let every key count for the quiet time, whatever it does."""
        super().pressed()
        self._silence.press()

    def action_move(self, how: str) -> None:
        if how in ("half_down", "half_up"):
            self._pane.page.scroll_page("pagedown" if how == "half_down" else "pageup")
        else:
            self.controller.move(how)

    def action_next(self) -> None:
        self.controller.next()

    def action_next_tab(self) -> None:
        self.controller.next_tab()

    def action_raw(self) -> None:
        self.controller.raw()

    def action_job(self) -> None:
        row = self.state.inbox.window.current
        if row is not None:
            self.context.open("job", row.job_id)

    def action_mark(self) -> None:
        self.controller.mark()

    def action_batch(self) -> None:
        self.controller.batch()

    def action_approve(self) -> None:
        self._decisions.approve()

    def action_deny(self) -> None:
        self._decisions.deny()

    def action_edit(self) -> None:
        self._decisions.edit()

    def action_recall(self) -> None:
        self._decisions.recall()

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self.controller.moved()


def _reason(context: AppContext, text: str) -> Callable[[int], Strip]:
    return lambda _: Strip([Segment(f"   {text}", context.palette["accent"])])


def _selected(context: AppContext, approval_id: UUID) -> Selected:
    """Return a request as the object under the cursor."""

    async def document() -> object:
        return await context.backend.approvals.show([approval_id])

    async def read() -> Approval | None:
        found = await context.backend.approvals.show([approval_id])
        return found[0] if found else None

    command = f"cortex approvals show {approval_id}"
    return Selected(
        id=str(approval_id), command=command, shape=APPROVAL, read=read, document=document
    )
