"""Refuses the marks of the prompt cache that the Messages API refuses, with its kind of message."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cortex.demo.prompt_cache import MARK, automatic_index, explicit_places, ttl_of

MARKS_MAX: Final = 4
_TTLS: Final = ("5m", "1h")
_ORDER: Final = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that "
    "blocks are processed in the following order: `tools`, `system`, `messages`."
)


def mark_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the marks of a request."""
    wrong = next(_malformed(request), None)
    if wrong is not None:
        yield wrong  # the rules below read only marks that are marks
        return
    places = explicit_places(request)
    marks = [(each.where, each.ttl) for each in places if each.ttl is not None]
    automatic, last = request.get(MARK), automatic_index(places)
    if automatic is not None and last is not None:
        asked, own = ttl_of(automatic), places[last].ttl
        if own is None:
            marks.append(("", asked))
        elif own != asked:
            yield f"cache_control.ttl: {asked!r}, but the last block has a mark with ttl={own!r}"
    if len(marks) > MARKS_MAX:
        limit = f"A maximum of {MARKS_MAX} blocks with cache_control may be provided"
        yield f"{limit}. Found {len(marks)}."
    is_short = False
    for where, ttl in marks:
        if ttl == "1h" and is_short:
            yield f"{where + '.' if where else ''}cache_control.ttl: {_ORDER}"
        is_short |= ttl == "5m"


def _malformed(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield marks that are none, and those at blocks that take none."""
    if MARK in request and request[MARK] is not None:
        yield from _mark("cache_control", request[MARK])
    for where, block in _marked_blocks(request):
        yield from _mark(f"{where}.cache_control", block[MARK])
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            yield f"{where}.{kind}.cache_control: Extra inputs are not permitted"
        if kind == "text" and not block["text"]:
            yield f"{where}.text: cache_control cannot be set for empty text blocks"


def _mark(where: str, mark: Any) -> Iterator[str]:
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        yield f"{where}.type: Input should be 'ephemeral'"
    elif mark.keys() - {"type", "ttl"}:
        yield f"{where}: Extra inputs are not permitted"
    elif mark.get("ttl", "5m") not in _TTLS:
        yield f"{where}.ttl: Input should be '5m' or '1h'"


def _marked_blocks(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the block of each mark."""
    system = request.get("system") or ()
    fields = [("tools", request.get("tools") or ())]
    fields.append(("system", () if isinstance(system, str) else system))
    for number, message in enumerate(request["messages"]):
        content = message["content"]
        fields.append((f"messages.{number}.content", () if isinstance(content, str) else content))
    for where, blocks in fields:
        for index, block in enumerate(blocks):
            if block.get(MARK) is not None:
                yield f"{where}.{index}", block
