"""Room in a long conversation: what is shortened, what is summed up, and what stays."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cortex.agent.compaction import Gauge, Room, room_for, threshold
from cortex.agent.limits import CompactionTerms
from cortex.agent.loop import AgentResult, run_agent
from cortex.agent.models.anthropic import arguments_of
from cortex.agent.models.errors import ModelRejectedError
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.agent.transcript import SUM_UP, ToolText, Transcript
from cortex.demo.validation import refusal_of
from cortex.domain.errors import UsageError
from cortex.domain.failure import CallFailure
from cortex.domain.job import StepKind
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.domain.windows import window_of
from cortex.durable.calls import Caller
from cortex.durable.step_outcome import StepOutcome
from tests.support.agent_turns import Script, Turn, calls, says
from tests.support.records.factories import Record, a_context

WINDOW = 6_000
"""With max_tokens 1,000 room is made from 4,800 tokens on."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUMMARY = "Pages 0 to 3 are read; 42 is the answer so far."


@tool(local=True)
async def page(number: int, size: int = 4_000) -> str:
    """Read a page."""
    return f"page {number}: ".ljust(size, "x")


def turns(count: int, size: int = 4_000) -> list[Turn]:
    return [calls(("page", {"number": number, "size": size})) for number in range(count)]


def summing_up(request: ModelRequest) -> bool:
    content = request.messages[-1]["content"]
    return isinstance(content, list) and content[-1].get("text") == SUM_UP


class Model(Script):
    """Plays its turns, and sums up by `summary` whenever it is asked to."""

    def __init__(self, played: list[Turn], summary: Turn | Exception) -> None:
        super().__init__(played)
        self.summary = summary
        self.summed_up: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        if not summing_up(request):
            return await super().respond(request, caller)
        self.summed_up.append(request)
        if isinstance(self.summary, Exception):
            raise self.summary
        response = ModelResponse(model="m", usage=Usage(), message_id="id", **self.summary)
        return StepOutcome(value=response.to_json(), usage=Usage(input_tokens=7))


Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    async def run(model: Script, record: Record, **fields: Any) -> AgentResult:
        given = {"max_context_tokens": WINDOW, "max_tokens": 1_000, **fields}
        given.setdefault("compaction", CompactionTerms(keep_turns=2))
        spec = AgentSpec(name="a", model="m", system="s", tools=("page",), **given)
        toolbox = Toolbox({"page": page})
        ctx = a_context(record, models=model, tools=toolbox, workspaces=tmp_path)
        return await run_agent(ctx, spec, prompt="read all pages", folder=None)

    return run


async def test_old_results_are_shortened_before_anything_is_summed_up(run: Run) -> None:
    model, record = Model([*turns(8, 16_000), says("done")], says(SUMMARY)), Record()
    assert (await run(model, record, max_context_tokens=40_000)).text == "done"
    assert not model.summed_up
    assert [key for key in record.keys if "make room" in key] == ["9 make room"]
    sizes = [len(each["content"][0]["content"]) for each in model.asked[-1].messages[2::2]]
    assert max(sizes[:-2]) < 2_000
    assert sizes[-2:] == [16_000, 16_000]


async def test_a_summary_takes_the_place_of_old_turns(run: Run) -> None:
    model, record = Model([*_long(5), says("done")], says(SUMMARY)), Record()
    assert (await run(model, record)).text == "done"
    assert record.keys[-5:-1] == ["5 make room", "5 compact", "5 model", "5 page"]
    head, *rest = model.asked[-1].messages
    assert head["content"][0]["text"] == "read all pages"
    assert SUMMARY in head["content"][1]["text"]
    assert [each["role"] for each in rest] == ["assistant", "user"] * 3
    steps = {each.key: each for each in record.steps}
    assert steps["5 compact"].kind is StepKind.MODEL
    assert steps["5 compact"].usage == Usage(input_tokens=7)


async def test_the_request_for_a_summary_begins_as_the_one_before(run: Run) -> None:
    model = Model([*_long(5), says("done")], says(SUMMARY))
    await run(model, Record())
    (asked,), before = model.summed_up, model.asked[3]
    assert (asked.system, asked.tools) == (before.system, before.tools)
    *old, last = asked.messages
    assert old == [*before.messages[: len(old)]]
    assert last["content"][:-1] == before.messages[len(old)]["content"]


def refused(message: str) -> ModelRejectedError:
    failure = CallFailure(model="m", host="h", type="invalid_request_error", status=400)
    return ModelRejectedError(failure, message)


