"""`/v1/jobs/{job_id}/tree`: a job and the jobs below it."""

from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.budget import Unit
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.store import children
from cortex.store.children import SHOWN_MAX
from cortex.view.tree import flat

SHOWN_LIMIT: Final = 100


@attrs.frozen(kw_only=True)
class TreeQuery:
    """How much of the tree."""

    shown: int = whole(
        doc="children of each job, those that failed or run first",
        low=1,
        high=SHOWN_LIMIT,
        default=SHOWN_MAX,
    )


@attrs.frozen(kw_only=True)
class TreeBudget:
    """How much a job may spend, and has spent."""

    name: str
    unit: Unit
    limit_amount: Decimal = field(doc="in the unit")
    spent: Decimal = field(doc="in the unit")
    share_of: UUID | None = field(doc="the job that gave it to this one; null: people set it")


@attrs.frozen(kw_only=True)
class TreeNode:
    """A job of the tree."""

    id: UUID
    parent_id: UUID | None = field(doc="null: nobody's child")
    step: str | None = field(doc="the parent's step that submitted it")
    ordinal: int | None = field(doc="which of that step's children, from 0")
    type: str
    status: str | None = field(doc="null: it is not submitted")
    waiting_on: str | None
    is_detached: bool = field(doc="it goes on when its parent ends")
    is_withdrawn: bool = field(doc="it was given up before it began: its parent has ended")
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error_message: str | None
    budgets: list[TreeBudget] = field(doc="its own: a share of its parent's, and what people set")


@attrs.frozen(kw_only=True)
class TreeCount:
    """How many children of a step are in a state, also those that are not shown."""

    parent_id: UUID
    step: str
    status: str | None = field(doc="null: not submitted")
    is_withdrawn: bool = field(doc="they never will be: their parent has ended")
    count: int


@attrs.frozen(kw_only=True)
class Tree:
    """A job and those below it."""

    jobs: list[TreeNode] = field(doc="the job itself, then those below it, each after its parent")
    counts: list[TreeCount]


async def show_tree(request: CheckedRequest[TreeQuery, None], api: Api) -> Response:
    """Return a job and some of the jobs below it."""
    tree = await api.port(children.tree, request.path["job_id"], shown_max=request.query.shown)
    return answer(flat(tree))


ROUTES: Final = (
    read(
        f"{JOB_PATH}/tree",
        show_tree,
        "Show a job and the jobs that it has submitted, down to the leaves.",
        params=JOB_PARAMS,
        query=TreeQuery,
        answers={200: Tree},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
)
