"""`cortex flows ls` and `cortex flows show`."""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.cli.screen.terminal import Terminal
from cortex.cli.spec_versions import columns_of, document_of
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.store import flows as store
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import pad

NAME_CELLS: Final = 20


@click.command(cls=Command)
@click.option(
    "--after", default="", metavar="NAME", help="Show the names after this one: the next page."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, metavar="N")
@click.pass_obj
def ls(options: Options, *, after: str, limit: int) -> None:
    """List flows with their newest versions, by name."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page, after=after, limit=limit)
    output.listing("flows", COLUMNS, rows, empty="no flows yet: cortex flows apply FILE")


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--version", type=click.IntRange(1), metavar="N", help="Version to show [the newest]."
)
@click.pass_obj
def show(options: Options, *, name: str, version: int | None) -> None:
    """Show one flow: its steps and its versions."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.versions, name, version=version)
    document = document_of("flow", rows)
    output.record(document, name=name, page=lambda: _page(rows, output.terminal))


def _page(rows: list[SpecVersion], terminal: Terminal) -> Iterator[str]:
    newest = rows[0]
    yield terminal.paint(f"flow {safe(newest.name)}  v{newest.version}", "bold")
    if newest.spec.get("description"):
        yield f"  {safe(newest.spec['description'])}"
    yield from ("", terminal.paint("  steps", "dim"))
    for step in newest.spec.get("steps", ()):
        name = pad(safe(str(step.get("name"))), NAME_CELLS)
        more = [word for word in ("when", "for_each", "retry", "on_error") if word in step]
        note = terminal.paint("  ".join(more), "dim")
        yield f"  {name}  {safe(str(step.get('uses')))}  {note}".rstrip()
    yield from ("", terminal.paint("  versions", "dim"))
    for row in rows:
        at = terminal.clock(row.applied_at)
        yield f"  v{row.version:<4} {at}  by {safe(row.applied_by)}"


COLUMNS: Final[Sequence[Column[SpecVersion]]] = columns_of(
    "flow",
    Column(name="steps", value=lambda r: len(r.spec.get("steps", ()))),
)
