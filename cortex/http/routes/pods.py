"""`/v1/pods`: pods and their health."""

from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain import drain
from cortex.domain.confinement import Confinement
from cortex.domain.drain import DrainPhase, Liveness
from cortex.domain.errors import Trouble
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, record, whole
from cortex.store import drains, pods

ENDED_MAX: Final = 50


class PodState(StrEnum):
    """State of a pod."""

    READY = "READY"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    DEAD = "DEAD"


@attrs.frozen(kw_only=True)
class PodsQuery:
    """Selects pods."""

    ended: int = whole(
        doc="number of stopped pods to include, the newest", low=0, high=ENDED_MAX, default=0
    )


class Whereabouts(StrEnum):
    """What became of a job that was handed back."""

    RUNS = "runs"
    WAITS = "waits"
    ENDED = "ended"
    LOST = "lost"


@attrs.frozen(kw_only=True)
class MovedJobs:
    """Jobs that were handed back and have the same outcome."""

    what: Whereabouts = field(doc="`lost`: nothing will ever run them")
    pod: str | None = field(doc="name of the pod where they run")
    count: int


@attrs.frozen(kw_only=True)
class Moved:
    """What became of the jobs that a pod handed back."""

    groups: list[MovedJobs]
    is_whole: bool = field(doc="false: some jobs were left out because there were too many")


@attrs.frozen(kw_only=True)
class Pod:
    """One run of `cortex up`."""

    id: UUID
    name: str
    version: str = field(doc="of Cortex")
    code_version: str | None = field(
        doc="of the application's code: setting `code_version`, else a digest of its sources"
    )
    state: PodState
    workers: int = field(doc="its processes that live, see `cortex up --workers`")
    running: int = field(doc="running jobs")
    slots: int = field(doc="maximum number of running jobs")
    job_types: list[str]
    started_at: datetime
    heartbeat_at: datetime = field(doc="last heartbeat")
    liveness: Liveness = field(doc="what proves that it lives: only `heartbeat` behind a pooler")
    confinement: Confinement | None = field(
        doc="what confines agents' programs; `unsafe`: unconfined by the operator's setting"
    )
    draining_at: datetime | None = field(doc="when it was asked to end, or began to drain")
    drain_requested_at: datetime | None = field(doc="when a person asked it to drain and stay")
    drain_requested_by: str | None = field(doc="the person who asked")
    drain_reason: str | None = field(doc="why")
    phase: DrainPhase | None = field(
        doc="current phase of the shutdown; for a dead pod, the last one"
    )
    phase_at: datetime | None = field(doc="start of that phase")
    abort_at: datetime | None = field(doc="when running jobs are, or were, handed back")
    closed_at: datetime | None = field(doc="latest end of the shutdown")
    ended_at: datetime | None
    trouble: Trouble | None = field(doc="trouble of its database calls")
    trouble_at: datetime | None = field(doc="start of the trouble")
    loop_lag_ms: float | None = field(doc="worst delay of its event loop")
    rss_bytes: int | None = field(doc="resident memory")
    hint_latency_ms: float | None = field(doc="delay of a notification; null: none arrives")
    threads_lost: int = field(
        doc="threads of sync functions that time-outs left behind and that have not ended"
    )
    oldest_lease_at: datetime | None = field(
        doc="least recent lease renewal among its jobs, or a lower bound"
    )
    longest_claim_at: datetime | None = field(
        doc="start of its longest-held job; null: none or unknown"
    )
    connections: int | None = field(
        doc="its database sessions; null if the server does not report them"
    )
    moved: Moved | None = field(
        doc="what became of the jobs that it handed back while draining or shutting down"
    )


@attrs.frozen(kw_only=True)
class Pods:
    """Living pods, then stopped ones."""

    pods: list[Pod]
    now: datetime | None = field(doc="the database's time, for comparison; null without pods")


async def list_pods(request: CheckedRequest[PodsQuery, None], api: Api) -> Response:
    rows = await api.port(drains.with_moved, await api.port(pods.page, ended=request.query.ended))
    found = [record(Pod, row, moved=_moved(row.moved)) for row in rows]
    return answer(Pods(pods=found, now=rows[0].now if rows else None))


def _moved(moved: drain.Moved | None) -> Moved | None:
    if moved is None:
        return None
    groups = [record(MovedJobs, group) for group in moved.groups]
    return Moved(groups=groups, is_whole=moved.is_whole)


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/pods",
        handle=list_pods,
        role=Role.VIEWER,
        summary="List pods and their health.",
        query=PodsQuery,
        answers={200: Pods},
    ),
)
