"""`/v1/schedules`: what the clock submits, what became of it, and changes by people."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.job import JobStatus
from cortex.domain.schedules.schedule import Origin, Outcome, Overlap
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Handler, Method, Route, answer
from cortex.http.framework.shape import field, record, text
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store.background import schedules as store

LIMIT_MAX: Final = 200
INSTANTS_SHOWN: Final = 50
NAME_MAX: Final = 100
SCHEDULE: Final = "/v1/schedules/{schedule}"
NAME_PARAM: Final = {"schedule": {"type": "string", "minLength": 1, "maxLength": NAME_MAX}}


@attrs.frozen(kw_only=True)
class SchedulesQuery:
    """Selects schedules by name."""

    after: str = text(doc="names after this one", length_max=NAME_MAX, default="")
    limit: int = limit_field(LIMIT_MAX)


@attrs.frozen(kw_only=True)
class ScheduleRow:
    """A schedule: what it submits, and when."""

    name: str
    cron: str
    zone: str
    type: str
    arguments: Any
    agent: str | None
    tenant: str
    backfill_s: int = field(doc="how late an instant may be and still fire")
    overlap: Overlap = field(doc="while an earlier job is open")
    jitter_s: int
    instant_as: str | None = field(doc="the argument that gets the instant")
    origin: Origin = field(doc="who declares it")
    next_at: datetime | None = field(doc="the next instant")
    due_at: datetime | None = field(doc="when its job is submitted: with its jitter")
    is_served: bool = field(doc="a living pod can run its jobs")
    is_declared: bool = field(doc="false: no living pod's code declares it any more")
    has_missed: bool = field(
        doc="an instant was missed, as was noticed within the last hour; false for built-in ones"
    )
    problem: str | None = field(doc="why it cannot be evaluated")
    queued: int = field(doc="instants that wait for an earlier job")
    missed_count: int = field(doc="instants older than the backfill period")
    missed_at: datetime | None
    last_instant: datetime | None
    last_outcome: Outcome | None
    last_job_id: UUID | None
    last_status: JobStatus | None
    last_error: str | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    changed_by: str
    changed_at: datetime
    reason: str
    created_at: datetime


@attrs.frozen(kw_only=True)
class Schedules:
    """A page of schedules, by name."""

    schedules: list[ScheduleRow]


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


@attrs.frozen(kw_only=True)
class Schedule:
    """A schedule and its last instants, the newest first."""

    schedule: ScheduleRow
    instants: list[Instant]


@attrs.frozen(kw_only=True)
class ScheduleAct:
    """Why it is changed."""

    reason: str = reason_field()


@attrs.frozen(kw_only=True)
class Triggered:
    """The submitted job."""

    schedule: str
    job_id: UUID


async def list_schedules(request: CheckedRequest[SchedulesQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(store.page, after=query.after, limit=query.limit)
    return answer(Schedules(schedules=[record(ScheduleRow, row) for row in rows]))


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
        job_id = await store.trigger(db, name, by=by, reason=reason)
        return Triggered(schedule=name, job_id=job_id)

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


async def _shown(api: Api, name: str) -> Schedule:
    row = await api.port(store.show, name)
    rows = await api.port(store.instants, name, limit=INSTANTS_SHOWN)
    return Schedule(
        schedule=record(ScheduleRow, row), instants=[record(Instant, each) for each in rows]
    )


def _act(verb: str, handle: Handler, returns: type, summary: str, *refuses: int) -> Route:
    return Route(
        method=Method.POST,
        path=f"{SCHEDULE}/{verb}",
        handle=handle,
        role=Role.OPERATOR,
        summary=summary,
        params=NAME_PARAM,
        body=ScheduleAct,
        answers={200: returns},
        refuses=(404, *refuses),
        takes_key=True,
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/schedules",
        handle=list_schedules,
        role=Role.VIEWER,
        summary="List schedules by name.",
        query=SchedulesQuery,
        answers={200: Schedules},
    ),
    Route(
        method=Method.GET,
        path=SCHEDULE,
        handle=show_schedule,
        role=Role.VIEWER,
        summary="Show a schedule and its last instants.",
        params=NAME_PARAM,
        answers={200: Schedule},
        refuses=(404,),
    ),
    _act("pause", pause_schedule, Schedule, "Fire nothing until the schedule is resumed.", 409),
    _act("resume", resume_schedule, Schedule, "Resume a paused schedule.", 409),
    _act("trigger", trigger_schedule, Triggered, "Submit a job of a schedule now."),
)
