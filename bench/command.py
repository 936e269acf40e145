"""`python -m bench …`: measurements that need a checkout, and comparisons of its commits."""

import logging
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from cortex.bench.command import MEASUREMENTS
from cortex.bench.measurement import (
    REPEAT,
    Figures,
    Scratch,
    exit_by,
    measurement,
    on_new_databases,
    option,
    seconds_option,
    show_figures,
)
from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.target import database, settings_from
from cortex.domain.errors import UsageError
from cortex.postgres.scratch import scratch_database

if TYPE_CHECKING:
    from bench.compare import Bench

MORE: Final = {
    "statements": "Each statement of the hot path by itself, without a pod.",
    "growth": "Cost of the last steps of a long job, compared with its first ones.",
    "streams": "Many jobs that stream from a scripted model at once, one pod.",
    "calls": "Model calls per second with breaker, costs and budgets, one pod.",
    "retries": "Jobs per second that fail once and are retried, one pod.",
    "approvals": "Time from a person's decision until the job runs again, idle pod.",
    "waits": "Cost of jobs that wait for signals, and time until they run, one pod.",
    "outbox": "Messages per second to a local webhook receiver, one pod.",
    "logs": "Log lines per second that a pod stores while jobs write them.",
    "startup": "Time from `cortex up` to ready, embedded database.",
    "abuse": "Job latency while clients abuse the HTTP API; exits with 1 if a bar is missed.",
    "aged": "Claims and lists with many finished jobs, compared with few.",
    "limits": "Waits of a tenant beside a larger one; exits with 1 if a bar is missed.",
    "caching": "Input cost of agents with a prompt cache; exits with 1 if a bar is missed.",
    "tui": "The terminal UI against its bars; exits with 1 if one is missed.",
}

bench = Group(
    "bench",
    help="Measure this machine, and compare two commits: medians of several runs, each on a "
    "temporary database.",
    sections={
        "Measurements": {
            **MEASUREMENTS,
            **{name: (f"bench.command:{name}", line) for name, line in MORE.items()},
        },
        "Two versions": {
            "compare": (
                "bench.command:compare",
                "This checkout with another commit of it, measured in turns.",
            )
        },
    },
)

TUI_PARTS: Final = ("start", "lists", "idle", "changes", "events", "memory", "tokens")
"""In this order: the last part creates a job that is newer than the numbered ones."""
COMPARED: Final = ("throughput", "steps", "latency")
"""Measurements that a comparison runs unless others are named."""


@measurement(
    option("--batch", default=500, type=click.IntRange(1, 10_000), help="Jobs per statement."),
    option("--batches", default=20),
)
def statements(scratch: Scratch, *, batch: int, batches: int) -> Figures:
    """Measure submits, claims, steps and ends by themselves, through one connection."""
    from bench.statements import statements as measure

    return measure(scratch.dsn, batch=batch, batches=batches)


@measurement(
    option("--steps", default=2_000, type=click.IntRange(4)),
    option(
        "--window",
        default=100,
        type=click.IntRange(2),
        help="Number of steps compared at each end.",
    ),
)
def growth(scratch: Scratch, *, steps: int, window: int) -> Figures:
    """Compare the cost of the last steps of a long job with its first ones."""
    from bench.growth import growth as measure

    return measure(scratch.dsn, scratch.settings, steps=steps, window=window)


@measurement(
    option("--streams", default=300),
    seconds_option("How long each job streams.", longest=240.0),
)
def streams(scratch: Scratch, *, streams: int, seconds: float) -> Figures:
    """Run jobs that stream from a scripted model at once, 20 chunks per second each, in one pod."""
    from bench.streams import streams as measure

    return measure(scratch.dsn, scratch.log, count=streams, seconds=seconds)


@measurement(
    option("--jobs", default=1_000),
    option("--calls", default=5, help="Calls per job."),
    click.option("--budgets", is_flag=True, help="Count each call against two budgets."),
)
def calls(scratch: Scratch, *, jobs: int, calls: int, budgets: bool) -> Figures:
    """Measure model calls per second, with a model that answers at once."""
    from bench.failures import calls_per_s

    return calls_per_s(
        scratch.dsn, scratch.settings, job_count=jobs, calls=calls, with_budgets=budgets
    )


@measurement(option("--jobs", default=2_000))
def retries(scratch: Scratch, *, jobs: int) -> Figures:
    """Measure jobs per second that go to RETRY once and complete in their second attempt."""
    from bench.failures import retries_per_s

    return retries_per_s(scratch.dsn, scratch.settings, count=jobs)


