"""The local Postgres that Cortex brings along, shared by all its processes on this machine.

Each process holds `users.lock` shared while it uses the server. A process that leaves and gets that
lock exclusively was the last one, and stops the server; a new user waits for that, then starts it
again. A killed user just drops its hold: the server stays up until the next one leaves.
`start.lock` lets one process at a time inspect and change the server's state.

Synchronous on purpose: called before an event loop starts, or in a thread.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import platformdirs

from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, UnavailableError, UsageError
from cortex.postgres.embedded.account import Account, account_for
from cortex.postgres.embedded.cluster import STOP_BOUND_S, Cluster, FileLock
from cortex.postgres.embedded.install import MAJOR, packaged, reachable

DATABASE = "cortex"
READY_BOUND_S = 60.0  # replaying 2 GB of log after a crash takes most of it on a slow disk


def default_data_dir() -> Path:
    """The default place of the data: per user, for root per machine.

    Root's home is closed to the system user that runs root's server, and stays closed.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/cortex")
    return platformdirs.user_data_path("cortex", appauthor=False)


def acquire(data_dir: Path, *, within_s: float = READY_BOUND_S) -> "EmbeddedServer":
    """Become a user of the server in `data_dir`; starts it, and creates the data, when needed.

    Takes `within_s` for each of: waiting for a shutdown, waiting for another process's start,
    starting. Raises UsageError for what the person has to change, UnavailableError otherwise.
    """
    with contextlib.ExitStack() as on_failure, _named_os_errors(data_dir):
        home = _prepare_home(data_dir)
        users = on_failure.enter_context(FileLock(home / "users.lock"))
        if not users.shared(within_s=within_s + STOP_BOUND_S):
            raise UnavailableError(f"another process is still stopping the Postgres in {home}")
        with FileLock(home / "start.lock") as start:
            if not start.exclusive(within_s=within_s):
                raise _still_starting(home)
            cluster = _cluster(home)
            postmaster = cluster.start(within_s=within_s)
            cluster.ensure_database(DATABASE)
        on_failure.pop_all()
    return EmbeddedServer(dsn=postmaster.dsn(DATABASE), cluster=cluster, users=users)


def is_starting(data_dir: Path) -> bool:
    """Return whether another process is starting the server in `data_dir`, or creating its data."""
    path = data_dir.expanduser().absolute() / "start.lock"
    try:
        if not path.exists():
            return False
        with FileLock(path) as start:
            return not start.shared(within_s=0.0)
    except OSError:  # another user's, whose start this one cannot follow
        return False


class EmbeddedServer:
    """One process's use of the server; `dsn` is valid until `release`."""

    def __init__(self, *, dsn: str, cluster: Cluster, users: FileLock) -> None:
        self.dsn = dsn
        self.data_dir = cluster.home
        self._cluster = cluster
        self._users: FileLock | None = users

    def release(self) -> None:
        """Stop using the server; the last user stops it and returns when it has ended.

        Idempotent. Raises UnavailableError when it does not stop; the use has ended nevertheless.
        """
        users, self._users = self._users, None
        if users is None:
            return
        with users:
            if users.try_exclusive():
                self._cluster.stop()

    def revive(self) -> None:
        """Start the server if it can no longer be reached; the address stays the same.

        Raises UnavailableError when it does not start or its data are gone, OSError when the whole
        directory is.
        """
        if not self._cluster.is_cut_off():
            return
        with FileLock(self.data_dir / "start.lock") as start:
            if not start.exclusive(within_s=READY_BOUND_S):
                raise _still_starting(self.data_dir)
            if not self._cluster.pgdata.exists():  # an empty database is no replacement
                raise UnavailableError(f"the data have gone from {self.data_dir}")
            self._cluster.start(within_s=READY_BOUND_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _still_starting(home: Path) -> UnavailableError:
    return UnavailableError(f"another process is still starting the Postgres in {home}")


# Another place for the data helps.
_MISPLACED: Final = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EROFS}


@contextlib.contextmanager
def _named_os_errors(data_dir: Path) -> Iterator[None]:
    """Report what the operating system refused and in which data directory."""
    try:
        yield
    except OSError as error:
        what = f"cannot use the data directory {data_dir}: {error.strerror}"
        if error.errno in _MISPLACED:
            hint = f"look at {error.filename}, or choose another --data"
            raise UsageError(what, hint=hint) from error
        raise UnavailableError(what, hint=f"look at {error.filename}") from error


def _prepare_home(data_dir: Path) -> Path:
    """Create the directory around the data: ours alone, but root's must let its server pass."""
    home = data_dir.expanduser().absolute()
    account = account_for(home / "pgdata")
    existing = next(path for path in (home, *home.parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    _check_way(existing, account)
    if existing != home:
        for parent in reversed(home.parents):  # closed to writers, whatever the umask is
            parent.mkdir(mode=0o755, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        home.chmod(0o711 if os.geteuid() == 0 else 0o700)
        _check_way(home, account)
    return home.resolve()


def _check_way(path: Path, account: Account) -> None:
    blocked = account.blocked_at(path.resolve())
    if blocked is not None:
        raise UsageError(
            f"the server's own user cannot pass the directory {blocked} on the way to its data",
            hint=f"choose another --data, such as {default_data_dir()}",
        )


def _cluster(home: Path) -> Cluster:
    account = account_for(home / "pgdata")
    install = reachable(packaged(), account=account, home=home)
    return Cluster(home=home, install=install, account=account, major=MAJOR)


# --- Restarts the embedded Postgres when it dies, or loses its socket, while it is in use.


POLL_EVERY_S: Final = 0.5
REVIVE_BACKOFF: Final = Backoff(base_s=2 * POLL_EVERY_S, cap_s=15.0)
"""Between failed attempts to start it; the server's log says why each failed."""
END_BOUND_S: Final = 5.0


@contextmanager
def kept_running(server: EmbeddedServer) -> Iterator[None]:
    """Until the block ends, start the server when it can no longer be reached.

    At the end, waits at most five seconds for an attempt in progress: a server that starts after
    that stays until its next user leaves.
    """
    is_over = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(server, is_over), name="embedded-postgres", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        is_over.set()
        keeper.join(END_BOUND_S)


def _keep(server: EmbeddedServer, is_over: threading.Event) -> None:
    wait_s, failures = POLL_EVERY_S, 0
    while not is_over.wait(wait_s):
        try:
            server.revive()
        except (CortexError, OSError):
            failures += 1
            wait_s = REVIVE_BACKOFF.longest_s(failures)
        else:
            wait_s, failures = POLL_EVERY_S, 0
