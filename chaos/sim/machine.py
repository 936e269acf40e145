"""A machine of the simulation: one process, its network to Postgres, and what happens to both."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from chaos.sim.clock import HOST
from chaos.sim.connection import SimulatedProfile
from chaos.sim.host import Scene
from chaos.sim.island import Island
from chaos.sim.network import Network
from chaos.sim.server import Client
from cortex.domain.clock import Chance
from cortex.postgres.bridge import Port
from cortex.postgres.database import Profile, open_database


class Machine:
    """Where a pod or a client runs; a dead machine stays dead, another one takes its place."""

    def __init__(self, world: Scene, name: str) -> None:
        self.world = world
        self.name = name
        self.is_stopped = False
        self.is_dead = False
        self.connections: list[Client] = []
        self.island = Island(world.clock)
        self.network = Network(random.Random(f"network {world.seed} {name}"))
        self.chance = Chance(
            random.Random(f"chance {world.seed} {name}"), lambda: int(1000 * world.clock.unix_s)
        )
        self.scope = trio.CancelScope()
        self._has_port = False

    def inhabit(self) -> None:
        """Run the calling trio task, and everything that it starts, on this machine."""
        HOST.set(self)

    @asynccontextmanager
    async def open_port(
        self, profile: Profile, *, rng: random.Random
    ) -> AsyncGenerator[Port, None]:
        """Open a port as `cortex.postgres.bridge.open_port` does, over this machine's network."""
        given = attrs.asdict(profile, recurse=False)
        simulated = SimulatedProfile(**{**given, "is_pooled": False}, machine=self)
        async with self._running_island():
            db = await self.island.run_aio_coroutine(open_database(simulated, rng=rng))
            try:
                yield Port(self.island, db, simulated)
            finally:
                with trio.move_on_after(2.0, shield=True):
                    await self.island.run_aio_coroutine(db.close())

    @asynccontextmanager
    async def _running_island(self) -> AsyncGenerator[None, None]:
        """Drive the island, unless an outer port does: a tick opens a second one for its pod."""
        if self._has_port:
            yield
            return
        self._has_port = True
        async with trio.open_nursery() as nursery:
            await nursery.start(self.island.run, name="island")
            try:
                yield
            finally:
                self.island.end()

    def kill(self) -> None:
        """SIGKILL, or a power cut: nothing runs here any more, the server sees the sessions end."""
        self.is_dead = True
        for connection in self.connections:
            if not self.network.weather.is_cut:
                connection.drop()
            elif not connection.is_closed():
                connection.terminate()
        self.island.end()
        self.scope.cancel()
        self.cont()

    def stop(self) -> None:
        """SIGSTOP: its tasks are suspended."""
        self.is_stopped = True

    def cont(self) -> None:
        self.is_stopped = False
        self.world.turns.let_go()
