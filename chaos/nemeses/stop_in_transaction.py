"""F4: a pod is stopped while a transaction of its own holds row locks.

Its network is slowed down until it is caught, so that its transactions last long enough.
"""

import asyncio
import random
from typing import Any, Final

from chaos.cluster.pods import Pod
from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage
from chaos.nemeses.lines import taken
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NOBODY, candidates, draw_place, told
from chaos.windows import Caught, Window, look

SLOW_S: Final = 0.02
LOOK_EVERY_S: Final = 0.002
CAUGHT_WITHIN_S: Final = 6.0


class StopInTransaction:
    name = "stop-in-transaction"
    fault = "F4"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        leases = round(dice.uniform(1.0, 4.0), 2)
        return leases * SCALED.zombie_s, {"place": draw_place(dice), "leases": leases}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: not pod.line.is_taken)
        if not pods:
            return NOBODY
        pod = pods[0]
        async with taken([pod.line]):
            pod.line.slow(SLOW_S)
            caught = await _catch(stage, pod)
        if caught is None:
            missed = f"it locked no rows in a transaction within {CAUGHT_WITHIN_S:g} s"
            return {**told(stage, detail, pod), "missed": missed, "windows": []}
        try:
            await asyncio.sleep(detail["leases"] * stage.settings.zombie_s)
        finally:
            pod.cont()
        return {**told(stage, detail, pod), "windows": sorted(caught.windows)}


async def _catch(stage: Stage, pod: Pod) -> Caught | None:
    """Stop the pod while it holds row locks; None when that did not come to pass in time."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + CAUGHT_WITHIN_S
    while loop.time() < give_up_at and pod.is_alive:
        in_transaction = any(relay.statements.is_in_transaction for relay in pod.line.relays)
        if in_transaction and not pod.is_stopped:
            pod.stop()
            try:
                await asyncio.sleep(2 * SLOW_S)  # what it sent before arrives
                windows = (await look(stage, pod))[pod.name]
            except BaseException:
                pod.cont()
                raise
            if Window.ROW_LOCK in windows:
                return Caught(pod=pod, windows=windows)
            pod.cont()
        await asyncio.sleep(LOOK_EVERY_S)
    return None
