"""Time that passes only while every task waits, and the order in which trio's tasks run.

A thread that waits for Postgres does not wait for trio: no virtual time passes meanwhile.
"""

import random
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

import trio
from trio.lowlevel import Task

EPOCH_S: Final = 1_900_000_000
"""Unix time at the start of every simulation."""

SILENCE_S: Final = 0.01
SILENCES_MAX: Final = 200
"""In real time: trio wakes itself up by a socket when it ends."""


class Stoppable(Protocol):
    """A machine whose tasks may be suspended."""

    is_stopped: bool


HOST: ContextVar[Stoppable | None] = ContextVar("HOST", default=None)
"""The machine that a trio task runs on; None outside all machines."""


class Clock(trio.abc.Clock):
    """Jumps to the next deadline as soon as no task can run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.strides: Callable[[float], float] = lambda deadline: deadline
        """Where to jump instead of the next deadline: not before it."""
        self.on_silence: Callable[[], None] = _raise
        """Called when no task can run and none waits for a time: a deadlock."""
        self._silences = 0

    @property
    def unix_s(self) -> float:
        """The wall clock of all machines."""
        return EPOCH_S + self.now

    def start_clock(self) -> None:
        """Nothing runs before trio does."""

    def current_time(self) -> float:
        """Seconds since the simulation began."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump: trio calls this only when no task can run."""
        if deadline == float("inf"):
            self._silences += 1
            if self._silences == SILENCES_MAX:
                self.on_silence()
            return SILENCE_S
        self._silences = 0
        if deadline > self.now:
            self.now = max(deadline, self.strides(deadline))
        return 0.0


def _raise() -> None:
    raise RuntimeError("every task waits, and none for a time")


class Turns(deque[Task]):
    """Trio's queue of runnable tasks, without those of stopped machines."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Task] = []

    def append(self, task: Task, /) -> None:
        host = task.context.get(HOST)
        if host is not None and host.is_stopped:
            self._held.append(task)
        else:
            super().append(task)

    def let_go(self) -> None:
        """Queue tasks again whose machines are not stopped any more."""
        held, self._held = self._held, []
        for task in held:
            self.append(task)


def seed_trio(seed: int) -> Turns:
    """Let the seed alone decide which task runs first; call it in the run, before anything else."""
    run: Any = trio._core._run  # noqa: SLF001 -- trio has no other way to decide it
    run._ALLOW_DETERMINISTIC_SCHEDULING = True  # noqa: SLF001
    run._r = random.Random(f"trio {seed}")  # noqa: SLF001
    runner = run.GLOBAL_RUN_CONTEXT.runner
    turns = Turns()
    turns.extend(runner.runq)
    runner.runq = turns
    return turns
