"""What every task of a process is waiting for, written to stderr when SIGUSR1 asks for it.

For a process that seems stuck: the tree of trio tasks with the lines at which each stands, and,
should the event loop not turn, the stacks of all threads, which need no loop to be written.
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
"""Of each task, the innermost ones."""
_ITS_OWN: Final = str(Path(trio.__file__).parent)
"""Where Trio waits inside is the same for all."""


async def dump_tasks_on_signal(
    *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Write a dump at each signal; runs until it is cancelled, also when nobody can read it."""
    with trio.open_signal_receiver(SIGNAL) as signals:
        if sys.stderr is not None:
            faulthandler.register(SIGNAL, all_threads=True, chain=True)
        try:
            task_status.started()
            async for _ in signals:
                tree = task_tree()
                # In a thread: a reader that has stopped reading must not stop the loop.
                await trio.to_thread.run_sync(_write, tree, abandon_on_cancel=True)
        finally:
            faulthandler.unregister(SIGNAL)


def _write(text: str) -> None:
    # A reader that is gone, or no stderr at all, is no reason to end the process.
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def task_tree() -> str:
    """All tasks of the running loop, indented by their nurseries, each with where it stands."""
    root = trio.lowlevel.current_root_task()
    return "\n".join(["tasks:", *([] if root is None else lines_of(root, "  "))]) + "\n"


def lines_of(task: trio.lowlevel.Task, indent: str = "") -> Iterator[str]:
    """Yield a task and those below it, each with where it stands, the innermost line last."""
    yield f"{indent}{task.name}"
    frames = list(task.iter_await_frames())
    told = [each for each in frames if not each[0].f_code.co_filename.startswith(_ITS_OWN)]
    for frame, line in (told or frames)[-FRAMES_MAX:]:
        code = frame.f_code
        yield f"{indent}  | {code.co_filename}:{line} {code.co_qualname}"
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda each: each.name):
            yield from lines_of(child, f"{indent}    ")
