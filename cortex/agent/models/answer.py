"""A model's answer, assembled from the events of its stream.

Works on plain JSON: the SDK's typed events and its growing snapshot of the message would cost about
as much again as the network, which matters at thousands of events a second.
"""

from collections.abc import Callable
from typing import Any

from cortex.agent.models.errors import BrokenAnswerError, ErrorEventError
from cortex.agent.models.events import parse_json
from cortex.agent.models.usage import counted
from cortex.domain.model import INVALID_INPUT, Block, ModelResponse, Usage

STOP_REASONS = frozenset(
    {
        "end_turn",
        "max_tokens",
        "model_context_window_exceeded",
        "pause_turn",
        "refusal",
        "stop_sequence",
        "tool_use",
    }
)
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


class ModelAnswer:
    """Grows event by event until it is complete."""

    def __init__(
        self,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
    ) -> None:
        self._on_text = on_text
        self._on_open = on_open
        self._on_usage = on_usage
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, list[str]] = {}  # of the blocks that have not ended yet
        self._stop_reason: str | None = None
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
        except (KeyError, TypeError, AttributeError) as error:
            message = f"an event of type {event.get('type')!r} is malformed: {error!r}"
            raise BrokenAnswerError("malformed_answer", message) from error
        if self._message and not was_open and self._on_open is not None:
            self._on_open()
        if self.usage != used and self._on_usage is not None:
            self._on_usage(self.usage)
        if text and self._on_text is not None:
            self._on_text(text)
        return event["type"] in CONTENT_EVENTS

    def response(self) -> ModelResponse:
        """The whole answer; `BrokenAnswerError` unless the model gave a stop reason."""
        if not self.complete or self._pieces or self._stop_reason is None:
            lacks = "a stop reason" if self.complete else "message_stop"
            message = (
                f"the model ended its answer early: {len(self._blocks)} blocks, but no {lacks}"
            )
            raise BrokenAnswerError("ended_early", message)
        if self._stop_reason not in STOP_REASONS:
            message = f"unknown stop reason {self._stop_reason!r}"
            raise BrokenAnswerError("unknown_stop_reason", message)
        return ModelResponse(
            model=self._message["model"],
            content=tuple(self._blocks.values()),
            stop_reason=self._stop_reason,
            usage=self.usage,
            message_id=self._message["id"],
        )

    def _grow(self, event: dict[str, Any]) -> str:
        """Apply an event; return the text that it adds to the answer."""
        match event["type"]:
            case "content_block_delta":
                return self._extend(event["index"], event["delta"])
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
                self._pieces[event["index"]] = []
            case "content_block_stop":
                self._finish(self._blocks[event["index"]], self._pieces.pop(event["index"]))
            case "message_start":
                self._message = {name: event["message"][name] for name in ("id", "model")}
                self.usage = counted(self.usage, event["message"]["usage"])
            case "message_delta":
                self._stop_reason = event["delta"]["stop_reason"]
                self.usage = counted(self.usage, event["usage"])
            case "message_stop":
                self.complete = bool(self._message)
            case "error":
                raise ErrorEventError(event)
            case _:
                pass  # pings, and events of a future API
        return ""

    def _extend(self, index: int, delta: dict[str, Any]) -> str:
        block, pieces = self._blocks[index], self._pieces[index]
        match delta["type"]:
            case "text_delta":
                pieces.append(delta["text"])
                return str(delta["text"])
            case "thinking_delta":
                pieces.append(delta["thinking"])
            case "input_json_delta":
                pieces.append(delta["partial_json"])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case _:
                pass  # a delta of a future API
        return ""

    def _finish(self, block: Block, pieces: list[str]) -> None:
        joined = "".join(pieces)
        match block["type"]:
            case "text" | "thinking" as field:
                block[field] += joined
            case _ if joined:
                block["input"] = _tool_input(joined)
                if block["input"] is None:
                    block.update({"input": {}, INVALID_INPUT: joined})
            case _:
                pass  # the block came whole in its first event


def _tool_input(raw: str) -> dict[str, Any] | None:
    """Return the input of a tool call; None if it is no JSON object."""
    try:
        value = parse_json(raw.encode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
