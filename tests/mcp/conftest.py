"""MCP servers of tests: a scripted one, and jobs of agents that use it."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from cortex.agent.loop import AgentResult, run_agent
from cortex.agent.mcp.catalogue import ToolDefinition, chosen
from cortex.agent.mcp.sessions import Sessions, Wanted
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import Secrets
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.job import StepDone
from cortex.domain.known_tool import KnownTool, first_use
from tests.support.agent_turns import Script
from tests.support.pods import Pods
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context
from tests.support.records.rows import new_id
from tests.support.servers import mcp_server

SERVER = Path(mcp_server.__file__)
PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
"""Which confined programs see."""


def scripted(*tools: Any, start: str = "", page: int = 1000, **terms: Any) -> McpServer:
    """The terms of a scripted server: see its program."""
    how = {"tools": tools, "start": start, "page": page, "marks": "{workspace}/marks"}
    command = [PYTHON, "-I", "-S", str(SERVER), json.dumps(how)]
    return McpServer(**{"command": command, "reads": [str(SERVER.parent)], **terms})


async def listed(sessions: Sessions, of: Wanted) -> list[ToolDefinition]:
    """Ask a server for its tools."""
    async with sessions.lend(of) as session:
        return chosen(of.name, of.terms, session.listed)


@attrs.define
class OneAgent:
    """The specification that a job's agent has, and what is on record about its tools."""

    spec: AgentSpec
    known: dict[str, KnownTool] = attrs.field(factory=dict)

    async def known_tools(self, *_: Any) -> list[KnownTool]:
        return list(self.known.values())

    async def note_tools(
        self,
        agent: str,
        server: str,
        identity: str,
        *,
        tools: dict[str, str],
        named: list[str],  # noqa: ARG002
    ) -> list[KnownTool]:
        """Take note as cortex.note_mcp_tools does, see tests/mcp/test_trust.py."""
        rows = {n: first_use(agent, server, identity, n, text) for n, text in tools.items()}
        if not self.known:
            self.known.update(rows)
        for name, row in self.known.items():
            text = tools.get(name, "")
            self.known[name] = attrs.evolve(row, offered=None if text == row.accepted else text)
        return list(self.known.values())

    async def agent(self, *_: Any) -> dict[str, Any]:
        return dict(orjson.loads(orjson.dumps(self.spec.to_json())))


@attrs.define
class OutcomeRecord(Record):
    """Keeps what became of each effect: None of one that was applied, else why it was not."""

    outcomes: list[str | None] = attrs.field(factory=list)

    async def record(self, operation: StepDone) -> None:
        await super().record(operation)
        if operation.effect is not None:
            self.outcomes.append(operation.effect.why_not)


@attrs.define
class AgentJob:
    """Attempts of one job with one record, whose agent has MCP servers."""

    folder: Path
    servers: dict[str, McpServer]
    fields: dict[str, Any] = attrs.field(factory=dict)
    record: OutcomeRecord = attrs.field(factory=OutcomeRecord)
    gateway: LedgerDesk = attrs.field(factory=LedgerDesk)
    specs: OneAgent = attrs.field(
        factory=lambda: OneAgent(AgentSpec(name="a", model="m", system="s"))
    )
    lent: dict[str, Any] = attrs.field(factory=dict)
    toolbox: Toolbox = attrs.field(factory=lambda: Toolbox({}))
    claim: Any = attrs.field(factory=lambda: a_claim(agent_id=new_id(), agent_version=1))

    async def run(self, script: Script) -> AgentResult:
        """Run an attempt to its end."""
        named: dict[str, Any] = {"name": "a", "model": "m", "system": "s", **self.fields}
        spec = AgentSpec(mcp=self.servers, **named)
        self.specs.spec = spec
        ctx = a_context(
            self.record,
            self.claim,
            models=script,
            tools=self.toolbox,
            specs=self.specs,
            gateway=self.gateway,
            workspaces=self.folder,
            **self.lent,
        )
        return await run_agent(ctx, spec, prompt="do it", folder=None)

    @property
    def marks(self) -> list[str]:
        """The changes that the scripted server has made."""
        (file,) = self.files("marks")
        return file.read_text().splitlines()

    def files(self, pattern: str) -> list[Path]:
        """Files of the job's workspace."""
        return list(self.folder.glob(f"*/{pattern}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of workspaces, which other users may pass."""
    for each in (tmp_path, *tmp_path.parents[:3]):
        if each.stat().st_uid != 0 or each == Path("/"):
            break
        each.chmod(each.stat().st_mode | 0o011)
    made = tmp_path / "workspaces"
    made.mkdir(mode=0o711)
    return made


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    kept = Sessions()
    yield kept
    await kept.close()


def wanted(folder: Path, terms: McpServer, *, name: str = "notes", **fields: Any) -> Wanted:
    workspace = folder / "job"
    workspace.mkdir(exist_ok=True)
    given = {"tenant": "t", "secrets": Secrets(), "workspace": workspace, "folder": workspace}
    return Wanted(name=name, terms=terms, **{**given, **fields})


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on a migrated database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()
