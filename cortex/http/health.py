"""Whether the pod lives and whether it takes work: for those who start, stop and balance pods.

Neither asks the database: a check that thousands may call must cost nothing. What the pod's own
calls have told lately is as good: a black hole shows after some seconds.
"""

from enum import StrEnum
from typing import Any

import attrs
from starlette.responses import Response

from cortex.domain.drain import DrainPhase, DrainRequest, Liveness
from cortex.domain.errors import Trouble
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import PUBLIC, Method, Route, answer
from cortex.http.framework.shape import told


@attrs.frozen(kw_only=True)
class Alive:
    """The event loop turns."""

    status: str = told(doc="always `ok`: a pod whose loop does not turn answers nothing")


class DrainWord(StrEnum):
    """How far a pod has come that a person asked to drain."""

    DRAINING = "draining"
    """Some jobs have not come to a checkpoint yet."""
    DRAINED = "drained"

    @classmethod
    def of(cls, request: DrainRequest) -> "DrainWord":
        return cls.DRAINING if request.jobs_left else cls.DRAINED


@attrs.frozen(kw_only=True)
class Readiness:
    """Whether the pod takes work, and what keeps it from that."""

    status: str = told(doc="`ready` or `not ready`")
    database: bool = told(doc="Postgres serves the pod's calls, and confirmed that it lives")
    database_trouble: Trouble | None = told(doc="what those calls suffer from; null: nothing")
    database_trouble_s: float | None = told(doc="for how many seconds")
    claiming: bool = told(doc="it takes jobs")
    not_draining: bool = told(doc="nobody has asked it to end, or to drain")
    drain_request: DrainWord | None = told(doc="a person asked it to drain and to stay; null: no")
    liveness: Liveness = told(doc="what shows others that it lives: `heartbeat` behind a pooler")
    phase: DrainPhase | None = told(doc="where it stands while it leaves; null: nobody asked it to")
    jobs_left: int | None = told(doc="jobs that it still runs; null unless it leaves or drains")
    abort_in_s: float | None = told(doc="seconds until those are handed back")
    closed_in_s: float | None = told(doc="seconds until it has ended, at the latest")


async def healthz(_: CheckedRequest[None, None], __: Api) -> Response:
    """Answer; that is all."""
    return answer(Alive(status="ok"))


async def readyz(_: CheckedRequest[None, None], api: Api) -> Response:
    """Answer 200 if the pod takes work, 503 if not, and say why."""
    seen, request = api.pod.trouble(), api.pod.drain_request()
    checks: dict[str, Any] = {
        "database": api.pod.is_sure() and seen is None,
        "claiming": api.pod.is_claiming() and seen is None,
        "not_draining": not api.pod.draining.is_set() and request is None,
    }
    is_ready = all(checks.values())
    leaving = api.pod.drain()
    found = Readiness(
        status="ready" if is_ready else "not ready",
        **checks,
        database_trouble=None if seen is None else seen.trouble,
        database_trouble_s=None if seen is None else round(seen.for_s, 1),
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
        summary="Whether the pod lives.",
        answers={200: Alive},
    ),
    Route(
        method=Method.GET,
        path="/readyz",
        handle=readyz,
        role=PUBLIC,
        summary="Whether the pod takes work.",
        answers={200: Readiness, 503: Readiness},
    ),
)
