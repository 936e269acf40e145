"""`/v1/pods`: which pods there are, and how they feel."""

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
from cortex.http.framework.shape import record, told, whole
from cortex.store import drains, pods

ENDED_MAX: Final = 50


class PodState(StrEnum):
    """Where a pod stands."""

    READY = "READY"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    DEAD = "DEAD"


@attrs.frozen(kw_only=True)
class PodsQuery:
    """Which pods."""

    ended: int = whole(doc="so many that have ended, the newest", low=0, high=ENDED_MAX, default=0)


class Whereabouts(StrEnum):
    """What became of a job that was handed back."""

    RUNS = "runs"
    WAITS = "waits"
    ENDED = "ended"
    LOST = "lost"


@attrs.frozen(kw_only=True)
class MovedJobs:
    """Jobs that were handed back and of which the same became."""

    what: Whereabouts = told(doc="`lost`: nothing will ever run them")
    pod: str | None = told(doc="name of the pod where they run")
    count: int


@attrs.frozen(kw_only=True)
class Moved:
    """What became of the jobs that a pod has handed back."""

    groups: list[MovedJobs]
    is_whole: bool = told(doc="none is left out because there were too many")


@attrs.frozen(kw_only=True)
class Pod:
    """One run of `cortex up`."""

    id: UUID
    name: str
    version: str
    state: PodState
    running: int = told(doc="jobs that it runs")
    slots: int = told(doc="jobs that it can run at once")
    job_types: list[str]
    started_at: datetime
    heartbeat_at: datetime = told(doc="when it last said that it lives")
    liveness: Liveness = told(doc="what shows that it lives: `heartbeat` alone behind a pooler")
    confinement: Confinement | None = told(
        doc="what confines programs of agents; `unsafe`: the operator lets them run free"
    )
    draining_at: datetime | None = told(doc="when it was asked to end, or began to drain")
    drain_requested_at: datetime | None = told(doc="when a person asked it to drain and to stay")
    drain_requested_by: str | None = told(doc="who asked")
    drain_reason: str | None = told(doc="why")
    phase: DrainPhase | None = told(doc="where it stands while it leaves; of a dead one, stood")
    phase_at: datetime | None = told(doc="when that phase began")
    abort_at: datetime | None = told(doc="when jobs that it still runs are handed back, or were")
    closed_at: datetime | None = told(doc="by when it has ended")
    ended_at: datetime | None
    trouble: Trouble | None = told(doc="what its calls to the database suffer from")
    trouble_at: datetime | None = told(doc="since when")
    loop_lag_ms: float | None = told(doc="how late its event loop was at the worst")
    rss_bytes: int | None = told(doc="memory that it holds")
    hint_latency_ms: float | None = told(doc="how long a notification takes; null: none arrives")
    oldest_lease_at: datetime | None = told(
        doc="when that of its jobs was renewed that has waited for longest, or at the earliest"
    )
    longest_claim_at: datetime | None = told(
        doc="since when it has had the job that it has had for longest; null: none, or not known"
    )
    connections: int | None = told(
        doc="its sessions in the database; null where the server cannot tell whose they are"
    )
    moved: Moved | None = told(
        doc="what became of the jobs that it handed back since it leaves or is drained"
    )


@attrs.frozen(kw_only=True)
class Pods:
    """The living pods, then those that have ended."""

    pods: list[Pod]
    now: datetime | None = told(doc="the database's time, to compare with; null without pods")


async def list_pods(asked: CheckedRequest[PodsQuery, None], api: Api) -> Response:
    """Return the pods."""
    rows = await api.port(drains.with_moved, await api.port(pods.page, ended=asked.query.ended))
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
        summary="List pods and how they feel.",
        query=PodsQuery,
        answers={200: Pods},
    ),
)
