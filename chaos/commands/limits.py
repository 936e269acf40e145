"""`python -m chaos limits`: kills pods that run jobs of a type with limits."""

from pathlib import Path
from typing import Final

import click

from chaos.commands.storms import drawn, figures, print_storm, show, storm_options
from chaos.limits.app import OF_ALL, OF_KEY
from chaos.limits.judge import SPREAD_MAX, Verdict, judge
from chaos.limits.storm import Storm, bench_in, storm

DEADLINE_S: Final = 900.0


@click.command()
@click.option("--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True)
@click.option("--keys", type=click.IntRange(1, 1000), default=100, show_default=True)
@storm_options(kills=10)
def limits(*, jobs: int, keys: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill pods that run jobs of a type with limits, at random instants.

    The jobs write down when they begin and end: no limit may be exceeded at any instant, no key may
    starve, and no place may be left.
    """
    instants = drawn(seed)

    def count(number: int) -> None:
        show(f"{number} of {kills} kills")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(
                bench, count=jobs, keys=keys, kills=kills, seed=instants, on_kill=count
            )

    return print_storm(run, judge, table, seed=instants, deadline_s=DEADLINE_S, is_json=is_json)


def table(verdict: Verdict, *, seed: int) -> str:
    """Return the figures, and what is wrong."""
    rows = (
        ("jobs", f"{verdict.jobs:,} of {verdict.keys} keys, in {verdict.runs:,} runs"),
        ("kills", f"{verdict.kills}"),
        ("at once, of a key", f"{verdict.most_of_key}  (at most {OF_KEY})"),
        ("at once, of all", f"{verdict.most_of_all}  (at most {OF_ALL})"),
        ("keys apart", f"{verdict.spread} jobs  (at most {SPREAD_MAX})"),
    )
    return figures(rows, verdict.problems, seed=seed)
