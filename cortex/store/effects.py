"""Effects: the ledger of calls with an outside result, and people's resolutions of unknown ones."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.approvals.vote import unmet
from cortex.domain.canonical import parse
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import EffectIntent, EffectReport, IntentReply, JobStatus, OpenEffect
from cortex.domain.people import Identity
from cortex.domain.phrases import short_id
from cortex.postgres.database import Database, Record
from cortex.store.references import by_name
from cortex.store.rows import from_json, row_of


@attrs.frozen(kw_only=True)
class EffectRow:
    """A call with an outside result."""

    id: UUID
    job_id: UUID
    key: str
    """The step that calls it."""
    tool: str
    arguments: Any
    status: EffectStatus = attrs.field(converter=EffectStatus)
    why: str | None
    """Why it failed, or why its outcome is unknown."""
    created_at: datetime
    finished_at: datetime | None
    calls_count: int
    can_reconcile: bool
    resolution: Resolution | None = attrs.field(converter=attrs.converters.optional(Resolution))
    resolved_by: str | None
    approval_id: UUID | None
    agent: str | None
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class EffectDetail(EffectRow):
    lineage_id: UUID
    attempt: int
    tenant: str
    agent_version: int | None
    digest: bytes
    is_sure: bool
    called_at: datetime
    resolved_at: datetime | None
    resolved_reason: str | None
    job_status: JobStatus = attrs.field(converter=JobStatus)
    job_type: str
    step: int | None
    """Number of its step, once that is recorded."""
    people: int | None
    """How many people approved the call: as many must say that it was not applied."""
    agreed_by: list[str]
    """Who has said so of its last call."""
    result: Any
    """The result that a person entered."""
    output: Any
    """The output of its step."""

    @property
    def returned(self) -> Any:
        """Its result: as a person entered it, otherwise from its step."""
        return self.output if self.result is None else self.result


@attrs.frozen(kw_only=True)
class EffectResolved:
    """The state of an effect and its job after a person resolved it."""

    id: UUID
    tool: str
    status: EffectStatus
    job_id: UUID
    job_status: JobStatus
    resolution: Resolution
    job_goes_on: bool
    people_missing: int = 0
    """How many more people must say the same before it counts."""


@attrs.frozen(kw_only=True)
class Resolved:
    """What a person's resolution has changed."""

    job_goes_on: bool = False
    people_missing: int = 0
    """How many more people must say the same; 0: it counts."""


async def intend(
    db: Database, *, pod_id: UUID, operations: Sequence[EffectIntent]
) -> dict[UUID, IntentReply]:
    """Request permission to call; return the answers by the ids of the intents.

    Intents without an answer lost their lease. Safe to repeat: a permitted call stays permitted.
    """
    rows = await db.fetch(
        "effects.intend",
        pod_id,
        [op.lease.job_id for op in operations],
        [op.lease.attempt for op in operations],
        [op.id for op in operations],
        [op.key for op in operations],
        [op.tool for op in operations],
        [op.arguments for op in operations],
        [op.digest for op in operations],
        [op.is_sure for op in operations],
        [op.can_reconcile for op in operations],
        [op.approval_id for op in operations],
        [op.is_named for op in operations],
    )
    return {operations[row["n"] - 1].id: _intended(row) for row in rows if row["verdict"] != "lost"}


async def record_outcomes(
    db: Database, *, pod_id: UUID, operations: Sequence[EffectReport]
) -> set[UUID]:
    """Record outcomes of effects whose steps are not done; return their ids. Safe to repeat."""
    rows = await db.fetch(
        "effects.record_outcomes",
        pod_id,
        [op.id for op in operations],
        [op.lease.job_id for op in operations],
        [op.lease.attempt for op in operations],
        [op.is_applied for op in operations],
        [op.why for op in operations],
        [op.result for op in operations],
    )
    return {row["id"] for row in rows}


async def unrecorded(
    db: Database, job_id: UUID, *, lineage_id: UUID, of_line: bool
) -> list[OpenEffect]:
    """Return the job's effects that may have been applied and whose step is not recorded.

    `of_line`: also those that earlier jobs of its lineage left.
    """
    rows = await db.fetch("effects.unrecorded", job_id, lineage_id, of_line)
    return [OpenEffect(row["key"], row["status"]) for row in rows]


