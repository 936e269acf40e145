"""`cortex up --workers N`: the supervisor of N worker processes that people see as one pod.

The supervisor forks the workers before it has threads or connections, and never gets any. Each
worker is a whole pod with its own row, lock, heartbeat and drain, so what is proven of a pod holds
for it: when one dies, the others take its jobs over as those of any dead pod. The first worker
serves the HTTP API. It starts alone: it reports what is wrong with the settings or the database
once, and brings the schema up to date. The workers share Postgres, and a word each for `/readyz`.

Owns: the processes, the joined metrics page, and the memory that says which workers are ready.
Invariants: workers die with the supervisor, whatever kills it; signals reach each worker once.

On failure: a worker that dies is replaced, at first after a quarter of a second.
On stop: all workers drain at the same time; one that is late is killed before the orchestrator
kills the pod. The exit code is the worst of theirs.
"""

import gc
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import structlog

from cortex.cli.run.lifeline import Lifeline
from cortex.cli.run.ready_board import ReadyBoard
from cortex.cli.run.serve import SIGNALS, let_go_of_outputs
from cortex.cli.run.service_manager import ServiceManager
from cortex.cli.run.worker_link import DRAIN, HURRY, WorkerLink
from cortex.config import Settings
from cortex.domain.backoff import Backoff
from cortex.domain.clock import system_chance
from cortex.runtime.isolation.fork_server import die_with
from cortex.runtime.metrics.joined_page import JoinedPage
from cortex.runtime.own_secrets import hide_credentials, hide_memory
from cortex.runtime.pod_ready import own_name

DUMP: Final = signal.SIGUSR1
FIRST: Final = 1
RESTART: Final = Backoff(base_s=0.25, cap_s=30.0)
STEADY_S: Final = 60.0
"""A worker that has lived this long is replaced without growing delay."""
PAGES_WITHIN_S: Final = 1.5
"""A worker itself waits a second for the database; the last page of a later one is used."""
READ_BYTES: Final = 65_536
KILLED: Final = 1
"""Exit code of the pod when a worker was killed while it drained."""

_log = structlog.get_logger(__name__)

Announce = Callable[[dict[str, Any]], None]


@attrs.define(eq=False)
class _Process:
    pid: int
    socket: socket.socket
    began: float
    is_ready: bool = False
    is_connected: bool = True
    """Its end of the socket is open: it need not have ended yet when that closes."""
    received: bytes = b""
    unsent: bytes = b""


@attrs.define
class _Slot:
    """The place of a worker: at most one process at a time."""

    number: int
    process: _Process | None = None
    deaths: int = 0
    """In a row."""
    start_at: float | None = None


