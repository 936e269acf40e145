"""The marks that let the Messages API keep the prefix of a prompt.

The API matches whole prefixes in the order tools, system, messages, and reads at a tenth of the
price what an earlier request with the same prefix wrote. A mark is no part of the prefix. At most
three of the four permitted marks are set: the end of tools and system, the end of the conversation,
and its end one turn ago if this turn is so long that the API would not look back that far.
"""

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from cortex.domain.classification import failure_of
from cortex.domain.model import CacheTtl

LOOKBACK: Final = 20
"""Places, counted from a mark backwards, at which the API looks for what was written before."""
MODELS_MAX: Final = 1_000
MARK: Final = "cache_control"
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})
_REFUSAL: Final = re.compile(rf"{MARK}|\bsystem(?:\.\d+)*: ")
"""What a server that refuses the marks complains about: a marked system prompt is a list.

Gateways report the first as errors of any kind, also once their answer has begun.
"""


class Marking(IntEnum):
    """How the end of a conversation is marked; servers refuse the first of them most often."""

    NONE = 0
    EXPLICIT = 1
    """On its last block: Bedrock and Vertex take only this one."""
    AUTOMATIC = 2
    """By a field of the request: the API itself puts the mark on the last block."""


class Markings:
    """Which marking each model's server takes; learned from its refusals."""

    def __init__(self) -> None:
        self._of: dict[str, Marking] = {}

    def of(self, model: str) -> Marking:
        return self._of.get(model, Marking.AUTOMATIC)

    def weaken(self, model: str, used: Marking, error: Exception) -> bool:
        """Take a refusal of a request; return whether to make it again with weaker marks."""
        failure = failure_of(error)
        found = _REFUSAL.search(failure.message)
        if found is None or (found[0] != MARK and failure.code != "invalid_request"):
            return False
        if used is Marking.NONE:  # refused for something else: marks are worth another try
            self._of.pop(model, None)
            return False
        if len(self._of) >= MODELS_MAX:
            self._of.clear()
        # A call that was under way at the same time may have learned more.
        self._of[model] = min(Marking(used - 1), self.of(model))
        return True


def marked(arguments: Mapping[str, Any], ttl: CacheTtl, marking: Marking) -> dict[str, Any]:
    """Return a request with the marks of its prefix; one with marks of its own stays as it is."""
    if ttl is CacheTtl.OFF or marking is Marking.NONE or _is_marked(arguments):
        return dict(arguments)
    mark = {"type": "ephemeral"}
    if ttl is CacheTtl.HOUR:
        mark["ttl"] = ttl.value
    fresh = {**arguments, **_marked_head(arguments, mark)}
    messages = list(arguments["messages"])
    if (place := _end_of_turn_before(messages)) is not None:
        messages[place] = _marked_message(messages[place], mark)
    if marking is Marking.AUTOMATIC:
        fresh[MARK] = mark
    elif (last := _last_markable(messages)) is not None:
        messages[last] = _marked_message(messages[last], mark)
    return {**fresh, "messages": messages}


def _marked_head(arguments: Mapping[str, Any], mark: Mapping[str, str]) -> dict[str, Any]:
    """Return the field that holds the mark for tools and system."""
    system, tools = arguments.get("system"), arguments.get("tools")
    if isinstance(system, str) and system.strip():
        return {"system": [{"type": "text", "text": system, MARK: mark}]}
    if tools:
        return {"tools": [*tools[:-1], {**tools[-1], MARK: mark}]}
    return {}


def _end_of_turn_before(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the message that ended the request before, unless the last mark looks back to it."""
    answers = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
    if not answers or answers[-1] == 0:
        return None
    since = sum(len(_blocks(each)) for each in messages[answers[-1] :])
    before = answers[-1] - 1
    is_far = since >= LOOKBACK and _place_to_mark(messages[before]) is not None
    return before if is_far else None


def _last_markable(messages: Sequence[Mapping[str, Any]]) -> int | None:
    places = reversed(range(len(messages)))
    return next((each for each in places if _place_to_mark(messages[each]) is not None), None)


def _marked_message(message: Mapping[str, Any], mark: Mapping[str, str]) -> dict[str, Any]:
    """Return the message with the mark on its last block that takes one."""
    blocks, place = _blocks(message), _place_to_mark(message)
    if place is not None:
        blocks[place] = {**blocks[place], MARK: mark}
    return {**message, "content": blocks}


def _place_to_mark(message: Mapping[str, Any]) -> int | None:
    blocks = _blocks(message)
    return next((each for each in reversed(range(len(blocks))) if _takes_mark(blocks[each])), None)


def _takes_mark(block: Mapping[str, Any]) -> bool:
    if block.get("type") == "text":
        return bool(str(block.get("text") or "").strip())
    return block.get("type") not in _UNMARKABLE


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _is_marked(arguments: Mapping[str, Any]) -> bool:
    blocks = [block for each in arguments["messages"] for block in _blocks(each)]
    return MARK in arguments or any(MARK in each for each in (*arguments.get("tools", ()), *blocks))
