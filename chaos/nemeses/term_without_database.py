"""F27: a pod gets SIGTERM while the server is away, or loses the server while it drains."""

import asyncio
import random
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.drain import ends
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import break_server
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import Window, inspect


class TermWithoutDatabase:
    name = "term-without-database"
    fault = "F27"
    weight = 1

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        apart_s = round(dice.uniform(0.0, 1.0), 3)
        first = dice.choice(["stop", "term"])
        return apart_s, {"place": draw_place(dice), "first": first, "apart_s": apart_s}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: not pod.is_draining)
        if not pods:
            return NO_TARGET
        pod = pods[0]
        windows: set[Window] = set()
        took_s: float | None = None

        async def term_and_stop() -> None:
            nonlocal took_s
            windows.update((await inspect(stage, pod))[pod.name])
            if detail["first"] == "term":
                pod.term()
                await asyncio.sleep(detail["apart_s"])
                windows.update({Window.DRAIN} if pod.is_alive else ())
            began_s = stage.history.now_s
            await stage.postgres.stop("fast")
            if detail["first"] == "stop":
                await asyncio.sleep(detail["apart_s"])
                began_s = stage.history.now_s
                pod.term()
            if await ends(stage, pod):
                took_s = round(stage.history.now_s - began_s, 3)

        answer = await break_server(stage, term_and_stop)
        windows_hit = sorted(windows.union(answer["windows"]))
        return {**hit(stage, detail, pod), **answer, "took_s": took_s, "windows": windows_hit}