@pytest.mark.parametrize(
    "summary", [says(SUMMARY), says(""), says("cut", "max_tokens"), refused("no")]
)
async def test_a_pod_that_takes_over_sends_what_the_first_one_would(
    run: Run, summary: Turn | Exception
) -> None:
    played = [*_long(6), says("done")]
    first, whole = Model(played, summary), Record()
    await run(first, whole)
    assert first.summed_up
    for kept in range(len(whole.steps) + 1):
        model, record = Model(played, summary), Record()
        record.steps.extend(whole.steps[:kept])
        answered = sum(each.key.endswith(("model", "shortened")) for each in record.steps)
        model.turns = played[answered:]
        assert (await run(model, record)).text == "done"
        assert model.asked == first.asked[answered:]
        assert [each.key for each in record.steps] == [each.key for each in whole.steps]
    silent = Model([], summary)
    await run(silent, whole)
    assert silent.summed_up == []


@pytest.mark.parametrize(
    "summary, why",
    [
        (says(""), "the summary is empty"),
        (says("no", "refusal"), "stopped with 'refusal'"),
        (says("cut", "max_tokens"), "stopped with 'max_tokens'"),
        (refused("prompt is too long: 300000 tokens"), "prompt is too long"),
    ],
)
async def test_a_failed_summary_is_one_line_and_the_job_goes_on(
    run: Run, summary: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        "cortex.durable.context.Context.log", lambda _, text, *_words, **_fields: lines.append(text)
    )
    model, record = Model([*_long(6), says("done")], summary), Record()
    assert (await run(model, record)).text == "done"
    assert lines
    assert all("compaction in step" in each and "\n" not in each for each in lines)
    assert why in lines[0]
    assert "raise max_context_tokens" in lines[0]
    assert any(key.endswith("shorten") for key in record.keys)


async def test_an_agent_stops_summing_up_after_two_failures(run: Run) -> None:
    model, record = Model([*_long(12), says("done")], says("")), Record()
    assert (await run(model, record)).text == "done"
    assert len(model.summed_up) == 2


async def test_nothing_is_done_without_a_known_window(run: Run) -> None:
    model, record = Model([*turns(8), says("done")], says(SUMMARY)), Record()
    await run(model, record, max_context_tokens=None)
    assert not [key for key in record.keys if "room" in key or "compact" in key]


