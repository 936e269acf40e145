"""Quotas: limits of effects."""

from decimal import Decimal
from typing import Final

from cortex.domain.budget import NEARLY
from cortex.domain.phrases import span
from cortex.domain.quota import Quota
from cortex.domain.safe import safe
from cortex.store import quotas
from cortex.store.quotas import CapRow, QuotaRow
from cortex.view.cells import Cell
from cortex.view.phrases import age, day_time, since_s
from cortex.view.resource import Field, NamedResource, on_demand, waiting_cell


def _limit(row: QuotaRow) -> Cell:
    quota = row.quota
    return Cell(safe(quota.worded(quota.limit)))


def _used(row: QuotaRow) -> Cell:
    used, limit = row.used, row.limit_amount
    if used >= limit:
        return Cell(Quota.plain(used), "fail")
    return Cell(Quota.plain(used), "warn" if used >= NEARLY * limit else "" if used else "dim")


def _resets(row: QuotaRow) -> Cell:
    left_s = -since_s(row, row.resets_at)
    return Cell(f"in {span(left_s)} ({day_time(row.resets_at)})")


def _changed(row: QuotaRow) -> Cell:
    text = f"{age(since_s(row, row.changed_at))} by {row.changed_by}: {row.reason}"
    return Cell(safe(text), "dim")


# The name is never shortened: people type it.
FIELDS: Final = (
    Field(name="name", title="quota", style="bold"),
    Field(name="limit", value=lambda r: r.limit_amount, kind=Decimal, shown=_limit, is_right=True),
    Field(name="used", doc="in the current period", shown=_used, is_right=True),
    Field(
        name="waiting_jobs",
        doc="jobs that wait for room",
        title="jobs wait",
        shown=lambda r: waiting_cell(r.waiting_jobs),
        is_right=True,
    ),
    Field(name="resets_at", title="resets", shown=_resets, is_spare=True),
    Field(name="changed_at", title="set", shown=_changed, least=12, is_spare=True),
    *on_demand(
        "tool",
        "unit",
        "period",
        "created_at",
        argument="the argument that is summed up; null: calls are counted",
        changed_by="the person who set it last",
        reason="why",
    ),
)

QUOTAS: Final = NamedResource(
    name="ListedQuota",
    noun="quotas",
    doc="A limit on how often a tool acts, or how much, in a period.",
    row=QuotaRow,
    fields=FIELDS,
    empty="no quota is set: cortex quotas set TOOL --limit 20 --per hour --reason TEXT",
    page=quotas.page,
    unlisted=frozenset({"quota", "now", "limit_amount"}),
)


def _of(used: int, most: int | None) -> Cell:
    if most is None:
        return Cell(f"{used:,}", "dim")
    style = "fail" if used >= most else "warn" if used >= float(NEARLY) * most else ""
    return Cell(f"{used:,} of {most:,}", style)


def _cap_changed(row: CapRow) -> Cell:
    text = f"{age(since_s(row, row.changed_at))} by {row.changed_by}: {row.reason}"
    return Cell(safe(text), "dim")


CAPS: Final = NamedResource(
    name="ListedCap",
    noun="caps",
    doc="A limit on the jobs of a tenant that have not ended, and on the bytes of their payloads.",
    row=CapRow,
    fields=(
        Field(name="name", doc="the tenant", title="tenant", style="bold"),
        Field(
            name="jobs",
            doc="that have not ended, counted up to the cap",
            shown=lambda r: _of(r.jobs, r.jobs_max),
            is_right=True,
        ),
        Field(
            name="bytes",
            doc="of their payloads, as stored",
            shown=lambda r: _of(r.bytes, r.bytes_max),
            is_right=True,
        ),
        Field(name="changed_at", title="set", shown=_cap_changed, least=12, is_spare=True),
        *on_demand(
            "jobs_max",
            bytes_max="null: any number",
            changed_by="the person who set it last",
            reason="why",
        ),
    ),
    empty="no tenant has a cap: cortex quotas cap TENANT --jobs 1000 --reason TEXT",
    page=quotas.caps,
    unlisted=frozenset({"now"}),
)
