"""Budgets: room for calls before they are made, what they took, and what people change."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.budget import WAITING_PREFIX, Budget, Estimate, Unit, worded
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import Lease
from cortex.store.database import Database, Record
from cortex.store.facts import data_text
from cortex.store.jobs import plain

WAKE_BATCH: Final = 1000


@attrs.frozen(kw_only=True)
class Call:
    """A call that asks to begin: whose it is, and under which id it will be settled."""

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
class Verdict:
    """Whether a call may begin: `granted`, or why not."""

    word: str
    """granted · busy: others hold the room · spent · unpriced: the model's price is not known ·
    lease_lost."""
    budget: str | None
    """The one that stops it."""
    unit: Unit | None
    spent: Decimal | None
    limit: Decimal | None
    next_day_s: float | None
    """Seconds until a budget per day begins anew; None of one per run."""


async def reserve(db: Database, call: Call) -> Verdict:
    """Take room in every budget that the call counts against, or in none.

    Safe to repeat: the same call is granted once. Books what earlier attempts of the job left open.
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
    return Verdict(
        word=row["verdict"],
        budget=row["budget"],
        unit=None if row["unit"] is None else Unit(row["unit"]),
        spent=row["spent"],
        limit=row["limit_amount"],
        next_day_s=row["next_day_s"],
    )


async def settle(
    db: Database, call_id: UUID, *, tokens: int, cost_usd: Decimal | None, data: Mapping[str, Any]
) -> bool:
    """Book what a call took and give its room back; False if it was booked before, as lost maybe.

    `data`: outcome, usage and what else the fact of the cost tells.
    """
    row = await db.fetch_one("budgets.settle", call_id, tokens, cost_usd, data_text(data))
    return bool(row and row["booked"])


async def sweep(db: Database, *, limit: int) -> int:
    """Book calls as lost whose attempt is over; return how many, at most `limit`."""
    row = await db.fetch_one("budgets.sweep", limit)
    return row["booked"] if row else 0


@attrs.frozen(kw_only=True)
class Change:
    """What a person's change of a budget did."""

    name: str
    before: Decimal | None
    """The limit; None if there was none."""
    after: Decimal | None
    """None if there is none any more."""
    woken_count: int
    """Jobs that go on by it, at most `WAKE_BATCH` at once; the others follow by `wake`."""


async def put(db: Database, budget: Budget, *, limit: Decimal, by: str, reason: str) -> Change:
    """Set a limit, new or not; jobs that waited go on if it gives them room."""
    change = await _put(db, budget, limit=limit, by=by, reason=reason, is_declared=False)
    if change is None:
        raise AssertionError("budgets.put always answers a person")
    return change


async def ensure(
    db: Database, budget: Budget, *, limit: Decimal, by: str, reason: str
) -> Change | None:
    """Set the limit that a file declares; None if it declared the same before.

    So a limit that a person changed since stays, until the file declares another one.
    """
    return await _put(db, budget, limit=limit, by=by, reason=reason, is_declared=True)


async def declared(db: Database, agent: str) -> list[str]:
    """Return names of the budgets that an agent's file has declared, now or before."""
    return [row["name"] for row in await db.fetch("budgets.declared", agent)]


async def raise_limit(db: Database, name: str, *, to: Decimal, by: str, reason: str) -> Change:
    """Raise a limit; jobs that waited for it go on.

    Raises `NotFoundError`, and `ConflictError` if it is as high already.
    """
    change = await _changed(db, name, "budgets.raise", name, to, by, reason)
    if change is None:
        found = await show(db, name)
        limit = worded(found["limit_amount"], Unit(found["unit"]))
        raise ConflictError(
            f"budget {name} is {limit} already", hint="a smaller limit: cortex budgets set"
        )
    return change


async def remove(db: Database, name: str, *, by: str, reason: str) -> Change:
    """Remove a limit and what was counted for it; jobs that waited for it go on.

    Raises `NotFoundError`.
    """
    change = await _changed(db, name, "budgets.remove", name, by, reason)
    if change is None:
        raise _no_such_budget(name)
    return change


async def wake(db: Database, names: Sequence[str]) -> int:
    """Give a task to jobs that wait for these budgets and have room; return how many.

    At most `WAKE_BATCH`: call it again while it returns as many.
    """
    row = await db.fetch_one("budgets.wake", list(names), WAKE_BATCH)
    return row["count"] if row else 0


async def waited_for(db: Database, *, after: str, limit: int) -> tuple[list[str], str | None]:
    """Return names of budgets that jobs wait for, and from where to go on; None at the end."""
    rows = await db.fetch("budgets.waited_for", after, limit)
    found: list[str] = [row["name"] for row in rows]
    names = [name.removeprefix(WAITING_PREFIX) for name in found if _is_budget(name)]
    return names, found[-1] if len(found) == limit else None


async def show(db: Database, name: str) -> dict[str, Any]:
    """Return one budget. Raises `NotFoundError`."""
    row = await db.fetch_one("budgets.show", name)
    if row is None:
        raise _no_such_budget(name)
    return plain(row)


async def page(db: Database, *, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Return budgets by name, each with what is spent, reserved, and the jobs that wait for it."""
    return [plain(row) for row in await db.fetch("budgets.list", after, limit)]


async def _put(
    db: Database, budget: Budget, *, limit: Decimal, by: str, reason: str, is_declared: bool
) -> Change | None:
    parts = (budget.scope.value, budget.subject, budget.unit.value, budget.period.value)
    args = (*parts, limit, by, reason, is_declared)
    return await _changed(db, budget.name, "budgets.put", *args)


async def _changed(db: Database, name: str, query: str, *args: object) -> Change | None:
    """Change a budget and let its jobs go on, in one transaction; None if nothing changed."""

    async def change(inner: Database) -> tuple[Record | None, int]:
        row = await inner.fetch_one(query, *args)
        # A statement of its own: only one that begins later sees the new limit.
        return row, 0 if row is None else await wake(inner, [name])

    row, woken_count = await db.transact(lambda connection: change(db.bound(connection)))
    if row is None:
        return None
    return Change(
        name=row["name"],
        before=row["before"],
        after=row.get("after"),
        woken_count=woken_count,
    )


def _is_budget(waiting_on: str) -> bool:
    return waiting_on.startswith(WAITING_PREFIX)


def _no_such_budget(name: str) -> NotFoundError:
    return NotFoundError(f"budget {name!r} does not exist", hint="list them: cortex budgets ls")
