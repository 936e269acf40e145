"""Ends a process whose event loop stands still: a handler that never awaits holds it.

Nothing of such a pod goes on: it beats no more, cannot stop its jobs, and does not hear a signal.
Its session is open, so that nobody takes its jobs over at once; after `zombie_s` each costs a
retry, although only one of them is at fault. A process that ends is noticed within seconds: its
jobs go on elsewhere uncounted, and those that it ends with twice run in processes of their own,
where a time-out can end them.

Owns: a thread that asks the loop for an answer, again and again. It is the process's and no
pod's: a simulation runs several, and its runs are repeatable.
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

from cortex.runtime import process

LOOK_S: Final = 1.0
STILL_MIN_S: Final = 30.0
"""Less than that a machine may need that has too much to do."""
LINES_MAX: Final = 12

_log = structlog.get_logger(__name__)


@attrs.define
class Silence:
    """For how long a loop has not answered, as far as its watcher was awake to see it."""

    look_s: float
    seconds: float = 0.0

    def looked(self, *, is_answered: bool, passed_s: float) -> None:
        """Count the time since the last look. A process that was stopped is not blamed for that."""
        self.seconds = 0.0 if is_answered else self.seconds + min(passed_s, 2 * self.look_s)


class LoopGuard:
    """The actor."""

    name = "loop guard"

    def __init__(self, *, still_s: float, look_s: float = LOOK_S) -> None:
        """`still_s`: silence after which the process ends."""
        self._still_s = still_s
        self._look_s = look_s

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
        silence, answered = Silence(self._look_s), threading.Event()
        answered.set()
        looked_at = time.monotonic()
        while not stopped.wait(self._look_s):
            now = time.monotonic()
            silence.looked(is_answered=answered.is_set(), passed_s=now - looked_at)
            looked_at = now
            if answered.is_set():
                answered.clear()
                try:
                    token.run_sync_soon(answered.set)
                except trio.RunFinishedError:
                    return
            elif silence.seconds >= self._still_s:
                told = f"the event loop has stood still for {silence.seconds:.0f} s"
                _log.critical(told, stands_at=stack_of(loop_thread))
                process.arm(0.0, told=f"{told}: exiting hard, others take its jobs over")
                return


def stack_of(thread: int) -> list[str]:
    """Return where the code of a thread stands, the innermost line last."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 -- the documented way to it
    if frame is None:
        return []
    stack = traceback.extract_stack(frame)[-LINES_MAX:]
    return [f"{each.filename}:{each.lineno} {each.name}" for each in stack]
