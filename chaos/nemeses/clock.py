"""F26: a pod restarts with a wall clock that is minutes off; its monotonic clock is right."""

import random
from pathlib import Path
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.replacing import free_places, replaced
from chaos.nemeses.target import NO_TARGET, draw_place, hit
from chaos.windows import inspect

SKEWS_S: Final = (-600, -60, 60, 600)


class Clock:
    name = "clock"
    fault = "F26"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"place": draw_place(dice), "skew_s": dice.choice(SKEWS_S)}
        return round(dice.uniform(3.0, 10.0), 2), detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        library, places = _library(), free_places(stage, detail)
        if library is None or not places:
            return NO_TARGET
        place, before = places[0]
        windows = sorted((await inspect(stage, before))[before.name])
        environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{detail['skew_s']:+d}s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        async with replaced(place, before, environment) as after:
            skewed = after.pod
            if skewed is not None:
                await until(lambda: not skewed.is_alive, within_s=fault.for_s)
        missed = {} if skewed is not None else {"missed": "no pod was started in time"}
        return {**hit(stage, detail, before), **missed, "windows": windows}


def missing() -> str | None:
    """Why it does not work on this machine; None if it does."""
    return None if _library() else "libfaketime is not installed"


def _library() -> Path | None:
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
