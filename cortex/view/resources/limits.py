"""Limits of job types and agents: what they permit, and what counts now."""

from typing import Final

from cortex.domain.safe import safe
from cortex.store import limits
from cortex.store.limits import COUNTED_MAX, LimitRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, NamedResource, ago_cell, on_demand


def _limit(row: LimitRow) -> Cell:
    counted = "at once" if row.per is None else f"{row.unit} a {row.per}"
    return Cell(f"{row.limit_amount:,} {counted}")


def _each(row: LimitRow) -> Cell:
    return Cell("all jobs", "dim") if row.key is None else Cell(safe(f"each {row.key}"))


def _busiest(row: LimitRow) -> Cell:
    if not row.busiest_used:
        return Cell(NOTHING, "dim")
    of_key = f"{row.busiest_key}: " if row.busiest_key else ""
    text = f"{of_key}{row.busiest_used:,}"
    return Cell(safe(text), "warn" if row.busiest_used >= row.limit_amount else "")


def _full(row: LimitRow) -> Cell:
    text = f"{row.full_keys:,} of {row.keys:,}"
    return Cell(text, "warn" if row.full_keys else "dim")


def _waiting(row: LimitRow) -> Cell:
    if not row.waiting_jobs:
        return Cell(NOTHING, "dim")
    more = "+" if row.waiting_jobs > COUNTED_MAX else ""
    return Cell(f"{min(row.waiting_jobs, COUNTED_MAX):,}{more}", "warn")


LIMITS: Final = NamedResource(
    name="ListedLimit",
    noun="limits",
    doc="A limit of a job type or agent: how many of its jobs run at once, or begin in some time.",
    row=LimitRow,
    fields=(
        # The name is never shortened: jobs that wait for it show it.
        Field(name="name", title="limit", style="bold"),
        Field(
            name="limit",
            value=lambda r: r.limit_amount,
            kind=int,
            title="at most",
            shown=_limit,
            is_right=True,
        ),
        Field(name="key", doc="what it is counted for; null: all jobs", title="for", shown=_each),
        Field(
            name="busiest_used",
            doc="what counts of the key with most",
            title="most used",
            shown=_busiest,
            is_right=True,
        ),
        Field(
            name="full_keys", doc="keys without room", title="keys full", shown=_full, is_right=True
        ),
        Field(
            name="waiting_jobs",
            doc="jobs of its type or agent that wait, counted up to 10,001",
            title="jobs wait",
            shown=_waiting,
            is_right=True,
        ),
        Field(
            name="changed_at",
            title="declared",
            shown=lambda r: ago_cell(r, r.changed_at, "dim"),
            is_spare=True,
        ),
        *on_demand(
            "keys",
            "busiest_key",
            type="the job type, or agent:NAME",
            unit="running, jobs that begin, or tokens",
            per="null: at once",
        ),
    ),
    empty='no job type has limits: @job(limits=[Concurrency(5, key="tenant")])',
    page=limits.page,
    unlisted=frozenset({"now", "limit_amount"}),
)
