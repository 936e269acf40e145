"""A dedicated connection: for the heartbeat with the pod's lock, and for LISTEN.

A session lock and a subscription live as long as their connection, so these two never share one and
never come from the pool. Every call is bounded by a watchdog that terminates the connection. Behind
a pooler there are neither; the connection is still not shared.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg

from cortex.domain.errors import CortexError, Trouble, UnavailableError
from cortex.postgres.connections import Connection, set_locally
from cortex.postgres.database import Profile, Record
from cortex.postgres.errors import (
    ends_session,
    is_connection_loss,
    is_read_only,
    of_statement,
    unanswered,
)
from cortex.postgres.queries import sql


class Dedicated:
    """One connection, opened by `open`, lost permanently when it breaks: then open another one.

    Calls raise `CortexError`s; after any connection trouble `is_open` is False.
    """

    def __init__(self, profile: Profile, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called in the event loop as soon as the connection is known to be lost."""
        self._profile = profile
        self._on_lost = on_lost
        self._connection: Connection | None = None

    @property
    def is_open(self) -> bool:
        """The connection is not known to be broken; a silent network shows at the next call."""
        return self._connection is not None and not self._connection.is_closed()

    @property
    def is_pooled(self) -> bool:
        """Whether there is a pooler: as far as is known before it was opened."""
        if self._connection is not None:
            return self._connection.is_pooled
        return bool(self._profile.is_pooled)

    async def open(self) -> None:
        """Connect, or raise what `Profile.connect` raises."""
        self.cut()
        connection = await self._profile.connect()
        connection.add_termination_listener(lambda _: self._on_lost())
        self._connection = connection

    async def fetch(self, query: str, *args: object) -> list[Record]:
        """Run one named statement within the profile's bound."""
        async with self._bounded() as connection:
            if not connection.is_pooled:
                return list(await connection.fetch(sql(query), *args))
            async with connection.transaction():
                await set_locally(connection, self._profile.settings)
                return list(await connection.fetch(sql(query), *args))

    async def listen(self, channel: str, callback: Callable[[str], None]) -> None:
        """Subscribe to a channel; `callback` gets each payload and must not raise.

        Raises `UnavailableError` behind a pooler, which accepts the subscription without effect.
        """
        async with self._bounded() as connection:
            if connection.is_pooled:
                raise UnavailableError("a pooler passes no notifications on")
            await connection.add_listener(channel, lambda _c, _p, _ch, text: callback(str(text)))

    @asynccontextmanager
    async def _bounded(self) -> AsyncGenerator[Connection, None]:
        """Lend out the connection under a watchdog; driver errors become `CortexError`s.

        Leaves a server that no longer accepts writes: `open` finds the one that does.
        """
        connection = self._connection
        if connection is None or connection.is_closed():
            raise UnavailableError(
                "the dedicated connection is not open", trouble=Trouble.UNREACHABLE
            )
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self._profile.bound_s, connection.terminate)
        try:
            yield connection
        except CortexError:
            raise
        except Exception as error:
            if is_read_only(error) or ends_session(error):
                connection.terminate()
            if loop.time() >= watchdog.when() and is_connection_loss(error):
                raise unanswered(self._profile.bound_s) from error
            raise of_statement(error) from error
        finally:
            watchdog.cancel()

    async def close(self) -> None:
        """Close properly within a second, or cut the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await connection.close(timeout=1.0)
            connection.terminate()

    def cut(self) -> None:
        """Drop the connection at once; the server frees its locks when it notices."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
