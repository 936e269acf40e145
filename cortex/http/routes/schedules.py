"""`/v1/schedules`: what the clock submits, what became of it, and changes by people."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.job import JobStatus
from cortex.domain.schedules.schedule import Outcome
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import list_by_name, schema_of_document, schema_of_rows
from cortex.http.framework.route import Handler, Route, answer, change, read
from cortex.http.framework.shape import field, record
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.http.routes.job_rights import require_right
from cortex.postgres.database import Database
from cortex.store.background import schedules as store
from cortex.view.resources.schedules import SCHEDULES
from cortex.view.verbs import PAUSE_SCHEDULE

INSTANTS_SHOWN: Final = 50
NAME_MAX: Final = 100
SCHEDULE: Final = "/v1/schedules/{schedule}"
NAME_PARAM: Final = {"schedule": {"type": "string", "minLength": 1, "maxLength": NAME_MAX}}


@attrs.frozen(kw_only=True)
class Instant:
    """What became of an instant."""

    instant: datetime
    outcome: Outcome
    job_id: UUID | None
    status: JobStatus | None = field(doc="of its job")
    is_manual: bool = field(doc="a person triggered it")
    is_made_up: bool = field(doc="it was due in an outage, or came while such instants ran")
    error: str | None = field(doc="why it could not be submitted")
    reason: str | None = field(doc="why it was skipped, missed or made up for")
    at: datetime
    finished_at: datetime | None


SHOWN_SCHEDULE: Final = schema_of_document(
    "ShownSchedule",
    doc="A schedule and its last instants, the newest first.",
    schedule=(schema_of_rows(SCHEDULES), ""),
    instants=(list[Instant], ""),
)


@attrs.frozen(kw_only=True)
class ScheduleAct:
    """Why it is changed."""

    reason: str = reason_field(PAUSE_SCHEDULE)


@attrs.frozen(kw_only=True)
class Triggered:
    """The submitted job."""

    schedule: str
    job_id: UUID


async def show_schedule(request: CheckedRequest[None, None], api: Api) -> Response:
    return answer(await _shown(api, request.path["schedule"]))


async def pause_schedule(request: CheckedRequest[None, ScheduleAct], api: Api) -> Response:
    """Fire nothing until it is resumed; instants that fall into the pause never fire."""
    return await _change(request, api, store.pause)


async def resume_schedule(request: CheckedRequest[None, ScheduleAct], api: Api) -> Response:
    return await _change(request, api, store.resume)


async def trigger_schedule(request: CheckedRequest[None, ScheduleAct], api: Api) -> Response:
    """Submit a job of it now, beside its instants."""
    name, by, reason = request.path["schedule"], request.principal.name, request.body.reason

    async def work(db: Database) -> Triggered:
        job_id = await store.trigger(
            db, name, by=by, credential=request.principal.credential, reason=reason
        )
        return Triggered(schedule=name, job_id=job_id)

    require_right((await api.port(store.show, name)).type, request.principal)
    asked = {"name": name, "reason": reason}
    done = await once(request, api, work, operation="schedules.trigger", request=asked)
    return answer(done.response, headers=headers_of(done))


async def _change(
    request: CheckedRequest[None, ScheduleAct], api: Api, act: Callable[..., Awaitable[None]]
) -> Response:
    name, by, reason = request.path["schedule"], request.principal.name, request.body.reason

    async def work(db: Database) -> None:
        await act(db, name, by=by, reason=reason)

    asked = {"name": name, "reason": reason}
    done = await once(request, api, work, operation=f"schedules.{act.__name__}", request=asked)
    return answer(await _shown(api, name), headers=headers_of(done))


async def _shown(api: Api, name: str) -> dict[str, object]:
    row = await api.port(store.show, name)
    rows = await api.port(store.instants, name, limit=INSTANTS_SHOWN)
    return {"schedule": SCHEDULES.document(row), "instants": [record(Instant, r) for r in rows]}


def _act(verb: str, handle: Handler, returns: type, summary: str, *refuses: int) -> Route:
    return change(
        PAUSE_SCHEDULE,
        f"{SCHEDULE}/{verb}",
        handle,
        summary,
        params=NAME_PARAM,
        body=ScheduleAct,
        answers={200: returns},
        refuses=(404, *refuses),
        tenancy=Tenancy.SCHEDULE,
    )


ROUTES: Final = (
    list_by_name(SCHEDULES, summary="List schedules by name.", tenancy=Tenancy.FILTERED),
    read(
        SCHEDULE,
        show_schedule,
        "Show a schedule and its last instants.",
        params=NAME_PARAM,
        answers={200: SHOWN_SCHEDULE},
        refuses=(404,),
        tenancy=Tenancy.SCHEDULE,
    ),
    _act(
        "pause", pause_schedule, SHOWN_SCHEDULE, "Fire nothing until the schedule is resumed.", 409
    ),
    _act("resume", resume_schedule, SHOWN_SCHEDULE, "Resume a paused schedule.", 409),
    _act("trigger", trigger_schedule, Triggered, "Submit a job of a schedule now."),
)
