"""The answers of OpenAI's two APIs as events of the Messages API, from which answers are made."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cortex.agent.models.decoding import (
    ALIVE,
    Event,
    TranslatingDecoder,
    block_end,
    count_of,
)
from cortex.agent.models.errors import BrokenAnswerError
from cortex.agent.models.openai_requests import ITEM_FIELDS, MESSAGE, PROVIDER
from cortex.domain.model import PROVIDER as PROVIDER_KEY

TIERS: Final[Mapping[str, str]] = {"priority": "priority", "flex": "batch", "batch": "batch"}
"""Tiers with a price of their own; the flex tier costs as much as a batch."""
INCOMPLETE: Final[Mapping[str, str]] = {
    "max_output_tokens": "max_tokens",
    "content_filter": "refusal",
}
FINISHED: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class ResponsesDecoder(TranslatingDecoder):
    """The Responses API: items, each of which begins, grows and ends."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._texts: dict[tuple[int, int], int] = {}
        self._calls: dict[int, int] = {}
        self._grown: set[int] = set()
        self._searches = 0
        self._has_call = False
        self._is_refused = False

    def _document(self, document: Event) -> Iterator[Event]:
        if document.get("object") != "response":
            if "error" in document:
                yield {"type": "error", **_error_of(document["error"])}
                return
            raise BrokenAnswerError("not_a_stream", "answered with JSON that is not a response")
        yield {"type": "response.created", "response": document}
        for place, item in enumerate(document.get("output") or ()):
            yield {"type": "response.output_item.done", "output_index": place, "item": item}
        status = document.get("status") or "completed"
        yield {"type": f"response.{status}", "response": document}

    def _translated(self, event: Event) -> Iterator[Event]:
        kind = event["type"]
        match kind:
            case "response.created":
                response = event["response"]
                message = {"id": response.get("id"), "model": response.get("model")}
                yield {"type": "message_start", "message": message}
            case "response.output_text.delta" | "response.refusal.delta":
                self._is_refused |= kind == "response.refusal.delta"
                yield from self._text(event, event["delta"])
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                yield self._call(event["output_index"], event["item"])
            case "response.function_call_arguments.delta":
                yield self._arguments(event["output_index"], event["delta"])
            case "response.output_item.done":
                yield from self._done(event["output_index"], event["item"])
            case "response.completed" | "response.incomplete":
                yield from self._ended(event["response"])
            case "response.failed":
                yield {"type": "error", "error": _error_of(event["response"].get("error"))}
            case "error":
                yield {"type": "error", "error": _error_of(event.get("error", event))}
            case _ if kind.startswith("response.reasoning"):
                yield ALIVE
            case _:
                pass  # progress of an item, and events of a future API

    def _text(self, event: Event, text: str) -> Iterator[Event]:
        place = event["output_index"], event["content_index"]
        if place not in self._texts:
            self._texts[place], begun = self._begin({"type": "text", "text": ""})
            yield begun
        delta = {"type": "text_delta", "text": text}
        yield {"type": "content_block_delta", "index": self._texts[place], "delta": delta}

    def _call(self, place: int, item: Event) -> Event:
        block = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": {}}
        self._calls[place], begun = self._begin(block)
        self._has_call = True
        return begun

    def _arguments(self, place: int, text: str) -> Event:
        self._grown.add(place)
        delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": self._calls[place], "delta": delta}

    def _done(self, place: int, item: Event) -> Iterator[Event]:
        """Take a whole item: what of it has come in pieces is not taken again."""
        match item["type"]:
            case "function_call":
                if place not in self._calls:
                    yield self._call(place, item)
                if place not in self._grown and item.get("arguments"):
                    yield self._arguments(place, item["arguments"])
                # Arguments that the model did not end are cut, whatever their braces say.
                if item.get("status") != "incomplete":
                    yield block_end(self._calls[place])
            case "message":
                yield from self._message(place, item)
            case kind:
                self._searches += kind == "web_search_call"
                fields = ITEM_FIELDS.get(kind, tuple(item))
                own = {name: item[name] for name in fields if name in item}
                yield from self._whole({**own, PROVIDER_KEY: PROVIDER})

    def _message(self, place: int, item: Event) -> Iterator[Event]:
        for index, part in enumerate(item.get("content") or ()):
            is_text = part["type"] == "output_text"
            self._is_refused |= part["type"] == "refusal"
            if (place, index) not in self._texts:
                text = part["text"] if is_text else part.get("refusal") or ""
                yield from self._text({"output_index": place, "content_index": index}, text)
            yield block_end(self._texts[place, index])
        if item.get("phase"):
            # After its text: a block before it would have to wait for the end of the item.
            phase = {"type": MESSAGE, "phase": item["phase"], PROVIDER_KEY: PROVIDER}
            yield from self._whole(phase)

    def _ended(self, response: Event) -> Iterator[Event]:
        details = response.get("incomplete_details") or {}
        reason = "tool_use" if self._has_call else "end_turn"
        if response.get("status") == "incomplete":
            reason = INCOMPLETE.get(str(details.get("reason")), "max_tokens")
        elif self._is_refused:
            reason = "refusal"
        usage = response.get("usage") or {}
        counted = _usage(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            usage.get("input_tokens_details"),
            tier=response.get("service_tier"),
            searches=self._searches,
        )
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": counted}
        yield {"type": "message_stop"}


