"""Connections of simulated machines: real Postgres sessions over a network that the seed controls.

Each statement travels to the server, runs alone on the wire, and its reply travels back. A dropped
connection is gone on the server at once. If its network is cut, it stays there with its locks until
the server finds out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import attrs
from asyncpg.transaction import Transaction

from chaos.sim.host import Host
from chaos.sim.network import Fate
from chaos.sim.sessions import Session, locks_session
from cortex.postgres import connections
from cortex.postgres.database import Profile

Talk = Callable[[Session], Awaitable[Any]]


class Connection:
    """A connection of one machine: as much of asyncpg's interface as the store uses."""

    is_pooled = False

    # What asyncpg's own transactions read.
    _pool_release_ctr = 0
    _top_xact: Transaction | None = None

    def __init__(self, machine: Host, settings: Mapping[str, str]) -> None:
        self.machine = machine
        self.number = next(connections.numbers)
        self._settings = settings
        self._loop = machine.island.loop
        self._protocol = SimpleNamespace(is_in_transaction=self.is_in_transaction)
        self._session: Session | None = None
        """While it has its own session."""
        self._holds_lock = False
        self._is_gone = False
        self._savepoints = 0
        self._hanging: asyncio.Future[None] | None = None
        self._ended: list[Callable[..., Any]] = []

    # --- used by the store

    async def fetch(self, query: str, *args: Any) -> Any:
        return await self._carry(query, args, lambda session: session.fetch(query, *args))

    async def fetchrow(self, query: str, *args: Any) -> Any:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]

    async def execute(self, query: str, *args: Any) -> Any:
        return await self._carry(query, args, lambda session: session.execute(query, *args))

    async def add_listener(self, channel: str, callback: Any) -> None:
        await self._carry(f"LISTEN {channel}", (), _nothing)
        self.machine.world.notices.listen(channel, self, callback)

    def add_termination_listener(self, callback: Any) -> None:
        self._ended.append(callback)

    def transaction(self) -> Transaction:
        return Transaction(cast("Any", self), None, readonly=False, deferrable=False)

    def is_in_transaction(self) -> bool:
        return self._session is not None and self._session.is_in_transaction()

    def is_closed(self) -> bool:
        return self._is_gone

    def get_server_version(self) -> Any:
        return self.machine.world.server.version

    def terminate(self) -> None:
        if self._is_gone:
            return
        self._see_gone()
        if self.machine.network.weather.is_cut:
            self.machine.world.server.leave(self)
        else:
            self.drop()

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        self.terminate()

    def _get_unique_id(self, prefix: str) -> str:
        self._savepoints += 1
        return f"{prefix}_{self._savepoints}"

    # --- used by the simulation

    def sever(self) -> None:
        """The server has ended the session; its client notices."""
        if not self._is_gone:
            self._see_gone()
            self.drop()

    def drop(self) -> None:
        """End the session, whether or not its client notices."""
        self._is_gone = True
        session, self._session = self._session, None
        if session is not None:
            self.machine.world.server.lending.end(session, self._settings)

    def _see_gone(self) -> None:
        self._is_gone = True
        if self._hanging is not None and not self._hanging.done():
            self._hanging.set_result(None)
        if not self._loop.is_closed():
            for callback in self._ended:
                self._loop.call_soon(callback, self)
        self.machine.island.poke()

    def deliver(self, callback: Callable[..., Any], channel: str, payload: str) -> None:
        """Send a notification to this client."""
        network = self.machine.network
        delay_s = network.hint_s()
        if delay_s is None:
            return
        network.travelling += 1

        def arrive() -> None:
            network.travelling -= 1
            if not self.is_closed():
                self.machine.world.transcript.add(self.machine.name, "hears", channel, payload)
                callback(self, 0, channel, payload)

        self._loop.call_later(delay_s, arrive)
        self.machine.island.poke()

    async def _carry(self, query: str, args: tuple[object, ...], talk: Talk) -> Any:
        """Send a statement, run it, bring the answer back, as far as its fate permits."""
        self._refuse_gone()
        network = self.machine.network
        fate = network.fate()
        await self._travel(network.request_s())
        if fate is Fate.RESET:
            self._break()
        if fate is Fate.LOST or network.weather.is_cut:
            await self._hang()
        result = self._run(query, args, talk)
        await self._travel(network.reply_s())
        if fate is Fate.RESET_AFTER:
            self._break()
        if fate is Fate.UNANSWERED or network.weather.is_cut:
            await self._hang()
        return result

    def _run(self, query: str, args: tuple[object, ...], talk: Talk) -> Any:
        world = self.machine.world
        world.server.notice()
        self._refuse_gone()
        world.server.set_clock()
        try:
            result = self._talk(query, talk)
        except asyncpg.PostgresError as error:
            world.ran(self.machine, query, args, f"{error.sqlstate} {error}")
            raise
        world.ran(self.machine, query, args, result)
        return result

    def _talk(self, query: str, talk: Talk) -> Any:
        """Talk in the connection's own session, or in any free one."""
        server = self.machine.world.server
        session = self._session or server.lending.lend(self._settings)

        async def converse() -> Any:
            await session.hear(self.machine.world.notices)
            return await talk(session)

        try:
            result = server.wire.talk(session, converse)
            self._holds_lock = self._holds_lock or locks_session(query)
            return result
        finally:
            if self._holds_lock or session.is_in_transaction():
                self._session = session
            else:
                self._session = None
                server.lending.give_back(session, self._settings)

    async def _travel(self, seconds: float) -> None:
        if seconds > 0:
            await self.machine.network.travel(seconds)
        self._refuse_gone()

    async def _hang(self) -> None:
        """Wait for a reply that never comes, until the connection is closed."""
        self._hanging = self._loop.create_future()
        await self._hanging
        self._refuse_gone()

    def _break(self) -> None:
        self.terminate()
        self._refuse_gone()

    def _refuse_gone(self) -> None:
        if self.is_closed():
            raise asyncpg.ConnectionDoesNotExistError(
                "connection was closed in the middle of operation"
            )


async def _nothing(_: Session) -> None:
    """What a LISTEN of a simulated machine sends: see `Notices`."""


@attrs.frozen(kw_only=True)
class SimulatedProfile(Profile):
    """Connections of one machine."""

    machine: Host

    async def dial(self) -> connections.Connection:
        machine = self.machine
        network = machine.network
        await network.travel(network.request_s())
        if network.weather.is_cut:
            await asyncio.sleep(2 * self.bound_s)
        if network.weather.is_refused or machine.world.server.is_down:
            raise ConnectionRefusedError(111, "Connection refused")
        connection = Connection(machine, self.settings)
        machine.world.transcript.add(machine.name, "connects", "", "")
        machine.connections.append(connection)
        machine.world.server.connections.append(connection)
        return cast("connections.Connection", connection)
