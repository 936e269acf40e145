"""A connection of one's own: for the heartbeat with the pod's lock, and for LISTEN.

A session lock and a subscription live as long as their connection, so these two never share one
and never come from the pool. Every call is bounded by a watchdog that terminates the connection.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from cortex.domain.errors import UnavailableError
from cortex.store.database import Profile, Record
from cortex.store.errors import of_statement
from cortex.store.queries import sql


class Dedicated:
    """One connection, opened by `open`, lost for good when it breaks: then open another one.

    Calls raise `CortexError`s; after any connection trouble `is_open` is False.
    """

    def __init__(self, profile: Profile, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called in the event loop as soon as the connection is known to be gone."""
        self._profile = profile
        self._on_lost = on_lost
        self._connection: asyncpg.Connection[Record] | None = None

    @property
    def is_open(self) -> bool:
        """The connection has not been seen to break; a silent network shows at the next call."""
        return self._connection is not None and not self._connection.is_closed()

    async def open(self) -> None:
        """Connect, or raise what `Profile.connect` raises."""
        self.cut()
        connection = await self._profile.connect()
        connection.add_termination_listener(lambda _: self._on_lost())
        self._connection = connection

    async def fetch(self, query: str, *args: object) -> list[Record]:
        """Run one named statement within the profile's bound."""
        connection = self._connection
        if connection is None or connection.is_closed():
            raise UnavailableError("the dedicated connection is not open")
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self._profile.bound_s, connection.terminate)
        try:
            return await connection.fetch(sql(query), *args)
        except Exception as error:
            raise of_statement(error) from error
        finally:
            watchdog.cancel()

    async def listen(self, channel: str, callback: Callable[[str], None]) -> None:
        """Subscribe to a channel; `callback` gets each payload and must not raise."""
        connection = self._connection
        if connection is None:
            raise UnavailableError("the dedicated connection is not open")
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self._profile.bound_s, connection.terminate)
        try:
            await connection.add_listener(channel, lambda _c, _p, _ch, text: callback(str(text)))
        except Exception as error:
            raise of_statement(error) from error
        finally:
            watchdog.cancel()

    async def close(self) -> None:
        """Say goodbye within a second, or cut the connection."""
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
