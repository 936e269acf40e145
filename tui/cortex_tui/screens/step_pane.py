"""The pane of the step under the cursor, in one of several views."""

from typing import Final

from textual import on
from textual.containers import Vertical

from cortex.store.job_screen import StepDetail
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.open_job import OpenJob, View
from cortex_tui.render import step_page
from cortex_tui.widgets.page import Page

VIEWS: Final = tuple(View)


class StepPane(Vertical):
    """Owns the view, and the detail that was read for a row in a certain state."""

    def __init__(self, context: AppContext, job: OpenJob) -> None:
        self._page = Page(context, head=self._head)
        super().__init__(self._page, id="right")
        self.context, self._job = context, job
        self._view = View.STEP
        self._detail: StepDetail | None = None
        self._detail_version: tuple[object, ...] | None = None
        self.is_front = False
        """Whether it has the movement keys."""

    @property
    def is_seen(self) -> bool:
        return self.display and self._page.size.width > 0

    @property
    def wants(self) -> bool:
        """Whether to read the detail of the row under the cursor."""
        return self.is_seen and self._job.detail_version != self._detail_version

    async def read(self) -> bool:
        """Read the detail, in one statement; returns True."""
        row, version = self._job.window.current, self._job.detail_version
        key = "" if row is None else row.step_key
        detail = await self.context.backend.job.detail(self._job.id, key)
        if version == self._job.detail_version:
            before, self._detail_version = self._detail_version, version
            self._detail = detail
            self.lay_out(is_other=before is None or version is None or before[0] != version[0])
        return True

    def moved(self) -> None:
        """Show the row under the cursor, if it is another one or has another state."""
        if self._job.detail_version != self._detail_version:
            self.lay_out(is_other=True)
            self.context.wake()

    def redraw(self) -> None:
        """Redraw it; the times of an unfinished step go on."""
        self._page.redraw()
        row = self._job.window.current
        if row is not None and row.ended is None:
            self.lay_out(is_other=False)

    def lay_out(self, *, is_other: bool) -> None:
        """Rebuild the lines; `is_other`: they start at their beginning."""
        row, job = self._job.window.current, self._job.row
        if job is None:
            return
        is_read = self._job.detail_version == self._detail_version
        detail = self._detail if is_read else None
        if detail is None and not is_other:
            return
        now, width = self.context.session.now, self._page.room
        lines = step_page.page(row, detail, job, self._view, now=now, width=width)
        self._page.show(lines, is_other=is_other)

    def change_view(self, how: str) -> None:
        """Choose the next view or the one before; or a view by its name, again: the step."""
        by = {"next": 1, "before": -1}.get(how)
        if by is not None:
            self._view = VIEWS[(VIEWS.index(self._view) + by) % len(VIEWS)]
        else:
            self._view = View.STEP if self._view == how else View(how)

    def scroll(self, how: str) -> None:
        """Scroll: down, up, half_down, half_up."""
        self._page.scroll_page({"half_down": "ctrl+d", "half_up": "ctrl+u"}.get(how, how))

    @on(Page.Resized)
    def _resized(self) -> None:
        self.lay_out(is_other=False)
        self.context.wake()

    def _head(self) -> tuple[Cell, Cell]:
        title, view = step_page.head(self._job.window.current, self._view)
        return (Cell(title.text, "accent") if self.is_front else title), view
