"""Throwaway databases for measurements, next to the user's own on the same server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg

from cortex.postgres.database import Database, Profile
from cortex.postgres.errors import of_statement
from cortex.postgres.migrate import migrate
from cortex.postgres.queries import sql
from cortex.postgres.session import run_alone


@contextmanager
def scratch_database(dsn: str, name: str) -> Iterator[str]:
    """Yield the address of a new, migrated database; drop it afterwards.

    Raises what connecting and creating raise: the role needs the right to create databases.
    """
    scratch = urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
    run_alone(lambda: _execute(dsn, "scratch.drop", name))
    run_alone(lambda: _execute(dsn, "scratch.create", name))
    try:
        run_alone(lambda: migrate(scratch))
        yield scratch
    finally:
        run_alone(lambda: _execute(dsn, "scratch.drop", name))


async def _execute(dsn: str, query: str, name: str) -> None:
    connection = await Profile(dsn=dsn, role=None, bound_s=60).connect()
    try:
        await connection.execute(sql("scratch.patience"))
        statement = await connection.fetchval(sql(query), name)
        await connection.execute(statement)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise of_statement(error) from error
    finally:
        connection.terminate()


async def settle(dsn: str) -> None:
    """Vacuum and analyse, so that no autovacuum disturbs the measurement."""
    await _vacuum(dsn, "scratch.settle")


async def settle_queue(dsn: str) -> None:
    """Vacuum the table of tasks, so that both sides of a comparison read as many dead rows."""
    await _vacuum(dsn, "scratch.settle_queue")


async def _vacuum(dsn: str, query: str) -> None:
    connection = await Profile(dsn=dsn, role=None, bound_s=600).connect()
    try:
        await connection.execute(sql("scratch.patience"))
        await connection.execute(sql(query))
    finally:
        connection.terminate()


async def backend(db: Database) -> tuple[int, str]:
    """Return the process that serves this session, and the name of its database."""
    (row,) = await db.fetch("scratch.backend")
    return row["pid"], row["database"]


async def wal_position(db: Database) -> int:
    """Return how many bytes the server has written to its log since it was made."""
    (row,) = await db.fetch("scratch.wal_position")
    return int(row["bytes"])


async def done(db: Database, job_type: str) -> tuple[int, datetime | None, datetime | None]:
    """Return how many jobs of a type have completed, the first start and the last end."""
    row = await db.fetch_one("scratch.done", job_type)
    if row is None:
        raise AssertionError("an aggregate always returns one row")
    return row["count"], row["began"], row["ended"]


async def step_spans(db: Database, job_id: UUID, count: int) -> tuple[float, float]:
    """Return the mean seconds a step took among a job's first and among its last `count`."""
    row = await db.fetch_one("scratch.step_spans", job_id, count)
    if row is None:
        raise AssertionError("an aggregate always returns one row")
    return row["first_s"], row["last_s"]


async def running_by_pod(db: Database) -> dict[str, int]:
    """Return how many jobs run in each pod."""
    return {row["name"]: row["count"] for row in await db.fetch("scratch.running_by_pod")}


async def running_elsewhere(db: Database, lost_pod: str) -> int:
    """Return how many jobs run in other pods than this one."""
    row = await db.fetch_one("scratch.running_elsewhere", lost_pod)
    return row["count"] if row else 0


async def pause(seconds: float) -> None:
    """Wait between two polls of a measurement."""
    await asyncio.sleep(seconds)


async def job_durations(db: Database, job_ids: list[UUID]) -> list[float]:
    """Return the seconds from submission to end of those of these jobs that have completed."""
    rows = await db.fetch("scratch.job_durations", job_ids)
    return [row["seconds"] for row in rows]


async def model_durations(db: Database, job_ids: list[UUID]) -> list[float]:
    """Return the seconds that each recorded model call of these jobs took."""
    rows = await db.fetch("scratch.model_durations", job_ids)
    return [row["seconds"] for row in rows]
