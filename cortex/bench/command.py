"""`cortex bench …`: one measurement per command, each on a temporary database of its own."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.target import database, settings_from
from cortex.config import Settings
from cortex.domain.errors import UsageError
from cortex.postgres.scratch import scratch_database

Figures = dict[str, Any]

bench = Group(
    "bench",
    help="Measure this machine: medians of several runs, each on a temporary database.",
    sections={
        "Measurements": {
            name: (f"cortex.bench.command:{name}", line)
            for name, line in {
                "throughput": ("No-op jobs per second through the whole state machine, one pod."),
                "steps": "Durable steps per second, one pod.",
                "latency": "Time from submit to the start of the handler, idle pod.",
                "growth": ("Cost of the last steps of a long job, compared with its first ones."),
                "streams": "Many jobs that stream from a scripted model at once, one pod.",
                "calls": ("Model calls per second with breaker, costs and budgets, one pod."),
                "retries": "Jobs per second that fail once and are retried, one pod.",
                "approvals": ("Time from a person's decision until the job runs again, idle pod."),
                "takeover": "Time until jobs run again after kill -9 of one of two pods.",
                "startup": "Time from `cortex up` to ready, embedded database.",
                "abuse": (
                    "Job latency while clients abuse the HTTP API; exits with 1 if a bar is missed."
                ),
                "tui": "The terminal UI against its bars; exits with 1 if one is missed.",
            }.items()
        }
    },
)

TUI_PARTS: Final = ("start", "lists", "idle", "changes", "events", "memory", "tokens")
"""In this order: the last part creates a job that is newer than the numbered ones."""
AT_LEAST_ONE: Final = click.IntRange(1)
REPEAT: Final = click.option(
    "--repeat",
    default=3,
    show_default=True,
    type=AT_LEAST_ONE,
    help="Number of runs; the median is shown.",
)


@click.command(cls=Command)
@click.option("--jobs", default=20_000, show_default=True, type=AT_LEAST_ONE)
@click.option(
    "--backlog",
    is_flag=False,
    flag_value=500_000,
    default=0,
    type=click.IntRange(0),
    help="Number of other jobs that wait behind [500000 if given without a number].",
)
@REPEAT
@click.pass_obj
def throughput(options: Options, jobs: int, backlog: int, repeat: int) -> None:
    """Measure no-op jobs per second through the whole state machine, with history, in one pod."""
    from cortex.bench.throughput import jobs_per_s

    _run(
        options,
        repeat,
        lambda dsn, settings, _: jobs_per_s(dsn, settings, count=jobs, backlog=backlog),
    )


@click.command(cls=Command)
@click.option("--jobs", default=1_000, show_default=True, type=AT_LEAST_ONE)
@click.option(
    "--steps",
    "step_count",
    default=5,
    show_default=True,
    type=AT_LEAST_ONE,
    help="Steps per job.",
)
@REPEAT
@click.pass_obj
def steps(options: Options, jobs: int, step_count: int, repeat: int) -> None:
    """Measure durable steps per second, in one pod."""
    from cortex.bench.throughput import steps_per_s

    _run(
        options,
        repeat,
        lambda dsn, settings, _: steps_per_s(dsn, settings, job_count=jobs, steps=step_count),
    )


@click.command(cls=Command)
@click.option("--jobs", default=500, show_default=True, type=AT_LEAST_ONE)
@REPEAT
@click.pass_obj
def latency(options: Options, jobs: int, repeat: int) -> None:
    """Measure the time from submit to the start of the handler, on an idle pod."""
    from cortex.bench.latency import latency as run

    _run(options, repeat, lambda dsn, settings, _: run(dsn, settings, count=jobs))


@click.command(cls=Command)
@click.option("--steps", "step_count", default=2_000, show_default=True, type=click.IntRange(4))
@click.option(
    "--window",
    default=100,
    show_default=True,
    type=click.IntRange(2),
    help="Number of steps compared at each end.",
)
@REPEAT
@click.pass_obj
def growth(options: Options, step_count: int, window: int, repeat: int) -> None:
    """Compare the cost of the last steps of a long job with its first ones."""
    from cortex.bench.throughput import growth as run

    _run(
        options,
        repeat,
        lambda dsn, settings, _: run(dsn, settings, steps=step_count, window=window),
    )


@click.command(cls=Command)
@click.option("--streams", "count", default=300, show_default=True, type=AT_LEAST_ONE)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.5, 240.0),
    help="How long each job streams.",
)
@REPEAT
@click.pass_obj
def streams(options: Options, count: int, seconds: float, repeat: int) -> None:
    """Run jobs that stream from a scripted model at once, 20 chunks per second each, in one pod."""
    from cortex.bench.streams import streams as run

    _run(options, repeat, lambda dsn, _, log: run(dsn, log, count=count, seconds=seconds))


@click.command(cls=Command)
@click.option("--jobs", default=1_000, show_default=True, type=AT_LEAST_ONE)
@click.option(
    "--calls",
    "call_count",
    default=5,
    show_default=True,
    type=AT_LEAST_ONE,
    help="Calls per job.",
)
@click.option("--budgets", is_flag=True, help="Count each call against two budgets.")
@REPEAT
@click.pass_obj
def calls(options: Options, *, jobs: int, call_count: int, budgets: bool, repeat: int) -> None:
    """Measure model calls per second, with a model that answers at once."""
    from cortex.bench.failures import calls_per_s

    _run(
        options,
        repeat,
        lambda dsn, settings, _: calls_per_s(
            dsn, settings, job_count=jobs, calls=call_count, with_budgets=budgets
        ),
    )


@click.command(cls=Command)
@click.option("--jobs", default=2_000, show_default=True, type=AT_LEAST_ONE)
@REPEAT
@click.pass_obj
def retries(options: Options, jobs: int, repeat: int) -> None:
    """Measure jobs per second that go to RETRY once and complete in their second attempt."""
    from cortex.bench.failures import retries_per_s

    _run(options, repeat, lambda dsn, settings, _: retries_per_s(dsn, settings, count=jobs))


@click.command(cls=Command)
@click.option("--decisions", default=200, show_default=True, type=AT_LEAST_ONE)
@REPEAT
@click.pass_obj
def approvals(options: Options, decisions: int, repeat: int) -> None:
    """Measure the time from a decision until the job runs again, on an idle pod."""
    from cortex.bench.approvals import decisions as run

    _run(options, repeat, lambda dsn, settings, _: run(dsn, settings, count=decisions))


@click.command(cls=Command)
@click.option("--jobs", default=50, show_default=True, type=AT_LEAST_ONE)
@REPEAT
@click.pass_obj
def takeover(options: Options, jobs: int, repeat: int) -> None:
    """Kill the pod that runs all jobs with SIGKILL; measure when each runs on the other pod."""
    from cortex.bench.takeover import takeover as run

    _run(
        options,
        repeat,
        lambda dsn, settings, log: run(dsn, log, count=jobs, settle_s=settings.settle_s),
    )


@click.command(cls=Command)
@REPEAT
@click.pass_obj
def startup(options: Options, repeat: int) -> None:
    """Measure the time from `cortex up` on an initialised data directory to ready."""
    from cortex.bench.startup import startup as run

    with tempfile.TemporaryDirectory(prefix="cortex-bench-") as folder:
        Path(folder).chmod(0o755)
        _show(options, run(Path(folder), repeats=repeat))


@click.command(cls=Command)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.5, 600.0),
    help="How long each attack is measured.",
)
@click.option("--only", multiple=True, metavar="ATTACK", help="Run only this attack; repeatable.")
@click.pass_obj
def abuse(options: Options, *, seconds: float, only: tuple[str, ...]) -> None:
    """Measure the latency of no-op jobs while clients abuse the pod's HTTP API, on loopback.

    Each attack is compared with the idle pod: p50 at most three times as long, p99 at most 100 ms.
    Exits with 1 when a bar is missed.
    """
    from cortex.bench import abuse as measure
    from cortex.bench.attacker import ATTACKS

    if unknown := set(only) - set(ATTACKS):
        raise UsageError(f"no attack {min(unknown)!r}", hint=f"attacks: {', '.join(ATTACKS)}")
    output = Output(options)
    output.chosen(measure.COLUMNS)
    with (
        _server(options) as (server, _, folder),
        scratch_database(server, f"cortex_bench_{os.getpid()}") as dsn,
    ):
        rows = list(measure.abuse(dsn, folder / "children.log", seconds=seconds, only=only))
    output.listing("attacks", measure.COLUMNS, rows, empty="")
    if not all(row["ok"] for row in rows):
        raise click.exceptions.Exit(1)


@click.command(cls=Command)
@click.option(
    "--jobs",
    default=100_000,
    show_default=True,
    type=click.IntRange(2_000, 10_000_000),
    help="Number of jobs in the database.",
)
@click.option(
    "--only",
    "parts",
    multiple=True,
    type=click.Choice(TUI_PARTS),
    help="Run only this part; repeatable.",
)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.5, 600.0),
    help="How long each continuous measurement runs.",
)
@click.option(
    "--events",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(2),
    help="Number of events after which memory is measured.",
)
@click.pass_obj
def tui(
    options: Options, *, jobs: int, parts: tuple[str, ...], seconds: float, events: int
) -> None:
    """Measure the terminal UI against its bars: about four minutes.

    With --jobs 1000000, filling the database takes another minute. Prints every bar with its
    conditions; exits with 1 when a bar is missed.
    """
    from cortex.bench import tui as measure
    from cortex.bench.tui_bars import COLUMNS

    output = Output(options)
    output.chosen(COLUMNS)
    rows: list[Mapping[str, Any]] = []
    with (
        _server(options) as (server, _, folder),
        scratch_database(server, f"cortex_bench_{os.getpid()}") as dsn,
    ):
        measure.fill(dsn, jobs)
        place = measure.Place(dsn=dsn, folder=folder, jobs=jobs, seconds=seconds, events=events)
        for part in (part for part in TUI_PARTS if part in parts or not parts):
            rows += [bar.row for bar in measure.PARTS[part](place)]
    output.listing("bars", COLUMNS, rows, empty="")
    if not all(row["ok"] for row in rows):
        raise click.exceptions.Exit(1)


def _run(options: Options, repeat: int, measure: Callable[[str, Settings, Path], Figures]) -> None:
    """Measure several times, each on a new database, and show the medians."""
    runs: list[Figures] = []
    with _server(options) as (server, settings, folder):
        for _ in range(repeat):
            with scratch_database(server, f"cortex_bench_{os.getpid()}") as dsn:
                runs.append(measure(dsn, settings, folder / "children.log"))
    _show(
        options, {key: _middle([run[key] for run in runs]) for key in runs[0]} | {"runs": len(runs)}
    )


@contextmanager
def _server(options: Options) -> Iterator[tuple[str, Settings, Path]]:
    """Yield the DSN of the measured server, its settings, and a temporary folder."""
    configure_logs(level=logging.ERROR)
    settings = settings_from(options)
    with tempfile.TemporaryDirectory(prefix="cortex-bench-") as folder:
        with database(settings) as server:
            yield server, settings, Path(folder)


def _middle(values: list[Any]) -> Any:
    middle = median(values)
    return int(middle) if all(isinstance(value, int) for value in values) else round(middle, 3)


def _show(options: Options, figures: Figures) -> None:
    width = max(len(key) for key in figures)
    Output(options).record(
        figures,
        name="\n".join(f"{key}={value}" for key, value in figures.items()),
        page=lambda: (f"{key:<{width}}  {value:>12,}" for key, value in figures.items()),
    )
