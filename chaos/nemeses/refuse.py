"""F11: connections are cut, and no new ones are accepted for a while."""

import asyncio
import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.lines import BUSY, draw_target, free_lines, hit, some_write, taken, torn_count
from chaos.nemeses.nemesis import Fault
from chaos.windows import Window


class Refuse:
    name = "refuse"
    fault = "F11"
    weight = 3

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return round(dice.uniform(0.2, 5.0), 2), draw_target(dice)

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        lines = free_lines(stage, fault.detail)
        if not lines:
            return BUSY
        before = torn_count(lines)
        async with taken(lines):
            if fault.detail["writes"]:
                await some_write(lines)
            for line in lines:
                line.refuse()
            torn = torn_count(lines) - before
            await asyncio.sleep(fault.for_s)
        return hit(lines, [Window.COMMIT] if torn else [])
