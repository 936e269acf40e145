"""`/v1/jobs/{job_id}/signals` and `/v1/signals`: events from outside for jobs."""

from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.errors import NotFoundError
from cortex.domain.policy import NAME_MAX
from cortex.domain.signals import KEY_CHARS_MAX, NAME_CHARS_MAX, check_key, check_name, payload_of
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.body import BYTES_MAX
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import document_of, schema_of_document, schema_of_rows
from cortex.http.framework.route import answer, change, read
from cortex.http.framework.shape import field, text, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.http.routes.job_submit import own_tenant
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.postgres.database import Database
from cortex.store import jobs, signals
from cortex.view.resources.signals import SIGNAL
from cortex.view.verbs import SIGNAL_JOB

SEQ_MAX: Final = 10**18 - 1
SIGNALS: Final = schema_of_document(
    "Signals",
    doc="A page of signals, in the order of their arrival.",
    signals=(list[schema_of_rows(SIGNAL)], ""),  # type: ignore[misc]
    next_after=(int | None, "`after` of the next page; null: there are no more yet"),
)


@attrs.frozen(kw_only=True)
class JobSignal:
    """A signal to one job."""

    name: str = text(doc="what the job receives it as", length_min=1, length_max=NAME_CHARS_MAX)
    payload: Any = field(doc="any JSON, at most 256 KiB", default=None)
    reason: str = reason_field(SIGNAL_JOB)


@attrs.frozen(kw_only=True)
class KeySignal(JobSignal):
    """A signal to a key: for the job that asks for it, also one that is not submitted yet."""

    key: str = text(doc="such as order-8812; kept 24 h", length_min=1, length_max=KEY_CHARS_MAX)
    tenant: str | None = text(
        doc="of the jobs that may receive it", length_min=1, length_max=NAME_MAX, default=None
    )


@attrs.frozen(kw_only=True)
class Sent:
    """The signal waits for a job."""

    id: UUID


async def signal_job(requested: CheckedRequest[None, JobSignal], api: Api) -> Response:
    """Send a signal to a job that has not ended."""
    return await _send(requested, api, job=requested.path["job_id"], key=None, tenant=None)


async def signal_key(requested: CheckedRequest[None, KeySignal], api: Api) -> Response:
    """Send a signal to a key."""
    body = requested.body
    tenant = own_tenant(requested, body.tenant)
    return await _send(requested, api, job=None, key=body.key, tenant=tenant)


async def _send(
    requested: CheckedRequest[None, Any],
    api: Api,
    *,
    job: UUID | None,
    key: str | None,
    tenant: str | None,
) -> Response:
    body = requested.body
    name, given, reason = body.name, body.payload, body.reason
    check_name(name)
    if key is not None:
        check_key(key)
    payload = payload_of(given, what=f"signal {name!r:.60}")
    caller = requested.principal

    async def work(db: Database) -> UUID:
        return await signals.send(
            db,
            name,
            payload,
            job=job,
            key=key,
            tenant=tenant,
            by=caller.name,
            credential=caller.credential,
            reason=reason,
        )

    target = {"job": job, "key": key, "tenant": tenant}
    request = {**target, "name": name, "payload": given, "reason": reason}
    done = await once(requested, api, work, operation="jobs.signal", request=request)
    return answer(Sent(id=UUID(done.response)), status=201, headers=headers_of(done))


@attrs.frozen(kw_only=True)
class SignalsQuery:
    """Selects signals, in the order of their arrival."""

    after: int = whole(doc="`next_after` of the previous page", low=0, high=SEQ_MAX, default=0)
    limit: int = limit_field()
    waiting: bool = field(doc="only those that no step has received", default=False)


async def list_signals(requested: CheckedRequest[SignalsQuery, None], api: Api) -> Response:
    """List what was sent to a job, and what it received from keys."""
    job_id, query = requested.path["job_id"], requested.query
    rows = await api.port(
        signals.of_job,
        job_id,
        after=query.after,
        limit=query.limit + 1,
        is_waiting=query.waiting,
    )
    if not rows and not await api.port(jobs.counts, [job_id]):
        raise NotFoundError(f"job {job_id} does not exist")
    shown = [document_of(SIGNAL, row) for row in rows[: query.limit]]
    next_after = rows[query.limit - 1].seq if len(rows) > query.limit else None
    return answer({"signals": shown, "next_after": next_after})


ROUTES: Final = (
    change(
        SIGNAL_JOB,
        f"{JOB_PATH}/signals",
        signal_job,
        "Send a signal to a job.",
        params=JOB_PARAMS,
        body=JobSignal,
        body_max=BYTES_MAX,
        answers={201: Sent},
        refuses=(404, 409),
        tenancy=Tenancy.JOB,
    ),
    read(
        f"{JOB_PATH}/signals",
        list_signals,
        "List a job's signals: those that wait, and those that it has received.",
        params=JOB_PARAMS,
        query=SignalsQuery,
        answers={200: SIGNALS},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    change(
        SIGNAL_JOB,
        "/v1/signals",
        signal_key,
        "Send a signal to a key, for the job that asks for it, now or within 24 hours.",
        body=KeySignal,
        body_max=BYTES_MAX,
        answers={201: Sent},
        refuses=(409,),
        tenancy=Tenancy.FILTERED,
    ),
)
