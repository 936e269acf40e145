"""`python -m chaos replay`: repeats the plan of an earlier run."""

import json
from pathlib import Path

import click

from chaos.commands.carry_out import carry_out
from chaos.plan import Options, UnknownFaultError, make_plan
from chaos.report.keep import OPTIONS


@click.command()
@click.argument("report", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--seed", type=int, help="Instead of a report: the run of this seed, with default options."
)
@click.option(
    "--report",
    "target",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep this run's history, logs and verdicts in this directory.",
)
def replay(*, report: Path | None, seed: int | None, target: Path | None) -> int:
    """Repeat the plan of an earlier run, from its REPORT or its seed.

    The same programs meet the same faults at the same times. The outcome may differ: processes are
    not deterministic. `python -m chaos sim` is.
    """
    if (report is None) == (seed is None):
        raise click.UsageError("give the directory of a report, or --seed")
    options = options_of(report) if report is not None else Options(seed=seed or 0)
    try:
        plan = make_plan(options)
    except UnknownFaultError as error:
        raise click.UsageError(str(error)) from error
    return carry_out(plan, report=target)


def options_of(report: Path) -> Options:
    """The options of a report's run; raises `click.UsageError`."""
    try:
        kept = json.loads((report / OPTIONS).read_text("utf-8"))
        return Options(**{**kept, "faults": tuple(map(str, kept["faults"]))})
    except OSError as error:
        why = f"{OPTIONS}: {error.strerror}"
    except KeyError as error:
        why = f"{OPTIONS} has no {error}"
    except (ValueError, TypeError) as error:
        why = f"{OPTIONS}: {error.args[0]}"
    raise click.UsageError(f"{report}is not the report of a run: {why}")
