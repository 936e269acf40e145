"""`cortex dev`: a pod that restarts when the code of its application changes.

Each pod is a fork of this process, which has imported the runtime and no application, and listens
for the API: a new pod takes half a second. It starts beside the old one, which takes no more jobs
once the new one does, and hands those back that do not end soon: no attempt is counted, and code
that cannot be loaded changes nothing. Pods never outlive this process, see `forked_pod`.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs
import click

from cortex.cli.apps import app_arguments, refuse_absent
from cortex.cli.options import Command, Options
from cortex.cli.run.forked_pod import FAILED, LOADED, ForkedPod, error_of, fork_pod, settings_beside
from cortex.cli.run.lifeline import Lifeline
from cortex.cli.run.sources import Sources, changed_at
from cortex.config import Settings, host_and_port
from cortex.domain.clock import system_chance
from cortex.domain.errors import UnavailableError, UsageError
from cortex.domain.safe import safe

POLL_S: Final = 0.1
SETTLED_S: Final = 0.05
"""An editor may write a file in several pieces, or several files."""
SETTLE_POLLS: Final = 20
DRAIN_S: Final = 2.0
"""Time for an old pod to end what it has begun: a call that is cut may need a person."""
AGAIN_S: Final = 1.0
"""Pause before a pod that has died is replaced."""
ADDRESS: Final = "127.0.0.1:8080"
NAME: Final = "for development"
"""Name of the pods on the screen, one after the other."""
BY_SIGNAL: Final = 128


@click.command(cls=Command)
@app_arguments
@click.option(
    "--http", metavar="HOST:PORT", help=f"Address of the HTTP API [{ADDRESS}, or a free port]."
)
@click.option("--tui", "has_screen", is_flag=True, help="Show the terminal UI; log to a file.")
@click.pass_obj
def dev(options: Options, *, apps: tuple[str, ...], http: str | None, has_screen: bool) -> None:
    """Run a pod for development, which restarts when the code changes.

    Jobs go on in the new pod after their last step, and no attempt is counted. Code that cannot be
    loaded is reported with file and line, and the pod goes on with the code before. Ctrl-C ends at
    once: jobs are handed back, and wait. Without --tui the log is shown here, and `cortex tui` in
    another terminal shows the jobs.
    """
    if not apps:
        raise UsageError("dev needs an application", hint="name its file: cortex dev app.py")
    refuse_absent(apps)
    settings = settings_beside(options, http=http)
    lifeline = None
    if has_screen:
        from cortex.cli.run.pod_beside import PodBeside
        from cortex.cli.run.pod_beside import fork_pod as fork_beside
        from cortex.cli.run.up_screen import up_on_screen
        from cortex.cli.tui import refuse_what_is_no_terminal

        refuse_what_is_no_terminal("cortex dev --tui", hint="leave out --tui")
        half = fork_beside()
        if isinstance(half, PodBeside):
            raise click.exceptions.Exit(up_on_screen(half, options, settings))
        lifeline = half
    with _listening(settings.http) as (listening, address):
        settings = attrs.evolve(settings, http=address)
        developing = _Development(
            settings=settings, apps=apps, listening=listening, lifeline=lifeline
        )
        developing.run()


@contextmanager
def _listening(address: str | None) -> Iterator[tuple[socket.socket, str]]:
    """Listen for all pods, one after the other; without an address on a port that is free."""
    host, number = host_and_port(address or ADDRESS)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, number), family=family)
    except OSError as error:
        if address is not None:
            raise UsageError(
                f"cannot serve HTTP on {address}: {error.strerror}", hint="choose another --http"
            ) from error
        listening = socket.create_server((host, 0), family=family)
    with listening:
        number = listening.getsockname()[1]
        yield listening, f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


@attrs.define(kw_only=True)
class _Development:
    settings: Settings
    apps: tuple[str, ...]
    listening: socket.socket
    lifeline: Lifeline | None
    """Pipe to the process with the screen, if there is one."""
    sources: Sources = attrs.field(init=False)
    running: ForkedPod | None = None
    coming: ForkedPod | None = None
    """Is loading the code as it is now, or starting."""
    leaving: list[ForkedPod] = attrs.field(factory=list)
    changes: list[str] = attrs.field(factory=list)
    """The changed files that the pod to come is for."""
    is_loaded: bool = False
    is_introduced: bool = False
    began: float = attrs.field(factory=time.perf_counter)
    due_s: float | None = None
    """Pause that is left before a pod that has died is replaced."""

    def __attrs_post_init__(self) -> None:
        self.sources = Sources(self.apps)
        self.sources.changed()  # what is there now is no change

    def run(self) -> None:
        """Run pods until a signal, or until the screen is gone."""
        import cortex.cli.run.up
        import cortex.http.framework.api
        import cortex.http.server
        import cortex.jobs  # noqa: F401 -- forks have all of these already

        with _ending_by_signals():
            try:
                self._begin()
                while self._turn():
                    pass
            except KeyboardInterrupt:
                pass
            finally:
                self._end()

    def _turn(self) -> bool:
        """Wait for the next report or change; return whether to go on."""
        pods = [each for each in (self.running, self.coming) if each is not None]
        numbers = {each.fileno(): each for each in pods}
        screen = [] if self.lifeline is None else [self.lifeline.fileno()]
        heard, _, _ = select.select([*numbers, *screen], [], [], POLL_S)
        for number in heard:
            if number not in numbers:
                return False
            pod = numbers[number]
            self._hear(pod)
            while pod.has_more:
                self._hear(pod)
        self._let_leave()
        self._replace_dead()
        if changes := self.sources.changed():
            self._settle(changes)
            self._begin()
        return True

    def _begin(self) -> None:
        """Start a pod with the code as it is now, in place of one that is still coming."""
        if self.coming is not None:
            self.coming.hand_back()
            self.leaving.append(self.coming)
        self.due_s, self.is_loaded = None, False
        self.coming = fork_pod(
            self.settings,
            self.apps,
            outputs=(1, 2),
            surroundings=_surroundings,
            listening=self.listening,
        )
        self.coming.let_run()

    def _settle(self, changes: list[str]) -> None:
        """Wait until files have stopped to change."""
        found = set(changes)
        for _ in range(SETTLE_POLLS):
            select.select([], [], [], SETTLED_S)
            if not (more := self.sources.changed()):
                break
            found |= {*more}
        self.changes = sorted(found)

    def _hear(self, pod: ForkedPod) -> None:
        report = pod.heard()
        if report is None:
            self._gone(pod)
        elif LOADED in report:
            self.sources.add(report[LOADED])
            if FAILED in report:
                self._failed(report)
            else:
                self.is_loaded = True
        elif FAILED in report:
            self._failed(report)
        else:
            self._ready(pod)

    def _ready(self, pod: ForkedPod) -> None:
        old, self.running, self.coming = self.running, pod, None
        if old is not None:
            old.drain(DRAIN_S)
            self.leaving.append(old)
        if not self.is_introduced:
            self.is_introduced, self.changes = True, []
            if self.lifeline is not None:
                ready_s = time.perf_counter() - self.began
                report = {"pod": NAME, "http": pod.http, "ready_s": ready_s}
                self.lifeline.report(report)
            _say(f"{', '.join(self.apps)} runs as pod {pod.name}, and restarts when you save")
            _say(f"the API is at {pod.http}; cortex tui shows the jobs; Ctrl-C ends at once")
            return
        if not self.changes:
            _say(f"pod {pod.name} takes its place")
            return
        at = changed_at(self.changes)
        took = "" if at is None else f" in {system_chance().unix_ms() / 1000 - at:.2f} s"
        _say(f"reloaded{took}: {_names(self.changes)} changed")
        self.changes = []

    def _failed(self, report: Mapping[str, Any]) -> None:
        """Report why the code cannot be loaded. Raises why the first pod cannot start."""
        if self.is_loaded and self.running is None:
            raise error_of(report)
        message = str(report[FAILED])
        goes_on = "the pod goes on with the code before" if self.running else "waiting for a change"
        _say(f"error: {message.removeprefix(f'{Path.cwd()}/')}; {goes_on}")

    def _gone(self, pod: ForkedPod) -> None:
        code = pod.close()
        if pod is self.coming:
            self.coming = None
            if self.is_loaded and self.running is None:
                raise UnavailableError(f"the pod has ended with exit code {code}")
            return
        self.running, self.due_s = None, AGAIN_S
        how = signal.Signals(code - BY_SIGNAL).name if code > BY_SIGNAL else f"exit code {code}"
        _say(f"error: the pod has ended by {how}; it is replaced")

    def _let_leave(self) -> None:
        self.leaving = [each for each in self.leaving if not each.ended()]
        now = time.monotonic()
        for each in self.leaving:
            if each.drains_until is not None and now >= each.drains_until:
                each.hand_back()

    def _replace_dead(self) -> None:
        if self.due_s is None or self.coming is not None:
            return
        self.due_s -= POLL_S
        if self.due_s <= 0:
            self._begin()

    def _end(self) -> None:
        pods = [each for each in (self.running, self.coming) if each is not None]
        for each in (*pods, *self.leaving):
            each.hand_back()
        for each in (*pods, *self.leaving):
            each.close()


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Let each of these signals raise `KeyboardInterrupt` once; later ones are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def came(number: int, _: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, came) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _surroundings() -> Iterator[None]:
    """Prepare a fork for its application: it logs here, and writes no compiled files.

    Those are told apart by seconds and size: a quick change could be missed.
    """
    from cortex.cli.run.job_output import job_output_as_lines
    from cortex.cli.screen.logs import configure_logs

    sys.dont_write_bytecode = True
    configure_logs(is_calm=True)
    with job_output_as_lines():
        yield


def _names(files: list[str]) -> str:
    here = f"{Path.cwd()}/"
    first = files[0].removeprefix(here)
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _say(text: str) -> None:
    with suppress(OSError):  # a closed terminal must not spoil the end
        os.write(2, f"{safe(text)}\n".encode(errors="backslashreplace"))
