"""The pods, and below them the queues from which they take jobs.

One of the two tables has the cursor; at its end the cursor continues in the other. The queries
alternate: each is one statement.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from rich.segment import Segment
from textual import events, on
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.drain import Moved
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import STATE_WORDS, term
from cortex.domain.safe import safe
from cortex.store.pods import PodRow
from cortex.store.queues import QueueRow
from cortex.view.queues import queue_shown
from cortex.view.resources.pods import PODS
from cortex.view.resources.queues import QUEUES
from cortex_tui.app_context import AppContext
from cortex_tui.model.selected import Selected
from cortex_tui.model.window import Window
from cortex_tui.render.pod_rows import (
    POD_COLUMNS,
    QUEUE_COLUMNS,
    pod_about,
    pod_doing,
    pod_holds,
    queue_about,
)
from cortex_tui.render.table import fit
from cortex_tui.screens import pod_actions
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.virtual_table import VirtualTable

QUEUE_LINES_MIN: Final = 4
"""Lines for the queues and their titles, however many pods there are."""
MOVED_EVERY_S: Final = 4.0
"""The queries take turns: this one must not crowd out the others."""
UNDER_WAY: Final = ",".join(STATE_WORDS[status] for status in JobStatus if not status.is_terminal)


class PodsScreen(Frame):
    """The list of pods and queues."""

    NAME = "pods"

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._pods: Window[PodRow, None] = Window(key=lambda row: row.id)
        self._queues: Window[QueueRow, None] = Window(key=lambda row: queue_shown(row.queue))
        self._pod_table = VirtualTable(
            context, self._pods, POD_COLUMNS, key=lambda row: row.id, empty=self._no_pods
        )
        self._queue_table = VirtualTable(
            context,
            self._queues,
            QUEUE_COLUMNS,
            key=lambda row: queue_shown(row.queue),
            empty=self._no_queues,
        )
        self._queue_table.is_in_front = False
        self._is_read = False
        self._are_queues_read = False
        self._is_queues_turn = False
        self._moved: Moved | None = None
        self._moved_of: UUID | None = None
        """The pod that the jobs came from."""
        self._moved_at = float("-inf")

    def body(self) -> Iterable[Widget]:
        self._queue_table.styles.margin = (1, 0, 0, 0)
        about = Line(self.context, self._about, id="about")
        holds = Line(self.context, self._holds, id="holds")
        doing = Line(self.context, self._doing, id="doing")
        return (self._pod_table, self._queue_table, about, holds, doing)

    def on_mount(self) -> None:
        self.set_focus(self._pod_table)
        self._share()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget in (self._pod_table, self._queue_table):
            self._pod_table.is_in_front = event.widget is self._pod_table
            self._queue_table.is_in_front = event.widget is self._queue_table
            self.paint()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._share()

    def paint(self) -> None:
        self._pod_table.redraw()
        self._queue_table.redraw()
        self._show_current()

    @on(VirtualTable.Moved)
    def _show_current(self) -> None:
        self.query_one("#about", Line).redraw()
        self.query_one("#holds", Line).redraw()
        self.query_one("#doing", Line).redraw()

    async def look(self) -> bool:
        """Read the pods and the queues in turns; sometimes, where the jobs of a pod went."""
        pod, now = self._pod, self.context.session.clock.now()
        is_old = now >= self._moved_at + MOVED_EVERY_S or (pod and pod.id) != self._moved_of
        if pod is not None and pod.is_leaving and self._are_queues_read and is_old:
            if self._moved_of != pod.id:
                self._moved_of, self._moved = pod.id, None  # also if this fails
            self._moved_at = now
            self._moved = await self.context.backend.pods.moved(pod.id)
            return False
        if self._is_queues_turn:
            is_changed = self._queues.refill(await self.context.backend.queues.page())
            is_changed |= not self._are_queues_read
            self._are_queues_read = True
        else:
            is_changed = self._pods.refill(await self.context.backend.pods.page())
            self._is_read = True
        self._is_queues_turn = not self._is_queues_turn
        if is_changed:
            self.has_other = True  # beats are no news to the poller, so that its pace stays calm
            self._share()
        # After the first read of the pods, read the queues at once.
        return not self._are_queues_read

    def _share(self) -> None:
        """Give the pods the room that they need, and the rest to the queues."""
        body = self.app.size.height - 7  # top bar, gap, three lines about the row, strip, footer
        wanted = 1 + max(1, len(self._pods.rows))
        least = min(QUEUE_LINES_MIN, 1 + max(1, len(self._queues.rows)))
        self._pod_table.styles.height = max(2, min(wanted, body - least))

    def resource(self) -> Selected | None:
        if (pod := self._pod) is not None:
            return Selected(id=pod_actions.name_of(pod), shape=PODS, row=pod)
        queue = self._queue
        if queue is None:
            return None
        return Selected(id=pod_actions.name_of(queue), shape=QUEUES, row=queue)

    # --- keys

    def action_move(self, how: str) -> None:
        """Move the cursor, also from one table into the other."""
        window = self._in_front
        is_last = not window.rows or window.cursor == len(window.rows) - 1
        goes_down = how in ("down", "half_down") and is_last and window is self._pods
        goes_up = how in ("up", "half_up") and not window.cursor and window is self._queues
        match how:
            case "top":
                self._go_to(self._pod_table, "top")
            case "end":
                self._go_to(self._queue_table, "end")
            case _ if goes_down:
                self._go_to(self._queue_table, "top")
            case _ if goes_up:
                self._go_to(self._pod_table, "end")
            case _:
                (self._pod_table if window is self._pods else self._queue_table).move(how)

    def action_other_table(self) -> None:
        is_pods = self._in_front is self._pods
        self.set_focus(self._queue_table if is_pods else self._pod_table)

    def action_open(self) -> None:
        """Open the jobs of a pod or of a queue."""
        if (pod := self._pod) is not None:
            running = term("status", STATE_WORDS[JobStatus.RUNNING])
            self.context.open("jobs", f"{running} {term('pod', pod.name)}")
        elif (queue := self._queue) is not None:
            if queue.queue is None:
                self.strip.show("jobs without a queue have no name to filter by", "dim")
            else:
                self.context.open("jobs", f"status:{UNDER_WAY} {term('queue', queue.queue)}")

    def action_drain(self) -> None:
        pod_actions.drain(self.context, self.strip, self._pod, self._pods.rows)

    def action_pause(self) -> None:
        pod_actions.pause(self.context, self.strip, self._queue)

    @property
    def _in_front(self) -> Window[PodRow, None] | Window[QueueRow, None]:
        return self._pods if self._pod_table.is_in_front else self._queues

    @property
    def _pod(self) -> PodRow | None:
        return self._pods.current if self._pod_table.is_in_front else None

    @property
    def _queue(self) -> QueueRow | None:
        return self._queues.current if self._queue_table.is_in_front else None

    def _go_to(self, table: VirtualTable[PodRow] | VirtualTable[QueueRow], how: str) -> None:
        table.move(how)
        self.set_focus(table)

    # --- words

    def _about(self, width: int) -> Strip:
        """Draw the facts about the row under the cursor that have no column."""
        if (pod := self._pod) is not None:
            return self._line(pod_about(pod), width)
        queue = self._queue
        return self._line(
            "" if queue is None else queue_about(queue, self.context.session.now), width
        )

    def _holds(self, width: int) -> Strip:
        """Draw what the pod under the cursor holds."""
        pod = self._pod
        return self._line("" if pod is None else pod_holds(pod, self.context.session.now), width)

    def _doing(self, width: int) -> Strip:
        """Draw how the pod under the cursor shuts down."""
        if (pod := self._pod) is None:
            return self._line("", width)
        moved = self._moved if pod.is_leaving and self._moved_of == pod.id else None
        return self._line(pod_doing(pod, moved, self.context.session.now), width)

    def _line(self, about: str, width: int) -> Strip:
        text = fit(f"  {safe(about)}", width)
        return Strip([Segment(text, self.context.palette["dim"])])

    def _no_pods(self) -> str:
        return "no pod is running: cortex up" if self._is_read else "reading …"

    def _no_queues(self) -> str:
        return "no queue: no job waits" if self._are_queues_read else "reading …"
