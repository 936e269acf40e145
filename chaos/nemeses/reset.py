"""F11: connections are reset, new ones pass at once; waits for a write if that was drawn."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.lines import BUSY, draw_target, free_lines, hit, some_write, torn_count
from chaos.nemeses.nemesis import Fault
from chaos.windows import Window


class Reset:
    name = "reset"
    fault = "F11"
    weight = 4

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, draw_target(dice)

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        lines = free_lines(stage, fault.detail)
        if not lines:
            return BUSY
        if fault.detail["writes"]:
            await some_write(lines)
        before = torn_count(lines)
        for line in lines:
            line.reset()
        return hit(lines, [Window.COMMIT] if torn_count(lines) > before else [])
