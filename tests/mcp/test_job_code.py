"""MCP servers of job types: their tools in job code, and stand-ins for them in tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import cortex
from cortex.agent.mcp.of_jobs import JobServers, servers_of
from cortex.agent.mcp.terms import McpServer
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.errors import InvalidOutputError, RejectedError, UsageError
from cortex.testing import Cortex
from cortex.testing.agents import Agent
from tests.mcp.conftest import OneAgent, scripted
from tests.support.records.factories import LedgerDesk, a_claim, a_context

CLOSE_S = 10.0
SERVER = scripted("echo", "create", "fail", "ask", folder="write", trusted=True).to_json()


@cortex.job(mcp={"notes": SERVER})
async def keep_note(ctx: cortex.Context, text: str, tool: str = "create") -> str:
    answer: str = await ctx.tool("keep", f"notes.{tool}", {"text": text})
    return answer


@cortex.tool(effect=True)
async def create(text: str) -> str:
    """Create an issue."""
    return f"stood in for {text}"


@cortex.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@pytest.fixture
def harness() -> Iterator[Cortex]:
    with Cortex() as made:
        yield made


@attrs.define
class InCode:
    """A job whose type has servers, as a pod runs it."""

    folder: Path
    gateway: LedgerDesk = attrs.field(factory=LedgerDesk)

    async def run(self, **arguments: Any) -> str:
        toolbox = Toolbox({}, of_jobs=servers_of([keep_note]))
        specs = OneAgent(AgentSpec(name="a", model="m", system="s"))
        lent: dict[str, Any] = {
            "tools": toolbox,
            "gateway": self.gateway,
            "workspaces": self.folder,
        }
        claim = a_claim(type=keep_note.name)
        try:
            return await keep_note(a_context(claim=claim, specs=specs, **lent), **arguments)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await toolbox.close()


async def test_job_code_calls_a_tool_of_its_server_as_an_effect(folder: Path) -> None:
    job = InCode(folder)
    assert await job.run(text="a") == "created a"
    assert [each.tool for each in job.gateway.intents] == ["notes.create"]


async def test_failure_of_a_tool_fails_job_code_by_its_name(folder: Path) -> None:
    with pytest.raises(InvalidOutputError) as caught:
        await InCode(folder).run(text="a", tool="fail")
    assert caught.value.message == "tool 'notes.fail' failed: 404 no such repository"


async def test_tool_that_no_server_has_is_named(folder: Path) -> None:
    with pytest.raises(RejectedError) as caught:
        await InCode(folder).run(text="a", tool="nothing")
    assert caught.value.message == (
        "MCP server 'notes' has no tool 'nothing'; it has ask, create, echo, fail"
    )


async def test_server_without_a_stand_in_is_named_in_tests(harness: Cortex) -> None:
    run = await harness.run(keep_note, text="a")
    assert "'notes' has no stand-in: give the test its tools: cortex.mcp['notes'] =" in str(
        run.error
    )


async def test_stand_in_takes_the_place_of_a_server_in_tests(harness: Cortex) -> None:
    harness.mcp["notes"] = [create]
    run = await harness.run(keep_note, text="a")
    assert run.result == "stood in for a"
    assert [each.tool for each in run.effects] == ["notes.create"]


async def test_stand_in_serves_an_agent_in_tests(harness: Cortex) -> None:
    terms = McpServer(command=["notes"], trusted=True)
    spec = AgentSpec(name="clerk", model="m", system="s", mcp={"notes": terms})
    harness.mcp["notes"] = [create, echo]
    harness.model.script([{"tool": "notes__create", "input": {"text": "a"}}, "done"])
    run = await harness.run(Agent(spec, ()), prompt="do it")
    assert run.error is None
    assert [each.tool for each in run.effects] == ["notes.create"]


@pytest.mark.parametrize(
    "declared, reason",
    [
        ({"a b": {"command": ["x"]}}, "mcp 'a b' is no name of a server"),
        ({"a": 5}, "mcp 'a' is no mapping"),
        ({"a": {}}, "must have either command or url"),
        ({"a": {"command": ["x"], "env": {"N": "{secret:T}"}}}, "refers to secret 'T'"),
        ({"a": {"command": ["x"], "secrets": {"T": "value"}}}, "must be a reference"),
        ({"a": {"command": ["x"], "secrets": {"t": {"env": "T"}}}}, "is no name of a secret"),
    ],
)
def test_declaration_that_cannot_be_used_names_the_job_type(
    declared: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError) as caught:
        JobServers.of("keep_note", declared)
    assert caught.value.message.startswith("job type 'keep_note': mcp ")
    assert reason in caught.value.message
