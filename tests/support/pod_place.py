"""A pod's folders, with what a hostile program would like, and programs run confined there."""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from cortex.agent.confinement.means import works
from cortex.domain.confinement import MEANS, Confinement
from tests.support.pods import FORKS, NOT_OURS

ROOT = Path(__file__).parents[2]

CANARY = "canary-7f3a91"

WITHIN_S = 100.0

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

    def run(
        self,
        means: Confinement,
        *argv: str,
        folder: Path | None = None,
        writes: bool = True,
        is_forked: bool = True,
    ) -> dict[str, Any]:
        """Run a program confined to its end.

        The pod's process is a fork where it can be one. Then its own environment, as others see it,
        holds no secrets: what looks for these needs an interpreter of its own.
        """
        if is_forked and self.uid == os.geteuid():
            done = FORKS.run(
                [self._terms(means, argv, folder, writes=writes)],
                module="tests.support.confined",
                env=self._environment,
                cwd=ROOT,
                timeout=WITHIN_S,
            )
            assert done.returncode == 0, done.stderr
            return dict(json.loads(done.stdout))
        with self.started(means, *argv, folder=folder, writes=writes) as running:
            stdout, stderr = running.communicate(timeout=WITHIN_S)
        assert running.returncode == 0, stderr
        return dict(json.loads(stdout))

    @contextmanager
    def started(
        self, means: Confinement, *argv: str, folder: Path | None = None, writes: bool = True
    ) -> Iterator["subprocess.Popen[str]"]:
        """Let a process, as a pod would, run a program confined."""
        terms = self._terms(means, argv, folder, writes=writes)
        command = [sys.executable, "-m", "tests.support.confined", terms]
        with subprocess.Popen(
            as_user(self.uid, command),
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                yield running
            finally:
                running.kill()

    def _terms(
        self, means: Confinement, argv: Sequence[str], folder: Path | None, *, writes: bool
    ) -> str:
        terms = {
            "means": means,
            "workspace": str(self.workspace),
            "folder": str(folder or self.workspace),
            "hidden": [str(self.root / "data"), str(self.root / "home/.config/cortex/config.toml")],
            "argv": argv,
            "writes": writes,
        }
        return json.dumps(terms)

    @property
    def _environment(self) -> dict[str, str]:
        secret = {"CORTEX_DSN": CANARY, "ANTHROPIC_API_KEY": CANARY, "PGPASSWORD": CANARY}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        return {**kept, **secret, "TMPDIR": str(self.root / "tmp")}


def open_up(folder: Path) -> None:
    """Let another user pass to a folder of this one and read it, as a root pod's programs must."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)


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


def of_case(means: Confinement, user: str) -> Iterator[tuple[Confinement, Place]]:
    uid = USERS[user]
    if not available(means, uid):
        pytest.skip(f"this machine has no {means}")
    with a_place(uid) as place:
        yield means, place
