"""Try dist/cortex in a bare Debian 11 without Python: `python -m pytest -n 0 packaging/binary`.

Needs root and mmdebstrap; takes some minutes. CORTEX_BINARY names another file to try. The root
file system is kept below the temporary directory for the next run.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.support.eventually import eventually
from tests.support.pty_screen import PtyScreen

BINARY: Final = Path(os.environ.get("CORTEX_BINARY", Path(__file__).parents[2] / "dist" / "cortex"))
KEPT: Final = Path(os.environ.get("TMPDIR", "/tmp")) / "cortex-bare-root"  # noqa: S108
USER: Final = 1000
SIZE_MAX: Final = 90_000_000
VERSION_MAX_S: Final = 0.5
READY_MAX_S: Final = 3.0
ENDS_WITHIN_S: Final = 60.0
APP: Final = """\
import os
import sys

import trio
from cortex import Context, job

import greeting


@job("greet", timeout=300)
async def greet(ctx: Context, gate: str) -> dict[str, str]:
    first = await ctx.step("first", greeting.text)
    while not os.path.exists(gate):
        await trio.sleep(0.05)
    return {"text": first, "pid": str(os.getpid()), "python": sys.prefix}
"""

pytestmark = pytest.mark.timeout(300)


@attrs.define
class Machine:
    """A machine without Python: a root file system, and the processes in it."""

    root: Path
    home: str = "/home/ana"
    uid: int = USER
    environ: dict[str, str] = attrs.field(factory=dict)
    runs: list["subprocess.Popen[bytes]"] = attrs.field(factory=list)

    def path(self, inside: str) -> Path:
        return self.root / inside.removeprefix("/")

    def command(self, *words: str) -> list[str]:
        environ = {
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            **self.environ,
        }
        return [
            shutil.which("chroot") or "chroot",
            f"--userspec={self.uid}:{self.uid}",
            str(self.root),
            "/usr/bin/env",
            "-i",
            f"--chdir={self.home}",
            *(f"{name}={value}" for name, value in environ.items()),
            *words,
        ]

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command("cortex", *words),
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def job(self, job_id: str) -> Any:
        return json.loads(self.run("jobs", "show", job_id, "--json"))["job"]

    def start(self, *words: str) -> "Started":
        log = self.root.parent / f"run-{len(self.runs)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.command("cortex", *words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.runs.append(process)
        return Started(process, log)

    def kill_all(self) -> None:
        """Kill what still runs in this root, and wait until it is gone."""

        def inside() -> list[int]:
            found = []
            for each in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if (each / "root").readlink() == self.root:
                        found.append(int(each.name))
            return found

        for process in self.runs:
            if process.poll() is None:
                process.kill()
            process.wait()

        def are_gone() -> bool:
            for pid in inside():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not inside()

        eventually(are_gone, what="the machine's processes end")


@attrs.define
class Started:
    """A command that runs."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    def until(self, pattern: str) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.text, re.MULTILINE)
            assert match or self.process.poll() is None, self.text
            return match

        match = eventually(found, what=f"it says {pattern}", within_s=ENDS_WITHIN_S)
        assert match
        return match

    def end(self) -> int:
        return self.process.wait(ENDS_WITHIN_S)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="session")
def bare_root() -> Path:
    """A Debian 11 of its required packages only."""
    if not (KEPT / "done").exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir(mode=0o755)
        options = ["--quiet", "--variant=required", "bullseye"]
        subprocess.run(["mmdebstrap", *options, KEPT / "root"], check=True)
        (KEPT / "done").touch()
    assert not [*(KEPT / "root").glob("usr/bin/python*")]
    return KEPT / "root"


