"""Requests and responses of a model, as values that survive the record."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.model import INVALID_INPUT, ModelOptions, ModelRequest, ModelResponse
from cortex.domain.usage import Usage

COUNTS = st.integers(min_value=0, max_value=10**9)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    cache_write_1h_tokens=COUNTS,
    web_searches=COUNTS,
    service_tier=st.sampled_from(["", "batch", "priority"]),
    inference_geo=st.sampled_from(["", "us"]),
)
CALL: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "look", "input": {"at": "it"}}


def a_response(*content: dict[str, Any], usage: Usage | None = None) -> ModelResponse:
    return ModelResponse(
        model="m",
        content=content,
        stop_reason="end_turn",
        usage=usage or Usage(),
        message_id="message-1",
    )


@given(USAGES)
def test_a_response_survives_json(usage: Usage) -> None:
    response = a_response({"type": "text", "text": "hello"}, CALL, usage=usage)
    assert ModelResponse.from_json(response.to_json()) == response


def test_text_and_calls_are_found_among_other_blocks() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    response = a_response(
        thought, {"type": "text", "text": "a"}, CALL, {"type": "text", "text": "b"}
    )
    assert response.text == "ab"
    assert response.tool_calls == (CALL,)


def test_message_sent_back_contains_only_api_fields() -> None:
    broken = {**CALL, "input": {}, INVALID_INPUT: "{"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    sent = a_response(thought, broken).as_message()
    assert sent == {"role": "assistant", "content": [thought, {**CALL, "input": {}}]}


def test_request_contains_only_set_fields() -> None:
    bare = ModelRequest(model="m", messages=({"role": "user", "content": "?"},), max_tokens=5)
    assert set(bare.to_json()) == {"model", "messages", "max_tokens"}
    full = ModelRequest(
        model="m",
        messages=(),
        max_tokens=5,
        system="s",
        tools=({"name": "t"},),
        options=ModelOptions(temperature=0.0),
    )
    assert full.to_json() == {
        "model": "m",
        "messages": [],
        "max_tokens": 5,
        "system": "s",
        "tools": [{"name": "t"}],
        "options": {"temperature": 0.0},
    }


@given(USAGES, USAGES, USAGES)
def test_usage_adds_like_numbers(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert (one + Usage()).tokens() == one.tokens()
    assert (one + two).total_tokens == one.total_tokens + two.total_tokens
    assert one.total_tokens == one.prompt_tokens + one.output_tokens
