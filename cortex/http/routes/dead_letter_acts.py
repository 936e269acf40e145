"""`/v1/dead-letters/…/retry` and `/discard`: what people make of failed jobs, one or many."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.errors import UsageError
from cortex.domain.idempotency import error_from
from cortex.domain.role import Role
from cortex.http.api import Api, Asked
from cortex.http.idempotent import headers_of, once
from cortex.http.reason import reason_field
from cortex.http.route import Method, Route, answer
from cortex.http.routes.dead_letters import LETTER, LETTER_PARAMS, LetterChoice
from cortex.http.shape import number, told, whole
from cortex.store import dead_letters
from cortex.store.database import Database
from cortex.store.dead_letters import Settled

ACTED_MAX: Final = 500
"""Letters at once: within the time that a transaction has. For more, ask again."""
ACTED_DEFAULT: Final = 100
RATE: Final = 50.0
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
class LetterDiscard:
    """Give a failed job up."""

    reason: str = reason_field()


@attrs.frozen(kw_only=True)
class LetterRetry(LetterDiscard):
    """Go on from a failed job in a new one, after its last step."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()


@attrs.frozen(kw_only=True)
class LettersDiscard(LetterDiscard):
    """Give failed jobs up: give their ids, or a choice of letters that wait for a decision."""

    job_ids: list[UUID] = told(doc=f"at most {ACTED_MAX}", factory=list)
    which: LetterChoice | None = told(doc="the oldest of these first", default=None)
    limit: int = whole(doc="so many at most", low=1, high=ACTED_MAX, default=ACTED_DEFAULT)
    dry_run: bool = told(doc="only tell which ones it would be", default=False)


@attrs.frozen(kw_only=True)
class LettersRetry(LettersDiscard):
    """Go on from failed jobs in new ones, each after its last step."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()
    rate: float = number(
        doc="so many of the new jobs become due each second", low=0.001, high=10_000, default=RATE
    )


# --- what is told


@attrs.frozen(kw_only=True)
class LetterFault:
    """Why nothing was done with a letter."""

    code: str
    message: str
    hint: str | None


@attrs.frozen(kw_only=True)
class LetterSettled:
    """What became of one letter."""

    job_id: UUID
    retried_as: UUID | None = told(doc="the job that goes on from it", default=None)
    error: LetterFault | None = told(doc="why nothing was done; null: it was", default=None)


@attrs.frozen(kw_only=True)
class LettersSettled:
    """What became of each letter."""

    letters: list[LetterSettled]
    done_count: int
    has_more: bool = told(doc="more letters match than the limit lets through: ask again")
    is_dry_run: bool


# --- handlers


async def discard_letter(asked: Asked[None, LetterDiscard], api: Api) -> Response:
    """Give a failed job up."""
    body = LettersDiscard(reason=asked.body.reason, job_ids=[asked.path["job_id"]])
    return await _one(asked, api, body)


async def retry_letter(asked: Asked[None, LetterRetry], api: Api) -> Response:
    """Go on from a failed job in a new one."""
    given = attrs.asdict(asked.body)
    return await _one(asked, api, LettersRetry(job_ids=[asked.path["job_id"]], **given))


async def discard_letters(asked: Asked[None, LettersDiscard], api: Api) -> Response:
    """Give failed jobs up."""
    return await _many(asked, api, asked.body)


async def retry_letters(asked: Asked[None, LettersRetry], api: Api) -> Response:
    """Go on from failed jobs in new ones."""
    return await _many(asked, api, asked.body)


async def _one(asked: Asked[None, Any], api: Api, body: LettersDiscard) -> Response:
    """Act on the letter of the path. Raises its error, if it has one."""
    (told,), headers = await _settle(asked, api, body, body.job_ids)
    if told.error is not None:
        raise error_from(attrs.asdict(told.error))
    return answer(told, headers=headers)


async def _many(asked: Asked[None, Any], api: Api, body: LettersDiscard) -> Response:
    chosen, has_more = await _chosen(api, body)
    if body.dry_run:
        letters = [LetterSettled(job_id=each) for each in chosen]
        headers: dict[str, str] = {}
    else:
        letters, headers = await _settle(asked, api, body, chosen)
    done = LettersSettled(
        letters=letters,
        done_count=0 if body.dry_run else sum(each.error is None for each in letters),
        has_more=has_more,
        is_dry_run=body.dry_run,
    )
    return answer(done, headers=headers)


async def _chosen(api: Api, body: LettersDiscard) -> tuple[Sequence[UUID], bool]:
    """Return the jobs of the letters to act on, and whether more match."""
    is_choice = body.which is not None and body.which != LetterChoice()
    if bool(body.job_ids) == is_choice:
        raise UsageError("give job_ids or which, not both" if body.job_ids else "which letters?")
    if len(body.job_ids) > ACTED_MAX:
        raise UsageError(f"{len(body.job_ids)} job_ids are more than {ACTED_MAX}")
    if body.which is None or body.job_ids:
        return list(dict.fromkeys(body.job_ids)), False
    found = await api.port(dead_letters.choose, body.which.as_filter(), limit=body.limit + 1)
    return found[: body.limit], len(found) > body.limit


async def _settle(
    asked: Asked[None, Any], api: Api, body: LettersDiscard, chosen: Sequence[UUID]
) -> tuple[list[LetterSettled], dict[str, str]]:
    by, reason = asked.principal.name, body.reason
    act: Callable[[Database], Awaitable[list[Settled]]]
    if isinstance(body, LettersRetry):
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


def _request(body: LettersDiscard) -> dict[str, Any]:
    """Return what was asked for, in the words of the command line: a key means the same there."""
    which = (body.which or LetterChoice()).as_filter()
    names = sorted(str(each) for each in body.job_ids)
    request = {"names": names, "which": attrs.asdict(which), "limit": body.limit}
    if isinstance(body, LettersRetry):
        request |= {"rate": body.rate, "agent_version": body.agent_version}
        request |= {"from_start": body.from_start}
    return request | {"reason": body.reason}


def _settled(told: dict[str, Any]) -> LetterSettled:
    return LetterSettled(
        job_id=UUID(told["job_id"]),
        retried_as=None if told["retried_as"] is None else UUID(told["retried_as"]),
        error=None if told["error"] is None else LetterFault(**told["error"]),
    )


def _route(path: str, handle: Any, body: type, shape: type, summary: str) -> Route:
    is_one = path.startswith(LETTER)
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=Role.OPERATOR,
        summary=summary,
        params=LETTER_PARAMS if is_one else {},
        body=body,
        answers={200: shape},
        refuses=(404, 409) if is_one else (),
        takes_key=True,
    )


ROUTES: Final = (
    _route(
        "/v1/dead-letters/retry",
        retry_letters,
        LettersRetry,
        LettersSettled,
        "Go on from failed jobs in new ones, each after its last step.",
    ),
    _route(
        "/v1/dead-letters/discard",
        discard_letters,
        LettersDiscard,
        LettersSettled,
        "Give failed jobs up: their letters are settled, their records stay.",
    ),
    _route(
        f"{LETTER}/retry",
        retry_letter,
        LetterRetry,
        LetterSettled,
        "Go on from a failed job in a new one, after its last step.",
    ),
    _route(
        f"{LETTER}/discard",
        discard_letter,
        LetterDiscard,
        LetterSettled,
        "Give a failed job up: its letter is settled, its record stays.",
    ),
)
