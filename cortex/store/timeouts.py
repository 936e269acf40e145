"""Receipts of timeouts: stored once each, read in order."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Final
from uuid import UUID

import attrs
import orjson
from cattrs.preconf.orjson import OrjsonConverter, make_converter

from cortex.domain.job import Lease
from cortex.domain.timeouts import (
    Artefact,
    FinalAction,
    Interruption,
    Phase,
    Scope,
    TimeoutReceipt,
    WorkTree,
)
from cortex.postgres.database import Database, Record, affected

PAGE_MAX: Final = 20
"""Receipts loaded at once: each may hold a few hundred kB."""


@attrs.frozen(kw_only=True)
class Recorded:
    """A stored receipt."""

    id: int
    at: datetime
    """When it was recorded, by the database's clock."""
    receipt: TimeoutReceipt


async def record(db: Database, receipts: Sequence[TimeoutReceipt]) -> set[UUID]:
    """Store receipts; return the jobs of those that are new.

    An existing receipt stays unchanged, so this is safe after `OutcomeUnknownError`.
    """
    interruptions = [each.interruption for each in receipts]
    rows = await db.fetch(
        "timeouts.record",
        [each.lease.job_id for each in interruptions],
        [each.lease.attempt for each in interruptions],
        [each.nth for each in interruptions],
        [each.scope.value for each in interruptions],
        [each.limit_s for each in interruptions],
        [each.elapsed_s for each in interruptions],
        [each.phase.value for each in interruptions],
        [each.step_key for each in interruptions],
        [each.step_elapsed_s for each in interruptions],
        [each.step_started_at for each in receipts],
        [each.checkpoint_seq for each in interruptions],
        [each.checkpoint_key for each in interruptions],
        [each.retry_count for each in interruptions],
        [each.final_action.value for each in interruptions],
        [each.partial_text for each in interruptions],
        [_text(each.artefacts) for each in receipts],
        [_text(each.work_trees) for each in receipts],
        [each.problem for each in receipts],
    )
    return affected(rows, "job_id")


async def of_job(db: Database, job_id: UUID, *, after: int = 0) -> list[Recorded]:
    """Return a job's receipts after one, in order; at most `PAGE_MAX` of them."""
    rows = await db.fetch("timeouts.of_job", job_id, after, PAGE_MAX)
    return [_recorded(row) for row in rows]


async def that_ended(db: Database, job_id: UUID) -> Recorded | None:
    """Return the receipt of the timeout that ended the job's last attempt, if one did."""
    row = await db.fetch_one("timeouts.that_ended", job_id)
    if row is None or row["id"] is None:
        return None
    receipts = await of_job(db, job_id, after=row["id"] - 1)
    return receipts[0]


@cache
def _converter() -> OrjsonConverter:
    return make_converter()


def _text(values: Sequence[object]) -> str:
    return orjson.dumps(_converter().unstructure(values)).decode()


def _recorded(row: Record) -> Recorded:
    interruption = Interruption(
        lease=Lease(row["job_id"], row["attempt"]),
        scope=Scope(row["scope"]),
        limit_s=row["limit_s"],
        elapsed_s=row["elapsed_s"],
        phase=Phase(row["phase"]),
        step_key=row["step_key"],
        step_elapsed_s=row["step_elapsed_s"],
        checkpoint_seq=row["checkpoint_seq"],
        checkpoint_key=row["checkpoint_key"],
        retry_count=row["retry_count"],
        final_action=FinalAction(row["final_action"]),
        nth=row["nth"],
        partial_text=row["partial_text"],
    )
    receipt = TimeoutReceipt(
        interruption=interruption,
        step_started_at=row["step_started_at"],
        artefacts=_converter().loads(row["artefacts"], tuple[Artefact, ...]),
        work_trees=_converter().loads(row["work_trees"], tuple[WorkTree, ...]),
        problem=row["problem"],
    )
    return Recorded(id=row["id"], at=row["at"], receipt=receipt)
