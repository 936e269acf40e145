"""F3: one worker of a pod is stopped for longer than its lease, the others go on."""

import asyncio
import random
from typing import Any

from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import inspect


class StopWorker:
    name = "stop-worker"
    fault = "F3"
    weight = 6

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        leases = round(dice.uniform(0.5, 4.0), 2)
        detail = {"place": draw_place(dice), "nth": dice.randrange(60), "leases": leases}
        return leases * SCALED.zombie_s, detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(
            stage, detail, fits=lambda pod: bool(pod.workers()) and not pod.stopped_workers
        )
        if not pods:
            return NO_TARGET
        pod = pods[0]
        workers = pod.workers()
        pid = workers[detail["nth"] % len(workers)]
        pod.stop_worker(pid)
        try:
            windows = sorted((await inspect(stage, pod))[pod.name])
            await asyncio.sleep(detail["leases"] * stage.settings.zombie_s)
        finally:
            survived = pid in pod.workers()
            pod.cont_worker(pid)
        return {**hit(stage, detail, pod), "survived": survived, "windows": windows}
