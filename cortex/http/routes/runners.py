"""`/v1/runners`: background work and its health."""

from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, record
from cortex.store.background import runners


@attrs.frozen(kw_only=True)
class Runner:
    """Background work of one kind: its last run in any process, and totals."""

    name: str
    is_late: bool = field(doc="it has not succeeded for five intervals")
    interval_s: float = field(doc="the longest time between two of its runs, in seconds")
    started_at: datetime | None = field(doc="start of the last run; null: only skipped so far")
    duration_s: float | None = field(doc="how long that run took, in seconds")
    items: int | None = field(doc="items that it handled")
    error: str | None = field(doc="why it failed; null: it succeeded")
    holder: str | None = field(doc="the process that ran it")
    succeeded_at: datetime | None = field(doc="when a run last succeeded")
    first_at: datetime = field(doc="when it was recorded first")
    run_count: int
    item_count: int
    error_count: int
    skip_count: int = field(doc="runs skipped because another process was doing it")
    busy_s: float = field(doc="time that all runs took, in seconds")


@attrs.frozen(kw_only=True)
class Runners:
    """All runners by name."""

    runners: list[Runner]
    now: datetime | None = field(doc="the database's time, for comparison; null without runners")


async def list_runners(_: CheckedRequest[None, None], api: Api) -> Response:
    rows = await api.port(runners.page)
    return answer(
        Runners(runners=[record(Runner, row) for row in rows], now=rows[0].now if rows else None)
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/runners",
        handle=list_runners,
        role=Role.VIEWER,
        summary="List background work and its health.",
        answers={200: Runners},
    ),
)
