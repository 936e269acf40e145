"""`execute_tool`: one call of a tool of the pod, as a job of its own."""

from typing import Any

from cortex.domain.errors import RejectedError
from cortex.domain.job import EXECUTE_TOOL
from cortex.domain.timeouts import check_timeout
from cortex.durable.context import Context
from cortex.durable.registry import job


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


@job(EXECUTE_TOOL, check=check)
async def execute_tool(
    ctx: Context,
    tool: str,
    arguments: dict[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Call the tool and return its result; people are asked first where its policy says so.

    With an agent, the agent's secrets and approval rules apply. A tool that this pod does not have
    is called by another one, once one has it; so is one that takes other arguments here.
    """
    return await ctx.tool_as_stored(
        tool, tool, arguments or {}, computed=frozenset(), timeout=timeout_s
    )
