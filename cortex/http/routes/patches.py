"""`/v1/patches`: which unfinished jobs need which branch of a change to their code."""

from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, record
from cortex.store import steps


@attrs.frozen(kw_only=True)
class Patch:
    """A patch in the code of one job type."""

    patch: str = field(doc="the id given to `ctx.patched`")
    type: str
    old: int = field(doc="unfinished jobs that keep the old branch")
    new: int = field(doc="unfinished jobs that take the new branch")
    undecided: int = field(doc="unfinished jobs that have begun and not reached it")
    old_job: UUID | None = field(doc="the oldest job that keeps the old branch")
    undecided_job: UUID | None = field(doc="the oldest undecided job")
    is_capped: bool = field(doc="true: there are more jobs, newer ones are not counted")


@attrs.frozen(kw_only=True)
class Patches:
    """Patches that unfinished jobs have reached, by name, then by type."""

    patches: list[Patch]


async def list_patches(_: CheckedRequest[None, None], api: Api) -> Response:
    rows = await api.port(steps.patches)
    return answer(Patches(patches=[record(Patch, row) for row in rows]))


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/patches",
        handle=list_patches,
        role=Role.VIEWER,
        summary="List patches in job code, and how many unfinished jobs need each branch.",
        answers={200: Patches},
    ),
)
