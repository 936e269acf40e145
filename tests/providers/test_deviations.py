"""What servers do that only resemble an API, and what the APIs do seldom: the decoders alone."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.anthropic import AnthropicModel
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.google_events import GeminiDecoder
from cortex.agent.models.openai_events import ChatDecoder, ResponsesDecoder
from cortex.agent.models.streamed import Decoder
from cortex.domain.model import INVALID_INPUT, ModelResponse

STREAM = "text/event-stream"


def answered(decoder: Decoder, events: Sequence[dict[str, Any]]) -> ModelResponse:
    """The answer that a body with these events makes, each of its bytes in a piece of its own."""
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in events).encode()
    answer = ModelAnswer(model="m")
    for at in range(len(body)):
        for event in decoder.feed(body[at : at + 1]):
            answer.take(event)
    for event in decoder.finish():
        answer.take(event)
    answer.finish(is_cut=decoder.is_cut)
    return answer.response()


def chat(*choices: dict[str, Any]) -> ModelResponse:
    chunks = [{"id": "c", "model": "m", "choices": [{"index": 0, **each}]} for each in choices]
    return answered(ChatDecoder(STREAM), chunks)


def call(arguments: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {"delta": {"tool_calls": [{"index": 0, "function": function, **fields}]}}


def test_calls_that_all_have_the_first_index_are_apart_by_their_ids() -> None:
    whole = chat(call('{"a": 1}', id="x"), call('{"a": 2}', id="y"), {"finish_reason": "stop"})
    assert whole.stop_reason == "tool_use"  # some servers say stop
    assert [(each["id"], each["input"]) for each in whole.tool_calls] == [
        ("x", {"a": 1}),
        ("y", {"a": 2}),
    ]


def test_a_call_without_an_id_gets_one() -> None:
    (use,) = chat(call('{"a": 1}'), {"finish_reason": "tool_calls"}).tool_calls
    assert use["id"].startswith("call_")


def test_arguments_that_come_as_an_object_are_taken() -> None:
    function = {"name": "add", "arguments": {"a": 1}}
    calls = {"delta": {"tool_calls": [{"index": 0, "id": "x", "function": function}]}}
    (use,) = chat(calls, {"finish_reason": "tool_calls"}).tool_calls
    assert use["input"] == {"a": 1}


def test_counts_are_taken_as_servers_write_them() -> None:
    end = {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 5.0, "completion_tokens": "7", "prompt_tokens_details": None}
    response = answered(ChatDecoder(STREAM), [end, {"choices": [], "usage": usage}])
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 7)


def test_a_call_that_the_limit_has_cut_does_not_run() -> None:
    response = chat(call('{"a": ', id="x"), {"finish_reason": "length"})
    assert response.stop_reason == "max_tokens"
    (use,) = response.tool_calls
    assert use[INVALID_INPUT] == '{"a": '
    assert response.is_cut(use)


def test_a_refusal_of_the_responses_api_is_a_refusal() -> None:
    where = {"output_index": 0, "content_index": 0}
    response = answered(
        ResponsesDecoder(STREAM),
        [
            {"type": "response.created", "response": {"id": "r", "model": "m"}},
            {"type": "response.refusal.delta", "delta": "I will not.", **where},
            {"type": "response.completed", "response": {"status": "completed"}},
        ],
    )
    assert (response.stop_reason, response.text) == ("refusal", "I will not.")


@pytest.mark.parametrize(
    "chunk, reason",
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "refusal"),
        ({"candidates": [{"finishReason": "PROHIBITED_CONTENT"}]}, "refusal"),
        # The model meant to call a tool: the loop asks it to do so again.
        ({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, "tool_use"),
    ],
)
def test_an_answer_of_gemini_that_was_stopped_says_why(chunk: dict[str, Any], reason: str) -> None:
    response = answered(GeminiDecoder(STREAM, calls_max=None), [{"responseId": "r", **chunk}])
    assert (response.stop_reason, response.content) == (reason, ())


def test_searches_of_gemini_are_counted_once() -> None:
    grounding = {"groundingMetadata": {"webSearchQueries": ["a", "b"]}}
    part = {"content": {"parts": [{"text": "x"}]}, **grounding}
    usage = {"usageMetadata": {"promptTokenCount": 1}}
    response = answered(
        GeminiDecoder(STREAM, calls_max=None),
        [
            {"candidates": [part], **usage},
            {"candidates": [{**part, "finishReason": "STOP"}], **usage},
        ],
    )
    assert response.usage.web_searches == 2


def test_headers_of_the_standard_endpoint_go_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway-Key: secret")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-standard-one")
    endpoint = Endpoint(
        name="other",
        kind="anthropic",
        base_url="http://other.test",
        api_key="sk-other",
        key_from="OTHER_KEY",
        address_from="base_url of [models.other]",
        vendor="Other",
    )
    sdk = AnthropicModel(endpoint).preload()
    headers = str(sdk.default_headers)
    assert "secret" not in headers
    assert "token-of-the-standard-one" not in headers
    assert "sk-other" in headers
