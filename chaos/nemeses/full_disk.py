"""F19: the data's disk is full, SQLSTATE 53100; the write-ahead log lies elsewhere."""

import asyncio
import random
from typing import Any

from chaos.cluster import disk
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import to_its_end
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import back

LOG_TEXT = "No space left on device"
NO_DISK: dict[str, Any] = {"missed": "the run has no disk of its own to fill", "windows": []}


class FullDisk:
    name = "full-disk"
    fault = "F19"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return round(dice.uniform(0.5, 5.0), 2), {}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        full = stage.disk
        if full is None:
            return NO_DISK
        if full.is_filled:
            return {"missed": "it is full already", "windows": []}
        before = stage.postgres.log.count(LOG_TEXT)
        try:
            taken = full.fill()
            await asyncio.sleep(fault.for_s)
        finally:
            full.free()
            await _up_again(stage)
        refused = stage.postgres.log.count(LOG_TEXT) - before
        return {"taken_bytes": taken, "refused": max(0, refused), "windows": []}


async def _up_again(stage: Stage) -> None:
    """Restart a server that gave up because it had to recover meanwhile."""
    if not stage.postgres.switch.locked():
        async with stage.postgres.switch:
            await to_its_end(back(stage))


def missing() -> str | None:
    """Why it does not work on this machine; None if it does."""
    return disk.missing()
