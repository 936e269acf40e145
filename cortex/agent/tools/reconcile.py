"""Asking the other side what became of a tool's call whose outcome nobody recorded."""

from functools import partial

from cortex.agent.tools.abandon import abandonable
from cortex.agent.tools.tool import Tool
from cortex.agent.tools.tool_result import checked
from cortex.domain.effect import Applied, Invocation, Unknown, Verdict
from cortex.domain.errors import InvalidOutputError
from cortex.durable import effects
from cortex.durable.effects import LIMIT_S


async def asked(tool: Tool, invocation: Invocation) -> Verdict:
    """What the tool's `reconcile` says; what it says wrongly means that nobody knows.

    The result that it gives fits what the tool declares, or is None: applied, but not known with
    what result. It may take `LIMIT_S`, less where the tool's own limit is. Raises what passes,
    such as a refused connection, and `TimedOutError`. Cancelled, it returns at most 8 s later.
    """
    reconcile = tool.declared.reconcile
    if reconcile is None:
        return Unknown("the tool has no reconcile")
    ask = partial(reconcile, invocation)

    async def said(_: Invocation) -> Verdict:
        return _fitting(tool, await abandonable(ask, name=f"reconcile of tool {tool.name!r}"))

    return await effects.asked(said, invocation, limit_s=min(tool.timeout_s, LIMIT_S))


def _fitting(tool: Tool, verdict: Verdict) -> Verdict:
    if not isinstance(verdict, Applied) or verdict.result is None:
        return verdict
    try:
        return Applied(checked(tool.name, verdict.result, tool.result))
    except InvalidOutputError as error:
        return Unknown(f"reconcile says applied, but {error.message}")
