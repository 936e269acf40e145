"""The Postgres that all tests of a run share, and SQL for tests.

One run of pytest has one directory, `run_dir`, made by the process that was started first. It holds
the server that all xdist workers share, and the private ones. Not below pytest's own temporary
directories: those are closed to the system user that runs a server for root.
"""

import asyncio
import hashlib
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import asyncpg

from cortex.domain.errors import UnavailableError
from cortex.postgres.embedded import server
from cortex.postgres.embedded.account import account_for
from cortex.postgres.embedded.cluster import Cluster, FileLock
from cortex.postgres.embedded.install import MAJOR, packaged
from tests.support.eventually import WITHIN_S
from tests.support.servers.clean_database import CleanState
from tests.support.servers.kept_sessions import SESSIONS, KeptSessions, kept_pids
from tests.support.servers.kept_sql import KeptConnections, in_thread
from tests.support.servers.small_disk import unmount_below

T = TypeVar("T")

RUN_DIR_PREFIX = "cortex-tests-"
RAM_DISK = Path("/dev/shm")  # noqa: S108  (directories in it get random names)
RAM_MIN_BYTES = 4 * 1024**3  # a server takes 60 MB, a database 8 MB
TEMPLATE = "cortex_template"
PAUSE_SCHEDULES = (
    "UPDATE cortex.schedule SET paused_at = cortex.now(), paused_by = 'tests', pause_reason = ''"
)
USES_MAX = 50  # rows that were deleted stay in a database's files


KEPT: Final[dict[str, KeptConnections]] = {}
"""By the DSN of a database that this process made on the run's server."""


def sql(dsn: str, query: str, *args: object) -> list[asyncpg.Record]:
    """Run one statement, in a transaction and session of its own as it seems; return its rows.

    From anywhere, trio included, but it blocks the caller: a statement that waits for something
    in the same event loop belongs into `trio.to_thread.run_sync`.
    """
    database, _, role = dsn.partition("&role=")
    if database in KEPT and role.isidentifier():
        return KEPT[database].in_role(role).fetch(query, args)
    if dsn in KEPT:
        return KEPT[dsn].fetch(query, args)

    async def run() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(query, *args)
        finally:
            await connection.close()

    return run_asyncio(run)


def backends(dsn: str) -> int:
    """Return how many sessions of pods and commands are in this database, kept ones not counted."""
    query = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'cortex'
          AND pid <> ALL ($1::int[])
    """
    return len(sql(dsn, query, kept_pids(dsn)))


def has_session_locks(dsn: str) -> bool:
    """Whether a session of this database holds an advisory lock with a key of 64 bits."""
    held = """
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    return bool(sql(dsn, held))


