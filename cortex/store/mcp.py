"""Tools of MCP servers: what they were when they were accepted, and what differs now."""

from collections.abc import Mapping, Sequence

import orjson

from cortex.domain.known_tool import KnownTool
from cortex.domain.people import Identity
from cortex.postgres.database import Database
from cortex.store.rows import rows_of

ALL_MAX = 5_000
CHANGED_MAX = 100


async def known(db: Database, agent: str, server: str, identity: str) -> list[KnownTool]:
    """Return the tools of a server, by name; none before its first use."""
    return rows_of(KnownTool, await db.fetch("mcp.known", agent, server, identity))


async def note(
    db: Database,
    agent: str,
    server: str,
    identity: str,
    *,
    tools: Mapping[str, str],
    named: Sequence[str],
) -> list[KnownTool]:
    """Record what a server says about its tools, and return all that is known of them.

    `named`: new tools that the agent's specification names, which are accepted by that.
    """
    found = orjson.dumps(dict(tools)).decode()
    return rows_of(
        KnownTool, await db.fetch("mcp.note", agent, server, identity, found, list(named))
    )


async def of_agent(db: Database, agent: str) -> list[KnownTool]:
    """Return the tools of all servers that an agent has used, by server and name."""
    return rows_of(KnownTool, await db.fetch("mcp.of_agent", agent))


async def page(db: Database) -> list[KnownTool]:
    """Return the tools of all agents' servers, by agent, server and name."""
    return rows_of(KnownTool, await db.fetch("mcp.page", ALL_MAX))


async def changed(db: Database) -> list[KnownTool]:
    """Return tools that wait for a person."""
    return rows_of(KnownTool, await db.fetch("mcp.changed", CHANGED_MAX))


async def trust(
    db: Database, shown: Sequence[KnownTool], *, by: Identity, reason: str
) -> list[str]:
    """Accept what servers say about tools of one agent, as it was shown to the person.

    Returns the dotted names of those that were accepted: not of what has changed again meanwhile.
    Raises `ForbiddenError`.
    """
    accepted: list[str] = []
    for key in dict.fromkeys((each.agent, each.server, each.identity) for each in shown):
        texts = {
            each.tool: each.offered
            for each in shown
            if (each.agent, each.server, each.identity) == key
        }
        text = orjson.dumps(texts).decode()
        rows = await db.fetch("mcp.trust", *key, text, by.document(), reason)
        accepted += [f"{key[1]}.{row['tool']}" for row in rows]
    return accepted
