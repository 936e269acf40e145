"""Long conversations and loops in `cortex.testing`."""

from pathlib import Path

import pytest

from cortex import tool
from cortex.domain.errors import RejectedError
from cortex.domain.model import ModelResponse
from cortex.domain.usage import Usage
from cortex.testing import Cortex, agent
from cortex.testing.agents import Agent

AGENT = """\
name: reader
model: claude-sonnet-4-5
system: You read.
tools: [chapter]
max_tokens: 1000
max_context_tokens: 5000
compaction: {keep_turns: 1}
"""
PAGES = 5


@tool
async def chapter(number: int) -> str:
    """Read a chapter."""
    return f"chapter {number} " * 40


@pytest.fixture
def reader(tmp_path: Path) -> Agent:
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT)
    return agent(file, tools=[chapter])


def reading(number: int, thought: str = "On.") -> ModelResponse:
    use = {"type": "tool_use", "id": f"u{number}", "name": "chapter", "input": {"number": number}}
    return ModelResponse(
        model="m",
        content=({"type": "text", "text": thought}, use),
        stop_reason="tool_use",
        usage=Usage(),
        message_id=f"{number}",
    )


async def test_a_summary_survives_a_crash_at_each_point(harness: Cortex, reader: Agent) -> None:
    thoughts = [reading(number, "I think so. " * 250) for number in range(PAGES)]
    harness.model.script([*thoughts, "A summary.", "All read."])
    run = await harness.run(reader, prompt="Read all.")
    assert run.result.text == "All read."
    assert run.steps[-3:] == [
        f"{PAGES + 1} make room",
        f"{PAGES + 1} compact",
        f"{PAGES + 1} model",
    ]
    head = harness.model.requests[-1].messages[0]["content"]
    assert "A summary." in head[1]["text"]
    run.replays()
    assert await harness.crash_everywhere(reader, prompt="Read all.") > 2 * PAGES


async def test_a_loop_survives_a_crash_at_each_point(harness: Cortex, reader: Agent) -> None:
    """Also while people are asked, and after they have decided."""
    harness.model.script([*[reading(1)] * 8, "Enough."])
    harness.approve("8 loop", by="ana")
    run = await harness.run(reader, prompt="Read.")
    assert run.result.text == "Enough."
    assert [each for each in run.steps if "loop" in each] == ["4 loop", "8 loop"]
    last = harness.model.requests[-1].messages[-1]["content"][-1]["text"]
    assert last.startswith("People have seen that you go round in circles")
    run.replays()
    assert await harness.crash_everywhere(reader, prompt="Read.") > 30


async def test_a_loop_is_replayed_by_a_release_with_other_words(
    harness: Cortex, reader: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.model.script([*[reading(1)] * 8, "Enough."])
    harness.approve("8 loop", by="ana")
    run = await harness.run(reader, prompt="Read.")
    monkeypatch.setattr("cortex.agent.loops._same_call", lambda *_: "it repeats itself")
    run.replays()


async def test_people_decide_whether_an_agent_goes_on(harness: Cortex, reader: Agent) -> None:
    harness.model.script([reading(1)] * 12)
    harness.approve("8 loop", by="ana")
    run = await harness.run(reader, prompt="Read.")
    with pytest.raises(RejectedError, match="goes round in circles: tool 'chapter'"):
        _ = run.result
    assert [each for each in run.steps if "loop" in each] == ["4 loop", "8 loop"]
