"""From the bytes of an event stream to an answer, whatever way they are cut."""

from typing import Any

import orjson
import pytest

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.errors import BrokenAnswerError, ErrorEventError
from cortex.agent.models.events import AnswerDecoder
from cortex.domain.model import INVALID_INPUT, ModelResponse
from cortex.domain.usage import Usage

START: dict[str, Any] = {
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


def tool(
    raw: str, *, index: int = 0, given: Any = None, stops: bool = True
) -> list[dict[str, Any]]:
    opening = {"type": "tool_use", "id": "t", "name": "n", "input": {} if given is None else given}
    delta = {"type": "input_json_delta", "partial_json": raw}
    events = block(index, opening, *([delta] if raw else []))
    return events if stops else events[:-1]


def unnumbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a server whose blocks have no index."""
    return [{name: value for name, value in each.items() if name != "index"} for each in events]


BARE: dict[str, Any] = {"type": "message_start", "message": {"model": "m"}}


def ends(reason: object, **fields: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, **fields}
    return [delta, {"type": "message_stop"}]


def answer_from(
    *pieces: bytes, kind: str = "text/event-stream", heard: list[str] | None = None
) -> ModelResponse:
    """The answer of a body whose connection ended well."""
    decoder = AnswerDecoder(kind)
    answer = ModelAnswer(model="asked", on_text=None if heard is None else heard.append)
    for piece in pieces:
        for event in decoder.feed(piece):
            answer.take(event)
    for event in decoder.finish():
        answer.take(event)
    answer.finish(is_cut=decoder.is_cut)
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
            {"input_tokens": "12", "output_tokens": True, "cache_read_input_tokens": "many"},
            {"output_tokens": "007", "input_tokens": [3]},
            Usage(input_tokens=12, output_tokens=7),
        ),
        (
            {"service_tier": "standard", "inference_geo": "not_available", "speed": "standard"},
            {"inference_geo": "global", "input_tokens": -4, "output_tokens": 10**13},
            Usage(),
        ),
    ],
)
def test_usage_counts_all_that_has_a_price(
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


@pytest.mark.parametrize("is_early", [True, False])
def test_container_of_code_comes_before_the_answer(is_early: bool) -> None:
    end = "2026-12-01T00:00:00Z"
    box = {"container": {"id": "container_1", "expires_at": end, "skills": None}}
    start = {**START, "message": {**START["message"], **(box if is_early else {})}}
    delta, stop = ends("pause_turn")
    delta["delta"] |= {} if is_early else box
    blocks = answer_from(wire(start, *text("so"), delta, stop)).content
    kept = {"type": "container", "id": "container_1", "expires_at": end}
    assert blocks == (kept, {"type": "text", "text": "so"})
    document = {"type": "message", "role": "assistant", "content": [], **box}
    whole = orjson.dumps({**document, "content": [blocks[1]], "stop_reason": "pause_turn"})
    assert answer_from(whole, kind="application/json").content == blocks


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    data = wire(START, *text("HERE"), *END).replace(b"HERE", rb"a \ud83d b")
    assert answer_from(data).text == "a \N{REPLACEMENT CHARACTER} b"


def test_halves_of_an_emoji_in_two_deltas_are_joined() -> None:
    one, other = ({"type": "text_delta", "text": each} for each in ("HIGH", "LOW"))
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    halves = [{"type": "thinking_delta", "thinking": each} for each in ("HIGH", "LOW \n")]
    signed = [{"type": "signature_delta", "signature": each} for each in ("c2l", "n+/=")]
    raws = ('{"a": "HIGH', 'LOW"}')
    pieces = [{"type": "input_json_delta", "partial_json": each} for each in raws]
    call = block(2, {"type": "tool_use", "id": "t", "name": "n", "input": {}}, *pieces)
    events = [
        *block(0, {"type": "text", "text": ""}, one, other),
        *block(1, thought, *halves, *signed),
    ]
    data = (
        wire(START, *events, *call, *END).replace(b"HIGH", rb"\ud83d").replace(b"LOW", rb"\ude42")
    )
    heard: list[str] = []
    response = answer_from(data, heard=heard)
    assert response.text == "".join(heard) == "🙂"
    assert response.content[1] == {"type": "thinking", "thinking": "🙂 \n", "signature": "c2ln+/="}
    assert response.content[2]["input"] == {"a": "🙂"}


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
        wire({**START, "message": {**START["message"], "id": "msg_2"}}),
        wire(*text("hi"), {**START, "message": {**START["message"], "id": "msg_2"}}, *END),
        b"",
        wire({"type": "ping"}, {"type": "ping"}),
        wire(*text(" \n")),
        wire(*block(0, {"type": "thinking"}, {"type": "thinking_delta", "thinking": "so"})),
        wire(*block(0, {"type": "thinking"}, {"type": "thinking_delta", "thinking": None})),
        wire(*text("hi")[:-1], *ends(None)),
        wire({"type": "content_block_start", "content_block": {"type": "text", "text": 1}}, *END),
        wire(*tool('{"a": 1', stops=False), END[1]),
        wire(*text("hi")[:-1], {"type": "error", "error": None}),
        wire({"type": "error"}),
        wire({"type": "content_block_stop"}),
        wire({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        wire(*unnumbered(text("a")), *unnumbered(text("b"))[1:2], *END),
        b'data: {"type": ["content_block_stop"]}\n\n',
        wire({"type": "content_block_start", "content_block": {"type": ["text"]}}),
        wire(*text("hi"), BARE, *text("hi"), *END),
        wire(BARE, *text("hi"), BARE, *text("hi"), *END),
        wire(BARE, *tool('{"a": 1}'), BARE, *tool('{"a": 1}'), *END),
        wire(*tool('{"a": 1}'), START, *tool('{"a": 1}'), *END),
    ],
)
def test_nonsense_is_a_malformed_answer(data: bytes) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(wire(START), data)
    assert caught.value.type == "malformed_answer"


@pytest.mark.parametrize(
    "events",
    [
        [START, *text("hi")[:-1]],
        [START, *text("hi"), *tool('{"a": 1', index=1, stops=False)],
        [START, *tool("", stops=False), *ends(None)[:1]],
        [START, *tool("", given={"a": 1}, stops=False)],
    ],
    ids=["text", "call", "call without arguments", "call with a value"],
)
def test_answer_that_ends_inside_a_block_is_cut(events: list[dict[str, Any]]) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(wire(*events))
    assert caught.value.type == "ended_early"


@pytest.mark.parametrize("body", [wire({"type": "ping"}), b"hello", wire(START)[:40]])
def test_body_without_a_message_is_malformed(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(body)
    assert caught.value.type == "malformed_answer"


@pytest.mark.parametrize(
    "events, is_complete",
    [
        ([START, *text("hi")], False),
        ([START, *text("hi"), *ends(None)[:1]], False),
        ([START, *text("hi")[:-1], *ends("end_turn")[:1]], False),
        ([START, *text("hi"), *ends("end_turn")[:1]], True),
        ([START, *tool('{"a": 1}', stops=False), *ends("tool_use")[:1]], True),
    ],
)
def test_lost_connection_leaves_an_answer_with_its_stop_reason_complete(
    events: list[dict[str, Any]], is_complete: bool
) -> None:
    answer = ModelAnswer(model="asked")
    for event in events:
        answer.take(event)
    answer.break_off()
    assert answer.complete is is_complete


def test_end_of_a_body_without_framing_may_be_a_cut() -> None:
    answer = ModelAnswer(model="asked")
    for event in (START, *text("hi")):
        answer.take(event)
    answer.finish(is_framed=False)
    with pytest.raises(BrokenAnswerError) as caught:
        answer.response()
    assert caught.value.type == "ended_early"
    answer.take(ends("end_turn")[0])
    answer.finish(is_framed=False)
    assert answer.response().text == "hi"


@pytest.mark.parametrize(
    "rest",
    [
        b"event: content_block_start",
        b"event: content_block_start\ndata",
        b": ping\nevent: content_block_start\ndata:",
        wire(*tool('{"a": 1}', index=1))[:90],
        wire(*ends("max_tokens")).partition(b"_tok")[0],
        b"data: [DON",
    ],
)
@pytest.mark.parametrize("whole", [text("hi"), tool('{"a": 1}')], ids=["text", "call"])
def test_answer_that_ends_inside_an_event_is_cut(whole: list[dict[str, Any]], rest: bytes) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(wire(START, *whole) + rest)
    assert caught.value.type == "ended_early"
    assert answer_from(wire(START, *whole, *END) + rest).stop_reason == "end_turn"


@pytest.mark.parametrize(
    "ending", [[], [END[1]], ends(None), ends(None)[:1], ends(""), [{"type": "message_delta"}]]
)
@pytest.mark.parametrize(
    "call, is_cut",
    [
        (tool('{"a": 1}'), False),
        (tool('{"a": 1}', stops=False), False),
        ([*tool("", given={"a": 1}), *tool('{"a": 1}', index=2)], False),
        (tool(""), True),
        (tool("{}"), True),
    ],
)
def test_calls_of_an_answer_without_a_stop_reason_run_if_they_are_whole(
    ending: list[dict[str, Any]], call: list[dict[str, Any]], is_cut: bool
) -> None:
    response = answer_from(wire(START, *text("hi", 1), *call, *ending))
    assert response.stop_reason == "tool_use"
    assert response.is_cut(response.tool_calls[0]) is is_cut


@pytest.mark.parametrize(
    "ending, is_cut",
    [
        ([], True),
        (ends(None)[:1], True),
        (text(" ", 1), True),
        (text("so", 1), False),
        ([END[1]], False),
        (ends(None), False),
    ],
)
def test_arguments_sent_as_a_value_count_as_cut_without_an_end(
    ending: list[dict[str, Any]], is_cut: bool
) -> None:
    """A gateway completes what a model began, so that only the end shows whether it is whole."""
    response = answer_from(wire(START, *tool("", given={"path": "/"}), *ending))
    (call,) = response.tool_calls
    assert response.is_cut(call) is is_cut
    assert call["input"] == ({} if is_cut else {"path": "/"})


def test_calls_of_a_document_without_a_stop_reason_run() -> None:
    content = [{"type": "tool_use", "id": "t", "name": "n", "input": {"path": "/"}}]
    message = {**MESSAGE, "stop_reason": None, "content": content}
    response = answer_from(orjson.dumps(message), kind="application/json")
    assert not response.is_cut(response.tool_calls[0])


def test_early_stop_reason_of_a_cut_is_believed() -> None:
    start = {**START, "message": {**START["message"], "stop_reason": "max_tokens"}}
    assert answer_from(wire(start, *text("hi"))).stop_reason == "max_tokens"
    assert answer_from(wire(start, *text("hi"), *END)).stop_reason == "end_turn"


MESSAGE = {**START["message"], "type": "message", "role": "assistant", "stop_reason": "end_turn"}
DOCUMENT = orjson.dumps({**MESSAGE, "content": [{"type": "text", "text": "hi"}]})


@pytest.mark.parametrize(
    "data",
    [
        wire({"type": "message_start", "message": {"id": "m", "model": None}}, *text("hi"), *END),
        wire(START, *text("hi"), *ends("end_turn")),
        wire(START, *text("hi"), *ends("end_turn", usage=None)),
        wire(START, *text("hi"), *ends("end_turn"), *ends(None)),
        wire(START, *text("hi")),
        wire(START, *text("hi"), END[1]),
        wire(START, *text("hi"), *ends(None)[:1]),
        wire(START, *text("hi"), *ends(4)),
        wire(START, *text("h"), START, *text("i"), *END),
        wire(START, *text("hi")) + b"data: [DONE]\n\n",
        wire(START) + b"data: [DONE]\n\n" + wire(*text("hi"), *END),
        wire({**START, "message": {**START["message"], "stop_reason": "end_turn"}}, *text("hi")),
        wire(START, *unnumbered(text("hi")), *END),
        wire(START, *unnumbered(text("hi")), *unnumbered(text("hi"))[-1:], *END),
        wire(BARE, BARE, *text("hi"), *END),
        wire(START, *text("hi")) + b": the end\ndata: [DONE]",
        wire(START, *text("hi"), *ends("end_turn")[:1]) + b"event: message_st",
        wire(START, *text("hi"), *ends("tool_use")[:1], *ends("end_turn")),
        wire(START, *text("hi"), *ends(None)),
        wire(START, *text("hi"), {"type": "message_delta", "delta": None}, END[1]),
        b"event: ping\ndata:\n\n" + wire(START, *text("hi"), *END),
        wire(START, *text("hi"), *ends("end_turn")[:1]),
        wire(START, *text("hi"), *ends("end_turn")[:1]).rstrip(),
        wire(START, *text("hi")[:-1], *ends("end_turn")),
        wire(START, *text("hi"), *text("hi")[-1:], *END),
        wire(START, *text("hi"), *END) + b"data: [DONE]\n\n",
        wire(START, *text("hi"), *ends("end_turn")[:1]) + b"data: [DONE]\n\n",
        b"\xef\xbb\xbf" + wire(START, *text("hi"), *END),
        wire(START, *text("hi"), *END).replace(b'"type":"message_stop"', b'"x":1'),
        DOCUMENT,
        b"\n " + DOCUMENT,
        DOCUMENT.replace(b'"role":"assistant",', b""),
        DOCUMENT.replace(b'"stop_reason":"end_turn"', b'"stop_reason":null'),
    ],
)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "nothing"])
def test_complete_answer_of_a_server_that_is_nearly_right_is_taken(data: bytes, kind: str) -> None:
    response = answer_from(data[:9], data[9:], kind=kind)
    assert (response.text, response.stop_reason) == ("hi", "end_turn")
    assert response.model in ("m", "asked")


@pytest.mark.parametrize(
    "data, kind",
    [
        (b"<!doctype html><p>Sign in</p>", "text/html"),
        (b"<!doctype html><p>Sign in</p>", "text/event-stream"),
        (b"", "text/html"),
        (b"ok", "text/plain"),
        (b'{"object": "chat.completion", "choices": []}', "application/json"),
        (DOCUMENT.replace(b'[{"type":"text","text":"hi"}]', b"null"), "application/json"),
    ],
)
def test_body_of_another_protocol_is_no_stream(data: bytes, kind: str) -> None:
    with pytest.raises(BrokenAnswerError) as caught:
        answer_from(data, kind=kind)
    assert caught.value.type == "not_a_stream"


def test_error_document_is_the_error_of_the_api() -> None:
    with pytest.raises(ErrorEventError):
        answer_from(b'{"type": "error", "error": {"type": "overloaded_error"}}')


@pytest.mark.parametrize("are_closed", [True, False])
def test_blocks_with_one_index_are_all_kept(are_closed: bool) -> None:
    end = None if are_closed else -1
    calls = [*tool('{"a": 1}')[:end], *tool('{"a": 2}')[:end]]
    response = answer_from(wire(START, *text("hi"), *calls, *ends("tool_use")))
    assert response.text == "hi"
    assert [each["input"] for each in response.tool_calls] == [{"a": 1}, {"a": 2}]


def test_empty_stop_reason_becomes_end_turn() -> None:
    assert answer_from(wire(START, *text("hi"), *ends(""))).stop_reason == "end_turn"


def test_stop_reason_of_a_cut_is_never_replaced() -> None:
    events = [START, *text("hi"), *ends("max_tokens")[:1], *ends("end_turn")]
    assert answer_from(wire(*events)).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    "call, reason, is_cut",
    [
        (tool(""), "tool_use", False),
        (tool(""), "end_turn", False),
        (tool("", given=""), "tool_use", False),
        (tool("", given='{"a": 1}'), "max_tokens", False),
        (tool("", given={"a": 1}), "tool_use", False),
        (tool("", given={"a": 1}), "max_tokens", True),
        ([*tool("", given={"a": 1}), *text("more", 1)], "max_tokens", False),
        (tool('{"a": 1}'), "of_the_future", False),
        (tool('{"a": 1'), "of_the_future", True),
        (tool('{"a": 1}'), "max_tokens", False),
        (tool('{"a": 1}', stops=False), "tool_use", False),
        (tool(""), "max_tokens", True),
        (tool("{}"), "max_tokens", True),
        (tool('{"a": 1'), "model_context_window_exceeded", True),
        (tool("1"), "refusal", True),
        (tool(""), "pause_turn", True),
        (tool(""), "stop_sequence", True),
        (tool("", stops=False), "tool_use", True),
        (tool(""), None, True),
    ],
)
def test_call_is_cut_unless_its_arguments_arrived_whole(
    call: list[dict[str, Any]], reason: str | None, is_cut: bool
) -> None:
    response = answer_from(wire(START, *call, *ends(reason)))
    assert response.is_cut(response.content[0]) is is_cut
    again = ModelResponse.from_json(orjson.loads(orjson.dumps(response.to_json())))
    assert again.is_cut(again.content[0]) is is_cut


def test_call_cut_before_its_arguments_is_recorded_as_received() -> None:
    """So that one rule, `is_cut`, decides about it; the mutant `cut-call` breaks that rule."""
    (call,) = answer_from(wire(START, *tool(""), *ends("max_tokens"))).tool_calls
    assert call["input"] == {}
    assert INVALID_INPUT not in call


@pytest.mark.parametrize("raw", ['{"a": 123456789012345678901}', '{"a": NaN}', '{"a": 1} {}', "[]"])
def test_input_that_the_database_would_change_is_kept_as_text(raw: str) -> None:
    (call,) = answer_from(wire(START, *tool(raw), *ends("tool_use"))).tool_calls
    assert (call["input"], call[INVALID_INPUT]) == ({}, raw)
