"""Plain asyncio sessions for the command line: connect, work, close, without trio."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs

from cortex.domain.clock import system_chance
from cortex.postgres.database import READER_ROLE, Database, Profile, open_database
from cortex.postgres.dedicated import Dedicated

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
    """Run one coroutine of the store in its own loop, in this thread."""
    with _loop() as call:
        return call(work)


class Session:
    """An open database for code without an event loop: `session(jobs.show, job_id)`.

    Raises what the method raises; Ctrl-C during a call cuts its connection and raises
    `KeyboardInterrupt`.
    """

    def __init__(self, loop: "_Loop", db: Database) -> None:
        self._loop = loop
        self._db = db

    def __call__(
        self,
        method: Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method to its end."""
        return self._loop(lambda: method(self._db, *args, **kwargs))

    def pause(self, seconds: float) -> None:
        """Let some time pass; Ctrl-C ends it."""
        threading.Event().wait(seconds)


@contextmanager
def open_session(profile: Profile) -> Iterator[Session]:
    """Keep a database open for several calls. Raises `CortexError`s."""
    with _loop() as call:
        db = call(lambda: open_database(profile, rng=system_chance().rng))
        try:
            yield Session(call, db)
        finally:
            call(db.close)


class _Loop:
    """Runs coroutines one after another; Ctrl-C cancels the running one.

    `Runner` has its own handler, but only while it runs: Ctrl-C between the creation of a coroutine
    and its first step leaves one behind that warns that it was never awaited.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._task: asyncio.Task[Any] | None = None
        self._is_calling = False
        self._is_interrupted = False

    def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._is_interrupted = False
        self._is_calling = True
        try:
            return self._runner.run(self._begin(work))
        finally:
            self._is_calling = False
            if self._is_interrupted:  # whatever the result: the person wants out
                raise KeyboardInterrupt from None

    async def _begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._task = asyncio.current_task()
        try:
            if self._is_interrupted:
                raise asyncio.CancelledError
            return await work()
        finally:
            self._task = None

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGINT: between calls as Python does, in a call by cancelling it."""
        if not self._is_calling:
            raise KeyboardInterrupt
        self._is_interrupted = True
        if self._task is not None:
            self._runner.get_loop().call_soon_threadsafe(self._task.cancel)


@contextmanager
def _loop() -> Iterator[_Loop]:
    # Not asyncio.run: importing trio_asyncio changes what asyncio.new_event_loop makes.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        loop = _Loop(runner)
        if not _is_ours_to_handle():
            yield loop
            return
        signal.signal(signal.SIGINT, loop.interrupt)
        try:
            yield loop
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_ours_to_handle() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- Read-only connections: the database itself refuses changes.


async def read_only_profile(profile: Profile) -> Profile:
    """Return a profile whose sessions change nothing as long as their settings stay.

    It uses the reader's role if this login may take it; otherwise the profile's own role, with
    sessions set to read only. Connects once to find out; raises `CortexError`s.
    """
    session = Dedicated(attrs.evolve(profile, role=None), on_lost=lambda: None)
    try:
        await session.open()
        is_reader = bool(await session.fetch("sessions.may_look_as", READER_ROLE))
        await session.close()
    finally:
        session.cut()
    if is_reader:
        return attrs.evolve(profile, role=READER_ROLE)
    return attrs.evolve(profile, is_read_only=True)