async def test_a_replay_makes_no_room_that_an_older_release_has_not_made(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, record = [*_long(6), says("done")], Record()
    await run(Model(played, says(SUMMARY)), record, max_context_tokens=None)
    monkeypatch.setattr("cortex.agent.compaction.window_of", lambda _: WINDOW)
    for kept in range(len(record.steps) + 1):
        model, older = Model(played, says(SUMMARY)), Record()
        older.steps.extend(record.steps[:kept])
        model.turns = played[sum(each.key.endswith("model") for each in older.steps) :]
        assert (await run(model, older, max_context_tokens=None)).text == "done"
        assert older.keys[:kept] == record.keys[:kept]


def _text(size: int) -> dict[str, Any]:
    return {"type": "text", "text": "thought ".ljust(size, "y")}


def _long(count: int) -> list[Turn]:
    """Turns whose own texts are long: there is nothing to shorten in their results."""
    return [{**each, "content": (_text(5_000), *each["content"])} for each in turns(count, 10)]


def test_a_summed_up_conversation_goes_on_as_any_other() -> None:
    """Its results can be shortened, and what people said stays."""
    talk = Transcript("read", result_tokens=10_000, can_read=False)
    for number in range(5):
        use = {"type": "tool_use", "id": f"u{number}", "name": "page", "input": {}}
        content = (_text(10), use)
        fields: dict[str, Any] = {"model": "m", "stop_reason": "tool_use", "message_id": "i"}
        talk.add_answer(ModelResponse(content=content, usage=Usage(), **fields), number)
        text = ToolText(name="page", text="x" * 4_000, is_error=False, note=None)
        talk.add_results([f"u{number}"], [text])
        if number == 1:
            talk.add_note("Go on, says ana.", is_pinned=True)
    talk.shorten(3)
    talk.sum_up(2, "Three pages.")
    head, *rest = talk.messages
    texts = [each["text"] for each in head["content"]]
    assert texts[:2] == ["read", "Go on, says ana."]
    assert texts[2].startswith("[3 turns were summed up")
    assert talk.shortened == 0
    talk.shorten(1)
    talk.add_note("Enough.")
    first, last = rest[1], talk.messages[-1]
    assert len(first["content"][0]["content"]) == 4_000
    assert len(talk.messages[2]["content"][0]["content"]) < 2_000
    assert [each["type"] for each in last["content"]] == ["tool_result", "text"]
    asked = {"max_tokens": 1, "messages": list(talk.messages)}
    assert refusal_of(asked) is None
    talk.sum_up(1, "Four pages.")
    assert [each["text"] for each in talk.messages[0]["content"]][2].startswith("[4 turns")


@pytest.mark.parametrize("size, room", [(1_600, None), (20_000, Room(shortened=3))])
def test_results_are_not_shortened_by_a_little_in_each_turn(size: int, room: Room | None) -> None:
    talk = Transcript("read", result_tokens=10_000, can_read=False)
    fields: dict[str, Any] = {"model": "m", "stop_reason": "tool_use", "message_id": "i"}
    for number in range(4):
        use = {"type": "tool_use", "id": f"u{number}", "name": "page", "input": {}}
        talk.add_answer(ModelResponse(content=(use,), usage=Usage(), **fields), number)
        text = ToolText(name="page", text="x" * size, is_error=False, note=None)
        talk.add_results([f"u{number}"], [text])
    terms = CompactionTerms(keep_turns=1)
    found = room_for(
        talk, estimate=20_000, gauge=Gauge(), most=10_000, terms=terms, may_sum_up=False
    )
    assert found == room


def test_the_gauge_learns_from_what_the_provider_counts() -> None:
    gauge = Gauge()
    gauge.learn(1_000, Usage())
    assert gauge.tokens(1_000) == 1_000
    gauge.learn(1_000, Usage(input_tokens=100, cache_read_tokens=1_400))
    assert gauge.tokens(1_000) == 1_500
    gauge.learn(1_000, Usage(input_tokens=1))
    assert gauge.tokens(1_000) == 500


@pytest.mark.parametrize(
    "model, tokens",
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("anthropic:claude-opus-5", 1_000_000),
        ("openrouter:openai/gpt-4o-mini", 128_000),
        ("scripted", None),
    ],
)
def test_known_models_have_a_window(model: str, tokens: int | None) -> None:
    assert window_of(model) == tokens


def test_the_answer_fits_beside_the_request() -> None:
    assert threshold(10_000, 1_000, CompactionTerms()) == 8_000
    assert threshold(10_000, 5_000, CompactionTerms()) == 5_000


def test_a_window_below_the_answer_is_refused() -> None:
    text = "name: a\nmodel: m\nsystem: s\nmax_tokens: 5000\nmax_context_tokens: 4000\n"
    with pytest.raises(UsageError, match="5: max_context_tokens must be above max_tokens"):
        parse_agents(text, "a.yaml")


async def test_compaction_can_be_switched_off(run: Run) -> None:
    model, record = Model([*_long(6), says("done")], says(SUMMARY)), Record()
    assert (await run(model, record, compaction=CompactionTerms(at=0))).text == "done"
    assert not model.summed_up
    assert not [key for key in record.keys if "room" in key]


def test_a_share_close_to_nothing_is_refused() -> None:
    text = "name: a\nmodel: m\nsystem: s\ncompaction: {at: 0.01}\n"
    with pytest.raises(UsageError, match=r"4: compaction.at must be 0, or from 0.1 to 0.95"):
        parse_agents(text, "a.yaml")


async def test_a_summary_has_room_beside_the_thinking_of_the_model(run: Run) -> None:
    model = Model([*_long(5), says("done")], says(SUMMARY))
    await run(model, Record(), max_tokens=1_200, thinking=1_024)
    (asked,) = model.summed_up
    assert asked.max_tokens == 4_096 + 1_024


async def test_a_model_that_thinks_once_goes_on_after_a_summary(run: Run) -> None:
    """Without its interleaved thinking, only the first of several calls has any."""
    thought = {"type": "thinking", "thinking": "Page by page.", "signature": "s"}
    begun, *others = _long(6)
    first = {**begun, "content": (thought, *begun["content"])}
    model = Model([first, *others, says("done")], says(SUMMARY))
    await run(model, Record(), max_tokens=1_200, thinking=1_024)
    assert model.summed_up
    sent = [arguments_of(each, NOW) for each in (*model.asked, *model.summed_up)]
    assert [refusal_of(each) for each in sent] == [None] * len(sent)
    assert [("thinking" in each) for each in (sent[0], sent[len(model.asked) - 1])] == [True, False]
