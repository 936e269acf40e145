"""Forks runners: processes beside a pod that run one job at a time and may die without it.

The forge is forked from the pod's process before that has threads or connections: it has imported
the same code, and a runner costs one `fork`. It runs nothing itself: on request it forks a runner,
kills one, and reports how each ended. Forge and runners die with the pod (`PR_SET_PDEATHSIG`), and
signals that a terminal or a service manager sends to all processes do not end them before it.

On failure: a forge that was killed, or does not answer, takes its runners along, and another one is
started: as a new program, since a process that has threads by now cannot be forked safely. The pod
claims no jobs that need one until that is ready.
"""

import ctypes
import gc
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import orjson
import structlog
import trio

from cortex.domain.backoff import Backoff
from cortex.domain.errors import UnavailableError

PR_SET_PDEATHSIG: Final = 1
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
MESSAGE_BYTES_MAX: Final = 4096
FORK_WITHIN_S: Final = 10.0
READY_WITHIN_S: Final = 60.0
"""For a forge that is a new program: it imports the application first."""
REPLACE_BACKOFF: Final = Backoff(base_s=0.25, cap_s=30.0)
STEADY_S: Final = 60.0
"""A forge that has lived so long is replaced without delay."""
GONE_WITHIN_S: Final = 5.0
END_WITHIN_S: Final = 2.0
OOM_SCORE: Final = b"1000"
"""When memory runs out, the kernel takes a runner before anything else."""
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Sent to whole process groups; only the pod follows them."""

_log = structlog.get_logger(__name__)


@attrs.frozen
class ForkServerCommand:
    """A program that does the work of a lost forge, by `serve_forge`.

    It is given the number of its control socket and its pod's process id as arguments.
    """

    command: Sequence[str]
    wish: bytes
    """What it reads from stdin: arguments are seen by everybody."""


@attrs.frozen(kw_only=True)
class RunnerExit:
    """How a runner ended."""

    status: int
    """As `waitpid` returns it."""
    rss_kb: int
    """The most memory that it held."""


@attrs.define(eq=False)
class RunnerProcess:
    """A forked process, as the pod sees it."""

    pid: int
    stream: trio.SocketStream
    gone: trio.Event = attrs.field(factory=trio.Event)
    exit: RunnerExit | None = None
    """Known once it is gone, unless the forge is gone, too."""
    is_killed: bool = False
    """By the pod."""
    jobs_count: int = 0
    """Jobs that it has run."""


@attrs.define(eq=False)
class _RunnerStart:
    """A runner that was asked for."""

    stream: trio.SocketStream
    told: trio.Event = attrs.field(factory=trio.Event)
    runner: RunnerProcess | None = None
    error: str = "the forge does not answer"


class ForkServer:
    """The pod's side: an actor that hears of births and deaths."""

    name = "forge"

    def __init__(self, control: socket.socket, pid: int, again: "ForkServerCommand | None") -> None:
        self._control = control
        self.pid = pid
        self._again = again
        self._socket: Any = None
        self._number = 0
        self._births: dict[int, _RunnerStart] = {}
        self._runners: dict[int, RunnerProcess] = {}
        self.is_lost = False
        self.restarts_count = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hear of births and deaths until cancelled; replace a forge that is lost."""
        if self._socket is None:
            self._listen()
        task_status.started()
        try:
            await self._keep()
        except trio.Cancelled:
            self._leave()
            raise

    async def _keep(self) -> None:
        deaths = 0
        while True:
            began = trio.current_time()
            await self._hear()
            self._lost()
            if self._again is None:
                await trio.sleep_forever()
            if trio.current_time() - began >= STEADY_S:
                deaths = 0
            deaths += 1
            await trio.sleep(REPLACE_BACKOFF.longest_s(deaths))
            self._replace(self._again)

    def _listen(self) -> None:
        self._control.setblocking(False)  # noqa: FBT003 -- as the library has it
        self._socket = trio.socket.from_stdlib_socket(self._control)

    async def _hear(self) -> None:
        """Hear what the forge says until it is gone; one that is still to start has its time."""
        while True:
            with trio.move_on_after(READY_WITHIN_S if self.is_lost else math.inf):
                message = await self._receive()
                try:
                    told = orjson.loads(message)
                    self._told(told)
                except (AttributeError, KeyError, TypeError, ValueError):
                    return  # it has ended, or is not itself any more
                continue
            return

    def _told(self, told: dict[str, Any]) -> None:
        if "ready" in told:
            if self.is_lost:
                self.is_lost = False
                _log.info("forge replaced", pid=self.pid, restarts=self.restarts_count)
        elif "gone" in told:
            self._ended(told["gone"], RunnerExit(status=told["status"], rss_kb=told["rss_kb"]))
        elif (birth := self._births.get(told["number"])) is not None:
            self._born(birth, told)

    async def _receive(self) -> bytes:
        with suppress(ConnectionError):
            return bytes(await self._socket.recv(MESSAGE_BYTES_MAX))
        return b""

    def _replace(self, again: "ForkServerCommand") -> None:
        """Start another forge as a new program; what cannot be started is tried again."""
        self._socket.close()
        self.restarts_count += 1
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._listen()
        with its:
            try:
                # Not in a thread: the kernel ends the forge with the thread that has made it.
                started = subprocess.Popen(  # noqa: S603 -- our own program
                    [*again.command, str(its.fileno()), str(os.getpid())],
                    pass_fds=[its.fileno()],
                    stdin=subprocess.PIPE,
                )
            except OSError as error:
                _log.error("forge not started", error=error.strerror)
                return
        self.pid = started.pid
        started.returncode = 0  # it is waited for here, not when the object goes
        with suppress(OSError), started.stdin or nullcontext() as stdin:
            if stdin is not None:
                stdin.write(again.wish)  # far less than a pipe holds: this does not block

    async def fork(self) -> RunnerProcess:
        """Return a new runner. Raises `UnavailableError` when there can be none."""
        if self._socket is None or self.is_lost:
            raise UnavailableError("the process that forks runners is gone")
        ours, its = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 -- as the library has it
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self._number += 1
        number, birth = self._number, _RunnerStart(stream)
        self._births[number] = birth
        try:
            with trio.move_on_after(FORK_WITHIN_S) as limit:
                with its:
                    await self._send({"number": number}, its.fileno())
                await birth.told.wait()
            if limit.cancelled_caught:
                self._end(within_s=0.0)  # stopped, or hangs; `run` replaces it
        finally:
            del self._births[number]
            if birth.runner is None:
                stream.socket.close()  # one that is born all the same ends by that
        if birth.runner is None:
            raise UnavailableError(f"no runner was forked: {birth.error}")
        return birth.runner

    async def kill(self, runner: RunnerProcess) -> None:
        """Kill a runner and its process group; return when it is gone, or after a bound."""
        runner.is_killed = True
        with trio.move_on_after(GONE_WITHIN_S, shield=True):
            if not runner.gone.is_set() and not self.is_lost:
                # By the forge: only its parent knows that the number is still this process's.
                with suppress(OSError):
                    await self._send({"kill": runner.pid})
            await runner.gone.wait()
        runner.stream.socket.close()

    async def _send(self, message: dict[str, Any], *files: int) -> None:
        rights = socket.SCM_RIGHTS, b"".join(n.to_bytes(4, sys.byteorder) for n in files)
        ancillary = [(socket.SOL_SOCKET, *rights)] if files else []
        try:
            await self._socket.sendmsg([orjson.dumps(message)], ancillary)
        except OSError as error:
            raise UnavailableError(f"the process that forks runners: {error.strerror}") from error

    def _born(self, birth: "_RunnerStart", told: dict[str, Any]) -> None:
        if "error" in told:
            birth.error = told["error"]
        else:
            birth.runner = self._runners[told["pid"]] = RunnerProcess(told["pid"], birth.stream)
        birth.told.set()

    def _ended(self, pid: int, exit_: RunnerExit) -> None:
        runner = self._runners.pop(pid, None)
        if runner is not None:
            runner.exit = exit_
            runner.gone.set()

    def _lost(self) -> None:
        self._end(within_s=0.0)
        if not self.is_lost:
            _log.error("forge lost", hint="it is replaced; jobs that need it wait for that")
        for runner in self._runners.values():
            _kill_group(runner.pid)  # what its job has started does not end with it
        self._leave()

    def _leave(self) -> None:
        """Nothing is heard of the runners any more: nobody is to wait for that."""
        self.is_lost = True
        for runner in self._runners.values():
            runner.gone.set()
        self._runners.clear()
        for birth in self._births.values():
            birth.told.set()

    def close(self) -> None:
        """End the forge and its runners; blocks for a moment."""
        self._control.close()
        if self._socket is not None:
            self._socket.close()
        self._end(within_s=END_WITHIN_S)

    def _end(self, *, within_s: float) -> None:
        """Wait for the forge to end, then kill it."""
        pid, deadline = self.pid, _now() + within_s
        if not pid:
            return
        with suppress(ChildProcessError, ProcessLookupError):
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if _now() >= deadline:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    break
                select.select([], [], [], 0.005)
        self.pid = 0


def start_forge(
    run: Callable[[socket.socket], None],
    *,
    memory_mb: int,
    warm: Callable[[], None] = lambda: None,
    again: ForkServerCommand | None = None,
) -> ForkServer:
    """Fork the forge; `run` serves one runner's socket until the pod closes it.

    `warm` is called in the forge before its first fork: what it prepares, no runner has to. `again`
    does the same as a new program; None: a lost forge is not replaced.
    To be called before the process has threads, an event loop or connections.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            _ForkServerProcess(its, owner, run, memory_mb, warm).serve()
            code = 0
        finally:
            os._exit(code)
    its.close()
    return ForkServer(ours, pid, again)


