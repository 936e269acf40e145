"""A hostile program gets nothing, by any means, under root and under another user."""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from cortex.agent.confinement import Confiner, best_means, works
from cortex.domain.confinement import MEANS, NO_MEANS, Confinement
from cortex.domain.errors import RejectedError
from tests.support import intruder

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its calls have numbers")

ROOT = Path(__file__).parents[3]
CANARY = "canary-7f3a91"
POD_UID = 64_242
AS_ROOT = os.geteuid() == 0
USERS = {"root": 0, "another user": POD_UID} if AS_ROOT else {"this user": os.geteuid()}
PLANTED = {
    "data": "data/pgdata/base",
    "config": "home/.config/cortex/config.toml",
    "pgpass": "home/.pgpass",
    "ssh_key": "home/.ssh/id_ed25519",
    "token": "data/token",
    "other_workspace": "data/workspaces/other/report.md",
}
HARMLESS = [
    *("database_socket", "database_socket_by_link", "abstract_socket", "tcp_on_loopback"),
    *("tcp_by_mapped_v6", "environment", "read_config", "read_data", "read_pgpass", "read_ssh_key"),
    *("read_token", "read_other_workspace", "list_data", "symlink_out", "up_from_here"),
    *("pod_environ", "pod_root", "pod_descriptors", "signal_pod", "pidfd_of_pod"),
    *("write_declared_folder", "git_hook_in_declared_folder", "many_descriptors", "much_memory"),
    *("cortex_as_module", "endless_computing"),
]
VICTIM = """
import ctypes, sys
secret = ctypes.create_string_buffer(b"%s")
print(ctypes.addressof(secret), flush=True)
sys.stdin.read()
"""


@frozen
class Place:
    """Folders of a pod, and what a program would like to have of it."""

    root: Path
    uid: int
    facts: dict[str, Any]

    @property
    def workspace(self) -> Path:
        return self.root / "data" / "workspaces" / "job"

    def run(self, means: Confinement, *argv: str, folder: Path | None = None) -> dict[str, Any]:
        terms = {
            "means": means,
            "workspace": str(self.workspace),
            "folder": str(folder or self.workspace),
            "hidden": [str(self.root / "data"), str(self.root / "home/.config/cortex/config.toml")],
            "argv": argv,
        }
        command = [sys.executable, "-m", "tests.support.confined", json.dumps(terms)]
        secret = {"CORTEX_DSN": CANARY, "ANTHROPIC_API_KEY": CANARY, "PGPASSWORD": CANARY}
        done = subprocess.run(
            as_user(self.uid, command),
            cwd=ROOT,
            env={**os.environ, **secret, "TMPDIR": str(self.root / "tmp")},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def as_user(uid: int, command: list[str]) -> list[str]:
    """Return a command that runs another as this user, who may pass to the interpreter."""
    if uid == os.geteuid():
        return command
    needed = {Path(sys.base_prefix), ROOT}
    closed = {
        parent for path in needed for parent in path.parents if not parent.stat().st_mode & 0o001
    }
    script = ["set -e"]
    for top in sorted(closed):
        script += [f"keep=$(mktemp -d); n=0; mount --bind {top} $keep"]
        script += [f"mount -t tmpfs -o mode=755 none {top}"]
        for path in needed:
            if path.is_relative_to(top):
                inner = path.relative_to(top)
                script += [f"mkdir -p {path}", f"mount --bind $keep/{inner} {path}"]
        script += ["umount $keep; rmdir $keep"]
    script += ['exec "$@"']
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"]
    view = ["unshare", "--mount", "--propagation", "private"]
    return [*view, "sh", "-c", "\n".join(script), "sh", *drop, *command]


@contextmanager
def a_place(uid: int) -> Iterator[Place]:
    with ExitStack() as held:
        made = held.enter_context(
            tempfile.TemporaryDirectory(prefix="cortex-hostile-", ignore_cleanup_errors=True)
        )
        root = Path(made).resolve()
        for planted in PLANTED.values():
            (root / planted).parent.mkdir(parents=True, exist_ok=True)
            (root / planted).write_text(CANARY)
            (root / planted).chmod(0o600)
        for name in ("folder/.git/hooks", "tmp", "data/workspaces/job", "data/socket"):
            (root / name).mkdir(parents=True)
        (root / "folder/readme").write_text("readable")
        held.callback(shutil.rmtree, root / "data", ignore_errors=True)
        unix = held.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(root / "data/socket/.s.PGSQL.5432"))
        abstract = held.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{root}")
        server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        tcp = held.enter_context(server)
        for each in (unix, abstract, tcp):
            each.listen()
        if AS_ROOT:
            subprocess.run(["chown", "-R", f"{uid}:{uid}", str(root)], check=True)
        for closed in ("data", "data/workspaces/job", "data/workspaces/other", "home"):
            (root / closed).chmod(0o700)
        root.chmod(0o755)
        victim = held.enter_context(_victim(uid))
        assert victim.stdout
        facts = {
            "canary": CANARY,
            **{name: str(root / planted) for name, planted in PLANTED.items()},
            "data_folder": str(root / "data"),
            "folder": str(root / "folder"),
            "socket": str(root / "data/socket/.s.PGSQL.5432"),
            "abstract": str(root),
            "port": tcp.getsockname()[1],
            "address": "127.0.0.2",
            "pod": victim.pid,
            "secret_at": int(victim.stdout.readline()),
            "mark": root.name,
            "stdlib": sysconfig.get_path("stdlib"),
            "site_packages": sysconfig.get_path("purelib"),
            "cortex": str(Path(sys.executable).parent / "cortex"),
        }
        yield Place(root, uid, facts)
        assert victim.poll() is None


