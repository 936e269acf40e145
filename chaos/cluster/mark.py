"""The mark of a database that chaos made. Code that breaks or judges a database checks it first."""

from uuid import UUID

import asyncpg

COMMENT = "made by python -m chaos for run "
TABLE = "chaos_mark"
CONNECT_WITHIN_S = 10.0


class UnmarkedError(Exception):
    """Chaos did not make this database, and leaves it alone."""


async def mark(dsn: str, *, run: UUID) -> None:
    """Mark a database that was just made."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_WITHIN_S)
    try:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"COMMENT ON DATABASE \"{name}\" IS '{COMMENT}{run}'")
        await connection.execute(f"CREATE TABLE public.{TABLE} (run uuid PRIMARY KEY)")
        await connection.execute(f"INSERT INTO public.{TABLE} VALUES ($1)", run)
    finally:
        connection.terminate()


async def refuse_unmarked(dsn: str) -> None:
    """Raise `UnmarkedError` unless the comment and the row exist and name the same run."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_WITHIN_S)
    try:
        await check_mark(connection)
    finally:
        connection.terminate()


async def check_mark(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Do the same on an open connection."""
    row = await connection.fetchrow("""
        SELECT current_database() AS name, shobj_description(oid, 'pg_database') AS comment
        FROM pg_database WHERE datname = current_database()
    """)
    if row is None:
        raise AssertionError("a session is in a database")
    try:
        run = await connection.fetchval(f"SELECT run FROM public.{TABLE}")
    except asyncpg.UndefinedTableError:
        run = None
    if run is None or row["comment"] != f"{COMMENT}{run}":
        raise UnmarkedError(f"database {row['name']!r} was not made by python -m chaos")
