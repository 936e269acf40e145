"""Brings requests to the front of the inbox; withdraws questions about what has changed."""

from typing import Final
from uuid import UUID

from cortex.domain.approvals.vote import BATCH_MAX
from cortex.store.approvals import InboxRow
from cortex_tui.app_context import AppContext
from cortex_tui.model.approvals_state import ApprovalsState, OwnActions, Subject, SubjectChange
from cortex_tui.model.inbox import Tab
from cortex_tui.model.verdict import Silence
from cortex_tui.render import approval_rows
from cortex_tui.render.approval_rows import Briefs
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.request_pane import RequestPane
from cortex_tui.screens.steps_beside import StepsBeside
from cortex_tui.widgets.strip_line import NOT_SEEN
from cortex_tui.widgets.virtual_table import VirtualTable

CHANGED: Final = "the arguments were changed: look at them again"


class ApprovalsController:
    """Changes what is in front; another request restarts the quiet time."""

    def __init__(
        self,
        context: AppContext,
        state: ApprovalsState,
        frame: Frame,
        *,
        silence: Silence,
        table: VirtualTable[InboxRow],
        pane: RequestPane,
        steps: StepsBeside,
        briefs: Briefs,
        own: OwnActions,
    ) -> None:
        self._context, self._state, self._frame, self._strip = context, state, frame, frame.strip
        self._silence, self._table, self._pane, self._steps = silence, table, pane, steps
        self._briefs, self._own = briefs, own

    # --- what is in front

    def refocus(self, *, is_flowing: bool = False) -> None:
        """Show the requests in front; `is_flowing`: they came there through a decision."""
        if not self._state.bring_to_front(is_flowing=is_flowing):
            return
        self._pane.stop_editing()
        self.withdraw("")
        if is_flowing:
            self._silence.skip()
        else:
            self._silence.restart()
        self._pane.lay_out(is_other=True)
        self._context.wake()

    def update(self, subject: Subject) -> None:
        """Show the current version of the requests in front."""
        before = self._state.subject
        change = self._state.update(subject)
        if change is SubjectChange.FIRST and not self._state.is_flowing:
            self._silence.restart()
        elif change is SubjectChange.ARGUMENTS:
            self._pane.stop_editing()
            self._silence.restart()
        if before is not None and change is not SubjectChange.NONE:
            is_ours = self._own.reports(before)
            news = CHANGED if change is SubjectChange.ARGUMENTS else subject.news
            self.withdraw("" if is_ours else news)
        is_other = change in (SubjectChange.FIRST, SubjectChange.ARGUMENTS)
        self._pane.lay_out(is_other=is_other)

    def withdraw(self, why: str) -> None:
        """Withdraw an open question, and say why; "" adds nothing."""
        if self._strip.is_asking:
            self._strip.withdraw(why or NOT_SEEN)
        elif why:
            self._strip.show(why, "warn")

    def withdraw_if_over(self) -> None:
        """Withdraw the question about requests that cannot be decided any more."""
        subject = self._state.subject
        if not self._strip.is_asking or subject is None:
            return
        if (over := subject.over(self._context.session.now)) is not None:
            self.withdraw(over)

    def moved(self) -> None:
        """Follow the cursor, which moved by a key or by itself."""
        self._table.redraw()
        self._steps.moved()
        if not self._state.batch:
            self.refocus()

    # --- where the operator goes

    def move(self, how: str) -> None:
        """Move the cursor, by the name of the key."""
        self._state.batch = ()
        self._state.stay()
        self._table.move(how)

    def next(self) -> None:
        """Go to the next request that this operator may decide."""
        self._state.batch = ()
        self._state.stay()
        self._state.inbox.leave(self._state.in_front, self._context.session.now)
        self.moved()

    def go_first(self) -> None:
        """Go to the most urgent request that this operator may decide."""
        self._unmark()
        if self._state.inbox.tab is not Tab.MINE:
            self.to_tab(Tab.MINE)
        self._state.wants_first = True
        self._context.wake()

    def go_to(self, approval_id: UUID) -> None:
        """Go to a request, if it still waits."""
        self._unmark()
        if self._state.inbox.tab is not Tab.ALL:
            self.to_tab(Tab.ALL)
        self._state.wants_first = False
        self._state.inbox.seek(approval_id)
        self.moved()

    def next_tab(self) -> None:
        tabs = list(Tab)
        self.to_tab(tabs[(tabs.index(self._state.inbox.tab) + 1) % len(tabs)])

    def to_tab(self, tab: Tab) -> None:
        self._unmark()
        self._state.inbox.to_tab(tab)
        make = approval_rows.columns if tab is not Tab.DECIDED else approval_rows.decided_columns
        self._table.columns = make(self._briefs)
        self.refocus()
        self._context.wake()
        self._frame.repaint()

    # --- marks and display

    def mark(self) -> None:
        """Mark the request under the cursor, or unmark it, and go on."""
        if self._state.toggle_mark():
            self._table.move("down")

    def batch(self) -> None:
        """Take the marked requests together, or leave the batch."""
        if not self._state.toggle_batch():
            how = f"mark 2 to {BATCH_MAX} requests of one shape with space, then press b"
            self._strip.show(how, "warn")
        self.refocus()

    def raw(self) -> None:
        """Show the arguments as they are stored, or in rows again."""
        if len(self._state.in_front) > 1:
            hint = "a batch shows in what its requests differ: b, then i for one"
            self._strip.show(hint, "dim")
            return
        self._state.is_raw = not self._state.is_raw
        self._pane.lay_out(is_other=False)

    def _unmark(self) -> None:
        if count := self._state.unmark():
            self._strip.show(f"{count} marked before: not marked any more", "warn")
