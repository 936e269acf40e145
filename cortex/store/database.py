"""The port to Postgres: every statement and transaction of the runtime goes through here.

Written as plain asyncio on asyncpg. A call acquires a connection, runs, and releases it inside one
coroutine, bounded by a watchdog that terminates the connection: asyncpg waits without bound for
its own cancel request when the network swallows packets, so no time-out of its own is relied on.
Trio code crosses over by `cortex.store.bridge`; the command line by `cortex.store.session`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import asyncpg
import attrs

from cortex.domain import redaction
from cortex.domain.errors import CortexError, UnavailableError
from cortex.store.dsn import redact
from cortex.store.errors import is_connection_loss, is_rolled_back, of_connect, of_statement
from cortex.store.queries import sql

T = TypeVar("T")
Record = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[Record]"

MIN_SERVER_VERSION = 15
RETRIES_AT_ONCE = 5
"""Repeats of a statement that was certainly rolled back (deadlock, lock time-out)."""

SESSION_SETTINGS = {
    "application_name": "cortex",
    "timezone": "UTC",
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "jit": "off",
}
"""So that a stopped or vanished client frees its locks, and no statement runs for ever."""

HOT_PATH_SETTINGS = {
    # The runtime's statements find rows by index only. On tables that grew since their last
    # ANALYZE the planner would guess scans and hash joins over everything.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Planning anew for each batch would cost more than a better plan could save.
    "plan_cache_mode": "force_generic_plan",
}

RUNTIME_ROLE = "cortex_runtime"


@attrs.frozen(kw_only=True)
class Profile:
    """How connections are made: for whom, how many, and with which bound on each call."""

    dsn: str = attrs.field(repr=redact)
    role: str | None = RUNTIME_ROLE
    connections_max: int = 4
    bound_s: float = 10.0
    hot_path: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Session settings sent when connecting."""
        role = {"role": self.role} if self.role else {}
        return SESSION_SETTINGS | (HOT_PATH_SETTINGS if self.hot_path else {}) | role

    async def connect(self) -> "asyncpg.Connection[Record]":
        """Open one connection within the bound.

        Raises a `CortexError` that names the target without its password.
        """
        target = redact(self.dsn)
        try:
            async with asyncio.timeout(self.bound_s):
                connection = await asyncpg.connect(
                    self.dsn,
                    server_settings=self.settings,
                    timeout=self.bound_s,
                    connection_class=_Redacting,
                )
        except (
            OSError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            ValueError,
        ) as error:
            raise of_connect(error, target=target) from error
        version = connection.get_server_version().major
        if version < MIN_SERVER_VERSION:
            connection.terminate()
            raise UnavailableError(
                f"{target} is Postgres {version}, Cortex needs {MIN_SERVER_VERSION} or newer",
                hint="upgrade the server, or leave out --dsn to use the embedded one",
            )
        return connection


