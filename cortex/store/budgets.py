"""Budgets: room for calls before they are made, their usage, and people's changes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.budget import Budget, Estimate, Period, Scope, Unit, worded
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import Lease
from cortex.domain.people import Identity
from cortex.postgres.database import Database, Record
from cortex.store.facts import data_text
from cortex.store.passes import PartPass
from cortex.store.rows import row_of, rows_of

WAKE_BATCH: Final = 1000


@attrs.frozen(kw_only=True)
class BudgetCall:
    """A call that requests admission: its owner, and the id under which it will be settled."""

    id: UUID
    lease: Lease
    pod_id: UUID
    lineage_id: UUID
    tenant: str
    agent_id: UUID | None
    agent_version: int | None
    step: str
    model: str
    estimate: Estimate


@attrs.frozen(kw_only=True)
class BudgetVerdict:
    """Whether a call may begin: `granted`, or why not."""

    word: str
    """granted · busy: other calls hold the room · spent · unpriced: the model's price is unknown ·
    limit: of its job type · lease_lost."""
    budget: str | None
    """The budget that stops it, or the limit."""
    unit: Unit | None
    spent: Decimal | None
    limit: Decimal | None
    wait_s: float | None
    """Seconds until a budget per day renews, or a limit has more room; None: a budget per run."""
    is_own: bool
    """Whether the attempt's own calls hold room in it, so that room may become free."""
    limit_key: str | None = None
    """The key that has no room in the limit; empty if the limit has no keys."""


@attrs.frozen(kw_only=True)
class Bill:
    """The usage of a call that has ended."""

    call_id: UUID
    job_id: UUID
    tokens: int
    cost_usd: Decimal | None
    data: Mapping[str, Any]
    """Outcome, usage and the other data of the cost fact."""


@attrs.frozen
class WaitingJob:
    """A job that waits for a budget; waiting jobs are ordered by these fields."""

    waiting_on: str
    job_id: UUID


@attrs.frozen
class BudgetUse:
    """The usage of a budget by a run or a day; uses are ordered by these fields."""

    at: datetime
    budget_id: int
    window_key: str


FIRST: Final = WaitingJob("", UUID(int=0))
"""Sorts before every waiting job."""


async def reserve(db: Database, call: BudgetCall) -> BudgetVerdict:
    """Take room in every budget that the call counts against, or in none.

    Safe to repeat: the same call is admitted once. Books what earlier attempts of the job left
    open, except what another living pod may still book itself.
    """
    row = await db.fetch_one(
        "budgets.reserve",
        call.id,
        call.lease.job_id,
        call.lease.attempt,
        call.pod_id,
        call.lineage_id,
        call.tenant,
        call.agent_id,
        call.agent_version,
        call.step,
        call.model,
        call.estimate.tokens,
        call.estimate.cost_usd,
        call.estimate.input_tokens,
        call.estimate.input_usd,
    )
    if row is None:
        raise AssertionError("cortex.reserve always answers")
    return BudgetVerdict(
        word=row["verdict"],
        budget=row["budget"],
        unit=None if row["unit"] is None else Unit(row["unit"]),
        spent=row["spent"],
        limit=row["limit_amount"],
        wait_s=row["wait_s"],
        is_own=row["is_own"],
        limit_key=row["limit_key"],
    )


async def settle(db: Database, bills: Sequence[Bill]) -> int:
    """Book what calls used and return their room; return how many were not booked before."""
    row = await db.fetch_one(
        "budgets.settle",
        [bill.call_id for bill in bills],
        [bill.tokens for bill in bills],
        [bill.cost_usd for bill in bills],
        [data_text(bill.data) for bill in bills],
    )
    return row["booked"] if row else 0


async def sweep(db: Database, *, limit: int, after: UUID | None = None) -> PartPass[UUID]:
    """Check up to `limit` calls in flight, and book those as lost whose cost will stay unknown.

    Does nothing while another process does this. A call whose attempt runs is not lost; if its pod
    lives, only a minute after its end.
    """
    row = await db.fetch_one("budgets.sweep", after, limit)
    if row is None:
        raise AssertionError("budgets.sweep always answers")
    return PartPass(count=row["booked"], after=row["after"], is_skipped=row["is_skipped"])


async def forget(
    db: Database, *, day_s: float, run_s: float, limit: int, after: BudgetUse | None = None
) -> tuple[int, BudgetUse | None]:
    """Delete usage of days before `day_s`, and of runs that are over since `run_s`.

    A run is over when all jobs of its lineage have ended. Checks `limit` uses, oldest first;
    returns how many were deleted, and from where to continue; None at the end.
    """
    began = (after.at, after.budget_id, after.window_key) if after else (None, None, None)
    row = await db.fetch_one("budgets.forget", *began, limit, day_s, run_s)
    if row is None or row["at"] is None:
        return (row["count"] if row else 0), None
    return row["count"], BudgetUse(row["at"], row["budget_id"], row["window_key"])


@attrs.frozen(kw_only=True)
class BudgetLimit:
    """A budget and who set it."""

    name: str
    scope: Scope = attrs.field(converter=Scope)
    subject: str
    unit: Unit = attrs.field(converter=Unit)
    period: Period = attrs.field(converter=Period)
    limit_amount: Decimal
    changed_by: str
    changed_at: datetime
    reason: str
    share_of: UUID | None
    created_at: datetime


