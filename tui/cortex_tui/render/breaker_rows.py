"""Circuit breakers on one line each, and the details of the one under the cursor."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cortex.domain.breaker import BreakerState, Past, is_calm, openings
from cortex.domain.safe import safe
from cortex.store.breakers import BreakerRow
from cortex.view.breakers import BARS, strip
from cortex.view.cells import Cell
from cortex.view.effects import held_text
from cortex.view.phrases import NOTHING, TODAY, age, date_time, day_time
from cortex.view.resources.breakers import BREAKERS
from cortex_tui.render.approval_page import wrapped
from cortex_tui.render.table import Column, column, fit
from cortex_tui.render.words import countdown

NONE: Final = Cell(NOTHING, "dim")


def order_of(row: BreakerRow) -> tuple[object, ...]:
    """Sort by state, then by name, so that counting a failure moves no row."""
    return row.state == BreakerState.CLOSED, row.failures == 0, row.name


def is_closed(row: BreakerRow) -> bool:
    """Whether calls pass."""
    return bool(row.state == BreakerState.CLOSED)


def page_lines(row: BreakerRow, now: datetime, room: int) -> list[tuple[Cell, ...]]:
    """Return the details of a breaker, in lines of `room` cells."""
    entries: list[tuple[str, str]] = []
    if row.opened_at is not None:
        count = BREAKERS.field("waiting").cell(row).text
        waits = "1 job waits" if row.waiting == 1 else f"{count} jobs wait"
        entries.append((f"open since {day_time(row.opened_at)} · {waits} for it", ""))
    if row.forced_by is not None:
        is_over = row.open_until is not None and row.open_until <= now
        began = ""
        if row.forced_at is not None and not is_over:
            began = f", begun {_ago(row.forced_at, now)}"
        entries.append((f"{held_text(row, now)}{began}", "warn"))
    if row.escalated_at is not None:
        entries.append((f"a person was asked {_ago(row.escalated_at, now)}", "warn"))
    if row.past is not None:
        calm = is_calm(row.state, row.past)
        entries.append((_last_hour_text(row, row.past, now), "dim" if calm else ""))
    first, *others = _errors(row, now)
    entries += [(first, "" if row.opened_at else "dim")] if first else []
    lines = [(line, style) for text, style in entries for line in wrapped(safe(text), room)]
    lines += [(fit(safe(text), room).rstrip(), "dim") for text in others]
    return [(Cell(line, style),) for line, style in lines]


def page_head(row: BreakerRow) -> Cell:
    """Return the full name."""
    return Cell(safe(row.name), "bold")


def _last_hour_text(row: BreakerRow, past: Past, now: datetime) -> str:
    opened = openings(past)
    times = "once" if opened == 1 else f"{opened} times"
    return f"last hour  {strip(row.state, past, now)}" + (f"  opened {times}" if opened else "")


def _errors(row: BreakerRow, now: datetime) -> list[str]:
    """Return the last errors, the newest first; [""] if there was none. Not safe yet."""
    entries = [
        f"{_when(error.at, now)}: {error.code}: {error.message}"
        for error in (() if row.past is None else row.past.errors)
    ]
    if not entries:
        return [f"last error: {row.last_error}" if row.last_error else ""]
    return [f"last error {entries[0]}", *(f"before that {each}" for each in entries[1:])]


def _when(instant: datetime, now: datetime) -> str:
    return day_time(instant) if now - instant < TODAY else date_time(instant)


def _ago(instant: datetime, now: datetime) -> str:
    ago = age((now - instant).total_seconds())
    return ago if ago == "now" else f"{ago} ago"


def _open_for(row: BreakerRow, now: datetime) -> Cell:
    opened_at = row.opened_at
    return NONE if opened_at is None else Cell(age((now - opened_at).total_seconds()))


def _probe(row: BreakerRow, now: datetime) -> Cell:
    if row.probe_by is not None:
        return Cell(safe(f"by {row.probe_pod or 'a pod'}"), "warn")
    until = row.open_until
    if row.state == BreakerState.CLOSED or (row.forced_by is not None and until is None):
        return NONE
    if row.state == BreakerState.HALF_OPEN or until is None or until <= now:
        return Cell("next job", "warn")
    return Cell(countdown((until - now).total_seconds()))


def _last_hour(row: BreakerRow, now: datetime) -> Cell:
    if row.past is None:
        return Cell("")
    return Cell(strip(row.state, row.past, now), "dim" if is_calm(row.state, row.past) else "")


BREAKER_COLUMNS: Final[Sequence[Column[BreakerRow]]] = (
    column(BREAKERS, "name", width=28),
    column(BREAKERS, "state", width=11),
    column(BREAKERS, "failures", title="fails", width=5),
    Column(title="open", width=5, cell=_open_for, is_right=True),
    Column(title="probe", width=8, cell=_probe, is_right=True),
    column(BREAKERS, "waiting", width=6),
    Column(title="last hour", width=BARS, cell=_last_hour, spare=2),
    column(BREAKERS, "remark", width=12, grows=True, spare=1),
)
"""`fails`: failures in a row, and the number that opens it. `jobs`: those that wait for it.

`last hour`: five minutes per bar, as high as the worst state in them; read after the list.
"""
