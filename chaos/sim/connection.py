"""Connections of simulated machines: real sessions of Postgres behind a way that the seed decides.

Each statement travels there, is run alone on the wire, and its reply travels back. A connection
that is dropped is gone on the server, too, before anybody else's next statement is run; one that is
dropped while its way is cut stays behind there, with its locks, until the server finds out.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import attrs

from chaos.sim.network import Fate
from cortex.store import connections
from cortex.store.database import Profile

if TYPE_CHECKING:
    from chaos.sim.machine import Machine

T = TypeVar("T")

SERVER_SETTINGS = {
    # Names that queries do not qualify are looked for where time and chance are simulated, first.
    "search_path": "sim, pg_catalog, public",
    # Nobody can let go while the whole process waits for a lock.
    "lock_timeout": "500ms",
    # Bounds in real time would make a slow computer part of the seed.
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "0",
    "client_connection_check_interval": "0",
}


class Connection(connections.Connection):
    """A session of one machine."""

    # What asyncpg's own class has.
    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport

    machine: "Machine"
    pid: int
    _is_gone = False
    _is_bare = False
    _heard = 0
    _hanging: "asyncio.Future[None] | None" = None

    def settle(self, machine: "Machine") -> None:
        """It is open: from now on its way is that of its machine."""
        self.machine = machine
        self.pid = self.get_server_pid()
        self._ended: list[Callable[..., Any]] = []

    # --- what the store uses

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        if self._is_bare:
            return await super().fetch(query, *args, **options)
        return await self._carry(query, args, lambda: super(Connection, self).fetch(query, *args))

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        rows = await self.fetch(query, *args, **options)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        row = await self.fetchrow(query, *args, **options)
        return None if row is None else row[0]

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        if self._is_bare:
            return await super().execute(query, *args, **options)
        return await self._carry(query, args, lambda: super(Connection, self).execute(query, *args))

    async def add_listener(self, channel: str, callback: Any) -> None:
        await self._carry(f"LISTEN {channel}", (), _nothing)
        self.machine.world.notices.listen(channel, self, callback)

    def add_termination_listener(self, callback: Any) -> None:
        self._ended.append(callback)

    def is_closed(self) -> bool:
        return self._is_gone or super().is_closed()

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

    # --- what the simulation uses

    def sever(self) -> None:
        """The server has ended the session; its client sees that."""
        if not self._is_gone:
            self._see_gone()
            self.drop()

    def drop(self) -> None:
        """End the session, whatever its client knows of that."""
        self._is_gone = True
        if not super().is_closed():
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            self.machine.world.server.dropped(self.pid)
        if not self._loop.is_closed():
            super().terminate()

    def _see_gone(self) -> None:
        self._is_gone = True
        if self._hanging is not None and not self._hanging.done():
            self._hanging.set_result(None)
        for callback in self._ended:
            self._loop.call_soon(callback, self)
        self.machine.island.poke()

    def tell(self, callback: Callable[..., Any], channel: str, payload: str) -> None:
        """A notification sets out for this client."""
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

    async def _carry(
        self, query: str, args: tuple[object, ...], run: Callable[[], Awaitable[T]]
    ) -> T:
        """Send a statement, run it, bring the answer back, as far as its fate lets that happen."""
        self._refuse_gone()
        network = self.machine.network
        fate = network.fate()
        await self._travel(network.request_s())
        if fate is Fate.RESET:
            self._break()
        if fate is Fate.LOST or network.weather.is_cut:
            await self._hang()
        result = await self.machine.island.loop.on_wire(lambda: self._run(query, args, run))
        await self._travel(network.reply_s())
        if fate is Fate.RESET_AFTER:
            self._break()
        if fate is Fate.UNANSWERED or network.weather.is_cut:
            await self._hang()
        return result

    async def _run(
        self, query: str, args: tuple[object, ...], run: Callable[[], Awaitable[T]]
    ) -> T:
        world = self.machine.world
        self._refuse_gone()
        world.server.notice()
        world.server.bury()
        world.server.set_clock()
        await self._hear()
        try:
            result = await run()
        except asyncpg.PostgresError as error:
            world.ran(self.machine, query, args, f"{error.sqlstate} {error}")
            raise
        world.ran(self.machine, query, args, result)
        return result

    async def _hear(self) -> None:
        """Hear every channel that somebody listens to; not in a transaction, which may undo it."""
        channels = self.machine.world.notices.channels
        if self._heard == len(channels) or self.is_in_transaction():
            return
        self._is_bare = True
        for channel in channels[self._heard :]:
            await super().add_listener(channel, self._announced)
        self._heard = len(channels)
        self._is_bare = False

    def _announced(self, _connection: object, pid: int, channel: str, payload: object) -> None:
        if pid == self.pid:
            self.machine.world.notices.announce(channel, str(payload))

    async def _travel(self, seconds: float) -> None:
        if seconds > 0:
            await self.machine.network.travel(seconds)
        self._refuse_gone()

    async def _hang(self) -> None:
        """Wait for what will never come, until somebody gives the connection up."""
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


async def _nothing() -> None:
    """What a LISTEN of a simulated machine sends: see `Notices`."""


@attrs.frozen(kw_only=True)
class SimulatedProfile(Profile):
    """Connections of one machine."""

    machine: "Machine"

    async def dial(self) -> connections.Connection:
        machine = self.machine
        network = machine.network
        await network.travel(network.request_s())
        if network.weather.is_cut:
            await asyncio.sleep(2 * self.bound_s)
        if network.weather.is_refused or machine.world.server.is_down:
            raise ConnectionRefusedError(111, "Connection refused")
        connection = await machine.island.loop.on_wire(self._session)
        connection.settle(machine)
        machine.world.transcript.add(machine.name, "connects", "", "")
        machine.connections.append(connection)
        machine.world.server.sessions.append(connection)
        return connection

    async def _session(self) -> Connection:
        return await asyncpg.connect(
            self.dsn,
            server_settings=self.settings | SERVER_SETTINGS,
            timeout=60.0,
            connection_class=Connection,
        )
