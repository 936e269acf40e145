"""F3: a pod is stopped for longer than its lease, and then continues as if nothing had happened."""

import asyncio
import random
from typing import Any

from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, aim_of, candidates, draw_aim, draw_place, hit
from chaos.windows import catch


class Pause:
    name = "stop"
    fault = "F3"
    weight = 5

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        leases = round(dice.uniform(0.5, 4.0), 2)  # short ones must cost it nothing
        detail = {"place": draw_place(dice), "aim": draw_aim(dice), "leases": leases}
        into_drain_s = round(dice.uniform(0.0, 1.0), 3)
        return leases * SCALED.zombie_s, {**detail, "into_drain_s": into_drain_s}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        caught = await catch(
            stage,
            candidates(stage, detail),
            aim=aim_of(detail),
            into_drain_s=detail["into_drain_s"],
        )
        if caught is None:
            return NO_TARGET
        pod = caught.pod
        try:
            await asyncio.sleep(detail["leases"] * stage.settings.zombie_s)
        finally:
            survived = pod.is_alive
            pod.cont()
        windows = sorted(caught.windows)
        return {**hit(stage, detail, pod), "survived": survived, "windows": windows}
