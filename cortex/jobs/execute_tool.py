"""`execute_tool`: one call of a tool of the pod, as a job of its own."""

from typing import Any, Final

from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError
from cortex.domain.timeouts import check_timeout
from cortex.domain.why_facts import MISSING_TOOL
from cortex.durable.context import Context
from cortex.durable.registry import job

NAME: Final = "execute_tool"
TOOLS_SHOWN: Final = 20


def check(
    tool: str,
    arguments: dict[str, Any] | None = None,  # noqa: ARG001
    timeout_s: float | None = None,
) -> None:
    """Raise for a call that no tool takes."""
    if not tool:
        raise RejectedError("tool is empty", hint="name a tool")
    if timeout_s is not None:
        check_timeout("tool_call", timeout_s, source="timeout_s")


@job(NAME, check=check)
async def execute_tool(
    ctx: Context,
    tool: str,
    arguments: dict[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Call the tool and return its result; people are asked first where its policy says so.

    With an agent, the agent's secrets and approval rules apply. A tool that another living pod has
    is called there; one that no pod has fails the job.
    """
    try:
        return await ctx.tool(tool, tool, arguments or {}, timeout=timeout_s)
    except Suspended as raised:
        if raised.waiting_on != f"{MISSING_TOOL}{tool}":
            raise
        elsewhere = raised
    tools = await ctx.services.fleet.tools()
    if tool in tools:
        raise elsewhere
    raise _unknown(tool, tools)


def _unknown(tool: str, tools: list[str]) -> RejectedError:
    more = f" and {len(tools) - TOOLS_SHOWN} more" if len(tools) > TOOLS_SHOWN else ""
    listed = ", ".join(tools[:TOOLS_SHOWN]) or "no tool"
    return RejectedError(f"no living pod has a tool {tool!r:.100}; they have {listed}{more}")
