"""What is new for a person while the terminal is not in front: requests, and what went wrong."""

from collections.abc import Hashable, Iterator
from typing import Final

import attrs

from cortex.domain.known_tool import trust_words
from cortex.store.pulse import ATTENTION_MAX, Attention, Need

LOW: Final = "LOW"
_TROUBLES: Final = {
    "breaker": "breaker {} is open",
    "pod": "pod {} is dead or silent",
    "runner": "runner {} is late",
}


@attrs.frozen
class NewsItem:
    """One thing that a person may have to look at."""

    text: str
    """Not safe yet."""
    is_request: bool = False
    """A request for approval, for which the bell has rung."""


class News:
    """Compares what needs a person with what did when the terminal was left."""

    def __init__(self) -> None:
        self._seen: set[Hashable] | None = None
        self._request_count = 0

    def forget(self) -> None:
        """Start again: the next reading is what the operator has seen."""
        self._seen = None

    def take(self, attention: Attention, *, request_count: int) -> list[NewsItem]:
        """Return what is new, each thing once. `request_count`: open requests of every risk."""
        found = dict(_items(attention))
        seen, before = self._seen, self._request_count
        self._seen, self._request_count = {*found, *(seen or ())}, request_count
        if seen is None:
            return []
        fresh = [item for key, item in found.items() if key not in seen]
        shown = sum(need.kind == "approval" for need in attention.needs)
        is_full = shown >= ATTENTION_MAX
        if is_full and request_count > before and not any(item.is_request for item in fresh):
            fresh.append(NewsItem(f"{request_count} requests wait for approval", is_request=True))
        return fresh


def _items(attention: Attention) -> Iterator[tuple[Hashable, NewsItem]]:
    for need in attention.needs:
        if (found := _of_need(need)) is not None:
            yield found
    for trouble in attention.troubles:
        text = _TROUBLES[trouble.kind].format(trouble.name)
        yield (trouble.kind, trouble.name), NewsItem(text)


def _of_need(need: Need) -> tuple[Hashable, NewsItem] | None:  # noqa: PLR0911 -- a table
    kind, _, name = need.word.partition(":")
    match need.kind, kind:
        case "approval", risk:
            if risk == LOW:
                return None
            return need.id, NewsItem(f"{need.name} waits for approval ({risk})", is_request=True)
        case "effect", _:
            return need.id, NewsItem(f"nobody knows whether {need.name} was applied")
        case _, "budget":
            return need.word, NewsItem(f"budget {name} is spent")
        case _, "person":
            return need.word, NewsItem(f"{name} needs a person")
        case _, "trust":
            return need.word, NewsItem(trust_words(name))
        case _:
            return None


def headline(items: list[NewsItem]) -> str:
    """Return the items in one line; not safe yet."""
    more = len(items) - 1
    return items[0].text + (f", and {more} more" if more else "")
