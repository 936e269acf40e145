"""Facts: errors, costs of calls, and who changed what. Append-only."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.postgres.database import Database
from cortex.store.rows import row_of, rows_of

CHANGES_MAX: Final = 500
STACK_MAX: Final = 8_000
"""Characters of a stack: its last calls, which are nearest to the failure, are kept."""


class FactType(StrEnum):
    """The subject of a fact."""

    ERROR = "error"
    COST = "cost"
    LIFECYCLE = "lifecycle"


class CostGroup(StrEnum):
    """What costs are summed by."""

    AGENT = "agent"
    MODEL = "model"
    TENANT = "tenant"
    JOB = "job"
    DAY = "day"


@attrs.frozen(kw_only=True)
class Fact:
    """One fact to record; the database adds its id and its time."""

    type: str
    """error, cost or lifecycle."""
    subtype: str
    source: str | None = None
    tenant: str = "default"
    job_id: UUID | None = None
    attempt: int | None = None
    step: str | None = None
    agent_id: UUID | None = None
    agent_version: int | None = None
    pod_id: UUID | None = None
    trace_id: str | None = None
    call_id: UUID | None = None
    """Of a cost: a call that is already booked is not booked again."""
    amount_usd: Decimal | None = None
    resolves: int | None = None
    """The error fact that this one resolves."""
    data: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class FactRow:
    """A recorded fact."""

    id: int
    at: datetime
    type: FactType
    subtype: str
    source: str | None
    tenant: str
    job_id: UUID | None
    attempt: int | None
    step: str | None
    agent_id: UUID | None
    agent_version: int | None
    pod_id: UUID | None
    trace_id: str | None
    call_id: UUID | None
    amount: Decimal | None
    currency: str | None
    resolves: int | None
    data: dict[str, Any]
    resolved_by: int | None
    """The later fact that resolves it."""
    is_resolved: bool | None
    """Of an error: a later fact resolves it, or its job has completed; None for other types."""


@attrs.frozen(kw_only=True)
class ListedFact(FactRow):
    """A fact in a list, with the names of its pod and its agent."""

    pod: str | None
    agent: str | None
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class JobChange:
    """A change concerning a job, usually by a person."""

    id: int
    at: datetime
    subtype: str
    source: str | None
    data: dict[str, Any]
    """By whom and why."""


@attrs.frozen(kw_only=True)
class CostRow:
    """The usage of model calls, of one group or of all."""

    name: str | None
    is_total: bool
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_saved_usd: Decimal | None
    """What the prompt cache saved; None where it was not used, or no price is known."""
    cost_usd: Decimal | None
    """None where no price is known."""
    unpriced_calls: int
    """Calls that `cost_usd` leaves out."""
    again_calls: int
    again_tokens: int
    again_usd: Decimal | None
    again_unpriced_calls: int
    estimated_calls: int


async def append(db: Database, facts: Sequence[Fact]) -> list[int]:
    """Record facts in one statement, in order; return the ids of those that are new.

    Raises `InvalidValueError` for what Postgres cannot store; then none of them is recorded.
    """
    rows = await db.fetch(
        "facts.append",
        [fact.type for fact in facts],
        [fact.subtype for fact in facts],
        [fact.source for fact in facts],
        [fact.tenant for fact in facts],
        [fact.job_id for fact in facts],
        [fact.attempt for fact in facts],
        [fact.step for fact in facts],
        [fact.agent_id for fact in facts],
        [fact.agent_version for fact in facts],
        [fact.pod_id for fact in facts],
        [fact.trace_id for fact in facts],
        [fact.call_id for fact in facts],
        [fact.amount_usd for fact in facts],
        [fact.resolves for fact in facts],
        [data_text(fact.data) for fact in facts],
    )
    return [row["id"] for row in rows]


async def of_job(db: Database, job_id: UUID, *, after: int = 0, limit: int = 500) -> list[FactRow]:
    """Return a job's facts in order, after a fact's id."""
    return rows_of(FactRow, await db.fetch("facts.of_job", job_id, after, limit))


async def page(
    db: Database,
    *,
    types: Sequence[str] = tuple(FactType),
    since_s: float,
    source: str | None = None,
    job_id: UUID | None = None,
    before: int | None = None,
    limit: int = 50,
    tenant: str | None = None,
) -> list[ListedFact]:
    """Return the newest facts of these types, not older than this many seconds, before an id.

    Only those of a source, a job or a tenant, if one is given; none before an id that does not
    exist.
    """
    rows = await db.fetch(
        "facts.page", list(types), since_s, before, limit, source, job_id, tenant or db.tenant
    )
    return rows_of(ListedFact, rows)


async def changes_of_job(
    db: Database, job_id: UUID, *, limit: int = CHANGES_MAX
) -> list[JobChange]:
    """Return the changes concerning a job, in order.

    Includes those of the budgets that it waited for.
    """
    return rows_of(JobChange, await db.fetch("facts.changes_of_job", job_id, limit))


async def costs(
    db: Database,
    *,
    by: CostGroup,
    since_s: float,
    limit: int = 1000,
    tenant: str | None = None,
) -> tuple[list[CostRow], CostRow]:
    """Return the usage of model calls by group, most expensive or newest first, and in total."""
    total, *groups = await db.fetch("facts.costs", by.value, since_s, limit, tenant or db.tenant)
    return rows_of(CostRow, groups), row_of(CostRow, total)


def data_text(data: Mapping[str, Any]) -> str:
    """Return a fact's data as JSON text that Postgres can store: NUL visible, long stacks cut."""
    stack = data.get("stack")
    if isinstance(stack, str) and len(stack) > STACK_MAX:
        data = {**data, "stack": f"…{stack[-STACK_MAX:]}"}
    return orjson.dumps(_holdable(dict(data)), default=str).decode()


def _holdable(value: Any) -> Any:
    """Replace what Postgres or JSON cannot store: NUL, and halves of surrogate pairs."""
    match value:
        case str():
            shown = value.replace("\0", "\N{SYMBOL FOR NULL}")
            return shown.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {str(_holdable(key)): _holdable(each) for key, each in value.items()}
        case list() | tuple():
            return [_holdable(each) for each in value]
        case _:
            return value
