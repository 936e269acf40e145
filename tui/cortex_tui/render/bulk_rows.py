"""Bulk operations on dead letters in lines, and the letters that one could not settle."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from cortex.domain import bulk_operation
from cortex.domain.bulk_operation import BulkState, BulkVerb
from cortex.domain.phrases import NOTHING, age, short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell, bar
from cortex.view.dead_letters import failed_cell, why_cell
from cortex_tui.backend.protocol import ActRow
from cortex_tui.render.dead_letter_rows import state_cell
from cortex_tui.render.table import Column

BAR_CELLS: Final = 16
LINE_BAR_CELLS: Final = 20
FRESH_S: Final = 600.0
"""How long an operation that is over stays below the errors."""
_MARKS: Final = {
    BulkState.RUNNING: Cell("● run", "run"),
    BulkState.PAUSED: Cell("◆ paused", "warn"),
    BulkState.DONE: Cell("✓ done", "done"),
    BulkState.ENDED: Cell("⊘ ended", "dim"),
}


def is_over(row: ActRow) -> bool:
    """Whether the operation has ended."""
    return BulkState(row["state"]).is_over


def act_words(row: ActRow) -> str:
    """Name a bulk operation in a question; not safe yet."""
    return f"act {row['id']}: {bulk_operation.progress(row)}"


def foremost(rows: Sequence[ActRow]) -> ActRow | None:
    """Return the operation for the line below the errors: a running one first."""
    running = (row for row in rows if row["state"] == BulkState.RUNNING)
    return next(running, rows[0] if rows else None)


def act_line(rows: Sequence[ActRow], now: datetime, *, pause_key: str) -> Cell:
    """Return the line below the errors: the newest running operation, or the last outcome."""
    row = foremost(rows)
    if row is None:
        return Cell("")
    waits = bulk_operation.hold_up(row, now)
    if is_over(row):
        is_fresh = (now - row["ended_at"]).total_seconds() < FRESH_S
        style = "warn" if row["failed_count"] or waits else "done"
        sign = _MARKS[BulkState(row["state"])].text.partition(" ")[0]
        told = f"{sign} {act_words(row)}{f' · {waits}' if waits else ''}"
        return Cell(safe(told), style) if is_fresh else Cell("")
    more = sum(not is_over(each) for each in rows) - 1
    others = f" · {more} more" if more else ""
    progress = bar(bulk_operation.passed(row), row["letter_count"], LINE_BAR_CELLS)
    key = f"{pause_key} {'goes on' if row['state'] == BulkState.PAUSED else 'pauses'}"
    # The key is never truncated: text that people wrote comes last.
    told = f"{progress} {act_words(row)}{others} · {key} · {waits or _pace(row)}"
    return Cell(safe(told), "warn" if waits else "accent")


def _pace(row: ActRow) -> str:
    """Return the least time that it takes."""
    left_s = bulk_operation.left(row) / row["rate_per_s"]
    return f"{row['rate_per_s']:g}/s, {age(left_s) if left_s >= 1 else '1s'} left"


def _bar(row: ActRow, _: datetime) -> Cell:
    text = bar(bulk_operation.passed(row), row["letter_count"], BAR_CELLS)
    return Cell(text, "dim" if is_over(row) else "accent")


def _count_of(name: str) -> Callable[[ActRow, datetime], Cell]:
    return lambda row, _: Cell(f"{row[name]:,}")


def mark_of(row: ActRow) -> Cell:
    """Return the glyph and word for an operation's state."""
    return _MARKS[BulkState(row["state"])]


ACT_COLUMNS: Final[Sequence[Column[ActRow]]] = (
    Column(title="act", width=5, cell=lambda row, _: Cell(str(row["id"]), "bold"), is_right=True),
    Column(title="what", width=7, cell=lambda row, _: Cell(BulkVerb(row["verb"]).value.lower())),
    Column(title="state", width=8, cell=lambda row, _: mark_of(row)),
    Column(title="", width=BAR_CELLS, cell=_bar, spare=2),
    Column(title="letters", width=7, cell=_count_of("letter_count"), is_right=True),
    Column(title="done", width=7, cell=_count_of("done_count"), is_right=True),
    Column(title="not", width=6, cell=lambda row, _: failed_cell(row), is_right=True),
    Column(title="why", width=16, cell=why_cell, grows=True),
    Column(
        title="age",
        width=4,
        cell=lambda row, now: Cell(age((now - row["created_at"]).total_seconds()), "dim"),
        is_right=True,
    ),
)

FAILURE_COLUMNS: Final[Sequence[Column[ActRow]]] = (
    Column(title="id", width=7, cell=lambda row, _: Cell(short_id(row["job_id"]), "bold")),
    Column(title="now", width=11, cell=lambda row, _: state_cell(row["state"])),
    Column(title="agent", width=14, cell=lambda row, _: _what(row), spare=1),
    Column(title="code", width=14, cell=lambda row, _: Cell(safe(row["error_code"]), "fail")),
    Column(title="why not", width=24, cell=lambda row, _: Cell(safe(row["error"])), grows=True),
)


def _what(row: ActRow) -> Cell:
    if row["agent"]:
        return Cell(safe(row["agent"]))
    return Cell(safe(row["type"] or NOTHING), "dim")
