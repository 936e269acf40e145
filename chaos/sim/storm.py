"""Causes the plan's faults of the pods and of Postgres."""

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from chaos.sim.host import Scene
from chaos.sim.network import FAIR, Weather
from chaos.sim.places import Place
from chaos.sim.plan import Fault, Kind

PATIENCE_S: Final = 20.0
"""An ambush waits no longer: then the fault happens whatever the pod does."""


class Storm:
    """The faults of one seed."""

    def __init__(self, world: Scene, places: Mapping[str, Place]) -> None:
        self._world = world
        self._places = places

    async def blow(self) -> None:
        """Cause each fault at its time; return when all are over and healed."""
        async with trio.open_nursery() as nursery:
            for fault in self._world.plan.faults:
                nursery.start_soon(self._happen, fault)
            await self._world.sleep(self._world.plan.storm_s)
        self._world.server.notice(all_=True)

    async def _happen(self, fault: Fault) -> None:
        world = self._world
        await world.sleep(fault.at_s)
        labels = {"number": fault.number, "nemesis": fault.kind.value}
        if fault.kind not in (Kind.OUTAGE, Kind.SKEW, Kind.PAUSE):
            labels["pod"] = fault.place
        detail = {**fault.detail, "for_s": fault.for_s}
        world.note("nemesis", "fault", "invoke", **labels, detail=detail)
        place = self._places[fault.place]
        if fault.is_ambush:
            await self._ambush(fault, place)
        else:
            self._begin(fault, place)
        await world.sleep(fault.for_s)
        self._end(fault, place)
        world.note("nemesis", "fault", **labels, windows=[])

    async def _ambush(self, fault: Fault, place: Place) -> None:
        """Begin when the pod has just changed something and does not know it yet."""
        has_begun = trio.Event()

        def begin() -> None:
            self._begin(fault, place)
            has_begun.set()

        place.lie_in_wait(begin)
        with trio.move_on_after(PATIENCE_S):
            await has_begun.wait()
        if not has_begun.is_set():
            place.spring()

    def _begin(self, fault: Fault, place: Place) -> None:
        world, detail = self._world, fault.detail
        match fault.kind:
            case Kind.KILL:
                place.empty_s = detail["empty_s"]
                place.kill()
            case Kind.TERM:
                place.empty_s = detail["empty_s"]
                place.term()
            case Kind.STOP:
                place.stop()
            case Kind.CUT:
                place.let_weather(Weather(is_cut=True))
            case Kind.DEAF:
                place.let_weather(Weather(unheard=1.0))
            case Kind.LOSS | Kind.SLOW:
                place.let_weather(attrs.evolve(FAIR, **detail))
            case Kind.OUTAGE:
                world.server.go_down()
            case Kind.SKEW:
                world.server.ahead_s += detail["by_s"]
            case Kind.PAUSE:
                world.pace.asleep_until_s = world.clock.now + fault.for_s

    def _end(self, fault: Fault, place: Place) -> None:
        match fault.kind:
            case Kind.STOP:
                place.cont()
            case Kind.CUT | Kind.DEAF | Kind.LOSS | Kind.SLOW:
                place.let_weather(FAIR)
            case Kind.OUTAGE:
                self._world.server.come_back()
            case Kind.KILL | Kind.TERM | Kind.SKEW | Kind.PAUSE:
                pass
