"""`/v1/jobs/{job_id}/timeouts` and `/resume`: leftovers of time-outs, and how a job goes on."""

from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
import structlog
import trio
from starlette.responses import Response

from cortex.agent.workspace.discarding import leftovers_of, put_aside
from cortex.domain.errors import ConflictError, CortexError, NotFoundError
from cortex.domain.timeouts import Choice
from cortex.http.folder import root_of
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import mutate
from cortex.http.framework.resource import document_of, schema_of_document, schema_of_rows
from cortex.http.framework.route import answer, change, read
from cortex.http.framework.shape import field, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.http.routes.job_rights import require_right
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.store import jobs, resumptions
from cortex.store import timeouts as receipts
from cortex.store.timeouts import PAGE_MAX, Recorded
from cortex.view.resources.timeouts import TIMEOUT
from cortex.view.verbs import RESUME_JOB

_log = structlog.get_logger(__name__)
ID_MAX: Final = 10**18 - 1


@attrs.frozen(kw_only=True)
class TimeoutsQuery:
    """Selects receipts, in order."""

    after: int = whole(doc="`next_after` of the previous page", low=0, high=ID_MAX, default=0)


TIMEOUTS: Final = schema_of_document(
    "Timeouts",
    doc="A page of receipts.",
    timeouts=(list[schema_of_rows(TIMEOUT)], ""),  # type: ignore[misc]
    next_after=(int | None, "`after` of the next page; null: last page"),
)


async def list_timeouts(request: CheckedRequest[TimeoutsQuery, None], api: Api) -> Response:
    job_id = request.path["job_id"]
    await api.port(jobs.show, job_id)  # raises NotFoundError
    rows = await api.port(receipts.of_job, job_id, after=request.query.after)
    return answer(
        {
            "timeouts": [document_of(TIMEOUT, row) for row in rows],
            "next_after": rows[-1].id if len(rows) == PAGE_MAX else None,
        }
    )


@attrs.frozen(kw_only=True)
class JobResume:
    """How a failed job goes on; the token identifies the person."""

    choice: Choice | None = field(
        doc="`retry_step`: run the step again with everything as it is · `discard_and_retry`: set "
        "aside what it left half done, then run it again; the pod that answers must have the job's "
        "folders · `escalate`: leave it to an operator. null: `retry_step` for a job that left "
        "nothing",
        default=None,
    )
    reason: str = reason_field(RESUME_JOB)


@attrs.frozen(kw_only=True)
class JobResumed:
    """How the job goes on."""

    job: UUID
    choice: Choice
    by: str
    reason: str
    resumed_as: UUID | None = field(doc="the new job that continues it; null: it was escalated")
    set_aside: dict[str, Any] | None = field(doc="where what the step left is now")


async def resume_job(request: CheckedRequest[None, JobResume], api: Api) -> Response:
    """Resume a failed job; one person at a time, since files may be moved."""
    job_id, body, by = request.path["job_id"], request.body, request.principal.name
    failed = await api.port(resumptions.failed, job_id)
    require_right(failed.type, request.principal)
    receipt = await api.port(receipts.that_ended, job_id)
    choice = body.choice or resumptions.choice_of_clean(job_id, receipt)
    is_locked = False
    try:
        await api.port(resumptions.lock, job_id)
        is_locked = True
        set_aside: dict[str, Any] = {}
        if choice is Choice.DISCARD_AND_RETRY and await api.port(resumptions.is_open, job_id):
            set_aside = await _set_aside(api, failed, receipt)
        work = partial(
            resumptions.carry_out,
            job_id=job_id,
            choice=choice,
            by=by,
            credential=request.principal.credential,
            reason=body.reason,
            set_aside=set_aside,
            new_id=api.chance.new_id(),
        )
        return await mutate(
            request,
            api,
            work,
            operation="jobs.resume",
            request={"job": job_id, "choice": body.choice, "reason": body.reason},
        )
    finally:
        if is_locked:
            with trio.CancelScope(shield=True):
                await _unlock(api, job_id)


async def _unlock(api: Api, job_id: UUID) -> None:
    try:
        await api.port(resumptions.unlock, job_id)
    except CortexError as error:  # the answer stands: the job has been resumed
        _log.warning("resumption not unlocked", job=str(job_id), error=error.message)


async def _set_aside(api: Api, failed: jobs.ShownJob, found: Recorded | None) -> dict[str, Any]:
    """Set aside what the interrupted step left in folders of this machine."""
    workspaces = api.pod.workspaces
    if workspaces is None:
        raise ConflictError("this pod has no folders of jobs", hint="use: cortex jobs resume")
    files = [each.path for each in found.receipt.artefacts] if found else []
    settled = await api.port(resumptions.settled, failed.id, files=files)
    leftovers = leftovers_of(
        failed, found, settled, workspaces=workspaces, new_id=api.chance.new_id()
    )
    for folder in leftovers.folders:
        root_of(str(folder), [leftovers.workspace, *api.pod.folder_roots])
    try:
        return attrs.asdict(await put_aside(leftovers))
    except NotFoundError as error:
        raise ConflictError(error.message, hint=error.hint) from error


ROUTES: Final = (
    read(
        f"{JOB_PATH}/timeouts",
        list_timeouts,
        "List a job's time-outs, and what each one left behind.",
        params=JOB_PARAMS,
        query=TimeoutsQuery,
        answers={200: TIMEOUTS},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    change(
        RESUME_JOB,
        f"{JOB_PATH}/resume",
        resume_job,
        "Continue a failed job from its last checkpoint, in one of three ways.",
        params=JOB_PARAMS,
        body=JobResume,
        answers={200: JobResumed},
        refuses=(404, 409),
        tenancy=Tenancy.JOB,
    ),
)
