"""Structured output: schemas for providers, answers as typed values, one correction."""

from pathlib import Path
from typing import Any, Literal, TypedDict

import attrs
import orjson
import pytest
from pydantic import BaseModel, Field

from cortex import Context, ModelOptions, job
from cortex.agent.models.anthropic import AnthropicModel
from cortex.agent.spec import parse_agents
from cortex.domain.errors import InvalidOutputError, UsageError
from cortex.domain.model import Capabilities, ModelResponse
from cortex.domain.output_schema import strict
from cortex.domain.usage import Usage
from cortex.durable.outputs import UnfitAnswerError, output_of
from cortex.flows.spec import parse_flows
from cortex.jobs.llm_generate import llm_generate
from cortex.testing import Cortex, agent


@attrs.frozen
class Line:
    text: str
    cents: int


@attrs.frozen
class Invoice:
    number: int
    lines: list[Line]
    note: str | None = None


class Order(BaseModel):
    count: int = Field(ge=1)
    size: Literal["s", "m"]


class Place(TypedDict):
    city: str


@attrs.frozen
class Tree:
    children: list["Tree"]


PRICE = {
    "type": "object",
    "properties": {"cents": {"type": "integer", "minimum": 1}, "unit": {"const": "EUR"}},
    "required": ["cents"],
}
MESSAGES = ({"role": "user", "content": "read it"},)
FITTING = '{"number": 7, "lines": [{"text": "tea", "cents": 250}]}'
UNFIT = '{"number": 7, "lines": [{"text": "tea"}]}'
TEA = Invoice(7, [Line("tea", 250)])


@job
async def read(ctx: Context) -> Invoice:
    return await ctx.llm("read", model="m", messages=MESSAGES, output=Invoice)


# --- schemas


@pytest.mark.parametrize(
    "hint, text, value",
    [
        (Invoice, FITTING, TEA),
        (list[Line], '{"value": [{"text": "a", "cents": 1}]}', [Line("a", 1)]),
        (Order, '```json\n{"count": 1, "size": "s"}\n```', Order(count=1, size="s")),
        (Place, ' {"city": "Rome"}\n', {"city": "Rome"}),
        (int, '{"value": 4}', 4),
        (PRICE, '{"cents": 3, "unit": "EUR"}', {"cents": 3, "unit": "EUR"}),
        ({"type": ["string", "null"]}, '{"value": null}', None),
    ],
)
def test_answer_becomes_a_value_of_the_type(hint: Any, text: str, value: Any) -> None:
    output = output_of(hint, what="call")
    assert output.format.schema["type"] == "object"
    assert output.format.schema["additionalProperties"] is False
    assert output.read(text) == value


@pytest.mark.parametrize(
    "hint, text, message",
    [
        (Invoice, UNFIT, "lines[0].cents is missing"),
        (Invoice, "It is tea.", "the answer is not JSON: unexpected character"),
        (Invoice, "[]", "the answer must be a mapping, got []"),
        (Order, '{"count": 0, "size": "s"}', "count is refused: Input should be greater than"),
        (list[Line], '[{"text": "a"}]', "the answer must be an object with 'value' alone"),
        (PRICE, '{"cents": 0}', "cents must be at least 1, got 0"),
        (PRICE, '{"cents": 1, "unit": "USD"}', 'unit must be one of "EUR", got "USD"'),
        (PRICE, '{"cents": 1, "tip": 1}', "tip is unknown; known: cents, unit"),
    ],
)
def test_unfit_answer_names_the_field(hint: Any, text: str, message: str) -> None:
    with pytest.raises(UnfitAnswerError) as caught:
        output_of(hint, what="call").read(text)
    assert str(caught.value).startswith(message)


def test_bounds_are_described_to_the_model() -> None:
    schema = strict(PRICE).schema
    assert schema["properties"]["cents"] == {"type": "integer", "description": "(minimum: 1)"}
    assert schema["properties"]["unit"] == {"enum": ["EUR"]}


