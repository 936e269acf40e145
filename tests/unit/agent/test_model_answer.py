"""From the bytes of an event stream to an answer, whatever way they are cut."""

from typing import Any

import orjson
import pytest

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.errors import BrokenAnswerError
from cortex.agent.models.events import EventDecoder
from cortex.domain.model import ModelResponse, Usage

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "m",
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 1},
    },
}
END = (
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 7, "input_tokens": None, "cache_creation_input_tokens": 2},
    },
    {"type": "message_stop"},
)


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(said: str, index: int = 0) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": said})


def wire(*events: dict[str, Any], line_end: bytes = b"\n") -> bytes:
    lines = [b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events]
    return b"".join(lines).replace(b"\n", line_end)


def answer_from(*pieces: bytes) -> ModelResponse:
    decoder, answer = EventDecoder(), ModelAnswer()
    for piece in pieces:
        for event in decoder.feed(piece):
            answer.take(event)
    return answer.response()


def test_usage_is_the_larger_of_each_count() -> None:
    response = answer_from(wire(START, *text("hi"), *END))
    assert response.usage == Usage(
        input_tokens=9, output_tokens=7, cache_read_tokens=4, cache_write_tokens=2
    )


@pytest.mark.parametrize(
    "begin, end, usage",
    [
        (
            {"input_tokens": 1000, "output_tokens": 1, "cache_read_input_tokens": 5},
            {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0},
            Usage(input_tokens=1000, output_tokens=1, cache_read_tokens=5),
        ),
        (
            {
                "cache_creation_input_tokens": 9,
                "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7},
            },
            {"output_tokens": 4, "server_tool_use": {"web_search_requests": 3}},
            Usage(output_tokens=4, cache_write_tokens=9, cache_write_1h_tokens=7, web_searches=3),
        ),
        (  # only the two parts, and their sum nowhere
            {"cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7}},
            {"cache_creation": None, "server_tool_use": None},
            Usage(cache_write_tokens=9, cache_write_1h_tokens=7),
        ),
        (
            {"service_tier": "batch", "inference_geo": "us", "speed": "fast"},
            {"service_tier": None},
            Usage(service_tier="batch", inference_geo="us", speed="fast"),
        ),
        (
            {"service_tier": "standard", "inference_geo": "not_available", "speed": "standard"},
            {"inference_geo": "global", "input_tokens": -4, "output_tokens": 10**13},
            Usage(),
        ),
    ],
)
def test_usage_knows_all_that_is_priced(
    begin: dict[str, Any], end: dict[str, Any], usage: Usage
) -> None:
    start = {"type": "message_start", "message": {"id": "1", "model": "m", "usage": begin}}
    ending: list[dict[str, Any]] = [{**END[0], "usage": end}, END[1]]
    assert answer_from(wire(start, *text("hi"), *ending)).usage == usage


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_may_be_cut_anywhere(line_end: bytes) -> None:
    data = wire(START, *text("café 🙂"), *END, line_end=line_end)
    for at in range(len(data)):
        assert answer_from(data[:at], data[at:]).text == "café 🙂"
    assert answer_from(*(bytes([byte]) for byte in data)).text == "café 🙂"


def test_comments_and_empty_events_are_skipped() -> None:
    data = b": hello\n\n" + wire(START) + b"\n\nevent: ping\n\n" + wire(*text("hi"), *END)
    assert answer_from(data).text == "hi"


def test_data_on_several_lines_is_one_event() -> None:
    data = wire(START, *text("hi"), *END).replace(b',"index"', b',\ndata: "index"')
    assert answer_from(data).text == "hi"


def test_other_blocks_pass_through() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "let me "},
        {"type": "thinking_delta", "thinking": "see"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    redacted = block(1, {"type": "redacted_thinking", "data": "xyz"})
    cited = block(
        2,
        {"type": "text", "text": "", "citations": None},
        {"type": "text_delta", "text": "so"},
        {"type": "citations_delta", "citation": {"cited_text": "a"}},
        {"type": "citations_delta", "citation": {"cited_text": "b"}},
        {"type": "delta_of_the_future", "anything": 1},
    )
    response = answer_from(wire(START, *thinking, *redacted, *cited, *END))
    assert response.content == (
        {"type": "thinking", "thinking": "let me see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "so", "citations": [{"cited_text": "a"}, {"cited_text": "b"}]},
    )
    assert response.text == "so"


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    data = wire(START, *text("HERE"), *END).replace(b"HERE", rb"a \ud83d b")
    assert answer_from(data).text == "a ? b"


@pytest.mark.parametrize(
    "data",
    [
        b"data: [1]\n\n",
        b"data: nonsense\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        wire({"type": "content_block_stop", "index": 3}),
        wire({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}),
        wire({"type": "message_start", "message": None}),
        b'data: {"no": "type"}\n\n',
    ],
)
def test_nonsense_is_a_malformed_answer(data: bytes) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(wire(START), data)
    assert caught.value.type == "malformed_answer"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START],
        [START, *text("hi")],
        [START, *text("hi"), END[0]],
        [START, *text("hi"), END[1]],
        [START, *text("hi")[:-1], *END],
        [*text("hi"), *END],
    ],
    ids=["nothing", "start", "text", "no stop", "no reason", "open block", "no start"],
)
def test_what_lacks_a_part_is_no_answer(events: list[dict[str, Any]]) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(wire(*events))
    assert caught.value.type == "ended_early"
