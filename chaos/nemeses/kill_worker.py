"""F1: SIGKILL ends a worker of a pod, all of its workers, or all of its processes at once."""

import random
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import inspect

WHOM: Final = {"one": 6, "all": 2, "pod": 2}
"""How often each is drawn. A fault of all pods kills the parent alone: its workers end with it."""


class KillWorker:
    name = "kill-worker"
    fault = "F1"
    weight = 10

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        whom = dice.choices(list(WHOM), list(WHOM.values()))[0]
        return 0.0, {"place": draw_place(dice), "nth": dice.randrange(60), "whom": whom}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: bool(pod.workers()))
        if not pods:
            return NO_TARGET
        pod = pods[0]
        windows = sorted((await inspect(stage, pod))[pod.name])
        workers = pod.workers()
        if not workers:
            return NO_TARGET  # another fault ended it meanwhile
        if detail["whom"] == "one":
            workers = [workers[detail["nth"] % len(workers)]]
        if detail["whom"] == "pod":
            pod.kill()
        for pid in workers:
            pod.kill_worker(pid)
        return {**hit(stage, detail, pod), "killed": len(workers), "windows": windows}
