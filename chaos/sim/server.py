"""The real Postgres of a worker, as the simulation needs it: its clock, and its lost clients."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from chaos.cluster.postgres import WITHOUT_BUILT_IN
from chaos.collect import read_record
from chaos.observer import SQL as OBSERVER
from chaos.sim.clock import EPOCH_S, Clock
from chaos.sim.sessions import Sessions
from chaos.sim.wire import Wire
from cortex.postgres.embedded import server as embedded
from cortex.postgres.migrate import migrate

Row = dict[str, Any]


class Client(Protocol):
    """A connection, as far as its server ends it."""

    def is_closed(self) -> bool: ...

    def sever(self) -> None: ...

    def drop(self) -> None: ...

    def terminate(self) -> None: ...


TEMPLATE = "sim_template"
DATABASE = "sim"
UNNOTICED_S = 12.0
"""After this long the server gives up clients that acknowledge nothing (keepalives)."""

QUICK = {
    # Nothing here has to survive a power cut.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    # Its effects depend on when it runs.
    "autovacuum": "off",
    # The same few statements again and again.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

CLOSED_WITHIN_S = 5.0
SIMULATED = """
CREATE SCHEMA sim;
GRANT USAGE ON SCHEMA sim TO public;

CREATE OR REPLACE FUNCTION cortex.now() RETURNS timestamptz
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER AS $$
BEGIN
    RETURN pg_catalog.to_timestamp(pg_catalog.pg_read_file('sim.now')::float8);
END $$;
CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT cortex.now()
$$;
CREATE OR REPLACE FUNCTION cortex.serving_since() RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT pg_catalog.to_timestamp(pg_catalog.pg_read_file('sim.start')::float8)
$$;

CREATE SEQUENCE sim.chance;
GRANT USAGE ON SEQUENCE sim.chance TO public;
CREATE FUNCTION sim.gen_random_uuid() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT pg_catalog.md5(pg_catalog.nextval('sim.chance')::text)::uuid
$$;
CREATE OR REPLACE FUNCTION cortex.uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT sim.gen_random_uuid()
$$;
"""
"""Time and randomness inside the server; its clock and its start are files beside its data."""


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Run a server in a folder; its DSN leads to a template with the current schema."""
    with embedded.acquire(folder / "postgres") as server, closing(Wire()) as wire:
        dsn = _in(server.dsn, TEMPLATE)
        wire(lambda: _make_template(server.dsn, dsn))
        yield dsn


async def _make_template(dsn: str, template_dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for name, value in QUICK.items():
            await connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute(f"CREATE DATABASE {TEMPLATE}")
        await migrate(template_dsn)
    finally:
        await connection.close(timeout=CLOSED_WITHIN_S)  # noqa: ASYNC102 -- bounded
    template = await asyncpg.connect(template_dsn)
    try:
        await template.execute(WITHOUT_BUILT_IN)
        await template.execute(SIMULATED)
        # The observer's notes must be ordered with those of the record.
        await template.execute(OBSERVER.replace("clock_timestamp()", "cortex.now()"))
    finally:
        await template.close(timeout=CLOSED_WITHIN_S)  # noqa: ASYNC102 -- bounded


def _in(dsn: str, database: str) -> str:
    address, question, options = dsn.partition("?")
    return f"{address.rpartition('/')[0]}/{database}{question}{options}"


class Server:
    """One database of one seed, and its sessions."""

    def __init__(self, template_dsn: str, *, clock: Clock, wire: Wire) -> None:
        self._template_dsn = template_dsn
        self.dsn = _in(template_dsn, DATABASE)
        self._clock = clock
        self.wire = wire
        self.lending = Sessions(wire, self.dsn)
        self._session: asyncpg.Connection[asyncpg.Record]
        self._folder = ""
        self._clock_file = -1
        self._written_s = -1.0
        self.started_s = 0.0
        """When it was started, on the simulated clock."""
        self.ahead_s = 0.0
        """How far its clock is ahead of all others."""
        self.is_down = False
        self.connections: list[Client] = []
        """All that were opened, in order; some are closed by now."""
        self._left: list[tuple[float, Client]] = []

    def open(self) -> None:
        """Create the database again."""

        async def make() -> str:
            root = await asyncpg.connect(_in(self._template_dsn, "postgres"))
            try:
                await root.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
                await root.execute(
                    f"CREATE DATABASE {DATABASE} TEMPLATE {TEMPLATE} STRATEGY file_copy"
                )
                return str(await root.fetchval("SHOW data_directory"))
            finally:
                await root.close(timeout=CLOSED_WITHIN_S)  # noqa: ASYNC102 -- bounded

        folder = self.wire(make)
        self._folder = folder
        self._clock_file = os.open(Path(folder, "sim.now"), os.O_CREAT | os.O_RDWR, 0o644)
        self.set_clock()
        self._set_start(-3600.0)

        async def connect() -> Any:
            return await asyncpg.connect(self.dsn)

        self._session = self.wire(connect)
        self.version = self._session.get_server_version()

    def close(self) -> None:
        os.close(self._clock_file)
        self.lending.close()
        self.wire(self._session.close)

    def sql(self, query: str, *args: object) -> list[Row]:
        """Query from outside, at this very instant."""

        async def look() -> list[Row]:
            return [dict(row) for row in await self._session.fetch(query, *args)]

        return self.wire.talk(self._session, look)

    def record(self) -> dict[str, tuple[Row, ...]]:
        """Everything that the database holds, as evidence."""
        return self.wire(lambda: read_record(self.dsn))

    def set_clock(self) -> None:
        """Set the server's clock to the simulated one."""
        unix_s = self._clock.unix_s + self.ahead_s
        if unix_s != self._written_s:
            os.pwrite(self._clock_file, f"{unix_s:.6f}".encode(), 0)
            self._written_s = unix_s

    def _set_start(self, at_s: float) -> None:
        self.started_s = at_s
        unix_s = EPOCH_S + at_s + self.ahead_s
        Path(self._folder, "sim.start").write_text(f"{unix_s:.6f}")

    def go_down(self) -> None:
        """End all sessions, and accept no new ones."""
        self.is_down = True
        self.notice(all_=True)
        for connection in self.connections:
            connection.sever()
        self.connections.clear()

    def come_back(self) -> None:
        """Accept sessions again."""
        self.is_down = False
        self._set_start(self._clock.now)

    # --- sessions that end

    def leave(self, connection: Client) -> None:
        """A session's client has given it up, and cannot report that."""
        self._left.append((self._clock.now + UNNOTICED_S, connection))

    def notice(self, *, all_: bool = False) -> None:
        """Give up clients that are silent for too long, or all that have gone."""
        now = self._clock.now
        gone = [each for at, each in self._left if all_ or at <= now]
        self._left = [(at, each) for at, each in self._left if not (all_ or at <= now)]
        for connection in gone:
            connection.drop()
