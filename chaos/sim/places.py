"""Where pods and ticks live: places, each with one process after another."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from chaos.sim.host import Scene
from chaos.sim.island import Killed
from chaos.sim.machine import Machine
from chaos.sim.network import FAIR, Weather
from cortex.actors.supervisor import SupervisorEscalated
from cortex.config import Settings
from cortex.domain.classification import leaves
from cortex.domain.errors import CortexError
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.maintenance.runners import RUNNERS
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_ready import Ready
from cortex.runtime.tick_process import TickProcess
from cortex.store.background.runners import TICK

EMPTY_S = 2.0
"""Pause before a pod that has ended by itself is restarted."""
TICK_AGAIN_S: Final = ((0.1, 3.0), (30.0, 600.0))
"""Pause before the next tick: while the storm begins faults, and afterwards."""
TICK_MAX_S: Final = (5.0, 45.0, 480.0)
AMBUSHED_SHARE: Final = 0.4
"""Of the ticks in a storm."""
AMBUSHED_AFTER: Final = 12
"""An ambush comes at this change at the latest."""
THREAD_S = 0.5
"""How often the thread checks whether a stopped machine continues."""
ENDS_WITHIN_S = 75.0
"""A pod that has not ended this long after SIGTERM is at fault."""


class Place:
    """A place has a pod, or will have one soon."""

    happens = ""
    """Begins the names of its events."""

    def __init__(self, world: Scene, name: str) -> None:
        self._world = world
        self.name = name
        self.life = 0
        self.machine: Machine | None = None
        """Where the present pod runs; None if the place is empty."""
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
        """The present pod got SIGTERM, and runs."""
        return (
            self.machine is not None
            and not self.machine.is_stopped
            and self._shutdown.stop.is_set()
        )

    def lie_in_wait(self, action: Callable[[], None]) -> None:
        """Call the action once a statement from here has changed something, before its reply."""
        self._ambush = action

    def spring(self) -> None:
        """Call the waiting action now, if there is one."""
        action, self._ambush = self._ambush, None
        if action is not None:
            action()

    def kill(self) -> None:
        if self.machine is not None:
            self.note("signal", signal="SIGKILL")
            self.machine.kill()

    def stop(self) -> None:
        if self.machine is not None:
            self.note("signal", signal="SIGSTOP")
            self.machine.stop()

    def cont(self) -> None:
        if self.machine is not None and self.machine.is_stopped:
            self.note("signal", signal="SIGCONT")
            self.machine.cont()

    def term(self) -> None:
        """Send it SIGTERM."""
        if self.machine is not None:
            self.note("signal", signal="SIGTERM")
            self._shutdown.request()
            self._world.start_soon(self._end_anyway, self.machine)

    async def close(self) -> None:
        """Send it SIGTERM, start none again, and wait until it is gone."""
        self._is_closed = True
        self.term()
        with trio.move_on_after(ENDS_WITHIN_S) as patience:
            await self._is_empty.wait()
        if patience.cancelled_caught:
            self._world.problems.append(f"{self.name}.{self.life} did not end after SIGTERM")

    async def _end_anyway(self, machine: Machine) -> None:
        """Force the end, as the thread of a real pod does: see `cortex.cli.run.serve`."""
        settings = Settings()
        await self._world.sleep(settings.drain_s + settings.close_s + settings.hard_exit_s)
        while self.machine is machine and machine.is_stopped:
            await self._world.sleep(THREAD_S)
        if self.machine is machine and not machine.is_dead:
            self._is_forced = True
            machine.kill()

    def let_weather(self, weather: Weather) -> None:
        """Make this the network from here to Postgres, for any pod."""
        self._weather = weather
        if self.machine is not None:
            self.machine.network.weather = weather

    def note(self, kind: str, **labels: Any) -> None:
        """Note an event of the present pod."""
        record = f"{self.name}.{self.life}"
        kind = f"{self.happens}{kind}"
        self._world.note(self.name, kind, life=self.life, pid=self.life, record=record, **labels)

    async def _live(self) -> None:
        self.life += 1
        self.empty_s = self._pause_s()
        self._is_forced = False
        self._shutdown = Shutdown()
        machine = self.machine = Machine(self._world, f"{self.name}.{self.life}")
        machine.network.weather = self._weather
        self.note("start")
        self._begins()
        # A separate task: the machine's tasks are recognized by the one that started them.
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112
            nursery.start_soon(self._process, machine)

    def _pause_s(self) -> float:
        """After the present process."""
        return EMPTY_S

    def _begins(self) -> None:
        """A process is about to run."""

    async def _run(self, machine: Machine) -> None:
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

    async def _process(self, machine: Machine) -> None:
        machine.inhabit()
        code: int | None = -9
        try:
            with machine.scope:
                await self._run(machine)
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
        """A dead machine's pod may end by anything; a living one's only for lack of Postgres."""
        ends = leaves(error)
        if any(isinstance(each, trio.Cancelled) for each in ends):
            raise error
        if machine.is_dead:
            return
        if any(isinstance(each, Killed | SupervisorEscalated) for each in ends) or not all(
            isinstance(each, CortexError) for each in ends
        ):
            errors = "; ".join(repr(each) for each in ends)
            self._world.problems.append(f"{machine.name} ended by itself: {errors}")


class TickPlace(Place):
    """A place for one `cortex tick` after another. In a storm, many of them are killed midway."""

    happens = "tick-"

    def __init__(self, world: Scene, name: str) -> None:
        super().__init__(world, name)
        self._dice = random.Random(f"{name} of {world.seed}")

    def _pause_s(self) -> float:
        # A fault may last for minutes after the storm: that many ticks would find nothing new.
        is_late = self._world.clock.now > self._world.plan.storm_s
        return self._dice.uniform(*TICK_AGAIN_S[is_late])

    def _begins(self) -> None:
        is_free = self._ambush is None  # a fault of the storm comes first
        if self._world.is_stormy and self._dice.random() < AMBUSHED_SHARE and is_free:
            self._await_change(self._dice.randint(1, AMBUSHED_AFTER))

    def _await_change(self, nth: int) -> None:
        """Kill it when it has changed something for the nth time."""
        if nth == 1:
            self.lie_in_wait(self.kill)
        else:
            self.lie_in_wait(partial(self._await_change, nth - 1))

    async def _run(self, machine: Machine) -> None:
        world = self._world
        process = TickProcess(
            settings=Settings(tick_max_s=self._dice.choice(TICK_MAX_S)),
            names=tuple(RUNNERS),
            name=f"{TICK}{machine.name}",
            chance=machine.chance,
            ending=self._shutdown,
            parts=world.parts,
            handlers=world.parts.handlers,
            opens_port=machine.open_port,
        )
        await process.run(world.server.dsn)
