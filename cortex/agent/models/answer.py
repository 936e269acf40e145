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
from cortex.domain.model import ENDED, INVALID_INPUT, Block, ModelResponse, container_block
from cortex.domain.usage import Usage
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
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
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
        """The last call whose arguments came as a value, not as text in deltas."""
        self._half = ""
        """The first half of a surrogate pair, until `on_text` can get both."""
        self._container: Block | None = None
        """Where the server's own tools have run code: their work goes on only there."""
        self._stop_reason: str | None = None
        self._early_reason: str | None = None
        """Stop reason in message_start: before the content it proves nothing."""
        self._has_stopped = False
        """message_stop has come: a stream is whole, and an answer in one document always has it."""
        self._has_ended = False
        """The body ended, and its framing shows that nothing of it is missing."""
        self.usage = Usage()
        """What the API has counted so far."""
        self.complete = False

    @property
    def has_content(self) -> bool:
        """Part of the answer has come: whatever follows, the call is paid for."""
        return bool(self._blocks)

    def take(self, event: dict[str, Any]) -> bool:
        """Take the next event; True if it is part of the answer (a ping is not).

        Raises `BrokenAnswerError`, `ErrorEventError`, and the errors of the callbacks.
        """
        was_open, used = bool(self._message), self.usage
        try:
            text = self._grow(event)
            is_content = event["type"] in CONTENT_EVENTS
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"an event of type {event.get('type')!r} is malformed: {error!r:.200}"
            raise BrokenAnswerError("malformed_answer", message) from error
        if self._message and not was_open and self._on_open is not None:
            self._on_open()
        if self.usage != used and self._on_usage is not None:
            self._on_usage(self.usage)
        if text and self._on_text is not None:
            self._on_text(text)
        return is_content

    def finish(self, *, is_framed: bool = True, is_cut: bool = False) -> None:
        """Take the end of the body: message_stop and the stop reason may be missing.

        `is_framed`: a length or a last chunk shows that the body is whole. Without one, the end of
        the connection may as well be a cut, so that only a stop reason makes the answer complete.
        So it does if the body ended inside an event: `is_cut`.
        """
        self._has_ended = is_framed
        is_whole = is_framed and not is_cut and self._is_whole()
        if self._message and (self._stop_reason is not None or is_whole):
            self.complete = True

    def break_off(self) -> None:
        """Take the loss of the connection: nothing but counts can follow a stop reason."""
        if self._message and self._stop_reason is not None and self._is_whole():
            self.complete = True

    def response(self) -> ModelResponse:
        """Return the whole answer.

        Blocks that were not closed are whole if the answer has a stop reason. Without one, an
        answer with message_stop, or whose body ended regularly, has ended as its content implies:
        if all blocks are whole and there is a text or a call among them.

        Raises `BrokenAnswerError` unless the model ended its answer.
        """
        is_whole = self._stop_reason is not None or self._is_whole()
        if not (self.complete and is_whole):
            raise self._broken()
        try:
            for index in tuple(self._pieces):
                self._finish(self._latest[index], self._pieces.pop(index), is_closed=False)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BrokenAnswerError(
                "malformed_answer", f"a block is malformed: {error!r}"
            ) from error
        blocks = tuple(self._blocks)
        container = [] if self._container is None else [self._container]
        reason = self._stop_reason or self._implied_reason()
        if reason not in ENDED and self._given is not None and self._given is _last(blocks):
            _doubt(self._given)
        return ModelResponse(
            model=self._message["model"] or self._model,
            content=(*container, *blocks),
            stop_reason=reason,
            usage=self.usage,
            message_id=self._message["id"],
        )

    def _is_whole(self) -> bool:
        """Return whether each block was closed, or is a call whose arguments arrived whole."""
        return all(
            self._latest[index]["type"] in _CALLS and tool_input("".join(pieces)) is not None
            for index, pieces in self._pieces.items()
        )

    def _implied_reason(self) -> str:
        """Return the stop reason that the content of an answer without one implies."""
        if self._early_reason is not None and self._early_reason not in ENDED:
            return self._early_reason
        calls = [block for block in self._blocks if block["type"] == "tool_use"]
        for call in calls:
            _doubt_empty(call)
        if not self._has_stopped and self._given is not None and self._given is _last(self._blocks):
            self._given.update({"input": {}, INVALID_INPUT: ""})  # a gateway may have completed it
        if (last := _last(self._blocks)) is None or last["type"] in _THINKING:
            message = "an answer without a stop reason has no text and no call"
            raise BrokenAnswerError("malformed_answer", message)
        return "tool_use" if calls else "end_turn"

    def _broken(self) -> BrokenAnswerError:
        if not self._message and (self._blocks or self._has_ended):
            what = "content" if self._blocks else "the body ended"
            return BrokenAnswerError("malformed_answer", f"{what} without message_start")
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
                return self._extend(self._index(event), event["delta"])
            case "content_block_start":
                return self._begin(event.get("index", len(self._blocks)), event["content_block"])
            case "content_block_stop":
                if (index := self._index(event)) in self._pieces:
                    self._finish(self._latest[index], self._pieces.pop(index))
                else:
                    _ = self._latest[index]  # a second stop is harmless
            case "message_start":
                self._open(event["message"])
            case "message_delta":
                delta = event.get("delta") or {}
                self._stop(delta.get("stop_reason"))
                self._keep(delta.get("container"))
                self.usage = counted(self.usage, event.get("usage"))
            case "message_stop":
                self.complete = self._has_stopped = bool(self._message)
            case "error":
                if not event["error"]:
                    raise BrokenAnswerError("malformed_answer", "an error event without an error")
                raise ErrorEventError(event)
            case _:
                pass  # pings, and events of a future API
        return ""

    def _open(self, message: dict[str, Any]) -> None:
        fresh = {name: joined_text(str(message.get(name) or "")) for name in ("id", "model")}
        if self._blocks and self._message and not self._is_repeated(fresh["id"]):
            raise BrokenAnswerError("malformed_answer", "a second message began inside the first")
        self._message = fresh
        reason = message.get("stop_reason")
        if reason and isinstance(reason, str):
            self._early_reason = joined_text(reason)[:STOP_REASON_CHARS_MAX]
        self.usage = counted(self.usage, message.get("usage"))
        self._keep(message.get("container"))

    def _keep(self, container: object) -> None:
        """Take the container of an answer, if there is one: at its beginning, or at its end."""
        if not isinstance(container, dict):
            return
        given, end = container.get("id"), container.get("expires_at")
        if given and isinstance(given, str):
            expires_at = joined_text(end) if isinstance(end, str) else None
            self._container = container_block(joined_text(given), expires_at)

    def _is_repeated(self, message_id: str) -> bool:
        """Return whether a second message_start repeats the first, rather than starting anew.

        Without ids nothing shows it, and the calls of two attempts would both run. So would those
        of an attempt that a server makes again under its own id.
        """
        has_call = any(block["type"] in _CALLS for block in self._blocks)
        return bool(message_id) and message_id == self._message["id"] and not has_call

    def _index(self, event: dict[str, Any]) -> int:
        """Return the index of the event's block; without one, of the block that began last."""
        if "index" not in event and self._latest:
            # Without an open block this is the second stop of the last one, or malformed.
            return next(reversed(self._pieces or self._latest))
        index: int = event["index"]
        return index

    def _stop(self, reason: object) -> None:
        """Take a stop reason, known or not: what is no text, or empty, changes nothing.

        One that means a cut is never replaced.
        """
        if not reason or not isinstance(reason, str):
            return
        if self._stop_reason is None or self._stop_reason in ENDED:
            self._stop_reason = joined_text(reason)[:STOP_REASON_CHARS_MAX]

    def _begin(self, index: int, block: dict[str, Any]) -> str:
        began: Block = {**joined(block), "type": _text(block["type"])}
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
                pieces.append(_text(delta["thinking"]))
            case "input_json_delta":
                pieces.append(_text(delta["partial_json"]))
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
                is_value = bool(given) and isinstance(given, dict) and not text
                self._given = block if is_value else self._given
                if not is_closed:
                    _doubt_empty(block)
            case _:
                pass  # the block came whole in its first event


def _text(piece: object) -> str:
    if not isinstance(piece, str):
        raise TypeError(f"{piece!r:.80} in place of text")
    return piece


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
