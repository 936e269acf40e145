"""`POST /v1/jobs`."""

from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
from starlette.responses import Response

from cortex.crash_points import crash_point
from cortex.domain.argument_check import check_payload
from cortex.domain.errors import ForbiddenError, InvalidValueError
from cortex.domain.job import APPROVAL_NOTIFY, Submission
from cortex.domain.policy import (
    DELAY_MAX_S,
    KEY_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    TIMEOUT_MAX_S,
    check_timeout,
    default_timeout_s,
    refuse_bulk,
    request_of,
    require_agent,
)
from cortex.domain.tracing.traceparent import HEADER, TraceParent
from cortex.durable.codec import parse_payload
from cortex.http.folder import confine
from cortex.http.framework.api import Api, CheckedRequest, PodView
from cortex.http.framework.body import BYTES_MAX
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import answer, change
from cortex.http.framework.shape import field, number, text, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.job_rights import require_right, require_submission
from cortex.http.routes.jobs import JOB_PATH
from cortex.postgres.database import Database
from cortex.store import approvals, codes, jobs
from cortex.store.codes import ServedType
from cortex.view.jobs import unserved
from cortex.view.verbs import SUBMIT_JOB


@attrs.frozen(kw_only=True)
class JobSubmission:
    """A submitted job; omitted fields default to those of its type."""

    type: str = text(doc="job type; a pod must have registered it", length_min=1, length_max=100)
    payload: dict[str, Any] = field(doc="the handler's arguments by name", factory=dict)
    agent: str | None = text(
        doc="the agent to run", length_min=1, length_max=NAME_MAX, default=None
    )
    tenant: str | None = text(
        doc="tenant of the job", length_min=1, length_max=NAME_MAX, default=None
    )
    queue: str | None = text(
        doc="queue whose jobs run one by one", length_min=1, length_max=NAME_MAX, default=None
    )
    priority: int | None = whole(
        doc="lower numbers run first", low=-PRIORITY_MAX, high=PRIORITY_MAX, default=None
    )
    delay_s: float | None = number(
        doc="earliest start, in seconds from now", low=0, high=DELAY_MAX_S, default=None
    )
    due_by: datetime | None = field(
        doc="deadline, by which jobs of one priority are ordered; a late job runs, too",
        default=None,
    )
    timeout_s: int | None = whole(
        doc="maximum run time in seconds, all attempts together",
        low=1,
        high=TIMEOUT_MAX_S,
        default=None,
    )
    max_retries: int | None = whole(
        doc="application retries", low=0, high=RETRIES_MAX, default=None
    )
    tags: list[str] = field(doc="words to find it by: at most 20", factory=list)
    key: str | None = text(
        doc="replaces the waiting job with this key", length_min=1, length_max=KEY_MAX, default=None
    )


@attrs.frozen(kw_only=True)
class Submitted:
    """The job is recorded, and will run."""

    id: UUID
    is_new: bool = field(
        doc="false: the rule of its type made the request stand for a job that existed"
    )
    remark: str | None = field(
        doc="why it waits for now: no ready pod has its job type, so nothing checked its payload"
    )


async def submit_job(requested: CheckedRequest[None, JobSubmission], api: Api) -> Response:
    """Submit a job; for a used key, return the id of the first request."""
    refuse_bulk(requested.body.type, requested.body.queue)  # its requests have their own routes
    require_right(requested.body.type, requested.principal)
    submitted = requested.body
    require_submission(submitted.type, submitted.payload, submitted.key, requested.principal)
    body = attrs.evolve(requested.body, tenant=own_tenant(requested, requested.body.tenant))
    new_id = api.chance.new_id()
    submission = await api.apart(
        partial(_submission, body, new_id, api.pod, _traceparent(requested)),
        size=requested.size,
    )
    remark = await _check(submission, api, size=requested.size)
    by, credential = requested.principal.name, requested.principal.credential
    if requested.key is None:
        crash_point("before_act")
        job_id = await api.port(jobs.submit_once, submission, by=by, credential=credential)
        crash_point("after_act")
        return _submitted(job_id, remark, {}, is_new=job_id == submission.id)

    async def work(db: Database) -> dict[str, Any]:
        batch = await jobs.submit(db, [submission], by=by, credential=credential)
        job_id = batch.job_of(submission.id)
        return {"id": str(job_id), "is_new": job_id == submission.id}

    request = await api.apart(partial(request_of, submission), size=requested.size)
    done = await once(requested, api, work, operation="jobs.submit", request=request)
    first = done.response
    return _submitted(UUID(first["id"]), remark, headers_of(done), is_new=first["is_new"])


