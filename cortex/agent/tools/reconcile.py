"""Asks the other side about a tool's call whose outcome was not recorded."""

from functools import partial

from cortex.agent.tools.abandon import abandonable
from cortex.agent.tools.tool import AnyTool
from cortex.agent.tools.tool_result import checked
from cortex.domain.effect import Applied, Invocation, Unknown, Verdict
from cortex.domain.errors import InvalidOutputError
from cortex.durable import effects
from cortex.durable.effects import LIMIT_S
from cortex.durable.resources import Resources


async def asked(
    tool: AnyTool, invocation: Invocation, *, resources: Resources | None = None
) -> Verdict:
    """Return the verdict of the tool's `reconcile`; an invalid one counts as unknown.

    The result of an applied call fits the tool's declared type, or is None: applied, with an
    unknown result. It may take `LIMIT_S`, or the tool's own limit if that is less. Raises transient
    errors, such as a refused connection, and `TimedOutError`. Cancelled, it returns at most 8 s
    later.
    """
    reconcile = tool.declared.reconcile
    if reconcile is None:
        return Unknown("the tool has no reconcile")
    if resources is not None:
        reconcile = resources.bind(reconcile, (invocation,))
    ask = partial(reconcile, invocation)

    async def verdict(_: Invocation) -> Verdict:
        return _fitting(tool, await abandonable(ask, name=f"reconcile of tool {tool.name!r}"))

    return await effects.asked(verdict, invocation, limit_s=min(tool.timeout_s, LIMIT_S))


def _fitting(tool: AnyTool, verdict: Verdict) -> Verdict:
    if not isinstance(verdict, Applied) or verdict.result is None:
        return verdict
    try:
        return Applied(checked(tool.name, verdict.result, tool.result))
    except InvalidOutputError as error:
        return Unknown(f"reconcile says applied, but {error.message}")
