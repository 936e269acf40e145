"""Answers of other APIs as events of the Messages API, of which `ModelAnswer` is made.

So the rules for what a whole answer is, and what a cut one, are written once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from cortex.agent.models.errors import BrokenAnswerError
from cortex.agent.models.events import AnswerDecoder
from cortex.agent.models.usage import as_count

Event = dict[str, Any]
ALIVE: Final[Event] = {"type": "message_delta", "delta": {}}
"""Content that is no part of the answer, such as a summary of thoughts: the model is at work."""


class TranslatingDecoder(ABC):
    """Bytes in, events of the Messages API out; a client says what each event of its API means."""

    def __init__(self, kind: str) -> None:
        self._decoder = AnswerDecoder(kind, document=self._document)
        self._count = 0
        """Blocks so far."""

    @property
    def is_cut(self) -> bool:
        return self._decoder.is_cut

    def feed(self, data: bytes) -> Iterator[Event]:
        for event in self._decoder.feed(data):
            yield from self._checked(event)

    def finish(self) -> Iterator[Event]:
        for event in self._decoder.finish():
            yield from self._checked(event)

    def _checked(self, event: Event) -> Iterator[Event]:
        try:
            yield from self._translated(event)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            message = f"an event of type {event.get('type')!r:.80} is malformed: {error!r:.200}"
            raise BrokenAnswerError("malformed_answer", message) from error

    @abstractmethod
    def _translated(self, event: Event) -> Iterator[Event]: ...

    @abstractmethod
    def _document(self, document: Event) -> Iterator[Event]:
        """Yield the events of an answer that came as one document."""

    def _begin(self, block: Event) -> tuple[int, Event]:
        index, self._count = self._count, self._count + 1
        return index, {"type": "content_block_start", "index": index, "content_block": block}

    def _whole(self, block: Event) -> Iterator[Event]:
        """Yield a block that comes at once."""
        index, begun = self._begin(block)
        yield begun
        yield block_end(index)


def block_end(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def count_of(value: Any) -> int:
    """Return a count of tokens, also one written as text or as 5.0; 0 for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return as_count(value)
