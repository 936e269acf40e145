"""The answers of the Gemini API as events of the Messages API, from which answers are made."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cortex.agent.models.decoding import (
    ALIVE,
    Event,
    TranslatingDecoder,
    block_end,
    count_of,
)
from cortex.agent.models.errors import BrokenAnswerError
from cortex.agent.models.google_requests import PROVIDER, SIGNATURE
from cortex.domain.model import PROVIDER as PROVIDER_KEY

FINISHED: Final[Mapping[str, str]] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    # The model meant to call a tool, and is asked to do so again.
    "MALFORMED_FUNCTION_CALL": "tool_use",
    "UNEXPECTED_TOOL_CALL": "tool_use",
}
"""All others mean that a filter of the API has stopped the answer."""
DEARER: Final = "priority"
"""The tier that costs more. The flex tier costs half of most prices, and is booked at the whole."""
REFUSAL: Final = "refusal"
_NOT_IN_IDS: Final = re.compile(r"[^a-zA-Z0-9_-]")


class GeminiDecoder(TranslatingDecoder):
    """The Gemini API: each event is a chunk of the answer, with whole calls in it."""

    def __init__(self, kind: str, *, calls_max: int | None, tier: str | None = None) -> None:
        """`tier`: the one that serves the call, as a header says."""
        super().__init__(kind)
        self._tier = DEARER if (tier or "").lower() == DEARER else None
        self._calls_max = calls_max
        """The API cannot be told to call one tool at a time: further calls are left out."""
        self._calls = 0
        self._text: int | None = None
        self._id = ""
        self._is_open = False
        self._searches: set[str] = set()

    def _document(self, document: Event) -> Iterator[Event]:
        if not document.keys() & {"candidates", "promptFeedback", "error"}:
            raise BrokenAnswerError("not_a_stream", "answered with JSON that is no answer")
        yield document

    def _translated(self, event: Event) -> Iterator[Event]:
        if event.get("error"):
            yield {"type": "error", "error": event["error"]}
            return
        if not self._is_open:
            self._is_open = True
            self._id = str(event.get("responseId") or "")
            message = {"id": self._id, "model": event.get("modelVersion")}
            yield {"type": "message_start", "message": message}
        candidates = event.get("candidates") or ()
        for candidate in candidates:
            if candidate.get("index", 0) == 0:
                yield from self._candidate(candidate)
        if event.get("usageMetadata"):
            usage = _usage(event["usageMetadata"], searches=len(self._searches))
            usage["service_tier"] = self._tier
            yield {"type": "message_delta", "delta": {}, "usage": usage}
        blocked = (event.get("promptFeedback") or {}).get("blockReason")
        if blocked and not candidates:
            yield {"type": "message_delta", "delta": {"stop_reason": REFUSAL}}

    def _candidate(self, candidate: Event) -> Iterator[Event]:
        for part in (candidate.get("content") or {}).get("parts") or ():
            yield from self._part(part)
        grounding = candidate.get("groundingMetadata") or {}
        self._searches.update(grounding.get("webSearchQueries") or ())
        if reason := candidate.get("finishReason"):
            yield from self._finished(reason)

    def _part(self, part: Event) -> Iterator[Event]:
        call = part.get("functionCall")
        if call is not None and self._calls_max is not None and self._calls >= self._calls_max:
            return
        if signature := part.get("thoughtSignature"):
            own = {"type": SIGNATURE, "signature": signature, PROVIDER_KEY: PROVIDER}
            yield from self._whole(own)
        if call is not None:
            yield from self._call(call)
        elif part.get("thought"):
            yield ALIVE
        elif part.get("text"):
            if self._text is None:
                self._text, begun = self._begin({"type": "text", "text": ""})
                yield begun
            delta = {"type": "text_delta", "text": part["text"]}
            yield {"type": "content_block_delta", "index": self._text, "delta": delta}

    def _call(self, call: Event) -> Iterator[Event]:
        self._calls += 1
        # Older models give their calls no ids.
        own = _NOT_IN_IDS.sub("_", f"call_{self._id}_{self._calls}")
        block = {"type": "tool_use", "id": call.get("id") or own, "name": call["name"], "input": {}}
        yield from self._end_text()
        index, begun = self._begin(block)
        yield begun
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        delta = {"type": "input_json_delta", "partial_json": arguments}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield block_end(index)

    def _finished(self, reason: str) -> Iterator[Event]:
        reason = FINISHED.get(reason, REFUSAL)
        if reason == "end_turn" and self._calls:
            reason = "tool_use"
        if reason in ("end_turn", "tool_use"):
            yield from self._end_text()
        yield {"type": "message_delta", "delta": {"stop_reason": reason}}

    def _whole(self, block: Event) -> Iterator[Event]:
        yield from self._end_text()
        yield from super()._whole(block)

    def _end_text(self) -> Iterator[Event]:
        if self._text is not None:
            yield block_end(self._text)
            self._text = None


def _usage(reported: Event, *, searches: int) -> Event:
    """Return disjoint counts: the API's prompt includes cached tokens, its answer no thoughts."""
    read = count_of(reported.get("cachedContentTokenCount"))
    prompt = count_of(reported.get("promptTokenCount"))
    tools = count_of(reported.get("toolUsePromptTokenCount"))
    answer, thoughts = "candidatesTokenCount", "thoughtsTokenCount"
    return {
        "input_tokens": max(0, prompt - read) + tools,
        "cache_read_input_tokens": read,
        "output_tokens": count_of(reported.get(answer)) + count_of(reported.get(thoughts)),
        "server_tool_use": {"web_search_requests": searches},
    }
