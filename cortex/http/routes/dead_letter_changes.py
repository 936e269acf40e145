"""`/v1/dead-letters/…/retry` and `/discard`: retries and discards of failed jobs, one or many.

Named dead letters are processed at once. For a selection a job of type `bulk` is submitted, as from
the command line and the terminal UI: it is shown, followed and cancelled like any other job.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
from starlette.responses import Response

from cortex.domain.bulk import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    RATE_DEFAULT,
    RATE_MAX,
    RATE_MIN,
    BulkRequest,
    BulkVerb,
)
from cortex.domain.dead_letter import PayloadEdit
from cortex.domain.errors import UsageError
from cortex.domain.idempotency import error_from
from cortex.domain.job_filter import of_letters, parse_filter
from cortex.durable.codec import parse_payload
from cortex.http.folder import confine
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, number, whole
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.http.reason import reason_field
from cortex.http.routes.dead_letters import LETTER_PARAMS, LETTER_PATH, DeadLetterChoice
from cortex.http.routes.job_rights import require_rights
from cortex.http.routes.job_submit import check_live
from cortex.http.routes.jobs import JOB_PATH
from cortex.postgres.database import Database
from cortex.store import dead_letters, jobs
from cortex.store.dead_letters import SettledDeadLetter
from cortex.store.job_choice import JobChoice, choose
from cortex.store.tenants import Kind
from cortex.view.verbs import RETRY_LETTERS

ACTED_MAX: Final = 500
"""Maximum of named dead letters: fits the time limit of a transaction."""
VERSION_MAX: Final = 2**31 - 1


# --- requests


def _version_field() -> Any:
    return whole(
        doc="version of the agent; 0: the newest; null: the original one",
        low=0,
        high=VERSION_MAX,
        default=None,
    )


def _start_field() -> Any:
    return field(doc="run without the steps of the old job", default=False)


@attrs.frozen(kw_only=True)
class DeadLetterDiscard:
    """Discards a failed job."""

    reason: str = reason_field(RETRY_LETTERS)


@attrs.frozen(kw_only=True)
class DeadLetterRetry(DeadLetterDiscard):
    """Continues a failed job in a new one, after its last step."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()
    payload: dict[str, Any] | None = field(
        doc="payload of the new job; null: that of the failed one, which keeps its own",
        default=None,
    )


@attrs.frozen(kw_only=True)
class DeadLettersDiscard(DeadLetterDiscard):
    """Discards failed jobs: named by id, or a selection of unresolved dead letters."""

    job_ids: list[UUID] = field(doc=f"at most {ACTED_MAX}", factory=list)
    which: DeadLetterChoice | None = field(
        doc=("selected dead letters, the oldest first: a job changes them (202)"),
        default=None,
    )
    limit: int = whole(
        doc="maximum number of dead letters", low=1, high=LIMIT_MAX, default=LIMIT_DEFAULT
    )
    rate: float = number(
        doc="dead letters per second; retries of job_ids become due at this rate",
        low=RATE_MIN,
        high=RATE_MAX,
        default=RATE_DEFAULT,
    )
    dry_run: bool = field(doc="only show which ones would be selected", default=False)


@attrs.frozen(kw_only=True)
class DeadLettersRetry(DeadLettersDiscard):
    """Continues failed jobs in new ones: at once, or (202) a selection by a job."""

    agent_version: int | None = _version_field()
    from_start: bool = _start_field()


# --- responses


@attrs.frozen(kw_only=True)
class DeadLetterFault:
    """Why a dead letter was not processed."""

    code: str
    message: str
    hint: str | None


@attrs.frozen(kw_only=True)
class DeadLetterSettled:
    """The result for one dead letter."""

    job_id: UUID
    retried_as: UUID | None = field(doc="the job that continues it", default=None)
    error: DeadLetterFault | None = field(
        doc="why it was not processed; null: it was", default=None
    )
    waiting: str | None = field(
        doc="why the new job waits for code, of a single retry with the old payload", default=None
    )


@attrs.frozen(kw_only=True)
class DeadLettersSettled:
    """The result for each dead letter."""

    letters: list[DeadLetterSettled]
    done_count: int
    has_more: bool = field(doc="more dead letters match than the limit allows: repeat the request")
    is_dry_run: bool


@attrs.frozen(kw_only=True)
class DeadLettersStarted:
    """The job that changes a selection; `Location` is its URL."""

    id: UUID
    count: int = field(doc="dead letters that match; the job's result has how many were changed")
    has_more: bool = field(doc="more dead letters match than the limit allows: repeat the request")


# --- handlers


