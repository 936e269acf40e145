"""Which tools of MCP servers an agent's model gets, and whether people still have to accept them.

What a server said when it was first used is on record, and is what models are told. A server that
says something else later is noticed when its session begins, or when it says that its tools have
changed. Then tools that only read go on as recorded; any other call waits until a person accepts
the change.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from cortex.agent.mcp.catalogue import ToolDefinition, chosen, definition_of
from cortex.agent.mcp.names import divided
from cortex.agent.mcp.session import Session
from cortex.agent.mcp.sessions import Sessions, Wanted
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import Secrets
from cortex.agent.tools.mcp_tool import McpTool, breaker_of, described
from cortex.agent.tools.tool import AnyTool
from cortex.domain.canonical import canonical
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.known_tool import KnownTool, ToolState, trust_of
from cortex.domain.log_line import Level
from cortex.durable.attempt import Attempt, ToolCall
from cortex.durable.guarding import guard_of
from cortex.durable.job_log import write_line

TRUST_POLL_S: Final = 300.0
"""A job that waits for a person looks again that often: the change may be taken back."""


@attrs.frozen(kw_only=True)
class ServerTools:
    """The servers of one agent, for one attempt of its job."""

    attempt: Attempt
    agent: str
    """Whose the record of the tools is."""
    servers: Mapping[str, McpServer]
    sessions: Sessions
    stand_ins: Mapping[str, Mapping[str, AnyTool]] | None
    """In tests, tools in place of servers; None: the servers."""
    secrets: Secrets
    workspace: Path
    folder: Path

    async def listed(self, step: str) -> list[ToolDefinition]:
        """Return the tools that the model gets, by server and name; `step` asks for them.

        Raises the errors of `Sessions.lend` and `chosen`, and as breakers do.
        """
        found: list[ToolDefinition] = []
        for name in sorted(self.servers):
            breaker = breaker_of(self.agent, name)
            found += await guard_of(self.attempt, breaker, step=step)(lambda: self._of(name))  # noqa: B023 -- awaited here
        return found

    async def tool(self, call: ToolCall) -> McpTool:
        """Return the tool of a call by its dotted name. Raises `RejectedError` if there is none."""
        server, name = divided(call.tool) or ("", "")
        terms = self.servers.get(server)
        if terms is None:
            has = ", ".join(sorted(self.servers)) or "none"
            raise RejectedError(f"there is no tool {call.tool!r}: the job's MCP servers are {has}")
        if call.defined is not None:
            definition = await self._believed(ToolDefinition.from_json(call.defined))
        else:
            tools = {each.name: each for each in await self._of(server)}
            if name not in tools:
                has = ", ".join(tools) or "none"
                raise RejectedError(f"MCP server {server!r} has no tool {name!r}; it has {has}")
            definition = tools[name]
        return McpTool(
            definition=definition,
            agent=self.agent,
            terms=terms,
            sessions=self.sessions,
            tenant=self.attempt.claim.tenant,
            secrets=self.secrets,
            notice=self.notice,
            answers=call.answers,
            stand_in=None if self.stand_ins is None else self._stand_ins(server).get(name),
        )

    async def require_trust(self, definition: ToolDefinition) -> None:
        """Raise `Suspended` until the server describes a tool as it was accepted."""
        name = definition.server
        if self.stand_ins is not None:
            return
        async with self.sessions.lend(self._wanted(name)) as session:
            rows = await self._noted(name, session)
            live = next((each for each in session.listed if each.name == definition.name), None)
            if live is not None and definition_of(name, live).to_json() == definition.to_json():
                return
            if rows is None:
                rows = await self._note(name, session)
        row = next((each for each in rows if each.tool == definition.name), None)
        if row is None or row.state is not ToolState.ACCEPTED:
            raise self._unaccepted(definition, is_gone=live is None)

    async def notice(self, session: Session, definition: ToolDefinition) -> None:
        """Record what a server says now, before a call that only reads.

        Such a call goes on as it is on record. Raises `Suspended` only if it reads by the word of
        the server alone, and the server has taken that back: then it is an effect, see `_believed`.
        """
        name = definition.server
        rows = await self._noted(name, session)
        live = next((each for each in session.listed if each.name == definition.name), None)
        if live is None or self.servers[name].only_reads(definition.name):
            return
        if not definition_of(name, live).read_only:
            if rows is None:
                await self._note(name, session)
            raise self._unaccepted(definition, is_gone=False)

    async def _believed(self, definition: ToolDefinition) -> ToolDefinition:
        """Return a job's definition without the hints that its server has taken back meanwhile."""
        name = definition.server
        terms = self.servers[name]
        if self.stand_ins is not None or not terms.trusted:
            return definition
        if not definition.read_only and not definition.idempotent:
            return definition
        rows: Sequence[KnownTool] = await self.attempt.services.specs.known_tools(
            self.agent, name, terms.identity
        )
        texts = [
            text
            for each in rows
            if each.tool == definition.name
            for text in (each.accepted, each.offered)
        ]
        said = [ToolDefinition.from_json(orjson.loads(each)) for each in texts if each]
        return attrs.evolve(
            definition,
            read_only=definition.read_only and all(each.read_only for each in said),
            idempotent=definition.idempotent and all(each.idempotent for each in said),
        )

    def _unaccepted(self, definition: ToolDefinition, *, is_gone: bool) -> Suspended:
        name = definition.server
        says = "has another list of tools" if is_gone else "says something else of the tool"
        return Suspended(
            trust_of(self.agent, definition.dotted),
            f"MCP server {name!r} {says} than was accepted: a person must accept it "
            f"(cortex agents trust {self.agent} {definition.dotted})",
            delay_s=TRUST_POLL_S,
        )

    def _wanted(self, name: str) -> Wanted:
        return Wanted(
            name=name,
            terms=self.servers[name],
            tenant=self.attempt.claim.tenant,
            secrets=self.secrets,
            workspace=self.workspace,
            folder=self.folder,
        )

    async def _of(self, name: str) -> list[ToolDefinition]:
        """Return the accepted tools of a server that the agent gets, asking it if it is new."""
        terms = self.servers[name]
        if self.stand_ins is not None:
            return [described(name, each) for _, each in sorted(self._stand_ins(name).items())]
        rows: Sequence[KnownTool] = await self.attempt.services.specs.known_tools(
            self.agent, name, terms.identity
        )
        accepted = {each.tool for each in rows if each.accepted is not None}
        if not rows or not accepted.issuperset(terms.named):
            async with self.sessions.lend(self._wanted(name)) as session:
                noted = await self._noted(name, session)
                rows = await self._note(name, session) if noted is None else noted
        if new := [
            each.tool for each in rows if each.state is ToolState.NEW and terms.has(each.tool)
        ]:
            write_line(
                f"MCP server {name!r} has new tools, which the model gets when a person accepts "
                f"them: {', '.join(new[:10])} (cortex agents trust {self.agent} {name})",
                Level.WARNING,
                {},
            )
        return [
            ToolDefinition.from_json(orjson.loads(each.accepted))
            for each in sorted(rows, key=lambda row: row.tool)
            if each.accepted is not None and terms.has(each.tool)
        ]

    def _stand_ins(self, name: str) -> Mapping[str, AnyTool]:
        """Return what a test has given in place of a server. Raises `UsageError` for nothing."""
        found = {} if self.stand_ins is None else self.stand_ins
        if name not in found:
            raise UsageError(
                f"tests use no MCP server, and {name!r} has no stand-in",
                hint=f"give the test its tools: cortex.mcp[{name!r}] = [function, …]",
            ).with_way_out()
        return found[name]

    async def _noted(self, name: str, session: Session) -> list[KnownTool] | None:
        """Record what a server says, once for each session and change; None: that was done."""
        if session.is_stale:
            await session.list_anew()
        elif self.agent in session.noted:
            return None
        return await self._note(name, session)

    async def _note(self, name: str, session: Session) -> list[KnownTool]:
        terms = self.servers[name]
        found = chosen(name, terms, session.listed)
        tools = {each.name: canonical(each.to_json()) for each in found}
        rows = await self.attempt.services.specs.note_tools(
            self.agent, name, terms.identity, tools=tools, named=list(terms.named)
        )
        session.noted.add(self.agent)
        return rows


def as_json(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    return [each.to_json() for each in definitions]
