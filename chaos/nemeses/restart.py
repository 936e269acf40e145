"""F8: the server is stopped, fast or immediately, and is back some time later."""

import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import break_server


class Restart:
    name = "restart"
    fault = "F8"
    weight = 3

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        down_s = round(dice.choice([0.0, dice.uniform(0.1, 3.0)]), 2)
        return down_s, {"how": dice.choice(["fast", "immediate"]), "down_s": down_s}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        async def stop() -> None:
            await stage.postgres.stop(fault.detail["how"])

        return await break_server(stage, stop, down_s=fault.detail["down_s"])
