"""What people do to several jobs at once: a row for each, its error in its own row."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.idempotency import PERMANENT, error_document
from cortex.domain.job import JobStatus
from cortex.store import jobs, retries
from cortex.store.database import Database


async def cancel_each(
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str
) -> list[dict[str, Any]]:
    """Cancel jobs, or ask their pods to; rows have `status` and the `pod` that still has to."""

    async def ask(job_id: UUID) -> dict[str, Any]:
        after = (await jobs.cancel(db, job_id, by=by, reason=reason)).after
        is_asked = after is JobStatus.RUNNING
        pod = (await jobs.show(db, job_id))["pod"] if is_asked else None
        return {"status": after, "waiting_on": None, "pod": pod}

    return await _act_on_each(job_ids, ask, waiting_on=None, pod=None)


async def retry_each(
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str, new_id: Callable[[], UUID]
) -> list[dict[str, Any]]:
    """Try jobs again at once; rows have `status`, `waiting_on`, and of a failed one `retried_as`.

    `new_id` makes the ids of the new jobs that go on from failed ones.
    """

    async def let_go(job_id: UUID) -> dict[str, Any]:
        done = await retries.retry_now(db, job_id, by=by, reason=reason, new_id=new_id)
        return attrs.asdict(done)

    return await _act_on_each(job_ids, let_go, waiting_on=None, retried_as=None)


async def _act_on_each(
    job_ids: Sequence[UUID], act: Callable[[UUID], Awaitable[dict[str, Any]]], **blank: Any
) -> list[dict[str, Any]]:
    """Act on jobs; return their rows, which hold `id`, `error` and what `act` returned.

    A permanent error stays with its job, so that the others are acted on, too; its row has `blank`.
    """
    rows: dict[UUID, dict[str, Any]] = {}
    for job_id in sorted(job_ids):  # in one transaction: one order of locks
        rows[job_id] = {"id": job_id, "status": None, **blank, "error": None}
        try:
            rows[job_id] |= await act(job_id)
        except PERMANENT as error:
            rows[job_id]["error"] = error_document(error)
    return [rows[job_id] for job_id in job_ids]