def serve_forge(
    control: socket.socket,
    owner: int,
    run: Callable[[socket.socket], None],
    *,
    memory_mb: int,
    warm: Callable[[], None],
) -> None:
    """Be the forge of a process whose first one was lost, until that closes its side."""
    _ForkServerProcess(control, owner, run, memory_mb, warm).serve()


class _ForkServerProcess:
    """The forge's own side. It never returns into what the pod would have done."""

    def __init__(
        self,
        control: socket.socket,
        owner: int,
        run: Callable[[socket.socket], None],
        memory_mb: int,
        warm: Callable[[], None],
    ) -> None:
        self._warm: Callable[[], None] | None = warm
        self._control = control
        self._owner = owner
        self._run = run
        self._memory_bytes = memory_mb * 2**20
        self._children: set[int] = set()

    def serve(self) -> None:
        die_with(self._owner)
        os.setsid()
        _hear_nothing()
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._wakeup = reading, writing
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(reading, select.POLLIN)
        self._tell({"ready": os.getpid()})
        while True:
            for file, _ in poll.poll():
                if file == reading:
                    with suppress(BlockingIOError):
                        os.read(reading, MESSAGE_BYTES_MAX)
                elif not self._hear():
                    self._end()
                    return
            self._reap()

    def _hear(self) -> bool:
        """Do what one message asks for; False when the pod has closed its side."""
        try:
            said, files, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
        except ConnectionError:
            return False
        if not said:
            return False
        asked = orjson.loads(said)
        if "kill" in asked:
            if asked["kill"] in self._children:
                _kill_group(asked["kill"])
            return True
        try:
            told = {"number": asked["number"], "pid": self._fork(files[0])}
        except OSError as error:
            told = {"number": asked["number"], "error": error.strerror}
        finally:
            os.close(files[0])
        self._tell(told)
        return True

    def _fork(self, file: int) -> int:
        warm, self._warm = self._warm, None
        if warm is not None:
            signal.set_wakeup_fd(-1)
            warm()
            signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
            gc.freeze()  # a collection would write to pages that runners share
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_runner(file, parent)
        self._children.add(pid)
        return pid

    def _become_runner(self, file: int, parent: int) -> NoReturn:
        code = 1
        try:
            die_with(parent)
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in self._wakeup:
                os.close(each)
            self._control.close()
            _die_first()
            size = self._memory_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self._run(socket.socket(fileno=os.dup(file)))
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            if pid in self._children:
                self._children.discard(pid)
                # What it left behind in its group must not work on without it.
                _kill_group(pid)
                self._tell({"gone": pid, "status": status, "rss_kb": usage.ru_maxrss})

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the pod is gone: the next look ends this process, too
            self._control.send(orjson.dumps(message))

    def _end(self) -> None:
        for pid in self._children:
            _kill_group(pid)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; it may be dead by now."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _die_first() -> None:
    """Have the kernel take this process before others when memory runs out."""
    if sys.platform != "linux":
        return
    # The files of a process that hides its memory belong to root, so it shows it for a moment.
    hides = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    if hides:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(OOM_SCORE)
    if hides:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def limit_cpu(seconds: int) -> None:
    """Give this process so many more seconds of CPU time from now on; then SIGXCPU ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _hear_nothing() -> None:
    # Not SIG_IGN, which the programs that a job starts would inherit.
    for number in FORWARDED:
        signal.signal(number, _nothing)


def _nothing(*_: object) -> None:
    pass


def _now() -> float:
    return os.times().elapsed
