"""A Postgres that a test lets run out of disk, of room for its log, and of connections."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
from attrs import frozen

from cortex.postgres.embedded.server import DATABASE
from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import migrate, run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.small_disk import SmallDisk, small_disk

T = TypeVar("T")

DATA_MB = 40  # a database with the schema takes 12
LOG_MB = 112  # some segments of 16 MB each
CONNECTIONS_MAX = 30
ASK_AGAIN_S = 0.1

POOL_SESSIONS = """
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
    WHERE a.application_name LIKE 'cortex%' AND a.query NOT LIKE 'LISTEN%'
      AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')
"""


@frozen
class ShortServer:
    """One whose tables and whose log have small disks of their own."""

    server: PrivatePostgres
    data: SmallDisk
    log: SmallDisk

    def write_log_until_down(self) -> None:
        """Have it write its log until it has gone down, since the disk for that is full."""
        dsn = self.server.dsn
        eventually(lambda: run_asyncio(lambda: self._has_died(dsn)), what="it is down")

    async def _has_died(self, dsn: str) -> bool:
        try:
            connection = await asyncpg.connect(dsn)
            for _ in range(100):
                await connection.execute("SELECT txid_current(); SELECT pg_switch_wal()")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return self.server.cluster.is_dead()
        return False


class Crowd:
    """Takes all connections that a server has left, and those that become free."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crowd")
        self._taken: list[asyncpg.Connection[asyncpg.Record]] = []
        self.is_full = threading.Event()

    def sql(self, query: str) -> list[asyncpg.Record]:
        """Run a statement on a connection that it holds: no other client gets one."""
        return self._call(self._taken[0].fetch(query))

    def open(self) -> None:
        self._thread.start()
        self._taken.append(self._call(asyncpg.connect(self._dsn)))
        self._pushing = asyncio.run_coroutine_threadsafe(self._push(), self._loop)
        assert self.is_full.wait(WITHIN_S)

    def close(self) -> None:
        self._pushing.cancel()
        self._call(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _push(self) -> None:
        while True:
            try:
                self._taken.append(await asyncpg.connect(self._dsn))
            except asyncpg.TooManyConnectionsError:
                self.is_full.set()
                await asyncio.sleep(ASK_AGAIN_S)

    async def _leave(self) -> None:
        await asyncio.gather(*(each.close() for each in self._taken), return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@contextmanager
def crowded(server: PrivatePostgres) -> Iterator[Crowd]:
    """Let a server have no connection left while the block lasts."""
    crowd = Crowd(server.dsn)
    crowd.open()
    try:
        yield crowd
    finally:
        crowd.close()


@contextmanager
def short_server(home: Path, bindir: Path) -> Iterator[ShortServer]:
    """Run one on complete, stopped data; skips the test where no disk can be mounted."""
    server = PrivatePostgres(home, bindir=bindir)
    owner = server.cluster.account.uid
    with (
        small_disk(home / "small-data", megabytes=DATA_MB, user=owner) as data,
        small_disk(home / "small-log", megabytes=LOG_MB, user=owner) as log,
    ):
        _move(server.cluster.pgdata / "pg_wal", log.folder / "pg_wal")
        tables = data.folder / "tables"
        tables.mkdir(mode=0o700)
        os.chown(tables, owner, server.cluster.account.gid)
        with (server.cluster.pgdata / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"max_connections = {CONNECTIONS_MAX}\nmin_wal_size = '32MB'\n")
        server.start()
        migrate(server.dsn)
        other = server.postmaster.dsn("postgres")
        sql(other, f"CREATE TABLESPACE small LOCATION '{tables}'")
        sql(other, f"ALTER DATABASE {DATABASE} SET TABLESPACE small")
        yield ShortServer(server, data, log)
        server.cluster.stop()


def _move(folder: Path, place: Path) -> None:
    """Move a folder to another disk, and leave a link to it where it was."""
    subprocess.run(["cp", "-a", str(folder), str(place)], check=True)
    subprocess.run(["rm", "-r", str(folder)], check=True)
    folder.symlink_to(place)
