"""Plain asyncio sessions for the command line: connect, work, close, without trio."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from cortex.domain.clock import system_chance
from cortex.store.database import Database, Profile, open_database

T = TypeVar("T")


def run(profile: Profile, work: Callable[[Database], Awaitable[T]]) -> T:
    """Open a database, run `work` on it, close it. Raises `CortexError`s."""

    async def main() -> T:
        db = await open_database(profile, rng=system_chance().rng)
        try:
            return await work(db)
        finally:
            await db.close()

    return run_alone(main)


def run_alone(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run one coroutine of the store in a loop of its own, in this thread."""
    # Not asyncio.run: importing trio_asyncio changes what asyncio.new_event_loop makes.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(work())
