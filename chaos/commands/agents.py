"""`python -m chaos agents`: kills the pods of an agent with MCP servers at random instants."""

from pathlib import Path
from typing import Final

import click

from chaos.agents.judge import Verdict, judge
from chaos.agents.storm import Storm, bench_in, storm
from chaos.commands.storms import drawn, figures, print_storm, show, storm_options

DEADLINE_S: Final = 1800.0
KILLS: Final = 50


@click.command()
@storm_options(kills=KILLS, kills_min=1)
def agents(*, kills: int, seed: int | None, is_json: bool) -> int:
    """Kill the pods of 30-turn agents with three MCP servers at random instants.

    Counts calls of the model that were paid twice, but for the one under way at each kill, and
    effects that were doubled.
    """
    instants = drawn(seed)

    def count(number: int) -> None:
        show(f"{number} of {kills} kills")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, kills=kills, seed=instants, on_kill=count)

    return print_storm(run, judge, table, seed=instants, deadline_s=DEADLINE_S, is_json=is_json)


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
    return figures(rows, verdict.problems, seed=seed)
