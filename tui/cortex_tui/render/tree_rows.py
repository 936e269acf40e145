"""The tree of a job on one line per job, and more about the one under the cursor."""

from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs

from cortex.domain.safe import safe
from cortex.store.children import TreeJob
from cortex.view.cells import Cell
from cortex.view.phrases import date_time
from cortex.view.tree import TreeLine
from cortex_tui.render.labelled import Line, labelled
from cortex_tui.render.table import Column
from cortex_tui.render.words import countdown

BRANCH_CELLS: Final = 3
"""Of each level."""


@attrs.frozen
class TreeRow:
    """A line of a tree."""

    key: Hashable
    line: TreeLine

    @property
    def job(self) -> TreeJob | None:
        """None: the line counts the jobs of its parent that are not shown."""
        return self.line.job


def rows_of(lines: Sequence[TreeLine]) -> list[TreeRow]:
    """Return lines with keys that stay while the tree grows."""
    rows, above = [], dict[int, TreeJob]()
    for line in lines:
        depth = len(line.branch) // BRANCH_CELLS
        if line.job is not None:
            above[depth] = line.job
            rows.append(TreeRow(line.job.id, line))
        else:
            rows.append(TreeRow(("more", above[depth - 1].id), line))
    return rows


def page_head(row: TreeRow) -> Cell:
    job = row.job
    return Cell("folded" if job is None else safe(f"{job.type} · {job.id}"), "bold")


def page_lines(row: TreeRow, now: datetime, room: int) -> Iterator[Line]:
    """Yield what has no column, in lines of `room` cells."""
    job = row.job
    if job is None:
        yield from labelled("others", row.line.name.removeprefix("… "), room)
        yield from labelled("enter", "shows more of them", room, "dim")
        return
    if job.step is not None:
        place = f" · child {job.ordinal + 1:,}" if job.ordinal is not None else ""
        kept = " · detached: it outlives its parent" if job.is_detached else ""
        yield from labelled("step", f"{job.step}{place}{kept}", room)
    if job.created_at is not None:
        yield from labelled("submitted", date_time(job.created_at), room)
    state = row.line.state
    if state is not None:
        took = _time(row, now).text
        yield from labelled("state", state.text + (f" · {took}" if took else ""), room, state.style)
    yield from labelled("error", job.error_message or "", room, "fail")


def _name(row: TreeRow, _: datetime) -> Cell:
    return Cell(safe(f"{row.line.branch}{row.line.name}"), "dim" if row.job is None else "")


def _state(row: TreeRow, _: datetime) -> Cell:
    return row.line.state or Cell("")


def _time(row: TreeRow, now: datetime) -> Cell:
    job = row.job
    if job is None or job.started_at is None or job.finished_at is not None:
        return Cell(row.line.time, "dim")
    return Cell(countdown((now - job.started_at).total_seconds()), "dim")


def _note(row: TreeRow, _: datetime) -> Cell:
    return Cell(safe(row.line.note), "dim")


TREE_COLUMNS: Final[Sequence[Column[TreeRow]]] = (
    Column(title="job", width=30, cell=_name, grows=True),
    Column(title="state", width=18, cell=_state),
    Column(title="time", width=8, cell=_time, is_right=True),
    Column(title="note", width=40, cell=_note, spare=1),
)
