"""Plain asyncio sessions for the command line: connect, work, close, without trio."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from cortex.domain.clock import system_chance
from cortex.store.database import Database, Profile, open_database

P = ParamSpec("P")
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


class Session:
    """An open database for code without an event loop: `session(jobs.show, job_id)`.

    Raises what the method raises; Ctrl-C during a call cuts its connection and raises
    `KeyboardInterrupt`.
    """

    def __init__(self, runner: asyncio.Runner, db: Database) -> None:
        self._runner = runner
        self._db = db

    def __call__(
        self,
        method: Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method to its end."""
        return self._runner.run(method(self._db, *args, **kwargs))

    def pause(self, seconds: float) -> None:
        """Let some time pass; Ctrl-C ends it."""
        # Not in the loop: a task that Ctrl-C ends before it began complains that it never ran.
        threading.Event().wait(seconds)


@contextmanager
def open_session(profile: Profile) -> Iterator[Session]:
    """Keep a database open for several calls. Raises `CortexError`s."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        db = runner.run(open_database(profile, rng=system_chance().rng))
        try:
            yield Session(runner, db)
        finally:
            runner.run(db.close())
