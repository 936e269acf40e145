"""`/v1/dead-letters/acts`: what was begun for many letters at once; pods work it off."""

from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.bulk_operation import (
    CANCEL,
    PAUSE,
    RESUME,
    BulkChange,
    BulkState,
    BulkVerb,
    left,
)
from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import NUMBER_PARAM, Handler, Method, Route, answer
from cortex.http.framework.shape import record, told
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import bulk_operations

ACTS: Final = "/v1/dead-letters/acts"
ACT: Final = f"{ACTS}/{{act_id}}"
Told = TypeVar("Told", bound="BulkOperationRow")
ACT_PARAMS: Final = {"act_id": NUMBER_PARAM}


@attrs.frozen(kw_only=True)
class BulkOperationRow:
    """Something that is done to many letters, and how far it is."""

    id: int
    verb: BulkVerb
    state: BulkState
    which: str = told(doc="how the letters were chosen, as the command line is told")
    agent_version: int | None
    from_start: bool
    rate_per_s: float
    asked_by: str
    reason: str
    letter_count: int
    done_count: int
    failed_count: int = told(doc="letters that it could not settle")
    left_count: int = told(doc="letters that have had no turn")
    waits_for_pod: bool = told(doc="nobody goes on with it: no pod is alive")
    created_at: datetime
    changed_by: str | None = told(doc="who paused, resumed or ended it last")
    changed_at: datetime | None
    change_reason: str | None
    ended_at: datetime | None


@attrs.frozen(kw_only=True)
class BulkOperationFailure:
    """A letter that an act could not settle."""

    nth: int = told(doc="its turn")
    job_id: UUID
    error_code: str
    error: str
    type: str | None = told(doc="null: the letter is gone")
    state: DeadLetterState | None = told(doc="how it stands now")
    fingerprint: str | None
    agent: str | None


@attrs.frozen(kw_only=True)
class ShownBulkOperation(BulkOperationRow):
    """An act, and what it could not settle."""

    failures: list[BulkOperationFailure] = told(doc="in the order of their turns, as many as asked")


@attrs.frozen(kw_only=True)
class BulkOperations:
    """Acts, those that are under way first, then the newest."""

    acts: list[BulkOperationRow]


@attrs.frozen(kw_only=True)
class BulkOperationsQuery:
    """How many."""

    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class BulkOperationChange:
    """Why."""

    reason: str = reason_field(default="")


async def told_act(api: Api, act_id: int) -> BulkOperationRow:
    """Return how an act stands. Raises `NotFoundError`."""
    return _record(BulkOperationRow, await api.port(bulk_operations.show, act_id))


def _record(shape: type[Told], row: dict[str, Any], **more: Any) -> Told:
    waits = row["state"] == BulkState.RUNNING and not row["has_pod"]
    return record(shape, row, left_count=left(row), waits_for_pod=waits, **more)


async def list_letters_acts(asked: CheckedRequest[BulkOperationsQuery, None], api: Api) -> Response:
    """List acts."""
    rows = await api.port(bulk_operations.page, limit=asked.query.limit)
    return answer(BulkOperations(acts=[_record(BulkOperationRow, row) for row in rows]))


async def show_letters_act(asked: CheckedRequest[BulkOperationsQuery, None], api: Api) -> Response:
    """Tell how far an act is, and what it could not settle."""
    act_id = asked.path["act_id"]
    row = await api.port(bulk_operations.show, act_id)
    failures = await api.port(bulk_operations.failures, act_id, limit=asked.query.limit)
    shown = [record(BulkOperationFailure, each) for each in failures]
    return answer(_record(ShownBulkOperation, row, failures=shown))


async def pause_letters_act(asked: CheckedRequest[None, BulkOperationChange], api: Api) -> Response:
    """Let an act rest."""
    return await _change(asked, api, PAUSE)


async def resume_letters_act(
    asked: CheckedRequest[None, BulkOperationChange], api: Api
) -> Response:
    """Let an act go on."""
    return await _change(asked, api, RESUME)


async def cancel_letters_act(
    asked: CheckedRequest[None, BulkOperationChange], api: Api
) -> Response:
    """End an act."""
    return await _change(asked, api, CANCEL)


async def _change(
    asked: CheckedRequest[None, BulkOperationChange], api: Api, how: BulkChange
) -> Response:
    act_id, by, reason = asked.path["act_id"], asked.principal.name, asked.body.reason

    async def work(db: Database) -> dict[str, int]:
        await bulk_operations.change(db, act_id, how, by=by, reason=reason)
        return {"act": act_id}

    request = {"act": act_id, "reason": reason}
    done = await once(asked, api, work, operation=f"dead.acts.{how.name}", request=request)
    return answer(await told_act(api, act_id), headers=headers_of(done))


def _act(word: str, handle: Handler, summary: str) -> Route:
    return Route(
        method=Method.POST,
        path=f"{ACT}/{word}",
        handle=handle,
        role=Role.OPERATOR,
        summary=summary,
        params=ACT_PARAMS,
        body=BulkOperationChange,
        answers={200: BulkOperationRow},
        refuses=(404, 409),
        takes_key=True,
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path=ACTS,
        handle=list_letters_acts,
        role=Role.VIEWER,
        summary="List acts on many dead letters: those under way first, then the newest.",
        query=BulkOperationsQuery,
        answers={200: BulkOperations},
    ),
    Route(
        method=Method.GET,
        path=ACT,
        handle=show_letters_act,
        role=Role.VIEWER,
        summary="Tell how far an act on many dead letters is, and what it could not settle.",
        params=ACT_PARAMS,
        query=BulkOperationsQuery,
        answers={200: ShownBulkOperation},
        refuses=(404,),
    ),
    _act("pause", pause_letters_act, "Let an act on many dead letters rest."),
    _act("resume", resume_letters_act, "Let an act that was paused go on where it was."),
    _act("cancel", cancel_letters_act, "End an act: the letters that are left wait as before."),
)
