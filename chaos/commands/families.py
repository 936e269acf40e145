"""`python -m chaos families`: kills pods that run jobs with children."""

from pathlib import Path
from typing import Final

import click

from chaos.commands.storms import drawn, figures, print_storm, show, storm_options
from chaos.families.app import AT_ONCE
from chaos.families.judge import Verdict, judge
from chaos.families.storm import Storm, bench_in, storm

DEADLINE_S: Final = 900.0


@click.command()
@click.option("--count", type=click.IntRange(1, 10_000), default=200, show_default=True)
@storm_options(kills=20)
def families(*, count: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill pods that run families of jobs, two levels deep, at random instants.

    Some children fail, some families and branches are cancelled. Each child must have one job, and
    each parent the outcomes of all in order; a cancellation must reach the leaves, and no job may
    be stuck.
    """
    instants = drawn(seed)

    def killed(number: int) -> None:
        show(f"{number} of {kills} kills")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, count=count, kills=kills, seed=instants, on_kill=killed)

    return print_storm(run, judge, table, seed=instants, deadline_s=DEADLINE_S, is_json=is_json)


def table(verdict: Verdict, *, seed: int) -> str:
    """Return the figures, and what is wrong."""
    rows = (
        ("families", f"{verdict.families}, with {verdict.jobs:,} jobs"),
        ("kills", f"{verdict.kills}"),
        ("cancelled", f"{verdict.cancels} families and branches"),
        ("at once, of a map", f"{verdict.most_at_once}  (at most {AT_ONCE})"),
        ("doubled", f"{verdict.doubled}"),
        ("not ended", f"{verdict.open}"),
    )
    return figures(rows, verdict.problems, seed=seed)