async def discard_letter(request: CheckedRequest[None, DeadLetterDiscard], api: Api) -> Response:
    body = DeadLettersDiscard(reason=request.body.reason, job_ids=[request.path["job_id"]])
    return await _one(request, api, body)


async def retry_letter(request: CheckedRequest[None, DeadLetterRetry], api: Api) -> Response:
    job_id = request.path["job_id"]
    await require_rights([job_id], request.principal, api)
    given = attrs.asdict(request.body, recurse=False)
    payload = given.pop("payload")
    edit = None if payload is None else await _edit(request, api, job_id, payload)
    body = DeadLettersRetry(job_ids=[job_id], **given)
    if edit is not None:
        return await _one(request, api, body, edit=edit)
    find = api.pod.find_type
    waiting = await api.port(dead_letters.waiting_for_code, job_id, find=find)
    return await _one(request, api, body, waiting=waiting)


async def _edit(
    request: CheckedRequest[None, Any], api: Api, job_id: UUID, given: dict[str, Any]
) -> PayloadEdit:
    """Return the checked payload for the job that continues a failed one."""
    letter = await api.port(dead_letters.show, job_id)

    def parsed() -> str:
        confined = confine(letter.type, given, api.pod.folder_roots)
        return parse_payload(orjson.dumps(confined))

    payload = await api.apart(parsed, size=request.size)
    await check_live(letter.type, payload, api, size=request.size)
    edit = partial(PayloadEdit.of, letter.type, letter.payload, payload)
    return await api.apart(edit, size=request.size)


async def discard_letters(request: CheckedRequest[None, DeadLettersDiscard], api: Api) -> Response:
    return await _many(request, api, request.body)


async def retry_letters(request: CheckedRequest[None, DeadLettersRetry], api: Api) -> Response:
    return await _many(request, api, request.body)


async def _one(
    request: CheckedRequest[None, Any],
    api: Api,
    body: DeadLettersDiscard,
    *,
    edit: PayloadEdit | None = None,
    waiting: str | None = None,
) -> Response:
    """Process the dead letter of the path. Raises its error, if any."""
    (text,), headers = await _settle(request, api, body, body.job_ids, edit=edit)
    if text.error is not None:
        raise error_from(attrs.asdict(text.error))
    return answer(attrs.evolve(text, waiting=waiting), headers=headers)


async def _many(request: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard) -> Response:
    chosen = await _chosen(request, api, body)
    if body.dry_run:
        letters = [DeadLetterSettled(job_id=each) for each in chosen.job_ids]
        return _settled_answer(letters, chosen, is_dry_run=True)
    if isinstance(body, DeadLettersRetry):
        await require_rights(chosen.job_ids, request.principal, api)
    if not body.job_ids:
        return await _begin(request, api, body, chosen)
    letters, headers = await _settle(request, api, body, chosen.job_ids)
    return _settled_answer(letters, chosen, headers=headers)


def _settled_answer(
    letters: list[DeadLetterSettled],
    chosen: JobChoice,
    *,
    is_dry_run: bool = False,
    headers: dict[str, str] | None = None,
) -> Response:
    done = DeadLettersSettled(
        letters=letters,
        done_count=0 if is_dry_run else sum(each.error is None for each in letters),
        has_more=chosen.has_more,
        is_dry_run=is_dry_run,
    )
    return answer(done, headers=headers)


async def _chosen(
    request: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard
) -> JobChoice:
    """Return the jobs of the selected dead letters."""
    text = _filter(body)
    if bool(body.job_ids) == bool(text):
        raise UsageError(
            "give job_ids or which, not both" if body.job_ids else ("no dead letters given")
        )
    if len(body.job_ids) > ACTED_MAX:
        raise UsageError(f"{len(body.job_ids)} job_ids are more than {ACTED_MAX}")
    tenant = request.tenant
    if body.job_ids:
        job_ids = list(dict.fromkeys(body.job_ids))
        await require_own(api.port, request.principal, Kind.JOB, job_ids)
        return JobChoice(job_ids=job_ids, refused={}, has_more=False)
    which = attrs.evolve(parse_filter(text), tenant=tenant)
    return await api.port(choose, _verb(body), which, limit=body.limit)


def _filter(body: DeadLettersDiscard) -> str:
    """Return the filter of a selection; "" if there is none."""
    text = "" if body.which is None else body.which.typed()
    return of_letters(text) if text else ""


def _verb(body: DeadLettersDiscard) -> BulkVerb:
    return BulkVerb.RETRY if isinstance(body, DeadLettersRetry) else BulkVerb.DISCARD


