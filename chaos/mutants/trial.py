"""One scene in the tree that contains this file; prints one line of JSON.

    python -m chaos.mutants.trial SCENE SEED [REPORT]

It ends by itself, and takes everything that it started along.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chaos.checkers.verdict import Result
from chaos.cluster.guard import guarded_folder
from chaos.mutants.scenes import SCENES, Scene
from chaos.mutants.storms import STORMS, WITHIN_S
from chaos.report.keep import keep, keep_broken
from chaos.run import Outcome, run

START_AND_END_S: Final = 120.0
"""On a busy machine; five on an idle one."""
WHY_MAX: Final = 3


def main(name: str, seed: str, report: str | None = None) -> None:
    """Run it; raises whatever keeps it from running at all."""
    if name in STORMS:
        _storm(name, int(seed))
        return
    scene = SCENES[name]
    plan = scene.plan(int(seed))
    deadline_s = plan.options.duration_s + scene.quiet_within_s + START_AND_END_S
    with guarded_folder(deadline_s=deadline_s) as folder:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                outcome = runner.run(run(plan, folder=folder, conditions=scene.conditions))
        except BaseException as error:
            if report is not None:
                keep_broken(error, plan, folder, Path(report))
            raise
        if report is not None:
            keep(outcome, folder, Path(report))
    sys.stdout.write(json.dumps(summary(scene, outcome)) + "\n")


def _storm(name: str, seed: int) -> None:
    """Run a storm of its own, which keeps no report."""
    with guarded_folder(deadline_s=WITHIN_S + START_AND_END_S) as folder:

        async def storm() -> Sequence[str]:
            async with asyncio.timeout(WITHIN_S):
                return await STORMS[name](folder, seed)

        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            problems = runner.run(storm())
    invalid = {name: problems[:WHY_MAX]} if problems else {}
    sys.stdout.write(json.dumps({"scene": name, "invalid": invalid, "stuck": None}) + "\n")


def summary(scene: Scene, outcome: Outcome) -> dict[str, Any]:
    """What the hunt needs."""
    invalid = [each for each in outcome.verdicts if each.result is Result.INVALID]
    return {
        "scene": scene.name,
        "invalid": {each.invariant: each.why[:WHY_MAX] for each in invalid},
        "stuck": outcome.stuck,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
