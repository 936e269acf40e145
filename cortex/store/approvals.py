"""Approvals: requests, their one decision, their links. `tasks.suspend` creates requests."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import orjson

from cortex.domain.approvals.approval import (
    Approval,
    ApprovalHead,
    ApprovalRow,
    ApprovalStatus,
    ApprovalVote,
    Decided,
    Risk,
)
from cortex.domain.approvals.rules import (
    ApprovalTerms,
    GatedCall,
    ToolMark,
    beyond,
    rules_from_json,
)
from cortex.domain.approvals.vote import Vote, check_ids, checked, refusal
from cortex.domain.canonical import parse
from cortex.domain.errors import ConflictError, NotFoundError, RejectedError
from cortex.domain.job import Submission
from cortex.domain.people import Identity
from cortex.domain.token import digest_of_link
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store import specs
from cortex.store.passes import DuePass
from cortex.store.references import by_name
from cortex.store.rows import from_json, row_of, rows_of
from cortex.store.specs import SpecKind

EXPIRE_BATCH: Final = 200
LINK_TOKEN_BYTES: Final = 32
COUNTED: Final = frozenset({"approved", "agreed", "denied"})
AGAIN: Final = "again"
TRIES: Final = 5
"""A job may get or lose its task while this waits for its locks: rare once, unlikely twice."""


@attrs.frozen(kw_only=True)
class Reminder:
    """Who was reminded of one request."""

    status: ApprovalStatus = attrs.field(converter=ApprovalStatus)
    """Only a request that waits is reminded of."""
    receivers: tuple[str, ...]
    """Subscriptions."""


@attrs.frozen(kw_only=True)
class VoteResult:
    """The result of a vote that counts."""

    outcome: str
    """approved · agreed (more people are needed) · denied"""
    agreed_count: int


@attrs.frozen(kw_only=True)
class ApprovalEvent:
    at: datetime
    event: str
    """asked · agreed (more people were needed) · the decision, in lower case."""
    id: UUID
    person: str | None
    reason: str | None
    job_id: UUID
    tool: str | None
    key: str
    risk: Risk = attrs.field(converter=Risk)
    people: int
    agreed: int
    arguments: dict[str, Any]
    channel: str | None
    expires_at: datetime
    agent: str | None
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class InboxCount:
    """How many requests wait, and when the first of them expires."""

    count: int
    """Up to a limit of each risk."""
    expires_at: datetime | None
    now: datetime


@attrs.frozen(kw_only=True)
class InboxRow(ApprovalHead):
    """A request as one person's inbox lists it."""

    is_own: bool
    """It is critical, and this person requested it."""
    has_agreed: bool
    """This person has agreed to these arguments."""


async def of_line(db: Database, lineage_id: UUID, key: str) -> Decided | None:
    """Return the newest request of a lineage of jobs for a step."""
    row = await db.fetch_one("approvals.of_line", lineage_id, key)
    if row is None:
        return None
    return Decided(
        id=row["id"],
        job_id=row["job_id"],
        status=ApprovalStatus(row["status"]),
        arguments=row["arguments"],
        digest=row["digest"],
        asked_digest=row["asked_digest"],
        risk=Risk(row["risk"]),
        people=row["people"],
        by=row["decided_by"],
        reason=row["reason"],
        at=row["decided_at"],
        waited_s=row["waited_s"],
    )


async def decide(db: Database, votes: Sequence[Vote]) -> list[VoteResult]:
    """Count votes, each on its own request, all or none; results in the given order.

    The first decision of each request wins. For the first vote that breaks a rule, raises what
    `approval_vote.checked` and `approval_vote.refusal` return, `NotFoundError`, or
    `RejectedError` for an edit that needs more approval than was requested; then nothing changes.
    """
    ids = [vote.approval_id for vote in votes]
    check_ids(ids)
    existing = {each.id: each for each in await show_all(db, ids)}
    approvals = [existing[each] if each in existing else _missing(each) for each in ids]
    counted = checked(approvals, votes)
    for approval, vote in zip(approvals, counted, strict=True):
        if not approval.is_open:  # its vote was not checked: a clock set back must not let it count
            raise refusal(approval, "already")
        await _refuse_beyond(db, approval, vote)
    for _ in range(TRIES):
        results = await _count(db, counted)
        if not isinstance(results, _VoteRefused):
            return results
        if results.outcome != AGAIN:
            raise refusal(await show(db, results.approval_id), results.outcome)
    raise ConflictError(f"approval {ids[0]} changes all the time; try again")


