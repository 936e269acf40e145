"""The body of a model's answer: bytes in, events of the Messages API as plain JSON objects out.

An answer is an event stream (Server-Sent Events). Some gateways send one JSON document instead: the
whole message, which becomes the events that a stream of it would have had.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import orjson

from cortex.agent.models.errors import BrokenAnswerError
from cortex.domain.redaction import LONE_SURROGATE

EVENT_MAX_BYTES = 16 * 1024 * 1024  # far above any event of the API; bounds the buffer
STREAM = "text/event-stream"
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"event:", b"data:", b"id:", b"retry:", b":")
_DONE = b"[DONE]"
"""How other vendors' APIs end a stream; some gateways add it to this one."""


class AnswerDecoder:
    """Decodes a body as its first bytes require; `kind` is its content type.

    `document`: makes the events of an answer that came as one JSON document.
    """

    def __init__(
        self,
        kind: str = STREAM,
        *,
        document: Callable[[dict[str, Any]], Iterator[dict[str, Any]]] | None = None,
    ) -> None:
        self._kind = kind
        self._events_of = document or _events_of
        self._head = b""
        self._stream: EventDecoder | None = None
        self._document: bytearray | None = None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that are complete now. Raises `BrokenAnswerError` for anything else."""
        if self._stream is None and self._document is None:
            data, self._head = self._head + data, b""
            data = data.removeprefix(_BOM).lstrip()
            if not data:
                return
            self._choose(data)
        if self._document is not None:
            self._document += data
            if len(self._document) > EVENT_MAX_BYTES:
                message = f"a document of over {EVENT_MAX_BYTES} bytes"
                raise BrokenAnswerError("malformed_answer", message)
        elif self._stream is not None:
            yield from self._stream.feed(data)
        else:
            self._head = data

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield the events that the end of the body completes."""
        if self._document is not None:
            yield from self._events_of(_object(bytes(self._document)))
        elif self._stream is not None:
            yield from self._stream.finish()
        elif self._kind != STREAM or self._head:
            self._refuse()

    @property
    def is_cut(self) -> bool:
        """The body ended inside an event, which `finish` has dropped."""
        return self._stream is not None and self._stream.is_cut

    def _choose(self, head: bytes) -> None:
        """Choose by the first bytes; leaves it open while there are too few."""
        if head.startswith(b"{"):
            self._document = bytearray()
        elif head.startswith(_FIELDS) or (self._kind == STREAM and not head.startswith(b"<")):
            self._stream = EventDecoder()
        elif not any(field.startswith(head) for field in _FIELDS):
            self._refuse()

    def _refuse(self) -> NoReturn:
        message = f"answered with {self._kind}, not with an event stream"
        raise BrokenAnswerError("not_a_stream", message)


class EventDecoder:
    """Cuts a stream into events. Their `type` is inside the data; else it is the event's name."""

    def __init__(self) -> None:
        self._buffer = b""
        self.is_cut = False
        """The stream ended inside an event, however regularly its connection did."""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that are complete now; the rest is kept for the next piece.

        Raises `BrokenAnswerError` for an event that is no JSON object.
        """
        *events, self._buffer = _BLANK_LINE.split(self._buffer + data)
        if len(self._buffer) > EVENT_MAX_BYTES:
            raise BrokenAnswerError("malformed_answer", f"an event of over {EVENT_MAX_BYTES} bytes")
        for event in events:
            yield from _parsed(event)

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield the last event if only the blank line after it is missing."""
        rest, self._buffer = self._buffer, b""
        events: list[dict[str, Any]] = []
        with suppress(BrokenAnswerError):
            events += _parsed(rest)
        lines = [line for line in rest.splitlines() if line.strip() and not line.startswith(b":")]
        self.is_cut = bool(lines) and not events and not lines[-1].rstrip().endswith(_DONE)
        yield from events


def parse_json(data: bytes, *, parse_int: Callable[[str], int] | None = None) -> Any:
    """Return the value in `data`; raises ValueError or RecursionError.

    Half a surrogate pair is valid JSON and is kept: its other half may be in the next event.
    """
    if parse_int is None:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    return json.loads(data, parse_int=parse_int, parse_constant=_no_constant)


def joined_text(text: str) -> str:
    """Return text with the halves of surrogate pairs joined; a lone half becomes U+FFFD."""
    if text.isascii() or LONE_SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined(value: Any) -> Any:
    """Return a JSON value with all its texts joined; raises RecursionError."""
    match value:
        case str():
            return joined_text(value)
        case dict():
            return {joined_text(key): joined(item) for key, item in value.items()}
        case list():
            return [joined(item) for item in value]
        case _:
            return value


def _parsed(event: bytes) -> Iterator[dict[str, Any]]:
    data, name = [], b""
    for line in event.splitlines():
        if line.startswith(b"data:"):
            data.append(line[len(b"data:") :])
        elif line.startswith(b"event:"):
            name = line[len(b"event:") :].strip()
    if (raw := b"\n".join(data)).strip() not in (b"", _DONE):
        parsed = _object(raw)
        yield parsed if "type" in parsed or not name else {**parsed, "type": name.decode("latin-1")}


def _events_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a message that came as one document."""
    if message.get("type") == "error":
        yield message
        return
    content = message.get("content")
    role = message.get("role") or ("assistant" if message.get("type") == "message" else None)
    if role != "assistant" or not isinstance(content, list):
        raise BrokenAnswerError("not_a_stream", "answered with JSON that is not a message")
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(content):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    reason = {"stop_reason": message.get("stop_reason")}
    yield {"type": "message_delta", "delta": reason, "usage": message.get("usage")}
    yield {"type": "message_stop"}


def _object(data: bytes) -> dict[str, Any]:
    try:
        event = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise BrokenAnswerError("malformed_answer", f"an event is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise BrokenAnswerError("malformed_answer", "an event is not a JSON object")
    return event


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
