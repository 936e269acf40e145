"""The waterfall of a job: one line per row, with a bar on a time axis that zooms and follows.

Pure: rows and an axis in, cells out. Eighths of a cell give short bars their true length.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs
from rich.cells import cell_len

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import money
from cortex.view.steps import step_label
from cortex.view.waterfall import Look, bar_text, lead_of
from cortex_tui.model.waterfall import WaterfallRow
from cortex_tui.render.table import GUTTER, fit
from cortex_tui.render.words import countdown, span, tokens

BAR_MIN: Final = 8
NAME_MIN: Final = 10
NAME_MAX: Final = 28
TOOK: Final = 6
TOKENS: Final = 11
COST: Final = 8
TICK_CELLS: Final = 10
"""The least room for a label of the axis."""
ZOOM_MAX: Final = 20
SHORTEST_S: Final = 0.001
STEPS: Final = 8
"""The axis of running work grows in steps of this fraction, so as not to move each second."""

_TICKS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300),
    *(600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800, 2_592_000),
)


@attrs.frozen(kw_only=True)
class Axis:
    """The visible part of a job's time."""

    zero: datetime
    """The origin of the labels."""
    start: datetime
    length_s: float

    def at(self, instant: datetime, cells: int) -> float:
        """Return the position of an instant in cells; it may be out of sight."""
        return (instant - self.start).total_seconds() / self.length_s * cells

    def ticks(self, cells: int) -> str:
        """Return the labels: 0s, 5s, 10s and so on."""
        fewest_s = self.length_s * TICK_CELLS / cells
        step_s = next((tick for tick in _TICKS_S if tick >= fewest_s), self.length_s)
        since_s = (self.start - self.zero).total_seconds()
        number = max(0, -int(-since_s // step_s))
        line = ""
        while (place := round((number * step_s - since_s) / self.length_s * cells)) < cells:
            label = _tick(number * step_s)
            if len(line) <= max(0, place) and place + len(label) <= cells:
                line = line.ljust(place) + label
            number += 1
        return line.ljust(cells)


@attrs.frozen(kw_only=True)
class Zoom:
    """How much of the time is visible, and whether the axis ends now."""

    level: int = 0
    """Each level halves the visible time; 0 shows all of it."""
    follows: bool = True

    def by(self, levels: int) -> "Zoom":
        """Return the zoom, closer or farther by some levels."""
        return attrs.evolve(self, level=max(0, min(ZOOM_MAX, self.level + levels)))


def axis_of(
    rows: Sequence[WaterfallRow],
    zoom: Zoom,
    *,
    now: datetime,
    on: WaterfallRow | None,
    zero: datetime | None = None,
) -> Axis:
    """Return the visible axis for rows; `now` is the end of unfinished rows.

    Labels count from `zero`, or from the first row. If zoomed in and not following, the axis is the
    time around the row `on`.
    """
    start = min((row.began for row in rows), default=now)
    end = max((row.ended or now for row in rows), default=now)
    since_s = max(SHORTEST_S, (end - start).total_seconds())
    goes_on = any(row.ended is None for row in rows)
    whole_s = reach_s = since_s
    if goes_on:
        whole_s = _reach_s(since_s, 2.0 ** math.floor(math.log2(since_s / STEPS)))
    length_s = max(SHORTEST_S, whole_s / 2**zoom.level)
    if goes_on:
        reach_s = _reach_s(since_s, length_s / STEPS)
    latest = max(start, start + timedelta(seconds=reach_s - length_s))
    if not zoom.level:
        first = start
    elif zoom.follows or on is None:
        first = latest
    else:
        middle_s = ((on.ended or now) - on.began).total_seconds() / 2
        lead_s = min(middle_s, length_s / 2 - length_s / 8)
        first = on.began + timedelta(seconds=lead_s - length_s / 2 + length_s / 8)
        first = max(start, min(first, latest))
    return Axis(zero=zero or start, start=first, length_s=length_s)


def _reach_s(since_s: float, step_s: float) -> float:
    """Return the next full step."""
    return math.ceil(since_s / step_s) * step_s


@attrs.frozen(kw_only=True)
class Room:
    """The division of a line's width; figures leave first as it narrows."""

    number: int
    name: int
    bar: int
    has_tokens: bool
    has_cost: bool


def room_of(rows: Sequence[WaterfallRow], width: int) -> Room:
    """Divide the width by what the rows need."""
    number = max((len(str(row.number)) for row in rows if row.number is not None), default=1)
    longest = max((cell_len(safe(name_of(row))) for row in rows), default=NAME_MIN)
    name = max(NAME_MIN, min(longest, NAME_MAX, width // 3))
    bar = width - GUTTER - number - 1 - name - 1 - TOOK - 2
    has_tokens = any(row.tokens for row in rows) and bar - TOKENS - 1 >= 2 * BAR_MIN
    bar -= (TOKENS + 1) * has_tokens
    has_cost = any(row.cost is not None for row in rows) and bar - COST - 1 >= 3 * BAR_MIN
    bar -= (COST + 1) * has_cost
    return Room(number=number, name=name, bar=max(1, bar), has_tokens=has_tokens, has_cost=has_cost)


def head_cells(room: Room, axis: Axis) -> Iterator[Cell]:
    """Yield the line of titles."""
    yield Cell(" " * (room.number + 1) + fit("step", room.name) + " ", "dim")
    yield Cell(axis.ticks(room.bar), "dim")
    yield Cell(" " + fit("took", TOOK, right=True), "dim")
    if room.has_tokens:
        yield Cell(" " + fit("tokens", TOKENS, right=True), "dim")
    if room.has_cost:
        yield Cell(" " + fit("cost", COST, right=True), "dim")


def row_cells(row: WaterfallRow, room: Room, axis: Axis, now: datetime) -> Iterator[Cell]:
    """Yield the line of a row, in pieces of one style each."""
    number = "" if row.number is None else str(row.number)
    yield Cell(fit(number, room.number, right=True) + " ", "dim")
    style = "fail" if row.is_problem and row.kind != "attempt" else ""
    yield Cell(fit(safe(name_of(row)), room.name) + " ", row.style if row.is_mark else style)
    yield from bar_cells(row, axis, now, room.bar)
    took = "" if row.is_mark else span(((row.ended or now) - row.began).total_seconds())
    yield Cell(" " + fit(took, TOOK, right=True), "" if row.ended else "run")
    if room.has_tokens:
        used = "" if row.tokens is None else tokens(*row.tokens)
        yield Cell(" " + fit(used, TOKENS, right=True), "dim")
    if room.has_cost:
        cost = "" if row.cost is None else money(row.cost)
        yield Cell(" " + fit(cost, COST, right=True), "dim")


def bar_cells(row: WaterfallRow, axis: Axis, now: datetime, cells: int) -> Iterator[Cell]:
    """Yield a bar of an exact width: the lead, the bar, and the text beside it."""
    begin = axis.at(row.began, cells)
    end = axis.at(row.ended or now, cells)
    if end < 0:
        yield Cell("◂" + " " * (cells - 1), "line")
        return
    if begin > cells:
        yield Cell("─" * (cells - 1) + "▸", "line")
        return
    first = lead_of(begin, cells)
    bar = row.sign if row.is_mark else bar_text(begin, end, cells, _look(row))
    yield Cell((" " if row.is_mark else "─") * first, "line")
    yield Cell(bar, row.style)
    left = cells - first - cell_len(bar)
    note = safe(row.note)
    if note and left >= cell_len(note) + 1:
        yield Cell(" " + fit(note, left - 1), "fail" if row.is_problem else "dim")
    else:
        yield Cell(" " * left)


def _look(row: WaterfallRow) -> Look:
    if row.is_wait:
        return Look.WAIT
    return Look.RUNNING if row.ended is None else Look.DONE


def name_of(row: WaterfallRow) -> str:
    """Return the name of a row, indented below its parent; not safe yet."""
    name = step_label(row.name)
    if row.kind == "running":
        return name or "running"
    if row.hidden is None:
        return "  " * row.depth + name
    return f"▸ {name} +{row.hidden}" if row.hidden else f"▾ {name}"


def _tick(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:g}ms" if seconds else "0s"
    for unit, each_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= each_s:
            is_round = seconds % each_s in (0, each_s / 2)
            return f"{seconds / each_s:g}{unit}" if is_round else countdown(seconds)
    return f"{seconds:g}s"
