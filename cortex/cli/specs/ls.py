"""`ls` and `show` of `cortex agents` and `cortex flows`."""

import shlex
from collections.abc import Iterator
from typing import Any, Final

import click

from cortex.cli.completing import known
from cortex.cli.jobs.job_page import block
from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.known_tool import KnownTool, ToolState
from cortex.domain.safe import safe
from cortex.store import mcp
from cortex.store import specs as store
from cortex.store.specs import SpecKind, SpecVersion
from cortex.view.caching import hit_text
from cortex.view.cells import pad
from cortex.view.phrases import age, since_s
from cortex.view.resources.specs import AGENTS, FLOWS

NAME_CELLS: Final = 20

ls_agents: Final = list_by_name(AGENTS, help="List agents with their newest versions, by name.")
ls_flows: Final = list_by_name(FLOWS, help="List flows with their newest versions, by name.")


def _show(kind: SpecKind, *, help: str) -> click.Command:  # noqa: A002 -- click's
    """Return the command that shows one series."""

    @click.command("show", cls=Command, help=help)
    @click.argument("name", metavar="NAME", shell_complete=known(kind.value))
    @click.option(
        "--version", type=click.IntRange(1), metavar="N", help="Version to show [the newest]."
    )
    @click.pass_obj
    def show(options: Options, *, name: str, version: int | None) -> None:
        output = Output(options)
        with session(options) as call:
            rows = call(store.versions, kind, name, version=version)
            if kind is SpecKind.AGENT:
                rows = call(store.with_caching, rows)
            tools = call(mcp.of_agent, name) if kind is SpecKind.AGENT else []
        newest = rows[0]
        document = {
            str(kind): {
                "name": newest.name,
                **_applied_as(newest),
                **(_cached_as(newest) if kind is SpecKind.AGENT else {}),
                "spec": newest.spec,
            },
            "versions": [_applied_as(row) for row in rows],
        }
        if newest.spec.get("mcp"):
            document["mcp_tools"] = [_known_as(row) for row in tools]

        def page() -> Iterator[str]:
            yield from _page(kind, rows, output.terminal)
            yield from _tools(newest.spec.get("mcp", {}), tools, output.terminal)

        output.record(document, name=name, page=page)

    return show


show_agent: Final = _show(
    SpecKind.AGENT, help="Show one agent: its specification and its versions."
)
show_flow: Final = _show(SpecKind.FLOW, help="Show one flow: its steps and its versions.")


def _applied_as(row: SpecVersion) -> dict[str, Any]:
    return {"version": row.version, "applied_by": row.applied_by, "applied_at": row.applied_at}


def _known_as(row: KnownTool) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state.value,
        "accepted_at": row.accepted_at,
        "accepted_by": row.accepted_by,
        "offered_at": row.offered_at,
    }


def _tools(servers: dict[str, Any], tools: list[KnownTool], terminal: Terminal) -> Iterator[str]:
    """The tools of an agent's servers, as far as they have been used."""
    for server, terms in servers.items():
        where = terms.get("url") or shlex.join(terms.get("command", ()))
        yield from ("", terminal.paint(f"  mcp {safe(server)}", "bold") + f"  {safe(where)}")
        own = [row for row in tools if row.server == server]
        if not own:
            yield terminal.paint("    not used yet: its tools are recorded when it is", "dim")
        for row in own:
            is_fine = row.state is ToolState.ACCEPTED
            yield f"    {safe(row.tool)}" + ("" if is_fine else f"  {row.state}")


def _cached_as(row: SpecVersion) -> dict[str, Any]:
    return {"cache_hit": row.cache_hit, "cache_saved_usd": row.cache_saved_usd}


def _page(kind: SpecKind, rows: list[SpecVersion], terminal: Terminal) -> Iterator[str]:
    newest = rows[0]
    yield terminal.paint(f"{kind} {safe(newest.name)}  v{newest.version}", "bold")
    is_agent = kind is SpecKind.AGENT
    yield from _agent(newest, terminal) if is_agent else _flow(newest.spec, terminal)
    yield from ("", terminal.paint("  versions", "dim"))
    for row in rows:
        at = terminal.clock(row.applied_at)
        ago = f"  {age(since_s(row, row.applied_at))}" if is_agent and terminal.is_tty else ""
        yield f"  v{row.version:<4} {at}  by {safe(row.applied_by)}{terminal.paint(ago, 'dim')}"


def _agent(newest: SpecVersion, terminal: Terminal) -> Iterator[str]:
    spec = newest.spec
    for key, value in spec.items():
        if key in {"name", "system", "mcp"} or value in ("", [], {}):
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        text = next(block(shown, indent="")) if not isinstance(shown, dict) else _pairs(shown)
        yield f"  {terminal.paint(pad(safe(key), 13), 'dim')}{safe(text)}"
    if newest.cache_hit is not None:
        text = f"{hit_text(newest.cache_hit, newest.cache_saved_usd)} in its latest calls"
        yield f"  {terminal.paint(pad('prompts', 13), 'dim')}{text}"
    yield from ("", terminal.paint("  system", "dim"))
    yield from block(spec.get("system", ""), indent="    ")


def _flow(spec: dict[str, Any], terminal: Terminal) -> Iterator[str]:
    if spec.get("description"):
        yield f"  {safe(spec['description'])}"
    yield from ("", terminal.paint("  steps", "dim"))
    for step in spec.get("steps", ()):
        name = pad(safe(str(step.get("name"))), NAME_CELLS)
        more = [word for word in ("when", "for_each", "retry", "on_error") if word in step]
        note = terminal.paint("  ".join(more), "dim")
        yield f"  {name}  {safe(str(step.get('uses')))}  {note}".rstrip()


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_nested(value)}" for key, value in values.items())


def _nested(value: object) -> str:
    if isinstance(value, dict):
        return f"({_pairs(value)})"
    return " and ".join(map(_nested, value)) if isinstance(value, list) else str(value)
