"""All routes of the API; each resource declares its own."""

from typing import Final

from cortex.http import health, openapi
from cortex.http.route import Route
from cortex.http.routes import approvals, pods

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *approvals.ROUTES,
    *pods.ROUTES,
)
"""What the OpenAPI document tells, and the server answers; that document itself comes last."""

ALL: Final[tuple[Route, ...]] = (*ROUTES, openapi.route(ROUTES))