def own_tenant(requested: CheckedRequest[Any, Any], asked: str | None) -> str | None:
    """Return the tenant to use. Raises `ForbiddenError` for one that is not the caller's."""
    own = requested.tenant
    if own is None:
        return asked
    if asked not in (None, own):
        raise ForbiddenError(
            f"{requested.principal.name}'s token is of tenant {own}, not {asked}",
            hint="leave out the tenant: it is that of the token",
        )
    return own


def _submission(
    body: JobSubmission, new_id: UUID, pod: PodView, traceparent: str | None
) -> Submission:
    require_agent(body.type, body.agent)
    payload = parse_payload(orjson.dumps(confine(body.type, body.payload, pod.folder_roots)))
    return Submission(
        id=new_id,
        type=body.type,
        payload=payload,
        agent=body.agent,
        tenant=body.tenant,
        queue_name=body.queue,
        priority=body.priority,
        delay_s=body.delay_s,
        due_by=body.due_by,
        timeout_s=body.timeout_s,
        max_retries=body.max_retries,
        job_key=body.key,
        tags=tuple(body.tags),
        traceparent=traceparent,
    )


def _traceparent(requested: CheckedRequest[None, JobSubmission]) -> str | None:
    """Return the span that the request is part of; a broken header is ignored."""
    headers = requested.request.headers.getlist(HEADER)
    parent = TraceParent.parse(headers[0]) if len(headers) == 1 else None
    return None if parent is None else str(parent)


async def check_live(job_type: str, payload: str, api: Api, *, size: int) -> ServedType:
    """Raise `InvalidValueError` for a payload that no ready pod takes; return what they serve."""
    check = partial(check_payload, job_type, payload, own=api.pod.find_type(job_type))
    served = await api.port(codes.served, job_type, is_exact=False)
    try:
        await api.apart(partial(check, live=served.codes), size=size)
    except InvalidValueError:  # by the code of a pod that has just died, perhaps
        served = await api.port(codes.served, job_type, is_exact=True)
        await api.apart(partial(check, live=served.codes), size=size)
    return served


async def _check(submission: Submission, api: Api, *, size: int) -> str | None:
    """Refuse what no ready pod takes; return why the job waits, if no such pod has its type."""
    job_type = submission.type
    served = await check_live(job_type, submission.payload, api, size=size)
    if submission.timeout_s is not None:
        default_s = default_timeout_s(job_type, served.timeout_s)
        check_timeout(job_type, submission.timeout_s, default_s=default_s, name="timeout_s")
    if job_type == APPROVAL_NOTIFY:
        await api.port(approvals.require_named, submission)
    return unserved(job_type, served)


def _submitted(
    job_id: UUID, remark: str | None, headers: dict[str, str], *, is_new: bool
) -> Response:
    location = {"Location": JOB_PATH.format(job_id=job_id)}
    return answer(
        Submitted(id=job_id, is_new=is_new, remark=remark),
        status=201 if is_new else 200,
        headers=headers | location,
    )


ROUTES: Final = (
    change(
        SUBMIT_JOB,
        "/v1/jobs",
        submit_job,
        "Submit a job.",
        body=JobSubmission,
        body_max=BYTES_MAX,
        answers={200: Submitted, 201: Submitted},
        refuses=(404,),
        tenancy=Tenancy.FILTERED,
    ),
)