async def _refuse_beyond(db: Database, approval: Approval, vote: Vote) -> None:
    """Raise `RejectedError` for an edit into a call that needs more people by the agent's rules."""
    agent_id, version, tool = approval.agent_id, approval.agent_version, approval.tool
    if vote.edited is None or agent_id is None or version is None or tool is None:
        return
    spec = await specs.spec(db, SpecKind.AGENT, agent_id, version)
    asked = GatedCall(tool=tool, arguments=approval.asked, is_effect=True, mark=ToolMark())
    under = ApprovalTerms(approval.risk, approval.people)
    rules = rules_from_json(spec.get("approvals", ()))
    needed = beyond(asked, orjson.loads(vote.edited), under=under, rules=rules)
    if needed is not None:
        people = f"{needed.people} people" if needed.people > 1 else "one person"
        raise RejectedError(
            f"the edit makes {tool} {needed.risk}, for which {people} must be asked: "
            f"{needed.reason}",
            hint="deny it with a reason: when the agent calls it so, people are asked for that",
        )


async def _count(db: Database, votes: Sequence[Vote]) -> "list[VoteResult] | _VoteRefused":
    """Count one vote by one statement, several in one transaction."""
    if len(votes) > 1:
        return await db.transact(partial(_all_or_none, votes=votes))
    (vote,) = votes
    try:
        return [_result(await db.fetch_one("approvals.decide", *_columns(vote)), vote)]
    except _VoteRefused as refused:
        return refused


async def _all_or_none(
    connection: Connection, *, votes: Sequence[Vote]
) -> "list[VoteResult] | _VoteRefused":
    try:
        async with connection.transaction():  # a savepoint: a refusal costs no connection
            await connection.fetch(sql("approvals.hold"), [each.approval_id for each in votes])
            statement = sql("approvals.decide")
            return [
                _result(await connection.fetchrow(statement, *_columns(each)), each)
                for each in votes
            ]
    except _VoteRefused as refused:
        return refused


async def expire(db: Database, *, limit: int = EXPIRE_BATCH) -> DuePass:
    """Close requests that were not decided in time, with all consequences."""
    row = await db.fetch_one("approvals.expire", limit)
    if row is None:
        raise AssertionError("approvals.expire always answers")
    return row_of(DuePass, row)


async def remind(db: Database, *, limit: int) -> DuePass:
    """Remind people of requests that have waited for half, or nine tenths, of their time."""
    row = await db.fetch_one("approvals.remind", limit)
    if row is None:
        raise AssertionError("approvals.remind always answers")
    return row_of(DuePass, row)


async def remind_one(db: Database, approval_id: UUID, *, message_id: UUID) -> Reminder:
    """Remind people of one request, if it still waits; the same id does so once.

    Raises `NotFoundError`.
    """
    row = await db.fetch_one("approvals.remind_one", approval_id, message_id)
    if row is None:
        raise NotFoundError(
            f"there is no request for approval {approval_id}", hint="cortex approvals ls"
        )
    return Reminder(status=row["status"], receivers=tuple(row["receivers"]))


async def link(db: Database, approval_id: UUID, *, by: Identity, reason: str = "") -> str:
    """Give a request a link, replacing the previous one; return its token, which is stored nowhere.

    Raises `NotFoundError`, and what `refusal` returns if it can no longer be decided.
    """
    token = secrets.token_urlsafe(LINK_TOKEN_BYTES)
    row = await db.fetch_one(
        "approvals.link", approval_id, digest_of_link(token), by.document(), reason
    )
    if row is None or row["id"] is None:
        raise refusal(await show(db, approval_id), "already")
    return token


async def is_token(db: Database, approval_id: UUID, token: str) -> bool:
    """Return whether this is the token of the request's link.

    The link of a decided request decides nothing, but shows the decision for a week. The digests
    are compared: how long that takes reveals nothing of a token.
    """
    row = await db.fetch_one("approvals.is_link", approval_id, digest_of_link(token))
    return bool(row and row["is_link"])


async def find(db: Database, name: str) -> UUID:
    """Return the request whose id is, or ends with, what a person typed."""
    return await by_name(db, name, kind="approval", query="approvals.ids_by_suffix")


async def require_named(db: Database, submission: Submission) -> None:
    """Refuse a job `approval_notify` whose request does not exist, before it is submitted.

    Raises `NotFoundError`, or `ConflictError` when several recent requests have that end.
    """
    await show(db, await find(db, orjson.loads(submission.payload)["approval"]))


async def show(db: Database, approval_id: UUID) -> Approval:
    """Return one request in full. Raises `NotFoundError`."""
    row = await db.fetch_one("approvals.show", [approval_id])
    return _missing(approval_id) if row is None else _approval(row)


async def show_all(db: Database, ids: Sequence[UUID]) -> list[Approval]:
    """Return those requests that exist, in full as `show` does, in no order."""
    return [_approval(row) for row in await db.fetch("approvals.show", list(ids))]


