"""Pods and scripted models as separate processes, for measurements that need several."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from cortex.domain.errors import TimedOutError, UnavailableError
from cortex.domain.interpreter import module_command

READY_BOUND_S = 30.0
STOP_BOUND_S = 30.0


class Program:
    """A child process that prints one JSON line when it is ready."""

    def __init__(self, arguments: list[str], environ: dict[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 -- our own programs
                module_command(*arguments),
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._log = log
        self.ready: dict[str, Any] = self._first_line()

    def _first_line(self) -> dict[str, Any]:
        lines: Queue[bytes] = Queue()
        stdout = self.process.stdout
        if stdout is None:
            raise AssertionError("the process was started with pipes")
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            line = lines.get(timeout=READY_BOUND_S)
        except Empty:
            self.kill()
            raise TimedOutError(
                f"{self.process.args!r} was not ready within {READY_BOUND_S:g} s"
            ) from None
        if not line:
            self.process.wait()
            tail = self._log.read_text("utf-8", "replace")[-2000:]
            raise UnavailableError(f"a child process ended at once: {tail}")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_BOUND_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode


@contextmanager
def pod(dsn: str, log: Path, *arguments: str, **environ: str) -> Iterator[Program]:
    """Start a pod on this database with the measurements' job types."""
    program = Program(
        ["cortex", "up", "--app", "cortex.bench.workload", *arguments, "--json"],
        {"CORTEX_DSN": dsn, "CORTEX_DATA": str(log.parent), **environ},
        log,
    )
    try:
        yield program
    finally:
        program.stop()


@contextmanager
def scripted_model(log: Path, script: str) -> Iterator[str]:
    """Start a scripted model server; yield its base URL."""
    program = Program(["cortex.demo.server", "--port", "0", "--script", script], {}, log)
    try:
        yield str(program.ready["base_url"])
    finally:
        program.stop()