def run_asyncio(work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run asyncio code to its end in a fresh thread and loop; raises what it raises.

    A thread of its own, since one that runs trio cannot run asyncio once trio_asyncio is imported.
    """

    # The factory is named because importing trio_asyncio replaces the default one.
    def run() -> T:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(work())

    return in_thread(run)


# --- the directory of one run


def make_run_dir() -> tuple[Path, FileLock]:
    """A directory that any system user may pass, and the hold that says it is in use.

    Clears away what runs that were killed left behind, their servers included.
    """
    parent = _quickest_disk()
    for left in parent.glob(f"{RUN_DIR_PREFIX}*/run.lock"):
        if left.stat().st_uid == os.geteuid():
            with FileLock(left) as lock:
                if lock.try_exclusive():
                    with suppress(UnavailableError):  # it is slow to stop: a later run clears it
                        remove_servers(left.parent)
    path = Path(tempfile.mkdtemp(prefix=RUN_DIR_PREFIX, dir=parent))
    path.chmod(0o711)
    lock = FileLock(path / "run.lock")
    lock.shared(within_s=0)
    return path, lock


def remove_servers(directory: Path) -> None:
    """Stop the servers at any depth that something left running, and delete everything."""
    for lock in directory.rglob("server.lock"):
        home = lock.parent
        account = account_for(home / "pgdata")
        cluster = Cluster(home=home, install=packaged(), account=account, major=MAJOR)
        cluster.stop(signal.SIGQUIT)
    unmount_below(directory)
    shutil.rmtree(directory)


def make_home(run_dir: Path) -> Path:
    """A fresh directory for one server."""
    home = Path(tempfile.mkdtemp(dir=run_dir))
    home.chmod(0o711)
    return home


def _quickest_disk() -> Path:
    """Memory if there is plenty of it: cloning a database there takes a tenth of the time."""
    if RAM_DISK.is_dir() and shutil.disk_usage(RAM_DISK).free >= RAM_MIN_BYTES:
        may_run_programs = not os.statvfs(RAM_DISK).f_flag & os.ST_NOEXEC
        if may_run_programs:
            return RAM_DISK
    return Path(tempfile.gettempdir())


# --- the server that all tests share


class SharedPostgres:
    """This worker's use of the run's server, and the template that its tests clone."""

    def __init__(self, run_dir: Path) -> None:
        self._server = server.acquire(run_dir / "shared")
        self._lock_path = run_dir / "template.lock"
        self._clean: list[str] = []
        self._clean_state: CleanState | None = None
        self._uses: dict[str, int] = {}
        self._keep(self._dsn("postgres"))
        # Nothing here has to survive a power cut, or lives long enough to be cleaned.
        self._admin("ALTER SYSTEM SET fsync = off")
        self._admin("ALTER SYSTEM SET full_page_writes = off")
        self._admin("ALTER SYSTEM SET autovacuum = off")
        self._admin("SELECT pg_reload_conf()")

    def create_empty(self) -> str:
        """The DSN of a new database without a schema."""
        return self._create(template="template0")

    def create_migrated(self) -> str:
        """The DSN of a new database with the current schema."""
        self._ensure_template()
        dsn = self._create(template=TEMPLATE)
        SESSIONS[dsn] = KeptSessions()
        return dsn

    def lend(self) -> str:
        """The DSN of a database with the current schema and no rows, to be given back."""
        if self._clean:
            return self._clean.pop()
        dsn = self.create_migrated()
        if self._clean_state is None:
            self._clean_state = CleanState.of(KEPT[dsn])
        self._uses[dsn] = 0
        return dsn

    def give_back(self, dsn: str) -> None:
        """Take back a database for other tests, unless more than its rows has changed."""
        self._uses[dsn] += 1
        if self._uses[dsn] < USES_MAX and self.restore(dsn):
            self._clean.append(dsn)
        else:
            self.drop(dsn)

    def restore(self, dsn: str) -> bool:
        """Make a lent database as good as new; false if that is not possible."""
        try:
            if self._clean_state is None:
                return False
            return self._clean_state.restore(KEPT[dsn], kept=kept_pids(dsn))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False  # its test has ended the server's sessions, or dropped it

    def create_filled(self, fill: Sequence[str]) -> str:
        """The DSN of a new database with the current schema and what scripts put into it.

        Each runs once a run, in a session of its own, on what those before it have left: a copy
        takes a tenth of the time.
        """
        self._ensure_template()
        template = TEMPLATE
        for count in range(1, len(fill) + 1):
            scripts = chr(0).join(fill[:count])
            name = f"filled_{hashlib.sha256(scripts.encode()).hexdigest()[:12]}"
            self._ensure(name, partial(self._fill, template, fill[count - 1]))
            template = name
        return self._create(template=template)

    def drop(self, dsn: str) -> None:
        """Delete a database, disconnecting its clients."""
        self._let_go(dsn)
        self._admin(f'DROP DATABASE IF EXISTS "{database_of(dsn)}" WITH (FORCE)')

    def release(self) -> None:
        """Leave the server; the last worker stops it."""
        while SESSIONS:
            SESSIONS.popitem()[1].close()
        while KEPT:
            KEPT.popitem()[1].close()
        self._server.release()

    def _create(self, *, template: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        # Half the time of wal_log; the checkpoint that it needs writes next to nothing here.
        self._admin(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return self._keep(self._dsn(name))

    def _keep(self, dsn: str) -> str:
        KEPT[dsn] = KeptConnections(dsn)
        return dsn

    def _let_go(self, dsn: str) -> None:
        for each in (SESSIONS, KEPT):
            if (kept := each.pop(dsn, None)) is not None:
                kept.close()

    def _ensure_template(self) -> None:
        self._ensure(TEMPLATE, self._migrated)

    def _ensure(self, template: str, make: Callable[[], str]) -> None:
        """Make a template once a run; it gets its name when it is complete."""
        with FileLock(self._lock_path) as lock:
            if not lock.exclusive(within_s=WITHIN_S):
                raise TimeoutError("another worker is still making a template database")
            if not self._admin("SELECT 1 FROM pg_database WHERE datname = $1", template):
                unfinished = make()
                self._let_go(unfinished)
                self._admin(f'ALTER DATABASE "{database_of(unfinished)}" RENAME TO "{template}"')
                self._admin(f'ALTER DATABASE "{template}" ALLOW_CONNECTIONS false')

    def _migrated(self) -> str:
        dsn = self.create_empty()
        migrate(dsn)
        # The built-in schedules would submit jobs whenever a minute ends during a test.
        sql(dsn, PAUSE_SCHEDULES)
        return dsn

    def _fill(self, template: str, script: str) -> str:
        dsn = self._create(template=template)

        async def run() -> None:
            connection = await asyncpg.connect(dsn)
            await connection.execute(script)
            await connection.close()

        run_asyncio(run)
        return dsn

    def _admin(self, query: str, *args: object) -> list[asyncpg.Record]:
        return sql(self._dsn("postgres"), query, *args)

    def _dsn(self, database: str) -> str:
        return self._server.dsn.replace(f"/{server.DATABASE}?", f"/{database}?")


def migrate(dsn: str) -> None:
    """Bring a database to the current schema."""
    from cortex.postgres.migrate import migrate as run  # noqa: PLC0415  (most tests need none)

    run_asyncio(lambda: run(dsn))


def database_of(dsn: str) -> str:
    """The name of the database that a DSN of this module leads to."""
    return dsn.partition("?")[0].rpartition("/")[2]
