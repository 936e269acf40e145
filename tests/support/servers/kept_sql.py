"""Statements on connections that are kept: a new one costs the server more than most statements.

One is kept for each database of the run's own server, and more while statements are under way at
once. It goes back as it came: no setting, lock or subscription stays, and no plan is remembered.
"""

import asyncio
import select
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from attrs import define, field

from cortex.postgres.connections import NoStatement

T = TypeVar("T")
Loop = asyncio.SelectorEventLoop
"""Named because importing trio_asyncio replaces the default one."""


class Connection(asyncpg.Connection):
    """A connection that asks for a type only if none before it has, in any database.

    All databases of the server have their schema from one template, and the server gives no number
    of a type twice.
    """

    types: Final[dict[int, dict[str, Any]]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        asked = list(typeoids)
        if unknown := [oid for oid in asked if oid not in self.types]:
            rows, statement = await super()._introspect_types(unknown, timeout)  # type: ignore[misc]
            self.types.update({row["oid"]: row for row in rows})
            return rows, statement
        return [self.types[oid] for oid in asked], NoStatement()


@define(eq=False)
class _Kept:
    """A connection and its loop, which turns only while a statement runs."""

    loop: asyncio.AbstractEventLoop = field(factory=Loop)
    connection: asyncpg.Connection | None = None

    async def fetch(self, dsn: str, query: str, args: tuple[object, ...]) -> list[asyncpg.Record]:
        if self.connection is None or self.connection.is_closed() or was_told(self.connection):
            await self._drop()
            self.connection = await asyncpg.connect(
                dsn, connection_class=Connection, statement_cache_size=0
            )
        try:
            rows = await self.connection.fetch(query, *args)
            await self.connection.reset()
        except BaseException:
            await self._drop()
            raise
        return rows

    async def _drop(self) -> None:
        if self.connection is not None:
            self.connection.terminate()
            await asyncio.sleep(0)  # in which the socket is closed

    async def close(self) -> None:
        if self.connection is None or self.connection.is_closed():
            return
        if was_told(self.connection):
            await self._drop()
        else:
            await self.connection.close()


def was_told(connection: asyncpg.Connection) -> bool:
    """Whether the server sent an unrequested message, such as that it ends the session."""
    socket = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    return bool(select.select([socket], [], [], 0)[0])


@define(eq=False)
class KeptConnections:
    """Those to one database; may be used from any thread, by several at once."""

    dsn: str
    _free: list[_Kept] = field(factory=list, init=False)
    _roles: "dict[str, KeptConnections]" = field(factory=dict, init=False)

    def in_role(self, role: str) -> "KeptConnections":
        """Those to the same database whose sessions begin in a role."""
        if role not in self._roles:
            self._roles[role] = KeptConnections(f"{self.dsn}&role={role}")
        return self._roles[role]

    def fetch(self, query: str, args: tuple[object, ...]) -> list[asyncpg.Record]:
        """Run one statement to its end; raises what it raises."""
        kept = self._free.pop() if self._free else _Kept()
        try:
            work = partial(kept.fetch, self.dsn, query, args)
            return in_thread(lambda: kept.loop.run_until_complete(work()))
        finally:
            self._free.append(kept)

    def close(self) -> None:
        """Close them all; none may be in use."""
        for each in self._roles.values():
            each.close()
        while self._free:
            kept = self._free.pop()
            in_thread(partial(_end, kept))


def _end(kept: _Kept) -> None:
    kept.loop.run_until_complete(kept.close())
    kept.loop.close()


def in_thread(work: Callable[[], T]) -> T:
    """Run something to its end in a thread of its own; raises what it raises."""
    outcome: list[T | BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001, ASYNC103  (raised again below)
            outcome.append(error)

    thread = threading.Thread(target=run, name="asyncio for a test")
    thread.start()
    thread.join()
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result