@pytest.fixture
def machine(bare_root: Path, tmp_path: Path) -> Iterator[Machine]:
    assert os.geteuid() == 0, "needs root, for chroot"
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    with ExitStack() as stack:

        def mount(*words: str) -> None:
            subprocess.run(["mount", *words], check=True)
            stack.callback(subprocess.run, ["umount", "-l", words[-1]], check=True)

        upper, scratch = tmp_path / "upper", tmp_path / "scratch"
        upper.mkdir(mode=0o755)
        scratch.mkdir()
        layers = f"lowerdir={bare_root},upperdir={upper},workdir={scratch}"
        mount("-t", "overlay", "overlay", "-o", layers, str(root))
        mount("--bind", "/proc", str(root / "proc"))
        mount("--rbind", "/dev", str(root / "dev"))
        shutil.copy(BINARY, root / "usr/local/bin/cortex")
        made = Machine(root)
        home = made.path(made.home)
        home.mkdir(parents=True)
        os.chown(home, USER, USER)
        with (root / "etc/passwd").open("a") as users:
            users.write(f"ana:x:{USER}:{USER}::{made.home}:/bin/sh\n")
        stack.callback(made.kill_all)
        yield made


def with_app(machine: Machine) -> list[str]:
    """Write an application and its virtual environment; return the options that name them."""
    home = machine.path(machine.home)
    packages = home / "venv/lib/python3.13/site-packages"
    packages.mkdir(parents=True)
    (home / "venv/pyvenv.cfg").write_text("home = /nowhere\nversion = 3.13.5\n")
    (packages / "greeting.py").write_text("def text() -> str:\n    return 'hello'\n")
    (home / "shop").mkdir()
    (home / "shop/greet.py").write_text(APP)
    return ["--app", "shop/greet.py", "--path", "venv"]


def test_it_is_small_and_starts_fast(machine: Machine) -> None:
    assert BINARY.stat().st_size <= SIZE_MAX
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert re.match(r"cortex \d", machine.run("--version"))
        times.append(time.monotonic() - began)
    print(f"first {times[0]:.2f} s, then {min(times[1:]):.2f} s")
    assert min(times[1:]) <= VERSION_MAX_S
    listed = machine.run("licences")
    for name in ("cpython", "openssl", "postgresql", "zstd", "trio"):
        assert name in listed


def test_an_up_is_ready_in_time(machine: Machine) -> None:
    machine.run("--version")
    first = machine.start("up")
    first.until("is ready after")
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 0, first.text
    again = machine.start("up")
    after = again.until(r"is ready after ([\d.]+) ?(m?s)")
    print(after[0])
    ready_s = float(after[1]) / (1000 if after[2] == "ms" else 1)
    assert ready_s <= READY_MAX_S


def test_several_first_starts_at_once_unpack_once(machine: Machine) -> None:
    cache = machine.path(machine.home) / ".cache/cortex"
    left = cache / "runtime-0123456789abcdef.unfinished"
    (left / "bin").mkdir(parents=True)
    for each in (cache.parent, cache, left, left / "bin"):
        os.chown(each, USER, USER)
    runs = [machine.start("--version") for _ in range(4)]
    for run in runs:
        assert run.end() == 0, run.text
    kinds = sorted(each.name.rpartition("-")[0] for each in cache.iterdir() if each.is_dir())
    assert kinds == ["postgres", "runtime"]


def test_a_job_survives_kill_9_and_so_do_the_files_of_postgres(machine: Machine) -> None:
    app = with_app(machine)
    gate = f"{machine.home}/gate"
    first = machine.start("up", *app)
    first.until("is ready after")
    job_id = machine.run("jobs", "submit", "greet", *app, "--arg", f"gate={gate}").split()[0]
    eventually(
        lambda: json.loads(machine.run("jobs", "show", job_id, "--json"))["steps"],
        what="its first step is recorded",
        within_s=ENDS_WITHIN_S,
    )
    first.kill()
    # What Postgres runs is not what the pod had unpacked for itself.
    pid = int(
        (machine.path(machine.home) / ".local/share/cortex/pgdata/postmaster.pid")
        .read_text()
        .split()[0]
    )
    program = Path(f"/proc/{pid}/exe").readlink()
    assert "/.cache/cortex/postgres-" in str(program)
    machine.path(gate).touch()
    second = machine.start("up", *app)
    machine.run("jobs", "wait", job_id)
    result = machine.job(job_id)
    assert result["status"] == "COMPLETED"
    assert result["result"]["text"] == "hello"
    assert "/.cache/cortex/runtime-" in result["result"]["python"]
    second.process.send_signal(signal.SIGTERM)
    assert second.end() == 0, second.text


