"""Runners: background work, its last runs and its health."""

from collections.abc import Sequence
from typing import Final, Literal

from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.background import runners
from cortex.store.background.runners import RunnerRow
from cortex.view.cells import Cell, count_cell
from cortex.view.phrases import NOTHING, age, since_s
from cortex.view.resource import Field, WholeResource, aged, counted, on_demand


def _state(row: RunnerRow) -> Literal["ok", "failed", "late", "skipped"]:
    if row.is_late:
        return "late"
    if row.error is not None:
        return "failed"
    return "skipped" if row.started_at is None else "ok"


def _state_cell(row: RunnerRow) -> Cell:
    match _state(row):
        case "late":
            return Cell(f"! late {age(since_s(row, row.succeeded_at or row.first_at))}", "fail")
        case "failed":
            return Cell("✗ failed", "warn")
        case "skipped":
            return Cell("○ skipped", "dim")
        case "ok":
            return Cell("● ok", "done")


def _time(row: RunnerRow) -> Cell:
    return Cell(NOTHING, "dim") if row.duration_s is None else Cell(span(row.duration_s))


def _items(row: RunnerRow) -> Cell:
    return Cell(NOTHING, "dim") if row.items is None else count_cell(row.items)


FIELDS: Final[Sequence[Field[RunnerRow]]] = (
    Field(name="name", title="runner", style="bold"),
    Field(
        name="state",
        doc="late: see is_late; failed: its last run; skipped: another process does it",
        value=_state,
        shown=_state_cell,
    ),
    aged("started_at", doc="start of the last run; null: only skipped so far", title="last"),
    Field(name="items", doc="items that it handled", shown=_items, is_right=True),
    Field(
        name="duration_s", doc="how long that run took", title="time", shown=_time, is_right=True
    ),
    aged("succeeded_at", doc="when a run last succeeded", title="success", is_spare=True),
    counted("run_count", title="runs"),
    counted("item_count", title="all items"),
    counted("error_count", title="errors", style="warn"),
    counted(
        "skip_count",
        doc="runs skipped because another process was doing it",
        title="skipped",
        is_spare=True,
    ),
    counted(
        "skipped_in_a_row",
        doc="those since a run was last recorded, by any process",
        title="in a row",
        is_spare=True,
    ),
    Field(
        name="holder",
        doc="the process that ran it",
        shown=lambda r: Cell(safe(r.holder or NOTHING), "dim"),
        is_spare=True,
    ),
    Field(
        name="error",
        doc="why it failed; null: it succeeded",
        shown=lambda r: Cell(safe(r.error or ""), "fail"),
        least=12,
    ),
    *on_demand(
        interval_s="the longest time between two of its runs",
        first_at="when it was recorded first",
        busy_s="time that all runs took",
        is_late="it has not succeeded for five intervals",
    ),
)

RUNNERS: Final = WholeResource(
    name="Runner",
    noun="runners",
    doc="Background work of one kind: its last run in any process, and totals.",
    row=RunnerRow,
    fields=FIELDS,
    empty="no runner has run yet: cortex up, or cortex tick",
    page=runners.page,
    unlisted=frozenset({"now"}),
)
