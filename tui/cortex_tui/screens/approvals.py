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

from cortex.domain.approval import Risk
from cortex.domain.approval_vote import BATCH_MAX, check_batch
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.approvals import over_briefly
from cortex_tui.model.editing import edit_of, text_of, why_not_edited
from cortex_tui.model.inbox import ROWS_MAX, Inbox, Tab
from cortex_tui.model.question import Prompt
from cortex_tui.model.resource import Resource
from cortex_tui.model.subject import Edit, Subject, subject_of, version_of
from cortex_tui.render import approval_lines, approval_page, approval_rows
from cortex_tui.screens import approval_decisions
from cortex_tui.screens.approval_briefs import ArgumentReader
from cortex_tui.screens.approval_decisions import REASON_LINES, Decider, name_of
from cortex_tui.screens.approval_news import news_of
from cortex_tui.screens.approval_silence import Silence
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.steps_beside import StepsBeside, StepsOf
from cortex_tui.widgets.json_editor import KEYS as EDITOR_KEYS
from cortex_tui.widgets.json_editor import JsonEditor
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.side import THIRD_MIN
from cortex_tui.widgets.strip_line import NOT_SEEN
from cortex_tui.widgets.virtual_table import VirtualTable

WIDE: Final = 100
"""Cells; from here on the list stands beside the request."""
FLOWS_S: Final = 1.0
"""After a decision, the next request in front is expected for this long."""
LONG_CHARS: Final = 20_000
"""Longer arguments are laid out outside the event loop."""


