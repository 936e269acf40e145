"""The one border between trio and asyncio.

A store method is called from trio through a `Port`: one crossing per method. From the moment when
it may send something it runs under a shield, so that a commit is never reported as cancelled; one
that still waits for a connection then is given up. The method itself is bounded by the watchdogs of
`cortex.postgres.database`, so a black hole costs its bound and no more. A crossing costs about
60 us.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import structlog
import trio
import trio_asyncio

from cortex.domain.errors import UnavailableError
from cortex.postgres.database import Database, Profile, on_sending, open_database
from cortex.postgres.dedicated import Dedicated

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Island(Protocol):
    """Where asyncio runs beside trio; `trio_asyncio.TrioEventLoop` is one."""

    async def run_aio_coroutine(self, coroutine: Awaitable[T]) -> T:
        """Run a coroutine to its end, from trio; raises what it raises."""
        ...


class Watch(Protocol):
    """Is told of each call by a port: when it is sent, and how it fared."""

    def sent(self) -> None:
        """One more call waits for its answer."""
        ...

    def ended(self, method: object, error: UnavailableError | None) -> None:
        """One waits no more; `error`: Postgres did not answer it, or may not have."""
        ...

    def given_up(self) -> None:
        """One waits no more, and was never sent."""
        ...


class Port:
    """Store methods for trio code: `await port(jobs.cancel, job_id, by="ana", reason="…")`.

    Raises what the method raises. A call that is cancelled while nothing of it was sent is given up
    and leaves nothing behind. Later, cancellation is seen after the method has ended, never during:
    what it did is known.
    """

    def __init__(self, island: Island, db: Database, profile: Profile) -> None:
        self._island = island
        self._db = db
        self._profile = profile
        self.watch: Watch | None = None
        """Is told of each call."""

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
        token = on_sending.set(partial(setattr, until_sent, "shield", True))  # noqa: FBT003
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
        """Open a connection of its own; cancelled, that is given up. Raises as `Dedicated.open`."""
        await self._watched(trio.CancelScope(), session.open, session.open)

    async def close(self, session: Dedicated) -> None:
        """Close a connection of its own, within a second; it tells nothing of the database."""
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
        """Make a connection of its own, not opened yet."""
        return Dedicated(self._profile, on_lost=on_lost)


class _Unwatched:
    """Nobody is told."""

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
    """A port for those who must leave connections to others: so many of their calls at once.

    A call that gets no turn within `LANE_WAIT_S` raises `UnavailableError`; it was not begun.
    """

    def __init__(self, port: Port, *, calls_max: int) -> None:
        super().__init__(port._island, port._db, port._profile)  # noqa: SLF001 -- its own module
        self._port = port  # whose watch is told
        self._turns = trio.Semaphore(calls_max)

    async def __call__(
        self,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method on the pool, in its turn."""
        async with self._turn():
            return await self._port(method, *args, **kwargs)

    async def cross(
        self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run any asyncio coroutine function of the store, in its turn."""
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
    async with trio_asyncio.open_loop() as loop:
        # The default handler raises in the loop's nursery, which kills every socket reader.
        loop.set_exception_handler(_note)
        db = await loop.run_aio_coroutine(open_database(profile, rng=rng))
        port = Port(loop, db, db.profile)
        try:
            yield port
        finally:
            with trio.move_on_after(2.0, shield=True):
                await loop.run_aio_coroutine(db.close())


def leave_island() -> None:
    """Let asyncio calls of this trio task, and of tasks below it, find no loop from now on.

    They would find that of the pool: what they start there nobody would end.
    """
    trio_asyncio.current_loop.set(None)


def _note(_loop: object, context: dict[str, Any]) -> None:
    _log.warning(
        "asyncio reported trouble",
        message=context.get("message"),
        error=repr(context.get("exception")),
    )
