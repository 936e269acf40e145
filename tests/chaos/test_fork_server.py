"""The fork server: its children behave like ordinary processes, and outlive no parent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chaos.cluster import fork_server
from chaos.cluster.fork_server import ROOT, ForkServer, Process
from tests.support.eventually import WITHIN_S, eventually

ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

TELL_ALL = """
import json, os, random, signal, sys
from trio._core import _run
print(json.dumps({
    "pid": os.getpid(), "session": os.getsid(0), "cwd": os.getcwd(), "words": sys.argv[1:],
    "environ": dict(os.environ), "stdin": sys.stdin.read(), "is_main": __name__ == "__main__",
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "random": random.random(), "trio": _run._r.random(),
    "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "path": sys.path[0],
}))
"""
ENDINGS = {
    "": 0,
    "raise SystemExit(3)": 3,
    "raise SystemExit('no')": 1,
    "raise ValueError('no')": 1,
    "import os; os._exit(7)": 7,
    "import atexit; atexit.register(print, 'last'); print('first')": 0,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import os, signal; os.kill(os.getpid(), signal.SIGINT)": -signal.SIGINT,
    "import threading as t, time; t.Thread(target=lambda: print('late')).start()": 0,
}
OWNER = """
import sys
from chaos.cluster import fork_server
fork_server.RUNTIME = ()
with fork_server.ForkServer() as forks:
    child = forks.start([], module="sleeps", cwd=sys.argv[1], env={})
    print(child.pid, forks._server.pid, flush=True)
    child.wait()
"""
CYCLE = """
import gc
from chaos.cluster import fork_server
fork_server.RUNTIME = ()
gc.disable()
with fork_server.ForkServer() as forks:
    child = forks.start([], module="nothing", cwd={folder!r}, env={{}})
    child.wait()
    child.itself = child
    del child
    gc.collect()
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A server of the test's own that has imported nothing: it starts in a tenth of the time."""
    monkeypatch.setattr(fork_server, "RUNTIME", ())
    with ForkServer() as server:
        yield server


@pytest.fixture
def sleeper(forks: ForkServer, tmp_path: Path) -> Iterator[Process]:
    """A process that has begun to do nothing."""
    process = sleeping(forks, tmp_path)
    yield process
    process.kill()


def sleeping(forks: ForkServer, folder: Path) -> Process:
    write(folder, "sleeps", "import time; print(1, flush=True); time.sleep(3600)")
    process = forks.start([], module="sleeps", cwd=folder, env=ENV, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
    return process


def write(folder: Path, module: str, code: str) -> None:
    (folder / f"{module}.py").write_text(code)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def output(forks: ForkServer, folder: Path) -> dict[str, Any]:
    write(folder, "tells", TELL_ALL)
    env = ENV | {"A": "ä"}
    words = ["one", "tw\udcff"]
    ran = forks.run(words, module="tells", cwd=folder, env=env, stdin=b"read", timeout=WITHIN_S)
    assert (ran.returncode, ran.stderr) == (0, b"")
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["environ"].items() >= env.items()
    assert document["words"] == words
    return document


def test_a_fork_has_all_of_its_own(forks: ForkServer, tmp_path: Path) -> None:
    seen, other = output(forks, tmp_path), output(forks, tmp_path)
    assert seen["session"] == seen["pid"] != other["pid"]
    assert seen["cwd"] == seen["path"] == str(tmp_path)
    assert seen["stdin"] == "read"
    assert seen["is_main"]
    assert seen["files"] == [0, 1, 2]
    assert seen["random"] != other["random"]
    assert seen["trio"] != other["trio"]
    assert seen["int"], "Ctrl-C is not ignored"
    assert seen["child"]
    assert seen["blocked"] == []


@pytest.mark.parametrize("code", ENDINGS)
def test_fork_ends_like_the_interpreter(forks: ForkServer, tmp_path: Path, code: str) -> None:
    write(tmp_path, "ends", code)
    forked = forks.run([], module="ends", cwd=tmp_path, env=ENV, timeout=WITHIN_S)
    real = subprocess.run(
        [sys.executable, "-m", "ends"], cwd=tmp_path, env=ENV, capture_output=True, check=False
    )
    assert forked.returncode == real.returncode == ENDINGS[code]
    assert forked.stdout == real.stdout
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_signals_reach_the_forked_process(forks: ForkServer, sleeper: Process) -> None:
    assert sleeper.poll() is None
    sleeper.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)
    sleeper.send_signal(signal.SIGCONT)
    sleeper.terminate()
    assert sleeper.wait(WITHIN_S) == -signal.SIGTERM == sleeper.poll()
    sleeper.kill()  # the process that has its number now is not signalled


def test_a_byte_without_files_ends_no_server(bare: ForkServer, tmp_path: Path) -> None:
    """Python writes signals to a wake-up descriptor whose number the socket may have by then."""
    write(tmp_path, "nothing", "")

    def run() -> int:
        return bare.run([], module="nothing", env=ENV, cwd=tmp_path, timeout=WITHIN_S).returncode

    assert run() == 0
    assert bare._control is not None
    bare._control.send(b"\x11")
    assert run() == 0


def test_many_threads_may_start_and_wait(forks: ForkServer, tmp_path: Path) -> None:
    write(tmp_path, "counts", "import sys; sys.exit(int(sys.argv[1]))")

    def run(number: int) -> int:
        process = forks.start([str(number)], module="counts", cwd=tmp_path, env=ENV)
        return process.wait(WITHIN_S)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, range(20))) == list(range(20))


def test_asyncio_loop_can_wait_for_a_forked_process(sleeper: Process) -> None:
    async def until_ended() -> int | None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sleeper.fileno(), ended.set)
        assert not ended.is_set()
        sleeper.kill()
        async with asyncio.timeout(WITHIN_S):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(sleeper.fileno())
        return sleeper.poll()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(until_ended()) == -signal.SIGKILL


def test_another_interpreter_is_not_pretended(forks: ForkServer, tmp_path: Path) -> None:
    for other in ({"PYTHONUTF8": "0"}, {"LC_ALL": "C"}, {"LANG": "de_DE.ISO-8859-1"}):
        with pytest.raises(ValueError, match="an interpreter of its own"):
            forks.start([], cwd=tmp_path, env=ENV | other)


@pytest.mark.parametrize("died", ["owner", "server", "closed"])
def test_forked_child_does_not_outlive_its_owner_or_server(tmp_path: Path, died: str) -> None:
    write(tmp_path, "sleeps", "import time; time.sleep(3600)")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    with owner, owner.stdout as output:
        child, server = map(int, output.readline().split())
        assert is_running(child)
        pid, number = {
            "owner": (owner.pid, signal.SIGKILL),
            "server": (server, signal.SIGKILL),
            "closed": (owner.pid, signal.SIGINT),
        }[died]
        os.kill(pid, number)
        eventually(lambda: not is_running(child), what="the child is gone")
        eventually(lambda: not is_running(server), what="the server is gone")
        owner.wait(WITHIN_S)


def test_wait_for_a_child_of_a_dead_server_reports_a_kill(bare: ForkServer, tmp_path: Path) -> None:
    process = sleeping(bare, tmp_path)
    assert bare._server is not None
    bare._server.kill()
    assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_collected_fork_server_leaves_nothing_open(tmp_path: Path) -> None:
    """As in the frames of a test that failed: there the collector asks whatever it finds first."""
    (tmp_path / "nothing.py").write_text("")
    code = CYCLE.format(folder=os.fspath(tmp_path))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
