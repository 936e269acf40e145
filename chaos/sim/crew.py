"""Worker processes for many seeds, each with its own server, so none waits for another."""

import json
import os
import queue
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from chaos.sim.outcome import Outcome

Mode = Literal["run", "repeat", "keep"]
ENDS_WITHIN_S: Final = 20.0
SEED_MAX_S: Final = 1_500.0
"""Real time for one seed; a seed that takes longer hangs. The longest take 30 s of a processor. At
the lowest priority they get it only once all others on that processor have ended."""
BRIEF: Final = "brief"
WHOLE: Final = "whole"


class WorkerDiedError(Exception):
    """A worker process ended during a seed."""


class Worker:
    """One process; it ends with the block."""

    def __init__(self, folder: Path, number: int) -> None:
        # The iteration order of sets must not depend on the process.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "chaos.sim.worker", str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        _settle(self._process.pid, number)

    def simulate(self, seed: int, mode: Mode, *, is_brief: bool) -> Outcome:
        """Simulate one seed. Raises `WorkerDiedError`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("a worker has pipes")
        answer = ""
        with suppress(BrokenPipeError):
            stdin.write(f"{mode} {seed} {BRIEF if is_brief else WHOLE}\n")
            stdin.flush()
            if not select.select([stdout], [], [], SEED_MAX_S)[0]:
                self._process.kill()
                raise WorkerDiedError(f"seed {seed} hangs: no result within {SEED_MAX_S:.0f} s")
            answer = stdout.readline()
        if not answer:
            raise WorkerDiedError(f"the process that simulated seed {seed} has ended")
        return Outcome.from_json(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=ENDS_WITHIN_S)  # the end of its stdin is its end
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _settle(pid: int, number: int) -> None:
    """Pin a worker and its server to one processor: they take turns.

    No statement then wakes another processor, which saves a tenth of a simulation.
    """
    if sys.platform == "linux":
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {processors[number % len(processors)]})


def simulate(
    seeds: Sequence[int], *, folder: Path, workers: int, mode: Mode, is_brief: bool = False
) -> Iterator[Outcome]:
    """Simulate each seed; yield outcomes as they arrive. Raises `WorkerDiedError`.

    `folder` is empty, accessible to the system user of root's Postgres, and removed by the caller.
    """
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def one(seed: int) -> Outcome:
        worker = idle.get()
        try:
            return worker.simulate(seed, mode, is_brief=is_brief)
        finally:
            idle.put(worker)  # a dead one, too: the next seed fails at once instead of waiting

    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        for number in range(workers):
            own = folder / f"worker-{number}"
            own.mkdir(mode=0o711)
            idle.put(stack.enter_context(Worker(own, number)))
        futures = [threads.submit(one, seed) for seed in seeds]
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        for future in as_completed(futures):
            yield future.result()
