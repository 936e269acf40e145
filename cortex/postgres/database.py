"""The port to Postgres: every statement and transaction of the runtime goes through here.

Plain asyncio on asyncpg. A call acquires a connection, runs, and releases it inside one coroutine,
bounded by a watchdog that terminates the connection. asyncpg waits without bound for its own cancel
request when the network swallows packets, so none of its timeouts is relied on. Trio code crosses
over by `cortex.postgres.bridge`; the command line by `cortex.postgres.session`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, Final, Self, TypeAlias, TypeVar

import asyncpg
import attrs

from cortex.crash_points import is_in_operation, note_write
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, Trouble, UnavailableError
from cortex.postgres import connections
from cortex.postgres.connections import set_locally
from cortex.postgres.dsn import redact
from cortex.postgres.errors import (
    ends_session,
    is_cancelled,
    is_connection_loss,
    is_locked,
    is_read_only,
    is_rolled_back,
    of_connect,
    of_statement,
    unanswered,
)
from cortex.postgres.queries import sql
from cortex.postgres.watchdog import Watchdog

T = TypeVar("T")
_NUMBER: Final = attrgetter("number")
Record = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[Record]"

MIN_SERVER_VERSION = 15
RETRIES_AT_ONCE = 5
RETRY_BACKOFF = Backoff(base_s=0.02, cap_s=1.0)
"""Repeats of a statement that was certainly rolled back (deadlock, lock timeout).

Pods do not repeat after a lock timeout: the holder of the row may keep it for hours, and the pod
has other work. Statements that timed out are not repeated; they would time out again."""
CONTENT_S = 2.0
"""How long a pool makes do with its connections when the server has no more for it."""

APPLICATION: Final = "cortex"
APPLICATION_CHARS_MAX: Final = 63
"""The part of it that Postgres keeps."""

SESSION_SETTINGS = {
    "timezone": "UTC",
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    # For Postgres, a client that stops between preparing and executing a statement is not idle.
    "transaction_timeout": "15s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "jit": "off",
}
"""These free the locks of a stopped or vanished client, and bound every statement."""

HOT_PATH_SETTINGS = {
    # The runtime's statements find rows only by index. On tables that grew since their last
    # ANALYZE, the planner would choose scans and hash joins over everything.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Planning for each batch would cost more than a better plan could save.
    "plan_cache_mode": "force_generic_plan",
}

RUNTIME_ROLE = "cortex_runtime"
SUBMITTER_ROLE = "cortex_submitter"
"""For programs that submit jobs and nothing else; it may be missing, see migration 0025."""
READER_ROLE = "cortex_reader"
"""For read-only sessions; it may be missing, see migration 0019."""

on_sending: ContextVar[Callable[[], object]] = ContextVar("on_sending", default=lambda: None)
"""Called before anything of a call is sent: until then, at most it waits for a connection."""


@attrs.frozen(kw_only=True)
class Profile:
    """How connections are made: for which role, how many, and with which bound on each call."""

    dsn: str = attrs.field(repr=redact)
    role: str | None = RUNTIME_ROLE
    connections_max: int = 4
    bound_s: float = 10.0
    hot_path: bool = False
    is_read_only: bool = False
    """By a setting of each session, which a session could unset."""
    application: str = APPLICATION
    """The sessions' name on the server: distinguishes those of one pod from another's."""
    is_pooled: bool | None = None
    """A pooler lends out sessions; None: unknown until connecting finds out."""
    tenant: str | None = None
    """The only tenant whose records the sessions list, find and submit; None: all."""

    @classmethod
    def of_pod(cls, dsn: str, name: str) -> Self:
        """Return the profile of a pod: its sessions have its name, as far as Postgres keeps it."""
        return cls(dsn=dsn, hot_path=True, application=f"{APPLICATION} {name}")

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a session: sent when connecting, or with each transaction to a pooler."""
        role = {"role": self.role} if self.role else {}
        looking = {connections.READ_ONLY: "on"} if self.is_read_only else {}
        named = {"application_name": self.application[:APPLICATION_CHARS_MAX]}
        if self.tenant is not None:
            named["cortex.tenant"] = self.tenant
        return (
            named | SESSION_SETTINGS | (HOT_PATH_SETTINGS if self.hot_path else {}) | looking | role
        )

    @property
    def may_write(self) -> bool:
        """Whether the database would permit it to change anything."""
        return not self.is_read_only and self.role != READER_ROLE

    async def connect(self) -> connections.Connection:
        """Open one connection within the bound; of several hosts, to the one that accepts writes.

        Raises a `CortexError` that names the target without its password.
        """
        target = redact(self.dsn)
        try:
            connection = await self.dial()
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

    async def dial(self) -> connections.Connection:
        """Connect; raises what the driver raises."""
        return await connections.connect(
            self.dsn, settings=self.settings, is_pooled=self.is_pooled, bound_s=self.bound_s
        )