@measurement(option("--decisions", default=200))
def approvals(scratch: Scratch, *, decisions: int) -> Figures:
    """Measure the time from a decision until the job runs again, on an idle pod."""
    from bench.approvals import decisions as measure

    return measure(scratch.dsn, scratch.settings, count=decisions)


@measurement(
    option("--jobs", default=100_000),
    seconds_option("How long the pod is measured while they wait.", longest=240.0),
)
def waits(scratch: Scratch, *, jobs: int, seconds: float) -> Figures:
    """Measure what waiting jobs cost an idle pod, and the time from a signal to its job."""
    from bench.waits import waits as measure

    return measure(scratch.dsn, scratch.settings, count=jobs, seconds=seconds)


@measurement(
    option("--messages", default=10_000),
    option(
        "--backlog",
        default=0,
        type=click.IntRange(0, 1_000_000),
        help="Further messages that wait behind them.",
    ),
)
def outbox(scratch: Scratch, *, messages: int, backlog: int) -> Figures:
    """Measure how many messages a pod sends to a webhook receiver on this machine per second."""
    from bench.outbox import messages as measure

    return measure(scratch.dsn, scratch.log, count=messages, backlog=backlog)


@measurement(
    option("--per-s", default=10_000, type=click.IntRange(100, 1_000_000), help="Lines a second."),
    seconds_option("How long jobs write."),
)
def logs(scratch: Scratch, *, per_s: int, seconds: float) -> Figures:
    """Let ten jobs log lines at a pace, and measure what the pod stores and what that costs."""
    from bench.logs import lines as measure

    return measure(scratch.dsn, scratch.log, per_s=per_s, seconds=seconds)


@click.command(cls=Command)
@REPEAT
@click.pass_obj
def startup(options: Options, repeat: int) -> None:
    """Measure the time from `cortex up` on an initialised data directory to ready."""
    from bench.startup import startup as run

    with tempfile.TemporaryDirectory(prefix="cortex-bench-") as folder:
        Path(folder).chmod(0o755)
        show_figures(options, run(Path(folder), repeats=repeat))


@click.command(cls=Command)
@seconds_option("How long each attack is measured.")
@click.option("--only", multiple=True, metavar="ATTACK", help="Run only this attack; repeatable.")
@click.pass_obj
def abuse(options: Options, *, seconds: float, only: tuple[str, ...]) -> None:
    """Measure the latency of no-op jobs while clients abuse the pod's HTTP API, on loopback.

    Each attack is compared with the idle pod: p50 at most three times as long, p99 at most 100 ms.
    Exits with 1 when a bar is missed.
    """
    from bench import abuse as measure
    from bench.attacker import ATTACKS

    if unknown := set(only) - set(ATTACKS):
        raise UsageError(f"no attack {min(unknown)!r}", hint=f"attacks: {', '.join(ATTACKS)}")
    output = Output(options)
    output.chosen(measure.COLUMNS)
    (rows,) = on_new_databases(
        options,
        lambda scratch: list(measure.abuse(scratch.dsn, scratch.log, seconds=seconds, only=only)),
    )
    output.listing("attacks", measure.COLUMNS, rows, empty="")
    exit_by(rows)


@click.command(cls=Command)
@click.option("--backlog", default=100_000, show_default=True, help="Jobs of the larger tenant.")
@click.option("--jobs", default=200, show_default=True, help="Jobs of the small tenant.")
@click.pass_obj
def limits(options: Options, *, backlog: int, jobs: int) -> None:
    """Compare the median wait of a tenant's jobs beside many of another one with that alone.

    At most five jobs of each tenant run at once. Exits with 1 when the wait is more than twice as
    long, or when a pass over the waiting jobs takes more than 20 ms.
    """
    from bench.limits import limits_beside

    (row,) = on_new_databases(
        options,
        lambda scratch: limits_beside(scratch.dsn, scratch.settings, backlog=backlog, count=jobs),
    )
    show_figures(options, row)
    exit_by([{"ok": row["is_met"]}])


@click.command(cls=Command)
@click.pass_obj
def caching(options: Options) -> None:
    """Compare the input cost of scripted agents with and without a prompt cache.

    The scripted server counts usage by the rules of the Messages API. Exits with 1 when an agent
    pays more than its bar.
    """
    from bench import caching as measure

    output = Output(options)
    output.chosen(measure.COLUMNS)
    (rows,) = on_new_databases(
        options,
        lambda scratch: list(measure.caching(scratch.dsn, scratch.settings, scratch.folder)),
    )
    output.listing("agents", measure.COLUMNS, rows, empty="")
    exit_by(rows)