@attrs.frozen(kw_only=True)
class BudgetRow(BudgetLimit):
    """A budget, its usage, and the jobs that wait for it."""

    window_key: str | None
    """The day, or the most expensive run; None if no call has used it."""
    spent: Decimal
    reserved: Decimal
    waiting_jobs: int
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class BudgetChange:
    """The effect of a person's change of a budget."""

    name: str
    before: Decimal | None
    """The limit; None if there was none."""
    after: Decimal | None
    """None if it was removed."""
    woken_count: int
    """Jobs that continue because of it, at most `WAKE_BATCH` at once; `wake_next` wakes the
    others."""


async def put(
    db: Database, budget: Budget, *, limit: Decimal, by: Identity, reason: str
) -> BudgetChange:
    """Set a limit, new or not; waiting jobs continue if it gives them room."""
    change = await _put(db, budget, limit=limit, by=by, reason=reason, is_declared=False)
    if change is None:
        raise AssertionError("budgets.put always answers a person")
    return change


async def ensure(
    db: Database, budget: Budget, *, limit: Decimal, by: Identity, reason: str
) -> BudgetChange | None:
    """Set the limit that a file declares; None if it declared the same before.

    So a limit that a person changed since stays, until the file declares another one.
    """
    return await _put(db, budget, limit=limit, by=by, reason=reason, is_declared=True)


async def declared(db: Database, agent: str) -> list[str]:
    """Return names of the budgets that an agent's file declares or declared."""
    return [row["name"] for row in await db.fetch("budgets.declared", agent)]


async def raise_limit(
    db: Database, name: str, *, to: Decimal, by: Identity, reason: str
) -> BudgetChange:
    """Raise a limit; jobs that waited for it continue.

    Raises `NotFoundError`, and `ConflictError` if it is not below the new limit.
    """
    change = await _changed(db, name, "budgets.raise", name, to, by.document(), reason)
    if change is None:
        existing = await show(db, name)
        limit = worded(existing.limit_amount, existing.unit)
        raise ConflictError(
            f"budget {name} is {limit} already", hint="a smaller limit: cortex budgets set"
        )
    return change


async def remove(db: Database, name: str, *, by: Identity, reason: str) -> BudgetChange:
    """Remove a limit and its usage; jobs that waited for it continue.

    Raises `NotFoundError`.
    """
    change = await _changed(db, name, "budgets.remove", name, by.document(), reason)
    if change is None:
        raise _no_such_budget(name)
    return change


async def wake(db: Database, names: Sequence[str]) -> int:
    """Give a task to jobs that wait for these budgets and have room; return how many.

    At most `WAKE_BATCH`: call it again while it returns as many.
    """
    row = await db.fetch_one("budgets.wake", list(names), WAKE_BATCH)
    return row["count"] if row else 0


async def wake_next(db: Database, *, limit: int, after: WaitingJob = FIRST) -> PartPass[WaitingJob]:
    """Check up to `limit` jobs that wait for any budget, and give a task to those that have room.

    Does nothing while another process does this.
    """
    row = await db.fetch_one("budgets.wake_next", after.waiting_on, after.job_id, limit)
    if row is None:
        raise AssertionError("budgets.wake_next always answers")
    is_at_end = row["after_id"] is None
    return PartPass(
        count=row["woken"],
        after=None if is_at_end else WaitingJob(row["after_name"], row["after_id"]),
        is_skipped=row["is_skipped"],
    )


async def show(db: Database, name: str) -> BudgetLimit:
    """Return one budget. Raises `NotFoundError`."""
    row = await db.fetch_one("budgets.show", name)
    if row is None:
        raise _no_such_budget(name)
    return row_of(BudgetLimit, row)


async def page(
    db: Database, *, after: str = "", limit: int = 100, tenant: str | None = None
) -> list[BudgetRow]:
    """Return budgets by name with their usage, reservations, and waiting jobs.

    `tenant`: only the budgets of this tenant itself.
    """
    return rows_of(BudgetRow, await db.fetch("budgets.list", after, limit, tenant or db.tenant))


async def _put(
    db: Database, budget: Budget, *, limit: Decimal, by: Identity, reason: str, is_declared: bool
) -> BudgetChange | None:
    parts = (budget.scope.value, budget.subject, budget.unit.value, budget.period.value)
    args = (*parts, limit, by.document(), reason, is_declared)
    return await _changed(db, budget.name, "budgets.put", *args)


async def _changed(db: Database, name: str, query: str, *args: object) -> BudgetChange | None:
    """Change a budget and wake its jobs, in one transaction; None if nothing changed."""

    async def change(inner: Database) -> tuple[Record | None, int]:
        row = await inner.fetch_one(query, *args)
        # A separate statement: only one that begins later sees the new limit.
        return row, 0 if row is None else await wake(inner, [name])

    row, woken_count = await db.transact(lambda connection: change(db.bound(connection)))
    if row is None:
        return None
    return BudgetChange(
        name=row["name"],
        before=row["before"],
        after=row.get("after"),
        woken_count=woken_count,
    )


def _no_such_budget(name: str) -> NotFoundError:
    return NotFoundError(f"budget {name!r} does not exist", hint="list them: cortex budgets ls")
