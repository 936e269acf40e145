"""Asking the other side what became of a call whose outcome nobody recorded."""

from functools import partial
from typing import Final

import trio

from cortex.agent.abandon import abandonable
from cortex.agent.tool import Tool
from cortex.agent.tool_result import checked
from cortex.domain.classification import describe
from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import InvalidOutputError

LIMIT_S: Final = 30.0
"""The most that one question may take; less where the tool's own limit is."""


async def asked(tool: Tool, invocation: Invocation) -> Verdict:
    """What the tool's `reconcile` says; whatever goes wrong in it means that nobody knows.

    The result that it gives fits what the tool declares, or is None: applied, but not known with
    what result. Cancelled, it returns at most 8 s later.
    """
    reconcile = tool.declared.reconcile
    if reconcile is None:
        return Unknown("the tool has no reconcile")
    limit_s = min(tool.timeout_s, LIMIT_S)
    try:
        with trio.move_on_after(limit_s):
            ask = partial(reconcile, invocation)
            return _checked(tool, await abandonable(ask, name=f"reconcile of tool {tool.name!r}"))
    except Exception as error:  # noqa: BLE001 -- a tool's own code; its words are told
        return Unknown(f"reconcile failed: {describe(error)}")
    return Unknown(f"reconcile took longer than {limit_s:g} seconds")


def _checked(tool: Tool, verdict: object) -> Verdict:
    match verdict:
        case Applied(result=None) | NotApplied() | Unknown():
            return verdict
        case Applied():
            try:
                return Applied(checked(tool.name, verdict.result, tool.result))
            except InvalidOutputError as error:
                return Unknown(f"reconcile says applied, but {error.message}")
        case _:
            kind = type(verdict).__name__
            return Unknown(f"reconcile returned {kind}, not Applied, NotApplied or Unknown")
