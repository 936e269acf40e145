"""F13: a pod gets almost no processor time, as on an overcommitted machine."""

import asyncio
import random
from signal import SIGCONT, SIGSTOP
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit

PERIOD_S: Final = 0.1


class Starve:
    name = "starve"
    fault = "F13"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"place": draw_place(dice), "share": round(dice.uniform(0.02, 0.2), 3)}
        return round(dice.uniform(1.0, 4.0), 2), detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: not pod.is_stopped)
        if not pods:
            return NO_TARGET
        pod = pods[0]
        runs_s = detail["share"] * PERIOD_S
        ends_at = asyncio.get_running_loop().time() + fault.for_s
        pod.is_stopped = True  # keeps other faults from continuing it
        try:
            while pod.is_alive and asyncio.get_running_loop().time() < ends_at:
                pod.send(SIGSTOP)
                await asyncio.sleep(PERIOD_S - runs_s)
                pod.send(SIGCONT)
                await asyncio.sleep(runs_s)
        finally:
            pod.cont()
        return {**hit(stage, detail, pod), "windows": []}
