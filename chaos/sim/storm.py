"""What happens to the pods and to Postgres, as the plan has it."""

from typing import TYPE_CHECKING

import attrs
import trio

from chaos.sim.network import FAIR, Weather
from chaos.sim.plan import Fault, Kind

if TYPE_CHECKING:
    from chaos.sim.places import Place
    from chaos.sim.world import World


class Storm:
    """The faults of one seed."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def blow(self) -> None:
        """Let each fault happen at its time; return when all are over and healed."""
        async with trio.open_nursery() as nursery:
            for fault in self._world.plan.faults:
                nursery.start_soon(self._happen, fault)
            await self._world.sleep(self._world.plan.storm_s)
        self._world.server.notice(all_=True)

    async def _happen(self, fault: Fault) -> None:
        world = self._world
        await world.sleep(fault.at_s)
        told = {"number": fault.number, "nemesis": fault.kind.value}
        if fault.kind not in (Kind.OUTAGE, Kind.SKEW, Kind.PAUSE):
            told["pod"] = fault.place
        detail = {**fault.detail, "for_s": fault.for_s}
        world.note("nemesis", "fault", "invoke", **told, detail=detail)
        await self._inject(fault, world.places[fault.place])
        world.note("nemesis", "fault", **told, windows=[])

    async def _inject(self, fault: Fault, place: "Place") -> None:
        world = self._world
        if fault.is_ambush:
            await self._ambush(place)
        match fault.kind:
            case Kind.KILL:
                place.empty_s = fault.detail["empty_s"]
                place.kill()
            case Kind.TERM:
                place.empty_s = fault.detail["empty_s"]
                place.term()
            case Kind.STOP:
                place.stop()
                await world.sleep(fault.for_s)
                place.cont()
            case Kind.CUT:
                await self._weather(fault, place, Weather(is_cut=True))
            case Kind.LOSS | Kind.SLOW:
                await self._weather(fault, place, attrs.evolve(FAIR, **fault.detail))
            case Kind.DEAF:
                await self._weather(fault, place, Weather(unheard=1.0))
            case Kind.OUTAGE:
                world.server.go_down()
                await world.sleep(fault.for_s)
                world.server.come_back()
            case Kind.SKEW:
                world.server.ahead_s += fault.detail["by_s"]
            case Kind.PAUSE:
                world.pace.asleep_until_s = world.clock.now + fault.for_s

    async def _weather(self, fault: Fault, place: "Place", weather: Weather) -> None:
        """Let it hold for its time, whoever lives there."""
        place.let_weather(weather)
        await self._world.sleep(fault.for_s)
        place.let_weather(FAIR)
