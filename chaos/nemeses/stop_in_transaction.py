"""F4: a pod is stopped while one of its transactions holds row locks.

The network is slowed down until one is caught, so that transactions last long enough.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from chaos.cluster.pods import Pod
from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage
from chaos.nemeses.lines import taken
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import Caught, Window, inspect

SLOW_S: Final = 0.02
POLL_EVERY_S: Final = 0.002
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
            return NO_TARGET
        lines = [pod.line for pod in pods]
        async with taken(lines):
            for line in lines:
                line.slow(SLOW_S)
            caught = await _catch(stage, pods)
        if caught is None:
            missed = f"no pod locked rows in a transaction within {CAUGHT_WITHIN_S:g} s"
            return {"missed": missed, "windows": []}
        pod = caught.pod
        try:
            await asyncio.sleep(detail["leases"] * stage.settings.zombie_s)
        finally:
            pod.cont()
        return {**hit(stage, detail, pod), "windows": sorted(caught.windows)}


async def _catch(stage: Stage, pods: Sequence[Pod]) -> Caught | None:
    """Stop the first pod that holds row locks; None if that took too long."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + CAUGHT_WITHIN_S
    while loop.time() < give_up_at:
        for pod in filter(_is_in_transaction, pods):
            if (caught := await _stop(stage, pod)) is not None:
                return caught
        await asyncio.sleep(POLL_EVERY_S)
    return None


def _is_in_transaction(pod: Pod) -> bool:
    is_open = any(relay.statements.is_in_transaction for relay in pod.line.relays)
    return is_open and pod.is_alive and not pod.is_stopped


async def _stop(stage: Stage, pod: Pod) -> Caught | None:
    """Stop a pod; let it continue if it turns out to hold no row locks."""
    is_kept = False
    pod.stop()
    try:
        await asyncio.sleep(2 * SLOW_S)  # what it sent before arrives
        windows = (await inspect(stage, pod))[pod.name]
        is_kept = Window.ROW_LOCK in windows
    finally:
        if not is_kept:
            pod.cont()
    return Caught(pod=pod, windows=windows) if is_kept else None
