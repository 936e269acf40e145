"""Where pods live: three places, each with one pod after another."""

from collections.abc import Callable
from typing import Any

import trio

from chaos.sim.host import Scene
from chaos.sim.island import Killed
from chaos.sim.machine import Machine
from chaos.sim.network import FAIR, Weather
from cortex.actors.supervisor import SupervisorEscalated
from cortex.config import Settings
from cortex.domain.errors import CortexError
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod import Ready, run_pod

EMPTY_S = 2.0
"""Until somebody starts a pod again that has ended by itself."""
THREAD_S = 0.5
"""So often somebody looks whether a stopped machine goes on."""
ENDS_WITHIN_S = 75.0
"""From SIGTERM on: in that time a pod has ended, or it is a fault of the pod."""


class Place:
    """There is a pod here, or there will be one soon."""

    def __init__(self, world: Scene, name: str) -> None:
        self._world = world
        self.name = name
        self.life = 0
        self.machine: Machine | None = None
        """Where the present pod runs; None: the place is empty."""
        self.empty_s = EMPTY_S
        self._weather = FAIR
        self._ambush: Callable[[], None] | None = None
        self._shutdown = Shutdown()
        self._is_closed = False
        self._is_forced = False
        """The present pod was ended by its last resort."""
        self._is_empty = trio.Event()

    async def occupy(self) -> None:
        """Run pods until closed."""
        while not self._is_closed:
            self._is_empty = trio.Event()
            await self._live()
            self._is_empty.set()
            await self._world.sleep(self.empty_s)

    @property
    def is_leaving(self) -> bool:
        """The present pod was asked to end, and gets turns to do so."""
        return (
            self.machine is not None
            and not self.machine.is_stopped
            and self._shutdown.stop.is_set()
        )

    def lie_in_wait(self, act: Callable[[], None]) -> None:
        """Act when the next statement of this place has changed something, before its reply."""
        self._ambush = act

    def spring(self) -> None:
        """Act now, if anybody lies in wait."""
        act, self._ambush = self._ambush, None
        if act is not None:
            act()

    def kill(self) -> None:
        """Kill the present pod."""
        if self.machine is not None:
            self.note("signal", signal="SIGKILL")
            self.machine.kill()

    def stop(self) -> None:
        """Stop the present pod."""
        if self.machine is not None:
            self.note("signal", signal="SIGSTOP")
            self.machine.stop()

    def cont(self) -> None:
        """Let it go on."""
        if self.machine is not None and self.machine.is_stopped:
            self.note("signal", signal="SIGCONT")
            self.machine.cont()

    def term(self) -> None:
        """Ask it to end."""
        if self.machine is not None:
            self.note("signal", signal="SIGTERM")
            self._shutdown.request()
            self._world.start_soon(self._end_anyway, self.machine)

    async def close(self) -> None:
        """Ask it to end, start none again, and wait until it is gone."""
        self._is_closed = True
        self.term()
        with trio.move_on_after(ENDS_WITHIN_S) as patience:
            await self._is_empty.wait()
        if patience.cancelled_caught:
            self._world.problems.append(f"{self.name}.{self.life} did not end when it was told to")

    async def _end_anyway(self, machine: Machine) -> None:
        """What the thread of a real pod does that has not ended: see `cortex.cli.run.serve`."""
        settings = Settings()
        await self._world.sleep(settings.drain_s + settings.close_s + settings.hard_exit_s)
        while self.machine is machine and machine.is_stopped:
            await self._world.sleep(THREAD_S)
        if self.machine is machine and not machine.is_dead:
            self._is_forced = True
            machine.kill()

    def let_weather(self, weather: Weather) -> None:
        """Let this be the way from here to Postgres, whoever lives here."""
        self._weather = weather
        if self.machine is not None:
            self.machine.network.weather = weather

    def note(self, kind: str, **told: Any) -> None:
        """Note something of the present pod."""
        record = f"{self.name}.{self.life}"
        self._world.note(self.name, kind, life=self.life, pid=self.life, record=record, **told)

    async def _live(self) -> None:
        self.life += 1
        self.empty_s = EMPTY_S
        self._is_forced = False
        self._shutdown = Shutdown()
        machine = self.machine = Machine(self._world, f"{self.name}.{self.life}")
        machine.network.weather = self._weather
        self.note("start")
        # A task of its own: the machine's tasks are known by the one that they come from.
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112
            nursery.start_soon(self._pod, machine)

    async def _pod(self, machine: Machine) -> None:
        machine.inhabit()
        code: int | None = -9
        try:
            with machine.scope:
                await run_pod(
                    Settings(),
                    dsn=self._world.server.dsn,
                    parts=self._world.parts,
                    chance=machine.chance,
                    shutdown=self._shutdown,
                    on_ready=self._ready,
                    opens_port=machine.open_port,
                    name=machine.name,
                )
                code = 0
        except BaseException as error:  # noqa: ASYNC103, BLE001 -- judged: raised unless it is dead
            if self._is_forced or not machine.is_dead:
                code = 1
            self._judge(machine, error)
        finally:
            self.machine = None
            self.note("exit", code=code, signals=[])

    def _ready(self, _: Ready) -> None:
        self.note("ready")

    def _judge(self, machine: Machine, error: BaseException) -> None:
        """A dead machine's pod may end by anything; a living one's only for want of Postgres."""
        leaves = list(_leaves(error))
        if any(isinstance(leaf, trio.Cancelled) for leaf in leaves):
            raise error
        if machine.is_dead:
            return
        if any(isinstance(leaf, Killed | SupervisorEscalated) for leaf in leaves) or not all(
            isinstance(leaf, CortexError) for leaf in leaves
        ):
            told = "; ".join(repr(leaf) for leaf in leaves)
            self._world.problems.append(f"pod {machine.name} ended by itself: {told}")


def _leaves(error: BaseException) -> "list[BaseException]":
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
