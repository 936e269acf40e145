"""Approvals: requests, their one decision, their links. Asking is part of `tasks.suspend`."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.approval import ApprovalStatus, Decided
from cortex.domain.canonical import parse
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.store.database import Connection, Database, Record
from cortex.store.found import by_name
from cortex.store.jobs import plain
from cortex.store.queries import sql

EXPIRE_BATCH: Final = 200
TRIES: Final = 5
"""A job that goes on from a failed one takes its requests along: rare once, again would be chance."""


@attrs.frozen(kw_only=True)
class Verdict:
    """What one person says of one request."""

    approval_id: UUID
    is_approved: bool
    by: str
    seen: bytes
    """SHA-256 of the arguments that this person saw: others are not decided by it."""
    reason: str | None = None
    channel: str
    """cli, api, page or tui."""
    address: str | None = None
    client: str | None = None
    edited: str | None = None
    """Canonical JSON of the arguments as this person edited them; None: as they stand."""


@attrs.frozen(kw_only=True)
class Ruling:
    """What a verdict led to."""

    outcome: str
    """approved · agreed (more people are needed) · denied · already · expired · changed ·
    own_request · agreed_before"""
    agreed_count: int

    @property
    def is_taken(self) -> bool:
        """It counts."""
        return self.outcome in ("approved", "agreed", "denied")


async def of_line(db: Database, lineage_id: UUID, key: str) -> Decided | None:
    """Return the newest request of a line of jobs for a step."""
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
        by=row["decided_by"],
        reason=row["reason"],
        at=row["decided_at"],
    )


async def decide(db: Database, verdict: Verdict) -> Ruling:
    """Decide one request; the first decision wins. Raises `NotFoundError`.

    What did not count is told by the ruling, with nothing changed: see `refusal`.
    """
    for _ in range(TRIES):
        row = await db.fetch_one("approvals.decide", *_columns(verdict))
        ruling = _ruling(row, verdict)
        if ruling.outcome != "again":
            return ruling
    raise ConflictError(f"approval {verdict.approval_id} changes all the time; try again")


async def decide_all(db: Database, verdicts: Sequence[Verdict]) -> list[Ruling]:
    """Decide several requests in one transaction, all or none.

    Raises what `refusal` gives for the first one that does not count; then nothing is changed.
    """
    ordered = sorted(verdicts, key=lambda verdict: verdict.approval_id)

    async def work(connection: Connection) -> list[Ruling] | _NotTaken:
        rulings = []
        try:
            async with connection.transaction():  # a savepoint: a refusal costs no connection
                for verdict in ordered:
                    row = await connection.fetchrow(sql("approvals.decide"), *_columns(verdict))
                    ruling = _ruling(row, verdict)
                    if not ruling.is_taken:
                        raise _NotTaken(verdict, ruling)
                    rulings.append(ruling)
        except _NotTaken as found:
            return found
        return rulings

    rulings = await db.transact(work)
    if isinstance(rulings, _NotTaken):
        raise refusal(await show(db, rulings.verdict.approval_id), rulings.ruling)
    return rulings


def refusal(approval: Mapping[str, Any], ruling: Ruling) -> ConflictError:
    """Return the error that tells a person why their decision does not count."""
    name = f"approval {approval['id']}"
    status, by, at = approval["status"], approval["decided_by"], approval["decided_at"]
    match ruling.outcome:
        case "already" if by is not None:
            how = f" on {approval['channel']}" if approval["channel"] else ""
            why = f": {approval['reason']}" if approval["reason"] else ""
            told = f"already {status.lower()} by {by} at {at:%Y-%m-%dT%H:%M:%SZ}{how}{why}"
            return ConflictError(f"{name} was {told}")
        case "already" if status == ApprovalStatus.CANCELLED:
            return ConflictError(f"{name} is void: {approval['reason']}")
        case "already" | "expired":
            return ConflictError(
                f"{name} expired at {approval['expires_at']:%Y-%m-%dT%H:%M:%SZ}, nothing was executed",
                hint="retry the job to be asked anew",
            )
        case "changed":
            return ConflictError(
                f"the arguments of {name} have changed since they were shown",
                hint="look at them again before deciding",
            )
        case "own_request":
            return ConflictError(
                f"{name} is critical and was asked for by you", hint="another person has to agree"
            )
        case "agreed_before":
            return ConflictError(
                f"you have agreed to {name} already", hint="another person has to agree, too"
            )
        case outcome:
            return ConflictError(f"{name}: {outcome}")


async def expire(db: Database, *, limit: int = EXPIRE_BATCH) -> int:
    """Close requests that nobody decided in time, with what follows for their jobs; how many."""
    row = await db.fetch_one("approvals.expire", limit)
    return row["count"] if row else 0


async def link(db: Database, approval_id: UUID, *, digest: bytes, by: str) -> None:
    """Give a request a link, in place of the one before; `digest`: SHA-256 of its token.

    Raises `NotFoundError`, and `ConflictError` if it cannot be decided any more.
    """
    if await db.fetch_one("approvals.link", approval_id, digest, by) is None:
        raise refusal(await show(db, approval_id), Ruling(outcome="already", agreed_count=0))


async def is_token(db: Database, approval_id: UUID, token: str) -> bool:
    """Whether this is the token of the request's link, compared in constant time."""
    row = await db.fetch_one("approvals.token", approval_id)
    known = (row["token_digest"] if row else None) or bytes(hashlib.sha256().digest_size)
    given = hashlib.sha256(token.encode(errors="replace")).digest()
    return hmac.compare_digest(given, known)


