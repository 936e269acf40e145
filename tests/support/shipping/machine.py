"""A Debian 11 without Python, in which the checks of packaging/binary run the binary.

Needs root and mmdebstrap. The root file system is kept below the temporary directory for the next
run.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs

from tests.support.eventually import eventually
from tests.support.shipping.debian import kept_debian

BINARY: Final = Path(
    os.environ.get("CORTEX_TEST_BINARY", Path(__file__).parents[3] / "dist" / "cortex")
)
USER: Final = 1000
ENDS_WITHIN_S: Final = 180.0  # of a busy machine, whose disk is slow
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


@attrs.define
class Machine:
    """A machine without Python: a root file system, and the processes in it."""

    root: Path
    home: str = "/home/ana"
    uid: int = USER
    environ: dict[str, str] = attrs.field(factory=dict)
    program: str = "cortex"
    runs: list["subprocess.Popen[bytes]"] = attrs.field(factory=list)
    _mounts: ExitStack = attrs.field(factory=ExitStack)

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
            self.command(self.program, *words),
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
                self.command(self.program, *words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.runs.append(process)
        return Started(process, log)

    @property
    def cache(self) -> Path:
        return self.path(self.home) / ".cache/cortex"

    def install(self, binary: Path, name: str = "cortex") -> None:
        """Put a binary on PATH as an upgrade does: another file takes the name."""
        unfinished = self.path(f"/usr/local/bin/{name}.new")
        shutil.copy(binary, unfinished)
        unfinished.rename(unfinished.with_suffix(""))

    def mount(self, *words: str) -> None:
        """Mount something until this machine ends; the last word says where."""
        subprocess.run(["mount", *words], check=True)
        self._mounts.callback(subprocess.run, ["umount", "-l", words[-1]], check=True)

    def unmount(self) -> None:
        self._mounts.close()

    def mount_small(self, inside: str, *, mib: int, options: str = "rw") -> Path:
        """Mount a disk of its own that the user may write to."""
        path = self.path(inside)
        path.mkdir(parents=True)
        self.mount("-t", "tmpfs", "-o", f"size={mib}m,{options}", "tmpfs", str(path))
        for each in (path, *path.parents):
            if each == self.path(self.home):
                break
            os.chown(each, USER, USER)
        return path

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

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def bare_root() -> Path:
    """Return a Debian 11 of its required packages only."""
    root = kept_debian("bullseye", "--variant=required", name="cortex-bare-root")
    assert not [*root.glob("usr/bin/python*")]
    return root


@contextmanager
def bare_machine(folder: Path) -> Iterator[Machine]:
    """Run a machine whose changes are kept in `folder`."""
    assert os.geteuid() == 0, "needs root, for chroot"
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    root, upper, scratch = folder / "root", folder / "upper", folder / "scratch"
    for each in (root, upper, scratch):
        each.mkdir(mode=0o755)
    made = Machine(root)
    with ExitStack() as stack:
        stack.callback(made.unmount)
        stack.callback(made.kill_all)
        layers = f"lowerdir={bare_root()},upperdir={upper},workdir={scratch}"
        made.mount("-t", "overlay", "overlay", "-o", layers, str(root))
        made.mount("--bind", "/proc", str(root / "proc"))
        made.mount("--rbind", "/dev", str(root / "dev"))
        # Or its unmount would be this machine's, too.
        subprocess.run(["mount", "--make-rslave", root / "dev"], check=True)
        made.install(BINARY)
        home = made.path(made.home)
        home.mkdir(parents=True)
        os.chown(home, USER, USER)
        with (root / "etc/passwd").open("a") as users:
            users.write(f"ana:x:{USER}:{USER}::{made.home}:/bin/sh\n")
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


def submitted(machine: Machine, app: list[str]) -> tuple[str, Path]:
    """Submit the job and wait for its first step; return its id and the file it waits for."""
    gate = f"{machine.home}/gate"
    job_id = machine.run("jobs", "submit", "greet", *app, "--arg", f"gate={gate}").split()[0]
    eventually(
        lambda: json.loads(machine.run("jobs", "show", job_id, "--json"))["steps"],
        what="its first step is recorded",
        within_s=ENDS_WITHIN_S,
    )
    return job_id, machine.path(gate)


def server_program(machine: Machine) -> tuple[int, str]:
    """Return the process id and the program of the running Postgres."""
    data = machine.path(machine.home) / ".local/share/cortex/pgdata"
    pid = int((data / "postmaster.pid").read_text().split()[0])
    return pid, str(Path(f"/proc/{pid}/exe").readlink())
