"""Receipts of time-outs: kept once each, read in order."""

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
    """A receipt in the record."""

    id: int
    at: datetime
    """When it was recorded, by the database's clock."""
    receipt: TimeoutReceipt


async def record(db: Database, receipts: Sequence[TimeoutReceipt]) -> set[UUID]:
    """Keep receipts; return the jobs of those that are new.

    One that is there already stays as it is, so that it is safe after `OutcomeUnknownError`.
    """
    told = [each.interruption for each in receipts]
    rows = await db.fetch(
        "timeouts.record",
        [each.lease.job_id for each in told],
        [each.lease.attempt for each in told],
        [each.nth for each in told],
        [each.scope.value for each in told],
        [each.limit_s for each in told],
        [each.elapsed_s for each in told],
        [each.phase.value for each in told],
        [each.step_key for each in told],
        [each.step_elapsed_s for each in told],
        [each.step_started_at for each in receipts],
        [each.checkpoint_seq for each in told],
        [each.checkpoint_key for each in told],
        [each.retry_count for each in told],
        [each.final_action.value for each in told],
        [each.partial_text for each in told],
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
    """Return the receipt of the time-out that ended the job's last attempt, if one did."""
    row = await db.fetch_one("timeouts.that_ended", job_id)
    if row is None or row["id"] is None:
        return None
    found = await of_job(db, job_id, after=row["id"] - 1)
    return found[0]


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
