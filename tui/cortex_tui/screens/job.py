"""One job: how it stands, and its steps as they are committed."""

from collections.abc import Iterable
from uuid import UUID

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from cortex_tui.backend.protocol import JobRow
from cortex_tui.desk import Desk
from cortex_tui.model.window import Window
from cortex_tui.render.job_rows import status_line, why_line
from cortex_tui.render.step_rows import STEP_COLUMNS, StepRow
from cortex_tui.render.table import fit
from cortex_tui.render.words import short_id
from cortex_tui.screens import job_acts
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.virtual_table import VirtualTable


class JobScreen(Frame):
    """`job`, one of them."""

    NAME = "job"

    def __init__(self, desk: Desk, job_id: UUID) -> None:
        super().__init__(desk)
        self._job_id = job_id
        self._row: JobRow | None = None
        self._after_step = 0
        self._window: Window[StepRow, None] = Window(key=lambda step: step["seq"])
        self._table = VirtualTable(
            desk,
            self._window,
            STEP_COLUMNS,
            key=lambda step: step["seq"],
            empty=lambda: "no step is committed yet" if self._row else "reading …",
        )

    def body(self) -> Iterable[Widget]:
        return (
            Line(self.desk, self._state, id="state"),
            Line(self.desk, self._why, id="why"),
            self._table,
        )

    def on_mount(self) -> None:
        self._table.focus()

    def path(self) -> tuple[str, ...]:
        return ("jobs", short_id(self._job_id))

    def paint(self) -> None:
        for line in ("#state", "#why"):
            self.query_one(line).refresh()
        self._table.refresh()

    async def look(self) -> bool:
        row = dict(await self.desk.backend.job.follow(self._job_id, after_step=self._after_step))
        steps = row.pop("steps")
        is_news = bool(steps) or row != self._row
        self._row = row
        if steps:
            is_following = self._window.cursor in (None, len(self._window.rows) - 1)
            self._after_step = steps[-1]["seq"]
            self._window.extend(steps, below=None)
            if is_following:
                self._window.move_to(len(self._window.rows) - 1)
        return is_news

    def action_move(self, how: str) -> None:
        self._table.move(how)

    def action_cancel(self) -> None:
        job_acts.cancel(self.desk, self.strip, self._row)

    def action_retry(self) -> None:
        job_acts.retry(self.desk, self.strip, self._row)

    def _state(self, width: int) -> Strip:
        if self._row is None:
            return Strip.blank(width)
        palette = self.desk.palette
        parts = status_line(self._row, self.desk.session.now)
        segments = [Segment(f" {cell.text}  ", palette[cell.style]) for cell in parts]
        return Strip(segments).adjust_cell_length(width)

    def _why(self, width: int) -> Strip:
        if self._row is None:
            return Strip.blank(width)
        cell = why_line(self._row, self.desk.session.now)
        return Strip([Segment(fit(f" {cell.text}", width), self.desk.palette[cell.style])])
