"""The list of jobs: sorted, filtered, followed while they run, marked, changed by id.

The example of a screen with a list. `JobList` is its state, `JobsLoader` reads it, `JobsController`
does what the keys ask for; the screen puts the widgets together.
"""

from collections.abc import Iterable
from typing import Final

import attrs
from textual import on
from textual.containers import Horizontal
from textual.widget import Widget

from cortex.domain.bulk import BulkVerb
from cortex.view.cells import Cell
from cortex.view.resources.jobs import JOBS
from cortex_tui.app_context import AppContext
from cortex_tui.key_table import shown
from cortex_tui.model.job_list import JobList, id_of
from cortex_tui.model.pick import PickSome
from cortex_tui.model.selected import Selected
from cortex_tui.render import job_list_words
from cortex_tui.render.job_rows import OPTIONAL_COLUMNS, job_columns
from cortex_tui.render.job_side import side_head, side_lines
from cortex_tui.screens import job_actions
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.jobs_controller import JobsController
from cortex_tui.screens.jobs_loader import JobsLoader
from cortex_tui.screens.steps_beside import StepsBeside
from cortex_tui.widgets.filter_line import FilterLine
from cortex_tui.widgets.side import About, Side
from cortex_tui.widgets.virtual_table import VirtualTable

PREPARING: Final = "dry run"
"""The worker that reads before a question."""


class JobsScreen(Frame):
    NAME = "jobs"
    DEFAULT_CSS = """
    JobsScreen.-widely Side { width: 44; }
    """

    def __init__(self, context: AppContext, text: str = "") -> None:
        """`text`: the initial filter."""
        super().__init__(context)
        jobs = self._jobs = JobList(text=text)
        self._filter = FilterLine(context, status=self._count_line)
        self._filter.text = text
        self._table = VirtualTable(
            context,
            jobs.window,
            job_columns(context.job_columns),
            key=id_of,
            empty=lambda: job_list_words.empty_words(jobs),
        )
        self._table.marked = jobs.marks
        self._side = Side(context, about=self._about)
        self._steps = StepsBeside(context, of=lambda: jobs.steps_version)
        self._loader = JobsLoader(
            context, jobs, self._steps, is_asking=lambda: self.strip.is_asking
        )
        self._controller = JobsController(
            context,
            self.strip,
            jobs,
            self._loader,
            prepare=lambda work: self.run_worker(work, group=PREPARING, exclusive=True),
            repaint=self.repaint,
        )

    def body(self) -> Iterable[Widget]:
        panes = Horizontal(self._table, self._side, self._steps.pane, id="aside")
        return (self._filter, panes)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()
        self._filter.redraw()
        self._side.follow()
        self._steps.pane.follow()

    def on_screen_resume(self) -> None:
        self._table.columns = job_columns(self.context.job_columns)
        super().on_screen_resume()

    def info(self) -> Cell:
        return job_list_words.info(self._jobs)

    def resource(self) -> Selected | None:
        row = self._jobs.window.current
        if row is None:
            return None
        selected = job_actions.selected_job(self.context, row)
        return attrs.evolve(selected, shape=JOBS, row=row, read=None)

    async def look(self) -> bool:
        return await self._loader.poll()

    # --- keys

    def action_move(self, how: str) -> None:
        """Move the cursor; an end of the list outside the window is read first."""
        if not self._controller.reads_end(how):
            self._table.move(how)

    def action_problem(self, way: str) -> None:
        """Go to the next loaded job with a problem."""
        if (place := self._controller.problem(way)) is not None:
            self._table.move_to(place)
            self.repaint()

    def action_open(self, name: str = "job") -> None:
        """Open the job under the cursor, its log, or its tree."""
        self._controller.open(name)

    def action_owner(self) -> None:
        self._controller.open_owner()

    def action_fresh(self) -> None:
        self._controller.fresh()

    def action_filter(self) -> None:
        self._filter.edit()

    def action_sort(self) -> None:
        self._controller.sort()
        self.repaint()

    def action_columns(self) -> None:
        """Ask which columns to show; they change with each pick."""

        def show(names: frozenset[str]) -> None:
            self.context.job_columns = names
            self._table.columns = job_columns(names)
            self._table.redraw()

        pick = PickSome("show", OPTIONAL_COLUMNS, self.context.job_columns, changed=show)
        self.strip.ask(pick, lambda _: None)

    def action_mark(self, how: str) -> None:
        """Mark one row, a range, or all; or clear the marks."""
        match how:
            case "all":
                self._controller.mark_all()
            case "none":
                self.workers.cancel_group(self, PREPARING)
                self._controller.unmark()
            case _:
                if self._controller.mark(is_range=how == "range") and how == "one":
                    self._table.move("down")
        self.repaint()

    def action_cancel(self) -> None:
        self._controller.change(BulkVerb.CANCEL)

    def action_retry(self) -> None:
        self._controller.change(BulkVerb.RETRY)

    def action_pause(self) -> None:
        self._controller.pause_queue()

    # --- messages of the widgets

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._side.follow()
        self._steps.moved()
        self._loader.moved()

    @on(FilterLine.Wanted)
    def _filtered(self, event: FilterLine.Wanted) -> None:
        if self._controller.filter_by(event.text):
            self._filter.close(event.text)
            self.set_focus(self._table)
            self.repaint()

    # --- drawing

    def _count_line(self) -> str:
        hidden = self._table.left_out if self.has_class("-aside") else ()
        side_key = shown(self.context.keys.named("side").keys[0])
        return job_list_words.count_line(
            self._jobs, self.context.head, hidden=hidden, side_key=side_key
        )

    def _about(self, width: int) -> About | None:
        """Return what polls of the list have read about the job under the cursor."""
        row, now = self._jobs.window.current, self.context.session.now
        if row is None:
            return None
        lines = tuple(side_lines(row, now, width))
        return About(key=row.id, title=side_head(row), lines=lines)
