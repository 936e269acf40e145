"""`/v1/dead-letters/…/retry` and `/discard`: what people make of failed jobs, one or many.

Those that are named are settled at once. For those that are chosen an act begins, as it does from
the command line and the terminal UI: pods work it off, and `/v1/dead-letters/acts` tells how far.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.bulk_operation import (
    LETTERS_MAX,
    LIMIT_DEFAULT,
    RATE_DEFAULT,
    RATE_MAX,
    RATE_MIN,
    BulkVerb,
)
from cortex.domain.dead_letter import DryRun, retries_of
from cortex.domain.errors import UsageError
from cortex.domain.idempotency import error_from
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import number, told, whole
from cortex.http.reason import reason_field
from cortex.http.routes.bulk_operations import ACT, BulkOperationRow, told_act
from cortex.http.routes.dead_letters import LETTER, LETTER_PARAMS, DeadLetterChoice
from cortex.postgres.database import Database
from cortex.store import bulk_operations, dead_letters
from cortex.store.bulk_operations import BulkOperation
from cortex.store.dead_letters import SettledDeadLetter

ACTED_MAX: Final = 500
"""Named letters: within the time that a transaction has."""
VERSION_MAX: Final = 2**31 - 1


# --- what is asked for


def _version_field() -> Any:
    return whole(
        doc="of the agent; 0: the newest; null: the one that it had",
        low=0,
        high=VERSION_MAX,
        default=None,
    )


def _start_field() -> Any:
    return told(doc="without the steps of the old one", default=False)


@attrs.frozen(kw_only=True)
class DeadLetterDiscard:
    """Give a failed job up."""

    reason: str = reason_field()


@attrs.frozen(kw_only=True)
class DeadLetterRetry(DeadLetterDiscard):
    """Go on from a failed job in a new one, after its last step."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()


@attrs.frozen(kw_only=True)
class DeadLettersDiscard(DeadLetterDiscard):
    """Give failed jobs up: give their ids, or a choice of letters that wait for a decision."""

    job_ids: list[UUID] = told(doc=f"at most {ACTED_MAX}", factory=list)
    which: DeadLetterChoice | None = told(
        doc="the oldest of these first: an act begins (202) that pods work off", default=None
    )
    limit: int = whole(
        doc="so many of them at most", low=1, high=LETTERS_MAX, default=LIMIT_DEFAULT
    )
    rate: float = number(
        doc="so many letters a second; retries of job_ids become due so",
        low=RATE_MIN,
        high=RATE_MAX,
        default=RATE_DEFAULT,
    )
    dry_run: bool = told(doc="only tell which ones it would be", default=False)


