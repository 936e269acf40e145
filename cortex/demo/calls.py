"""The log of the calls that a scripted server took: tests count them and benches measure them."""

from collections import deque
from typing import Any

import trio
from attrs import asdict, define, evolve

from cortex.demo.script import Call

PROMPT_CHARS = 80  # enough to recognise a conversation
LOG_CALLS_MAX = 100_000  # older entries fall out; the numbering of calls survives


@define(kw_only=True)
class Entry:
    """One call. Times are seconds since the server started; connections are counted from 1.

    `prompt` is the beginning of the conversation's first message; `number` counts the calls of this
    turn, `ordinal` all calls of the server.

    `outcome`: open (being answered), answered (to its end), refused (an HTTP error), broken (by the
    script), disconnected (the client left first). `status` is the HTTP status that was sent, None
    for none; `rule` is the matching rule of the fault file.
    """

    conversation: str
    prompt: str
    turn: int
    number: int
    ordinal: int
    model: str
    connection: int
    started_s: float
    ended_s: float | None = None
    outcome: str = "open"
    status: int | None = None
    rule: str | None = None
    chunk_count: int = 0


class CallLog:
    """Every call, in order of arrival, and the number of requests for each turn."""

    def __init__(self) -> None:
        self._began = trio.current_time()
        self._entries: deque[Entry] = deque(maxlen=LOG_CALLS_MAX)
        self._request_counts: dict[tuple[str, int, bool], int] = {}
        self._open: dict[int, Entry] = {}
        self._count = 0
        self._connection_count = 0

    def connected(self) -> int:
        """Return the number of a new connection."""
        self._connection_count += 1
        return self._connection_count

    def number(self, call: Call) -> Call:
        """Count a call; return it with its numbers in its turn and on the server."""
        turn = (call.conversation, call.turn, call.asks_for_summary)
        self._count += 1
        self._request_counts[turn] = self._request_counts.pop(turn, 0) + 1
        if len(self._request_counts) > LOG_CALLS_MAX:
            self._request_counts.pop(next(iter(self._request_counts)))
        number = self._request_counts[turn]
        return evolve(call, number=number, ordinal=self._count, at_s=self._now_s())

    def open(self, call: Call, connection: int) -> Entry:
        """Record that a call arrived, once it is numbered."""
        entry = Entry(
            conversation=call.conversation,
            prompt=call.user_text(0)[:PROMPT_CHARS],
            turn=call.turn,
            number=call.number,
            ordinal=call.ordinal,
            model=call.model,
            connection=connection,
            started_s=call.at_s,
        )
        self._entries.append(entry)
        self._open[call.ordinal] = entry
        return entry

    def close(self, entry: Entry, outcome: str) -> None:
        """Record how a call ended."""
        entry.outcome = outcome
        self._open.pop(entry.ordinal, None)
        entry.ended_s = self._now_s()

    def as_json(self) -> dict[str, Any]:
        """The body of GET /calls."""
        return {"count": self._count, "calls": [asdict(entry) for entry in self._entries]}

    def open_as_json(self) -> dict[str, Any]:
        """The body of GET /calls/open."""
        return {"count": len(self._open), "calls": [asdict(each) for each in self._open.values()]}

    def _now_s(self) -> float:
        return round(trio.current_time() - self._began, 6)
