"""Statements and transactions that the server ends because they took too long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cortex.domain.errors import OutcomeUnknownError, UnavailableError
from cortex.postgres.database import Database, Profile
from tests.store.driver.test_database import on_database


async def time_out(connection: Any) -> None:
    for limit in ("0", "100ms"):  # one that runs is not set again
        await connection.fetch("SELECT set_config('transaction_timeout', $1, true)", limit)
    await connection.fetch("SELECT pg_sleep(5)")


async def idle_out(connection: Any) -> None:
    name = "idle_in_transaction_session_timeout"
    await connection.fetch("SELECT set_config($1, '100ms', true)", name)
    closed = asyncio.Event()
    connection.add_termination_listener(lambda _: closed.set())
    await closed.wait()
    await connection.fetch("SELECT 1")


@pytest.mark.parametrize(
    "state, work", [("25P04", time_out), ("25P03", idle_out)], ids=["25P04", "25P03"]
)
def test_transaction_ended_by_the_server_loses_its_session_uncommitted(
    database: str, state: str, work: Callable[[Any], Awaitable[None]]
) -> None:
    async def ended(db: Database) -> None:
        with pytest.raises(UnavailableError) as caught:
            await db.transact(work)
        if state == "25P04":  # the other one's message may have been lost
            assert "took too long" in caught.value.message
            assert not isinstance(caught.value, OutcomeUnknownError)
        assert await db.fetch("sessions.is_own")

    on_database(Profile(dsn=database, connections_max=1, role=None), ended)


def test_a_statement_that_took_too_long_is_not_repeated_at_once(database: str) -> None:
    async def ended(db: Database) -> None:
        runs = 0

        async def slow(connection: Any) -> None:
            nonlocal runs
            runs += 1
            await connection.execute("SET LOCAL statement_timeout = '20ms'")
            await connection.execute("SELECT pg_sleep(5)")

        with pytest.raises(UnavailableError, match="statement timeout"):
            await db.transact(slow)
        assert runs == 1

    on_database(Profile(dsn=database, connections_max=1, role=None), ended)