@attrs.frozen(kw_only=True)
class DeadLettersRetry(DeadLettersDiscard):
    """Go on from failed jobs in new ones: at once, or (202) by an act on those chosen."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()


# --- what is told


@attrs.frozen(kw_only=True)
class DeadLetterFault:
    """Why nothing was done with a letter."""

    code: str
    message: str
    hint: str | None


@attrs.frozen(kw_only=True)
class DeadLetterSettled:
    """What became of one letter."""

    job_id: UUID
    retried_as: UUID | None = told(doc="the job that goes on from it", default=None)
    error: DeadLetterFault | None = told(doc="why nothing was done; null: it was", default=None)


@attrs.frozen(kw_only=True)
class DeadLettersSettled:
    """What became of each letter."""

    letters: list[DeadLetterSettled]
    done_count: int
    has_more: bool = told(doc="more letters match than the limit lets through: ask again")
    left_out: dict[str, int] = told(doc="how many match that no retry could help, by why")
    is_dry_run: bool


@attrs.frozen(kw_only=True)
class DeadLettersStarted:
    """What was begun for the letters that were chosen; `Location` says where to follow it."""

    act: BulkOperationRow
    has_more: bool = told(doc="more letters match than the limit lets through: ask again")
    left_out: dict[str, int] = told(doc="how many match that no retry could help, by why")


# --- handlers


async def discard_letter(asked: CheckedRequest[None, DeadLetterDiscard], api: Api) -> Response:
    """Give a failed job up."""
    body = DeadLettersDiscard(reason=asked.body.reason, job_ids=[asked.path["job_id"]])
    return await _one(asked, api, body)


async def retry_letter(asked: CheckedRequest[None, DeadLetterRetry], api: Api) -> Response:
    """Go on from a failed job in a new one."""
    given = attrs.asdict(asked.body)
    return await _one(asked, api, DeadLettersRetry(job_ids=[asked.path["job_id"]], **given))


async def discard_letters(asked: CheckedRequest[None, DeadLettersDiscard], api: Api) -> Response:
    """Give failed jobs up."""
    return await _many(asked, api, asked.body)


async def retry_letters(asked: CheckedRequest[None, DeadLettersRetry], api: Api) -> Response:
    """Go on from failed jobs in new ones."""
    return await _many(asked, api, asked.body)


async def _one(asked: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard) -> Response:
    """Act on the letter of the path. Raises its error, if it has one."""
    (told,), headers = await _settle(asked, api, body, body.job_ids)
    if told.error is not None:
        raise error_from(attrs.asdict(told.error))
    return answer(told, headers=headers)


async def _many(asked: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard) -> Response:
    chosen = await _chosen(api, body)
    if body.dry_run:
        letters = [DeadLetterSettled(job_id=each) for each in chosen.job_ids]
        return _told(letters, chosen, is_dry_run=True)
    if not body.job_ids:
        return await _begin(asked, api, body, chosen)
    letters, headers = await _settle(asked, api, body, chosen.job_ids)
    return _told(letters, chosen, headers=headers)


def _told(
    letters: list[DeadLetterSettled],
    chosen: DryRun,
    *,
    is_dry_run: bool = False,
    headers: dict[str, str] | None = None,
) -> Response:
    done = DeadLettersSettled(
        letters=letters,
        done_count=0 if is_dry_run else sum(each.error is None for each in letters),
        has_more=chosen.has_more,
        left_out=dict(chosen.left_out),
        is_dry_run=is_dry_run,
    )
    return answer(done, headers=headers)


async def _chosen(api: Api, body: DeadLettersDiscard) -> DryRun:
    """Return the jobs of the letters to act on."""
    is_choice = body.which is not None and body.which != DeadLetterChoice()
    if bool(body.job_ids) == is_choice:
        raise UsageError("give job_ids or which, not both" if body.job_ids else "which letters?")
    if len(body.job_ids) > ACTED_MAX:
        raise UsageError(f"{len(body.job_ids)} job_ids are more than {ACTED_MAX}")
    if body.which is None or body.job_ids:
        return DryRun(job_ids=tuple(dict.fromkeys(body.job_ids)), left_out={})
    found = await api.port(dead_letters.choose, body.which.as_filter(), limit=body.limit + 1)
    taken, has_more = found[: body.limit], len(found) > body.limit
    if not isinstance(body, DeadLettersRetry):
        return DryRun(job_ids=tuple(taken), left_out={}, has_more=has_more)
    rows = await api.port(dead_letters.of_jobs, taken)
    return retries_of(rows, has_more=has_more, from_start=body.from_start)


async def _begin(
    asked: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard, chosen: DryRun
) -> Response:
    """Begin an act, and tell where to follow it; there is none without letters."""
    act = BulkOperation(
        token=api.chance.new_id(),
        verb=BulkVerb.RETRY if isinstance(body, DeadLettersRetry) else BulkVerb.DISCARD,
        job_ids=chosen.job_ids,
        which=(body.which or DeadLetterChoice()).as_filter().typed(limit=body.limit),
        rate_per_s=body.rate,
        by=asked.principal.name,
        reason=body.reason,
        agent_version=body.agent_version if isinstance(body, DeadLettersRetry) else None,
        from_start=isinstance(body, DeadLettersRetry) and body.from_start,
    )

    async def work(db: Database) -> dict[str, int | None]:
        return {"act": await bulk_operations.begin(db, act) if act.job_ids else None}

    operation = f"dead.acts.{act.verb.value.lower()}"
    how = {"agent_version": act.agent_version, "from_start": act.from_start}
    request = _request(body) | {"rate": body.rate} | how
    done = await once(asked, api, work, operation=operation, request=request)
    number = done.response["act"]
    if number is None:
        return _told([], chosen, headers=headers_of(done))
    begun = DeadLettersStarted(
        act=await told_act(api, number),
        has_more=chosen.has_more,
        left_out=dict(chosen.left_out),
    )
    location = {"Location": ACT.format(act_id=number)}
    return answer(begun, status=202, headers=location | headers_of(done))


async def _settle(
    asked: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard, chosen: Sequence[UUID]
) -> tuple[list[DeadLetterSettled], dict[str, str]]:
    by, reason = asked.principal.name, body.reason
    act: Callable[[Database], Awaitable[list[SettledDeadLetter]]]
    if isinstance(body, DeadLettersRetry):
        operation = "dead.retry"
        act = partial(
            dead_letters.resubmit,
            wanted=dead_letters.resubmissions(chosen, new_id=api.chance.new_id, rate=body.rate),
            by=by,
            reason=reason,
            agent_version=body.agent_version,
            from_start=body.from_start,
        )
    else:
        operation = "dead.discard"
        act = partial(dead_letters.discard, job_ids=chosen, by=by, reason=reason)

    async def work(db: Database) -> list[dict[str, Any]]:
        return dead_letters.documents(await act(db))

    done = await once(asked, api, work, operation=operation, request=_request(body))
    return [_settled(each) for each in done.response], headers_of(done)


def _request(body: DeadLettersDiscard) -> dict[str, Any]:
    """Return what was asked for, in the words of the command line: a key means the same there."""
    which = (body.which or DeadLetterChoice()).as_filter()
    names = sorted(str(each) for each in body.job_ids)
    request = {"names": names, "which": attrs.asdict(which), "limit": body.limit}
    if isinstance(body, DeadLettersRetry):
        request |= {"rate": body.rate, "agent_version": body.agent_version}
        request |= {"from_start": body.from_start}
    return request | {"reason": body.reason}


def _settled(told: dict[str, Any]) -> DeadLetterSettled:
    return DeadLetterSettled(
        job_id=UUID(told["job_id"]),
        retried_as=None if told["retried_as"] is None else UUID(told["retried_as"]),
        error=None if told["error"] is None else DeadLetterFault(**told["error"]),
    )


def _route(path: str, handle: Any, body: type, summary: str) -> Route:
    is_one = path.startswith(LETTER)
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=Role.OPERATOR,
        summary=summary,
        params=LETTER_PARAMS if is_one else {},
        body=body,
        answers={200: DeadLetterSettled}
        if is_one
        else {200: DeadLettersSettled, 202: DeadLettersStarted},
        refuses=(404, 409),
        takes_key=True,
    )


ROUTES: Final = (
    _route(
        "/v1/dead-letters/retry",
        retry_letters,
        DeadLettersRetry,
        "Go on from failed jobs in new ones: at once, or (202) by an act on those chosen.",
    ),
    _route(
        "/v1/dead-letters/discard",
        discard_letters,
        DeadLettersDiscard,
        "Give failed jobs up: at once, or (202) by an act on those chosen.",
    ),
    _route(
        f"{LETTER}/retry",
        retry_letter,
        DeadLetterRetry,
        "Go on from a failed job in a new one, after its last step.",
    ),
    _route(
        f"{LETTER}/discard",
        discard_letter,
        DeadLetterDiscard,
        "Give a failed job up: its letter is settled, its record stays.",
    ),
)
