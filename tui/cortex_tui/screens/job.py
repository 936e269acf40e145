"""One job: its state and the reason, its steps on a time axis, one step in full, and the stream.

Each poll is one statement: the changes since the last one, a page of older steps when the cursor
comes near them, or the step under the cursor. The model's output arrives as messages.
"""

from collections.abc import Hashable, Iterable
from typing import Final
from uuid import UUID

import attrs
from rich.segment import Segment
from textual import events, on
from textual.containers import Container, Horizontal, Vertical
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.answer_text import AnswerPiece, Message
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.waiting import EffectWait
from cortex.store.job_view import StepDetail, WatchedJob
from cortex.view.cells import Cell
from cortex.view.why_brief import EXPLAINED
from cortex_tui.app_context import AppContext
from cortex_tui.model.resource import Resource
from cortex_tui.model.step_list import PAGE_STEPS, StepList
from cortex_tui.model.stream import Stream
from cortex_tui.model.wait_reasons import EVERY_S, standing
from cortex_tui.model.waterfall import WaterfallRow, next_problem, rows_of
from cortex_tui.model.window import Window
from cortex_tui.render import job_head, step_page
from cortex_tui.render.step_page import View
from cortex_tui.render.table import fit
from cortex_tui.screens import job_actions
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.stream_lines import StreamLines
from cortex_tui.widgets.virtual_table import VirtualTable
from cortex_tui.widgets.waterfall import Waterfall

WIDE: Final = 100
"""Cells; from here on a step stands beside the waterfall."""
WIDEST: Final = 160
"""Cells; from here on the stream stands beside both."""
AHEAD_ROWS: Final = 50
NEVER: Final = 2**31 - 1
"""A number after every step, to read none."""
PANES: Final = ("steps", "detail", "said")
VIEWS: Final = tuple(View)


