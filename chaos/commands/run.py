"""`python -m chaos run`: one run by a seed, its scorecard, and an exit code."""

import math
import random
from pathlib import Path
from typing import Any, Final

import click

from chaos.cluster.scale import SCALES
from chaos.commands.carry_out import carry_out
from chaos.commands.own_app import payload_of, place_of
from chaos.plan import (
    DURATION_MAX_S,
    INTENSITY_MAX,
    JOB_TYPE,
    PODS_MAX,
    WORKERS_MAX,
    Options,
    UnknownFaultError,
    make_plan,
)

SEED_MAX: Final = 2**31


class Number(click.FloatRange):
    """A number in a range; rejects `nan`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


@click.command()
@click.option("--seed", type=int, help="Seed of everything random [a new one].")
@click.option("--pods", type=click.IntRange(1, PODS_MAX), default=5, show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    show_default=True,
    help="Processes of each pod; above 1 they are also killed and stopped one by one.",
)
@click.option(
    "--duration",
    type=Number(1, DURATION_MAX_S),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds of load and faults, before the cluster heals and comes to rest.",
)
@click.option("--faults", metavar="NAME,…", help="Only these faults [all].")
@click.option(
    "--intensity",
    type=Number(0, INTENSITY_MAX),
    default=1.0,
    show_default=True,
    help="1: more than one fault per second; 0: none.",
)
@click.option(
    "--scale",
    type=click.Choice(sorted(SCALES)),
    default="scaled",
    show_default=True,
    help="Lease times: scaled down to seconds, or as in production.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="How many are submitted [by the duration]."
)
@click.option(
    "--deploy",
    is_flag=True,
    help="Roll out another release of an application and take it back, with pods killed beside it.",
)
@click.option("--app", metavar="FILE|MODULE", help="Your own application instead of the programs.")
@click.option("--job", "job_type", metavar="TYPE", help="The job type to run; with --app.")
@click.option("--payload", metavar="JSON", default="{}", help="Payload of each job.")
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep history, logs and verdicts in this directory.",
)
def run(
    *,
    seed: int | None,
    pods: int,
    workers: int,
    duration: float,
    faults: str | None,
    intensity: float,
    scale: str,
    jobs: int | None,
    deploy: bool,
    app: str | None,
    job_type: str | None,
    payload: str,
    report: Path | None,
) -> int:
    """Break a cluster while it works, then judge what it did."""
    if (app is None) != (job_type is None):
        raise click.UsageError("--app and --job belong together")
    if deploy and app is not None:
        raise click.UsageError("--deploy has an application of its own: leave out --app")
    names = tuple(filter(None, (faults or "").split(",")))
    if faults is not None and not names:
        raise click.UsageError("--faults is empty; for a run without faults use --intensity 0")
    options = Options(
        seed=random.SystemRandom().randrange(SEED_MAX) if seed is None else seed,
        pods=pods,
        workers=workers,
        duration_s=duration,
        faults=names,
        intensity=intensity,
        scale=scale,
        app=None if app is None else place_of(app),
        job_type=job_type or JOB_TYPE,
        payload=payload_of(payload),
        jobs=jobs,
        deploy=deploy,
    )
    try:
        plan = make_plan(options)
    except UnknownFaultError as error:
        raise click.UsageError(str(error)) from error
    return carry_out(plan, report=report)
