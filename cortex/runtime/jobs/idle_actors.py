"""Job actors that wait for their next job: to wake one costs half as much as to start one.

Owns: the actors that wait. Each job finds the contextvars of a new task.
On stop: `close` ends the actors that wait, and those that would.
"""

from contextvars import Context
from typing import Final

import outcome
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task

from cortex.domain.job import Claim
from cortex.runtime.running import RunningJob

IDLE_MAX: Final = 500
"""As many as one claim can wake."""


class IdleActors:
    """The actors of one pod that wait."""

    def __init__(self) -> None:
        self._tasks: dict[Task, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def wake(self, claim: Claim, job: RunningJob) -> bool:
        """Give an attempt to an actor that waits; False if none does."""
        if not self._tasks:
            return False
        task, _ = self._tasks.popitem()
        trio.lowlevel.reschedule(task, outcome.Value((claim, job)))
        return True

    async def wait(self, context: Context) -> tuple[Claim, RunningJob] | None:
        """Wait for an attempt, which begins with a copy of `context`; None: end this actor."""
        if self._is_closed or len(self._tasks) >= IDLE_MAX:
            return None
        task = trio.lowlevel.current_task()
        task.context = context.copy()  # trio enters it when the task goes on
        self._tasks[task] = None

        def stop_waiting(_: RaiseCancelT) -> Abort:
            del self._tasks[task]
            return Abort.SUCCEEDED

        given: tuple[Claim, RunningJob] | None
        given = await trio.lowlevel.wait_task_rescheduled(stop_waiting)
        return given

    def close(self) -> None:
        """End the actors that wait."""
        self._is_closed = True
        while self._tasks:
            task, _ = self._tasks.popitem()
            trio.lowlevel.reschedule(task, outcome.Value(None))