class Supervisor:
    def __init__(
        self,
        settings: Settings,
        *,
        announce: Announce,
        lifeline: Lifeline | None,
        manager: ServiceManager,
    ) -> None:
        """`announce` gets the fields of the whole pod once all workers are ready."""
        self._settings = settings
        self._announce = announce
        self._lifeline = lifeline
        self._manager = manager
        self._beat_at = time.monotonic() if manager.beat_s < math.inf else math.inf
        self._name = own_name()
        self._group_id = system_chance().new_id()
        self._slots = [_Slot(number) for number in range(FIRST, settings.workers + 1)]
        self._board = ReadyBoard(workers=settings.workers)
        self._http = settings.http
        self._is_announced = False
        self._ready: dict[str, Any] = {}
        self._signals: deque[int] = deque()
        self._last_signal = 0
        self._is_ending = self._is_hurried = False
        self._kill_at = float("inf")
        self._exit_codes: list[int] = []
        self._page = JoinedPage()
        self._asked: set[int] = set()
        """Workers whose pages are still to come."""
        self._wanting: set[int] = set()
        """Workers that wait for the joined page."""
        self._pages_until = float("inf")

    def run(self) -> int | WorkerLink:
        """Run the workers until all have ended; return the exit code, and in each worker its link.

        Each worker returns from here, too: it goes on as an ordinary pod.
        """
        self._slots[0].start_at = time.monotonic()
        with self._hearing() as wakeup:
            while True:
                for slot in self._slots:
                    if slot.start_at is not None and time.monotonic() >= slot.start_at:
                        link = self._start(slot)
                        if link is not None:
                            return link
                self._wait(wakeup)
                while self._signals:
                    self._signalled(self._signals.popleft())
                self._reap()
                now = time.monotonic()
                if now >= self._beat_at:
                    self._manager.beat()
                    self._beat_at = now + self._manager.beat_s
                if now >= self._pages_until:
                    self._answer()
                if now >= self._kill_at:
                    self._kill_late()
                if self._is_ending and not self._running:
                    return max(self._exit_codes, default=128 + self._last_signal)

    @property
    def _running(self) -> list[tuple[_Slot, _Process]]:
        return [(each, each.process) for each in self._slots if each.process is not None]

    @contextmanager
    def _hearing(self) -> Iterator[int]:
        """Record signals during the block; yield a file that each of them makes readable."""
        heard = [each for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {each: signal.signal(each, self._hear) for each in (*heard, DUMP, signal.SIGCHLD)}
        wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)
            for _, process in self._running:
                process.socket.close()

    def _hear(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _start(self, slot: _Slot) -> WorkerLink | None:
        """Fork a worker; return its link in the worker, None here."""
        slot.start_at = None
        ours, its = socket.socketpair()
        supervisor = os.getpid()
        sys.stdout.flush()
        gc.freeze()  # a collection would write to pages that the workers share
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            its.close()
            if not self._is_announced:
                raise
            self._restart_later(slot, "worker not started", error=error.strerror)
            return None
        if pid:
            its.close()
            ours.setblocking(False)  # noqa: FBT003 -- as the library has it
            slot.process = _Process(pid, ours, time.monotonic())
            return None
        ours.close()
        if self._lifeline is not None:
            self._lifeline.close()
        die_with(supervisor)
        return WorkerLink(
            its,
            name=self._name,
            group_id=self._group_id,
            number=slot.number,
            is_first=slot.deaths == 0,
            settings=self._share(slot.number),
            board=self._board,
            http=self._manager.http if slot.number == FIRST else None,
        )

    def _share(self, number: int) -> Settings:
        settings = self._settings
        return attrs.evolve(
            settings,
            workers=1,
            slots=_share(settings.slots, number, of=settings.workers),
            isolated_slots=_share(settings.isolated_slots, number, of=settings.workers),
            http=self._http if number == FIRST else None,
        )

    # --- what comes

    def _wait(self, wakeup: int) -> None:
        """Wait for a signal, a message or a deadline; read and write the sockets."""
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        by_file = {
            process.socket.fileno(): (slot, process)
            for slot, process in self._running
            if process.is_connected
        }
        for file, (_, process) in by_file.items():
            poll.register(file, select.POLLIN | (select.POLLOUT if process.unsent else 0))
        lifeline = self._lifeline if not self._is_ending else None
        if lifeline is not None:
            poll.register(lifeline, select.POLLIN)
        for file, observed in poll.poll(self._wait_ms()):
            if file == wakeup:
                with suppress(BlockingIOError):
                    os.read(wakeup, READ_BYTES)
            elif file in by_file:
                slot, process = by_file[file]
                if observed & select.POLLOUT:
                    self._flush(process)
                if observed & ~select.POLLOUT:
                    self._receive(slot, process)
            else:
                _log.warning("terminal UI gone: pod drains")
                self._signals.append(signal.SIGTERM)

    def _wait_ms(self) -> float | None:
        starts = [each.start_at for each in self._slots if each.start_at is not None]
        until = min([*starts, self._pages_until, self._kill_at, self._beat_at])
        if self._signals:
            return 0
        return None if until == float("inf") else max(0.0, 1000 * (until - time.monotonic())) + 1

    def _receive(self, slot: _Slot, process: _Process) -> None:
        try:
            data = process.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            process.is_connected = False
            return
        *lines, process.received = (process.received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                self._became_ready(slot, process, message["ready"])
            elif "page" in message:
                self._page.take(slot.number, message["page"])
                self._asked.discard(slot.number)
                if not self._asked:
                    self._answer()
            else:
                self._want(slot.number)

    def _became_ready(self, slot: _Slot, process: _Process, ready: dict[str, Any]) -> None:
        process.is_ready = True
        if slot.number == FIRST:
            self._ready = ready
            if ready["http"] is not None:
                self._http = urlsplit(ready["http"]).netloc  # again on the same port
        if self._is_ending or self._is_announced:
            return
        for each in self._slots:
            if each.process is None:
                each.start_at = time.monotonic()
        if all(each.process is not None and each.process.is_ready for each in self._slots):
            self._is_announced = True
            self._announce(self._ready)

    # --- metrics

    def _want(self, number: int) -> None:
        """Ask all workers for their pages, unless that is under way."""
        self._wanting.add(number)
        if self._asked:
            return
        self._pages_until = time.monotonic() + PAGES_WITHIN_S
        for slot, process in self._running:
            if process.is_ready:
                self._asked.add(slot.number)
                self._send(process, {"ask": True})

    def _answer(self) -> None:
        self._pages_until = float("inf")
        self._asked.clear()
        text = self._page.text()
        for slot, process in self._running:
            if slot.number in self._wanting:
                self._send(process, {"joined": text})
        self._wanting.clear()

    def _send(self, process: _Process, message: dict[str, Any]) -> None:
        process.unsent += json.dumps(message).encode() + b"\n"
        self._flush(process)

    def _flush(self, process: _Process) -> None:
        """Write what the socket takes: a stopped worker must not hold the others up."""
        with suppress(OSError):  # it is full, or the worker has died
            process.unsent = process.unsent[process.socket.send(process.unsent) :]

    # --- ends

    def _signalled(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if number == DUMP:
            for _, process in self._running:
                if process.is_ready:
                    os.kill(process.pid, DUMP)
            return
        if number == signal.SIGHUP:
            let_go_of_outputs()
            if self._is_ending:
                return
        self._last_signal = number
        self._end()

    def _end(self) -> None:
        """Drain all workers; the second time, have them hand their jobs back at once."""
        if self._is_hurried:
            return
        settings, now = self._settings, time.monotonic()
        # The workers end themselves before that; the orchestrator kills the pod after it.
        within_s = settings.close_s + 1.5 * settings.hard_exit_s
        self._is_hurried = self._is_ending
        self._kill_at = min(
            self._kill_at, now + within_s + (0 if self._is_hurried else settings.drain_s)
        )
        self._is_ending = True
        self._manager.stopping()
        for slot in self._slots:
            slot.start_at = None
        for _, process in self._running:
            os.kill(process.pid, HURRY if self._is_hurried else DRAIN)

    def _reap(self) -> None:
        for slot, process in self._running:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                self._exited(slot, process, os.waitstatus_to_exitcode(status))

    def _exited(self, slot: _Slot, process: _Process, code: int) -> None:
        process.socket.close()
        slot.process = None
        self._page.end(slot.number)
        self._board.clear(slot.number)
        self._wanting.discard(slot.number)
        if slot.number in self._asked:
            self._asked.discard(slot.number)
            if not self._asked:
                self._answer()
        if self._is_ending:
            _log.info("worker ended", worker=slot.number, pid=process.pid, exit_code=code)
            self._exit_codes.append(self._code_of(code))
        elif code >= 0 and not self._is_announced and not process.is_ready:
            # It has reported why the pod cannot start; one that was killed is replaced.
            self._exit_codes.append(self._code_of(code))
            self._end()
        else:
            if time.monotonic() - process.began >= STEADY_S:
                slot.deaths = 0
            self._restart_later(
                slot,
                "worker died",
                pid=process.pid,
                exit_code=code,
                hint="its jobs go on in the other workers",
            )

    def _restart_later(self, slot: _Slot, event: str, **fields: object) -> None:
        slot.deaths += 1
        pause_s = RESTART.longest_s(slot.deaths)
        slot.start_at = time.monotonic() + pause_s
        _log.error(event, worker=slot.number, restart_in_s=pause_s, **fields)

    def _code_of(self, code: int) -> int:
        """Return a worker's exit code as one of the pod."""
        if code in {128 + DRAIN, 128 + HURRY, -DRAIN, -HURRY}:
            # Without a signal to the pod, another worker could not start: its code counts.
            return 128 + self._last_signal if self._last_signal else 0
        return KILLED if code < 0 else code

    def _kill_late(self) -> None:
        for slot, process in self._running:
            _log.error("worker killed: it did not end in time", worker=slot.number, pid=process.pid)
            os.kill(process.pid, signal.SIGKILL)
        self._kill_at = float("inf")


def run_workers(
    settings: Settings,
    *,
    announce: Announce,
    lifeline: Lifeline | None,
    manager: ServiceManager,
) -> int | WorkerLink:
    """Run the workers of a pod: return its exit code, and in each worker the worker's link."""
    # Workers inherit the redaction of output and the protection of memory.
    hide_memory()
    hide_credentials(
        settings.dsn, variables=settings.key_variables, secrets=settings.callback_secrets
    )
    half = Supervisor(settings, announce=announce, lifeline=lifeline, manager=manager).run()
    if isinstance(half, WorkerLink):
        half.hear_only_supervisor()
    return half


def _share(count: int, number: int, *, of: int) -> int:
    """Return the share of one of several; the first ones get what does not divide."""
    return count // of + (number <= count % of)
