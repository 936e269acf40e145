"""`cortex agents ls` and `cortex agents show`."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from cortex.cli.jobs.job_page import block
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.cli.screen.terminal import Terminal
from cortex.cli.spec_versions import columns_of, document_of
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, age, since_s
from cortex.domain.safe import safe
from cortex.store import agents as store
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import Cell, pad


@click.command(cls=Command)
@click.option(
    "--after", default="", metavar="NAME", help="Show the names after this one: the next page."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, metavar="N")
@click.pass_obj
def ls(options: Options, *, after: str, limit: int) -> None:
    """List agents with their newest versions, by name."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page, after=after, limit=limit)
    output.listing("agents", COLUMNS, rows, empty="no agents yet: cortex agents apply FILE")


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--version", type=click.IntRange(1), metavar="N", help="Version to show [the newest]."
)
@click.pass_obj
def show(options: Options, *, name: str, version: int | None) -> None:
    """Show one agent: its specification and its versions."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.versions, name, version=version)
    document = document_of("agent", rows)
    output.record(document, name=name, page=lambda: _page(rows, output.terminal))


def _page(rows: list[SpecVersion], terminal: Terminal) -> Iterator[str]:
    newest = rows[0]
    spec = newest.spec
    yield terminal.paint(f"agent {safe(newest.name)}  v{newest.version}", "bold")
    for key, value in spec.items():
        if key in {"name", "system"} or value in ("", [], {}):
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        text = next(block(shown, indent="")) if not isinstance(shown, dict) else _pairs(shown)
        yield f"  {terminal.paint(pad(safe(key), 13), 'dim')}{safe(text)}"
    yield from ("", terminal.paint("  system", "dim"))
    yield from block(spec.get("system", ""), indent="    ")
    yield from ("", terminal.paint("  versions", "dim"))
    for row in rows:
        at = terminal.clock(row.applied_at)
        ago = age(since_s(row, row.applied_at))
        yield f"  v{row.version:<4} {at}  by {safe(row.applied_by)}" + (
            terminal.paint(f"  {ago}", "dim") if terminal.is_tty else ""
        )


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


COLUMNS: Final[Sequence[Column[SpecVersion]]] = columns_of(
    "agent",
    Column(name="model", value=lambda r: r.spec.get("model"), least=12),
    Column(
        name="tools",
        value=lambda r: r.spec.get("tools"),
        shown=lambda r: Cell(safe(", ".join(r.spec.get("tools", ()))) or NOTHING),
        least=12,
    ),
)
