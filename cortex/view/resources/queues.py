"""Worker queues: what waits in each, and whether it is paused."""

from collections.abc import Sequence
from typing import Final, Literal

from cortex.domain.safe import safe
from cortex.store.queues import COUNTED_MAX, QueueRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age
from cortex.view.queues import pause_text, queue_shown
from cortex.view.resource import Field, Resource, on_demand

LATE_S: Final = 60.0
"""A ready task that waits longer is highlighted."""


def _state(row: QueueRow) -> Literal["open", "paused"]:
    return "open" if row.paused_at is None else "paused"


def _state_cell(row: QueueRow) -> Cell:
    if row.paused_at is None:
        return Cell("● open, strict" if row.is_strict else "● open", "done")
    return Cell(safe(f"◆ {pause_text(row, row.now)}"), "warn")


def _count(row: QueueRow, count: int) -> Cell:
    more = "+" if row.is_capped and count >= COUNTED_MAX else ""
    return Cell(f"{count:,}{more}", "" if count else "dim")


def _oldest(row: QueueRow) -> Cell:
    oldest_s = row.oldest_ready_s
    if oldest_s is None:
        return Cell(NOTHING, "dim")
    return Cell(age(oldest_s), "warn" if oldest_s > LATE_S else "")


# The name is never shortened: people type it.
FIELDS: Final[Sequence[Field[QueueRow]]] = (
    Field(
        name="queue",
        doc="of jobs without a queue: `default`, in the HTTP API null",
        value=lambda r: queue_shown(r.queue),
        kind=str | None,
        shown=lambda r: Cell(safe(queue_shown(r.queue)), "bold"),
    ),
    Field(name="state", value=_state, shown=_state_cell, least=16),
    Field(
        name="ready",
        doc=f"this and the next two are counted up to {COUNTED_MAX:,}",
        shown=lambda r: _count(r, r.ready),
        is_right=True,
    ),
    Field(name="running", shown=lambda r: _count(r, r.running), is_right=True),
    Field(
        name="later",
        doc="due in the future",
        title="due later",
        shown=lambda r: _count(r, r.later),
        is_right=True,
    ),
    Field(
        name="oldest_ready_s",
        doc="how long the first task has been ready",
        title="oldest ready",
        shown=_oldest,
        is_right=True,
    ),
    *on_demand("paused_by", "paused_at"),
    *on_demand(
        is_strict="its next job begins only when the one before has ended",
        reason="why it is paused",
        is_capped="one of the counts ended there",
    ),
)

QUEUES: Final = Resource(
    name="Queue",
    noun="queues",
    doc="A worker queue, and what waits in it.",
    row=QueueRow,
    fields=FIELDS,
    unlisted=frozenset({"now"}),
)
