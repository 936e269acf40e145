"""`/metrics`, for Prometheus. It contains names of tools, models and job types: not public."""

from typing import Final

from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import read
from cortex.http.framework.tenancy import Tenancy


async def metrics(_: CheckedRequest[None, None], api: Api) -> Response:
    """Return the pod's own metrics, and those of the whole system."""
    page, content_type = await api.pod.exposition()
    return Response(page, headers={"Content-Type": content_type})


ROUTES: Final = (
    read(
        "/metrics",
        metrics,
        "Show the pod's metrics, for Prometheus.",
        answers={200: None},
        media="text/plain",
        role=Role.METRICS,
        tenancy=Tenancy.INSTALLATION,
    ),
)
