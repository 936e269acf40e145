"""Pods and commands as processes of their own: started, signalled, paused, killed.

Forked from one that has imported the runtime, which saves most of a second each; what is about
the start of a process starts one from nothing, see `Pods.is_forked`.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from attrs import define, field, frozen

from chaos.cluster.fork_server import ForkServer, Process
from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import sql

APP = "tests.support.apps.pod_app"
ROOT = Path(__file__).parent.parent.parent
TICK_WITHIN_S = 60.0
LOG_TAIL = 6_000

FORKS = ForkServer(
    "anthropic",
    "cortex.http_client.tls:trusted",
    "cortex.cli.tui",
    "cortex.demo.fault_file",
    "cortex.demo.script_inspect",
    "cortex.demo.wire",
    "cortex.http.framework.api",
    "cortex.http.server",
    "cortex_tui.run",
    "httpx2",
)
"""This process's own: imports are most of what a process costs that is seen briefly."""

# Quick, so that a test sees in a second what takes minutes in production. The threshold of silence
# stays long: a loaded machine must not make zombies where a test does not want them.
QUICK = {
    "CORTEX_HEARTBEAT_S": "0.5",
    "CORTEX_ZOMBIE_S": "120",
    "CORTEX_SWEEP_S": "0.5",
    "CORTEX_SETTLE_S": "0",
    "CORTEX_POLL_S": "0.5",
    "CORTEX_PRE_STOP_S": "0",
    "CORTEX_ABORT_S": "5",
    "CORTEX_CLOSED_S": "9",
}


def end_of_pod(drain_s: float, *, close_s: float = 4.0) -> dict[str, float]:
    """Settings by which jobs get so long after the signal, and closing so long after that."""
    closed_s = drain_s + close_s
    return {"abort_s": drain_s, "closed_s": closed_s, "kill_s": closed_s + 10}


