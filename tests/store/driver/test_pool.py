"""Choice of the connection that a call gets from the pool."""

import asyncio
from typing import Any

from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run


def test_the_first_session_is_preferred_however_calls_overlap(database: str) -> None:
    """It has prepared the statements: on another one, the same call takes several times as long."""

    async def pid_of(connection: Any) -> int:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))

    async def work(db: Database) -> None:

        first = await db.transact(pid_of)
        began, may_end = asyncio.Event(), asyncio.Event()

        async def hold(connection: Any) -> int:
            pid = await pid_of(connection)
            if pid != first:
                began.set()
                await may_end.wait()
            return pid

        async def overlap() -> int:
            """Take the first session and give it back while a second one is in use."""
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(db.transact(hold)) for _ in range(2)]
                await began.wait()
                await calls[0]
                may_end.set()
            return calls[1].result()

        assert await overlap() != first
        assert await db.transact(pid_of) == first

    run(Profile(dsn=database), work)
