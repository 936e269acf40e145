"""Liveness and readiness of the pod, for supervisors and load balancers.

Neither asks the database: a check that thousands may call must cost nothing. The results of the
pod's own recent calls are as good: a black hole shows after some seconds.
"""

from enum import StrEnum
from typing import Any

import attrs
from starlette.responses import Response

from cortex.domain.drain import DrainPhase, DrainRequest, Liveness
from cortex.domain.errors import Trouble
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import PUBLIC, Method, Route, answer
from cortex.http.framework.shape import field
from cortex.http.framework.tenancy import Tenancy


@attrs.frozen(kw_only=True)
class Alive:
    """The event loop turns."""

    status: str = field(doc="always `ok`: a pod with a blocked loop does not answer")


class DrainWord(StrEnum):
    """Progress of a drain that a person requested."""

    DRAINING = "draining"
    """Some jobs have not reached a checkpoint yet."""
    DRAINED = "drained"

    @classmethod
    def of(cls, request: DrainRequest) -> "DrainWord":
        return cls.DRAINING if request.jobs_left else cls.DRAINED


@attrs.frozen(kw_only=True)
class Readiness:
    """Whether the pod takes work, and the reasons if not."""

    status: str = field(doc="`ready` or `not ready`")
    database: bool = field(doc="Postgres answers the pod's calls, and confirmed its heartbeat")
    database_trouble: Trouble | None = field(doc="trouble of these calls; null: none")
    database_trouble_s: float | None = field(doc="duration of the trouble in seconds")
    claiming: bool = field(doc="it takes jobs")
    not_draining: bool = field(doc="the pod was not asked to end or to drain")
    workers: bool = field(doc="all of its worker processes take jobs; the rest is of the first one")
    drain_request: DrainWord | None = field(doc="drain requested by a person; null: none")
    liveness: Liveness = field(doc="how others see that it lives: `heartbeat` behind a pooler")
    phase: DrainPhase | None = field(doc="current phase of the shutdown; null: not shutting down")
    jobs_left: int | None = field(doc="jobs still running; null unless it shuts down or drains")
    abort_in_s: float | None = field(doc="seconds until these are handed back")
    closed_in_s: float | None = field(doc="seconds until it has ended, at the latest")


async def healthz(_: CheckedRequest[None, None], __: Api) -> Response:
    return answer(Alive(status="ok"))


async def readyz(_: CheckedRequest[None, None], api: Api) -> Response:
    """Answer 200 if the pod takes work, else 503 with the reasons."""
    observed, request = api.pod.trouble(), api.pod.drain_request()
    checks: dict[str, Any] = {
        **attrs.asdict(api.pod.checks()),
        "workers": api.pod.are_workers_ready(),
    }
    is_ready = all(checks.values())
    leaving = api.pod.drain()
    found = Readiness(
        status="ready" if is_ready else "not ready",
        **checks,
        database_trouble=None if observed is None else observed.trouble,
        database_trouble_s=None if observed is None else round(observed.for_s, 1),
        liveness=Liveness.of(is_pooled=api.port.is_pooled),
        phase=None if leaving is None else leaving.phase,
        drain_request=None if request is None else DrainWord.of(request),
        jobs_left=None if (counted := leaving or request) is None else counted.jobs_left,
        abort_in_s=None if leaving is None else round(leaving.abort_in_s, 1),
        closed_in_s=None if leaving is None else round(leaving.closed_in_s, 1),
    )
    return answer(found, status=200 if is_ready else 503)


ROUTES = (
    Route(
        method=Method.GET,
        path="/healthz",
        handle=healthz,
        role=PUBLIC,
        summary="Check whether the pod is alive.",
        answers={200: Alive},
        tenancy=Tenancy.SHARED,
    ),
    Route(
        method=Method.GET,
        path="/readyz",
        handle=readyz,
        role=PUBLIC,
        summary="Check whether the pod takes work.",
        answers={200: Readiness, 503: Readiness},
        tenancy=Tenancy.SHARED,
    ),
)