@click.command(cls=Command)
@option(
    "--jobs",
    default=100_000,
    type=click.IntRange(20_000, 20_000_000),
    help="Number of finished jobs.",
)
@option("--rounds", default=200, help="How often each is measured.")
@click.pass_obj
def aged(options: Options, *, jobs: int, rounds: int) -> None:
    """Compare claims and lists between a database with many finished jobs and one with few.

    With --jobs 10000000, filling the database takes ten minutes and 10 GB. Exits with 1 when
    something is more than 10 % slower.
    """
    from bench import aged as measure

    configure_logs(level=logging.ERROR)
    output = Output(options)
    output.chosen(measure.COLUMNS)
    settings = settings_from(options)
    name = f"cortex_bench_{os.getpid()}"
    with (
        database(settings) as server,
        scratch_database(server, f"{name}_few") as few,
        scratch_database(server, f"{name}_many") as many,
    ):
        rows = measure.aged(few, many, jobs=jobs, rounds=rounds)
    output.listing("figures", measure.COLUMNS, rows, empty="")
    exit_by(rows)


@click.command(cls=Command)
@option(
    "--jobs",
    default=100_000,
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
@seconds_option("How long each continuous measurement runs.")
@option(
    "--events",
    default=1_000_000,
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
    from bench import tui as measure
    from bench.tui_bars import COLUMNS

    output = Output(options)
    output.chosen(COLUMNS)

    def bars(scratch: Scratch) -> list[Mapping[str, Any]]:
        measure.fill(scratch.dsn, jobs)
        place = measure.Place(
            dsn=scratch.dsn, folder=scratch.folder, jobs=jobs, seconds=seconds, events=events
        )
        chosen = (part for part in TUI_PARTS if part in parts or not parts)
        return [bar.row for part in chosen for bar in measure.PARTS[part](place)]

    (rows,) = on_new_databases(options, bars)
    output.listing("bars", COLUMNS, rows, empty="")
    exit_by(rows)


@click.command(cls=Command)
@click.argument("ref")
@click.argument("benches", nargs=-1, metavar="[BENCH]…")
@option("--repeat", default=5, help="Number of runs of each side; medians are shown.")
@click.pass_obj
def compare(options: Options, *, ref: str, benches: tuple[str, ...], repeat: int) -> None:
    """Compare this checkout with another commit of it, measured in turns.

    REF is a commit that git knows. Each BENCH is a measurement, with its options in quotes if it
    has any: "throughput --jobs 5000"; by default throughput, steps and latency. Prints for each
    figure both medians and the ratio of after to before: its median and quartiles among all pairs.
    Beside them stands the figure that the newest release recorded for the same command, perhaps on
    another machine.

    Both run in this environment, so REF may need nothing that this checkout does not. Without --dsn
    each side has an embedded database of its own in a scratch folder.
    """
    from bench import compare as measure

    chosen = [_bench_of(text) for text in benches or COMPARED]
    output = Output(options)
    output.chosen(measure.COLUMNS)
    settings = settings_from(options)
    with (
        live_line(output.talk, is_on=output.is_for_people) as live,
        measure.comparison(ref, dsn=settings.dsn) as sides,
    ):
        rows = sides.figures(chosen, repeat=repeat, show=live.show)
    if sides.recorded is not None:
        release, machine = sides.recorded.release, sides.recorded.machine
        output.say(f"recorded: {release}, on {machine}", "dim")
    output.listing("figures", measure.COLUMNS, rows, empty="")


def _bench_of(text: str) -> "Bench":
    """Return a measurement and its checked options. Raises what the command itself raises."""
    from bench.compare import Bench

    try:
        name, *arguments = shlex.split(text) or [""]
    except ValueError as error:
        raise UsageError(f"{text!r} is no measurement with options: {error}") from error
    here = click.get_current_context()
    commands = {each: bench.get_command(here, each) for each in bench.list_commands(here)}
    repeated = {
        each: [parameter.name or "" for parameter in command.params]
        for each, command in commands.items()
        if command not in {None, compare}
    }
    known = [each for each, options in repeated.items() if "repeat" in options]
    command = commands.get(name)
    if command is None or name not in known:
        raise UsageError(f"no measurement {name!r} to compare", hint=f"one of {', '.join(known)}")
    parsed = command.make_context(name, arguments.copy(), parent=here)
    if parsed.get_parameter_source("repeat") is ParameterSource.COMMANDLINE:
        raise UsageError(f"--repeat in {text!r}", hint="give --repeat to the comparison")
    return Bench(name, tuple(arguments), frozenset(repeated[name]))
