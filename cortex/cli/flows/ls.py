"""`cortex flows ls` and `cortex flows show`."""

from collections.abc import Iterator
from typing import Final

import click

from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.store import flows as store
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import pad
from cortex.view.resources.flows import FLOWS
from cortex.view.spec_versions import document_of

NAME_CELLS: Final = 20

ls: Final = list_by_name(FLOWS, help="List flows with their newest versions, by name.")


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
