"""The pane of a job's steps: the waterfall, its zoom and its folds."""

from collections.abc import Callable

from cortex_tui.app_context import AppContext
from cortex_tui.model.open_job import End, OpenJob
from cortex_tui.model.waterfall import next_problem
from cortex_tui.render.job_head import no_steps
from cortex_tui.render.waterfall import Zoom
from cortex_tui.widgets.waterfall import Waterfall


class StepsPane:
    """Owns the waterfall, and rebuilds its rows."""

    def __init__(self, context: AppContext, job: OpenJob, *, moved: Callable[[], None]) -> None:
        """`moved` is called when the rows or the cursor changed."""
        self._context, self._job, self._moved = context, job, moved
        self.waterfall = Waterfall(context, job.window, empty=lambda: no_steps(job.row))

    def rearrange(self, end: End | None = None) -> None:
        """Rebuild the rows; the cursor stays on its row, or at the end when it follows."""
        job, waterfall = self._job, self.waterfall
        if job.row is None:
            return
        job.rearrange(end, follows=waterfall.zoom.follows)
        waterfall.zero = None if job.is_whole else job.row.started_at  # earlier steps exist
        self._moved()

    def move(self, how: str) -> None:
        """Move the cursor; an end of the steps that is not loaded is read first."""
        if self._job.goes_beyond(how):
            self._job.wanted = End(how)
            self._context.wake()
        else:
            self.waterfall.move(how)

    def zoom(self, how: str) -> None:
        """Change the visible time: "fit", or a number of levels."""
        waterfall = self.waterfall
        waterfall.zoom = Zoom() if how == "fit" else waterfall.zoom.by(int(how))
        waterfall.refresh()

    def follow(self) -> bool:
        """Follow the newest row, or stop; return whether it follows now."""
        follows = not self.waterfall.zoom.follows
        self.waterfall.follow(follows=follows)
        if follows:
            self.move(End.NEWEST)
        return follows

    def fold(self, how: str) -> None:
        """Fold or unfold the calls of an answer."""
        if self._job.fold(is_open=how == "open"):
            self.rearrange()

    def problem(self, way: str) -> bool:
        """Go to the next row with a problem, wrapping around; return whether there is one."""
        window = self._job.window
        place = next_problem(window.rows, window.cursor, step=1 if way == "next" else -1)
        if place is None:
            return False
        window.move_to(place)
        self._moved()
        return True