class ChatDecoder(TranslatingDecoder):
    """Chat Completions: chunks with pieces of one choice."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._id: str | None = None
        self._text: int | None = None
        self._calls: dict[int, tuple[int, str]] = {}
        """By their index in the chunks: the block, and the call's id."""
        self._is_refused = False
        self._has_reason = False

    def _document(self, document: Event) -> Iterator[Event]:
        choices = document.get("choices")
        if not isinstance(choices, list):
            if "error" in document:
                yield document
                return
            raise BrokenAnswerError("not_a_stream", "answered with JSON that is no completion")
        whole = [{**each, "delta": each.get("message") or {}} for each in choices]
        yield {**document, "choices": whole}

    def _translated(self, event: Event) -> Iterator[Event]:
        if event.get("error"):
            yield {"type": "error", "error": _error_of(event["error"])}
            return
        if self._id is None:
            self._id = str(event.get("id") or "")
            message = {"id": self._id, "model": event.get("model")}
            yield {"type": "message_start", "message": message}
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                yield from self._choice(choice)
        if (usage := event.get("usage")) is not None:
            counted = _usage(
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                usage.get("prompt_tokens_details"),
                tier=event.get("service_tier"),
            )
            yield {"type": "message_delta", "delta": {}, "usage": counted}
            if self._has_reason:
                yield {"type": "message_stop"}

    def _choice(self, choice: Event) -> Iterator[Event]:
        delta = choice.get("delta") or {}
        if delta.get("refusal"):
            self._is_refused = True
        if text := delta.get("content") or delta.get("refusal"):
            yield from self._grow(text)
        elif delta.get("reasoning") or delta.get("reasoning_content"):
            yield ALIVE
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)
        if reason := choice.get("finish_reason"):
            yield from self._finished(reason)

    def _grow(self, text: str) -> Iterator[Event]:
        if self._text is None:
            self._text, begun = self._begin({"type": "text", "text": ""})
            yield begun
        delta = {"type": "text_delta", "text": text}
        yield {"type": "content_block_delta", "index": self._text, "delta": delta}

    def _call(self, call: Event) -> Iterator[Event]:
        """Take a piece of a call. Some servers give each call the index 0, and a new id."""
        function, index = call.get("function") or {}, call.get("index", 0)
        begun = self._calls.get(index)
        if begun is None or (call.get("id") and call["id"] != begun[1]):
            call_id = str(call.get("id") or f"call_{self._count}_{self._id}")
            if self._text is not None:
                yield block_end(self._text)
                self._text = None
            block = {"type": "tool_use", "id": call_id, "name": function["name"], "input": {}}
            place, event = self._begin(block)
            self._calls[index] = place, call_id
            yield event
        if arguments := function.get("arguments"):
            if isinstance(arguments, Mapping):  # some servers send them whole
                arguments = json.dumps(arguments, ensure_ascii=False)
            delta = {"type": "input_json_delta", "partial_json": arguments}
            yield {"type": "content_block_delta", "index": self._calls[index][0], "delta": delta}

    def _finished(self, reason: str) -> Iterator[Event]:
        """Take the end of the choice. Blocks that a limit has cut stay open."""
        reason = FINISHED.get(reason, reason)
        if reason == "end_turn" and self._count and self._calls:
            reason = "tool_use"  # some servers say stop
        if reason == "end_turn" and self._is_refused:
            reason = "refusal"
        self._has_reason = True
        if reason in ("end_turn", "tool_use"):
            open_blocks = [place for place, _ in self._calls.values()]
            for place in [*open_blocks, *([] if self._text is None else [self._text])]:
                yield block_end(place)
        yield {"type": "message_delta", "delta": {"stop_reason": reason}}


def _error_of(error: Any) -> Event:
    """Return an error, never empty: its message, code and type as far as there are any."""
    if not isinstance(error, dict):
        return {"message": str(error or "the server gave no reason")}
    return {name: error.get(name) for name in ("message", "code", "type")}


def _usage(
    input_tokens: Any, output_tokens: Any, details: Any, *, tier: Any, searches: int = 0
) -> Event:
    """Return disjoint counts: OpenAI counts cached tokens as part of the input."""
    details = details if isinstance(details, Mapping) else {}
    read, written = (
        count_of(details.get("cached_tokens")),
        count_of(details.get("cache_write_tokens")),
    )
    return {
        "input_tokens": max(0, count_of(input_tokens) - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": count_of(output_tokens),
        "service_tier": TIERS.get(tier) if isinstance(tier, str) else None,
        "server_tool_use": {"web_search_requests": searches},
    }
