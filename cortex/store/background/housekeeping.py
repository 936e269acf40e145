"""Deletes what has expired: idempotency keys, old usage, model output, upkeep jobs, pods."""

from typing import Final

import attrs

from cortex.postgres.database import Connection, Database
from cortex.postgres.queries import sql
from cortex.store import budgets, idempotency, pods, quotas, watches
from cortex.store.background import outbox, retention, schedules
from cortex.store.budgets import BudgetUse

DAY_KEPT_S: Final = 35 * 86_400.0
INSTANT_KEPT_S: Final = 30 * 86_400.0
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
    db: Database, *, limit: int, after: BudgetUse | None, sent_kept_s: float
) -> Swept | None:
    """Delete up to `limit` of each kind, oldest first; None: another process is doing it.

    `sent_kept_s`: for how long sent messages are kept.
    """

    async def run_pass(connection: Connection) -> Swept | None:
        if not await connection.fetchval(sql("idempotency.lock_housekeeping")):
            return None
        inside = db.bound(connection)
        keys = await idempotency.sweep(inside, limit=limit)
        uses, next_use = await budgets.forget(
            inside, day_s=DAY_KEPT_S, run_s=RUN_KEPT_S, limit=limit, after=after
        )
        quota_uses = await quotas.forget(inside, kept_s=DAY_KEPT_S, limit=limit)
        instants = await schedules.forget(inside, kept_s=INSTANT_KEPT_S, limit=limit)
        outputs = await watches.forget(inside, limit=limit)
        messages = await outbox.forget(
            inside, sent_s=sent_kept_s, failed_s=FAILED_MESSAGE_KEPT_S, limit=limit
        )
        upkeep = await retention.forget_upkeep(inside, kept_s=UPKEEP_KEPT_S, limit=limit)
        gone_pods = await pods.forget(inside, kept_s=POD_KEPT_S, limit=limit)
        rows = (keys, quota_uses, instants, outputs, messages, upkeep, gone_pods)
        return Swept(
            count=uses + sum(rows),
            after=next_use,
            is_behind=next_use is not None or max(rows) >= limit,
        )

    return await db.transact(run_pass)
