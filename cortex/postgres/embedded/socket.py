"""How to reach the embedded Postgres: its own notes in `postmaster.pid` and its socket."""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import socket
import stat
from pathlib import Path
from typing import Self
from urllib.parse import quote

import asyncpg
from attrs import frozen

from cortex.domain.errors import UsageError
from cortex.postgres.embedded.account import Account

PORT = 5432  # part of the socket's file name only
CONNECT_BOUND_S = 10.0
_SOCKET_PATH_MAX_BYTES = 103  # 107 on Linux, 103 on macOS
_RUNTIME_DIR_MAX_BYTES = 50  # leaves room for our directory and the socket in it
_LINE_COUNT = 8  # of a complete postmaster.pid; the last line is the status
# Needs no quoting in a settings file, a DSN or a list of hosts.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+-]+")


@frozen
class Postmaster:
    """A server's notes about itself in `postmaster.pid`."""

    pid: int
    socket_dir: Path
    port: int
    status: str

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None while there is no server or it has not written all of it yet."""
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            return None
        if len(lines) < _LINE_COUNT:
            return None
        pid, _, _, port, socket_dir, _, _, status, *_ = (line.strip() for line in lines)
        return cls(pid=int(pid), socket_dir=Path(socket_dir), port=int(port), status=status)

    def dsn(self, database: str) -> str:
        """The address of one database, for asyncpg and libpq alike."""
        host = quote(str(self.socket_dir), safe="/")
        address = f"postgresql://postgres@/{database}?host={host}&port={self.port}"
        # Otherwise variables such as PGSSLMODE, which people set for other servers, would decide.
        return f"{address}&sslmode=disable&target_session_attrs=any"

    def listens(self) -> bool:
        """Whether a process holds the socket open; a dead server's socket refuses at once."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0)  # a full queue raises BlockingIOError: a process owns it
            try:
                probe.connect(str(self.socket_dir / f".s.PGSQL.{self.port}"))
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def has_lost_socket(self) -> bool:
        """Whether the socket was removed from a server that had opened it."""
        path = self.socket_dir / f".s.PGSQL.{self.port}"
        return self.status == "ready" and not path.exists()

    def holds(self, lock: Path) -> bool:
        """Whether this process has a lock file open; False where the system does not show that."""
        try:
            files = list(Path(f"/proc/{self.pid}/fd").iterdir())
            return any(file.readlink() == lock for file in files)
        except OSError:
            return False

    def is_ready(self) -> bool:
        """Whether it accepts sessions: it says so and proves it (a dead server's note stays)."""
        if self.status != "ready":
            return False
        error = self.session_error("postgres")
        crowded = isinstance(error, asyncpg.TooManyConnectionsError)
        missing = isinstance(error, asyncpg.InvalidCatalogNameError)
        return error is None or crowded or missing

    def session_error(self, database: str) -> Exception | None:
        """Open and close a session; return the error that prevented it."""

        async def attempt() -> None:
            connection = await asyncpg.connect(self.dsn(database), timeout=CONNECT_BOUND_S)
            await connection.close(timeout=CONNECT_BOUND_S)

        # The factory is named because importing trio_asyncio replaces the default one.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            try:
                runner.run(attempt())
            except (
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
            ) as error:
                return error
        return None

    def send(self, how: signal.Signals) -> bool:
        """Signal the server; False when it is already gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
            return True
        return False


def choose_socket_dir(home: Path, *, owner: Account) -> Path:
    """A directory that only `owner` (and root) can enter: in `home` if the path is short enough.

    Otherwise one named after `home` in the runtime or temporary directory. Raises UsageError if
    another user has put something in its place.
    """
    path = home / "socket"
    room = _SOCKET_PATH_MAX_BYTES - len(f"/.s.PGSQL.{PORT}")
    if len(str(path)) > room or not _PLAIN_PATH.fullmatch(str(path)):
        digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        path = _runtime_dir() / f"cortex-{owner.uid}-{digest}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        if not owner.is_me:
            os.chown(path, owner.uid, owner.gid)
    info = path.lstat()
    if info.st_uid != owner.uid or not stat.S_ISDIR(info.st_mode):
        raise UsageError(
            f"the socket directory {path} does not belong to the owner of the data",
            hint="remove it, or choose another --data",
        )
    close_to_others(path)
    return path


def close_to_others(folder: Path) -> None:
    """Make a folder of the server private again.

    Kubernetes opens all files of a volume to a group each time it mounts it (fsGroup), and Postgres
    refuses such data.
    """
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def _runtime_dir() -> Path:
    """The place for short-lived private files on this machine; a short and plain path."""
    path = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    fits = _PLAIN_PATH.fullmatch(path) and len(path) <= _RUNTIME_DIR_MAX_BYTES
    if fits and os.access(path, os.W_OK | os.X_OK):
        return Path(path)
    return Path("/tmp")  # noqa: S108  (the name is ours only after the check of its owner)
