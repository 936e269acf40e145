"""Agents in memory: their own files, a scripted model, tools and approvals."""

from pathlib import Path

import pytest

from cortex import tool
from cortex.domain.errors import UsageError
from cortex.testing import Cortex, StuckError, agent

AGENTS = """\
name: clerk
model: claude-sonnet-4-5
system: You refund orders.
tools: [look_up, refund, write_file]
approvals:
  - {tool: refund, when: {order: {gt: 5}}, approve: true, risk: HIGH}
  - {tool: refund, approve: false}
---
name: writer
model: claude-sonnet-4-5
system: You write.
"""


@tool
async def look_up(order: int) -> str:
    """Return the state of an order."""
    return f"order {order} was paid"


@tool(effect=True)
async def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} is refunded"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.yaml"
    path.write_text(AGENTS)
    return path


async def test_agent_runs_with_scripted_model_and_tools(harness: Cortex, file: Path) -> None:
    clerk = agent(file, "clerk", tools=[look_up, refund])
    harness.model.script(
        [
            {"tool": "look_up", "input": {"order": 7}},
            {"tool": "refund", "input": {"order": 7}},
            {"tool": "write_file", "input": {"path": "a.txt", "content": "7"}},
            "It is refunded.",
        ]
    )
    harness.approve("refund", by="ana")
    run = await harness.run(clerk, prompt="Refund order 7.")
    assert (run.result.text, run.result.steps) == ("It is refunded.", 4)
    assert [each.tool for each in run.effects] == ["refund"]
    assert run.steps[:2] == ["1 model", "1 look_up"]
    assert (Path(run.result.workspace) / "a.txt").read_text() == "7"
    run.replays()
    assert await harness.crash_everywhere(clerk, prompt="Refund order 7.") > 10


def test_approval_of_agents_tool_is_named(harness: Cortex, file: Path) -> None:
    harness.model.script([{"tool": "refund", "input": {"order": 7}}])
    with pytest.raises(StuckError, match=r"cortex.approve\('refund'\)"):
        harness.run_sync(agent(file, "clerk", tools=[look_up, refund]), prompt="Refund order 7.")


def test_agent_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(UsageError, match=r"agents.yaml' has no agent 'poet'"):
        agent(file, "poet")
    with pytest.raises(UsageError, match="has several agents"):
        agent(file)
    with pytest.raises(UsageError, match="cannot read"):
        agent(file.parent / "none.yaml")
