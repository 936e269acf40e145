"""Tools of MCP servers as they are on record: what was accepted, and what servers say now."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import attrs

TRUST: Final = "trust:"
"""Prefix of AGENT/SERVER.TOOL: jobs wait for it until a person accepts what the server says."""


class ToolState(StrEnum):
    """Whether a person has to look at a tool."""

    ACCEPTED = "accepted"
    CHANGED = "changed"
    """The server describes it in another way than was accepted."""
    NEW = "new"
    """The server offers it since its first use: models do not get it."""
    GONE = "gone"
    """The server has it no more."""


@attrs.frozen(kw_only=True)
class KnownTool:
    """One tool of one server of an agent. Its texts are canonical JSON of definitions."""

    agent: str
    server: str
    identity: str
    """A digest of what the agent declares about the server."""
    tool: str
    accepted: str | None
    """What models are told; None: it is new."""
    accepted_at: datetime | None
    accepted_by: str | None
    """None: the first use of the server."""
    offered: str | None
    """What the server says now, if that differs; empty: it is gone."""
    offered_at: datetime | None

    @property
    def state(self) -> ToolState:
        if self.offered is None:
            return ToolState.ACCEPTED
        if self.accepted is None:
            return ToolState.NEW
        return ToolState.CHANGED if self.offered else ToolState.GONE

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.server}.{self.tool}"


def first_use(agent: str, server: str, identity: str, tool: str, text: str) -> KnownTool:
    """Return a tool that was accepted when its server was first used."""
    return KnownTool(
        agent=agent,
        server=server,
        identity=identity,
        tool=tool,
        accepted=text,
        accepted_at=None,
        accepted_by=None,
        offered=None,
        offered_at=None,
    )


def trust_of(agent: str, name: str) -> str:
    """Return what jobs wait for until a person accepts a tool; `name` is the dotted one."""
    return f"{TRUST}{agent}/{name}"


def trust_words(name: str) -> str:
    """Describe what `trust_of` names, without its prefix, and the way out."""
    agent, _, tool = name.partition("/")
    return f"{tool} has changed: cortex agents trust {agent} {tool}"
