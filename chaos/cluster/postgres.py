"""The Postgres of one run: its own server, with databases that carry chaos's mark.

The server listens only on a unix socket below the run's directory; pods reach it through the proxy.
Its durability settings are those of production; only the location of the disk differs.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import asyncpg

from chaos.cluster.disk import Disk
from chaos.cluster.mark import mark, refuse_unmarked
from cortex.postgres.embedded.account import account_for
from cortex.postgres.embedded.cluster import BUILTIN_UTF8, Cluster, poll
from cortex.postgres.embedded.install import MAJOR, packaged, reachable
from cortex.postgres.embedded.socket import Postmaster
from cortex.postgres.migrate import migrate

TEMPLATE = "cortex_template"
OWNER = "cortex"
"""The role that pods connect as: not a superuser but the owner of the database, as in
production."""
OWN_DISK = "chaos_disk"
WITHOUT_BUILT_IN = (
    "UPDATE cortex.schedule SET paused_at = cortex.now(), paused_by = 'chaos', pause_reason = ''"
)
"""Pauses the built-in schedules, whose jobs no client of a run submits."""
READY_WITHIN_S = 60.0
DEAD_WITHIN_S = 20.0
SQL_WITHIN_S = 20.0

Row = dict[str, Any]


class Postgres:
    """A server below `home`; its slow methods run in a thread."""

    def __init__(self, home: Path) -> None:
        account = account_for(home / "pgdata")
        install = reachable(packaged(), account=account, home=home)
        self.cluster = Cluster(
            home=home,
            install=install,
            account=account,
            major=MAJOR,
            # Shared memory lies among the data: nothing of it remains when a server is killed.
            initdb_options=(*BUILTIN_UTF8, "--set=dynamic_shared_memory_type=mmap"),
        )
        self.database = ""
        """The run's database; empty before `create`."""
        self._checked = ""
        self.switch = asyncio.Lock()
        """Held by the fault that stopped the server, until it has started it again."""
        self.is_full = False
        """By a nemesis: it accepts no more connections."""

    async def start(self) -> None:
        """Return when it accepts connections; recovers after an immediate stop or a kill."""
        await asyncio.to_thread(self.cluster.start, within_s=READY_WITHIN_S)

    async def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: fast rolls back and closes sessions, immediate is like a power cut."""
        signals = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        await asyncio.to_thread(self.cluster.stop, signals[how])

    async def kill(self) -> None:
        """SIGKILL the main process, and wait until all others have ended."""
        self.postmaster.send(signal.SIGKILL)
        if not await asyncio.to_thread(poll, self.cluster.is_dead, within_s=DEAD_WITHIN_S):
            raise TimeoutError(f"processes of the killed server in {self.cluster.home} live on")

    async def create(self, name: str = "chaos", *, disk: Disk | None = None) -> str:
        """Make a marked database with the current schema, from now on the run's; return its DSN.

        The first one runs the migrations, later ones are cloned. `disk` is where its data lies, if
        not with the server's own.
        """
        if not await self._admin("SELECT FROM pg_database WHERE datname = $1", TEMPLATE):
            await self._make_template()
        place = "pg_default" if disk is None else await self._tablespace(disk)
        await self._admin(
            f'CREATE DATABASE "{name}" TEMPLATE {TEMPLATE} OWNER {OWNER} TABLESPACE {place}'
        )
        await mark(self._dsn(name), run=uuid4())
        self.database = name
        return self.dsn

    async def configure(self, setting: str, value: str) -> None:
        """Change a setting of the server that needs no restart."""
        await self._admin(f"ALTER SYSTEM SET {setting} = '{value}'")
        await self._admin("SELECT pg_reload_conf()")

    async def drop(self, name: str) -> None:
        """Delete a marked database, also while clients are connected."""
        await refuse_unmarked(self._dsn(name))
        await self._admin(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def sql(self, query: str, *args: object, within_s: float = SQL_WITHIN_S) -> list[Row]:
        """Run one statement in the run's database as superuser, without a proxy; return its rows.

        Raises what asyncpg raises and `TimeoutError`: the server may be down.
        """
        if self._checked != self.database:
            await refuse_unmarked(self.dsn)
            self._checked = self.database
        return await _run(self.dsn, query, args, within_s=within_s)

    async def is_up(self) -> bool:
        """Whether it accepts a session right now."""
        try:
            await self.sql("SELECT 1", within_s=5.0)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return False
        return True

    async def backend_pids(self) -> list[int]:
        """The processes that serve other clients of the run's database, oldest first."""
        query = """
            SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend'
                AND pid <> pg_backend_pid()
            ORDER BY backend_start, pid
        """
        return [row["pid"] for row in await self.sql(query)]

    def kill_backend(self, pid: int, how: signal.Signals = signal.SIGTERM) -> bool:
        """Signal a process of this server: SIGTERM ends its session, SIGKILL forces a recovery.

        False when it has gone. Raises `ProcessLookupError` for a process that is not this server's.
        """
        parent = self.postmaster.pid
        if _parent_of(pid) != parent:
            raise ProcessLookupError(f"process {pid} is no backend of the run's Postgres")
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return False
        return True

    @property
    def postmaster(self) -> Postmaster:
        """Its main process; raises `ProcessLookupError` when it was shut down."""
        postmaster = self.cluster.postmaster()
        if postmaster is None:
            raise ProcessLookupError(f"no Postgres runs in {self.cluster.home}")
        return postmaster

    @property
    def socket_path(self) -> Path:
        """Its address; the same over restarts."""
        postmaster = self.postmaster
        return postmaster.socket_dir / f".s.PGSQL.{postmaster.port}"

    @property
    def dsn(self) -> str:
        """The address of the run's database, as superuser and without a proxy."""
        return self._dsn(self.database)

    @property
    def log(self) -> str:
        return self.cluster.log.path.read_text("utf-8", "replace")

    async def _tablespace(self, disk: Disk) -> str:
        """Make a tablespace on a disk; return its name."""
        account = self.cluster.account
        folder = disk.folder("data", owner=(account.uid, account.gid))
        await self._admin(f"CREATE TABLESPACE {OWN_DISK} LOCATION '{folder}'")
        return OWN_DISK

    async def _make_template(self) -> None:
        # Log who waited for whom in a deadlock; elsewhere rows stay out of the log, but these are
        # ours.
        await self.configure("log_error_verbosity", "default")
        await self._admin(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
        await self._admin(f"CREATE DATABASE {TEMPLATE} OWNER {OWNER}")
        await migrate(self._dsn(TEMPLATE, user=OWNER))
        await _run(self._dsn(TEMPLATE, user=OWNER), WITHOUT_BUILT_IN, (), within_s=60.0)

    async def _admin(self, query: str, *args: object) -> list[Row]:
        return await _run(self._dsn("postgres"), query, args, within_s=60.0)

    def _dsn(self, database: str, *, user: str = "postgres") -> str:
        return self.postmaster.dsn(database).replace("//postgres@", f"//{user}@", 1)


async def _run(dsn: str, query: str, args: Sequence[object], *, within_s: float) -> list[Row]:
    connection: asyncpg.Connection[asyncpg.Record] | None = None
    try:
        async with asyncio.timeout(within_s):
            connection = await asyncpg.connect(dsn, server_settings={"application_name": "chaos"})
            return [dict(row) for row in await connection.fetch(query, *args)]
    except asyncpg.InternalClientError as error:
        # asyncpg raises this when the server goes away in the middle of a message.
        raise ConnectionResetError(f"the server has gone: {error}") from error
    finally:
        if connection is not None:
            connection.terminate()


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])
