"""`python -m chaos limits`: kills pods that run jobs of a type with limits."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Final

import click
from attrs import asdict

from chaos.cluster.guard import guarded_folder
from chaos.limits.app import OF_ALL, OF_KEY
from chaos.limits.judge import SPREAD_MAX, Verdict, judge
from chaos.limits.storm import Storm, bench_in, storm

DEADLINE_S: Final = 900.0
FAILED: Final = 1


@click.command()
@click.option("--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True)
@click.option("--keys", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option(
    "--kills",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="How many pods die.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Draws the instants [a random one].")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def limits(*, jobs: int, keys: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill pods that run jobs of a type with limits, at random instants.

    The jobs write down when they begin and end: no limit may be exceeded at any instant, no key may
    starve, and no place may be left.
    """
    drawn = random.SystemRandom().randrange(2**32) if seed is None else seed

    def count(number: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {kills} kills\033[K")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, count=jobs, keys=keys, kills=kills, seed=drawn, on_kill=count)

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
        ("jobs", f"{verdict.jobs:,} of {verdict.keys} keys, in {verdict.runs:,} runs"),
        ("kills", f"{verdict.kills}"),
        ("at once, of a key", f"{verdict.most_of_key}  (at most {OF_KEY})"),
        ("at once, of all", f"{verdict.most_of_all}  (at most {OF_ALL})"),
        ("keys apart", f"{verdict.spread} jobs  (at most {SPREAD_MAX})"),
    )
    lines = [f"seed {seed}", "", *(f"  {name:<20}  {text}" for name, text in rows)]
    lines += ["", *(f"  {each}" for each in verdict.problems)] if verdict.problems else []
    return "\n".join(["", *lines, ""])
