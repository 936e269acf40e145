"""One Postgres data directory: created, started and stopped without trusting any process id.

Every Postgres process that works here, including `initdb`, inherits a hold on `server.lock`. While
that is held, a process is alive; when it is free, `postmaster.pid` is stale (its pid may belong to
another program by now). Callers serialise `start` and `stop` among themselves.

    <home>/server.lock   held by living Postgres processes
    <home>/server.log    their output, cut at start
    <home>/cortex.conf   settings, written at each start
    <home>/pgdata        the data; appears complete or not at all
    <home>/socket        private to the server's user; elsewhere when the path is too long
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self, TypeVar

import asyncpg
from attrs import frozen

from cortex.domain.errors import UnavailableError, UsageError
from cortex.postgres.embedded.account import Account
from cortex.postgres.embedded.install import Install, ServerLog, render_settings
from cortex.postgres.embedded.socket import PORT, Postmaster, choose_socket_dir, close_to_others

# --- Locks between processes: `flock` on files in the data directory, which no crash leaves behind.


T = TypeVar("T")

POLL_S = 0.01  # a start takes some 50 ms: a longer interval would be noticeable


def poll(probe: Callable[[], T], *, within_s: float) -> T:
    """Call `probe` until its result is true; return the last one, false after `within_s`."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()) and time.monotonic() < give_up_at:
        time.sleep(POLL_S)
    return answer