class Database:
    """A small pool of connections and the calls on it. Make it with `open_database`.

    A call raises `CortexError`s only: `OutcomeUnknownError` when the connection broke after the
    statement may have been committed, the others of `cortex.postgres.errors` when it was not.
    Cancelling a call from asyncio terminates its connection; trio code is shielded by the bridge.
    """

    def __init__(self, profile: Profile, *, rng: random.Random) -> None:
        self.profile = profile
        self._rng = rng
        self._idle: list[asyncpg.Connection[Record]] = []
        self._holders: list[tuple[tuple[object, ...], asyncpg.Connection[Record]]] = []
        self._slots = asyncio.Semaphore(profile.connections_max)
        self._watchdog = Watchdog(profile.bound_s)
        self._lent_count = 0
        self._given_back = asyncio.Event()
        self._content_until = float("-inf")
        self._is_closed = False

    @property
    def tenant(self) -> str | None:
        """The only tenant whose records are listed, found and submitted; None: all."""
        return self.profile.tenant

    async def fetch(self, query: str, *args: object) -> list[Record]:
        """Run one named statement in its own transaction and return its rows."""
        text = sql(query)

        async def run(connection: "asyncpg.Connection[Record]") -> list[Record]:
            return await connection.fetch(text, *args)

        return await (self.transact(run) if self._needs_transaction else self._retrying(run))

    async def fetch_one(self, query: str, *args: object) -> Record | None:
        """Run one named statement in its own transaction and return its first row, if any."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def transact(self, work: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        """Run `work` in one transaction; repeats it if that was certainly rolled back."""

        async def in_transaction(connection: "asyncpg.Connection[Record]") -> T:
            cause: Exception | None = None
            has_written = False
            try:
                async with connection.transaction():
                    try:
                        if self._needs_settings:
                            await set_locally(connection, self.profile.settings)
                        result = await work(connection)
                        if is_in_operation():
                            has_written = await connection.fetchval(sql("sessions.has_written"))
                    except Exception as error:
                        cause = error
                        raise
                if has_written:
                    note_write()
                return result
            except Exception as error:
                # Where the server has ended the session, the rollback fails as well, and says less.
                if cause is None or cause is error:
                    raise
                failure = cause
            raise failure

        return await self._retrying(in_transaction)

    async def hold(self, query: str, *args: object) -> list[Record]:
        """Run one named statement, and keep its locks until `release`, or until the end.

        It runs in a transaction that stays open, on its own connection: behind a pooler, sessions
        are shared.
        """
        holder = await self.profile.connect()
        self._holders.append(((query, *args), holder))
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self.profile.bound_s, holder.terminate)
        try:
            await holder.transaction().start()
            patient = {"idle_in_transaction_session_timeout": "0", "transaction_timeout": "0"}
            await set_locally(holder, self.profile.settings | patient)
            rows: list[Record] = await holder.fetch(sql(query), *args)
            return rows
        except Exception as error:
            self._release((query, *args))
            raise of_statement(error) from error
        except BaseException:
            self._release((query, *args))
            raise
        finally:
            watchdog.cancel()

    async def release(self, query: str, *args: object) -> None:
        """Give up the locks of the last `hold` of this statement with these arguments."""
        self._release((query, *args))

    def _release(self, statement: tuple[object, ...]) -> None:
        for place, (held, holder) in reversed(list(enumerate(self._holders))):
            if held == statement:
                del self._holders[place]
                holder.terminate()
                return

    @property
    def _needs_settings(self) -> bool:
        """The next transaction's session is not ours."""
        return bool(self.profile.is_pooled)

    @property
    def _needs_transaction(self) -> bool:
        """A single statement needs a transaction block around it, too."""
        return self._needs_settings or is_in_operation()

    def bound(self, connection: "asyncpg.Connection[Record]") -> "Database":
        """Return this database bound to an open transaction: store methods run inside it."""
        return _Bound(self.profile, rng=self._rng, connection=connection)

    async def close(self) -> None:
        """Close the idle connections; all together they have one second to close properly.

        Calls under way keep their bound, and close their connections.
        """
        self._is_closed = True
        if not self._lent_count:
            self._watchdog.close()
        for _, holder in self._holders:
            holder.terminate()
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
                is_futile = is_cancelled(error) or (self.profile.hot_path and is_locked(error))
                if not is_rolled_back(error) or is_futile or repeat == RETRIES_AT_ONCE:
                    raise of_statement(error) from error
            await asyncio.sleep(RETRY_BACKOFF.pause_s(repeat + 1, rng=self._rng))
        raise AssertionError("unreachable")

    async def _bounded(self, call: Callable[["asyncpg.Connection[Record]"], Awaitable[T]]) -> T:
        """Take a connection, call, give it back; the watchdog cuts it off at the bound."""
        bound_s = self.profile.bound_s
        if self._slots.locked():
            try:
                async with asyncio.timeout(bound_s):
                    await self._slots.acquire()
            except TimeoutError as error:
                message = f"no database connection was free for {bound_s:g} s"
                raise UnavailableError(message) from error
        else:
            await self._slots.acquire()  # at once
        try:
            connection = await self._take()
            on_sending.get()()
            self._lent_count += 1
            cut_at = self._watchdog.watch(connection)
            clean = False
            try:
                result = await call(connection)
                clean = True
                return result
            except Exception as error:
                is_lost = is_connection_loss(error)
                if is_lost and asyncio.get_running_loop().time() >= cut_at:
                    raise unanswered(bound_s) from error
                # A server that answered with an error has left the session as it was.
                clean = isinstance(error, asyncpg.PostgresError) and not ends_session(error)
                if is_read_only(error):  # it no longer accepts writes
                    clean = False
                    self._cut_idle()
                raise
            finally:
                self._watchdog.forget(connection)
                self._lent_count -= 1
                self._give_back(connection, clean=clean)
        finally:
            self._slots.release()

    async def _take(self) -> "asyncpg.Connection[Record]":
        """Return a connection to use: an idle one, a new one, or the next one that is given back.

        The last if the server has no more connections, as long as the pool has one.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.profile.bound_s
        while True:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            if self._lent_count and loop.time() < self._content_until:
                self._given_back.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(self._content_until, give_up_at)):
                        await self._given_back.wait()
                continue
            try:
                return await self._connect()
            except UnavailableError as error:
                is_ours_left = self._lent_count and loop.time() < give_up_at
                if error.trouble is not Trouble.NO_CONNECTIONS or not is_ours_left:
                    raise
                self._content_until = loop.time() + self._rng.uniform(0.5, 1.0) * CONTENT_S

    async def _connect(self) -> "asyncpg.Connection[Record]":
        try:
            return await self.profile.connect()
        except UnavailableError:
            raise
        except CortexError as error:
            # It could connect before: a password or a grant is being changed. Nothing was refused
            # yet.
            raise UnavailableError(
                error.message, hint=error.hint, trouble=Trouble.UNREACHABLE
            ) from error

    def _cut_idle(self) -> None:
        """Drop the idle connections: they lead to the same server as this one."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    def _give_back(self, connection: "asyncpg.Connection[Record]", *, clean: bool) -> None:
        is_usable = clean and not connection.is_closed() and not connection.is_in_transaction()
        if is_usable and not self._is_closed:
            # The first one again and again: it has prepared the statements, and knows the tables.
            self._idle.append(connection)
            self._idle.sort(key=_NUMBER, reverse=True)
        else:
            connection.terminate()
        self._given_back.set()


class _Bound(Database):
    """The calls of a database inside a transaction, each in a savepoint: one may fail alone.

    What was certainly rolled back stays the driver's error: the whole transaction is repeated.
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

    @property
    def _needs_settings(self) -> bool:
        return False  # the transaction has the settings

    @property
    def _needs_transaction(self) -> bool:
        return False  # it is in one

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
    """Open the first connection, so that a wrong address or a missing schema fails at once.

    From then on, `profile.is_pooled` of the database says whether there is a pooler.
    """
    connection = await profile.connect()
    resolved = attrs.evolve(profile, is_pooled=connection.is_pooled)
    database = Database(resolved, rng=rng)
    # The first one has no prepared statements, which is too slow for a pod.
    keeps = profile.is_pooled is not None or connection.is_pooled or not profile.hot_path
    database._give_back(connection, clean=keeps)  # noqa: SLF001 -- its own module
    return database


def affected(rows: Sequence[Any], column: str = "id") -> set[Any]:
    """Return the ids that a statement returned."""
    return {row[column] for row in rows}
