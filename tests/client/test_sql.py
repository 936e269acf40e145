"""Statements of `client.sql` run in the caller's transaction, with any driver, in one form."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from cortex import SyncClient
from cortex.client.statements import Statement
from cortex.domain.errors import InvalidValueError, UsageError
from tests.support.apps.client_app import digest
from tests.support.records.rows import job_row
from tests.support.servers.postgres import run_asyncio, sql

STRANGE = "'; DROP TABLE x; -- %s %(a)s :name $1 {0} \\ \" ä \U0001f600 \n"

Execute = Callable[[str, Any], Any]


@contextmanager
def with_psycopg(dsn: str) -> Iterator[Execute]:
    with psycopg.connect(plain(dsn)) as connection:
        yield lambda text, args: value(connection.execute(text, args).fetchone())


@contextmanager
def with_sqlalchemy(dsn: str) -> Iterator[Execute]:
    with engine(dsn).begin() as connection:
        yield lambda text, args: connection.execute(sqlalchemy.text(text), args).scalar_one()


@contextmanager
def with_raw_sqlalchemy(dsn: str) -> Iterator[Execute]:
    with engine(dsn).begin() as connection:
        yield lambda text, args: connection.exec_driver_sql(text, args).scalar_one()


DRIVERS = [with_psycopg, with_sqlalchemy, with_raw_sqlalchemy]


def plain(dsn: str) -> str:
    """The address without what only asyncpg understands."""
    return dsn.partition("&sslmode")[0]


def engine(dsn: str) -> sqlalchemy.Engine:
    connect = lambda: psycopg.connect(plain(dsn))  # noqa: E731
    return sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.NullPool
    )


def value(row: Any) -> Any:
    return row[0]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_statement_submits_when_its_transaction_commits(
    web: str, database: str, shared: SyncClient, driver: Callable[[str], Any]
) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 6789, tzinfo=UTC)
    text, args = shared.sql.submit(
        digest, urls=[STRANGE], queue=STRANGE, tags=[STRANGE, "a"], run_at=at, priority=-1
    )
    with pytest.raises(ZeroDivisionError), driver(web) as execute:
        1 / (execute(text, args) and 0)
    assert sql(database, "SELECT FROM cortex.job") == []
    with driver(web) as execute:
        job_id = execute(text, args)
    row = job_row(database, job_id)
    assert json.loads(row["payload"]) == {"urls": [STRANGE]}
    assert (row["queue_name"], row["run_at"], row["priority"]) == (STRANGE, at, -1)
    assert row["tags"] == sorted([STRANGE, "a"])
    assert shared.handle(job_id, digest).id == job_id


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_statement_for_many_keeps_their_order(
    web: str, database: str, shared: SyncClient, driver: Callable[[str], Any]
) -> None:
    given = [{"urls": [f"{n}{STRANGE}"]} for n in range(20)]
    with driver(web) as execute:
        ids = execute(*shared.sql.submit_many(digest, given, delay=60, tags=["a"], tenant="x"))
        assert execute(*shared.sql.submit_many(digest, [])) in ([], None)
    query = "SELECT id, payload, tenant, tags FROM cortex.job ORDER BY worker_job_id"
    rows = sql(database, query)
    assert [row["id"] for row in rows] == ids
    assert [json.loads(row["payload"]) for row in rows] == given
    assert {(row["tenant"], *row["tags"]) for row in rows} == {("x", "a")}


def test_a_statement_runs_in_asyncpg_by_itself_and_prepared(
    web: str, database: str, shared: SyncClient
) -> None:
    async def run(statement: Statement, *, is_kept: bool) -> Any:
        connection = await asyncpg.connect(web)
        try:
            async with connection.transaction():
                found = await connection.fetchval(statement.sql, *statement.args)
                if not is_kept:
                    raise ZeroDivisionError
                return found
        finally:
            await connection.close()  # noqa: ASYNC102 -- it ends with the test

    statement = shared.sql.submit(digest, urls=[], key="order-8812", delay=0.5)
    with pytest.raises(ZeroDivisionError):
        run_asyncio(lambda: run(statement, is_kept=False))
    job_id = run_asyncio(lambda: run(statement, is_kept=True))
    again = shared.sql.submit(digest, urls=[], key="order-8812")
    assert run_asyncio(lambda: run(again, is_kept=True)) == job_id
    assert len(sql(database, "SELECT FROM cortex.job")) == 1


def test_arguments_are_checked_before_there_is_a_statement(shared: SyncClient) -> None:
    with pytest.raises(InvalidValueError, match="lacks urls"):
        shared.sql.submit(digest, url="x")
    with pytest.raises(InvalidValueError, match=r"payload\.urls"):
        shared.sql.submit_many(digest, [{"urls": 3}])
    with pytest.raises(UsageError, match="has no option 'by'"):
        shared.sql.submit_many(digest, [{"urls": []}], by="ana")
    with pytest.raises(UsageError, match="job_key"):
        shared.sql.submit(digest, urls=[], job_key="\ud800")
    with pytest.raises(UsageError, match="queue 'bulk'"):
        shared.sql.submit(digest, urls=[], queue="bulk")
    assert shared.sql.submit("digest", anything=1).args == {}
