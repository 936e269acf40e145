"""One job: its state and the reason, its steps on a time axis, one step in full, and the stream.

`OpenJob` is its state and `JobLoader` reads it; each pane is an object of its own. The screen
arranges the panes and hands keys to the one in front.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from textual import events, on
from textual.containers import Container, Horizontal
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.phrases import short_id
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.open_job import OpenJob, Pane
from cortex_tui.model.selected import Selected
from cortex_tui.render import job_head
from cortex_tui.screens import job_actions
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.job_loader import JobLoader
from cortex_tui.screens.job_stream import JobStream
from cortex_tui.screens.step_pane import StepPane
from cortex_tui.screens.steps_pane import StepsPane
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.virtual_table import VirtualTable

WIDE: Final = 100
"""Cells; from here on a step stands beside the waterfall."""
WIDEST: Final = 160
"""Cells; from here on the stream stands beside both."""
PANES: Final = tuple(Pane)


class JobScreen(Frame):
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
    JobScreen StreamLines.-silent { display: none; }
    JobScreen.-max StreamLines { display: none; }
    JobScreen.-max.-on-stream StreamLines { display: block; height: 1fr; }
    JobScreen.-max.-on-stream #panes { display: none; }
    JobScreen.-max.-on-steps #right { display: none; }
    JobScreen.-max.-on-detail Waterfall { display: none; }
    JobScreen.-max.-on-detail #right { width: 1fr; border: none; }
    JobScreen.-max.-on-stream StreamLines { width: 1fr; border: none; }
    """

    def __init__(self, context: AppContext, job_id: UUID) -> None:
        super().__init__(context)
        self._job = OpenJob(id=job_id)
        self._pane = Pane.STEPS
        self._steps = StepsPane(context, self._job, moved=self._moved)
        self._detail = StepPane(context, self._job)
        self._stream = JobStream(context, self._job, owner=self, changed=self._steps.rearrange)
        self._loader = JobLoader(
            context, self._job, self._detail, self._stream, rearrange=self._steps.rearrange
        )

    def body(self) -> Iterable[Widget]:
        context, job = self.context, self._job

        def state(width: int) -> Strip:
            return job_head.state_strip(job.row, context.session.now, context.palette, width)

        def why(width: int) -> Strip:
            return job_head.why_strip(job.row, context.session.now, context.palette, width)

        return (
            Line(context, state, id="state"),
            Line(context, why, id="why"),
            Container(
                Horizontal(self._steps.waterfall, self._detail, id="panes"),
                self._stream.lines,
                id="all",
            ),
        )

    def on_mount(self) -> None:
        self.set_focus(self._steps.waterfall)
        self._bring_to_front(self._pane)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < WIDE, "-narrow")
        self.set_class(event.size.width >= WIDEST, "-widest")
        self.set_class(event.size.height >= 40, "-tall")  # noqa: PLR2004 -- twice the least
        super().on_resize(event)

    def on_screen_resume(self) -> None:
        self._stream.start()
        super().on_screen_resume()

    def on_screen_suspend(self) -> None:
        self._stream.stop()

    def path(self) -> tuple[str, ...]:
        return ("jobs", short_id(self._job.id))

    def paint(self) -> None:
        for line in ("#state", "#why"):
            self.query_one(line, Line).redraw()
        self._steps.waterfall.redraw()
        self._detail.redraw()
        self._stream.lines.redraw()

    def info(self) -> Cell:
        return job_head.steps_range(self._job.steps)

    def resource(self) -> Selected | None:
        return job_actions.selected_step(self.context, self._job.id, self._job.window.current)

    async def look(self) -> bool:
        return await self._loader.poll()

    # --- panes

    def action_pane(self) -> None:
        """Move the keys to the next pane."""
        panes = [each for each in PANES if each is not Pane.STREAM or not self._stream.is_silent]
        at = panes.index(self._pane) if self._pane in panes else 0
        self._bring_to_front(panes[(at + 1) % len(panes)])

    def action_maximise(self) -> None:
        self.toggle_class("-max")
        self._bring_to_front(self._pane)

    def _bring_to_front(self, pane: Pane) -> None:
        """Give the movement keys to a pane."""
        self._pane = pane
        for each in PANES:
            self.set_class(each is pane, f"-on-{each}")
        self._stream.lines.is_front = pane is Pane.STREAM
        self._detail.is_front = pane is Pane.DETAIL
        self._moved()

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._detail.moved()
        self._loader.moved()
        self.repaint()

    # --- keys that read

    def action_move(self, how: str) -> None:
        panes = {Pane.DETAIL: self._detail.scroll, Pane.STREAM: self._stream.scroll}
        panes.get(self._pane, self._steps.move)(how)

    def action_zoom(self, how: str) -> None:
        self._steps.zoom(how)

    def action_follow(self) -> None:
        """Follow the newest row, or stop following."""
        follows = self._steps.follow()
        if follows:
            self._stream.lines.follow()
        self.strip.show("following" if follows else "not following", "dim")

    def action_fold(self, how: str) -> None:
        self._steps.fold(how)

    def action_problem(self, way: str) -> None:
        if not self._steps.problem(way):
            self.strip.show("no problem in these steps", "dim")

    def action_view(self, how: str) -> None:
        """Change the view of the step."""
        self._detail.change_view(how)
        if not self._detail.is_seen:
            self._bring_to_front(Pane.DETAIL)
        self._detail.lay_out(is_other=True)

    def action_open(self, which: str) -> None:
        """Open the job that this one continues, what it waits for, its log, or its tree."""
        opening = {
            "origin": job_actions.open_origin,
            "gate": job_actions.open_gate,
            "logs": job_actions.open_logs,
            "tree": job_actions.open_tree,
        }
        opening[which](self.context, self.strip, self._job.row)

    # --- keys that act

    def action_cancel(self) -> None:
        job_actions.cancel(self.context, self.strip, self._job.row)

    def action_retry(self) -> None:
        if (asking := job_actions.retry(self.context, self.strip, self._job.row)) is not None:
            _ = self.run_worker(asking, group="dry run", exclusive=True)

    def action_ask(self, what: str) -> None:
        """Ask for a signal to the job, for a new limit of its budget, or whether to pause it."""
        match what:
            case "signal":
                job_actions.signal(self.context, self.strip, self._job.row)
            case "budget":
                job_actions.raise_budget(self.context, self.strip, self._job.row)
            case _:
                asking = job_actions.pause(self.context, self.strip, self._job.row)
                if asking is not None:
                    _ = self.run_worker(asking, group="dry run", exclusive=True)
