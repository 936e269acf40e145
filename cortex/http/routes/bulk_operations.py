"""`/v1/dead-letters/acts`: bulk operations on dead letters, which pods work off."""

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
from cortex.http.framework.shape import field, record
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import bulk_operations

ACTS: Final = "/v1/dead-letters/acts"
ACT: Final = f"{ACTS}/{{act_id}}"
Shown = TypeVar("Shown", bound="BulkOperationRow")
ACT_PARAMS: Final = {"act_id": NUMBER_PARAM}


@attrs.frozen(kw_only=True)
class BulkOperationRow:
    """A bulk operation and its progress."""

    id: int
    verb: BulkVerb
    state: BulkState
    which: str = field(doc="selected dead letters, as options of the command line")
    agent_version: int | None
    from_start: bool
    rate_per_s: float
    asked_by: str
    reason: str
    letter_count: int
    done_count: int
    failed_count: int = field(doc="dead letters that it could not process")
    left_count: int = field(doc="dead letters not processed yet")
    waits_for_pod: bool = field(doc="no pod is alive to continue it")
    created_at: datetime
    changed_by: str | None = field(doc="the person who paused, resumed or ended it last")
    changed_at: datetime | None
    change_reason: str | None
    ended_at: datetime | None


@attrs.frozen(kw_only=True)
class BulkOperationFailure:
    """A dead letter that a bulk operation could not process."""

    nth: int = field(doc="position in the operation")
    job_id: UUID
    error_code: str
    error: str
    type: str | None = field(doc="null: the dead letter is gone")
    state: DeadLetterState | None = field(doc="its current state")
    fingerprint: str | None
    agent: str | None


@attrs.frozen(kw_only=True)
class ShownBulkOperation(BulkOperationRow):
    """A bulk operation, and its failures."""

    failures: list[BulkOperationFailure] = field(
        doc="in the order of their turns, as many as asked"
    )


@attrs.frozen(kw_only=True)
class BulkOperations:
    """Bulk operations: running ones first, then the newest."""

    acts: list[BulkOperationRow]


@attrs.frozen(kw_only=True)
class BulkOperationsQuery:
    """Limits the list."""

    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class BulkOperationChange:
    """The reason."""

    reason: str = reason_field(default="")


async def told_act(api: Api, act_id: int) -> BulkOperationRow:
    """Return a bulk operation. Raises `NotFoundError`."""
    return _record(BulkOperationRow, await api.port(bulk_operations.show, act_id))


def _record(shape: type[Shown], row: dict[str, Any], **more: Any) -> Shown:
    waits = row["state"] == BulkState.RUNNING and not row["has_pod"]
    return record(shape, row, left_count=left(row), waits_for_pod=waits, **more)


async def list_letters_acts(
    request: CheckedRequest[BulkOperationsQuery, None], api: Api
) -> Response:
    rows = await api.port(bulk_operations.page, limit=request.query.limit)
    return answer(BulkOperations(acts=[_record(BulkOperationRow, row) for row in rows]))


async def show_letters_act(
    request: CheckedRequest[BulkOperationsQuery, None], api: Api
) -> Response:
    """Return a bulk operation and its failures."""
    act_id = request.path["act_id"]
    row = await api.port(bulk_operations.show, act_id)
    failures = await api.port(bulk_operations.failures, act_id, limit=request.query.limit)
    shown = [record(BulkOperationFailure, each) for each in failures]
    return answer(_record(ShownBulkOperation, row, failures=shown))


async def pause_letters_act(
    request: CheckedRequest[None, BulkOperationChange], api: Api
) -> Response:
    return await _change(request, api, PAUSE)


async def resume_letters_act(
    request: CheckedRequest[None, BulkOperationChange], api: Api
) -> Response:
    return await _change(request, api, RESUME)


async def cancel_letters_act(
    request: CheckedRequest[None, BulkOperationChange], api: Api
) -> Response:
    return await _change(request, api, CANCEL)


async def _change(
    requested: CheckedRequest[None, BulkOperationChange], api: Api, how: BulkChange
) -> Response:
    act_id, by, reason = requested.path["act_id"], requested.principal.name, requested.body.reason

    async def work(db: Database) -> dict[str, int]:
        await bulk_operations.change(db, act_id, how, by=by, reason=reason)
        return {"act": act_id}

    request = {"act": act_id, "reason": reason}
    done = await once(requested, api, work, operation=f"dead.acts.{how.name}", request=request)
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
        summary="List bulk operations on dead letters: running ones first, then the newest.",
        query=BulkOperationsQuery,
        answers={200: BulkOperations},
    ),
    Route(
        method=Method.GET,
        path=ACT,
        handle=show_letters_act,
        role=Role.VIEWER,
        summary="Show a bulk operation on dead letters, with its failures.",
        params=ACT_PARAMS,
        query=BulkOperationsQuery,
        answers={200: ShownBulkOperation},
        refuses=(404,),
    ),
    _act("pause", pause_letters_act, "Pause a bulk operation on dead letters."),
    _act("resume", resume_letters_act, "Resume a paused bulk operation."),
    _act(
        "cancel",
        cancel_letters_act,
        ("Cancel a bulk operation: the remaining dead letters wait as before."),
    ),
)
