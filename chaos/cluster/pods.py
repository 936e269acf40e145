"""Pods as processes: each on its own proxy line, signalled, restarted when dead."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from attrs import define, field, frozen

from chaos.cluster.fork_server import ForkServer, Process
from chaos.cluster.proxy import ProxyLine
from chaos.history import History

POLL_S = 0.02
READY_WITHIN_S = 30.0
DEAD_WITHIN_S = 10.0
STARTS_MAX = 3
"""For a place where no pod has been ready yet."""
WORKERS_END_WITHIN_S = 5.0
"""After their parent: the kernel kills them at once."""
WORKER_EVENTS = (b'"pod ready"', b'"worker died"', b'"worker ended"')
"""What a pod logs of its workers."""
AFRESH = "chaos.cluster.afresh"
NOT_KEPT = ("CORTEX_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "OPENAI_", "PG", "PYTHON", "LC_")
"""Variables of the caller's environment that pods do not get: settings and interpreter options."""


class CannotStartError(Exception):
    """The run cannot start; a person has to fix the cause."""


@define(eq=False)
class Pod:
    """One `cortex up`: one life of one of the places p1..pN."""

    name: str
    """Its place, such as `p3`: the pod that follows it has the same."""
    life: int
    """Its number among the pods of its place, from 1."""
    process: Process
    line: ProxyLine
    """Its connection to Postgres; it belongs to the place and keeps its state over restarts."""
    log_path: Path
    history: History
    has_workers: bool = False
    """It is several processes: the parent, and workers that are its children."""
    ready: dict[str, Any] | None = None
    """What it printed when it was ready."""
    is_stopped: bool = False
    """By SIGSTOP."""
    is_draining: bool = False
    """SIGTERM was sent to it."""
    ended: asyncio.Event = field(factory=asyncio.Event)
    signals: list[str] = field(factory=list)
    """The signals sent to it, in order."""
    stopped_workers: set[int] = field(factory=set)
    """Those of its processes that a fault has stopped alone."""
    _log_read: int = 0
    _children: set[int] = field(factory=set)
    """Every worker that it had, as far as observed."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def title(self) -> str:
        """Its place and life, such as `p3.2`: unique in a run."""
        return f"{self.name}.{self.life}"

    @property
    def record(self) -> str | None:
        """Its name in table `cortex.pod`; None before it was ready."""
        return None if self.ready is None else str(self.ready["pod"])

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def log(self) -> str:
        """Everything that it has written to stderr."""
        return self.log_path.read_text("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last line of its log."""
        return (self.log.splitlines() or ["it logged nothing"])[-1]

    def kill(self) -> None:
        self.is_stopped = False
        self.signal(signal.SIGKILL)

    def term(self) -> None:
        """Send SIGTERM: it drains; a second one makes it hand back at once."""
        self.is_draining = True
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Send SIGSTOP to all of its processes; they stay stopped until `cont`."""
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def cont(self) -> None:
        self.is_stopped = False
        self.stopped_workers.clear()
        self.signal(signal.SIGCONT)

    def signal(self, number: Signals) -> None:
        """Send a signal, unless it has ended; recorded in the history."""
        if self.process.poll() is None:
            self.signals.append(number.name)
            self.history.add(self.name, "signal", life=self.life, pid=self.pid, signal=number.name)
            self.send(number)

    def send(self, number: Signals) -> None:
        """Send it to the pod; SIGSTOP and SIGCONT to each of its processes, the parent first."""
        self.workers()
        self.process.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in self.workers():
                _kill(pid, number)

    # --- a pod of several worker processes

    def workers(self) -> list[int]:
        """The pids of its workers; empty for a pod of one process, and before they start."""
        if not self.has_workers or not self.is_alive:
            return []
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except OSError:  # it has just ended
            return []
        pids = [int(pid) for pid in children.split()]
        self._children.update(pids)
        return pids

    def kill_worker(self, pid: int) -> None:
        self.stopped_workers.discard(pid)
        self._signal_worker(pid, signal.SIGKILL)

    def stop_worker(self, pid: int) -> None:
        """Send SIGSTOP to one worker; it stays stopped until `cont_worker` or `cont`."""
        self.stopped_workers.add(pid)
        self._signal_worker(pid, signal.SIGSTOP)

    def cont_worker(self, pid: int) -> None:
        """Let it go on, unless the whole pod is stopped."""
        self.stopped_workers.discard(pid)
        if not self.is_stopped and pid in self.workers():
            self._signal_worker(pid, signal.SIGCONT)

    def _signal_worker(self, pid: int, number: Signals) -> None:
        self.history.add(self.name, "signal", life=self.life, pid=pid, signal=number.name)
        _kill(pid, number)

    def _read_workers(self) -> None:
        """Record in the history which workers have become ready or ended, by the pod's log."""
        if not self.has_workers:
            return
        with self.log_path.open("rb") as log:
            log.seek(self._log_read)
            lines = log.read()
        whole, end, _ = lines.rpartition(b"\n")
        self._log_read += len(whole + end)
        for line in whole.splitlines():
            if any(event in line for event in WORKER_EVENTS):
                self._worker_event(json.loads(line))

    def _worker_event(self, line: Mapping[str, Any]) -> None:
        labels = {"life": self.life, "pid": line["pid"]}
        if line["event"] == "pod ready":
            self.history.add(self.name, "worker-ready", **labels, id=line["id"])
        else:
            self.history.add(self.name, "worker-exit", **labels, code=line["exit_code"])

    async def _outlived_by(self) -> list[int]:
        """Return the workers that still run some time after their parent has ended: none may.

        One that was stopped right after its fork ends itself as soon as it goes on.
        """
        for pid in filter(is_running, self._children):
            _kill(pid, signal.SIGCONT)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + WORKERS_END_WITHIN_S
        while left := [pid for pid in self._children if is_running(pid)]:
            if loop.time() > give_up_at:
                break
            await asyncio.sleep(POLL_S)
        for pid in left:
            _kill(pid, signal.SIGKILL)
        return left

    async def wait(self, *, within_s: float = DEAD_WITHIN_S) -> int:
        """Wait until it has ended; return its exit code. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s):
            await self.ended.wait()
        return self.process.wait()

    async def watch(self, stdout: Path) -> None:
        """Record in the history when it is ready and when it has ended; then return."""
        began_s = self.history.now_s
        while (code := self.process.poll()) is None:
            if self.ready is None and (line := _first_line(stdout)):
                self.ready = json.loads(line)
                took_s = round(self.history.now_s - began_s, 3)
                labels = {"life": self.life, "pid": self.pid, "record": self.record}
                self.history.add(self.name, "ready", **labels, took_s=took_s)
            self._read_workers()
            await asyncio.sleep(POLL_S)
        self._read_workers()
        labels = {"life": self.life, "pid": self.pid, "record": self.record}
        self.history.add(self.name, "exit", **labels, code=code, signals=self.signals)
        if outlived_by := await self._outlived_by():
            self.history.add(self.name, "outlived", life=self.life, workers=outlived_by)
        self.ended.set()


@frozen(kw_only=True)
class Release:
    """The code that pods run."""

    app: str
    version: str | None = None
    """What pods show as the version of their code; None: a digest of its sources."""


@define(eq=False)
class Place:
    """One of the places p1..pN, and its pods."""

    name: str
    line: ProxyLine
    release: Release
    """Of the pods that start here from now on."""
    lives: list[Pod] = field(factory=list)
    next_environment: dict[str, str] = field(factory=dict)
    """Of its next pod only, in addition to the common one."""
    is_taken: bool = False
    """By a nemesis, which starts a pod of its own there."""
    keeper: "asyncio.Task[None] | None" = None

    @property
    def pod(self) -> Pod | None:
        """The current pod, if it is alive."""
        last = self.lives[-1] if self.lives else None
        return last if last is not None and last.is_alive else None


class Pods:
    """The places of one run. Some time after its pod has ended, a place gets the next one."""

    def __init__(
        self,
        fork_server: ForkServer,
        *,
        release: Release,
        folder: Path,
        environment: Mapping[str, str],
        history: History,
        pause_s: Callable[[], float],
    ) -> None:
        """`pause_s` draws how long a place stays empty after a death."""
        self._fork_server = fork_server
        self._release = release
        self._folder = folder
        self._environment = dict(environment)
        self._history = history
        self._pause_s = pause_s
        self.places: list[Place] = []
        self.is_restarting = True
        """Whether dead pods are restarted."""

    @property
    def running(self) -> list[Pod]:
        """The pods that are alive, by their places: p1 first. Stopped ones count."""
        return [place.pod for place in self.places if place.pod is not None]

    @property
    def all(self) -> list[Pod]:
        """Every pod of the run, including dead ones."""
        return [pod for place in self.places for pod in place.lives]

    def add(self, line: ProxyLine) -> Place:
        """Start a pod at a new place, named after its line, and keep one running there."""
        place = Place(line.name, line, self._release)
        self.places.append(place)
        place.keeper = asyncio.create_task(self._keep(place), name=f"keeper of {place.name}")
        return place

    async def until_ready(self, *, within_s: float = READY_WITHIN_S) -> None:
        """Wait until each place has a ready pod.

        Raises `CannotStartError` if pods end at once, `TimeoutError` with the places that have
        none.
        """
        give_up_at_s = self._history.now_s + within_s
        while missing := [p.name for p in self.places if p.pod is None or p.pod.ready is None]:
            for place in self.places:
                if place.keeper is not None and place.keeper.done():
                    place.keeper.result()
                if len(place.lives) > STARTS_MAX and not any(pod.ready for pod in place.lives):
                    raise CannotStartError(f"no pod starts: {place.lives[0].last_line}")
            if self._history.now_s > give_up_at_s:
                raise TimeoutError(f"no ready pod at {', '.join(missing)} after {within_s:g} s")
            await asyncio.sleep(POLL_S)

    def start_one(self, place: Place) -> Pod:
        """Start a pod at an empty place."""
        life = len(place.lives) + 1
        log_path = self._folder / f"{place.name}.{life}.log"
        stdout = log_path.with_suffix(".out")
        named = place.release.version
        version = [] if named is None else ["--code-version", named]
        with log_path.open("wb") as log, stdout.open("wb") as out:
            process = self._fork_server.start(
                ["up", "--app", place.release.app, *version, "--json"],
                env={**self._environment, "CORTEX_DSN": place.line.dsn, **place.next_environment},
                cwd=self._folder,
                stdout=out,
                stderr=log,
                module=AFRESH if "LD_PRELOAD" in place.next_environment else "cortex",
            )
        pod = Pod(
            name=place.name,
            life=life,
            process=process,
            line=place.line,
            log_path=log_path,
            history=self._history,
            has_workers=int(self._environment.get("CORTEX_WORKERS", "1")) > 1,
        )
        place.next_environment = {}
        place.lives.append(pod)
        self._history.add(place.name, "start", life=life, pid=pod.pid)
        return pod

    async def drain(self, *, within_s: float) -> None:
        """Send SIGTERM to all and restart none; kill those that take too long."""
        self.is_restarting = False
        for pod in self.running:
            pod.cont()
            pod.term()
        ends = [asyncio.create_task(pod.ended.wait()) for pod in self.running]
        if ends:
            _, late = await asyncio.wait(ends, timeout=within_s)
            for task in late:
                task.cancel()
        await self.close()

    async def close(self) -> None:
        """Kill all at once, and return when they are gone."""
        self.is_restarting = False
        for pod in self.running:
            pod.kill()
        keepers = [place.keeper for place in self.places if place.keeper is not None]
        if keepers:
            await asyncio.wait(keepers, timeout=DEAD_WITHIN_S)

    async def _keep(self, place: Place) -> None:
        """Keep a pod running at a place as long as pods are restarted."""
        while self.is_restarting:
            pod = self.start_one(place)
            await pod.watch(pod.log_path.with_suffix(".out"))
            if self.is_restarting:
                await asyncio.sleep(self._pause_s())


def _kill(pid: int, number: Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def is_running(pid: int) -> bool:
    """Whether a process exists, and is more than an exit code that nobody has asked for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _first_line(path: Path) -> str:
    text = path.read_text("utf-8", "replace")
    return text.partition("\n")[0] if "\n" in text else ""


def pod_environment(settings: Mapping[str, object], *, folder: Path, **more: str) -> dict[str, str]:
    """The environment of a run's pods: no settings of the caller, no access to the internet."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(NOT_KEPT)}
    named = {f"CORTEX_{name.upper()}": f"{value}" for name, value in settings.items()}
    places = {"CORTEX_DATA": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return {**kept, "LANG": "C.UTF-8", **named, **places, **more}