async def pending(
    db: Database, *, after: UUID | None = None, limit: int = 100, tenant: str | None = None
) -> list[ApprovalRow]:
    """Return waiting requests: the most dangerous first, then the first to expire."""
    return [
        _row(row) for row in await db.fetch("approvals.pending", after, limit, tenant or db.tenant)
    ]


async def page(
    db: Database,
    *,
    statuses: Sequence[ApprovalStatus] = tuple(ApprovalStatus),
    before: UUID | None = None,
    limit: int = 100,
    tenant: str | None = None,
) -> list[ApprovalRow]:
    """Return requests, newest first."""
    words = [status.value for status in statuses]
    return [
        _row(row)
        for row in await db.fetch("approvals.list", words, before, limit, tenant or db.tenant)
    ]


async def changes(
    db: Database, *, since: datetime | None, limit: int = 1000
) -> list[ApprovalEvent]:
    """Return the events of requests since an instant, in order; None: from now on.

    Events of a transaction that is still open arrive later, with an instant in the past.
    """
    rows = await db.fetch("approvals.changes", since, limit, db.tenant)
    return [row_of(ApprovalEvent, row, arguments=parse(row["arguments"])) for row in rows]


async def inbox(db: Database, *, limit: int = 1000) -> InboxCount:
    """Return how many wait, counted up to a limit of each risk, and when the first expires."""
    row = await db.fetch_one("approvals.inbox", limit)
    if row is None:
        raise AssertionError("approvals.inbox always answers")
    return row_of(InboxCount, row)


async def of_job(db: Database, job_id: UUID, *, limit: int = 1000) -> list[ApprovalRow]:
    """Return a job's requests, oldest first."""
    return [_row(row) for row in await db.fetch("approvals.of_job", job_id, limit)]


class _VoteRefused(Exception):
    def __init__(self, approval_id: UUID, outcome: str) -> None:
        super().__init__(outcome)
        self.approval_id = approval_id
        self.outcome = outcome


def _missing(approval_id: UUID) -> NoReturn:
    raise NotFoundError(
        f"approval {approval_id} does not exist", hint="list them: cortex approvals ls"
    )


def _columns(vote: Vote) -> tuple[object, ...]:
    return (
        vote.approval_id,
        vote.is_approved,
        vote.by.document(),
        vote.seen,
        vote.reason,
        vote.channel,
        vote.address,
        vote.client,
        vote.edited,
    )


def _result(row: Record | None, vote: Vote) -> VoteResult:
    """Return the result of a vote. Raises `_VoteRefused` for one that does not count."""
    if row is None:
        raise AssertionError("cortex.decide always answers")
    if row["outcome"] == "missing":
        _missing(vote.approval_id)
    if row["outcome"] not in COUNTED:
        raise _VoteRefused(vote.approval_id, row["outcome"])
    return VoteResult(outcome=row["outcome"], agreed_count=row["votes"])


def _row(row: Record) -> ApprovalRow:
    return row_of(ApprovalRow, row, **_decoded(row))


def _approval(row: Record) -> Approval:
    votes = from_json(row["votes"])
    return row_of(
        Approval,
        row,
        **_decoded(row),
        asked=parse(row["asked"]),
        asked_text=row["asked"],
        job_head=from_json(row["job_head"]),
        votes=tuple(
            ApprovalVote(**vote | {"at": datetime.fromisoformat(vote["at"])}) for vote in votes
        ),
    )


def _decoded(row: Record) -> dict[str, Any]:
    return {
        "arguments": parse(row["arguments"]),
        "arguments_text": row["arguments"],
        "schema": from_json(row["schema"]),
    }


# --- The approvals inbox: what waits for people, polled repeatedly.


async def waiting(
    db: Database, *, by: Identity, also: Sequence[UUID], limit: int
) -> list[InboxRow]:
    """Return waiting requests, the most urgent ones, and some by their ids; in no order."""
    rows = await db.fetch("inbox.waiting", limit, by.document(), list(also), by.name, db.tenant)
    return rows_of(InboxRow, rows)


async def decided(db: Database, *, limit: int) -> list[InboxRow]:
    """Return requests that no longer wait, latest first."""
    return rows_of(InboxRow, await db.fetch("inbox.decided", limit, db.tenant))


async def arguments(
    db: Database, ids: Sequence[UUID], *, chars: int
) -> list[tuple[UUID, bytes, str]]:
    """Return the id, the digest of the arguments, and those as canonical JSON.

    Returns as many as fit into `chars` characters, and at least one.
    """
    rows = await db.fetch("inbox.arguments", list(ids), chars)
    return [(row["id"], row["digest"], row["text"]) for row in rows]