# What a developer's own shell may hold and a process under test must not see.
NOT_OURS = ("CORTEX_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "OPENAI_", "PYTHON", "LANG", "LC_")


@define(eq=False)
class Pod:
    """One `cortex up`. `ready` is the line that it printed when it was."""

    process: "Process | subprocess.Popen[bytes]"
    log_path: Path
    ready: dict[str, Any] = field(factory=dict)

    @property
    def name(self) -> str:
        """Name in the record."""
        return str(self.ready["pod"])

    @property
    def log(self) -> str:
        """All that it has written to stderr."""
        return self.log_path.read_text("utf-8", "replace")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def until_ready(self) -> None:
        """Wait for its ready line; fails with its log when it ends before."""
        assert self.process.stdout is not None
        line = first_line(self.process.stdout)
        assert line, f"the pod was not ready: {self.log[-LOG_TAIL:]}"
        self.ready = json.loads(line)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def exit_code(self, *, within_s: float = WITHIN_S) -> int:
        """Wait until it has ended by itself."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"not ended within {within_s:g} s: {self.log[-LOG_TAIL:]}"
            ) from None

    def stop(self) -> int:
        """SIGTERM, and wait for its exit code."""
        self.signal(signal.SIGTERM)
        return self.exit_code()


@frozen
class Ticked:
    """Result of a `cortex tick`."""

    exit_code: int
    runners: dict[str, dict[str, Any]]
    """What each runner did, by name."""
    log: str

    @classmethod
    def of(cls, process: Pod) -> "Ticked":
        """Wait until it has ended."""
        code = process.exit_code(within_s=TICK_WITHIN_S)
        assert process.process.stdout is not None
        text = process.process.stdout.read()
        rows = json.loads(text)["runners"] if text else []
        return cls(code, {row["runner"]: row for row in rows}, process.log)

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: row["outcome"] for name, row in self.runners.items()}


@define(eq=False)
class Pods:
    """The pods of one test on one database; `environment` is that of each of them."""

    dsn: str
    folder: Path
    environment: dict[str, str] = field(factory=dict)
    is_forked: bool = True
    """Otherwise `python -m cortex up` starts from nothing, as it does for people."""
    all: list[Pod] = field(factory=list, init=False)

    def launch(self, *arguments: str, **settings: object) -> Pod:
        """Start a pod without waiting for it; `settings` by their names, such as `slots`."""
        app = [] if "--app" in arguments else ["--app", APP]
        return self._launch(["up", *app, "--json", *arguments], settings)

    def launch_tick(self, *arguments: str, app: str = APP, **settings: object) -> Pod:
        """Start `cortex tick` without waiting for it."""
        return self._launch(["tick", "--app", app, "--json", *arguments], settings)

    def tick(self, *arguments: str, app: str = APP, **settings: object) -> "Ticked":
        """Run `cortex tick` to its end."""
        return Ticked.of(self.launch_tick(*arguments, app=app, **settings))

    def _launch(self, words: list[str], settings: Mapping[str, object]) -> Pod:
        log_path = self.folder / f"pod-{len(self.all)}.log"
        with log_path.open("wb") as log:
            process = self._start(
                words, log, environment(self.dsn, self.folder, self.environment, **settings)
            )
        pod = Pod(process, log_path)
        self.all.append(pod)
        return pod

    def _start(
        self, words: list[str], log: IO[bytes], env: dict[str, str]
    ) -> "Process | subprocess.Popen[bytes]":
        if self.is_forked:
            return FORKS.start(words, env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=log)
        return subprocess.Popen(
            [sys.executable, "-m", "cortex", *words],
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def start(self, *arguments: str, **settings: object) -> Pod:
        """Start a pod and wait until it takes jobs."""
        pod = self.launch(*arguments, **settings)
        pod.until_ready()
        return pod

    def close(self) -> None:
        """End what still runs, and show the logs: pytest prints them if the test has failed."""
        for number, pod in enumerate(self.all):
            if pod.is_alive:
                pod.kill()
            if pod.process.stdout is not None:
                pod.process.stdout.close()
            sys.stdout.write(f"--- log of pod {number}\n{pod.log[-LOG_TAIL:]}\n")


@frozen
class Ran:
    """Result of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.stdout)

    def refused(self, *, exit_code: int = 1) -> dict[str, str]:
        """The error of a refused command with --json; checks that it is the only output."""
        assert (self.exit_code, self.stdout) == (exit_code, ""), self.stderr
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        error: dict[str, str] = json.loads(lines[0])["error"]
        assert "\n" not in error["message"]
        return error


def run_cli(
    *arguments: str,
    dsn: str | None,
    folder: Path,
    stdin: bytes = b"",
    extra: Mapping[str, str] = {},
) -> Ran:
    """Run `cortex` with these arguments to its end."""
    done = FORKS.run(
        arguments,
        env=environment(dsn, folder, extra),
        cwd=folder,
        stdin=stdin,
        timeout=WITHIN_S,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def environment(
    dsn: str | None, folder: Path, extra: Mapping[str, str], **settings: object
) -> dict[str, str]:
    """The environment of a process under test: no user settings, quick figures."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
    named = {f"CORTEX_{name.upper()}": str(value) for name, value in settings.items()}
    address = {} if dsn is None else {"CORTEX_DSN": dsn}
    places = {
        "CORTEX_DATA": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }
    return kept | QUICK | places | address | dict(extra) | named


def first_line(stream: IO[bytes]) -> bytes:
    """The first line of a pipe, empty when it ends or stays silent."""
    readable, _, _ = select.select([stream], [], [], WITHIN_S)
    return stream.readline() if readable else b""


def until_pods(dsn: str, **states: int) -> None:
    """Wait until a number of pods stand in these states, such as `READY=2`."""

    def count() -> bool:
        rows = sql(dsn, "SELECT state, count(*) AS n FROM cortex.pod GROUP BY state")
        found = {row["state"]: row["n"] for row in rows}
        return all(found.get(state, 0) == wanted for state, wanted in states.items())

    eventually(count, what=f"pods {states}")
