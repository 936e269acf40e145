"""The border between trio and asyncio.

Trio code calls a store method through a `Port`: one crossing per method. From the moment when it
may send something, the method runs under a shield, so that a commit is never reported as cancelled.
A call that still waits for a connection is given up when cancelled. The watchdogs of
`cortex.postgres.database` bound the method itself, so a black hole costs its bound and no more.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import structlog
import trio

from cortex.postgres import asyncio_names  # noqa: F401 -- before trio_asyncio

# isort: split
import trio_asyncio

from cortex.crash_points import is_armed, pass_between
from cortex.domain.errors import UnavailableError
from cortex.postgres.database import Database, Profile, on_sending, open_database
from cortex.postgres.dedicated import Dedicated
from cortex.postgres.island import open_island

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Island(Protocol):
    """Where asyncio runs beside trio; `cortex.postgres.island.AsyncioIsland` is one."""

    async def run_aio_coroutine(self, coroutine: Awaitable[T]) -> T:
        """Run a coroutine to its end, from trio; raises what it raises."""
        ...


class Watch(Protocol):
    """Gets a notice of each call by a port: when it is sent, and how it ended."""

    def sent(self) -> None:
        """One more call waits for its answer."""
        ...

    def ended(self, method: object, error: UnavailableError | None) -> None:
        """A call has ended; `error`: Postgres did not answer it, or may not have."""
        ...

    def given_up(self) -> None:
        """A call was given up and never sent."""
        ...


class Port:
    """Store methods for trio code: `await port(jobs.cancel, job_id, by="ana", reason="…")`.

    Raises what the method raises. A call that is cancelled before anything of it was sent is given
    up and leaves nothing behind. Later, cancellation takes effect after the method has ended, never
    during it: its outcome is known.
    """

    def __init__(self, island: Island, db: Database, profile: Profile) -> None:
        self._island = island
        self._db = db
        self._profile = profile
        self.watch: Watch | None = None

    @property
    def is_pooled(self) -> bool:
        """A pooler is between here and Postgres: no session lock, no notifications."""
        return bool(self._profile.is_pooled)

    async def __call__(
        self,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method on the pool."""
        until_sent = trio.CancelScope()
        begin: Callable[[], object] = partial(setattr, until_sent, "shield", True)  # noqa: FBT003
        if is_armed():
            begin = pass_between(_operation(method), begin)
        token = on_sending.set(begin)
        try:
            return await self._watched(
                until_sent, method, partial(method, self._db, *args, **kwargs)
            )
        finally:
            on_sending.reset(token)

    async def cross(
        self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run any asyncio coroutine function of the store, always to its end."""
        shield = trio.CancelScope(shield=True)
        return await self._watched(shield, method, partial(method, *args, **kwargs))

    async def open(self, session: Dedicated) -> None:
        """Open a dedicated connection; gives it up if cancelled. Raises as `Dedicated.open`."""
        await self._watched(trio.CancelScope(), session.open, session.open)

    async def close(self, session: Dedicated) -> None:
        """Close a dedicated connection within a second; reports nothing about the database."""
        with trio.CancelScope(shield=True):
            await self._island.run_aio_coroutine(session.close())

    async def _watched(
        self, scope: trio.CancelScope, method: object, call: Callable[[], Awaitable[T]]
    ) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        watch = self.watch or _UNWATCHED
        watch.sent()
        try:
            with scope:
                result: T = await self._island.run_aio_coroutine(call())
        except UnavailableError as error:
            watch.ended(method, error)
            raise
        except trio.Cancelled:
            watch.given_up()
            raise
        except BaseException:
            watch.ended(method, None)
            raise
        watch.ended(method, None)
        return result

    def dedicated(self, *, on_lost: Callable[[], None]) -> Dedicated:
        """Make a dedicated connection, not opened yet."""
        return Dedicated(self._profile, on_lost=on_lost)


def _operation(method: Callable[..., object]) -> str:
    return f"{method.__module__.rpartition('.')[2]}.{method.__qualname__}"


class _Unwatched:
    """Ignores all notices."""

    def sent(self) -> None: ...
    def ended(self, method: object, error: UnavailableError | None) -> None: ...
    def given_up(self) -> None: ...


_UNWATCHED: Final = _Unwatched()


class OpensPort(Protocol):
    """Opens a port for as long as the block lasts; `open_port` is one."""

    def __call__(
        self, profile: Profile, *, rng: random.Random
    ) -> AbstractAsyncContextManager[Port]: ...


LANE_WAIT_S: Final = 5.0


class Lane(Port):
    """A port for callers that must leave connections to others: bounds their concurrent calls.

    A call that gets no turn within `LANE_WAIT_S` raises `UnavailableError`; it was not started.
    """

    def __init__(self, port: Port, *, calls_max: int) -> None:
        super().__init__(port._island, port._db, port._profile)  # noqa: SLF001 -- its own module
        self._port = port  # whose watch gets the notices
        self._turns = trio.Semaphore(calls_max)

    async def __call__(
        self,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method on the pool when its turn comes."""
        async with self._turn():
            return await self._port(method, *args, **kwargs)

    async def cross(
        self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run any asyncio coroutine function of the store when its turn comes."""
        async with self._turn():
            return await self._port.cross(method, *args, **kwargs)

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        with trio.move_on_after(LANE_WAIT_S) as patience:
            await self._turns.acquire()
        if patience.cancelled_caught:
            raise UnavailableError(
                "too many ask the database at once", hint="try again in a moment"
            )
        try:
            yield
        finally:
            self._turns.release()


@asynccontextmanager
async def open_port(profile: Profile, *, rng: random.Random) -> AsyncGenerator[Port, None]:
    """Open the asyncio island inside trio and a pool in it; both are closed on leaving.

    Raises what connecting raises, in an exception group as a nursery does: an unreachable or
    unmigrated database shows here.
    """
    async with open_island() as island:
        island.loop.set_exception_handler(_note)
        db = await island.run_aio_coroutine(open_database(profile, rng=rng))
        port = Port(island, db, db.profile)
        try:
            yield port
        finally:
            with trio.move_on_after(2.0, shield=True):
                await island.run_aio_coroutine(db.close())


def leave_island() -> None:
    """Hide the asyncio loop from this trio task, and from tasks below it, from now on.

    They would find the pool's loop, and nothing would end what they start there.
    """
    trio_asyncio.current_loop.set(None)


def _note(_loop: object, context: dict[str, Any]) -> None:
    _log.warning(
        "asyncio reported trouble",
        message=context.get("message"),
        error=repr(context.get("exception")),
    )
