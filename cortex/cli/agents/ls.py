"""`cortex agents ls` and `cortex agents show`."""

from collections.abc import Iterator
from typing import Any, Final

import click

from cortex.cli.jobs.job_page import block
from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.store import agents as store
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import pad
from cortex.view.phrases import age, since_s
from cortex.view.resources.agents import AGENTS
from cortex.view.spec_versions import document_of

ls: Final = list_by_name(AGENTS, help="List agents with their newest versions, by name.")


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
