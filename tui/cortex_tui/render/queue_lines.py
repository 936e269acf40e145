"""The queues at a glance: running and waiting jobs in each, the worst first."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.safe import safe
from cortex.store.queues import COUNTED_MAX, QueueRow
from cortex.view.cells import Cell, bar
from cortex.view.phrases import age
from cortex.view.queues import pause_text, queue_shown
from cortex_tui.render.table import fit

LATE_S: Final = 60.0
"""A job that has been ready for longer is coloured."""
SHOWN_MAX: Final = 8
_WIDE: Final = 110
_NARROW_CELLS: Final = (14, 10)
_WIDE_CELLS: Final = (24, 24)
"""For the name, and for the gauge."""


def queue_lines(
    queues: Sequence[QueueRow] | None, now: datetime, width: int, *, lines_max: int
) -> Iterator[tuple[Cell, ...]]:
    """Yield one line per queue, and a line that counts the rest."""
    if queues is None:
        yield (Cell("queues   reading …", "dim"),)
        return
    ranked = sorted(queues, key=_rank)
    most = max(1, min(lines_max, SHOWN_MAX))
    shown = ranked if len(ranked) <= most else ranked[: most - 1]
    for row in shown:
        yield _line(row, now, width)
    if more := len(ranked) - len(shown):
        others = f"and {more} more, 4 shows them" if shown else f"{more} queues, 4 shows them"
        held = sum(row.paused_at is not None for row in ranked[len(shown) :])
        yield (Cell(fit(f"{others}{f' · {held} paused' if held else ''}", width), "dim"),)


def _rank(row: QueueRow) -> tuple[object, ...]:
    """Sort by urgency: blocked queues first, then those with the longest wait."""
    is_held = row.paused_at is not None and (row.ready or row.later)
    late_s = row.oldest_ready_s or 0.0
    # Whole minutes: otherwise lines would change places at each poll.
    return not is_held, row.paused_at is None, -int(late_s // LATE_S), queue_shown(row.queue)


def _line(row: QueueRow, now: datetime, width: int) -> tuple[Cell, ...]:
    name_cells, gauge_cells = _WIDE_CELLS if width >= _WIDE else _NARROW_CELLS
    is_paused, late_s = row.paused_at is not None, row.oldest_ready_s
    is_late = late_s is not None and late_s > LATE_S
    total = row.running + row.ready
    gauge = bar(row.running, total, gauge_cells) if total else " " * gauge_cells
    parts = [f"{_count(row.running)} run", f"{_count(row.ready)} ready"]
    if late_s is not None:
        parts.append(f"oldest {age(late_s)}")
    text = " · ".join(parts)
    if is_paused:
        text = f"{pause_text(row, now)} · {text}"
    room = max(0, width - name_cells - gauge_cells - 2)
    return (
        Cell(fit(safe(queue_shown(row.queue)), name_cells), "bold"),
        Cell(gauge, "warn" if is_paused or is_late else "run"),
        Cell("  "),
        Cell(fit(safe(text), room), "warn" if is_paused or is_late else "" if total else "dim"),
    )


def _count(number: int) -> str:
    return f"{number:,}{'+' if number >= COUNTED_MAX else ''}"
