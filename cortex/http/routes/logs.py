"""`/v1/jobs/{job_id}/logs` and `/v1/logs`: what code of jobs logged and printed."""

from enum import StrEnum
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.errors import NotFoundError
from cortex.domain.log_line import Level
from cortex.domain.phrases import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.resource import (
    page_of,
    schema_of_document,
    schema_of_page,
    schema_of_rows,
)
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, text, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.store import jobs, logs
from cortex.store.logs import LogPlace
from cortex.view.resources.logs import LOGS

ID_MAX: Final = 10**18 - 1
PAGE_MAX: Final = 1_000
PLACE_CHARS_MAX: Final = 700


class LevelWord(StrEnum):
    """Level of a log line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@attrs.frozen(kw_only=True)
class JobLogsQuery:
    """Selects lines of a job, in order."""

    after: str = text(
        doc="`next_after` of the previous page; also the way to follow a log",
        length_max=PLACE_CHARS_MAX,
        default="",
    )
    level: LevelWord = field(doc="from this level on", default=LevelWord.DEBUG)
    attempt: int | None = whole(doc="of this attempt", low=1, high=2**31 - 1, default=None)
    limit: int = limit_field(PAGE_MAX)


async def list_job_logs(request: CheckedRequest[JobLogsQuery, None], api: Api) -> Response:
    job_id, query = request.path["job_id"], request.query
    place = LogPlace.parse(query.after)
    rows = await api.port(logs.of_job_after, job_id, place=place, limit=query.limit)
    if not rows and not await api.port(jobs.counts, [job_id]):
        raise NotFoundError(f"job {job_id} does not exist")
    least = Level.of_word(query.level)
    shown = [row for row in rows if row.level >= least and query.attempt in (None, row.attempt)]
    has_more = len(rows) == query.limit
    return answer(page_of(LOGS, shown, next_after=str(place.after(rows)), has_more=has_more))


@attrs.frozen(kw_only=True)
class LogsQuery:
    """Selects lines of all jobs, the newest first."""

    level: LevelWord = field(doc="from this level on", default=LevelWord.DEBUG)
    since: str = text(doc="not older than 90s, 15m, 2h, 3d", length_max=8, default="1d")
    before: int | None = whole(
        doc="`next_before` of the previous page", low=1, high=ID_MAX, default=None
    )
    limit: int = limit_field(PAGE_MAX)


async def list_logs(request: CheckedRequest[LogsQuery, None], api: Api) -> Response:
    query, tenant = request.query, request.tenant
    since_s, least, before = parse_span(query.since), Level.of_word(query.level), query.before
    if tenant is not None:
        own, following = await api.port(
            logs.page_of_tenant,
            tenant,
            least=least,
            since_s=since_s,
            before=before,
            limit=query.limit,
        )
        return answer(page_of(LOGS, own, next_before=following))
    rows = await api.port(
        logs.page, least=least, since_s=since_s, before=before, limit=query.limit + 1
    )
    shown = rows[: query.limit]
    following = shown[-1].id if len(rows) > query.limit else None
    return answer(page_of(LOGS, shown, next_before=following))


ROUTES: Final = (
    Route(
        method=Method.GET,
        path=f"{JOB_PATH}/logs",
        handle=list_job_logs,
        role=Role.VIEWER,
        summary="List what a job's code logged and printed.",
        params=JOB_PARAMS,
        query=JobLogsQuery,
        answers={
            200: schema_of_document(
                "JobLogs",
                doc="A page of a job's log, in order.",
                logs=(list[schema_of_rows(LOGS)], ""),  # type: ignore[misc]
                next_after=(str, "`after` of the next page, also if there are no more lines yet"),
                has_more=(bool, "whether more lines can be read at once"),
            )
        },
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    Route(
        method=Method.GET,
        path="/v1/logs",
        handle=list_logs,
        role=Role.VIEWER,
        summary="List log lines of all jobs.",
        query=LogsQuery,
        answers={
            200: schema_of_page(
                LOGS,
                doc="A page of log lines, the newest first.",
                next_before=(int | None, "`before` of the next page; null: last page"),
            )
        },
        tenancy=Tenancy.FILTERED,
    ),
)
