"""Agents that go round in circles: noticed, asked to change, shown to people, ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from cortex.agent.limits import LoopTerms
from cortex.agent.loop import AgentResult, run_agent
from cortex.agent.loops import NO_NEWS, Loop, LoopDetector, MadeCall, Reaction, identity_of
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.agent.transcript import ToolText
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.job import StepKind
from tests.support.agent_turns import Script, Turn, calls, says
from tests.support.records.factories import Record, a_claim, a_context

Turns = list[list[MadeCall]]


def call(number: int = 0, result: str = "same") -> MadeCall:
    return MadeCall(tool="look", arguments={"number": number}, result=result, identity=result)


def taken(turns: Turns, **terms: Any) -> list[tuple[int, Loop]]:
    """The loops by their turn, each of them reacted to."""
    detector, found = LoopDetector(LoopTerms(**terms)), []
    for number, made in enumerate(turns, 1):
        if (loop := detector.take(made)) is not None:
            detector.reacted(loop)
            found.append((number, loop))
    return found


def test_the_same_call_with_the_same_result_is_a_loop() -> None:
    ((turn, loop),) = taken([[call()]] * 4)
    assert turn == 4
    assert loop.reaction is Reaction.ASK_MODEL
    assert loop.text == "tool 'look' with {\"number\": 0} gave the same result 4 times"


def test_other_calls_between_hide_no_loop() -> None:
    turns = [[call()] if number % 2 == 0 else [call(number)] for number in range(8)]
    assert [turn for turn, _ in taken(turns)] == [7]


@pytest.mark.parametrize(
    "turns",
    [
        [[call(result=f"{number}")] for number in range(9)],
        [[call(number)] for number in range(9)],
        [[call() for _ in range(9)]],
        [[call() if number % 5 == 0 else call(number)] for number in range(30)],
    ],
    ids=["other results", "other calls", "calls of one turn", "rarely the same"],
)
def test_progress_is_no_loop(turns: Turns) -> None:
    assert taken(turns, no_news=0) == []


def test_turns_without_anything_new_are_a_loop() -> None:
    turns = [[call(number % 4)] for number in range(20)]
    found = taken(turns, same_call=0)
    assert [(turn, loop.key) for turn, loop in found] == [(14, NO_NEWS)]


def test_reactions_get_stronger() -> None:
    found = taken([[call()]] * 12, no_news=0)
    assert [turn for turn, _ in found] == [4, 8, 12]
    assert [loop.reaction for _, loop in found] == [
        Reaction.ASK_MODEL,
        Reaction.ASK_PEOPLE,
        Reaction.FAIL,
    ]


def test_a_specification_keeps_permitted_loops() -> None:
    text = "name: a\nmodel: m\nsystem: s\nloops: {same_call: 0, no_news: 0}\n"
    (agent,) = parse_agents(text, "a.yaml")
    assert AgentSpec.from_json(agent.to_json()).loops == LoopTerms(same_call=0, no_news=0)


def test_loops_can_be_permitted() -> None:
    assert taken([[call()]] * 50, same_call=0, no_news=0) == []


def test_a_loop_of_one_call_is_refused() -> None:
    text = "name: a\nmodel: m\nsystem: s\nloops: {same_call: 1}\n"
    with pytest.raises(UsageError, match=r"a.yaml:4: loops.same_call must be 0, or from 2 to 1000"):
        parse_agents(text, "a.yaml")


@pytest.mark.parametrize(
    "tool_name, field, before, after",
    [
        ("run_command", "duration_s", 0.012, 0.019),
        ("http_request", "headers", {"date": "1"}, {"date": "2"}),
    ],
)
def test_times_and_headers_hide_no_loop(
    tool_name: str, field: str, before: object, after: object
) -> None:
    def identity(tool: str, **fields: object) -> str:
        text = orjson.dumps({"body": "the same", **fields}).decode()
        return identity_of(tool, ToolText(name="1", text=text, is_error=False, note=None))

    assert identity(tool_name, **{field: before}) == identity(tool_name, **{field: after})
    assert identity(tool_name, body="other") != identity(tool_name)
    assert identity("look", **{field: before}) != identity("look", **{field: after})


def test_errors_and_results_in_files_are_compared_as_they_are() -> None:
    error = ToolText(name="1", text="it failed", is_error=True, note=None)
    kept = ToolText(name="1", text="[", is_error=False, note=None, whole_bytes=9, whole_sha256="a")
    assert identity_of("run_command", error) == "it failed"
    assert identity_of("run_command", kept) == "[\na"
    for own in ("plain", "[1]"):
        text = ToolText(name="1", text=own, is_error=False, note=None)
        assert identity_of("run_command", text) == own


# --- in a run


@tool(local=True)
async def look(number: int) -> str:
    """Look at something that never changes."""
    return f"{number}: nothing new"


LOOK: Turn = calls(("look", {"number": 1}))
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    async def run(script: Script, record: Record, **lent: Any) -> AgentResult:
        spec = AgentSpec(name="a", model="m", system="s", tools=("look",))
        toolbox = Toolbox({"look": look})
        ctx = a_context(record, models=script, tools=toolbox, workspaces=tmp_path, **lent)
        return await run_agent(ctx, spec, prompt="look", folder=None)

    return run


def last_blocks(script: Script) -> list[dict[str, Any]]:
    content = script.asked[-1].messages[-1]["content"]
    assert isinstance(content, list)
    return content


async def test_the_model_is_asked_to_change_its_way(run: Run) -> None:
    script, record = Script([*[LOOK] * 4, says("then not")]), Record()
    assert (await run(script, record)).text == "then not"
    assert "4 loop" in record.keys
    result, advice = last_blocks(script)
    assert result["type"] == "tool_result"
    assert advice["text"].startswith("You go round in circles: tool 'look' with")


@pytest.mark.parametrize("job_type, follows", [("run_agent", "fail"), ("shop", "tell")])
async def test_people_are_asked_next(run: Run, job_type: str, follows: str) -> None:
    """With what the agent calls, and what that returns."""
    record = Record()
    with pytest.raises(Suspended) as caught:
        await run(Script([LOOK] * 8), record, claim=a_claim(type=job_type))
    assert caught.value.waiting_on
    assert record.keys[-1] == "8 look"
    (request,) = caught.value.requests
    assert (request.on_deny, request.on_expiry) == (follows, follows)
    assert orjson.loads(request.arguments)["calls"] == [
        {"tool": "look", "arguments": '{"number": 1}', "result": "1: nothing new"}
    ]


def test_results_too_large_for_the_record_are_compared_whole() -> None:
    """A log that grows begins as it did."""
    beginning = ToolText(name="read", text="[1]", is_error=False, note=None, whole_bytes=9_000_000)
    grown = attrs.evolve(beginning, whole_sha256="b" * 64)
    assert attrs.evolve(beginning, whole_sha256="a" * 64).identity != grown.identity


async def test_a_pod_that_takes_over_asks_what_the_first_one_would(run: Run) -> None:
    played = [*[LOOK] * 5, says("then not")]
    first, whole = Script(played), Record()
    await run(first, whole)
    for kept in range(len(whole.steps) + 1):
        record = Record()
        record.steps.extend(whole.steps[:kept])
        answered = sum(each.kind is StepKind.MODEL for each in record.steps)
        script = Script(played[answered:])
        assert (await run(script, record)).text == "then not"
        assert script.asked == first.asked[answered:]
        assert record.keys == whole.keys


async def test_a_replay_asks_nothing_that_an_older_release_has_not_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, record = [*[LOOK] * 6, says("done")], Record()
    with monkeypatch.context() as older:
        older.setattr(LoopDetector, "take", lambda *_: None)
        await run(Script(played), record)
    replayed = Record()
    replayed.steps.extend(record.steps)
    assert (await run(Script([]), replayed)).text == "done"
    assert replayed.keys == record.keys
    goes_on = Record()
    goes_on.steps.extend(record.steps[: record.keys.index("6 model")])
    await run(Script(played[5:]), goes_on)
    assert [key for key in goes_on.keys if "loop" in key] == ["5 loop"]


async def test_an_agent_that_does_not_stop_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def approved(*_: Any, **__: Any) -> Any:
        class Permission:
            reason = "try the other door"

        return Permission()

    monkeypatch.setattr("cortex.durable.context.Context.approve_or_end", approved)
    script = Script([LOOK] * 12)
    with pytest.raises(RejectedError, match="agent 'a' goes round in circles: tool 'look'") as it:
        await run(script, Record())
    assert "raise loops" in str(it.value.hint)
    assert "They say: try the other door" in str(script.asked[8].messages[-1]["content"])