async def _begin(
    requested: CheckedRequest[None, Any], api: Api, body: DeadLettersDiscard, chosen: JobChoice
) -> Response:
    """Submit the job and return its URL; without matches none is submitted.

    Only dead letters that were counted are changed.
    """
    how: dict[str, Any] = {}
    if isinstance(body, DeadLettersRetry):
        how = {"agent_version": body.agent_version, "from_start": body.from_start}

    async def work(db: Database) -> UUID | None:
        if not chosen.job_ids:
            return None
        bulk = BulkRequest.counted(
            _verb(body),
            chosen.job_ids,
            jobs=_filter(body),
            at=chosen.at,
            reason=body.reason,
            rate_per_s=body.rate,
            tenant=requested.tenant,
            **how,
        )
        submission = bulk.submission(api.chance.new_id())
        principal = requested.principal
        await jobs.submit(db, [submission], by=principal.name, credential=principal.credential)
        return submission.id

    request = _request(body) | {"rate": body.rate}
    operation = f"dead.{_verb(body)}.bulk"
    done = await once(requested, api, work, operation=operation, request=request)
    if done.response is None:
        return _settled_answer([], chosen, headers=headers_of(done))
    begun = DeadLettersStarted(
        id=UUID(done.response),
        count=len(chosen.job_ids),
        has_more=chosen.has_more,
    )
    location = {"Location": JOB_PATH.format(job_id=begun.id)}
    return answer(begun, status=202, headers=location | headers_of(done))


async def _settle(
    request: CheckedRequest[None, Any],
    api: Api,
    body: DeadLettersDiscard,
    chosen: Sequence[UUID],
    *,
    edit: PayloadEdit | None = None,
) -> tuple[list[DeadLetterSettled], dict[str, str]]:
    by, reason = request.principal.name, body.reason
    act: Callable[[Database], Awaitable[list[SettledDeadLetter]]]
    if isinstance(body, DeadLettersRetry):
        operation = "dead.retry"
        act = partial(
            dead_letters.resubmit,
            wanted=dead_letters.resubmissions(
                chosen, new_id=api.chance.new_id, rate=body.rate, edit=edit
            ),
            by=by,
            credential=request.principal.credential,
            reason=reason,
            agent_version=body.agent_version,
            from_start=body.from_start,
        )
    else:
        operation = "dead.discard"
        act = partial(dead_letters.discard, job_ids=chosen, by=by, reason=reason)

    async def work(db: Database) -> list[dict[str, Any]]:
        return dead_letters.documents(await act(db))

    wish = _request(body) | ({} if edit is None else {"payload": edit.payload})
    done = await once(request, api, work, operation=operation, request=wish)
    return [_settled(each) for each in done.response], headers_of(done)


def _request(body: DeadLettersDiscard) -> dict[str, Any]:
    """Return the request as the command line words it, so that a key means the same in both."""
    names = sorted(str(each) for each in body.job_ids)
    request: dict[str, Any] = {"names": names, "filter": _filter(body), "limit": body.limit}
    if isinstance(body, DeadLettersRetry):
        request |= {"rate": body.rate, "agent_version": body.agent_version}
        request |= {"from_start": body.from_start}
    return request | {"reason": body.reason}


def _settled(text: dict[str, Any]) -> DeadLetterSettled:
    return DeadLetterSettled(
        job_id=UUID(text["job_id"]),
        retried_as=None if text["retried_as"] is None else UUID(text["retried_as"]),
        error=None if text["error"] is None else DeadLetterFault(**text["error"]),
    )


def _route(path: str, handle: Any, body: type, summary: str) -> Route:
    is_one = path.startswith(LETTER_PATH)
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=RETRY_LETTERS.role,
        summary=summary,
        params=LETTER_PARAMS if is_one else {},
        body=body,
        answers={200: DeadLetterSettled}
        if is_one
        else {200: DeadLettersSettled, 202: DeadLettersStarted},
        refuses=(404, 409),
        takes_key=True,
        tenancy=Tenancy.JOB if is_one else Tenancy.FILTERED,
    )


ROUTES: Final = (
    _route(
        "/v1/dead-letters/retry",
        retry_letters,
        DeadLettersRetry,
        "Continue failed jobs in new ones: at once, or (202) a selection by a job.",
    ),
    _route(
        "/v1/dead-letters/discard",
        discard_letters,
        DeadLettersDiscard,
        "Discard failed jobs: at once, or (202) a selection by a job.",
    ),
    _route(
        f"{LETTER_PATH}/retry",
        retry_letter,
        DeadLetterRetry,
        "Continue a failed job in a new one, after its last step.",
    ),
    _route(
        f"{LETTER_PATH}/discard",
        discard_letter,
        DeadLetterDiscard,
        "Discard a failed job: its dead letter is resolved, its record stays.",
    ),
)
