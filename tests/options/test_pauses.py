"""Answers that the provider pauses while its own tools work."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cortex import Context, ModelOptions, job
from cortex.agent.models.anthropic import arguments_of
from cortex.demo.validation import refusal_of
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.pausing import PAUSES_MAX
from cortex.jobs.llm_generate import llm_generate
from cortex.testing import Cortex, agent

PAUSES = 6
"""More than the number of times that a model may be asked to go on in a row."""
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def call(number: int) -> dict[str, Any]:
    given = {"query": f"{number}"}
    return {
        "type": "server_tool_use",
        "id": f"srvtoolu_{number}",
        "name": "web_search",
        "input": given,
    }


def result(number: int) -> dict[str, Any]:
    return {
        "type": "web_search_tool_result",
        "tool_use_id": f"srvtoolu_{number}",
        "content": [],
    }


def answer(*content: dict[str, Any], stop: str = "pause_turn") -> ModelResponse:
    return ModelResponse(
        model="m",
        content=content,
        stop_reason=stop,
        usage=Usage(input_tokens=10, output_tokens=1),
        message_id="m1",
    )


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


RUN = {"type": "code_execution_20260120", "name": "code_execution"}
"""Runs code that may search: its call stays open while those that it makes are answered."""
BOX = {"type": "container", "id": "container_1", "expires_at": "2026-11-01T12:00:00Z"}
ALIVE = datetime(2026, 11, 1, 11, 59, tzinfo=UTC)
DEAD = datetime(2026, 11, 1, 12, 1, tzinfo=UTC)


def run_code(number: int) -> dict[str, Any]:
    given = {"code": "search()"}
    return {"type": "server_tool_use", "id": f"srvtoolu_c{number}", "name": "bash", "input": given}


def code_result(number: int) -> dict[str, Any]:
    kind = "code_execution_tool_result"
    return {"type": kind, "tool_use_id": f"srvtoolu_c{number}", "content": []}


def sent_of(harness: Cortex) -> dict[str, Any]:
    """The last request as the API gets it, if that takes it."""
    sent = arguments_of(harness.model.requests[-1], DEAD)
    assert refusal_of(sent) is None
    return sent


SEARCHES = [
    answer(*([result(number - 1)] if number else []), call(number)) for number in range(PAUSES)
]
END = answer(result(PAUSES - 1), text("Found."), stop="end_turn")


@job
async def search(ctx: Context) -> str:
    options = ModelOptions(server_tools=(SEARCH,))
    messages = [{"role": "user", "content": "Look."}]
    found = await ctx.llm("look", model="m", messages=messages, options=options)
    assert len(found.content) == 2 * PAUSES + 1
    assert found.usage.output_tokens == PAUSES + 1
    return f"{found.text} {found.stop_reason}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.yaml"
    path.write_text(
        "name: finder\nmodel: m\nsystem: s\ntools: [write_file]\n"
        "server_tools: [{type: web_search_20250305, name: web_search}]\n"
    )
    return path


async def test_agent_goes_on_after_each_pause(harness: Cortex, file: Path) -> None:
    harness.model.script([*SEARCHES, END])
    run = await harness.run(agent(file), prompt="Look.")
    assert (run.result.text, run.result.steps) == ("Found.", PAUSES + 1)
    last = harness.model.requests[-1]
    assert [each["role"] for each in last.messages] == ["user", *["assistant"] * PAUSES]
    assert last.messages[-1]["content"] == [*SEARCHES[-1].content], "sent back as it came"
    assert refusal_of({**last.to_json(), "options": None}) is None
    run.replays()


async def test_pauses_are_none_of_the_times_that_a_model_may_go_on(
    harness: Cortex, file: Path
) -> None:
    cut = answer(result(PAUSES - 1), text("Fou"), stop="max_tokens")
    harness.model.script([*SEARCHES, cut, "nd."])
    run = await harness.run(agent(file), prompt="Look.")
    assert run.result.text == "Found."


def test_pauses_end_with_the_steps_of_the_agent(harness: Cortex, file: Path) -> None:
    file.write_text(f"{file.read_text()}max_steps: 5\n")
    harness.model.says(answer(call(0)))
    run = harness.run_sync(agent(file), prompt="Look.")
    assert run.error is not None
    assert "used all its 5 steps" in str(run.error)


async def test_servers_call_beside_an_own_one_waits_for_its_result(
    harness: Cortex, file: Path
) -> None:
    given = {"path": "a.txt", "content": "a"}
    own = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": given}
    harness.model.script([answer(call(0), own, stop="tool_use"), END])
    run = await harness.run(agent(file), prompt="Look.")
    sent = harness.model.requests[-1].messages
    assert sent[1]["content"] == [call(0), own]
    assert run.result.text == "Found."


async def test_code_that_pauses_goes_on_in_its_container(harness: Cortex, file: Path) -> None:
    """Refused else: "container_id is required when there are pending tool uses …"."""
    open_code = [BOX, run_code(0), call(0), result(0), call(1)]
    end = answer(result(1), code_result(0), text("Found."), stop="end_turn")
    harness.model.script([answer(*open_code), end])
    run = await harness.run(agent(file), prompt="Look.")
    sent = sent_of(harness)
    assert (run.result.text, sent["container"]) == ("Found.", "container_1")
    assert sent["messages"][-1] == {"role": "assistant", "content": open_code[1:]}
    run.replays()


async def test_code_beside_an_own_call_goes_on_in_its_container(
    harness: Cortex, file: Path
) -> None:
    given = {"path": "a.txt", "content": "a"}
    own = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": given}
    first = answer(BOX, run_code(0), call(0), result(0), own, stop="tool_use")
    newer = {**BOX, "id": "container_2"}
    end = answer(newer, code_result(0), text("Found."), stop="max_tokens")
    harness.model.script([first, end, "And done."])
    await harness.run(agent(file), prompt="Look.")
    first_sent, last_sent = harness.model.requests[1:]
    assert arguments_of(first_sent, DEAD)["container"] == "container_1"
    assert arguments_of(last_sent, ALIVE)["container"] == "container_2"
    assert "container" not in sent_of(harness), "no call is open: a new one will do"


def test_container_of_the_options_is_entered_again() -> None:
    skills = {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}
    request = ModelRequest(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": "hi"}, answer(BOX, text("so")).as_message()],
        options=ModelOptions(extra={"container": skills, "top_k": 4}),
    )
    sent = arguments_of(request, ALIVE)
    assert sent["container"] == {**skills, "id": "container_1"}
    assert sent["extra_body"] == {"top_k": 4}
    assert arguments_of(request, DEAD)["container"] == skills


async def test_call_returns_the_parts_as_one_answer(harness: Cortex) -> None:
    harness.model.script([*SEARCHES, END])
    run = await harness.run(search)
    assert run.result == "Found. end_turn"
    assert run.steps[:3] == ["look", "look, continued", "look, continued#2"]
    run.replays()
    assert await harness.crash_everywhere(search) >= PAUSES + 1


async def test_call_that_only_pauses_ends(harness: Cortex) -> None:
    harness.model.says(answer(call(0)))
    run = await harness.run(llm_generate, model="m", prompt="Look.")
    assert "stopped with 'pause_turn'" in str(run.error)
    assert len(harness.model.requests) == PAUSES_MAX + 1
