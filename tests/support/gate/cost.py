"""`python -m tests.support.gate.cost FOLDER…`: the CPU of tests, with all that they start.

Runs them one after the other, below a process that adopts orphans: pods, servers and the shared
Postgres count for the test during which they compute. Seconds of CPU depend on what else the
machine does, by up to a half: compare two runs of one quiet machine.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

STAGE: Final = Path(__file__).with_name("stage.py")
LIMIT_S: Final = 7200
DEAR_S: Final = 1.5
"""A test that takes more has to keep a promise: it has the mark `smoke`."""


class Meter:
    """A plugin of pytest: reads the CPU of a process and its descendants around each test."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._before_s = 0.0
        self.used_s: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        self._before_s = self._total_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        now_s = self._total_s()
        name = f"{item.nodeid} (smoke)" if item.get_closest_marker("smoke") else item.nodeid
        self.used_s[name] += now_s - self._before_s
        self._before_s = now_s
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: defaultdict[str, float] = defaultdict(float)
        for name, used_s in self.used_s.items():
            files[name.partition("::")[0]] += used_s
        dear = {name: used_s for name, used_s in self.used_s.items() if used_s > DEAR_S}
        for title, costs in (
            (f"{sum(files.values()):.0f} s of CPU", files),
            (f"tests of more than {DEAR_S:g} s", dear),
        ):
            terminalreporter.section(title)
            for name, used_s in sorted(costs.items(), key=lambda each: -each[1]):
                terminalreporter.line(f"{used_s:7.1f}  {name}")

    def _total_s(self) -> float:
        total_s = 0.0
        for process in (self._root, *self._root.children(recursive=True)):
            with suppress(psutil.Error):
                total_s += sum(process.cpu_times()[:4])  # of ended children, too
        return total_s


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter(psutil.Process(os.getppid())))


def main() -> int:
    """Run pytest on the arguments of the command line; return its exit status."""
    with tempfile.NamedTemporaryFile() as status:
        stage = [sys.executable, str(STAGE), status.name, str(LIMIT_S)]
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", __spec__.name]
        return subprocess.call([*stage, sys.executable, "-m", "pytest", *options, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
