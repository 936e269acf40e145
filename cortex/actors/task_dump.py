"""Writes what every task of a process waits for to stderr, on SIGUSR1.

For a process that seems stuck: the tree of trio tasks with their current lines and, in case the
event loop is blocked, the stacks of all threads, which can be written without a loop.
"""

import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

SIGNAL: Final = signal.SIGUSR1
FRAMES_MAX: Final = 20
"""Frames per task, the innermost ones."""
_ITS_OWN: Final = str(Path(trio.__file__).parent)
"""Frames inside Trio are the same for all tasks, so they are left out."""


async def dump_tasks_on_signal(
    *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Write a dump at each signal; runs until cancelled, even if nothing can be written."""
    with trio.open_signal_receiver(SIGNAL) as signals:
        if sys.stderr is not None:
            faulthandler.register(SIGNAL, all_threads=True, chain=True)
        try:
            task_status.started()
            async for _ in signals:
                tree = task_tree()
                # In a thread: a reader that has stopped reading must not block the loop.
                await trio.to_thread.run_sync(_write, tree, abandon_on_cancel=True)
        finally:
            faulthandler.unregister(SIGNAL)


def _write(text: str) -> None:
    # A reader that is gone, or a missing stderr, must not end the process.
    with suppress(OSError, ValueError):
        # For people, also where the output of jobs becomes JSON lines.
        stream = getattr(sys.stderr, "raw", sys.stderr)
        if stream is not None:
            stream.write(text)
            stream.flush()


def task_tree() -> str:
    """All tasks of the running loop, indented by their nurseries, each with its current lines."""
    root = trio.lowlevel.current_root_task()
    return "\n".join(["tasks:", *([] if root is None else lines_of(root, "  "))]) + "\n"


def lines_of(task: trio.lowlevel.Task, indent: str = "") -> Iterator[str]:
    """Yield a task and its children, each with its current lines, the innermost one last."""
    yield f"{indent}{task.name}"
    frames = list(task.iter_await_frames())
    own_frames = [each for each in frames if not each[0].f_code.co_filename.startswith(_ITS_OWN)]
    for frame, line in (own_frames or frames)[-FRAMES_MAX:]:
        code = frame.f_code
        yield f"{indent}  | {code.co_filename}:{line} {code.co_qualname}"
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda each: each.name):
            yield from lines_of(child, f"{indent}    ")