async def find(db: Database, name: str) -> UUID:
    """Return the request whose id is, or ends with, what a person typed."""
    return await by_name(db, name, kind="approval", query="approvals.ids_by_suffix")


async def show(db: Database, approval_id: UUID) -> dict[str, Any]:
    """Return one request in full. Raises `NotFoundError`. Its digests are bytes.

    `arguments`, `asked`: decoded; `arguments_text`, `asked_text`: canonical, as they will run.
    """
    row = await db.fetch_one("approvals.show", approval_id)
    if row is None:
        raise NotFoundError(
            f"approval {approval_id} does not exist", hint="list them: cortex approvals ls"
        )
    return _shown(row)


async def pending(
    db: Database, *, after: UUID | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Return requests that wait, the first to expire first."""
    return [_shown(row) for row in await db.fetch("approvals.pending", after, limit)]


async def page(
    db: Database,
    *,
    statuses: Sequence[ApprovalStatus] = tuple(ApprovalStatus),
    before: UUID | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Return requests, the newest first."""
    words = [status.value for status in statuses]
    return [_shown(row) for row in await db.fetch("approvals.list", words, before, limit)]


async def of_job(db: Database, job_id: UUID, *, limit: int = 1000) -> list[dict[str, Any]]:
    """Return a job's requests, the oldest first."""
    return [_shown(row) for row in await db.fetch("approvals.of_job", job_id, limit)]


class _NotTaken(Exception):
    def __init__(self, verdict: Verdict, ruling: Ruling) -> None:
        super().__init__(ruling.outcome)
        self.verdict = verdict
        self.ruling = ruling


def _columns(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.approval_id,
        verdict.is_approved,
        verdict.by,
        verdict.seen,
        verdict.reason,
        verdict.channel,
        verdict.address,
        verdict.client,
        verdict.edited,
    )


def _ruling(row: Record | None, verdict: Verdict) -> Ruling:
    if row is None:
        raise AssertionError("cortex.decide always answers")
    if row["outcome"] == "missing":
        raise NotFoundError(
            f"approval {verdict.approval_id} does not exist", hint="list: cortex approvals ls"
        )
    return Ruling(outcome=row["outcome"], agreed_count=row["votes"])


def _shown(row: Record) -> dict[str, Any]:
    shown = plain(row)
    for name in ("arguments", "asked"):
        if name in shown:
            shown[f"{name}_text"] = row[name]
            shown[name] = parse(row[name])
    for name in ("schema", "votes", "job_head"):
        if shown.get(name) is not None:
            shown[name] = orjson.loads(row[name])
    return shown
