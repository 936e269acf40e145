"""F11: everything between pods and the server is delayed."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.lines import BUSY, draw_target, free_lines, hit, hits_commit, taken
from chaos.nemeses.nemesis import Fault


class Slow:
    name = "slow"
    fault = "F11"
    weight = 3

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        delay_s = round(dice.choice([0.02, 0.1, 0.2, 0.5, 2.0]) * dice.uniform(0.5, 1.5), 3)
        return round(dice.uniform(1.0, 6.0), 2), {**draw_target(dice), "delay_s": delay_s}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        lines = free_lines(stage, fault.detail)
        if not lines:
            return BUSY
        async with taken(lines):
            for line in lines:
                line.slow(fault.detail["delay_s"])
            windows = await hits_commit(lines, for_s=fault.for_s)
        return hit(lines, windows)
