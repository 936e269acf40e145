"""Forks runners: processes beside a pod that run one job at a time and may die alone.

The fork server is forked from the pod's process before that has threads or connections. It has
imported the same code, so a runner costs one `fork`. It runs no job itself: on request it forks or
kills a runner, and it reports how each ended. Fork server and runners die with the pod
(`PR_SET_PDEATHSIG`), and so do the programs that their jobs have started. They ignore signals that
a terminal or a service manager sends to all processes.

On failure: a fork server that was killed or does not answer takes its runners along, and is
replaced. The new one is a new program, since a process that has threads by now cannot be forked
safely. Until it is ready the pod claims no jobs that need one.
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
from cortex.runtime.isolation.descendants import adopt_orphans, end_children

PR_SET_PDEATHSIG: Final = 1
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
MESSAGE_BYTES_MAX: Final = 4096
FORK_WITHIN_S: Final = 10.0
READY_WITHIN_S: Final = 60.0
"""For a fork server that is a new program: it imports the application first."""
REPLACE_BACKOFF: Final = Backoff(base_s=0.25, cap_s=30.0)
STEADY_S: Final = 60.0
"""A fork server that has lived this long is replaced without delay."""
GONE_WITHIN_S: Final = 5.0
END_WITHIN_S: Final = 2.0
OOM_SCORE: Final = b"1000"
"""When memory runs out, the kernel kills a runner before anything else."""
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Sent to whole process groups; only the pod acts on them."""

_log = structlog.get_logger(__name__)


@attrs.frozen
class ForkServerCommand:
    """A program that takes the place of a lost fork server, by `serve_fork_server`.

    Its arguments are the number of its control socket and its pod's process id.
    """

    command: Sequence[str]
    wish: bytes
    """Read from stdin, since arguments are visible to all users."""


@attrs.frozen(kw_only=True)
class RunnerExit:
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
    """Set once it is gone, unless the fork server is gone, too."""
    is_killed: bool = False
    """By the pod."""
    jobs_count: int = 0


@attrs.define(eq=False)
class _RunnerStart:
    stream: trio.SocketStream
    done: trio.Event = attrs.field(factory=trio.Event)
    runner: RunnerProcess | None = None
    error: str = "the fork server does not answer"


class ForkServer:
    """The pod's side: an actor that receives births and deaths of runners."""

    name = "fork server"

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
        """Receive births and deaths until cancelled; replace a lost fork server."""
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
        """Receive messages until the fork server is gone; a new one gets time to start."""
        while True:
            with trio.move_on_after(READY_WITHIN_S if self.is_lost else math.inf):
                message = await self._receive()
                try:
                    reply = orjson.loads(message)
                    self._handle(reply)
                except (AttributeError, KeyError, TypeError, ValueError):
                    return  # it has ended, or sends garbage
                continue
            return

    def _handle(self, reply: dict[str, Any]) -> None:
        if "ready" in reply:
            if self.is_lost:
                self.is_lost = False
                _log.info("fork server replaced", pid=self.pid, restarts=self.restarts_count)
        elif "gone" in reply:
            self._ended(reply["gone"], RunnerExit(status=reply["status"], rss_kb=reply["rss_kb"]))
        elif (birth := self._births.get(reply["number"])) is not None:
            self._born(birth, reply)

    async def _receive(self) -> bytes:
        with suppress(ConnectionError):
            return bytes(await self._socket.recv(MESSAGE_BYTES_MAX))
        return b""

    def _replace(self, again: "ForkServerCommand") -> None:
        """Start another fork server as a new program; if that fails, `run` tries again."""
        self._socket.close()
        self.restarts_count += 1
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._listen()
        with its:
            try:
                # Not in a thread: the kernel ends the child with the thread that has made it.
                started = subprocess.Popen(  # noqa: S603 -- our own program
                    [*again.command, str(its.fileno()), str(os.getpid())],
                    pass_fds=[its.fileno()],
                    stdin=subprocess.PIPE,
                )
            except OSError as error:
                _log.error("fork server not started", error=error.strerror)
                return
        self.pid = started.pid
        started.returncode = 0  # it is waited for here, not when the object is collected
        with suppress(OSError), started.stdin or nullcontext() as stdin:
            if stdin is not None:
                stdin.write(again.wish)  # far less than a pipe holds: this does not block

    async def fork(self) -> RunnerProcess:
        """Return a new runner. Raises `UnavailableError` when none can be forked."""
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
                await birth.done.wait()
            if limit.cancelled_caught:
                self._end(within_s=0.0)  # stopped, or hangs; `run` replaces it
        finally:
            del self._births[number]
            if birth.runner is None:
                stream.socket.close()  # a late runner ends by reading this
        if birth.runner is None:
            raise UnavailableError(f"no runner was forked: {birth.error}")
        return birth.runner

    async def kill(self, runner: RunnerProcess) -> None:
        """Kill a runner and its process group; return when it is gone, or after a bound."""
        runner.is_killed = True
        with trio.move_on_after(GONE_WITHIN_S, shield=True):
            if not runner.gone.is_set() and not self.is_lost:
                # By the fork server: only a parent knows that the pid is still this process's.
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

    def _born(self, birth: "_RunnerStart", reply: dict[str, Any]) -> None:
        if "error" in reply:
            birth.error = reply["error"]
        else:
            birth.runner = self._runners[reply["pid"]] = RunnerProcess(reply["pid"], birth.stream)
        birth.done.set()

    def _ended(self, pid: int, exit_: RunnerExit) -> None:
        runner = self._runners.pop(pid, None)
        if runner is not None:
            runner.exit = exit_
            runner.gone.set()

    def _lost(self) -> None:
        self._end(within_s=0.0)
        if not self.is_lost:
            _log.error("fork server lost", hint="it is replaced; jobs that need it wait")
        for runner in self._runners.values():
            _kill_group(runner.pid)  # child processes of its job do not end with it
        self._leave()

    def _leave(self) -> None:
        """No more messages come about the runners: release everybody who waits for one."""
        self.is_lost = True
        for runner in self._runners.values():
            runner.gone.set()
        self._runners.clear()
        for birth in self._births.values():
            birth.done.set()

    def close(self) -> None:
        """End the fork server and its runners; blocks for a moment."""
        self._control.close()
        if self._socket is not None:
            self._socket.close()
        self._end(within_s=END_WITHIN_S)

    def _end(self, *, within_s: float) -> None:
        """Wait for the fork server to end, then kill it."""
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


