"""`python -m chaos signals`: many signals to many jobs, whose pods are killed meanwhile."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Final

import click
from attrs import asdict

from chaos.cluster.guard import guarded_folder
from chaos.signals.judge import Verdict, judge
from chaos.signals.storm import WITHIN_S, Storm, bench_in, storm

JOBS: Final = 1_000
SIGNALS: Final = 100_000
KILLS: Final = 20
START_AND_END_S: Final = 120.0
FAILED: Final = 1


@click.command()
@click.option("--jobs", type=click.IntRange(1, 10_000), default=JOBS, show_default=True)
@click.option(
    "--signals",
    type=click.IntRange(1, 1_000_000),
    default=SIGNALS,
    show_default=True,
    help="To all jobs together, as many to each.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, 1000),
    default=KILLS,
    show_default=True,
    help="How many pods die.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Draws the instants [a random one].")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def signals(*, jobs: int, signals: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Send signals to many jobs while pods are killed; each must be received once, in order."""
    if signals % jobs:
        raise click.UsageError(f"{signals} signals are not as many for each of {jobs} jobs")
    drawn = random.SystemRandom().randrange(2**32) if seed is None else seed

    def count(received: int, killed: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{received} of {signals} received, {killed} kills\033[K")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(
                bench, jobs=jobs, signals=signals, kills=kills, seed=drawn, on_progress=count
            )

    with guarded_folder(deadline_s=WITHIN_S + START_AND_END_S) as folder:
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
        ("jobs", f"{verdict.jobs}, taken {verdict.attempts} times by a pod"),
        ("kills", f"{verdict.kills}"),
        ("sent", f"{verdict.sent}  ({verdict.repeated} of them again, under the same key)"),
        ("received", f"{verdict.received}  ({verdict.took_s:.0f} s)"),
        ("lost", f"{verdict.lost}"),
        ("doubled", f"{verdict.doubled}"),
        ("out of order", f"{verdict.disordered} jobs"),
    )
    lines = [f"seed {seed}", "", *(f"  {name:<14}  {text}" for name, text in rows)]
    lines += ["", *(f"  {each}" for each in verdict.problems)] if verdict.problems else []
    return "\n".join(["", *lines, ""])