REFUSED: dict[str, dict[str, Any]] = {
    "additionalProperties leaves the keys free, which no provider takes: name them under "
    "properties, or use a list of objects with a key and a value": {
        "type": "object",
        "additionalProperties": {"type": "string"},
    },
    'properties.a["$ref"] contains itself, which no provider takes: write out as many levels as '
    "an answer may have": {"type": "object", "properties": {"a": {"$ref": "#"}}},
    "items[\"$ref\"] names nothing in this schema: 'https://x.example/s.json'": {
        "type": "array",
        "items": {"$ref": "https://x.example/s.json"},
    },
    "pattern is a keyword that models are not held to: say it in the description": {
        "type": "string",
        "pattern": "^a+$",
    },
    "format must be one of date, date-time, uuid, got 'email': say it in the description": {
        "type": "string",
        "format": "email",
    },
    "items is missing: say what the list contains": {"type": "array"},
    "type must be one of array, boolean, integer, null, number, object, string; it has none": {},
    "required names 'b', no property": {
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "required": ["b"],
    },
    "minimum must be a number, got '1'": {"type": "integer", "minimum": "1"},
    "allOf joins schemas: write out the one they make": {"allOf": [{}, {}]},
    "allOf[0] must be a schema, got 3": {"allOf": [3]},
    "pattern is a keyword that models are not held to: say it in the description ": {
        "allOf": [{"type": "string", "pattern": "^a+$"}],
    },
    "type must be one of array, boolean, integer, null, number, object, string; got {'a': 1}": {
        "type": {"a": 1}
    },
    "required must be a list, got None": {
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "required": None,
    },
    "required names {}, no property": {
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "required": [{}],
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_schema_that_no_provider_takes_is_named(reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        output_of(REFUSED[reason], what="model call 'x'")
    assert caught.value.message == f"model call 'x': its output schema: {reason.strip()}"


def test_references_that_multiply_are_refused_at_once() -> None:
    levels = {
        f"L{level}": {
            "type": "object",
            "properties": {f"p{each}": {"$ref": f"#/$defs/L{level + 1}"} for each in range(9)},
        }
        for level in range(12)
    }
    bomb = {"$defs": {**levels, "L12": {"type": "null"}}, "$ref": "#/$defs/L0"}
    with pytest.raises(UsageError, match="more than 5,000 parts, each reference written out"):
        output_of(bomb, what="call")


def test_reference_beside_a_description_is_followed() -> None:
    part = {"allOf": [{"$ref": "#/$defs/Unit"}], "description": "of the price"}
    schema = {
        "$defs": {"Unit": {"type": "string", "enum": ["EUR"]}},
        "type": "object",
        "properties": {"unit": part},
    }
    made = output_of(schema, what="call").format.schema["properties"]
    assert made == {"unit": {"enum": ["EUR"], "type": "string", "description": "of the price"}}


@pytest.mark.parametrize(
    "hint, message",
    [
        (Tree, "call: output Tree: Tree contains itself"),
        (dict[str, int], "call: output dict[str, int]: additionalProperties leaves the keys free"),
        (bytes, "call: output bytes: bytes has no JSON form"),
        ([Line], "call: output [<class 'tests.options.test_output.Line'>] is no type"),
    ],
)
def test_type_that_no_provider_takes_is_named(hint: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        output_of(hint, what="call")
    assert caught.value.message.startswith(message)


def test_apply_names_the_line_of_a_schema() -> None:
    schema = "{type: object, properties: {a: {type: strin}}}"
    text = f"name: a\nmodel: m\nsystem: s\noutput: {schema}\n"
    reason = "must be one of array, boolean, integer, null, number, object, string; got 'strin'"
    with pytest.raises(UsageError) as caught:
        parse_agents(text, "a.yaml")
    assert caught.value.message == f"a.yaml:4: output.properties.a.type {reason}"
    call = f"{{model: m, prompt: p, output: {schema}}}"
    text = f"name: f\nsteps:\n- name: x\n  uses: llm\n  with: {call}"
    with pytest.raises(UsageError) as caught:
        parse_flows(text, "f.yaml")
    place = "steps[0].with.output.properties.a.type"
    assert caught.value.message == f"f.yaml:5: {place} {reason}"


# --- calls


async def test_call_returns_the_value_also_after_a_crash(harness: Cortex) -> None:
    harness.model.script([UNFIT, FITTING])
    run = await harness.run(read)
    assert run.result == TEA
    assert run.steps == ["read", "read, corrected"]
    first, second = harness.model.requests
    assert first.output is not None
    assert first.output.name == "Invoice"
    assert [each["role"] for each in second.messages] == ["user", "assistant", "user"]
    assert "lines[0].cents is missing" in second.messages[-1]["content"]
    run.replays()
    assert await harness.crash_everywhere(read) >= 4


async def test_second_unfit_answer_fails_and_names_the_field(harness: Cortex) -> None:
    harness.model.says(UNFIT)
    run = await harness.run(read)
    assert isinstance(run.error, InvalidOutputError)
    message = "does not fit, also after one correction: lines[0].cents is missing"
    assert message in run.error.message
    assert run.error.raw == UNFIT
    assert len(harness.model.requests) == 2


async def test_value_of_a_test_is_what_the_model_says(harness: Cortex) -> None:
    harness.model.script([{"output": TEA}])
    assert (await harness.run(read)).result == TEA


async def test_generated_response_has_the_output(harness: Cortex) -> None:
    harness.model.script([{"output": [1, 2]}])
    schema = {"type": "array", "items": {"type": "integer"}}
    run = await harness.run(llm_generate, model="m", prompt="count", output=schema)
    assert (run.result.output, run.result.text) == ([1, 2], '{"value":[1,2]}')


# --- agents


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.yaml"
    path.write_text(
        "name: clerk\nmodel: m\nsystem: s\ntools: [write_file]\n"
        "output: {type: object, properties: {cents: {type: integer}}, required: [cents]}\n"
    )
    return path


async def test_last_answer_of_an_agent_is_its_output(harness: Cortex, file: Path) -> None:
    clerk = agent(file)
    write = {"tool": "write_file", "input": {"path": "a.txt", "content": "a"}}
    harness.model.script([write, "It costs 250 cents.", {"output": {"cents": 250}}])
    run = await harness.run(clerk, prompt="What does it cost?")
    assert (run.result.output, run.result.steps) == ({"cents": 250}, 3)
    assert "the answer is not JSON" in harness.model.requests[-1].messages[-1]["content"]
    run.replays()
    assert await harness.crash_everywhere(clerk, prompt="What does it cost?") >= 6


async def test_agent_that_does_not_correct_its_answer_fails(harness: Cortex, file: Path) -> None:
    harness.model.script(["It costs 250 cents.", '{"cents": "250"}'])
    run = await harness.run(agent(file), prompt="What does it cost?")
    assert isinstance(run.error, InvalidOutputError)
    assert 'cents must be a whole number, got "250"' in run.error.message


# --- models without a mode for it


@pytest.mark.parametrize("thinking", [None, 2048])
async def test_model_without_the_mode_answers_to_a_tool(
    harness: Cortex, thinking: int | None
) -> None:
    @job
    async def read_by_tool(ctx: Context) -> Invoice:
        options = ModelOptions(thinking=thinking)
        return await ctx.llm("read", model="m", messages=MESSAGES, output=Invoice, options=options)

    harness.model.capabilities = Capabilities(output=False)
    unfit = {"tool": "final_answer", "input": orjson.loads(UNFIT)}
    harness.model.script([unfit, {"output": TEA}])
    run = await harness.run(read_by_tool)
    assert run.result == TEA
    request = harness.model.requests[0]
    assert request.output is None
    assert request.tools[0]["input_schema"]["required"] == ["number", "lines"]
    is_forced = request.options.tool_choice == "final_answer"
    assert is_forced is (thinking is None), "the API refuses a forced call beside thinking"
    assert ("final_answer" in request.system) is not is_forced
    run.replays()


def with_fields(optional: int, unions: int) -> dict[str, Any]:
    union = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    properties = {f"o{each}": {"type": "string"} for each in range(optional)}
    unions_by_name = {f"u{each}": union for each in range(unions)}
    part = {"type": "object", "properties": properties}
    whole = {"part": part, "unions": {"type": "array", "items": union}, **unions_by_name}
    return {"type": "object", "properties": whole, "required": [*whole]}


@pytest.mark.parametrize(
    "optional, unions, has_mode", [(24, 15, True), (25, 1, False), (1, 16, False)]
)
def test_schema_beyond_the_mode_of_anthropic_goes_to_a_tool(
    harness: Cortex, optional: int, unions: int, has_mode: bool
) -> None:
    """The API answers 400: "too many parameters with union types (… limit: 16)"."""
    harness.model.capabilities = AnthropicModel().capabilities("claude-sonnet-5")
    schema = with_fields(optional, unions)
    value: dict[str, Any] = {
        "part": {},
        "unions": [],
        **{f"u{each}": None for each in range(unions)},
    }
    harness.model.says({"output": value})
    run = harness.run_sync(llm_generate, model="m", prompt="Read it.", output=schema)
    assert (run.error, run.result.output) == (None, value)
    (request,) = harness.model.requests
    assert (request.output is not None) is has_mode


async def test_agent_answers_to_a_tool_after_its_own(harness: Cortex, file: Path) -> None:
    harness.model.capabilities = Capabilities(output=False)
    arguments = {"path": "a.txt", "content": "a"}
    write = {"type": "tool_use", "id": "1", "name": "write_file", "input": arguments}
    early = {"type": "tool_use", "id": "2", "name": "final_answer", "input": {"cents": 1}}
    both = ModelResponse(
        model="m",
        content=(write, early),
        stop_reason="tool_use",
        usage=Usage(),
        message_id="m1",
    )
    harness.model.script([both, {"tool": "final_answer", "input": {"cents": 250}}])
    run = await harness.run(agent(file), prompt="What does it cost?")
    assert run.result.output == {"cents": 250}, "an answer beside calls is too early"
    assert run.steps == ["1 model", "1 write_file", "2 model"]
    assert [each["name"] for each in harness.model.requests[0].tools] == [
        "write_file",
        "final_answer",
    ]


async def test_model_without_both_is_named(harness: Cortex) -> None:
    harness.model.capabilities = Capabilities(output=False, tools=False)
    run = await harness.run(read)
    assert isinstance(run.error, UsageError)
    message = "model 'm' has no structured output, and takes no tools to give it by"
    assert run.error.message == message


async def test_cut_answer_names_the_way_out(harness: Cortex) -> None:
    cut = {"type": "tool_use", "id": "1", "name": "final_answer", "input": {}}
    harness.model.capabilities = Capabilities(output=False)
    harness.model.says(
        ModelResponse(
            model="m",
            content=({**cut, "invalid_input": '{"numb'},),
            stop_reason="max_tokens",
            usage=Usage(),
            message_id="m1",
        )
    )
    run = await harness.run(read)
    assert isinstance(run.error, InvalidOutputError)
    assert run.error.message.endswith("the model stopped with 'max_tokens': raise max_tokens")
    assert run.error.raw == '{"numb'
