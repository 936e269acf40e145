"""Store methods called at the same instant, as many pods and people do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cortex.postgres.database import Database, Profile, open_database
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import run_asyncio

T = TypeVar("T")


def at_once(
    dsn: str, *calls: Callable[[Database], Coroutine[Any, Any, T]]
) -> list[T | BaseException]:
    """Make calls at the same instant, each on a connection of its own that is open before."""

    async def run() -> list[T | BaseException]:
        profile = Profile(dsn=dsn, hot_path=True, connections_max=1)
        opened = [await open_database(profile, rng=seeded_random()) for _ in calls]
        try:
            made = (call(db) for call, db in zip(calls, opened, strict=True))
            return await asyncio.gather(*made, return_exceptions=True)
        finally:
            for db in opened:
                await db.close()

    return run_asyncio(run)
