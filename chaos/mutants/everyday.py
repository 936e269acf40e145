"""Tries a broken tree with an ordinary run and some seeds of the simulation.

Scenes are made for their mutants. This shows what the everyday proofs alone would have caught.
"""

import re
from pathlib import Path
from typing import Final

from chaos.mutants.program import run_program

EVERYDAY: Final = "everyday"
"""Stands for a scene."""
SHARE_WANTED: Final = 0.9
"""Of all mutants."""
RUN: Final = ("run",)
SEEDS_COUNT: Final = 20
WITHIN_S: Final = 600.0

_BROKEN: Final = re.compile(r"^  (I\d+) +BROKEN +\d+  (.+)$", re.MULTILINE)
_STUCK: Final = re.compile(r"^  STUCK: (.+)$", re.MULTILINE)
_SEED: Final = re.compile(r"^(seed \d+): (I\d+)?(.+)$", re.MULTILINE)


async def try_everyday(seed: int, tree: Path) -> dict[str, list[str]]:
    """Return what broke, by rule; the simulation runs only if the run found nothing.

    Raises `BrokenTrialError` if a trial did not run.
    """
    chaos = ("-m", "chaos")
    storm = (*chaos, *RUN, "--seed", str(seed), "--report", str(tree / "report"))
    out = await run_program(storm, tree, within_s=WITHIN_S, codes=(0, 1))
    broken = {name: [claim] for name, claim in _BROKEN.findall(out)}
    if stuck := _STUCK.search(out):
        broken["stuck"] = [stuck[1]]
    if broken:
        return broken
    first = seed * SEEDS_COUNT
    seeds = f"{first}:{first + SEEDS_COUNT}"
    simulation = (*chaos, "sim", "--seeds", seeds, "--brief", "--workers", "1")
    out = await run_program(simulation, tree, within_s=WITHIN_S, codes=(0, 1))
    for number, rule, problem in _SEED.findall(out):
        broken.setdefault(f"sim {rule or 'world'}", []).append(f"{number}: {problem.strip()}")
    return broken
