"""F9: commits take place, and their replies never arrive."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.lines import BUSY, draw_target, free_lines, hit, taken
from chaos.nemeses.nemesis import Fault
from chaos.windows import Window


class LoseReply:
    name = "lose-reply"
    fault = "F9"
    weight = 5

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 2.0, {**draw_target(dice), "count": dice.randint(1, 4)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        lines = free_lines(stage, fault.detail)
        if not lines:
            return BUSY
        before = sum(line.lost_reply_count for line in lines)
        async with taken(lines):
            for line in lines:
                line.lose_replies(fault.detail["count"])
            await until(
                lambda: all(line.replies_to_lose <= 0 for line in lines), within_s=fault.for_s
            )
        lost = sum(line.lost_reply_count for line in lines) - before
        return {**hit(lines, [Window.COMMIT] if lost else []), "lost": lost}
