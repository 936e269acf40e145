"""Ends a process whose event loop is blocked, because a handler that never awaits holds it.

Such a pod is stuck: it sends no heartbeats, cannot stop its jobs, and ignores signals. Its session
is open, so other pods do not take its jobs over at once; after `zombie_s` each job costs a retry,
although only one of them is at fault. The end of a process is noticed within seconds: its jobs go
on elsewhere uncounted, and a job that was there at two such ends runs in a process of its own,
where a time-out can end it.

Owns: a thread that asks the loop for an answer, again and again. It belongs to the process and not
to a pod: a simulation runs several pods, and its runs are repeatable.
On stop: the thread ends by itself.
"""

import sys
import threading
import time
import traceback
from typing import Final

import attrs
import structlog
import trio

from cortex.runtime import deadman

CHECK_S: Final = 1.0
STILL_MIN_S: Final = 30.0
"""An overloaded machine may need up to this long."""
LINES_MAX: Final = 12

_log = structlog.get_logger(__name__)


@attrs.define
class Silence:
    """For how long a loop has not answered, as far as the watching thread was awake."""

    check_s: float
    seconds: float = 0.0

    def polled(self, *, is_answered: bool, passed_s: float) -> None:
        """Count the time since the last poll.

        A process that was suspended is not blamed for that.
        """
        self.seconds = 0.0 if is_answered else self.seconds + min(passed_s, 2 * self.check_s)


class LoopGuard:
    name = "loop guard"

    def __init__(self, *, still_s: float, check_s: float = CHECK_S) -> None:
        """`still_s`: silence after which the process ends."""
        self._still_s = still_s
        self._check_s = check_s

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Guard until cancelled."""
        stopped = threading.Event()
        guard = threading.Thread(
            target=self._guard,
            args=(trio.lowlevel.current_trio_token(), threading.get_ident(), stopped),
            name=self.name,
            daemon=True,
        )
        guard.start()
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            stopped.set()

    # --- in the thread

    def _guard(
        self, token: trio.lowlevel.TrioToken, loop_thread: int, stopped: threading.Event
    ) -> None:
        silence, answered = Silence(self._check_s), threading.Event()
        answered.set()
        polled_at = time.monotonic()
        while not stopped.wait(self._check_s):
            now = time.monotonic()
            silence.polled(is_answered=answered.is_set(), passed_s=now - polled_at)
            polled_at = now
            if answered.is_set():
                answered.clear()
                try:
                    token.run_sync_soon(answered.set)
                except trio.RunFinishedError:
                    return
            elif silence.seconds >= self._still_s:
                message = f"event loop blocked for {silence.seconds:.0f} s"
                _log.critical(message, stands_at=stack_of(loop_thread))
                deadman.arm(0.0, message=f"{message}: exiting hard, others take its jobs over")
                return


def stack_of(thread: int) -> list[str]:
    """Return the stack of a thread, the innermost line last."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 -- the documented way to get it
    if frame is None:
        return []
    stack = traceback.extract_stack(frame)[-LINES_MAX:]
    return [f"{each.filename}:{each.lineno} {each.name}" for each in stack]
