"""Cancels the handlers of jobs whose own time is over.

One actor for all jobs: a deadline of its own in each job's cancel scope would cost every job more
than this costs the pod. Between two passes over the jobs lies `COARSE_S`, so a handler is cancelled
that much late at most.

Reads: the running jobs. Writes nothing: a job's own actor ends it.
On failure: it is restarted, and the first pass finds what is overdue.
On stop: no handler is cancelled any more; the jobs have ended before.
"""

from typing import Final

import trio

from cortex.runtime.running import Observer, RunningJobs

COARSE_S: Final = 0.02


class JobDeadlines(Observer):
    name = "job deadlines"

    def __init__(self, running: RunningJobs) -> None:
        self._running = running
        self._closer = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            self._running.cancel_overdue(trio.current_time())
            await trio.sleep(COARSE_S)
            while trio.current_time() < self._running.next_deadline:
                self._closer = trio.Event()
                with trio.move_on_at(self._running.next_deadline):
                    await self._closer.wait()

    def deadline_came_closer(self) -> None:
        self._closer.set()