class _Redacting(asyncpg.Connection):
    """A connection to which no secret is sent that this process knows of, in any parameter.

    It has these methods only: the store's tests see to it that it uses no others.
    """

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        return await super().fetch(query, *_redacted(args), **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        return await super().fetchrow(query, *_redacted(args), **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        return await super().fetchval(query, *_redacted(args), **options)

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        return await super().execute(query, *_redacted(args), **options)


def _redacted(args: Sequence[object]) -> Sequence[object]:
    """Parameters whose texts, and the texts in whose lists, are redacted; bytes are left alone."""
    if not redaction.knows_any():
        return args
    return [
        redaction.redact_each(each) if isinstance(each, list | tuple) else each
        for each in redaction.redact_each(args)
    ]


class Database:
    """A small pool of connections and the calls on it. Make it with `open_database`.

    A call raises `CortexError`s only: `OutcomeUnknownError` when the connection broke after the
    statement may have been committed, the others of `cortex.store.errors` when it was not.
    Cancelling a call from asyncio terminates its connection; trio code is shielded by the bridge.
    """

    def __init__(self, profile: Profile, *, rng: random.Random) -> None:
        self.profile = profile
        self._rng = rng
        self._idle: list[asyncpg.Connection[Record]] = []
        self._slots = asyncio.Semaphore(profile.connections_max)

    async def fetch(self, query: str, *args: object) -> list[Record]:
        """Run one named statement in its own transaction and return its rows."""
        text = sql(query)
        return await self._retrying(lambda connection: connection.fetch(text, *args))

    async def fetch_one(self, query: str, *args: object) -> Record | None:
        """Run one named statement in its own transaction and return its first row, if any."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def transact(self, work: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        """Run `work` in one transaction; it is run again if that was rolled back for certain."""

        async def in_transaction(connection: "asyncpg.Connection[Record]") -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._retrying(in_transaction)

    def bound(self, connection: "asyncpg.Connection[Record]") -> "Database":
        """Return this database as seen by a transaction under way: store methods run inside it."""
        return _Bound(self.profile, rng=self._rng, connection=connection)

    async def close(self) -> None:
        """Close the idle connections; together they have a second to say goodbye."""
        idle, self._idle = self._idle, []
        try:
            goodbyes = (connection.close(timeout=1.0) for connection in idle)
            await asyncio.gather(*goodbyes, return_exceptions=True)
        finally:
            for connection in idle:
                connection.terminate()

    async def _retrying(self, call: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        for repeat in range(RETRIES_AT_ONCE + 1):
            try:
                return await self._bounded(call)
            except CortexError:
                raise
            except Exception as error:
                if not is_rolled_back(error) or repeat == RETRIES_AT_ONCE:
                    raise of_statement(error) from error
            await asyncio.sleep(self._rng.uniform(0, 0.02 * 2**repeat))
        raise AssertionError("unreachable")

    async def _bounded(self, call: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        """Take a connection, call, give it back; the watchdog cuts it off at the bound."""
        bound_s = self.profile.bound_s
        try:
            async with asyncio.timeout(bound_s):
                await self._slots.acquire()
        except TimeoutError as error:
            raise UnavailableError(f"no database connection was free for {bound_s:g} s") from error
        try:
            connection = await self._take()
            watchdog = asyncio.get_running_loop().call_later(bound_s, connection.terminate)
            clean = False
            try:
                result = await call(connection)
                clean = True
                return result
            except asyncpg.PostgresError as error:
                clean = not is_connection_loss(error)  # the server answered: the session is fine
                raise
            finally:
                watchdog.cancel()
                self._give_back(connection, clean=clean)
        finally:
            self._slots.release()

    async def _take(self) -> "asyncpg.Connection[Record]":
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        try:
            return await self.profile.connect()
        except UnavailableError:
            raise
        except CortexError as error:
            # It was let in before: a password or a grant is being changed. Nothing was refused yet.
            raise UnavailableError(error.message, hint=error.hint) from error

    def _give_back(self, connection: "asyncpg.Connection[Record]", *, clean: bool) -> None:
        if clean and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append(connection)
        else:
            connection.terminate()


class _Bound(Database):
    """The calls of a database inside a transaction, each in a savepoint: one may fail alone.

    What was rolled back for certain stays the driver's error: the whole transaction is run again.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        rng: random.Random,
        connection: "asyncpg.Connection[Record]",
    ) -> None:
        super().__init__(profile, rng=rng)
        self._connection = connection

    async def _retrying(self, call: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        try:
            async with self._connection.transaction():
                return await call(self._connection)
        except CortexError:
            raise
        except Exception as error:
            if is_rolled_back(error):
                raise
            raise of_statement(error) from error


async def open_database(profile: Profile, *, rng: random.Random) -> Database:
    """Open the first connection, so that a wrong address or a missing schema shows at once."""
    database = Database(profile, rng=rng)
    connection = await profile.connect()
    database._give_back(connection, clean=True)  # noqa: SLF001 -- its own module
    return database


def affected(rows: Sequence[Any], column: str = "id") -> set[Any]:
    """Return the ids that a statement returned."""
    return {row[column] for row in rows}