def start_fork_server(
    run: Callable[[socket.socket], None],
    *,
    memory_mb: int,
    warm: Callable[[], None] = lambda: None,
    again: ForkServerCommand | None = None,
) -> ForkServer:
    """Fork the fork server; `run` serves one runner's socket until the pod closes it.

    `warm` is called in the fork server before its first fork, so that no runner has to repeat it.
    `again` starts the same as a new program; with None, a lost fork server is not replaced. Call
    this before the process has threads, an event loop or connections.
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


def serve_fork_server(
    control: socket.socket,
    owner: int,
    run: Callable[[socket.socket], None],
    *,
    memory_mb: int,
    warm: Callable[[], None],
) -> None:
    """Be the fork server of a process whose first one was lost, until that closes its side."""
    _ForkServerProcess(control, owner, run, memory_mb, warm).serve()


class _ForkServerProcess:
    """The fork server's own side. It never returns into the pod's code."""

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
        # A signal that it hears: it ends what its jobs have started before itself.
        die_with(self._owner, by=signal.SIGTERM)
        os.setsid()
        adopt_orphans()
        _hear_nothing()
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._wakeup = reading, writing
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(reading, select.POLLIN)
        self._send({"ready": os.getpid()})
        while True:
            ready = poll.poll()
            if os.getppid() != self._owner:
                self._end()
                return
            for file, _ in ready:
                if file == reading:
                    with suppress(BlockingIOError):
                        os.read(reading, MESSAGE_BYTES_MAX)
                elif not self._hear():
                    self._end()
                    return
            self._reap()

    def _hear(self) -> bool:
        """Handle one message; False when the pod has closed its side."""
        try:
            data, files, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
        except ConnectionError:
            return False
        if not data:
            return False
        request = orjson.loads(data)
        if "kill" in request:
            if request["kill"] in self._children:
                _kill_group(request["kill"])
            return True
        try:
            reply = {"number": request["number"], "pid": self._fork(files[0])}
        except OSError as error:
            reply = {"number": request["number"], "error": error.strerror}
        finally:
            os.close(files[0])
        self._send(reply)
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
            adopt_orphans()
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
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                self._children.discard(pid)
                # What its job has started must not go on without it.
                _kill_group(pid)
                end_children(spared=self._children)
                self._send({"gone": pid, "status": status, "rss_kb": usage.ru_maxrss})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the pod is gone: the next poll ends this process, too
            self._control.send(orjson.dumps(message))

    def _end(self) -> None:
        for pid in self._children:
            _kill_group(pid)
        end_children()


def die_with(parent: int, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies; exit if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _die_first() -> None:
    """Have the kernel kill this process before others when memory runs out."""
    if sys.platform != "linux":
        return
    # The files of a process that hides its memory belong to root, so it unhides it for a moment.
    hides = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    if hides:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(OOM_SCORE)
    if hides:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def limit_cpu(seconds: int) -> None:
    """Limit this process to `seconds` more of CPU time; then SIGXCPU ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _hear_nothing() -> None:
    # Not SIG_IGN, which programs that a job starts would inherit.
    for number in FORWARDED:
        signal.signal(number, _nothing)


def _nothing(*_: object) -> None:
    pass


def _now() -> float:
    return os.times().elapsed
