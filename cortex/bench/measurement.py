"""Options of measurements, new databases for them, and the output of their figures."""

import functools
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import click

from cortex.bench.figures import middle, shown
from cortex.cli.options import Command, Options
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.target import database, settings_from
from cortex.config import Settings
from cortex.postgres.scratch import scratch_database

Figures = dict[str, Any]

AT_LEAST_ONE: Final = click.IntRange(1)
Option = Callable[[Callable[..., None]], Callable[..., None]]
T = TypeVar("T")


@attrs.frozen
class Scratch:
    """A new database, and a folder for what the measurement writes."""

    dsn: str
    settings: Settings
    folder: Path

    @property
    def log(self) -> Path:
        """The log of the processes that it starts."""
        return self.folder / "children.log"


def option(*names: str, default: float, **attributes: Any) -> Option:
    """Return an option that shows its default; a whole number unless it has another type."""
    return click.option(
        *names, default=default, show_default=True, **{"type": AT_LEAST_ONE, **attributes}
    )


WORKERS: Final = option(
    "--workers", default=1, type=click.IntRange(1, 64), help="Worker processes of the pod."
)
REPEAT: Final = option("--repeat", default=3, help="Number of runs; the median is shown.")


def seconds_option(text: str, *, longest: float = 600.0) -> Option:
    return option("--seconds", default=10.0, type=click.FloatRange(0.5, longest), help=text)


def measurement(*options: Option) -> Callable[[Callable[..., Figures]], click.Command]:
    """Make a command of a measurement: `--repeat` runs, each on a new database; shows medians."""

    def decorate(measure: Callable[..., Figures]) -> click.Command:
        @functools.wraps(measure)
        @click.pass_obj
        def run(options: Options, /, *, repeat: int, **given: Any) -> None:
            runs = on_new_databases(options, lambda scratch: measure(scratch, **given), repeat)
            medians = {key: middle([each[key] for each in runs]) for key in runs[0]}
            show_figures(options, medians | {"runs": len(runs)})

        command: Callable[..., None] = run
        for option in reversed((*options, REPEAT)):
            command = option(command)
        return click.command(cls=Command)(command)

    return decorate


def on_new_databases(options: Options, measure: Callable[[Scratch], T], repeat: int = 1) -> list[T]:
    """Measure several times, each on a new database of the same server."""
    configure_logs(level=logging.ERROR)
    settings = settings_from(options)
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="cortex-bench-") as folder,
        database(settings) as server,
    ):
        for _ in range(repeat):
            with scratch_database(server, f"cortex_bench_{os.getpid()}") as dsn:
                results.append(measure(Scratch(dsn, settings, Path(folder))))
    return results


def exit_by(rows: Sequence[Mapping[str, Any]]) -> None:
    """Exit with 1 if a bar is missed."""
    if not all(row["ok"] for row in rows):
        raise click.exceptions.Exit(1)


def show_figures(options: Options, figures: Figures) -> None:
    width = max(len(key) for key in figures)
    output = Output(options)
    if None in figures.values():
        output.say("the server's processes are not on this machine: its CPU is unknown", "dim")
    output.record(
        figures,
        name="\n".join(f"{key}={value}" for key, value in figures.items()),
        page=lambda: (f"{key:<{width}}  {shown(value):>12}" for key, value in figures.items()),
    )
