"""`cortex runners`: background work, its last runs and its health."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, age, since_s, span
from cortex.domain.safe import safe
from cortex.store.background import runners as store
from cortex.store.background.runners import RunnerRow
from cortex.view.cells import Cell, count_cell
from cortex.view.resource import Field, on_demand
from cortex.view.runners import state_cell

runners = Group(
    "runners",
    help=(
        "List background work.\n\nEach runner does one thing for the whole system, such as "
        "resuming due retries. Pods run them in loops; `cortex tick` runs each once."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.runners:ls", "List runners and their last runs.")},
    },
)


@click.command(cls=Command)
@click.pass_obj
def ls(options: Options) -> None:
    """List runners by name: the last run in any process, and totals.

    A runner is late when it has not succeeded for five of its intervals.
    """
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(store.page)
    empty = "no runner has run yet: cortex up, or cortex tick"
    output.listing("runners", COLUMNS, rows, empty=empty)


def _ago(row: RunnerRow, at: datetime | None) -> Cell:
    return Cell(NOTHING, "dim") if at is None else Cell(age(since_s(row, at)))


def _time(row: RunnerRow) -> Cell:
    return Cell(NOTHING, "dim") if row.duration_s is None else Cell(span(row.duration_s))


def _items(row: RunnerRow) -> Cell:
    if row.items is None:
        return Cell(NOTHING, "dim")
    return Cell(f"{row.items:,}", "" if row.items else "dim")


def _state(row: RunnerRow) -> str:
    if row.is_late:
        return "late"
    if row.error is not None:
        return "failed"
    return "skipped" if row.started_at is None else "ok"


COLUMNS: Final[Sequence[Field[RunnerRow]]] = (
    Field(name="name", title="runner", shown=lambda r: Cell(safe(r.name), "bold")),
    Field(name="state", value=_state, shown=state_cell),
    Field(name="started_at", title="last", shown=lambda r: _ago(r, r.started_at), is_right=True),
    Field(name="items", shown=_items, is_right=True),
    Field(name="duration_s", title="time", shown=_time, is_right=True),
    Field(
        name="succeeded_at",
        title="success",
        shown=lambda r: _ago(r, r.succeeded_at),
        is_right=True,
        is_spare=True,
    ),
    Field(name="run_count", title="runs", shown=lambda r: count_cell(r.run_count), is_right=True),
    Field(
        name="item_count",
        title="all items",
        shown=lambda r: count_cell(r.item_count),
        is_right=True,
    ),
    Field(
        name="error_count",
        title="errors",
        shown=lambda r: count_cell(r.error_count, "warn"),
        is_right=True,
    ),
    Field(
        name="skip_count",
        title="skipped",
        shown=lambda r: count_cell(r.skip_count),
        is_right=True,
        is_spare=True,
    ),
    Field(name="holder", shown=lambda r: Cell(safe(r.holder or NOTHING), "dim"), is_spare=True),
    Field(name="error", shown=lambda r: Cell(safe(r.error or ""), "fail"), least=12),
    *on_demand("interval_s", "first_at", "busy_s", "is_late"),
)
