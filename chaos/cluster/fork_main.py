"""The fork server's process: imports the runtime once, then forks a child for each request.

    python -m chaos.cluster.fork_main FD MODULE[:FUNCTION]…

FD is one end of a socket pair. Each message on it hands over four open files: the new process's own
socket, and its stdin, stdout and stderr. The request arrives on that socket; the pid goes back and,
at the end, the return code. When the owner's end closes, the server kills what still runs and ends.

The server has one thread and no state but open sockets, so a child inherits nothing else.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

PR_SET_PDEATHSIG: Final = 1
HEADER_BYTES: Final = 4
REPORT_BYTES: Final = 4
FILES: Final = 4


class Child(NamedTuple):
    """The request for a forked process."""

    request: dict[str, Any]
    files: list[int]
    """Its stdin, stdout and stderr."""


def serve(control: socket.socket) -> Child | None:
    """Fork on demand. Return the request in each child, and None when the owner has gone.

    A child has none of the server's files and none of its signal handlers.
    """
    running: dict[int, socket.socket] = {}
    with _woken_by_deaths() as woken:
        while True:
            readable, _, _ = select.select([control.fileno(), woken], [], [])
            if woken in readable:
                os.read(woken, 65_536)
                _report_ended(running)
            if control.fileno() in readable:
                message, files, _, _ = socket.recv_fds(control, 1, FILES)
                if not message:
                    _kill(running)
                    return None
                if not files:
                    # No request: the number of a signal, written to a wake-up descriptor of the
                    # owner that was closed and whose number its end of this socket has now.
                    continue
                own = socket.socket(fileno=files[0])
                request = _read(own)
                pid = os.fork()
                if pid == 0:
                    for each in (control, own, *running.values()):
                        each.close()
                    return Child(request, files[1:])
                for number in files[1:]:
                    os.close(number)
                running[pid] = own
                _send(own, pid)


@contextlib.contextmanager
def _woken_by_deaths() -> Iterator[int]:
    """Yield a descriptor that becomes readable when a child has ended."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    yield woken
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for end in (woken, wake):
        os.close(end)


def _read(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(HEADER_BYTES), "big")
        request: dict[str, Any] = json.loads(stream.read(size))
    return request


def _send(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the owner has gone
        connection.sendall(number.to_bytes(REPORT_BYTES, "big", signed=True))


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection:
            _send(connection, os.waitstatus_to_exitcode(status))


def _kill(running: dict[int, socket.socket]) -> None:
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def become(child: Child, server: int) -> None:
    """Turn this process into what `python -m` would have started."""
    os.setsid()
    for number, opened in enumerate(child.files):
        os.dup2(opened, number)
    for opened in child.files:
        os.close(opened)
    _die_with(server)
    environ, cwd = child.request["env"], child.request["cwd"]
    os.environ.clear()  # in place: other modules hold this very object
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    _open_streams()
    wished = [each for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:1] = [cwd, *wished]
    sys.argv = ["", *child.request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", "cortex", *child.request["arguments"]]
    importlib.invalidate_caches()
    for action in filter(None, environ.get("PYTHONWARNINGS", "").split(",")):
        warnings.simplefilter(action)
    _reseed()


def _die_with(server: int) -> None:
    """Get killed when the server dies in any way; only Linux supports this."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os.kill(os.getpid(), signal.SIGKILL)


def _open_streams() -> None:
    """Open Python's streams again: whether they are terminals is decided on opening."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        former = getattr(sys, f"__{name}__")
        is_by_line = name == "stderr" or os.isatty(number)
        stream = open(  # noqa: SIM115 -- permanently, and by its number
            number,
            mode,
            buffering=1 if is_by_line else -1,
            encoding=former.encoding,
            errors=former.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _reseed() -> None:
    """Reseed what was seeded at import; `random` itself does so at each fork."""
    trio_run = sys.modules.get("trio._core._run")
    if trio_run is not None:
        trio_run._r.seed()  # noqa: SLF001 -- there is no public way


def run(module: str) -> int:
    """Run a module as the main program and return its exit code, as the interpreter would."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: ASYNC103, BLE001 -- the outermost place
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1  # noqa: ASYNC104 -- as the interpreter does: print it, return the exit code
    return 0


def end(code: int) -> NoReturn:
    """End like the interpreter: after its threads and exit functions, with all output flushed.

    Modules are not torn down: that would copy memory shared with the server for nothing.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 -- as multiprocessing does
    atexit._run_exitfuncs()  # noqa: SLF001 -- as multiprocessing does
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # Python's exit code when the reader has gone
    os._exit(code)


def main() -> None:
    """Serve; in a child, run its module to its end as the main program."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    server = os.getpid()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    gc.disable()  # no import leaves much garbage, and looking for it takes a sixth of the time
    for wanted in sys.argv[2:]:
        module, _, function = wanted.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    if threading.active_count() != 1:
        raise RuntimeError(f"imports started threads: {threading.enumerate()}")
    gc.collect()
    gc.freeze()  # imported objects are shared: a collection would copy every page of them
    gc.enable()
    control.sendall(b"\0")
    child = serve(control)
    control.close()
    if child is not None:
        become(child, server)
        end(run(child.request["module"]))


if __name__ == "__main__":
    main()
