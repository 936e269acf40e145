"""Carries out a plan for a command: in a temporary directory, with a scorecard at the end."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from chaos.cluster.guard import guarded_folder
from chaos.cluster.pods import CannotStartError
from chaos.plan import Plan
from chaos.report.keep import keep, keep_broken, new_folder
from chaos.report.scorecard import scorecard
from chaos.run import Outcome, deadline_s, run

FAILED: Final = 1


def carry_out(plan: Plan, *, report: Path | None) -> int:
    """Run the plan, print the scorecard, keep the files; return the exit code."""
    options = plan.options
    if report is not None:
        _make(report)
    sys.stdout.write(
        f"seed {options.seed}: {len(plan.orders)} jobs and {len(plan.faults)} faults in "
        f"{options.duration_s:g} s on {options.pods} pods\n"
    )
    sys.stdout.flush()
    with guarded_folder(deadline_s=deadline_s(plan)) as folder:
        outcome = _run(plan, folder, report)
        sys.stdout.write(scorecard(outcome))
        if report is not None or not outcome.is_good:
            target = report or new_folder(options.seed)
            keep(outcome, folder, target)
            sys.stdout.write(f"\nkept in {target}\n")
    return 0 if outcome.is_good else FAILED


def _make(report: Path) -> None:
    """Create it before anything runs: a run whose report cannot be kept is useless."""
    try:
        report.mkdir(parents=True, exist_ok=True)
        if any(report.iterdir()):
            raise click.UsageError(f"--report {report} is not empty")
    except OSError as error:
        raise click.UsageError(f"--report {report} cannot be made: {error.strerror}") from error


def _run(plan: Plan, folder: Path, report: Path | None) -> Outcome:
    """Raises `click.ClickException` for a run that failed, with the directory of its traces."""
    try:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(run(plan, folder=folder))
    except CannotStartError as error:
        raise click.UsageError(str(error)) from error
    except (Exception, asyncio.CancelledError) as error:
        target = report or new_folder(plan.options.seed)
        why = keep_broken(error, plan, folder, target)
        message = f"the run itself failed: {why}; its traces are in {target}"
        raise click.ClickException(message) from error  # noqa: ASYNC104 -- the loop has ended
