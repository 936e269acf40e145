"""Connections that tests keep: they come back as they went, and a new one replaces an ended one."""

import asyncio

import asyncpg
import pytest

from tests.support.servers.postgres import sql


async def _end_sessions(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()


def test_ended_session_is_replaced(database: str) -> None:
    sql(database, "SELECT 1")
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_end_sessions(database))
    assert sql(database, "SELECT 1 AS n")[0]["n"] == 1


def test_returned_connection_keeps_no_settings_or_locks(database: str) -> None:
    sql(database, "SELECT set_config('application_name', 'left', false)")
    sql(database, "SELECT pg_advisory_lock(7)")
    with pytest.raises(asyncpg.DivisionByZeroError):
        sql(database, "SELECT 1 / 0")
    query = "SELECT current_setting('application_name') AS name"
    assert sql(database, query)[0]["name"] != "left"
    held = """
        SELECT count(*) AS n FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND locktype = 'advisory' AND objid = 7
    """
    assert sql(database, held)[0]["n"] == 0
