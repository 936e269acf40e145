"""`python -m chaos sim`: simulates seeds, reports which broke a rule, and how to repeat them."""

import os
import re
import time
from pathlib import Path
from typing import Any, Final

import click

from chaos.cluster.guard import guarded_folder
from chaos.sim.crew import SEED_MAX_S, Mode, WorkerDiedError, simulate
from chaos.sim.outcome import Outcome
from chaos.sim.plan import make_plan

RANGE: Final = re.compile(r"(\d+)(?::(\d+))?")
START_S: Final = 120.0
SHOWN_MAX: Final = 3
"""Problems shown per seed; the first one is usually the cause."""
SHOWN_CHARS_MAX: Final = 600


class Seeds(click.ParamType[range]):
    """`7` is one seed, `0:200` is seeds 0 to 199."""

    name = "A:B"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        if isinstance(value, range):
            return value
        match = RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is neither a seed nor a range such as 0:200", param, ctx)
        first = int(match[1])
        seeds = range(first, first + 1 if match[2] is None else int(match[2]))
        if not seeds:
            self.fail(f"{value!r} is empty", param, ctx)
        return seeds


@click.command()
@click.option("--seeds", type=Seeds(), default="0:20", show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes at the same time [one per processor].",
)
@click.option(
    "--brief",
    "is_brief",
    is_flag=True,
    help="Shorten the calm after a storm from hours to minutes.",
)
@click.option(
    "--repeat", is_flag=True, help="Run each seed twice, and compare everything that happened."
)
@click.option(
    "--transcript",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write everything that happens in one seed to this file, one line each.",
)
@click.option("-v", "--verbose", is_flag=True, help="Report every seed, not only those that fail.")
def sim(
    *,
    seeds: range,
    workers: int | None,
    is_brief: bool,
    repeat: bool,
    transcript: Path | None,
    verbose: bool,
) -> int:
    """Simulate pods on a virtual clock, with real Postgres."""
    if transcript is not None and (len(seeds) > 1 or repeat):
        raise click.UsageError("--transcript needs a single seed, run once")
    mode: Mode = "keep" if transcript is not None else "repeat" if repeat else "run"
    began = time.perf_counter()
    outcomes = []
    at_once = min(len(seeds), workers or os.cpu_count() or 1)
    with guarded_folder(deadline_s=START_S + SEED_MAX_S * len(seeds) / at_once) as folder:
        try:
            for outcome in simulate(
                seeds, folder=folder, workers=at_once, mode=mode, is_brief=is_brief
            ):
                outcomes.append(outcome)
                _report(outcome, is_brief=is_brief, is_verbose=verbose)
        except WorkerDiedError as error:
            raise click.ClickException(str(error)) from error
    if transcript is not None:
        transcript.write_text("\n".join([*outcomes[0].lines, ""]), "utf-8")
    _sum_up(outcomes, took_s=time.perf_counter() - began)
    return 1 if any(outcome.problems for outcome in outcomes) else 0


def _report(outcome: Outcome, *, is_brief: bool, is_verbose: bool) -> None:
    if not outcome.problems:
        if is_verbose:
            hours = _pod_hours(outcome)
            figures = f"{hours:.1f} pod-hours, {outcome.line_count} events"
            print(f"seed {outcome.seed}: ok, {figures}, {outcome.took_s:.1f} s", flush=True)
        return
    problems = [" ".join(problem.split())[:SHOWN_CHARS_MAX] for problem in outcome.problems]
    if len(problems) > SHOWN_MAX:
        problems[SHOWN_MAX:] = [f"and {len(problems) - SHOWN_MAX} more"]
    which = f"--seeds {outcome.seed}{' --brief' if is_brief else ''}"
    again = f"python -m chaos sim {which} --transcript seed-{outcome.seed}.txt"
    print(f"seed {outcome.seed}: {' | '.join(problems)}\n    again: {again}", flush=True)


def _sum_up(outcomes: list[Outcome], *, took_s: float) -> None:
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    hours = sum(map(_pod_hours, outcomes))
    lines = sum(outcome.line_count for outcome in outcomes)
    print(
        f"{len(outcomes)} seeds, {failed} failed; {hours:.1f} pod-hours in {took_s:.0f} s, "
        f"{60 * hours / took_s:.0f} a minute; {lines} events"
    )


def _pod_hours(outcome: Outcome) -> float:
    return len(make_plan(outcome.seed).pods) * outcome.virtual_s / 3600
