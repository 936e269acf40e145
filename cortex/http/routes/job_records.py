"""`/v1/jobs/{job_id}/history` and `/steps`: the record of a job, page by page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
from starlette.responses import Response

from cortex.domain.errors import NotFoundError
from cortex.domain.limits import MIB
from cortex.domain.published import JobProgress
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.resource import document_of, schema_of_document, schema_of_rows
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes.jobs import JOB_PARAMS, JOB_PATH
from cortex.store import jobs, published, steps
from cortex.store.jobs import StepRow
from cortex.store.steps import StepWithOutput
from cortex.view.resources.jobs import STEP, TRANSITION

ID_MAX: Final = 10**18 - 1
"""Maximum id of a transition: queries hold no more digits, and ids never get that large."""
INT_MAX: Final = 2**31 - 1
WITH_OUTPUTS_MAX: Final = 20
OUTPUTS_BYTES_MAX: Final = 4 * MIB
"""For all outputs of a page; a single one may be that large."""
NEXT_AFTER: Final = (int | None, "`after` of the next page; null: there are no more yet")
OUTPUT: Final = (Any, "output; null unless requested")
STATE: Final = schema_of_document(
    "PublishedState",
    doc="What the code of a job shows of it while it runs.",
    state=(dict[str, Any], "values by key, as `ctx.state` has them"),
    progress=(JobProgress | None, "the last `ctx.progress`; null: there was none"),
    changed_at=(datetime | None, "null: nothing was published"),
)
HISTORY: Final = schema_of_document(
    "History",
    doc="A page of transitions.",
    history=(list[schema_of_rows(TRANSITION)], ""),  # type: ignore[misc]
    next_after=NEXT_AFTER,
)
STEPS: Final = schema_of_document(
    "Steps",
    doc="A page of steps.",
    steps=(list[schema_of_rows(STEP, output=OUTPUT)], ""),  # type: ignore[misc]
    next_after=NEXT_AFTER,
)


@attrs.frozen(kw_only=True)
class HistoryQuery:
    """Selects transitions, in order."""

    after: int = whole(doc="`next_after` of the previous page", low=0, high=ID_MAX, default=0)
    limit: int = limit_field()


async def list_history(request: CheckedRequest[HistoryQuery, None], api: Api) -> Response:
    job_id, limit = request.path["job_id"], request.query.limit
    rows = await api.port(jobs.history, job_id, after=request.query.after, limit=limit + 1)
    if not rows:
        await _refuse_unknown(job_id, api)
    shown = [document_of(TRANSITION, row) for row in rows[:limit]]
    next_after = rows[limit - 1].id if len(rows) > limit else None
    return answer({"history": shown, "next_after": next_after})


@attrs.frozen(kw_only=True)
class StepsQuery:
    """Selects steps, in order."""

    after: int = whole(doc="`next_after` of the previous page", low=0, high=INT_MAX, default=0)
    limit: int = limit_field()
    outputs: bool = field(
        doc=f"include outputs: at most {WITH_OUTPUTS_MAX} steps, and about 4 MiB",
        default=False,
    )


async def list_steps(request: CheckedRequest[StepsQuery, None], api: Api) -> Response:
    job_id, query = request.path["job_id"], request.query
    rows: Sequence[StepRow]
    if query.outputs:
        rows, has_more = await api.port(
            steps.page_with_outputs,
            job_id,
            after=query.after,
            limit=min(query.limit, WITH_OUTPUTS_MAX),
            bytes_max=OUTPUTS_BYTES_MAX,
        )
    else:
        found = await api.port(steps.page, job_id, after=query.after, limit=query.limit + 1)
        rows, has_more = found[: query.limit], len(found) > query.limit
    if not rows:
        await _refuse_unknown(job_id, api)
    shown = [document_of(STEP, row) | {"output": _raw(row)} for row in rows]
    return answer({"steps": shown, "next_after": rows[-1].seq if has_more else None})


def _raw(row: StepRow) -> object:
    """Put JSON text into a response unparsed."""
    text = row.output if isinstance(row, StepWithOutput) else None
    return None if text is None else orjson.Fragment(text)


async def show_state(request: CheckedRequest[None, None], api: Api) -> Response:
    job_id = request.path["job_id"]
    found = await api.port(published.of_job, job_id)
    if found is None:
        raise NotFoundError(f"job {job_id} does not exist")
    return answer({"state": found.state, "progress": found.progress, "changed_at": found.at})


async def _refuse_unknown(job_id: UUID, api: Api) -> None:
    if not await api.port(jobs.counts, [job_id]):
        raise NotFoundError(f"job {job_id} does not exist")


ROUTES: Final = (
    read(
        f"{JOB_PATH}/history",
        list_history,
        "List a job's changes of state.",
        params=JOB_PARAMS,
        query=HistoryQuery,
        answers={200: HISTORY},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    read(
        f"{JOB_PATH}/state",
        show_state,
        "Show the state and the progress that a job publishes.",
        params=JOB_PARAMS,
        answers={200: STATE},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    read(
        f"{JOB_PATH}/steps",
        list_steps,
        "List a job's steps.",
        params=JOB_PARAMS,
        query=StepsQuery,
        answers={200: STEPS},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
)