class FileLock:
    """One open lock file, held shared, exclusively or not at all.

    Python opens files close-on-exec, so a child holds the lock only if it gets `fd` explicitly.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and create it if absent; raises OSError. Takes no lock yet."""
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def try_exclusive(self) -> bool:
        """Become the only holder, without waiting; on False a shared hold is lost as well.

        When several holders of a shared lock try this at once, exactly one of them succeeds.
        """
        return self._try(fcntl.LOCK_EX)

    def exclusive(self, *, within_s: float) -> bool:
        """Wait to be the only holder; False when that took too long."""
        return poll(self.try_exclusive, within_s=within_s)

    def shared(self, *, within_s: float) -> bool:
        """Wait until it is not held exclusively; False when that took too long."""
        return poll(lambda: self._try(fcntl.LOCK_SH), within_s=within_s)

    def close(self) -> None:
        """Drop this process's hold; a child that got `fd` keeps its own. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(self, how: int) -> bool:
        try:
            fcntl.flock(self.fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# ---


INITDB_BOUND_S = 120  # 0.5 s on a good disk; slow network disks and emulation need far longer
STOP_BOUND_S = 20  # a fast shutdown writes all dirty buffers
CREATE_BOUND_S = 30  # it copies some 8 MB
KILL_BOUND_S = 10  # an immediate shutdown kills what still lives after 5 s

# Sorts by bytes, which is fast and never changes with the operating system's locale files.
BUILTIN_UTF8 = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")


@frozen
class Cluster:
    """The data directory below `home`, the programs for it and the user who owns it."""

    home: Path
    install: Install
    account: Account
    major: str
    initdb_options: tuple[str, ...] = BUILTIN_UTF8

    @property
    def pgdata(self) -> Path:
        """Postgres' name for the data directory."""
        return self.home / "pgdata"

    @property
    def log(self) -> ServerLog:
        """The server's output."""
        return ServerLog(self.home / "server.log")

    def start(self, *, within_s: float) -> Postmaster:
        """Return once the server accepts connections, whatever its state was.

        Creates the data directory if there is none, waits for a recovery or a shutdown to end, and
        restarts a server whose socket was removed. Raises UnavailableError with the end of the log
        when the server ends or is not ready in time (it then continues its recovery), UsageError
        for data that is not ours to start.
        """
        launched_at: int | None = None

        def ready() -> Postmaster | None:
            nonlocal launched_at
            if lock := self._lock_if_dead():
                with lock:
                    if launched_at is not None:
                        raise self._failed("ended while starting", since=launched_at)
                    launched_at = self._launch(lock)
            postmaster = self.postmaster()
            if postmaster and postmaster.has_lost_socket():
                self.stop()  # it would never open another one
                return None
            return postmaster if postmaster and postmaster.is_ready() else None

        postmaster = poll(ready, within_s=within_s)
        if postmaster is None:
            raise self._failed(f"is not ready after {within_s:g} s", since=launched_at or 0)
        return postmaster

    def ensure_database(self, name: str) -> None:
        """Create a database of the running server unless it is there; UnavailableError if not."""
        postmaster = self.postmaster()
        if postmaster is None:
            raise UnavailableError(f"the embedded Postgres in {self.home} has gone")
        if not isinstance(postmaster.session_error(name), asyncpg.InvalidCatalogNameError):
            return
        address = (f"--host={postmaster.socket_dir}", f"--port={postmaster.port}")
        options = ("--username=postgres", "--no-password", *address, name)
        begin = self.log.size()
        if self._run("createdb", *options, within_s=CREATE_BOUND_S) != 0:
            raise self._failed(f"could not create the database {name}", since=begin)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Return once no process of the server is left; does nothing if there is none.

        SIGINT is Postgres' fast shutdown, SIGQUIT its immediate one (recovery at the next start). A
        fast one that takes too long becomes an immediate one, which loses nothing committed.
        """
        if self._signal_until_dead(how, within_s=STOP_BOUND_S):
            return
        if not self._signal_until_dead(signal.SIGQUIT, within_s=KILL_BOUND_S):
            raise UnavailableError(
                f"the embedded Postgres in {self.home} does not stop",
                hint=f"its log is {self.log.path}; the next start waits for it",
            )

    def postmaster(self) -> Postmaster | None:
        """The server's notes about itself; may be left over from a dead one."""
        return Postmaster.read(self.pgdata / "postmaster.pid")

    def is_dead(self) -> bool:
        """Whether no process of the server is alive, its backends included."""
        if lock := self._lock_if_dead():
            lock.close()
        return lock is not None

    def is_cut_off(self) -> bool:
        """Whether the server cannot be reached: it is dead, or its socket was removed."""
        if self.is_dead():
            return True
        postmaster = self.postmaster()
        return postmaster is not None and postmaster.has_lost_socket()

    def _lock_if_dead(self) -> FileLock | None:
        """The exclusive hold on `server.lock` if no Postgres process works here, else None."""
        lock = FileLock(self.home / "server.lock")
        if lock.try_exclusive():
            postmaster = self.postmaster()
            # A server that answers without the lock was started manually: it is alive nevertheless.
            if postmaster is None or not postmaster.listens():
                return lock
        lock.close()
        return None

    def _signal_until_dead(self, how: signal.Signals, *, within_s: float) -> bool:
        """Send the signal to the server once it can be identified; False when it lives on."""
        sent = False

        def probe() -> bool:
            nonlocal sent
            if self.is_dead():
                return True
            if not sent and (postmaster := self.postmaster()):
                is_it = postmaster.listens() or postmaster.holds(self.home / "server.lock")
                sent = is_it and postmaster.send(how)
            return False

        return poll(probe, within_s=within_s)

    def _launch(self, lock: FileLock) -> int:
        """Start the server detached, with a hold on `lock`; return where its log begins."""
        if not self.pgdata.exists():
            self._initialise(lock)
        self._check_version()
        close_to_others(self.pgdata)
        socket_dir = choose_socket_dir(self.home, owner=self.account)
        settings = render_settings(socket_dir=socket_dir, port=PORT)
        _replace(self.home / "cortex.conf", settings)
        # Postgres would mistake their pids for its own if those are in use again, or undead.
        for stale in [self.pgdata / "postmaster.pid", *socket_dir.glob(".s.PGSQL.*")]:
            stale.unlink(missing_ok=True)
        begin = self.log.size()
        # pg_ctl makes the server a child of init, so no process here has to reap it.
        with self.install.held() as programs:
            words = ("pg_ctl", "start", "--silent", "--no-wait")
            code = self._run(*words, inherited=(lock.fd, programs))
        if code != 0:
            raise self._failed("did not start", since=begin)
        return begin

    def _initialise(self, lock: FileLock) -> None:
        """Create the data directory next to its place and move it there when it is complete."""
        unfinished = self.home / "pgdata.unfinished"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        if not self.account.is_me:
            os.chown(unfinished, self.account.uid, self.account.gid)
        options = ("--username=postgres", "--encoding=UTF8", *self.initdb_options)
        options += ("--auth-local=trust", "--auth-host=reject", "--no-instructions")
        begin = self.log.size()
        if self._run("initdb", *options, inherited=(lock.fd,), pgdata=unfinished) != 0:
            raise self._failed("could not make its data directory", since=begin)
        with (unfinished / "postgresql.conf").open("a") as conf:
            conf.write("\ninclude '../cortex.conf'\n")
            os.fsync(conf.fileno())
        unfinished.rename(self.pgdata)
        _sync_directory(self.home)

    def _check_version(self) -> None:
        marker = self.pgdata / "PG_VERSION"
        if not marker.exists():
            raise UsageError(
                f"{self.pgdata} is not a Postgres data directory",
                hint="move it away, or choose another --data",
            )
        version = marker.read_text().strip()
        if version != self.major:
            raise UsageError(
                f"the data in {self.pgdata} is for Postgres {version}, not {self.major}",
                hint="convert it with pg_upgrade, or choose another --data",
            )

    def _run(
        self,
        name: str,
        *options: str,
        inherited: Collection[int] = (),
        pgdata: Path | None = None,
        within_s: float = INITDB_BOUND_S,
    ) -> int:
        """Run a Postgres program as the server's user in a session of its own.

        Its output goes to the log, and it inherits holds on locks. The data directory goes
        through the environment, because `pg_ctl` would hand -D to a shell.
        """
        env = {"PGDATA": str(pgdata or self.pgdata), "LC_ALL": "C", "TZ": "UTC"}
        env["PATH"] = os.environ.get("PATH", os.defpath)
        with self.log.open() as log:
            try:
                done = subprocess.run(  # noqa: S603  (a list, so nothing is interpreted)
                    [self.install.program(name), *options],
                    cwd="/",
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=tuple(inherited),
                    start_new_session=True,
                    timeout=within_s,
                    check=False,
                    umask=0o077,
                    **self.account.popen_options(),
                )
            except subprocess.TimeoutExpired as error:
                raise self._failed(f"took more than {within_s:g} s for {name}") from error
        return done.returncode

    def _failed(self, what: str, *, since: int = 0) -> UnavailableError:
        """The error for a server that `what`, with its log output after byte `since`."""
        return self.log.failure(f"the embedded Postgres in {self.home} {what}", since=since)


def _replace(path: Path, text: str) -> None:
    """Write a world-readable file; another process sees the old text or the new one."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    with unfinished.open("x") as file:
        file.write(text)
    unfinished.chmod(0o644)
    unfinished.rename(path)


def _sync_directory(path: Path) -> None:
    """Make a rename in `path` survive a power cut."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
