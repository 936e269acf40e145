"""`cortex bench …`: one measurement per command, each on a temporary database of its own.

A checkout has more of them, and compares itself with its other commits: `python -m bench`.
"""

from typing import Final

import attrs
import click

from cortex.bench.measurement import WORKERS, Figures, Scratch, measurement, option
from cortex.cli.options import Group

MEASUREMENTS: Final = {
    name: (f"cortex.bench.command:{name}", line)
    for name, line in {
        "throughput": "No-op jobs per second through the whole state machine, one pod.",
        "steps": "Durable steps per second, one pod.",
        "latency": "Time from submit to the start of the handler, idle pod.",
        "client": "What a client costs beside bare SQL, and how soon its waits wake.",
        "takeover": "Time until jobs run again after kill -9 of one of two pods.",
    }.items()
}

bench = Group(
    "bench",
    help="Measure this machine: medians of several runs, each on a temporary database.",
    sections={"Measurements": MEASUREMENTS},
)


@measurement(
    option("--jobs", default=20_000),
    click.option(
        "--backlog",
        is_flag=False,
        flag_value=500_000,
        default=0,
        type=click.IntRange(0),
        help="Number of other jobs that wait behind [500000 if given without a number].",
    ),
    WORKERS,
)
def throughput(scratch: Scratch, *, jobs: int, backlog: int, workers: int) -> Figures:
    """Measure no-op jobs per second through the whole state machine, with history, in one pod."""
    from cortex.bench.throughput import jobs_per_s

    settings = attrs.evolve(scratch.settings, workers=workers)
    return jobs_per_s(scratch.dsn, settings, scratch.log, count=jobs, backlog=backlog)


@measurement(
    option("--jobs", default=1_000),
    option("--steps", default=5, help="Steps per job."),
    WORKERS,
)
def steps(scratch: Scratch, *, jobs: int, steps: int, workers: int) -> Figures:
    """Measure durable steps per second, in one pod."""
    from cortex.bench.throughput import steps_per_s

    settings = attrs.evolve(scratch.settings, workers=workers)
    return steps_per_s(scratch.dsn, settings, scratch.log, job_count=jobs, steps=steps)


@measurement(option("--jobs", default=500))
def latency(scratch: Scratch, *, jobs: int) -> Figures:
    """Measure the time from submit to the start of the handler, on an idle pod."""
    from cortex.bench.latency import latency as measure

    return measure(scratch.dsn, scratch.settings, count=jobs)


@measurement(
    option("--jobs", default=500, help="Single submits; a fifth of them are waited for."),
    option("--bulk", default=10_000, help="Jobs in one call."),
)
def client(scratch: Scratch, *, jobs: int, bulk: int) -> Figures:
    """Measure submits and waits of a client, in asyncio, and bare calls of SQL in turn."""
    from cortex.bench.client import client as measure

    return measure(scratch.dsn, count=jobs, bulk=bulk)


@measurement(option("--jobs", default=50))
def takeover(scratch: Scratch, *, jobs: int) -> Figures:
    """Kill the pod that runs all jobs with SIGKILL; measure when each runs on the other pod."""
    from cortex.bench.takeover import takeover as measure

    return measure(scratch.dsn, scratch.log, count=jobs, settle_s=scratch.settings.settle_s)
