"""Deletes what has expired: idempotency keys, old usage, model output, lines, upkeep jobs, pods."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import attrs

from cortex.postgres.database import Connection, Database
from cortex.postgres.queries import sql
from cortex.store import budgets, idempotency, limits, logs, pods, quotas, signals, tasks, watches
from cortex.store.background import outbox, retention, schedules
from cortex.store.budgets import BudgetUse

T = TypeVar("T")
DAY_KEPT_S: Final = 35 * 86_400.0
INSTANT_KEPT_S: Final = 30 * 86_400.0
LINES_FACTOR: Final = 20
"""A busy pod writes 10,000 lines a second: as many have to go."""
FAILED_MESSAGE_KEPT_S: Final = 90 * 86_400.0
"""Nobody has retried it for so long."""
UPKEEP_KEPT_S: Final = 86_400.0
"""Two such jobs a minute would be 3.5 MB a day."""
POD_KEPT_S: Final = 86_400.0
RUN_KEPT_S: Final = 7 * 86_400.0
"""A failed job that is continued later gets a fresh run budget."""


@attrs.frozen(kw_only=True)
class Swept:
    """The result of one pass."""

    count: int
    after: BudgetUse | None
    """Where to continue among the uses of budgets."""
    is_behind: bool
    """More has expired, or is to be checked."""


async def sweep(
    db: Database,
    *,
    limit: int,
    after: BudgetUse | None,
    sent_kept_s: float,
    lines_kept_s: float,
) -> Swept | None:
    """Delete up to `limit` of each kind, oldest first; None: another process is doing it.

    `sent_kept_s`: for how long sent messages are kept; `lines_kept_s`: log lines. Each kind has a
    transaction of its own, so that no lock is held longer than that takes.
    """
    used = await _alone(
        db, budgets.forget, day_s=DAY_KEPT_S, run_s=RUN_KEPT_S, limit=limit, after=after
    )
    if used is None:
        return None
    uses, next_use = used
    rows = [
        await _alone(db, idempotency.sweep, limit=limit),
        await _alone(db, quotas.forget, kept_s=DAY_KEPT_S, limit=limit),
        await _alone(db, limits.forget, limit=limit),
        await _alone(db, schedules.forget, kept_s=INSTANT_KEPT_S, limit=limit),
        await _alone(db, watches.forget, limit=limit),
        await _alone(
            db, outbox.forget, sent_s=sent_kept_s, failed_s=FAILED_MESSAGE_KEPT_S, limit=limit
        ),
        await _alone(db, retention.forget_upkeep, kept_s=UPKEEP_KEPT_S, limit=limit),
        await _alone(db, pods.forget, kept_s=POD_KEPT_S, limit=limit),
        await _alone(db, tasks.forget_unfit),
        await _alone(db, signals.forget, limit=limit),
        await _alone(db, idempotency.sweep_rules, limit=limit),
    ]
    lines_limit = limit * LINES_FACTOR
    lines = await _alone(db, logs.forget, kept_s=lines_kept_s, limit=lines_limit) or 0
    counts = [*(count or 0 for count in rows), -(-lines // LINES_FACTOR)]
    return Swept(
        count=uses + sum(counts[:-1]) + lines,
        after=next_use,
        is_behind=next_use is not None or max(counts) >= limit,
    )


async def _alone(db: Database, forget: Callable[..., Awaitable[T]], **limits: Any) -> T | None:
    """Delete one kind in a transaction; None: another process is deleting."""

    async def run(connection: Connection) -> T | None:
        if not await connection.fetchval(sql("idempotency.lock_housekeeping")):
            return None
        return await forget(db.bound(connection), **limits)

    return await db.transact(run)
