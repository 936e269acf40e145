"""A model's answer, assembled from the events of its stream.

Works on plain JSON: the SDK's typed events and its growing snapshot of the message would cost about
as much again as the network, which matters at thousands of events a second.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from cortex.agent.models.errors import BrokenAnswerError, ErrorEventError
from cortex.agent.models.events import joined, joined_text, parse_json
from cortex.agent.models.usage import counted
from cortex.domain.model import ENDED, INVALID_INPUT, Block, ModelResponse, Usage
from cortex.durable.codec import MANY_DIGITS

STOP_REASON_CHARS_MAX: Final = 80
CONTENT_EVENTS = frozenset(
    {
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_start",
        "message_stop",
    }
)
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_HIGH_SURROGATES: Final = ("\ud800", "\udbff")


class ModelAnswer:
    """Grows event by event until it is complete. `model` is the name if the answer has none."""

    def __init__(
        self,
        *,
        model: str = "",
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
    ) -> None:
        self._model = model
        self._on_text = on_text
        self._on_open = on_open
        self._on_usage = on_usage
        self._message: dict[str, str] = {}
        self._blocks: list[Block] = []
        self._latest: dict[int, Block] = {}
        """The blocks by their index; some servers give several blocks the same one."""
        self._pieces: dict[int, list[str]] = {}  # of the blocks that have not ended yet
        self._given: Block | None = None
        """The last call that came with its input as a value, not as text in deltas."""
        self._half = ""
        """The first half of a surrogate pair, until `on_text` can get both."""
        self._stop_reason: str | None = None
        self._has_delta = False
        self.usage = Usage()
        """What the API has counted so far."""
        self.complete = False

    def take(self, event: dict[str, Any]) -> bool:
        """Take the next event; True if it is part of the answer (a ping is not).

        Raises `BrokenAnswerError`, `ErrorEventError`, and the errors of the callbacks.
        """
        was_open, used = bool(self._message), self.usage
        try:
            text = self._grow(event)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"an event of type {event.get('type')!r} is malformed: {error!r:.200}"
            raise BrokenAnswerError("malformed_answer", message) from error
        if self._message and not was_open and self._on_open is not None:
            self._on_open()
        if self.usage != used and self._on_usage is not None:
            self._on_usage(self.usage)
        if text and self._on_text is not None:
            self._on_text(text)
        return event["type"] in CONTENT_EVENTS

    def finish(self) -> None:
        """Take the regular end of the body: after a stop reason, message_stop may be missing."""
        if self._stop_reason is not None and self._message:
            self.complete = True

    def response(self) -> ModelResponse:
        """Return the whole answer.

        Blocks that were not closed are whole if the answer has a stop reason. An answer with
        message_stop and a stop reason of null has ended as its content implies.

        Raises `BrokenAnswerError` unless the model ended its answer.
        """
        if not self.complete or (self._stop_reason is None and self._pieces):
            raise self._broken()
        if self._stop_reason is None and not self._has_delta:
            raise BrokenAnswerError("malformed_answer", "message_stop without a stop reason")
        for index in tuple(self._pieces):
            self._finish(self._latest[index], self._pieces.pop(index), is_closed=False)
        blocks = tuple(self._blocks)
        reason = self._stop_reason
        if reason is None:
            calls = [block for block in blocks if block["type"] == "tool_use"]
            for call in calls:
                _doubt_empty(call)
            reason = "tool_use" if calls else "end_turn"
        if reason not in ENDED and self._given is not None and self._given is _last(blocks):
            _doubt(self._given)
        return ModelResponse(
            model=self._message["model"] or self._model,
            content=blocks,
            stop_reason=reason,
            usage=self.usage,
            message_id=self._message["id"],
        )

    def _broken(self) -> BrokenAnswerError:
        if self._blocks and not self._message:
            return BrokenAnswerError("malformed_answer", "content without message_start")
        if self.complete:
            message = "message_stop without a stop reason, in the middle of a block"
            return BrokenAnswerError("malformed_answer", message)
        message = (
            f"the model ended its answer early: {len(self._blocks)} blocks, but no message_stop"
        )
        return BrokenAnswerError("ended_early", message)

    def _grow(self, event: dict[str, Any]) -> str:
        """Apply an event; return the text that it adds to the answer."""
        match event["type"]:
            case "content_block_delta":
                return self._extend(event["index"], event["delta"])
            case "content_block_start":
                return self._begin(event["index"], event["content_block"])
            case "content_block_stop":
                if event["index"] in self._pieces:
                    self._finish(self._latest[event["index"]], self._pieces.pop(event["index"]))
                else:
                    _ = self._latest[event["index"]]  # a second stop is harmless
            case "message_start":
                message = event["message"]
                for name in ("id", "model"):
                    self._message[name] = joined_text(str(message.get(name) or ""))
                self.usage = counted(self.usage, message.get("usage"))
            case "message_delta":
                self._has_delta = True
                self._stop((event.get("delta") or {}).get("stop_reason"))
                self.usage = counted(self.usage, event.get("usage"))
            case "message_stop":
                self.complete = bool(self._message)
            case "error":
                raise ErrorEventError(event)
            case _:
                pass  # pings, and events of a future API
        return ""

    def _stop(self, reason: object) -> None:
        """Take a stop reason, known or not: null and empty ones change nothing.

        One that means a cut is never replaced.
        """
        if not reason:
            return
        if self._stop_reason is None or self._stop_reason in ENDED:
            self._stop_reason = joined_text(str(reason))[:STOP_REASON_CHARS_MAX]

    def _begin(self, index: int, block: dict[str, Any]) -> str:
        began: Block = joined(block)
        began.pop(INVALID_INPUT, None)
        if (pieces := self._pieces.pop(index, None)) is not None:
            self._finish(self._latest[index], pieces, is_closed=False)
        self._blocks.append(began)
        self._latest[index] = began
        self._pieces[index] = []
        return str(began.get("text") or "") if began["type"] == "text" else ""

    def _extend(self, index: int, delta: dict[str, Any]) -> str:
        block, pieces = self._latest[index], self._pieces[index]
        match delta["type"]:
            case "text_delta":
                pieces.append(delta["text"])
                return self._shown(delta["text"])
            case "thinking_delta":
                pieces.append(delta["thinking"])
            case "input_json_delta":
                pieces.append(delta["partial_json"])
            case "signature_delta":
                # Some servers send it in pieces, some whole each time.
                known, signature = block.get("signature") or "", delta["signature"]
                is_whole = signature.startswith(known)
                block["signature"] = signature if is_whole else known + signature
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), joined(delta["citation"])]
            case _:
                pass  # a delta of a future API
        return ""

    def _shown(self, text: str) -> str:
        """Return the text that can be shown now: half of a surrogate pair waits for the other."""
        text, self._half = self._half + text, ""
        if text and _HIGH_SURROGATES[0] <= text[-1] <= _HIGH_SURROGATES[1]:
            text, self._half = text[:-1], text[-1]
        return joined_text(text)

    def _finish(self, block: Block, pieces: list[str], *, is_closed: bool = True) -> None:
        text = "".join(pieces)
        match block["type"]:
            case "text" | "thinking" as field:
                block[field] = joined_text((block.get(field) or "") + text)
            case kind if kind in _CALLS or text:
                given = block.get("input")
                _set_input(block, joined_text(text))
                self._given = block if isinstance(given, dict) and not text else self._given
                if not is_closed:
                    _doubt_empty(block)
            case _:
                pass  # the block came whole in its first event


def _set_input(block: Block, raw: str) -> None:
    """Give a call its input, from the pieces that came or else from its first event."""
    given = block.get("input")
    if not raw and isinstance(given, str):
        raw = given
    value = tool_input(raw) if raw else {} if given is None else given
    block["input"] = value if isinstance(value, dict) else {}
    if not isinstance(value, dict):
        block[INVALID_INPUT] = raw or orjson.dumps(given).decode()


def _doubt(call: Block) -> None:
    """Mark arguments that came as a value as cut: some servers complete what a model began."""
    call.setdefault(INVALID_INPUT, orjson.dumps(call["input"]).decode())
    call["input"] = {}


def _last(blocks: Sequence[Block]) -> Block | None:
    """Return the last block that says something: a server may have added a blank text."""
    says = (each for each in reversed(blocks) if each["type"] != "text" or each["text"].strip())
    return next(says, None)


def _doubt_empty(call: Block) -> None:
    """Mark empty arguments as cut: nothing shows that the model meant to give none."""
    if call.get("input") == {}:
        call.setdefault(INVALID_INPUT, "")


def tool_input(raw: str) -> dict[str, Any] | None:
    """Return the input of a tool call; None if it is no JSON object that can be stored."""
    data = raw.encode("utf-8", "surrogatepass")
    try:
        if MANY_DIGITS.search(data):
            parse_json(data, parse_int=_whole_number)
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = orjson.loads(json.dumps(joined(parse_json(data))))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _whole_number(digits: str) -> int:
    """Refuse a number that storing it would change: the model did not give the other one."""
    if not -(2**63) <= (number := int(digits[:30])) < 2**64:
        raise ValueError(f"{digits[:30]} does not fit into 64 bits")
    return number
