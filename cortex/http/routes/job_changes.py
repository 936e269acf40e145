"""`POST /v1/jobs/{job_id}/cancel`, `/retry` and `/priority`: changes of a job by people."""

from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.idempotency import error_from
from cortex.domain.job import JobStatus
from cortex.domain.policy import PRIORITY_MAX
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import answer, change
from cortex.http.framework.shape import field, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.http.routes.job_rights import require_rights
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.postgres.database import Database
from cortex.store import jobs
from cortex.store.job_choice import CancelledOne, RetriedOne, cancel_each, retry_each
from cortex.view.verbs import CANCEL_JOB, PRIORITIZE_JOB, RETRY_JOB


@attrs.frozen(kw_only=True)
class JobAct:
    """The reason; the token identifies the person."""

    reason: str = reason_field(CANCEL_JOB)


@attrs.frozen(kw_only=True)
class JobActed:
    """The job's new state."""

    id: UUID
    status: JobStatus
    pod: str | None = field(doc="the pod that still has to stop it", default=None)


@attrs.frozen(kw_only=True)
class JobRetried(JobActed):
    """The job's new state; a failed job keeps its own."""

    retried_as: UUID | None = field(doc="the new job that continues a failed one", default=None)


async def cancel_job(requested: CheckedRequest[None, JobAct], api: Api) -> Response:
    """Cancel a waiting job; ask the pod of a running one to stop it."""
    job_id, by, reason = requested.path["job_id"], requested.principal.name, requested.body.reason

    async def work(db: Database) -> list[CancelledOne]:
        return await cancel_each(db, [job_id], by=by, reason=reason)

    request = {"jobs": [job_id], "reason": reason}
    done = await once(requested, api, work, operation="jobs.cancel", request=request)
    acted = _acted(done.response)
    status = 202 if acted.status is JobStatus.RUNNING else 200
    return answer(acted, status=status, headers=headers_of(done))


async def retry_job(requested: CheckedRequest[None, JobAct], api: Api) -> Response:
    """Retry a job at once: the same job, or a new one that continues a failed one."""
    job_id, by, reason = requested.path["job_id"], requested.principal.name, requested.body.reason
    await require_rights([job_id], requested.principal, api)

    async def work(db: Database) -> list[RetriedOne]:
        return await retry_each(
            db,
            [job_id],
            by=by,
            credential=requested.principal.credential,
            reason=reason,
            new_id=api.chance.new_id,
        )

    request = {"jobs": [job_id], "reason": reason}
    done = await once(requested, api, work, operation="jobs.retry", request=request)
    acted, (row,) = _acted(done.response), done.response
    heir = row.get("retried_as")
    retried = JobRetried(
        id=acted.id, status=acted.status, retried_as=None if heir is None else UUID(heir)
    )
    return answer(retried, headers=headers_of(done))


def _acted(rows: list[dict[str, Any]]) -> JobActed:
    """Return the result for the one requested job. Raises its error, if any."""
    (row,) = rows
    if row["error"] is not None:
        raise error_from(row["error"])
    return JobActed(id=UUID(row["id"]), status=JobStatus(row["status"]), pod=row.get("pod"))


@attrs.frozen(kw_only=True)
class JobPriority:
    """Its new place in the line."""

    priority: int = whole(doc="lower numbers run first", low=-PRIORITY_MAX, high=PRIORITY_MAX)
    reason: str = reason_field(PRIORITIZE_JOB)


@attrs.frozen(kw_only=True)
class JobPrioritized:
    """The job's priority before and now."""

    id: UUID
    priority: int
    priority_before: int


async def prioritize_job(requested: CheckedRequest[None, JobPriority], api: Api) -> Response:
    """Move a waiting job in the line; a running one has the priority from its next wait on."""
    job_id, by = requested.path["job_id"], requested.principal.name
    priority, reason = requested.body.priority, requested.body.reason

    async def work(db: Database) -> int:
        return await jobs.prioritize(db, job_id, priority, by=by, reason=reason)

    request = {"job": str(job_id), "priority": priority}
    done = await once(requested, api, work, operation="jobs.priority", request=request)
    moved = JobPrioritized(id=job_id, priority=priority, priority_before=done.response)
    return answer(moved, headers=headers_of(done))


ROUTES: Final = (
    change(
        PRIORITIZE_JOB,
        f"{JOB_PATH}/priority",
        prioritize_job,
        "Give a job another priority.",
        params=JOB_PARAMS,
        body=JobPriority,
        answers={200: JobPrioritized},
        refuses=(404, 409),
        tenancy=Tenancy.JOB,
    ),
    change(
        CANCEL_JOB,
        f"{JOB_PATH}/cancel",
        cancel_job,
        "Cancel a job: at once, or (202) as soon as its pod has stopped it.",
        params=JOB_PARAMS,
        body=JobAct,
        answers={200: JobActed, 202: JobActed},
        refuses=(404, 409),
        tenancy=Tenancy.JOB,
    ),
    change(
        RETRY_JOB,
        f"{JOB_PATH}/retry",
        retry_job,
        "Retry a job at once; a failed one continues in a new job.",
        params=JOB_PARAMS,
        body=JobAct,
        answers={200: JobRetried},
        refuses=(404, 409),
        tenancy=Tenancy.JOB,
    ),
)
