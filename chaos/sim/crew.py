"""Worker processes over many seeds, all on one server of their own."""

import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from chaos.sim.outcome import Outcome
from chaos.sim.server import running_server

Mode = Literal["run", "repeat", "keep"]


class WorkerDiedError(Exception):
    """A worker process ended in the midst of a seed."""


class Worker:
    """One process; it ends with the block."""

    def __init__(self, name: str, *, template_dsn: str, folder: Path) -> None:
        # The order in which sets are walked must not depend on the process.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "chaos.sim.worker", name, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self._send(template_dsn)

    def simulate(self, seed: int, mode: Mode) -> Outcome:
        """Simulate one seed. Raises `WorkerDiedError`."""
        self._send(f"{mode} {seed}")
        stdout = self._process.stdout
        answer = "" if stdout is None else stdout.readline()
        if not answer:
            raise WorkerDiedError(f"the process that simulated seed {seed} has ended")
        return Outcome.from_json(json.loads(answer))

    def _send(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            stdin.write(f"{line}\n")
            stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def simulate(seeds: Sequence[int], *, folder: Path, workers: int, mode: Mode) -> Iterator[Outcome]:
    """Simulate each seed; yields outcomes as they come. Raises `WorkerDiedError`.

    `folder` is empty, open to the system user of root's Postgres, and the caller's to remove.
    """
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def one(seed: int) -> Outcome:
        worker = idle.get()
        outcome = worker.simulate(seed, mode)
        idle.put(worker)
        return outcome

    with ExitStack() as stack:
        dsn = stack.enter_context(running_server(folder))
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        for number in range(workers):
            worker = Worker(f"w{number}", template_dsn=dsn, folder=folder)
            idle.put(stack.enter_context(worker))
        futures = [threads.submit(one, seed) for seed in seeds]
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        for future in as_completed(futures):
            yield future.result()
