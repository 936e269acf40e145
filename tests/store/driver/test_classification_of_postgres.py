"""Errors that asyncpg raises against a real Postgres, classified as job code would meet them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from cortex.domain.classification import failure_of
from cortex.domain.failure import FailureClass
from cortex.postgres.errors import of_statement
from tests.support.servers.postgres import run_asyncio

INFRA = FailureClass.TRANSIENT_INFRA
PERMANENT = FailureClass.PERMANENT

Work = Callable[["asyncpg.Connection[asyncpg.Record]"], Awaitable[Any]]


def raised_by(dsn: str, work: Work) -> Exception:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await work(connection)
        finally:
            connection.terminate()

    with pytest.raises(Exception) as caught:  # noqa: PT011 -- each raises its own
        run_asyncio(run)
    return caught.value


async def execute(
    statement: str, connection: "asyncpg.Connection[asyncpg.Record]", *args: object
) -> None:
    await connection.fetch(statement, *args)


async def use_after_close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.close()
    await connection.fetch("SELECT 1")


async def pass_a_bad_argument(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.fetch("SELECT $1::int", "text")


async def take_a_lock(connection: "asyncpg.Connection[asyncpg.Record]", dsn: str) -> None:
    await connection.execute("CREATE TABLE mine (id int)")
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE mine")
            await connection.execute("BEGIN; LOCK TABLE mine NOWAIT")
    finally:
        other.terminate()


STATEMENTS = [
    ("SELECT pg_terminate_backend(pg_backend_pid())", "database_lost", INFRA),
    ("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", "database_busy", INFRA),
    ("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$", "database_busy", INFRA),
    ("DO $$ BEGIN RAISE SQLSTATE '53300'; END $$", "database_full", INFRA),
    ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(9)", "database_busy", INFRA),
    ("SELECT 1/0", "database_refused", PERMANENT),
    ("SELECT 'x'::int", "database_refused", PERMANENT),
    ("SELECT FROM nowhere", "database_refused", PERMANENT),
    ("SELEKT", "database_refused", PERMANENT),
    ("DO $$ BEGIN RAISE unique_violation; END $$", "database_refused", PERMANENT),
    ("DO $$ BEGIN RAISE 'mine'; END $$", "database_refused", PERMANENT),
    ("DO $$ BEGIN RAISE insufficient_privilege; END $$", "database_forbidden", PERMANENT),
    ("DO $$ BEGIN RAISE SQLSTATE '55000'; END $$", "job_failed", INFRA),
]


@pytest.mark.parametrize("statement, code, expected", STATEMENTS)
def test_failed_statements_are_classified(
    database: str, statement: str, code: str, expected: FailureClass
) -> None:
    failure = failure_of(raised_by(database, partial(execute, statement)))
    assert (failure.code, failure.cls) == (code, expected)


@pytest.mark.parametrize(
    "work, code, expected",
    [
        (use_after_close, "database_lost", INFRA),
        (pass_a_bad_argument, "database_refused", PERMANENT),
    ],
    ids=["closed", "argument"],
)
def test_driver_errors_are_classified(
    database: str, work: Work, code: str, expected: FailureClass
) -> None:
    failure = failure_of(raised_by(database, work))
    assert (failure.code, failure.cls) == (code, expected)


def test_lock_held_by_another_session_is_an_infrastructure_failure(database: str) -> None:
    failure = failure_of(raised_by(database, partial(take_a_lock, dsn=database)))
    assert (failure.code, failure.cls) == ("database_busy", INFRA)


@pytest.mark.parametrize(
    "error, output",
    [
        (asyncpg.InternalClientError("cannot switch to state 11"), "in the middle of a message"),
        (asyncpg.InterfaceError("cannot perform operation: x"), "it was closed"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError(), "no answer in time"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_broken_connection_message_hides_driver_jargon(error: Exception, output: str) -> None:
    assert of_statement(error).message == f"the connection to the database broke: {output}"


@pytest.mark.parametrize(
    "error, way_out",
    [
        (asyncpg.DiskFullError("no space left on device"), "make room on the disk of the server"),
        (asyncpg.TooManyConnectionsError("sorry, too many clients"), "raise max_connections"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_server_that_is_short_of_something_has_a_way_out(error: Exception, way_out: str) -> None:
    assert way_out in (of_statement(error).hint or "")
