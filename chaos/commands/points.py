"""`python -m chaos points`: kills and stops a pod once at each named point of the code."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import asdict

from chaos.cluster.guard import guarded_folder
from chaos.commands.own_app import payload_of, place_of
from chaos.points import own_job, report
from chaos.points.bench import AppError, Bench
from chaos.points.exhaust import AT_ONCE, exhaust
from chaos.points.programs import APP, PROGRAMS, Program

DEADLINE_S: Final = 3600.0
FAILED: Final = 1

T = TypeVar("T")


@click.command()
@click.option("--app", metavar="FILE|MODULE", help="Your own application.")
@click.option("--job", "job_type", metavar="TYPE", help="The job type to kill; with --app.")
@click.option("--payload", metavar="JSON", default="{}", help="Payload of the job.")
@click.option(
    "--script",
    metavar="NAME|MODULE:FUNCTION",
    default="echo",
    show_default=True,
    help="What the model answers your job, as for python -m cortex.demo.server.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 12),
    default=AT_ONCE,
    show_default=True,
    help="Trials at the same time.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Try each point once, in a way drawn by this seed [each in each way].",
)
@click.option(
    "--program",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only jobs of this name; may be repeated [all].",
)
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def points(
    *,
    app: str | None,
    job_type: str | None,
    payload: str,
    script: str,
    at_once: int,
    seed: int | None,
    names: tuple[str, ...],
    is_json: bool,
) -> int:
    """Kill a pod once at each point of the code, and stop it there; check the outcome.

    With --app and --job: kill your own job at every point that it passes, and report whether it
    survives.
    """
    if (app is None) != (job_type is None):
        raise click.UsageError("--app and --job belong together")
    if app is None or job_type is None:
        return _all_points(_named(names), at_once=at_once, seed=seed, is_json=is_json)
    if seed is not None or names:
        raise click.UsageError("--seed and --program cannot be combined with --app")
    program = own_job.program_of(job_type, payload_of(payload))
    return _own_job(place_of(app), program, script=script, at_once=at_once, is_json=is_json)


def _named(names: tuple[str, ...]) -> Sequence[Program]:
    if not names:
        return PROGRAMS
    known = {each.name: each for each in PROGRAMS}
    if unknown := [each for each in names if each not in known]:
        raise click.UsageError(f"no program {unknown[0]!r}: there are {', '.join(known)}")
    return [known[each] for each in dict.fromkeys(names)]


def _all_points(
    programs: Sequence[Program], *, at_once: int, seed: int | None, is_json: bool
) -> int:
    done = 0

    def count(_: Any) -> None:
        nonlocal done
        done += 1
        _progress(f"{done} trials")

    results = _on_bench(
        lambda folder: Bench(folder, APP),
        lambda bench: exhaust(bench, programs, at_once=at_once, seed=seed, on_result=count),
    )
    _print(report.document(results) if is_json else report.table(results))
    return 0 if report.is_good(results) else FAILED


def _own_job(app: str, program: Program, *, script: str, at_once: int, is_json: bool) -> int:
    try:
        survival = _on_bench(
            lambda folder: Bench(folder, app, script=script, has_own_models=True),
            lambda bench: own_job.survive(
                bench,
                program,
                at_once=at_once,
                on_outcome=lambda done, count: _progress(f"{done} of {count} kills"),
            ),
        )
    except (AppError, own_job.UndisturbedError) as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    _print(asdict(survival) if is_json else "\n".join(own_job.lines(survival)) + "\n")
    return 0 if survival.is_good else FAILED


def _on_bench(make: Callable[[Path], Bench], work: Callable[[Bench], Awaitable[T]]) -> T:
    """Work on a bench in a temporary directory."""

    async def run(folder: Path) -> T:
        async with make(folder) as bench:
            return await work(bench)

    with guarded_folder(deadline_s=DEADLINE_S) as folder:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(run(folder))


def _progress(words: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{words}\033[K")


def _print(what: str | dict[str, Any]) -> None:
    _progress("\r")
    sys.stdout.write(what if isinstance(what, str) else json.dumps(what, default=str) + "\n")
