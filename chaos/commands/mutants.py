"""`python -m chaos mutants`: the checkers against deliberately broken runtimes."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from chaos.cluster.guard import guarded_folder
from chaos.mutants.catalogue import MUTANTS
from chaos.mutants.hunt import Hunt, Result, is_good
from chaos.mutants.mutant import Mutant, StaleError
from chaos.mutants.storms import STORMS
from chaos.mutants.table import caught_by, name_of, table

DEADLINE_S: Final = 3600.0
AT_ONCE: Final = 1 + (os.cpu_count() or 1)
"""They wait more than they compute."""
FAILED: Final = 1


@click.command()
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="Only this mutant; repeatable."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--at-once",
    type=click.IntRange(1, 32),
    default=AT_ONCE,
    show_default=True,
    help="Trials at the same time.",
)
@click.option(
    "--everyday",
    "is_everyday",
    is_flag=True,
    help="Try each in an ordinary run and 20 simulated seeds, except those with a storm of their "
    "own; 90 % must be caught.",
)
@click.option("--list", "is_list", is_flag=True, help="List the mutants and exit.")
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep each trial's history, logs and verdicts in this directory.",
)
def mutants(
    *,
    names: tuple[str, ...],
    seed: int,
    at_once: int,
    is_everyday: bool,
    is_list: bool,
    report: Path | None,
) -> int:
    """Break copies of the runtime, one rule each, and check that the checkers catch it.

    Each mutant gets a short run by the seed, and up to two more if that finds nothing. The same run
    is made with the unbroken runtime, which must break no rule.
    """
    chosen = [each for each in _chosen(names) if not (is_everyday and each.scene in STORMS)]
    if is_list:
        width = max(len(each.name) for each in chosen)
        for each in chosen:
            click.echo(f"{each.name:<{width}}  {each.invariant:<4} {each.what}")
        return 0
    done = 0

    def count(result: Result) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done} done, the last was {name_of(result)}\033[K")
        else:  # an interrupted run has printed this much
            line = f"{name_of(result)}: {caught_by(result)}, {result.took_s:.0f} s"
            click.echo(f"{line}; {result.error}" if result.error else line, err=True)

    with guarded_folder(deadline_s=DEADLINE_S) as folder:
        hunt = Hunt(
            folder=folder,
            seed=seed,
            at_once=at_once,
            report=None if report is None else report.resolve(),
            on_result=count,
            is_everyday=is_everyday,
        )
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                results = runner.run(_carry_out(hunt, chosen))
        except StaleError as error:
            raise click.ClickException(str(error)) from error
        except asyncio.CancelledError as error:
            raise click.Abort from error  # noqa: ASYNC104 -- the loop has ended
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    click.echo(table(results, first_seed=seed), nl=False)
    return 0 if is_good(results) else FAILED


async def _carry_out(hunt: Hunt, chosen: Sequence[Mutant]) -> list[Result]:
    """Try the mutants; SIGTERM ends that as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await hunt.run(chosen)


def _chosen(names: tuple[str, ...]) -> list[Mutant]:
    mutants = {each.name: each for each in MUTANTS}
    if unknown := [name for name in names if name not in mutants]:
        raise click.UsageError(f"there is no mutant {unknown[0]!r}; known: {', '.join(mutants)}")
    return [mutants[name] for name in names] or list(MUTANTS)
