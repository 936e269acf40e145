"""F27: a draining pod gets a second SIGTERM, and must hand back at once."""

import asyncio
import random
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.drain import ends, term
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import inspect

DRAINS: Final = '"event": "draining"'
TOLD_WITHIN_S: Final = 5.0


class SecondTerm:
    name = "second-term"
    fault = "F27"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        after_s = round(dice.uniform(0.0, 1.0), 3)
        return after_s, {"place": draw_place(dice), "after_s": after_s}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: not pod.is_draining)
        if not pods:
            return NO_TARGET
        pod = pods[0]
        await term(stage, pod)
        await asyncio.sleep(detail["after_s"])
        # A process that has not read the first signal yet takes two of the same for one.
        await until(lambda: DRAINS in pod.log or not pod.is_alive, within_s=TOLD_WITHIN_S)
        if not pod.is_alive:
            return {**hit(stage, detail, pod), "missed": "it had ended by then", "windows": []}
        windows = (await inspect(stage, pod))[pod.name]
        began_s = stage.history.now_s
        pod.term()
        took_s = round(stage.history.now_s - began_s, 3) if await ends(stage, pod) else None
        return {**hit(stage, detail, pod), "took_s": took_s, "windows": sorted(windows)}
