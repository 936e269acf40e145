"""Whether the pod lives and whether it takes work: for those who start, stop and balance pods.

Neither asks the database: the heartbeat has, and a check that thousands may call must cost nothing.
"""

from typing import Any

import attrs
from starlette.responses import Response

from cortex.http.api import Api, Asked
from cortex.http.route import PUBLIC, Method, Route, answer
from cortex.http.shape import told


@attrs.frozen(kw_only=True)
class Alive:
    """The event loop turns."""

    status: str = told(doc="always `ok`: a pod whose loop does not turn answers nothing")


@attrs.frozen(kw_only=True)
class Readiness:
    """Whether the pod takes work, and what keeps it from that."""

    status: str = told(doc="`ready` or `not ready`")
    database: bool = told(doc="Postgres was there when the pod last said that it lives")
    claiming: bool = told(doc="it takes jobs")
    not_draining: bool = told(doc="nobody has asked it to end")


async def healthz(_: Asked[None, None], __: Api) -> Response:
    """Answer; that is all."""
    return answer(Alive(status="ok"))


async def readyz(_: Asked[None, None], api: Api) -> Response:
    """Answer 200 if the pod takes work, 503 if not, and say why."""
    checks: dict[str, Any] = {
        "database": api.pod.is_sure(),
        "claiming": api.pod.is_claiming(),
        "not_draining": not api.pod.draining.is_set(),
    }
    is_ready = all(checks.values())
    found = Readiness(status="ready" if is_ready else "not ready", **checks)
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
