"""Jobs in columns."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.phrases import NOTHING, age, money, short_id, since_s, span
from cortex.domain.safe import safe
from cortex.store.jobs import JobRow
from cortex.view.cells import Cell
from cortex.view.jobs import remark, state_cell, took_s
from cortex.view.resource import Field, on_demand
from cortex.view.steps import numbered_step


def _step_cell(row: JobRow) -> Cell:
    head = row.checkpoint
    if not head.get("seq"):
        return Cell(NOTHING, "dim")
    return Cell(safe(numbered_step(head["seq"], head["key"])))


def _cost_usd(row: JobRow) -> float | None:
    cost = row.checkpoint.get("cost_usd")
    return None if cost is None else float(cost)


def _took_cell(row: JobRow) -> Cell:
    seconds = took_s(row)
    return Cell(NOTHING, "dim") if seconds is None else Cell(span(seconds))


JOB_COLUMNS: Final[Sequence[Field[JobRow]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="type", least=10),
    Field(name="agent", least=10, is_spare=True),
    Field(name="status", title="state", value=lambda r: r.status, shown=state_cell),
    Field(
        name="step",
        value=lambda r: r.checkpoint.get("seq"),
        shown=_step_cell,
        least=12,
        is_spare=True,
    ),
    Field(name="attempt", title="att", is_right=True, is_spare=True),
    Field(
        name="cost_usd",
        title="cost",
        value=_cost_usd,
        shown=lambda r: Cell(money(_cost_usd(r))),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="created_at",
        title="age",
        shown=lambda r: Cell(age(since_s(r, r.created_at))),
        is_right=True,
    ),
    Field(
        name="took_s", title="took", value=took_s, shown=_took_cell, is_right=True, is_spare=True
    ),
    Field(name="pod", least=10, is_spare=True),
    Field(
        name="remark",
        title="why / next",
        value=remark,
        shown=lambda r: Cell(safe(remark(r)), "fail" if r.error_message else "dim"),
        least=20,
        is_for_people=True,
    ),
    Field(name="step_key", value=lambda r: r.checkpoint.get("key"), is_default=False),
    *on_demand("retry_count", "max_retries", "run_at", "started_at", "finished_at"),
    *on_demand("next_retry_at", "heartbeat_at", "cancel_requested_at", "cancelled_by"),
    *on_demand("error_message"),
)
