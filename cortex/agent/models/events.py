"""Server-Sent Events of the Messages API: bytes in, plain JSON objects out."""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from cortex.agent.models.errors import BrokenAnswerError

EVENT_MAX_BYTES = 16 * 1024 * 1024  # far above any event of the API; bounds the buffer
_BLANK_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_DATA = b"data:"


class EventDecoder:
    """Cuts a stream into events. Their `type` is inside the data, so event names are not read."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that are complete now; the rest is kept for the next piece.

        Raises `BrokenAnswerError` for an event that is no JSON object.
        """
        *events, self._buffer = _BLANK_LINE.split(self._buffer + data)
        if len(self._buffer) > EVENT_MAX_BYTES:
            raise BrokenAnswerError("malformed_answer", f"an event of over {EVENT_MAX_BYTES} bytes")
        for event in events:
            lines = [line[len(_DATA) :] for line in event.splitlines() if line.startswith(_DATA)]
            if lines:
                yield _object(b"\n".join(lines))


def parse_json(data: bytes) -> Any:
    """Return the value in `data`; raises ValueError or RecursionError.

    Half a surrogate pair is valid in JSON, but is no text: it becomes "?".
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return orjson.loads(text.encode(errors="replace"))


def _object(data: bytes) -> dict[str, Any]:
    try:
        event = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise BrokenAnswerError("malformed_answer", f"an event is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise BrokenAnswerError("malformed_answer", "an event is not a JSON object")
    return event
