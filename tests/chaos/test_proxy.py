"""The proxy in front of Postgres: the effect of each network fault on both ends."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from chaos.cluster.proxy import ProxyLine
from chaos.cluster.wire import Message, Statements
from cortex.postgres import queries
from tests.support.eventually import asyncio_turn, eventually_asyncio
from tests.support.servers.postgres import database_of, run_asyncio, sql

BOUND_S = 20.0
SHORT_S = 0.3
"""How long nothing may happen."""

Test = Callable[[ProxyLine, "asyncpg.Connection[asyncpg.Record]"], Awaitable[None]]


@asynccontextmanager
async def open_line(dsn: str) -> AsyncIterator[ProxyLine]:
    place = parse_qs(urlsplit(dsn).query)
    path = Path(place["host"][0], f".s.PGSQL.{place['port'][0]}")
    line = ProxyLine("test", path, database=database_of(dsn))
    await line.listen()
    try:
        yield line
    finally:
        line.close()
        await asyncio_turn()


def through_a_line(dsn: str, test: Test) -> None:
    """Run a test with a line and a connection through it that has a table and knows a write."""

    async def run() -> None:
        async with asyncio.timeout(BOUND_S), open_line(dsn) as line:
            connection = await asyncpg.connect(line.dsn)
            await connection.execute("CREATE TABLE written (n int)")
            await write(connection, 0)
            await test(line, connection)
            connection.terminate()

    run_asyncio(run)


async def write(connection: "asyncpg.Connection[asyncpg.Record]", n: int) -> None:
    await connection.execute("INSERT INTO written VALUES ($1)", n)


async def write_in_transaction(connection: "asyncpg.Connection[asyncpg.Record]", n: int) -> None:
    async with connection.transaction():
        await write(connection, n)
        assert await connection.fetchval("SELECT $1::int", n) == n, "nothing is committed by then"


def written(dsn: str) -> list[int]:
    return [row["n"] for row in sql(dsn, "SELECT n FROM written ORDER BY n")]


async def comes_late(answer: "asyncio.Task[object]") -> None:
    """See that nothing comes for a while."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(answer), SHORT_S)


def test_proxy_passes_large_data_unchanged(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        text = "x" * 3_000_000
        assert await connection.fetchval("SELECT $1 || $1", text) == text + text
        assert line.connection_count == 1

    through_a_line(empty_database, test)


@pytest.mark.parametrize("up", [True, False])
def test_black_hole_delays_data_and_loses_none(empty_database: str, *, up: bool) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        line.blackhole(up=up, down=not up)
        answer = asyncio.ensure_future(write(connection, 1))
        await comes_late(answer)
        assert written(empty_database) == ([0] if up else [0, 1])
        await line.heal()
        await answer
        assert written(empty_database) == [0, 1]

    through_a_line(empty_database, test)


def test_black_hole_hides_a_closed_client(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        pid = connection.get_server_pid()
        alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"
        line.blackhole()
        connection.terminate()
        await asyncio_turn()
        assert sql(empty_database, alive, pid)[0][0] == 1
        await line.heal()
        await eventually_asyncio(
            lambda: sql(empty_database, alive, pid)[0][0] == 0, what="the server has noticed"
        )

    through_a_line(empty_database, test)


def test_a_delay_delays_each_way(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        line.slow(0.2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await write(connection, 1)
        assert loop.time() - began >= 0.4

    through_a_line(empty_database, test)


def test_reset_cuts_connections_and_admits_new_ones(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        line.reset()
        with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
            await write(connection, 1)
        again = await asyncpg.connect(line.dsn)
        await write(again, 2)
        await again.close()
        assert written(empty_database) == [0, 2]

    through_a_line(empty_database, test)


def test_refusing_line_admits_no_client_and_keeps_its_port(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        dsn = line.dsn
        line.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(dsn)
        await line.heal()
        again = await asyncpg.connect(dsn)
        await again.close()
        assert connection.is_closed()

    through_a_line(empty_database, test)


TURNS = range(8)
"""Turns of the loop: within them a connection is accepted, and another one made to the server."""
ASKS_FOR_TLS = struct.pack("!ii", 8, 80877103)
"""A server answers it with one byte."""


@pytest.mark.parametrize("cut", ["refuse", "reset"])
def test_cut_line_closes_clients_that_are_still_connecting(empty_database: str, cut: str) -> None:
    """Whatever a connection has come to when its line is cut, nothing passes, nothing hangs."""

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def comes_to(client: socket.socket) -> bytes:
            try:
                return await loop.sock_recv(client, 1)
            except ConnectionResetError:
                return b""

        for turns in TURNS:
            async with asyncio.timeout(BOUND_S), open_line(empty_database) as line:
                clients = [socket.create_connection(("127.0.0.1", line.port)) for _ in TURNS]
                for client in clients:
                    client.sendall(ASKS_FOR_TLS)
                    client.settimeout(0)
                for _ in range(turns):
                    await asyncio_turn()
                late = [socket.create_connection(("127.0.0.1", line.port)) for _ in TURNS]
                getattr(line, cut)()
                for client in late:
                    client.settimeout(0)
                heard = await asyncio.gather(*map(comes_to, clients + late))
                assert not any(heard), f"after {turns} turns of the loop"
                assert not line.relays
                for client in clients + late:
                    client.close()

    run_asyncio(run)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_lost_reply_is_that_of_a_commit(empty_database: str, *, in_transaction: bool) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        line.lose_replies()
        assert await connection.fetchval("SELECT count(*) FROM written") == 1, "a read is not lost"
        assert line.lost_reply_count == 0
        with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
            await (write_in_transaction if in_transaction else write)(connection, 1)
        assert line.lost_reply_count == 1
        assert written(empty_database) == [0, 1]

    through_a_line(empty_database, test)


def test_a_claim_is_seen_until_it_is_answered() -> None:
    statements = Statements()
    for name, query in ((b"", "tasks.sweep"), (b"c", "tasks.claim")):
        statements.sent(Message(b"P", name + b"\0" + queries.sql(query).encode() + b"\0"))
    for name, is_claim in ((b"", False), (b"c", True)):
        statements.sent(Message(b"B", b"\0" + name + b"\0"))
        assert (statements.is_writing, statements.is_claiming) == (True, is_claim)
        statements.answered(Message(b"Z", b"I"))
        assert not statements.is_claiming


def test_a_write_is_seen_while_it_is_under_way(empty_database: str) -> None:
    async def test(line: ProxyLine, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        assert not line.is_writing
        line.blackhole(up=False, down=True)
        answer = asyncio.ensure_future(write(connection, 1))
        await eventually_asyncio(lambda: line.is_writing, what="a write is under way")
        await line.heal()
        await answer
        assert not line.is_writing

    through_a_line(empty_database, test)