class ApprovalsScreen(Frame):
    """The inbox of requests for approval."""

    NAME = "approvals"
    DEFAULT_CSS = """
    ApprovalsScreen #panes { height: 1fr; }
    ApprovalsScreen #list { width: 3fr; max-width: 84; }
    ApprovalsScreen #right { width: 2fr; min-width: 48; border-left: vkey $border; }
    ApprovalsScreen #reasons { display: none; height: auto; }
    ApprovalsScreen.-denying #reasons { display: block; }
    ApprovalsScreen.-editing Page { display: none; }
    ApprovalsScreen.-editing JsonEditor { display: block; }
    ApprovalsScreen #one { display: none; }
    ApprovalsScreen.-narrow #one { display: block; }
    ApprovalsScreen.-narrow #list { width: 0; min-width: 0; }
    ApprovalsScreen.-narrow #right { width: 1fr; border: none; }
    """
    SIDE_FROM = THIRD_MIN

    def __init__(self, desk: AppContext) -> None:
        super().__init__(desk)
        self._inbox = Inbox(deciding=lambda: desk.recall.ids)
        self._silence = Silence(desk, self)
        self._arguments = ArgumentReader(desk)
        self._batch: tuple[UUID, ...] = ()
        self._in_front: tuple[UUID, ...] = ()
        """The requests that the guard and the page show."""
        self._subject: Subject | None = None
        """The same, once read."""
        self._edit: Edit | None = None
        self._is_raw = False
        self._is_flowing = False
        """It came to the front through a decision on the previous one."""
        self._agreed_at = float("-inf")
        """The clock's time of the operator's last decision."""
        self._wants_first = False
        """Go to the most urgent request; moving the cursor cancels that, as `Inbox.seek`."""
        self._is_to_approve = False
        """Approve the edited arguments as soon as they were seen."""
        self._page = Page(desk, head=self._head)
        self._decider = Decider(desk, self._silence.guard, scroll=self._page.scroll_page)
        self._table = VirtualTable(
            desk,
            self._inbox.window,
            approval_rows.columns(self._arguments.briefs),
            key=lambda row: row.id,
            empty=lambda: approval_lines.nothing(self._inbox),
        )
        self._table.marked = self._inbox.marked
        self._editor = JsonEditor(desk)
        self._steps = StepsBeside(desk, of=self._steps_of)

    def body(self) -> Iterable[Widget]:
        self._table.id = "list"
        right = Vertical(self._page, self._editor, id="right")
        return (
            Line(self.desk, self._tabs, id="tabs"),
            Line(self.desk, self._one, id="one"),
            Horizontal(self._table, right, self._steps.pane, id="panes"),
            Vertical(*(Line(self.desk, _reason(self.desk, t)) for t in REASON_LINES), id="reasons"),
        )

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < WIDE, "-narrow")
        super().on_resize(event)

    def on_screen_resume(self) -> None:
        self._silence.restart()
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self._stop_editing()
        self.desk.recall.send()  # elsewhere it could not be seen and undone

    def watched(self) -> None:
        self._silence.restart()

    def armed_at(self) -> float:
        return self._silence.guard.armed_at

    def paint(self) -> None:
        self._table.redraw()
        self._page.redraw()
        self._steps.pane.tell()
        for line in ("#tabs", "#one"):
            self.query_one(line, Line).redraw()
        subject = self._subject
        if self.strip.is_asking and subject and (over := self._over(subject)) is not None:
            self._close(over)

    def info(self) -> Cell:
        if (left := self.desk.recall.bar) is not None:
            return left
        if self._subject is not None and (silence := self._silence.bar) is not None:
            return silence
        if count := self._inbox.new_count:
            return Cell(f"▲ {count} new ", "accent")
        if marked := len(self._inbox.marked):
            told = "b leaves the batch" if self._batch else "b takes them together"
            return Cell(f"* {marked} marked   {told} ", "warn")
        return Cell("")

    def writing(self) -> Sequence[tuple[str, str]]:
        return EDITOR_KEYS if self.has_class("-editing") else ()

    def thing(self) -> Resource | None:
        row = self._inbox.window.current
        return None if row is None else approval_decisions.thing_of(self.desk, row.id)

    # --- polling

    async def look(self) -> bool:
        wanted = self._next()
        approvals = self.desk.backend.approvals
        if wanted == "page":
            return await self._look_at_page()
        if wanted == "steps":
            return await self._steps.look()
        if wanted == "arguments":
            await self._arguments.read(self._unread())
            return True
        tab, is_anew = self._inbox.tab, self._wants_first or not self._inbox.is_read
        by, also = self.desk.session.actor, self._inbox.held
        if tab is Tab.DECIDED:
            rows = await approvals.decided(limit=ROWS_MAX)
        else:
            credential = self.desk.session.credential
            rows = await approvals.waiting(by=by, credential=credential, also=also, limit=ROWS_MAX)
        if tab is not self._inbox.tab:
            return True
        is_news = self._inbox.take(rows)
        if self._inbox.give_up(also):
            self.strip.tell("that request waits no more", "warn")
        self._table.tell_cut(approval_lines.cut(self._inbox))
        if is_anew and self._wants_first:
            self._wants_first = False
            self._inbox.go_first(self.desk.session.now)
        self._refocus()
        return is_news

    def _next(self) -> str:
        """Choose the next query."""
        if not self._inbox.is_read or self._wants_first:
            return "list"
        if self._in_front and not self._is_fresh():
            return "page"
        if self._unread():
            return "arguments"
        return "steps" if self._steps.wants else "list"

    @property
    def is_seeking(self) -> bool:
        """Whether another request is about to come to the front."""
        return self._wants_first or self._inbox.is_seeking

    def _is_fresh(self) -> bool:
        """Whether the request in front was read in its current version."""
        if self._subject is None:
            return False
        rows = [self._inbox.row(each) for each in self._in_front]
        known = tuple(version_of(row) for row in rows if row is not None)
        return len(known) < len(rows) or known == self._subject.version

    def _unread(self) -> list[UUID]:
        return self._arguments.unread(self._inbox.window.visible or ())

    async def _look_at_page(self) -> bool:
        asked = self._in_front
        found = {each.id: each for each in await self.desk.backend.approvals.show(asked)}
        approvals = [found[each] for each in asked if each in found]
        if asked != self._in_front or len(approvals) < len(asked):
            return asked != self._in_front
        try:
            check_batch(approvals)
        except UsageError as error:
            self._batch = ()
            told = error.message
            for each in asked:
                told = told.replace(str(each), short_id(each))
            self.strip.tell(f"✗ {safe(told)}", "fail")
            self._refocus()
            return True
        is_long = sum(len(each.arguments_text) for each in approvals) > LONG_CHARS
        subject = (
            await asyncio.to_thread(subject_of, approvals) if is_long else subject_of(approvals)
        )
        if asked == self._in_front:
            self._take(subject)
        return True

    def _take(self, subject: Subject) -> None:
        """Show the current version of the request in front."""
        before, self._subject = self._subject, subject
        if before is None:
            if not self._is_flowing:
                self._silence.restart()
        elif before.digests != subject.digests:
            self._edit = None
            self._stop_editing()
            self._silence.restart()
            self._close_for(before, "the arguments were changed: look at them again")
        elif before.version != subject.version:
            self._close_for(before, news_of(subject))
        self._lay_out(is_other=before is None or before.digests != subject.digests)

    def _lay_out(self, *, is_other: bool) -> None:
        subject, room = self._subject, self._page.room
        if subject is None:
            self._page.show((), is_other=True)
        elif len(subject.approvals) > 1:
            lines = approval_page.batch_page(subject.approvals, subject.facts, room)
            self._page.show(lines, is_other=is_other)
        else:
            edit = self._edit.changes if self._edit else ()
            lines = approval_page.page(
                subject.facts, subject.approvals[0], room, edit=edit, is_raw=self._is_raw
            )
            self._page.show(lines, is_other=is_other)

    # --- the request in front

    def _refocus(self, *, is_flowing: bool = False) -> None:
        """Show the request in front; another one restarts the quiet time."""
        focused = self._inbox.focused
        wanted = self._batch or ((focused,) if focused else ())
        if wanted == self._in_front:
            return
        self._in_front, self._subject, self._edit = wanted, None, None
        self._is_raw, self._is_flowing, self._is_to_approve = False, is_flowing, False
        self._stop_editing()
        self._close("")
        if is_flowing:
            self._silence.skip()
        else:
            self._silence.restart()
        self._lay_out(is_other=True)
        self.desk.wake()

    def _over(self, subject: Subject) -> str | None:
        over = over_briefly(subject.approvals, self.desk.session.now)
        return None if over is None else safe(over)

    def go_first(self) -> None:
        """Go to the most urgent request that this operator may decide."""
        self._unmark()
        if self._inbox.tab is not Tab.MINE:
            self._to_tab(Tab.MINE)
        self._wants_first = True
        self.desk.wake()

    def go_to(self, approval_id: UUID) -> None:
        """Go to a request, if it still waits."""
        self._unmark()
        if self._inbox.tab is not Tab.ALL:
            self._to_tab(Tab.ALL)
        self._wants_first = False
        self._inbox.seek(approval_id)
        self._moved()

    def _unmark(self) -> None:
        """Clear all marks, because they freeze the order."""
        if count := len(self._inbox.marked):
            self.strip.tell(f"{count} marked before: not marked any more", "warn")
        self._batch = ()
        self._inbox.marked.clear()

    # --- keys

    def pressed(self) -> None:
        """Let every key count for the quiet time, whatever it does."""
        super().pressed()
        self._silence.press()

    def action_move(self, how: str) -> None:
        if how in ("half_down", "half_up"):
            self._page.scroll_page("pagedown" if how == "half_down" else "pageup")
            return
        self._batch = ()
        self._chosen()
        self._table.move(how)

    def action_next(self) -> None:
        self._batch = ()
        self._chosen()
        self._inbox.leave(self._in_front, self.desk.session.now)
        self._moved()

    def _chosen(self) -> None:
        """Note that the operator moved the cursor."""
        if self._inbox.is_read:
            self._wants_first = False
            self._inbox.seek(None)

    def action_next_tab(self) -> None:
        tabs = list(Tab)
        self._to_tab(tabs[(tabs.index(self._inbox.tab) + 1) % len(tabs)])

    def action_raw(self) -> None:
        if len(self._in_front) > 1:
            self.strip.tell("a batch shows in what its requests differ: b, then i for one", "dim")
            return
        self._is_raw = not self._is_raw
        self._lay_out(is_other=False)

    def action_job(self) -> None:
        row = self._inbox.window.current
        if row is not None:
            self.desk.open("job", row.job_id)

    def action_mark(self) -> None:
        focused = self._inbox.focused
        if focused is None or self._inbox.tab is Tab.DECIDED:
            return
        self._chosen()
        self._inbox.marked ^= {focused}
        self._inbox.arrange()
        self._table.move("down")

    def action_batch(self) -> None:
        if self._batch:
            self._batch = ()
        elif len(self._inbox.marked) in range(2, BATCH_MAX + 1):
            order = (row.id for row in self._inbox.window.rows)
            self._batch = tuple(each for each in order if each in self._inbox.marked)
        else:
            told = f"mark 2 to {BATCH_MAX} requests of one shape with space, then press b"
            self.strip.tell(told, "warn")
        self._refocus()

    def action_approve(self) -> None:
        subject = self._ready(is_approving=True)
        if subject is None:
            return
        if not self._page.is_seen and subject.facts.risk.rank >= Risk.MED.rank:
            self._page.scroll_page("pagedown")
            self._silence.restart()
            below = self._page.below_count
            lines = "1 more line" if below == 1 else f"{below} more lines"
            told = f"Read all of it first: {lines}." if below else "That was everything."
            self.strip.tell(f"{told} Press a again to {'read on' if below else 'approve'}.", "warn")
            return
        edit = self._edit
        question = self._decider.approving(subject, edit)
        self._ask(
            subject,
            question,
            lambda: self._decider.approval(subject, edit, self._decided, typed=question.typed),
        )

    def action_deny(self) -> None:
        subject = self._ready(is_approving=False)
        if subject is None:
            return
        question = self._decider.denying(subject)
        self.add_class("-denying")
        self._ask(
            subject,
            question,
            lambda: self._decider.denial(subject, question.reason, self._decided),
        )

    def action_edit(self) -> None:
        subject = self._ready(is_approving=True)
        if subject is None:
            return
        if (told := why_not_edited(subject)) is not None:
            self.strip.tell(told, "warn")
            return
        self.add_class("-editing")
        self._editor.edit(text_of(subject))
        self.repaint()

    def _ready(self, *, is_approving: bool) -> Subject | None:
        """Return the subject that this key can decide, or show why there is none."""
        subject = self._subject
        told = self.desk.acts.why_not()
        if told is None and not self._silence.is_over:
            self._silence.fill()
            return None
        if told is None:
            if subject is None or self.is_seeking or not self._is_fresh():
                told = "it is being read" if self._in_front else approval_lines.nothing(self._inbox)
            elif self.desk.recall.ids & set(subject.ids):
                told = "you have just decided it: u recalls that"
            elif (over := self._over(subject)) is not None:
                told = over
            elif is_approving:
                told = approval_decisions.why_not_mine(self._inbox.row(self._in_front[0]))
        if told is not None:
            self.strip.tell(told, "warn")
            return None
        return subject

    # --- deciding

    def _ask(self, subject: Subject, question: Prompt, act: Callable[[], Action]) -> None:
        self._inbox.is_asking = True

        def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
            self._inbox.is_asking = False
            self.remove_class("-denying")
            self._silence.restart()
            if is_agreed:
                self._agreed_at = self.desk.session.clock.now()
                self._agreed(subject, act())
            else:
                self.strip.tell("nothing was done", "dim")
            self._inbox.arrange()

        self.strip.ask(question, answered)
        self._silence.fill()

    def _agreed(self, subject: Subject, act: Action) -> None:
        """Send the decision after a moment in which it can be undone, or at once.

        If nothing may be changed now, say so at once rather than after that moment.
        """
        recall, for_s = self.desk.recall, self._decider.recall_s(subject)
        if not for_s or self.desk.session.why_not_act() is not None:
            recall.send()
            self.desk.acts.agreed(self.strip, act, waits=True)
            return
        recall.hold(self.strip, act, subject.ids, for_s=for_s, changed=self.strip.redraw)
        self._decided(subject.ids)

    def action_recall(self) -> None:
        held = self.desk.recall.take_back()
        if held is None:
            self.strip.tell("there is nothing to recall: what you decided was sent", "dim")
            return
        if self._inbox.tab is Tab.DECIDED:
            self._to_tab(Tab.MINE)
        self.strip.tell(f"recalled: {safe(held.act.question)}: nothing was sent", "warn")
        self._inbox.seek(held.ids[0])
        self._moved()

    def _close(self, told: str) -> None:
        """Withdraw an open or pending question, and say why."""
        if self.strip.is_asking:
            self.strip.withdraw(told or NOT_SEEN)
        elif told:
            self.strip.tell(told, "warn")

    def _close_for(self, before: Subject, told: str) -> None:
        """Withdraw the question because of news, unless the operator's own action reports it."""
        self._close("" if self._decider.own.tell(before) else told)

    def _decided(self, ids: Sequence[UUID]) -> None:
        """Go to the next request, unless the operator has moved or left."""
        is_in_front = self.is_running and tuple(ids) == self._in_front
        self._inbox.marked -= set(ids)
        if tuple(ids) == self._batch:
            self._batch = ()
        if is_in_front:
            is_flowing = self.desk.session.clock.now() - self._agreed_at < FLOWS_S
            self._inbox.leave(ids, self.desk.session.now)
            self._refocus(is_flowing=is_flowing)

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._table.redraw()
        self._steps.moved()
        if not self._batch:
            self._refocus()

    @on(Page.Resized)
    def _resized(self) -> None:
        if self._page.size.width == 0:  # it is hidden
            return
        self._lay_out(is_other=False)
        if self._is_to_approve:
            self._is_to_approve = False
            self._silence.skip()  # the question has its own quiet time
            self.action_approve()

    @on(JsonEditor.Left)
    def _left(self) -> None:
        self._stop_editing()
        self.strip.tell("the arguments stay as they are", "dim")

    @on(JsonEditor.Taken)
    def _taken(self, event: JsonEditor.Taken) -> None:
        subject = self._subject
        if subject is None:
            return
        try:
            edit = edit_of(subject, event.text)
        except CortexError as error:
            self._editor.refuse(error.message)
            return
        self._stop_editing()
        self._edit, self._is_to_approve = edit, edit is not None
        self._lay_out(is_other=True)
        if edit is None:
            self.strip.tell("nothing was changed", "dim")

    def _stop_editing(self) -> None:
        if self.has_class("-editing"):
            self.remove_class("-editing")
            self.set_focus(self._table)
            self.repaint()

    def _to_tab(self, tab: Tab) -> None:
        self._unmark()
        self._inbox.to_tab(tab)
        make = approval_rows.columns if tab is not Tab.DECIDED else approval_rows.decided_columns
        self._table.columns = make(self._arguments.briefs)
        self._refocus()
        self.desk.wake()
        self.repaint()

    # --- lines

    def _steps_of(self) -> StepsOf | None:
        row = self._inbox.window.current
        return None if row is None else (row.job_id, (row.id, row.version, row.status))

    def _head(self) -> tuple[Cell, Cell]:
        subject = self._subject
        if subject is None:
            return Cell("reading …" if self._in_front else "", "dim"), Cell("")
        if len(subject.approvals) > 1:
            return Cell(name_of(subject), "bold"), Cell("BATCH", "bold")
        row = self._inbox.row(subject.facts.id)
        is_own = row is not None and row.is_own
        title, when = approval_page.head(subject.facts, self.desk.session.now, is_own=is_own)
        return Cell(title, "bold"), when

    def _tabs(self, width: int) -> Strip:
        return approval_lines.tabs(self._inbox, self.desk.palette, width)

    def _one(self, width: int) -> Strip:
        now = self.desk.session.now
        return approval_lines.one(
            self._inbox, self._arguments.briefs, now, self.desk.palette, width
        )


def _reason(desk: AppContext, text: str) -> Callable[[int], Strip]:
    return lambda _: Strip([Segment(f"   {text}", desk.palette["accent"])])
