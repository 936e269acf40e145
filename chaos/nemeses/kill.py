"""F1: SIGKILL ends a pod, inside a window if possible."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, aim_of, candidates, draw_aim, draw_place, hit
from chaos.windows import catch


class Kill:
    name = "kill"
    fault = "F1"
    weight = 8

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"place": draw_place(dice), "aim": draw_aim(dice)}
        return 0.0, {**detail, "into_drain_s": round(dice.uniform(0.0, 1.0), 3)}

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
        caught.pod.kill()
        return {**hit(stage, detail, caught.pod), "windows": sorted(caught.windows)}
