"""F27: a pod gets SIGTERM, or all of them one after the other, as in a rolling deployment."""

import asyncio
import contextlib
import random
from typing import Any, Final

from chaos.cluster.pods import Pod
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, jobs_of
from chaos.windows import Window, inspect

SPARE_S: Final = 5.0
"""How much longer than drain and close together an end may take before it counts as late."""
READY_WITHIN_S: Final = 15.0
CLAIMS_WITHIN_S: Final = 10.0
"""A pod that has not claimed by then drains all the same."""
BUSY_EVERY_S: Final = 0.02
CLAIMS_EVERY_S: Final = 0.001
"""A claim takes many of these, and looking at the line costs nothing."""


class Drain:
    name = "drain"
    fault = "F27"
    weight = 4

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, {"place": draw_place(dice), "rolls": dice.random() < 0.15}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        pods = candidates(stage, fault.detail, fits=lambda pod: not pod.is_draining)
        if not pods:
            return NO_TARGET
        chosen = pods if fault.detail["rolls"] else pods[:1]
        windows: set[Window] = set()
        took_s = {}
        for pod in chosen:
            if pod.is_draining or not pod.is_alive:
                continue  # another fault ended it
            windows |= await term(stage, pod, in_claim=fault.detail.get("in_claim", False))
            began_s = stage.history.now_s
            is_ended = await ends(stage, pod)
            took_s[pod.title] = round(stage.history.now_s - began_s, 3) if is_ended else None
            if pod is not chosen[-1]:
                await next_is_ready(stage, pod)
        names = [title.partition(".")[0] for title in took_s]
        return {"pods": names, "took_s": took_s, "windows": sorted(windows)}


async def term(stage: Stage, pod: Pod, *, in_claim: bool = False) -> set[Window]:
    """Send SIGTERM; return the windows that the pod was in, except for a drain.

    `in_claim`: while the pod has jobs, and claims more.
    """
    if in_claim:
        await _is_busy(stage, pod)
    windows = (await inspect(stage, pod))[pod.name]
    if in_claim:
        await until(lambda: pod.line.is_claiming, within_s=CLAIMS_WITHIN_S, every_s=CLAIMS_EVERY_S)
    pod.term()
    return set(windows) - {Window.DRAIN}


async def ends(stage: Stage, pod: Pod) -> bool:
    """Whether it ends in the time that its settings give it."""
    within_s = stage.settings.drain_s + stage.settings.close_s + SPARE_S
    return await until(lambda: not pod.is_alive, within_s=within_s)


async def _is_busy(stage: Stage, pod: Pod) -> None:
    """Wait until the pod runs a job."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLAIMS_WITHIN_S):
            while not await jobs_of(stage, pod):  # noqa: ASYNC110 -- no event
                await asyncio.sleep(BUSY_EVERY_S)


async def next_is_ready(stage: Stage, before: Pod) -> None:
    """Wait until the pod after this one is ready, or should have been."""
    (place,) = [each for each in stage.pods_kept.places if each.name == before.name]

    def is_ready() -> bool:
        return place.pod is not None and place.pod is not before and place.pod.ready is not None

    await until(is_ready, within_s=READY_WITHIN_S)
