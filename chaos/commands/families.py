"""`python -m chaos families`: kills pods that run jobs with children."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Final

import click
from attrs import asdict

from chaos.cluster.guard import guarded_folder
from chaos.families.app import AT_ONCE
from chaos.families.judge import Verdict, judge
from chaos.families.storm import Storm, bench_in, storm

DEADLINE_S: Final = 900.0
FAILED: Final = 1


@click.command()
@click.option("--count", type=click.IntRange(1, 10_000), default=200, show_default=True)
@click.option(
    "--kills",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="How many pods die.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Draws the instants [a random one].")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def families(*, count: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill pods that run families of jobs, two levels deep, at random instants.

    Some children fail, some families and branches are cancelled. Each child must have one job, and
    each parent the outcomes of all in order; a cancellation must reach the leaves, and no job may
    be stuck.
    """
    drawn = random.SystemRandom().randrange(2**32) if seed is None else seed

    def show(number: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {kills} kills\033[K")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, count=count, kills=kills, seed=drawn, on_kill=show)

    with guarded_folder(deadline_s=DEADLINE_S) as folder:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            verdict = judge(runner.run(run(folder)))
    if is_json:
        sys.stdout.write(json.dumps({"seed": drawn, **asdict(verdict)}) + "\n")
    else:
        sys.stdout.write(table(verdict, seed=drawn))
    return 0 if verdict.is_good else FAILED


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
    lines = [f"seed {seed}", "", *(f"  {name:<20}  {text}" for name, text in rows)]
    lines += ["", *(f"  {each}" for each in verdict.problems)] if verdict.problems else []
    return "\n".join(["", *lines, ""])