@contextmanager
def _victim(uid: int) -> Iterator["subprocess.Popen[str]"]:
    """A process of the pod's user, open to whatever that user may do."""
    with subprocess.Popen(
        as_user(uid, [sys.executable, "-c", VICTIM % CANARY]),
        env={"DSN": CANARY, "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        try:
            yield victim
        finally:
            victim.kill()


def available(means: Confinement, uid: int) -> bool:
    if means is Confinement.USER and uid:
        return False
    return works(means)


CASES = [
    (means, user)
    for means in MEANS
    for user, uid in USERS.items()
    if not (means is Confinement.USER and uid)
]


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as root and as another user."""
    yield from _case(*request.param)


@pytest.fixture(params=[each for each in CASES if USERS[each[1]] == os.geteuid()], ids="-".join)
def as_me(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as the user that runs the tests."""
    yield from _case(*request.param)


def _case(means: Confinement, user: str) -> Iterator[tuple[Confinement, Place]]:
    uid = USERS[user]
    if not available(means, uid):
        pytest.skip(f"this machine has no {means}")
    with a_place(uid) as place:
        yield means, place


@pytest.mark.timeout(120)
def test_none_of_the_attempts_succeeds(case: tuple[Confinement, Place]) -> None:
    means, place = case
    script = place.workspace / "intruder.py"
    script.write_bytes(Path(intruder.__file__).read_bytes())
    facts = {**place.facts, "own_view": means is Confinement.BUBBLEWRAP}
    before = {name: Path(place.facts[name]).stat() for name in PLANTED}
    python = "python3"
    done = place.run(means, python, "intruder.py", json.dumps(facts))
    assert done["exit_code"] == 0, done["stderr"]
    results = json.loads(done["stdout"])
    assert len(results) >= 60
    assert set(results) == set(intruder.ATTEMPTS)
    assert {name: got for name, got in results.items() if got is not None} == {}
    for name in PLANTED:
        found = Path(place.facts[name]).stat()
        assert (found.st_mode, found.st_uid, found.st_mtime, found.st_nlink) == (
            before[name].st_mode,
            before[name].st_uid,
            before[name].st_mtime,
            before[name].st_nlink,
        )
        assert Path(place.facts[name]).read_text() == CANARY
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        assert not Path(folder, place.facts["mark"]).exists() or folder == str(place.root.parent)


def test_the_attempts_are_real(tmp_path: Path) -> None:
    """Unconfined, as the pod's own user, those that do no harm succeed: the suite can fail."""
    with a_place(os.geteuid()) as place:
        facts = {**place.facts, "own_view": False, "only": HARMLESS}
        done = subprocess.run(
            [sys.executable, intruder.__file__, json.dumps(facts)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "CORTEX_DSN": CANARY},
        )
    results = json.loads(done.stdout)
    assert {name for name in HARMLESS if results[name] is None} == set()


DAEMON = """
import os, sys, time
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
for number in (0, 1, 2):
    os.close(number)
while True:
    with open("beats", "a") as file:
        file.write("x")
    time.sleep(0.01)
"""


def test_a_daemon_ends_with_the_call(case: tuple[Confinement, Place]) -> None:
    means, place = case
    (place.workspace / "daemon.py").write_text(DAEMON)
    wait = "until [ -s beats ]; do sleep 0.02; done"
    done = place.run(means, "sh", "-c", f"python3 daemon.py; {wait}; echo begun")
    assert done["stdout"] == "begun\n", done
    mine = subprocess.run(["pgrep", "-f", "daemon.py"], capture_output=True, check=False)
    cwds = [str(Path(f"/proc/{pid}/cwd").readlink()) for pid in mine.stdout.decode().split()]
    assert str(place.workspace) not in cwds


EATER = """
import mmap, os
for _ in range(8):
    if os.fork() == 0:
        break
held = bytearray(400 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
import signal; signal.pause()
"""


def test_processes_that_eat_the_memory_together_are_ended() -> None:
    means = best_means()
    if means is Confinement.NONE:
        pytest.skip("this machine has no means to confine programs")
    with a_place(os.geteuid()) as place:
        (place.workspace / "eater.py").write_text(EATER)
        done = place.run(means, "python3", "eater.py")
    assert done["exit_code"] == -9
    assert "held more than 2,048 MiB of memory" in done["stderr"]


def test_the_folder_is_read_and_the_workspace_written(as_me: tuple[Confinement, Place]) -> None:
    means, place = as_me
    script = f"cat readme; echo result > {place.workspace}/report; touch here; touch $TMPDIR/x"
    done = place.run(means, "sh", "-c", script, folder=place.root / "folder")
    assert done["stdout"] == "readable"
    assert (place.workspace / "report").read_text() == "result\n"
    assert not (place.root / "folder/here").exists()
    assert "here" in done["stderr"]


def test_what_is_hidden_in_the_folder_stays_hidden(as_me: tuple[Confinement, Place]) -> None:
    means, place = as_me
    home = place.root / "home"
    home.chmod(0o755)
    done = place.run(means, "sh", "-c", "cat .config/cortex/config.toml", folder=home)
    assert CANARY not in done["stdout"]


def test_no_program_starts_in_a_folder_of_cortex(tmp_path: Path) -> None:
    confiner = Confiner(means=Confinement.BUBBLEWRAP, hidden=(tmp_path / "data",))
    with pytest.raises(RejectedError, match="belongs to Cortex itself"):
        confiner.launch(
            workspace=tmp_path / "data/workspaces/job",
            folder=tmp_path / "data/pgdata",
            has_network=False,
        )


def test_without_means_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=NO_MEANS) as raised:
        Confiner(means=Confinement.NONE).launch(
            workspace=tmp_path, folder=tmp_path, has_network=False
        )
    assert "unsafe_run_command" in str(raised.value.hint)
    assert "bubblewrap" in str(raised.value.hint)
