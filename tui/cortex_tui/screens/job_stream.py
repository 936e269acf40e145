"""The pane of the model's output: listens while the job runs and the screen is in front."""

from collections.abc import Callable, Sequence
from typing import Final

from textual.widget import Widget

from cortex.domain.answer_text import AnswerPiece, Message
from cortex.domain.job import JobStatus
from cortex.store.job_screen import WatchedJob, WatchedStep
from cortex_tui.app_context import AppContext
from cortex_tui.model.open_job import OpenJob
from cortex_tui.widgets.stream_lines import StreamLines

FAR: Final = 2**31 - 1
LISTENING: Final = "listening"


class JobStream:
    """Owns the listener and the pane; the output itself belongs to the state."""

    def __init__(
        self, context: AppContext, job: OpenJob, *, owner: Widget, changed: Callable[[], None]
    ) -> None:
        """`owner` runs the listener as its worker; `changed`: the model of another step speaks."""
        self._context, self._job = context, job
        self._owner, self._changed = owner, changed
        self._status = ""
        """Of the listener; "" if it is healthy."""
        self.lines = StreamLines(context, job.stream, status=lambda: self._status)
        self._listening = context.backend.job.listen(
            job.id, heard=self._heard, on_status=self._status_changed
        )
        self._is_listening = False

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to show: the pane is hidden."""
        return self.lines.has_class("-silent")

    def start(self) -> None:
        """Listen, unless the job has ended."""
        if self._owner.is_mounted and not self._is_listening and not self._job.is_over:
            self._is_listening = True
            self._owner.run_worker(self._listening.run(), group=LISTENING, exclusive=True)

    def stop(self) -> None:
        self._is_listening = False
        self._owner.workers.cancel_group(self._owner, LISTENING)

    def follow_job(self, before: WatchedJob | None, row: WatchedJob) -> None:
        """Listen to the attempt that runs now, until the job ends."""
        if before is not None and (before.attempt, before.pod) != (row.attempt, row.pod):
            self._listening.renew()
        if row.finished_at is not None:
            self.stop()
        elif before is None:
            self.start()
        is_quiet = row.status is not JobStatus.RUNNING and self._job.stream.answer is None
        self.lines.set_class(is_quiet, "-silent")

    def take_emitted(self, steps: Sequence[WatchedStep]) -> None:
        """Show what the job's code emitted in these steps."""
        stream = self._job.stream
        found = [stream.emitted(each.seq, each.chunk) for each in steps if each.chunk is not None]
        if any(found):
            self.lines.changed()

    def scroll(self, how: str) -> None:
        """Scroll: down, up, top, end, half_down, half_up."""
        half = max(1, self.lines.size.height // 2)
        by = {"down": 1, "up": -1, "half_down": half, "half_up": -half, "top": -FAR}
        self.lines.scroll_lines(by.get(how, FAR))

    def _heard(self, message: Message) -> None:
        stream = self._job.stream
        if not isinstance(message, AnswerPiece):
            self._context.wake()
            return
        before = stream.key
        if stream.take(message, now=self._context.session.clock.now()):
            self.lines.remove_class("-silent")
            self.lines.changed()
            if before != stream.key:
                self._changed()

    def _status_changed(self, status: str) -> None:
        self._status = status
        self.lines.redraw()
