"""`python -m chaos agents`: kills the pods of an agent with MCP servers at random instants."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Final

import click
from attrs import asdict

from chaos.agents.judge import Verdict, judge
from chaos.agents.storm import Storm, bench_in, storm
from chaos.cluster.guard import guarded_folder

DEADLINE_S: Final = 1800.0
KILLS: Final = 50
FAILED: Final = 1


@click.command()
@click.option(
    "--kills",
    type=click.IntRange(1, 1000),
    default=KILLS,
    show_default=True,
    help="How many pods die.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Draws the instants [a random one].")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def agents(*, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill the pods of 30-turn agents with three MCP servers at random instants.

    Counts calls of the model that were paid twice, but for the one under way at each kill, and
    effects that were doubled.
    """
    drawn = random.SystemRandom().randrange(2**32) if seed is None else seed

    def count(number: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {kills} kills\033[K")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, kills=kills, seed=drawn, on_kill=count)

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
        ("agents", f"{verdict.agents}  (30 turns, 3 MCP servers)"),
        ("kills", f"{verdict.kills}"),
        ("model calls", f"{verdict.calls}"),
        ("under way at a kill", f"{verdict.repeated}, made again"),
        ("paid twice", f"{len(verdict.paid_twice)}"),
        ("effects", f"{verdict.effects}  ({verdict.resolved} looked up by a person)"),
        ("doubled", f"{len(verdict.doubled)}"),
        ("missing", f"{len(verdict.missing)}"),
    )
    lines = [f"seed {seed}", "", *(f"  {name:<20}  {text}" for name, text in rows)]
    lines += ["", *(f"  {each}" for each in verdict.problems)] if verdict.problems else []
    return "\n".join(["", *lines, ""])