async def find(db: Database, name: str) -> UUID:
    """Return the effect whose id is, or ends with, what a person typed."""
    return await by_name(db, name, kind="effect", query="effects.ids_by_suffix")


async def show(db: Database, effect_id: UUID) -> EffectDetail:
    """Return one effect. Raises `NotFoundError`."""
    row = await db.fetch_one("effects.show", effect_id)
    if row is None:
        raise NotFoundError(f"effect {effect_id} does not exist", hint="list: cortex effects ls")
    return row_of(
        EffectDetail,
        row,
        arguments=parse(row["arguments"]),
        result=from_json(row["result"]),
        output=from_json(row["output"]),
    )


async def page(
    db: Database,
    *,
    statuses: Sequence[EffectStatus] = tuple(EffectStatus),
    tool: str | None = None,
    job_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 100,
    tenant: str | None = None,
) -> list[EffectRow]:
    """Return effects, newest first, older than `before`."""
    words = [status.value for status in statuses]
    tenant = tenant or db.tenant
    if job_id is not None:
        rows = await db.fetch("effects.list_of_job", job_id, words, tool, before, limit, tenant)
    elif tool is not None:
        rows = await db.fetch("effects.list_of_tool", tool, words, before, limit, tenant)
    else:
        rows = await db.fetch("effects.list", words, before, limit, tenant)
    return [row_of(EffectRow, row, arguments=parse(row["arguments"])) for row in rows]


async def resolve(
    db: Database,
    effect_id: UUID,
    resolution: Resolution,
    *,
    by: Identity,
    reason: str,
    result: str | None = None,
) -> Resolved:
    """Record a person's resolution of an unknown effect.

    `result`: JSON text of its result, if it was applied. Raises `NotFoundError`, `ForbiddenError`
    without the roles, and `ConflictError` if the effect is not unknown, or this person may not say
    so alone or at all.
    """
    while True:
        row = await db.fetch_one(
            "effects.resolve", effect_id, resolution.value, by.document(), reason, result
        )
        if row is None:
            raise AssertionError("cortex.resolve_effect always answers")
        match row["outcome"]:
            case "resolved":
                return Resolved(job_goes_on=bool(row["is_let_go"]))
            case "agreed":
                return Resolved(people_missing=row["people"] - row["votes"])
            case "missing":
                raise NotFoundError(
                    f"effect {effect_id} does not exist", hint="list them: cortex effects ls"
                )
            case "again":  # a job that continues this one has just taken it along
                continue
            case "not_unknown":
                raise await _not_unknown(db, effect_id)
            case refusal:
                raise unmet(refusal, f"effect {short_id(effect_id)}")


async def resolve_and_show(
    db: Database,
    effect_id: UUID,
    resolution: Resolution,
    *,
    by: Identity,
    reason: str,
    result: str | None,
) -> EffectResolved:
    """Record it as `resolve` does; return the state of the effect and its job."""
    done = await resolve(db, effect_id, resolution, by=by, reason=reason, result=result)
    effect = await show(db, effect_id)
    return EffectResolved(
        id=effect.id,
        tool=effect.tool,
        status=effect.status,
        job_id=effect.job_id,
        job_status=effect.job_status,
        resolution=resolution,
        job_goes_on=done.job_goes_on,
        people_missing=done.people_missing,
    )


async def _not_unknown(db: Database, effect_id: UUID) -> ConflictError:
    effect = await show(db, effect_id)
    if effect.resolution:
        reason = f"{effect.resolved_by} has said that already: {effect.resolution}"
        return ConflictError(f"effect {effect_id} is {effect.status}: {reason}")
    return ConflictError(
        f"effect {effect_id} is {effect.status}, not UNKNOWN",
        hint="a person resolves an effect only when its outcome cannot be found out otherwise",
    )


def _intended(row: Record) -> IntentReply:
    return IntentReply(
        id=row["id"],
        verdict=row["verdict"],
        attempt=row["attempt"],
        result=row["result"],
        why=row["why"],
        quota=row["quota"],
        used=row["used"],
        limit=row["limit_amount"],
        amount=row["amount"],
        wait_s=row["wait_s"],
    )
