"""What the commands share that kill the pods of one kind of job: options, a run, its figures."""

import asyncio
import json
import random
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

import click
from attrs import AttrsInstance, asdict

from chaos.cluster.guard import guarded_folder

FAILED: Final = 1
NAME_CELLS: Final = 20
Storm = TypeVar("Storm")
Command = TypeVar("Command", bound=Callable[..., Any])


class Verdict(AttrsInstance, Protocol):
    """What a judge makes of a storm."""

    __attrs_attrs__: ClassVar[Any]

    @property
    def problems(self) -> Sequence[str]: ...

    @property
    def is_good(self) -> bool: ...


Judged = TypeVar("Judged", bound=Verdict)


def storm_options(*, kills: int, kills_min: int = 0) -> Callable[[Command], Command]:
    """Add `--kills`, `--seed` and `--json` to a command."""
    options = (
        click.option(
            "--kills",
            type=click.IntRange(kills_min, 1000),
            default=kills,
            show_default=True,
            help="How many pods die.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), help="Draws the instants [a random one]."
        ),
        click.option("--json", "is_json", is_flag=True, help="Print the result as JSON."),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def drawn(seed: int | None) -> int:
    """Return the seed, or a random one."""
    return random.SystemRandom().randrange(2**32) if seed is None else seed


def show(progress: str) -> None:
    """Write one line over the last, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{progress}\033[K")


def print_storm(
    run: Callable[[Path], Coroutine[Any, Any, Storm]],
    judge: Callable[[Storm], Judged],
    table: Callable[..., str],
    *,
    seed: int,
    deadline_s: float,
    is_json: bool,
) -> int:
    """Run a storm in a folder of its own, print the verdict, and return the exit code."""
    with guarded_folder(deadline_s=deadline_s) as folder:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            verdict = judge(runner.run(run(folder)))
    if is_json:
        sys.stdout.write(json.dumps({"seed": seed, **asdict(verdict)}) + "\n")
    else:
        sys.stdout.write(table(verdict, seed=seed))
    return 0 if verdict.is_good else FAILED


def figures(
    rows: Iterable[tuple[str, str]],
    problems: Sequence[str],
    *,
    seed: int,
    name_cells: int = NAME_CELLS,
) -> str:
    """Return named figures, aligned, and what is wrong."""
    lines = [f"seed {seed}", "", *(f"  {name:<{name_cells}}  {text}" for name, text in rows)]
    lines += ["", *(f"  {each}" for each in problems)] if problems else []
    return "\n".join(["", *lines, ""])
