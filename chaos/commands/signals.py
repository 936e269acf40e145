"""`python -m chaos signals`: many signals to many jobs, whose pods are killed meanwhile."""

from pathlib import Path
from typing import Final

import click

from chaos.commands.storms import drawn, figures, print_storm, show, storm_options
from chaos.signals.judge import Verdict, judge
from chaos.signals.storm import WITHIN_S, Storm, bench_in, storm

JOBS: Final = 1_000
SIGNALS: Final = 100_000
KILLS: Final = 20
START_AND_END_S: Final = 120.0


@click.command()
@click.option("--jobs", type=click.IntRange(1, 10_000), default=JOBS, show_default=True)
@click.option(
    "--signals",
    type=click.IntRange(1, 1_000_000),
    default=SIGNALS,
    show_default=True,
    help="To all jobs together, as many to each.",
)
@storm_options(kills=KILLS)
def signals(*, jobs: int, signals: int, kills: int, seed: int | None, is_json: bool) -> int:
    """Send signals to many jobs while pods are killed; each must be received once, in order."""
    if signals % jobs:
        raise click.UsageError(f"{signals} signals are not as many for each of {jobs} jobs")
    instants = drawn(seed)

    def count(received: int, killed: int) -> None:
        show(f"{received} of {signals} received, {killed} kills")

    async def run(folder: Path) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(
                bench, jobs=jobs, signals=signals, kills=kills, seed=instants, on_progress=count
            )

    return print_storm(
        run, judge, table, seed=instants, deadline_s=WITHIN_S + START_AND_END_S, is_json=is_json
    )


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
    return figures(rows, verdict.problems, seed=seed, name_cells=14)
