"""`GET /v1/jobs/{job_id}/result`: waits for the end of a job, on behalf of a client.

A COMPLETED job answers 200 with its result; an unfinished one 202, to be asked again, at once if it
waits for code that can take it; a FAILED or CANCELLED one 422, as a problem with the job's own
code, or `job_cancelled`. A client that leaves is forgotten, and when the pod drains every client is
answered at once.
"""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
import trio
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from cortex.domain.job import JobStatus
from cortex.domain.job_feed import CodeWait, JobState
from cortex.domain.waiting import CODE
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.leaving import until_left
from cortex.http.framework.problem import Problem, response_of
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH

WAIT_MS: Final = 15_000
WAIT_MS_MAX: Final = 30_000
ASK_AGAIN_S: Final = 1
FOR_CODE_S: Final = 10
CANCELLED_CODE: Final = "job_cancelled"
FAILED_CODE: Final = "job_failed"


@attrs.frozen(kw_only=True)
class ResultQuery:
    """How long to wait."""

    wait_ms: int = whole(
        doc="milliseconds to wait, if the job has not ended",
        low=0,
        high=WAIT_MS_MAX,
        default=WAIT_MS,
    )


@attrs.frozen(kw_only=True)
class JobResult:
    """The job is COMPLETED."""

    id: UUID
    status: JobStatus
    finished_at: datetime
    result: Any


@attrs.frozen(kw_only=True)
class JobGoesOn:
    """The job has not ended: ask again."""

    id: UUID
    has_ended: bool = False
    waiting_on: str | None = field(
        default=None, doc="`code`: it waits for code that fits it, which no pod has"
    )
    misfit: str | None = field(
        default=None,
        doc="then: the misfit that the last code reported; null: no pod has its type or tools",
    )


@attrs.frozen(kw_only=True)
class JobProblem(Problem):
    """The job is FAILED, with its own code and message, or CANCELLED, with person and reason."""

    job_id: UUID
    job_status: JobStatus
    finished_at: datetime
    error_class: str | None = None
    """For a FAILED job: the class of its error."""
    cancelled_by: str | None = None
    cancel_reason: str | None = None


async def result_of_job(request: CheckedRequest[ResultQuery, None], api: Api) -> Response:
    """Wait until the job has ended, the time is over, the client has left, or the pod drains."""
    job_id = request.path["job_id"]
    is_drain_new = not api.pod.draining.is_set()
    may_wait = is_drain_new and request.request.method != "HEAD"
    wait_s = request.query.wait_ms / 1000 if may_wait else 0.0
    state: JobState | CodeWait | None = None
    has_left = False
    async with trio.open_nursery() as nursery:

        async def until_gone() -> None:
            nonlocal has_left
            await until_left(request.request)
            has_left = True
            nursery.cancel_scope.cancel(reason="the client has left")

        async def until_draining() -> None:
            await api.pod.draining.wait()
            nursery.cancel_scope.cancel(reason="the pod drains")

        nursery.start_soon(until_gone)
        if is_drain_new:
            nursery.start_soon(until_draining)
        state = await api.pod.result(job_id, wait_s)
        nursery.cancel_scope.cancel(reason="the result is known")
    if has_left:
        raise ClientDisconnect
    return _result(job_id, state)


def _result(job_id: UUID, state: JobState | CodeWait | None) -> Response:
    match state:
        case None:
            return answer(
                JobGoesOn(id=job_id), status=202, headers={"Retry-After": str(ASK_AGAIN_S)}
            )
        case CodeWait(misfit):
            return answer(
                JobGoesOn(id=job_id, waiting_on=CODE, misfit=misfit),
                status=202,
                headers={"Retry-After": str(FOR_CODE_S)},
            )
        case JobState(status=JobStatus.COMPLETED):
            return answer(
                JobResult(
                    id=job_id,
                    status=state.status,
                    finished_at=state.finished_at,
                    result=orjson.Fragment(state.result or "null"),
                )
            )
        case _:
            return response_of(_problem(job_id, state))


def _problem(job_id: UUID, state: JobState) -> JobProblem:
    if state.status is JobStatus.CANCELLED:
        why = f": {state.cancel_reason}" if state.cancel_reason else ""
        detail = f"the job was cancelled by {state.cancelled_by or 'someone'}{why}"
        code = CANCELLED_CODE
    else:
        detail, code = state.error_message or "", state.error_code or FAILED_CODE
    return JobProblem(
        type=f"urn:cortex:job:{state.status.lower()}",
        title=f"The job is {state.status}",
        status=422,
        detail=detail,
        code=code,
        job_id=job_id,
        job_status=state.status,
        finished_at=state.finished_at,
        error_class=state.error_class,
        cancelled_by=state.cancelled_by,
        cancel_reason=state.cancel_reason,
    )


ROUTES: Final = (
    read(
        f"{JOB_PATH}/result",
        result_of_job,
        "Wait for a job's result.",
        params=JOB_PARAMS,
        query=ResultQuery,
        answers={200: JobResult, 202: JobGoesOn, 422: JobProblem},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
)
