"""F10: packets between pods and the server vanish, one way or both, without an error."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.lines import BUSY, draw_target, free_lines, hit, hits_commit, some_write, taken
from chaos.nemeses.nemesis import Fault


class Blackhole:
    name = "blackhole"
    fault = "F10"
    weight = 5

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        way = dice.choice(["up", "down", "both"])
        return round(dice.uniform(0.3, 8.0), 2), {**draw_target(dice), "way": way}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        lines = free_lines(stage, fault.detail)
        if not lines:
            return BUSY
        way = fault.detail["way"]
        async with taken(lines):
            if fault.detail["writes"]:
                await some_write(lines)
            for line in lines:
                line.blackhole(up=way != "down", down=way != "up")
            windows = await hits_commit(
                lines, for_s=fault.for_s, is_caught=lambda: any(line.is_writing for line in lines)
            )
        return hit(lines, windows)
