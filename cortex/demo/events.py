"""A reply as Server-Sent Events: the pieces to send, and the delay before each."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from attrs import frozen

from cortex.demo.script import Call, Fault, Reply, tool_input

WORDS_PER_CHUNK = 3
TOOL_INPUT_CHUNK_CHARS = 24

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_BREAKS_STREAM = {
    Fault.MALFORMED: b'event: content_block_delta\ndata: {"type": "content_block_de\n\n',
    Fault.NOT_UTF8: b"event: content_block_delta\ndata: \xff\xfe\xfa\n\n",
}
_STRANGE = b'event: from_the_future\ndata: {"type": "from_the_future", "usage": 1}\n\n'


@frozen
class Piece:
    """Bytes for the wire, `delay_s` after the previous piece."""

    delay_s: float
    data: bytes


def event(kind: str, **fields: Any) -> bytes:
    """One Server-Sent Event of the Messages API."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def message(call: Call, reply: Reply, message_id: str) -> dict[str, Any]:
    """The reply as the body of an answer that is not streamed."""
    return {
        **_envelope(call, message_id),
        "content": [_block(block) for block in reply.content],
        "stop_reason": reply.ends_with,
        "usage": {**_prompt_usage(call), "output_tokens": reply.output_tokens},
    }


def pieces(call: Call, reply: Reply, message_id: str) -> Iterator[Piece]:
    """Yield all pieces of a reply, up to and including its fault.

    Pieces without a delay are joined. After the last one the server ends the stream, or follows the
    fault (stall, cut).
    """
    pending = event(
        "message_start",
        message={
            **_envelope(call, message_id),
            "usage": {**_prompt_usage(call), "output_tokens": 1},
        },
    )
    pending += PING
    delay_s, sent = reply.first_delay_s, 0
    for index, block in enumerate(reply.content):
        pending += event("content_block_start", index=index, content_block=_opening(block))
        for delta in _deltas(block, reply.chunk_count):
            if _breaks(reply.fault) and sent == reply.fault_after:
                yield Piece(delay_s, pending + _breaking(reply))
                return
            yield Piece(delay_s, pending)
            delay_s, sent = reply.delay_s, sent + 1
            pending = event("content_block_delta", index=index, delta=delta)
            if reply.fault is Fault.STRANGE_EVENTS:
                pending += _STRANGE
        pending += event("content_block_stop", index=index)
    if _breaks(reply.fault):
        yield Piece(delay_s, pending + _breaking(reply))
        return
    pending += event(
        "message_delta",
        delta={"stop_reason": reply.ends_with, "stop_sequence": None},
        usage={"output_tokens": reply.output_tokens},
    )
    yield Piece(delay_s, pending + event("message_stop"))


def _breaks(fault: Fault | None) -> bool:
    return fault not in (None, Fault.STRANGE_EVENTS)


def _breaking(reply: Reply) -> bytes:
    if reply.fault is Fault.ERROR_EVENT:
        return event("error", error={"type": reply.error_type, "message": "scripted error"})
    return _BREAKS_STREAM.get(reply.fault, b"") if reply.fault else b""


def _prompt_usage(call: Call) -> dict[str, Any]:
    """Return the tokens of the prompt as the API counts them: disjoint."""
    cached = call.cached
    return {
        "input_tokens": call.input_tokens - cached.total,
        "cache_read_input_tokens": cached.read,
        "cache_creation_input_tokens": cached.written_5m + cached.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": cached.written_5m,
            "ephemeral_1h_input_tokens": cached.written_1h,
        },
    }


def _envelope(call: Call, message_id: str) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "raw_input"}


def _opening(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}


def _deltas(block: Mapping[str, Any], chunk_count: int | None) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        for text in _cut_text(block["text"], chunk_count):
            yield {"type": "text_delta", "text": text}
        return
    raw = tool_input(block)
    for start in range(0, len(raw), TOOL_INPUT_CHUNK_CHARS):
        piece = raw[start : start + TOOL_INPUT_CHUNK_CHARS]
        yield {"type": "input_json_delta", "partial_json": piece}


def _cut_text(text: str, chunk_count: int | None) -> Iterator[str]:
    """Pieces that join to the text: words by default, else that many of equal length."""
    if chunk_count is None:
        words = text.split(" ")
        for start in range(0, len(words), WORDS_PER_CHUNK):
            tail = "" if start + WORDS_PER_CHUNK >= len(words) else " "
            yield " ".join(words[start : start + WORDS_PER_CHUNK]) + tail
        return
    for index in range(chunk_count):
        piece = text[index * len(text) // chunk_count : (index + 1) * len(text) // chunk_count]
        yield piece or " " * (not text)
