"""Budgets: limits of money and tokens."""

from decimal import Decimal
from typing import Final
from uuid import UUID

from cortex.domain.budget import NEARLY, Period, worded
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store import budgets
from cortex.store.budgets import BudgetRow
from cortex.view.cells import Cell
from cortex.view.phrases import age, since_s
from cortex.view.resource import Field, NamedResource, on_demand, waiting_cell


def _left(row: BudgetRow) -> Decimal:
    return max(row.limit_amount - row.spent - row.reserved, Decimal(0))


def _amount(row: BudgetRow, amount: Decimal, style: str = "") -> Cell:
    return Cell(worded(amount, row.unit), style if amount else "dim")


def _spent(row: BudgetRow) -> Cell:
    spent, limit = row.spent, row.limit_amount
    if spent >= limit:
        return Cell(worded(spent, row.unit), "fail")
    return _amount(row, spent, "warn" if spent >= NEARLY * limit else "")


def _window(row: BudgetRow) -> Cell:
    if row.period is Period.DAY:
        return Cell("today")
    if row.window_key is None:
        return Cell("each run", "dim")
    return Cell(f"run {short_id(UUID(row.window_key))}")


def _changed(row: BudgetRow) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.changed_at))} by {row.changed_by}"), "dim")


# The name is never shortened: people type it.
FIELDS: Final = (
    Field(name="name", title="budget", style="bold"),
    Field(
        name="limit",
        doc="in the unit",
        value=lambda r: r.limit_amount,
        kind=Decimal,
        shown=lambda r: _amount(r, r.limit_amount),
        is_right=True,
    ),
    Field(name="spent", doc="in the unit", shown=_spent, is_right=True),
    Field(
        name="left",
        doc="what neither is spent nor reserved",
        value=_left,
        shown=lambda r: _amount(r, _left(r)),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="waiting_jobs",
        doc="jobs that wait for room",
        title="waiting",
        shown=lambda r: waiting_cell(r.waiting_jobs),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="reserved",
        doc="for calls that run now",
        shown=lambda r: _amount(r, r.reserved),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="window_key",
        doc="the day, or the run that spent most; null: no call has used it",
        title="of",
        shown=_window,
        is_spare=True,
    ),
    Field(name="changed_at", title="changed", shown=_changed, is_spare=True),
    *on_demand(
        "scope",
        "unit",
        "period",
        "created_at",
        share_of="the job that gave it to its child as a share; null: people set it",
        subject="name of the agent or tenant, or the id of the job",
        changed_by="who set it last: a person, or the job that gave a share",
        reason="why",
    ),
)

BUDGETS: Final = NamedResource(
    name="Budget",
    noun="budgets",
    doc="A limit of money or tokens, and how much of it is used.",
    row=BudgetRow,
    fields=FIELDS,
    empty="no budget is set: cortex budgets set --agent NAME --usd 5 --per day --reason TEXT",
    page=budgets.page,
    unlisted=frozenset({"now", "limit_amount"}),
)
