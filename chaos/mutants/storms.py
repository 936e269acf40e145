"""Mutants of limits and of children, and the short storms of their own that expose them.

A storm has no plan of a run: its judge stands for the checkers, under its name.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.families import judge as families_judge
from chaos.families import storm as families_storm
from chaos.limits import judge as limits_judge
from chaos.limits import storm as limits_storm
from chaos.mutants.mutant import Mutant, Patch

STUCK_S: Final = 10.0
"""Without the end of a job, once no pod is killed any more."""


async def _limits(folder: Path, seed: int) -> Sequence[str]:
    async with limits_storm.bench_in(folder) as bench:
        found = await limits_storm.storm(bench, count=800, keys=20, kills=1, seed=seed)
    return limits_judge.judge(found).problems


async def _families(folder: Path, seed: int) -> Sequence[str]:
    async with families_storm.bench_in(folder) as bench:
        found = await families_storm.storm(bench, count=12, kills=1, seed=seed, stuck_s=STUCK_S)
    return families_judge.judge(found).problems


STORMS: Final[Mapping[str, Callable[[Path, int], Awaitable[Sequence[str]]]]] = {
    "limits": _limits,
    "families": _families,
}
"""By name: each returns what its judge found."""
WITHIN_S: Final = 240.0

_LIMITS: Final = "cortex/store/limits.py"
_ADMIT: Final = '    row = await db.fetch_one("limits.admit", limit)\n'


def _forget(table: str) -> str:
    """Return what a pass of limits does first, and should not."""
    return (
        "    async def forget(connection):\n"
        f'        await connection.execute("DELETE FROM cortex_worker.{table}")\n\n'
        "    await db.transact(forget)\n"
    )


MUTANTS: Final = (
    Mutant(
        name="places-forgotten",
        what="each pass of limits forgets the places that are held",
        scene="limits",
        invariant="limits",
        patches=(Patch(_LIMITS, _ADMIT, _forget("limit_hold") + _ADMIT),),
    ),
    Mutant(
        name="turns-forgotten",
        what="each pass of limits forgets whose turn it was: the first keys are served first",
        scene="limits",
        invariant="limits",
        patches=(Patch(_LIMITS, _ADMIT, _forget("limit_cursor") + _ADMIT),),
    ),
    Mutant(
        name="children-uncut",
        what="children of jobs that have ended are not cancelled",
        scene="families",
        invariant="families",
        patches=(
            Patch(
                "cortex/store/children.py",
                'await db.fetch("children.cuts", limit)',
                'await db.fetch("children.cuts", 0)',
            ),
        ),
    ),
    Mutant(
        name="outcomes-disordered",
        what="outcomes of children are recorded in another order than that of the items",
        scene="families",
        invariant="families",
        patches=(
            Patch(
                "cortex/durable/children.py",
                "    for each in ended:\n        known = {",
                "    for each in ended[::-1]:\n        known = {",
            ),
        ),
    ),
)