class JobScreen(Frame):
    """The screen of one job."""

    NAME = "job"
    DEFAULT_CSS = """
    JobScreen #all { height: 1fr; layout: vertical; }
    JobScreen #panes { height: 1fr; }
    JobScreen Waterfall { width: 3fr; }
    JobScreen #right { width: 2fr; border-left: vkey $border; }
    JobScreen.-narrow.-on-detail Waterfall { display: none; }
    JobScreen.-narrow #right { display: none; width: 1fr; border: none; }
    JobScreen.-narrow.-on-detail #right { display: block; }
    JobScreen.-tall StreamLines { height: 12; }
    JobScreen.-widest #all { layout: horizontal; }
    JobScreen.-widest #panes { width: 8fr; }
    JobScreen.-widest Waterfall { width: 4fr; }
    JobScreen.-widest #right { width: 3fr; }
    JobScreen.-widest StreamLines { height: 1fr; width: 3fr; border-left: vkey $border; }
    JobScreen.-silent StreamLines { display: none; }
    JobScreen.-max StreamLines { display: none; }
    JobScreen.-max.-on-said StreamLines { display: block; height: 1fr; }
    JobScreen.-max.-on-said #panes { display: none; }
    JobScreen.-max.-on-steps #right { display: none; }
    JobScreen.-max.-on-detail Waterfall { display: none; }
    JobScreen.-max.-on-detail #right { width: 1fr; border: none; }
    JobScreen.-max.-on-said StreamLines { width: 1fr; border: none; }
    """

    def __init__(self, desk: AppContext, job_id: UUID) -> None:
        super().__init__(desk)
        self._job_id = job_id
        self._row: WatchedJob | None = None
        self._steps = StepList()
        self._wanted = "newest"
        """The end of the steps to read: newest, oldest, or ""."""
        self._folded: frozenset[int] = frozenset()
        self._window: Window[WaterfallRow, None] = Window(key=lambda row: row.key)
        self._fall = Waterfall(desk, self._window, empty=self._nothing)
        self._page = Page(desk, head=self._page_head)
        self._view = View.STEP
        self._detail: StepDetail | None = None
        self._detail_of: tuple[object, ...] | None = None
        """The row of the detail, and its state."""
        self._why_brief: tuple[Hashable, str] = (None, "")
        """The state of the job, and what blocked it then."""
        self._why_due = float("-inf")
        self._said = Stream()
        self._said_lines = StreamLines(desk, self._said, told=lambda: self._hearing)
        self._hearing = ""
        self._listening = desk.backend.job.listen(job_id, heard=self._heard, told=self._told)
        self._is_listening = False
        self._pane = "steps"

    def body(self) -> Iterable[Widget]:
        return (
            Line(self.desk, self._state, id="state"),
            Line(self.desk, self._why, id="why"),
            Container(
                Horizontal(self._fall, Vertical(self._page, id="right"), id="panes"),
                self._said_lines,
                id="all",
            ),
        )

    def on_mount(self) -> None:
        self.set_focus(self._fall)
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < WIDE, "-narrow")
        self.set_class(event.size.width >= WIDEST, "-widest")
        self.set_class(event.size.height >= 40, "-tall")  # noqa: PLR2004 -- twice the least
        super().on_resize(event)

    def on_screen_resume(self) -> None:
        self._listen()
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self._hush()

    def path(self) -> tuple[str, ...]:
        return ("jobs", short_id(self._job_id))

    def paint(self) -> None:
        for line in ("#state", "#why"):
            self.query_one(line, Line).redraw()
        self._fall.redraw()
        self._page.redraw()
        self._said_lines.redraw()
        row = self._window.current
        if row is not None and row.ended is None:
            self._lay_out(is_other=False)

    def info(self) -> Cell:
        steps = self._steps
        if steps.first == 1 and steps.has_end:
            return Cell("")
        return Cell(f"steps {steps.first:,} to {steps.last:,} of {steps.newest:,} ", "dim")

    def thing(self) -> Resource | None:
        return job_actions.thing_of_step(self.desk, self._job_id, self._window.current)

    # --- polling

    async def look(self) -> bool:
        job = self.desk.backend.job
        wanted = self._next()
        if wanted == "above":
            first = self._steps.first
            found = await job.steps_before(self._job_id, before=first, limit=PAGE_STEPS)
            if first == self._steps.first:
                self._steps.precede(found)
                self._rearrange()
            return True
        if wanted == "detail":
            return await self._look_at_detail()
        if wanted == "why":
            return await self._look_at_why()
        after = {"newest": None, "oldest": 0, "below": self._steps.last}.get(wanted, NEVER)
        last = self._steps.last
        seen = await job.look(self._job_id, after=after, limit=PAGE_STEPS)
        row, steps = seen.job, seen.steps
        of, brief = self._why_brief
        row = attrs.evolve(row, why=brief if of == standing(row) else "")
        is_other_head = self.desk.take_head(seen.head)
        if wanted != self._wanted and wanted in ("newest", "oldest"):
            return True  # the operator has moved to the other end
        newest = row.checkpoint.get("seq", 0)
        is_news = row != self._row
        self._take(row)
        if wanted in ("newest", "oldest"):
            self._wanted = ""
            self._steps.renew(steps, newest=newest)
        elif last == self._steps.last:
            is_news |= self._steps.extend(steps, newest=newest)
        for step in steps:
            self._said.committed(step.key)
        if is_news or wanted in ("newest", "oldest"):
            self._rearrange(end=wanted if wanted != "below" else "")
        return is_news or is_other_head

    def _next(self) -> str:
        """Choose the next query."""
        window, steps = self._window, self._steps
        if self._wanted:
            return self._wanted
        if window.top < AHEAD_ROWS and steps.first > 1:
            return "above"
        if self._is_detail_seen and self._wanted_detail() != self._detail_of:
            return "detail"
        if self._wants_why:
            return "why"
        is_near = window.top + window.height + AHEAD_ROWS > len(window.rows)
        return "below" if steps.has_end or is_near else "job"

    @property
    def _wants_why(self) -> bool:
        """Whether to read what blocks the job: at once after a change of state."""
        if self._row is None or self._row.status not in EXPLAINED:
            return False
        is_other = self._why_brief[0] != standing(self._row)
        return is_other or self.desk.session.clock.now() >= self._why_due

    async def _look_at_why(self) -> bool:
        before = self._row
        if before is None:
            return False
        self._why_due = self.desk.session.clock.now() + EVERY_S
        found = await self.desk.backend.jobs.whys([self._job_id])
        self._why_brief = standing(before), found.get(self._job_id, "")
        self._row = attrs.evolve(before, why=self._why_brief[1])
        return self._row != before

    def _take(self, row: WatchedJob) -> None:
        before, self._row = self._row, row
        if before is not None and (before.attempt, before.pod) != (
            row.attempt,
            row.pod,
        ):
            self._listening.renew()
        if row.finished_at is not None:
            self._hush()
        elif before is None:
            self._listen()
        is_quiet = row.status is not JobStatus.RUNNING and self._said.answer is None
        self.set_class(is_quiet, "-silent")

    def _rearrange(self, *, end: str = "") -> None:
        """Rebuild the rows; the cursor stays on its row, or at the end when it follows."""
        if self._row is None:
            return
        window = self._window
        is_last = window.cursor in (None, len(window.rows) - 1)
        saying = "" if self._said.is_over else self._said.key
        rows = rows_of(self._row, self._steps.steps, folded=self._folded, saying=saying)
        window.rearrange(rows)
        is_whole = self._steps.first == 1
        self._fall.zero = None if is_whole else self._row.started_at  # earlier steps exist
        follows = self._fall.zoom.follows and is_last and self._steps.has_end
        if end == "newest" or (follows and not end):
            window.move_to(len(rows) - 1)
        elif end == "oldest":
            window.move_to(0)
        self._moved()

    def _wanted_detail(self) -> tuple[object, ...] | None:
        row, job = self._window.current, self._row
        if job is None:
            return None
        if row is None:  # the job itself has facts before its first step
            return "", "", None, "", job.status, job.attempt
        return row.key, row.step_key, row.ended, row.note, job.status, job.attempt

    async def _look_at_detail(self) -> bool:
        row, asked = self._window.current, self._wanted_detail()
        key = "" if row is None else row.step_key
        found = await self.desk.backend.job.detail(self._job_id, key)
        if asked == self._wanted_detail():
            before, self._detail_of = self._detail_of, asked
            self._detail = found
            self._lay_out(is_other=before is None or asked is None or before[0] != asked[0])
        return True

    @property
    def _is_detail_seen(self) -> bool:
        return self.query_one("#right").display and self._page.size.width > 0

    def _lay_out(self, *, is_other: bool) -> None:
        """Rebuild the lines of the step."""
        row, job = self._window.current, self._row
        if job is None:
            return
        detail = self._detail if self._wanted_detail() == self._detail_of else None
        if detail is None and not is_other:
            return
        now, width = self.desk.session.now, self._page.room
        lines = step_page.page(row, detail, job, self._view, now=now, width=width)
        self._page.show(lines, is_other=is_other)

    # --- the model's output

    def _listen(self) -> None:
        is_over = self._row is not None and self._row.finished_at is not None
        if self.is_mounted and not self._is_listening and not is_over:
            self._is_listening = True
            self.run_worker(self._listening.run(), group="listening", exclusive=True)

    def _hush(self) -> None:
        self._is_listening = False
        self.workers.cancel_group(self, "listening")

    def _heard(self, message: Message) -> None:
        if not isinstance(message, AnswerPiece):
            self.desk.wake()
            return
        before = self._said.key
        if self._said.take(message, now=self.desk.session.clock.now()):
            self.remove_class("-silent")
            self._said_lines.changed()
            if before != self._said.key:
                self._rearrange()

    def _told(self, hearing: str) -> None:
        self._hearing = hearing
        self._said_lines.redraw()

    # --- keys that read

    def action_move(self, how: str) -> None:
        if self._pane == "steps":
            self._move_in_steps(how)
            return
        key = {"half_down": "ctrl+d", "half_up": "ctrl+u"}.get(how, how)
        if self._pane == "detail":
            self._page.scroll_page(key)
            return
        half = max(1, self._said_lines.size.height // 2)
        lines = {"down": 1, "up": -1, "half_down": half, "half_up": -half, "top": -NEVER}
        self._said_lines.scroll_lines(lines.get(how, NEVER))

    def _move_in_steps(self, how: str) -> None:
        is_far = (how == "end" and not self._steps.has_end) or (
            how == "top" and self._steps.first > 1
        )
        if is_far:
            self._wanted = "newest" if how == "end" else "oldest"
            self.desk.wake()
        else:
            self._fall.move(how)

    def action_pane(self) -> None:
        """Focus the next pane."""
        panes = [each for each in PANES if each != "said" or not self.has_class("-silent")]
        at = panes.index(self._pane) if self._pane in panes else 0
        self._pane = panes[(at + 1) % len(panes)]
        self._arrange()

    def action_maximise(self) -> None:
        self.toggle_class("-max")
        self._arrange()

    def action_zoom(self, how: str) -> None:
        fall = self._fall
        fall.zoom = type(fall.zoom)(follows=True) if how == "fit" else fall.zoom.by(int(how))
        fall.refresh()

    def action_follow(self) -> None:
        """Follow the newest row, or stop following."""
        follows = not self._fall.zoom.follows
        self._fall.follow(follows=follows)
        if follows:
            self._move_in_steps("end")
            self._said_lines.follow()
        self.strip.tell("following" if follows else "not following", "dim")

    def action_fold(self, how: str) -> None:
        """Fold or unfold the calls of an answer."""
        row = self._window.current
        if row is None or row.number is None:
            return
        parent = row.number
        if row.depth:
            rows, at = self._window.rows, self._window.cursor or 0
            above = next(each for each in reversed(rows[:at]) if not each.depth and each.number)
            parent = above.number or row.number
            self._window.move_to(rows.index(above))
        elif row.hidden is None:
            return
        self._folded = self._folded | {parent} if how == "shut" else self._folded - {parent}
        self._rearrange()

    def action_problem(self, way: str) -> None:
        """Go to the next row with a problem, wrapping around."""
        step = 1 if way == "next" else -1
        found = next_problem(self._window.rows, self._window.cursor, step=step)
        if found is None:
            self.strip.tell("no problem in these steps", "dim")
            return
        self._window.move_to(found)
        self._moved()

    def action_view(self, way: str) -> None:
        """Change the view of the step."""
        by = {"next": 1, "before": -1}.get(way)
        if by is not None:
            self._view = VIEWS[(VIEWS.index(self._view) + by) % len(VIEWS)]
        else:
            self._view = View.STEP if self._view is View.RAW else View.RAW
        self._show_view()

    def _show_view(self) -> None:
        if not self._is_detail_seen:
            self._pane = "detail"
            self._arrange()
        self._lay_out(is_other=True)

    def action_origin(self) -> None:
        """Open the job that this one continues."""
        origin = None if self._row is None else self._row.origin_id
        if origin is None:
            self.strip.tell("this job does not continue another one", "dim")
        else:
            self.desk.open("job", origin)

    def action_attempts(self) -> None:
        """Compare the attempts of the step, or return to the step."""
        self._view = View.STEP if self._view is View.ATTEMPTS else View.ATTEMPTS
        self._show_view()

    def action_gate(self) -> None:
        """Go to the request or effect that the job waits for."""
        seen = None if self._row is None else job_head.gate(self._row)
        if seen is None:
            self.strip.tell("this job waits for neither an approval nor an unknown effect", "dim")
        elif isinstance(seen, EffectWait):
            self.desk.open("effects", seen.id)
        else:
            self.desk.seek(seen.id)

    # --- keys that act

    def action_cancel(self) -> None:
        job_actions.cancel(self.desk, self.strip, self._row)

    def action_retry(self) -> None:
        if (asking := job_actions.retry(self.desk, self.strip, self._row)) is not None:
            _ = self.run_worker(asking, group="dry run", exclusive=True)

    def action_raise_budget(self) -> None:
        job_actions.raise_budget(self.desk, self.strip, self._row)

    # --- drawing

    def _arrange(self) -> None:
        for each in PANES:
            self.set_class(each == self._pane, f"-on-{each}")
        self._said_lines.is_front = self._pane == "said"
        self._moved()

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        if self._wanted_detail() != self._detail_of:
            self._lay_out(is_other=True)
            self.desk.wake()
        elif self._next() == "above":
            self.desk.wake()
        self.repaint()

    @on(Page.Resized)
    def _resized(self) -> None:
        self._lay_out(is_other=False)
        self.desk.wake()

    def _nothing(self) -> str:
        if self._row is None:
            return "reading …"
        is_over = self._row.finished_at is not None
        return "no step was recorded" if is_over else "no step is recorded yet"

    def _page_head(self) -> tuple[Cell, Cell]:
        named, view = step_page.head(self._window.current, self._view)
        return (Cell(named.text, "accent") if self._pane == "detail" else named), view

    def _state(self, width: int) -> Strip:
        if self._row is None:
            return Strip.blank(width)
        palette = self.desk.palette
        gap = " " * job_head.GAP
        parts = [Segment(" ")]
        for cell in job_head.head_line(self._row, self.desk.session.now, width):
            parts += [Segment(cell.text, palette[cell.style]), Segment(gap)]
        return Strip(parts).adjust_cell_length(width)

    def _why(self, width: int) -> Strip:
        if self._row is None:
            return Strip.blank(width)
        cell = job_head.why_line(self._row, self.desk.session.now)
        return Strip([Segment(fit(f" {cell.text}", width), self.desk.palette[cell.style])])
