"""The tools that an agent's model is offered: the pod's, and those of the agent's MCP servers.

Their order and text are the same in each turn, on each pod and in each replay: providers keep what
does not change. So what servers say about their tools is recorded with the job, as a step.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from cortex.agent.mcp.catalogue import ToolDefinition, refuse_taken
from cortex.agent.mcp.names import divided, model_name
from cortex.agent.mcp.terms import TOOL
from cortex.agent.spec import AgentSpec
from cortex.domain.errors import RejectedError
from cortex.durable.context import Context

STEP = "mcp tools"
"""The name of the step, after the run's prefix."""


@attrs.frozen(kw_only=True)
class OfferedTools:
    """What a model may call, by the name that it uses."""

    described: list[dict[str, Any]]
    """For the model, in order."""
    names: frozenset[str]
    """As people know them."""
    shown: tuple[str, ...]
    """As the model knows them, in order."""
    _definitions: Mapping[str, ToolDefinition] = attrs.field(factory=dict)
    """Of servers, by dotted name."""
    _dotted: Mapping[str, str] = attrs.field(factory=dict)
    """The dotted name by that of the model."""

    @classmethod
    async def of(cls, ctx: Context, spec: AgentSpec, *, folder: Path | None, prefix: str) -> Self:
        """Return the tools of an agent; with servers, that is a recorded step.

        Raises `Unfit` for a tool that the pod does not have, what listing raises, and
        `RejectedError` for two tools with one name, and for an approval rule about no tool.
        """
        own = ctx.services.tools.offer(spec.tools)
        if not spec.mcp:
            return cls(described=own, names=frozenset(spec.tools), shown=spec.tools)
        listed = await ctx.mcp_tools(f"{prefix}{STEP}", folder=folder)
        definitions = [ToolDefinition.from_json(each) for each in listed]
        refuse_taken(definitions, spec.tools)
        by_name = {each.dotted: each for each in definitions}
        _require_tools_of_rules(spec, by_name)
        return cls(
            described=[*own, *(each.offer() for each in definitions)],
            names=frozenset({*spec.tools, *by_name}),
            shown=(*spec.tools, *(each.model_name for each in definitions)),
            definitions=by_name,
            dotted={each.model_name: each.dotted for each in definitions},
        )

    def as_shown(self, name: str) -> str:
        """Return the model's name of a tool. Raises `RejectedError` for one that is not there."""
        server = divided(name)
        shown = name if server is None else model_name(*server)
        if server is not None and shown not in self.shown:
            raise RejectedError(
                f"tool_choice names {name!r}, which its server does not offer",
                hint=f"it has {', '.join(sorted(self._definitions)) or 'none'}",
            )
        return shown

    def called(self, name: str) -> str:
        """Return the name for people of what a model calls; an unknown one as it is."""
        return self._dotted.get(name, name)

    def defined(self, name: str) -> dict[str, Any] | None:
        """Return what is recorded about a server's tool; None for one of the pod."""
        found = self._definitions.get(name)
        return None if found is None else found.to_json()


def _require_tools_of_rules(spec: AgentSpec, definitions: Mapping[str, ToolDefinition]) -> None:
    """Refuse a rule with the name of a tool that no server offers.

    Nobody would be asked about the tool that its author had in mind.
    """
    for index, rule in enumerate(spec.approvals):
        named = divided(rule.tool)
        if named is None or not TOOL.fullmatch(named[1]) or rule.tool in definitions:
            continue
        if named[0] in spec.mcp:
            has = ", ".join(sorted(definitions)) or "none"
            raise RejectedError(
                f"agent {spec.name!r}: approvals[{index}] is about {rule.tool!r}, which MCP server "
                f"{named[0]!r} does not offer; there are {has:.300}",
                hint=f"mend the rule, or accept a new tool: cortex agents trust {spec.name} "
                f"{named[0]}",
            )