def test_workers_and_isolated_processes_start_from_it(machine: Machine) -> None:
    app = with_app(machine)
    up = machine.start("up", *app, "--workers", "2")
    up.until("ready after")
    machine.path(f"{machine.home}/gate").touch()
    arguments = ("--arg", f"gate={machine.home}/gate")
    job_id = machine.run("jobs", "submit", "greet", *app, *arguments).split()[0]
    machine.run("jobs", "wait", job_id)
    assert machine.job(job_id)["status"] == "COMPLETED"
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0, up.text


def test_a_virtual_environment_of_another_python_is_named(machine: Machine) -> None:
    with_app(machine)
    (machine.path(machine.home) / "venv/lib/python3.13").rename(
        machine.path(machine.home) / "venv/lib/python3.11"
    )
    printed = machine.run("up", "--path", "venv", code=2)
    assert "is for python3.11, and this is python3.13" in printed


def demo_folder(machine: Machine) -> str:
    folder = machine.path(machine.home) / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("# Lighthouse\n\nKeeps ships off the rocks.\n")
    (folder / "lamp.py").write_text("x = 1\n" * 40)
    for each in (folder, *folder.iterdir()):
        os.chown(each, USER, USER)
    return f"{machine.home}/folder"


def test_the_demo_is_killed_resumes_and_is_approved_in_the_terminal_ui(machine: Machine) -> None:
    words = ["demo", demo_folder(machine), "--approve"]
    first = machine.start(*words)
    first.until("step")
    first.kill()
    second = machine.start(*words)
    second.until("waits    for you: send_mail")
    typed = shlex.split(second.until(r"^type +(cortex tui.*)$")[1])
    command = machine.command(*typed, "--as", "li")
    with PtyScreen(command, folder=Path("/"), env={}) as screen:
        screen.until(lambda text: "1 approval" in text, what="that something waits")
        screen.type("A")
        screen.until(lambda text: "customers@" in text, what="all of it")
        screen.press_until("a", lambda text: "y yes" in text, what="the question")
        screen.press_until("y", lambda text: "✓ approved" in text, what="what was done")
        assert second.end() == 0, second.text
        screen.type("q")
        assert screen.end() == 0
    assert "send_mail approved by li" in second.text


def test_root_has_a_server_of_its_own_user(machine: Machine) -> None:
    machine.uid, machine.home = 0, "/root"
    up = machine.start("up")
    up.until("is ready after")
    assert sorted(machine.path("/var/cache/cortex").glob("postgres-*"))
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0, up.text


def test_a_home_that_cannot_be_written_is_no_obstacle(machine: Machine) -> None:
    os.chown(machine.path(machine.home), 0, 0)
    data = f"/tmp/data-{USER}"  # noqa: S108
    up = machine.start("up", "--data", data)
    up.until("is ready after")
    assert sorted(machine.path(f"/var/tmp/cortex-{USER}").glob("runtime-*"))  # noqa: S108
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0, up.text


def test_a_damaged_file_is_refused_and_leaves_nothing(machine: Machine) -> None:
    content = bytearray(BINARY.read_bytes())
    content[len(content) // 2] ^= 0xFF
    machine.path("/usr/local/bin/cortex").write_bytes(content)
    assert "this file is damaged" in machine.run("--version", code=1)
    cache = machine.path(machine.home) / ".cache/cortex"
    assert not [*cache.glob("runtime-*")]


def test_where_nothing_can_be_unpacked_it_says_so_in_two_lines(machine: Machine) -> None:
    machine.environ["CORTEX_CACHE_DIR"] = "/proc/cortex"
    printed = machine.run("--version", code=1)
    assert printed.startswith("error: cannot unpack: /proc/cortex")
    assert "hint: set CORTEX_CACHE_DIR" in printed
