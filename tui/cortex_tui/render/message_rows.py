"""Messages of the outbox on one line each, and everything about the one under the cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, cast

import attrs

from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.background.outbox import MessageHead, MessageRow
from cortex.view.cells import Cell
from cortex.view.messages import NOBODY, attempts_text, message_state
from cortex.view.phrases import date_time
from cortex.view.resource import Shape
from cortex.view.resources.messages import MESSAGES
from cortex_tui.render.documents import document_text
from cortex_tui.render.labelled import Line, labelled, text_lines, titled
from cortex_tui.render.table import Column, column, fit

STATE_CELLS: Final = 14
PAYLOAD_CHARS_MAX: Final = 20_000
"""Drawn of one message; the whole one is in the editor."""


def message_words(row: MessageHead) -> str:
    """Name a message in a question; not safe yet."""
    return f"{row.topic} {short_id(row.id)} to {row.subscription or NOBODY}"


def page_head(row: MessageHead) -> Cell:
    return Cell(safe(f"{short_id(row.id)} · {row.topic}"), "bold")


def page_lines(
    row: MessageHead, rows: Sequence[MessageRow] | None, now: datetime, room: int
) -> Iterator[Line]:
    """Yield what is known of a message, in lines of `room` cells. `rows`: None until read."""
    state = message_state(attrs.evolve(row, now=now))
    channel = f" by {row.channel}" if row.channel else ""
    yield from labelled("to", f"{row.subscription or NOBODY}{channel}", room)
    if row.escalated_from:
        yield from labelled("instead of", f"{row.escalated_from}, which could not be reached", room)
    yield from labelled("state", f"{state.text}, {attempts_text(row)}", room, state.style)
    yield from labelled("pod", row.pod or "", room)
    yield from labelled("key", row.key or "", room)
    if row.tenant != "default":
        yield from labelled("tenant", row.tenant, room)
    yield from labelled("published", date_time(row.created_at), room)
    yield from labelled("error", row.last_error or "", room, "fail")
    if rows is None:
        yield from titled("reading …")
        return
    for each in rows[:1]:
        if each.headers:
            yield from titled("headers")
            yield from text_lines(document_text(each.headers), room)
        yield from titled("payload")
        text = document_text(each.payload)
        yield from text_lines(text[:PAYLOAD_CHARS_MAX], room)
        if len(text) > PAYLOAD_CHARS_MAX:
            yield (Cell(f"… {len(text) - PAYLOAD_CHARS_MAX:,} more characters: e", "dim"),)
    if others := [each for each in rows if each.seq != row.seq]:
        yield from titled("also to")
        for each in others:
            cell = message_state(attrs.evolve(each, now=now))
            name = fit(safe(each.subscription or NOBODY), max(1, room - STATE_CELLS - 2))
            yield Cell(cell.text.ljust(STATE_CELLS + 2), cell.style), Cell(name.rstrip(" "))


_HEADS: Final = cast("Shape[MessageHead]", MESSAGES)
"""The columns show nothing of a message's content."""

MESSAGE_COLUMNS: Final[Sequence[Column[MessageHead]]] = (
    column(_HEADS, "id", title="id", width=7),
    column(_HEADS, "status", title="state", width=STATE_CELLS),
    column(_HEADS, "topic", width=18, is_fixed=True),
    column(_HEADS, "subscription", title="to", width=18, is_fixed=True),
    column(_HEADS, "attempts", width=5),
    column(_HEADS, "created_at", title="age", width=4),
    column(_HEADS, "last_error", title="last error", width=16, grows=True, spare=1),
)
