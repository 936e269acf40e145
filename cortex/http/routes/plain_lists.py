"""Lists without filters: by name of what files declare and people set, else whole."""

from typing import Final

from cortex.domain.token import Role
from cortex.http.framework.resource import list_all, list_by_name
from cortex.http.framework.tenancy import Tenancy
from cortex.view.resources.budgets import BUDGETS
from cortex.view.resources.job_types import TYPES
from cortex.view.resources.limits import LIMITS
from cortex.view.resources.mcp_tools import MCP_TOOLS
from cortex.view.resources.patches import PATCHES
from cortex.view.resources.people import PEOPLE
from cortex.view.resources.quotas import CAPS, QUOTAS
from cortex.view.resources.runners import RUNNERS
from cortex.view.resources.specs import AGENTS, FLOWS
from cortex.view.resources.subscriptions import SUBSCRIPTIONS

ROUTES: Final = (
    list_by_name(
        AGENTS,
        summary="List agents with their newest versions, by name.",
        tenancy=Tenancy.FILTERED,
    ),
    list_by_name(
        FLOWS, summary="List flows with their newest versions, by name.", tenancy=Tenancy.SHARED
    ),
    list_by_name(
        BUDGETS,
        summary="List budgets and their remaining amounts, by name.",
        tenancy=Tenancy.FILTERED,
    ),
    list_by_name(
        QUOTAS, summary="List quotas and their usage, by name.", tenancy=Tenancy.INSTALLATION
    ),
    list_by_name(
        LIMITS,
        summary="List limits of job types, and what counts of their keys, by name.",
        tenancy=Tenancy.INSTALLATION,
    ),
    list_by_name(
        PEOPLE,
        summary="List people and what proves them, by name.",
        role=Role.ADMIN,
        tenancy=Tenancy.INSTALLATION,
    ),
    list_by_name(
        CAPS,
        summary="List caps of tenants, and what counts towards them.",
        tenancy=Tenancy.FILTERED,
    ),
    list_all(
        MCP_TOOLS,
        summary="List tools of MCP servers that agents have used, and what waits for a person.",
        tenancy=Tenancy.INSTALLATION,
    ),
    list_all(
        PATCHES,
        summary="List patches in job code, and how many unfinished jobs need each branch.",
        tenancy=Tenancy.INSTALLATION,
    ),
    list_all(RUNNERS, summary="List background work and its health.", tenancy=Tenancy.INSTALLATION),
    list_all(SUBSCRIPTIONS, summary="List who gets which messages.", tenancy=Tenancy.INSTALLATION),
    list_all(
        TYPES, summary="List job types, their arguments, and which run now.", tenancy=Tenancy.SHARED
    ),
)
