"""`cortex agents trust`: accepts what an MCP server of an agent says about its tools now."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.known_tool import KnownTool, ToolState
from cortex.store import mcp as store
from cortex.view.resources.mcp_tools import MCP_TOOLS, change_of
from cortex.view.verbs import TRUST_TOOLS


@click.command("trust", cls=Command, columns=MCP_TOOLS.fields)
@click.argument("agent", metavar="AGENT", shell_complete=known("agent"))
@click.argument("what", metavar="SERVER[.TOOL]")
@changes(TRUST_TOOLS)
def trust(change: ChangeRequest, *, agent: str, what: str) -> None:
    """Accept what an MCP server of an agent says about its tools now.

    Shows each change first: the text and the schemas that models would be given. Jobs that wait for
    it go on; new jobs get the tools as accepted. Exits with 5 if nothing has changed.
    """
    server, _, tool = what.partition(".")
    output = change.output
    with session(change.options) as call:
        rows = [
            each
            for each in call(store.of_agent, agent)
            if each.server == server and (not tool or each.tool == tool)
        ]
        if not rows:
            raise NotFoundError(
                f"agent {agent!r} has not used {what!r} yet",
                hint=f"see what it has used: cortex agents show {agent}",
            )
        shown = [each for each in rows if each.state is not ToolState.ACCEPTED]
        if not shown:
            raise ConflictError(f"{what} of agent {agent!r} says what was accepted")
        for row in shown:
            for line, style in change_of(row):
                output.say(line, style)
        count = "1 change" if len(shown) == 1 else f"{len(shown)} changes"
        change.confirm(f"accept {count} of {what} for agent {agent}")
        accepted = change.write_as_person(
            call, partial(_trust, shown), operation="agents.trust", request=_request(agent, shown)
        )
        names = set(accepted)
        if len(names) < len(shown):
            output.say("changed again meanwhile, and not accepted: look at it anew", "warn")
        after = [each for each in call(store.of_agent, agent) if each.name in names]
    output.resource(MCP_TOOLS, after, empty="the accepted tools are gone")


async def _trust(shown: Sequence[KnownTool], db: Any, *, by: Any, reason: str) -> list[str]:
    return await store.trust(db, shown, by=by, reason=reason)


def _request(agent: str, shown: Sequence[KnownTool]) -> dict[str, Any]:
    return {"agent": agent, "tools": {f"{row.name} {row.identity}": row.offered for row in shown}}
