"""What a request becomes for the Messages API: options, output format, blocks of others."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cortex.agent.models.anthropic import arguments_of
from cortex.demo.validation import refusal_of
from cortex.domain.errors import UsageError
from cortex.domain.model import ModelOptions, ModelRequest, OutputFormat

TOOL = {"name": "add", "description": "Add.", "input_schema": {"type": "object"}}


PLAIN = ModelOptions()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(options: ModelOptions = PLAIN, **fields: Any) -> dict[str, Any]:
    given = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, **fields}
    return arguments_of(ModelRequest(model="m", options=options, **given), NOW)


def test_a_request_without_options_has_only_its_own_fields() -> None:
    assert asked() == {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    "options, fields",
    [
        (ModelOptions(temperature=0.5), {"extra_body": {"temperature": 0.5}}),
        (ModelOptions(temperature=0), {"extra_body": {"temperature": 0}}),
        (ModelOptions(stop_sequences=("END",)), {"stop_sequences": ["END"]}),
        (ModelOptions(tool_choice="any"), {"tool_choice": {"type": "any"}}),
        (ModelOptions(tool_choice="none"), {"tool_choice": {"type": "none"}}),
        (ModelOptions(tool_choice="add"), {"tool_choice": {"type": "tool", "name": "add"}}),
        (
            ModelOptions(parallel_calls=False),
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
        (
            ModelOptions(parallel_calls=False, tool_choice="add"),
            {"tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True}},
        ),
        (ModelOptions(parallel_calls=False, tool_choice="none"), {"tool_choice": {"type": "none"}}),
        (ModelOptions(thinking=2048), {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (ModelOptions(thinking="adaptive"), {"thinking": {"type": "adaptive"}}),
        (ModelOptions(thinking="off"), {"thinking": {"type": "disabled"}}),
        (ModelOptions(effort="high"), {"output_config": {"effort": "high"}}),
        (ModelOptions(metadata={"user_id": "u"}), {"metadata": {"user_id": "u"}}),
        (ModelOptions(extra={"top_k": 4}), {"extra_body": {"top_k": 4}}),
    ],
)
def test_each_option_becomes_the_field_of_the_api(
    options: ModelOptions, fields: dict[str, Any]
) -> None:
    plain = asked(tools=(TOOL,))
    assert asked(options, tools=(TOOL,)) == {**plain, **fields}


def test_tools_of_the_server_come_after_the_agents_own() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert asked(ModelOptions(server_tools=(search,)), tools=(TOOL,))["tools"] == [TOOL, search]


def test_an_output_format_and_an_effort_share_one_field() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    config = asked(ModelOptions(effort="low"), output=OutputFormat(name="o", schema=schema))
    sent = config["output_config"]
    assert sent["effort"] == "low"
    assert sent["format"]["type"] == "json_schema"
    assert sent["format"]["schema"]["additionalProperties"] is False
    # The API refuses `minimum`: it becomes part of the description.
    assert "minimum" not in sent["format"]["schema"]["properties"]["n"]
    assert "minimum: 1" in sent["format"]["schema"]["properties"]["n"]["description"]


def test_a_schema_that_the_api_cannot_take_is_named() -> None:
    with pytest.raises(UsageError, match="output 'o': the Messages API does not take its schema"):
        asked(output=OutputFormat(name="o", schema={"properties": {}}))


def test_blocks_of_other_providers_are_left_out() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "reasoning", "provider": "openai", "id": "r"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "thinking", "thinking": "hm", "signature": "t", "provider": "anthropic"},
                {"type": "thought", "provider": "google", "signature": "g"},
                {"type": "text", "text": "yes"},
            ],
        },
    ]
    assert asked(messages=messages)["messages"] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "thinking", "thinking": "hm", "signature": "t"},
                {"type": "text", "text": "yes"},
            ],
        },
    ]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"type": "tool_use", "id": "u", "name": "add", "input": {}}


def _turn(number: int, *before: dict[str, Any]) -> list[dict[str, Any]]:
    use_id = f"u{number}"
    result = {"type": "tool_result", "tool_use_id": use_id, "content": "3"}
    return [
        {"role": "assistant", "content": [*before, {**CALL, "id": use_id}]},
        {"role": "user", "content": [result]},
    ]


@pytest.mark.parametrize(
    "turns, thinks",
    [
        ([], True),
        ([*_turn(1, THOUGHT), *_turn(2)], True),
        ([*_turn(1), *_turn(2, THOUGHT)], False),
        (_turn(1, {**THOUGHT, "provider": "google"}), False),
        ([*_turn(1), {"role": "user", "content": "go on"}], True),
    ],
    ids=["no call", "thought once", "not at first", "thinking of another", "a new question"],
)
def test_a_budget_for_thinking_needs_calls_that_began_with_it(
    turns: list[dict[str, Any]], thinks: bool
) -> None:
    """The API refuses the others: Expected `thinking` …, but found `tool_use`."""
    budget, messages = ModelOptions(thinking=2048), [{"role": "user", "content": "hi"}, *turns]
    request = asked(budget, messages=messages, tools=(TOOL,), max_tokens=4096)
    assert ("thinking" in request) is thinks
    assert refusal_of(request) is None
    enabled = {"type": "enabled", "budget_tokens": 2048}
    assert (refusal_of({**request, "thinking": enabled}) is None) is thinks
    adaptive = asked(ModelOptions(thinking="adaptive"), messages=messages, tools=(TOOL,))
    assert adaptive["thinking"] == {"type": "adaptive"}
