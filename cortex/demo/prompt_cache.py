"""The prompt cache of the scripted server, by the rules of the Messages API.

A request is a list of blocks in the order tools, system, messages. A mark (`cache_control`) at a
block writes one entry: the whole prefix that ends there. Reading looks, from each mark backwards,
at 20 blocks for an entry that an earlier request wrote. An entry lives for five minutes or an hour
from the start of the request that wrote or read it, and can be read once the answer to the first
of them has begun. Prefixes shorter than the model's minimum are not kept, and no error says so.

Where the API is lenient this server is not: each of several tool calls in a row counts as a block.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import orjson
from attrs import define, evolve, field, frozen

MARK: Final = "cache_control"
LOOKBACK: Final = 20
LIFETIMES_S: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3_600.0}
ENTRIES_MAX: Final = 100_000
CHARS_PER_TOKEN: Final = 4  # the usual rule of thumb for English; makes usage follow text lengths
MINIMUM_DEFAULT: Final = 1_024
_MINIMA: Final = (
    ("claude-opus-5", 512),
    ("claude-opus-4-7", 2_048),
    ("claude-opus-4-6", 4_096),
    ("claude-opus-4-5", 4_096),
    ("claude-haiku-4-5", 4_096),
    ("claude-haiku-3", 2_048),
    ("claude-3-haiku", 2_048),
    ("claude-3-5-haiku", 2_048),
)
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})


@frozen
class Place:
    """One block of a prompt, without its mark."""

    where: str
    """Its path in the request, as the API's messages spell it."""
    raw: bytes
    ttl: str | None
    """How long its mark asks to keep the prefix; None without a mark."""
    takes_mark: bool


@frozen(kw_only=True)
class CachedTokens:
    """What a request reads from the cache and writes to it, in tokens."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def total(self) -> int:
        return self.read + self.written_5m + self.written_1h


NOTHING_CACHED: Final = CachedTokens()


@frozen
class _Entry:
    """A prefix that can be read until `end_s`; each reading renews its whole lifetime."""

    lifetime_s: float
    end_s: float


@frozen
class Visit:
    """What a request found, and the prefixes that it writes once its answer begins."""

    tokens: CachedTokens = NOTHING_CACHED
    writes: Mapping[bytes, _Entry] = field(factory=dict)


def places_of(request: Mapping[str, Any]) -> tuple[Place, ...]:
    """Return the blocks of a request; the mark of the whole request is at its last one."""
    places = explicit_places(request)
    index = automatic_index(places)
    if (automatic := request.get(MARK)) is not None and index is not None:
        places[index] = evolve(places[index], ttl=ttl_of(automatic))
    return tuple(places)


def explicit_places(request: Mapping[str, Any]) -> list[Place]:
    """Return the blocks of a request with marks of their own only."""
    system, places = request.get("system") or (), []
    for index, tool in enumerate(request.get("tools") or ()):
        places.append(_place(f"tools.{index}", "tools", tool))
    for index, block in enumerate(_blocks(system)):
        places.append(_place(f"system.{index}", "system", block))
    for number, message in enumerate(request["messages"]):
        for index, block in enumerate(_blocks(message["content"])):
            where = f"messages.{number}.content.{index}"
            # A border between messages is part of the prefix, and so is the role.
            begins = f"{message['role']}{'' if index else ':'}"
            places.append(_place(where, begins, block))
    return places


def automatic_index(places: Sequence[Place]) -> int | None:
    """Return the block that gets the mark of the whole request: the last one that takes one."""
    return next((each for each in reversed(range(len(places))) if places[each].takes_mark), None)


def tokens_of(places: Sequence[Place]) -> int:
    """Return the length of a prompt in tokens."""
    return sum(len(each.raw) for each in places) // CHARS_PER_TOKEN


def ttl_of(mark: Mapping[str, Any]) -> str:
    """Return how long a mark asks to keep its prefix."""
    return str(mark.get("ttl") or "5m")


def minimum_of(model: str) -> int:
    """Return the tokens of the shortest prefix that is kept for a model."""
    return next((least for name, least in _MINIMA if model.startswith(name)), MINIMUM_DEFAULT)


@define
class PromptCache:
    """The prefixes of all conversations, by the hash of their model and content."""

    _entries: dict[bytes, _Entry] = field(factory=dict, init=False)

    def visit(self, model: str, places: Sequence[Place], now_s: float) -> Visit:
        """Read for a request that began at `now_s`; `keep` the visit once it is answered."""
        marks = [index for index, place in enumerate(places) if place.ttl is not None]
        if not marks:
            return Visit()
        hashes, ends = _prefixes(model, places)
        hit = self._longest(hashes, marks, now_s)
        begin = 0
        if hit is not None:
            self._renew(hashes[hit], now_s)
            begin = ends[hit]
        read, written = begin, Counter[str]()
        writes: dict[bytes, _Entry] = {}
        for index in marks:
            if ends[index] < minimum_of(model) or (hit is not None and index <= hit):
                continue
            ttl = places[index].ttl or "5m"
            writes[hashes[index]] = _Entry(LIFETIMES_S[ttl], now_s + LIFETIMES_S[ttl])
            written[ttl] += ends[index] - begin
            begin = ends[index]
        tokens = CachedTokens(read=read, written_5m=written["5m"], written_1h=written["1h"])
        return Visit(tokens, writes)

    def keep(self, visit: Visit) -> None:
        """Make what an answered request wrote readable."""
        for prefix, entry in visit.writes.items():
            self._entries.pop(prefix, None)
            self._entries[prefix] = entry
        while len(self._entries) > ENTRIES_MAX:
            self._entries.pop(next(iter(self._entries)))

    def _longest(self, hashes: Sequence[bytes], marks: Sequence[int], now_s: float) -> int | None:
        """Return the last block of the longest prefix that can be read; None if there is none."""
        for mark in reversed(marks):
            for index in range(mark, max(-1, mark - LOOKBACK), -1):
                entry = self._entries.get(hashes[index])
                if entry is not None and entry.end_s > now_s:
                    return index
        return None

    def _renew(self, prefix: bytes, now_s: float) -> None:
        entry = self._entries[prefix]
        self._entries[prefix] = evolve(entry, end_s=now_s + entry.lifetime_s)


def _prefixes(model: str, places: Sequence[Place]) -> tuple[list[bytes], list[int]]:
    """Return, for each block, the hash of the prefix that ends there and its tokens."""
    hashes: list[bytes] = []
    ends: list[int] = []
    running, size = sha256(model.encode()), 0
    for place in places:
        running.update(b"%d:%b" % (len(place.raw), place.raw))
        size += len(place.raw)
        hashes.append(running.digest())
        ends.append(size // CHARS_PER_TOKEN)
    return hashes, ends


def _place(where: str, begins: str, block: Mapping[str, Any]) -> Place:
    bare = {name: value for name, value in block.items() if name != MARK}
    mark = block.get(MARK)
    is_blank = block.get("type") == "text" and not str(block.get("text") or "").strip()
    return Place(
        where=where,
        raw=begins.encode() + orjson.dumps(bare, option=orjson.OPT_SORT_KEYS),
        ttl=None if mark is None else ttl_of(mark),
        takes_mark=block.get("type") not in _UNMARKABLE and not is_blank,
    )


def _blocks(content: Any) -> Sequence[Mapping[str, Any]]:
    """Return content as blocks: text alone is one of them."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
