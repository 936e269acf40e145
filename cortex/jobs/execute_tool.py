"""`execute_tool`: one call of a tool of the pod, as a job of its own."""

from typing import Any, Final

from cortex.durable.context import Context
from cortex.durable.registry import job

NAME: Final = "execute_tool"


@job(NAME)
async def execute_tool(
    ctx: Context,
    tool: str,
    arguments: dict[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Call the tool and return its result; people are asked first where its policy says so.

    With an agent, the agent's secrets and approval rules apply.
    """
    return await ctx.tool(tool, tool, arguments or {}, timeout=timeout_s)
