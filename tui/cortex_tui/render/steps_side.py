"""The newest steps of a job beside a list, one line each, the last one at the bottom."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.safe import safe
from cortex.view.cells import Cell, fit
from cortex_tui.model.waterfall import WaterfallRow
from cortex_tui.render.labelled import Line
from cortex_tui.render.table import fit as filled
from cortex_tui.render.waterfall import TOOK, name_of
from cortex_tui.render.words import span

NONE: Final = "no step is recorded yet"


def steps_lines(rows: Sequence[WaterfallRow], now: datetime, width: int) -> Iterator[Line]:
    """Yield each row with its duration; an error follows its name."""
    if not rows:
        yield (Cell(fit(NONE, width), "dim"),)
        return
    number = max((len(str(row.number)) for row in rows if row.number is not None), default=1)
    room = max(1, width - number - 1 - 1 - TOOK)
    for row in rows:
        place = "" if row.number is None else str(row.number)
        note = f" · {row.note}" if row.note else ""
        took = "" if row.is_mark else span(((row.ended or now) - row.began).total_seconds())
        yield (
            Cell(filled(place, number, right=True) + " ", "dim"),
            Cell(filled(safe(f"{name_of(row)}{note}"), room), "fail" if row.is_problem else ""),
            Cell(" " + filled(took, TOOK, right=True), "" if row.ended else "run"),
        )
