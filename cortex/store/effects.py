"""Effects: the ledger of calls with an outside result, and what people say of unknown ones."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.canonical import parse
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import EffectIntent, EffectReport, IntentReply, JobStatus, OpenEffect
from cortex.postgres.database import Database, Record
from cortex.store.references import by_name
from cortex.store.rows import from_json, row_of


@attrs.frozen(kw_only=True)
class EffectRow:
    """A call with an outside result."""

    id: UUID
    job_id: UUID
    key: str
    """The step that it is."""
    tool: str
    arguments: Any
    status: EffectStatus = attrs.field(converter=EffectStatus)
    why: str | None
    """Why it failed, or why nobody knows."""
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
    """All that is known of an effect."""

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
    """Number of its step, once that is on record."""
    result: Any
    """What it returned, as a person said."""
    output: Any
    """What its step returned."""

    @property
    def returned(self) -> Any:
        """What it returned: as a person said, else as it stands in its step."""
        return self.output if self.result is None else self.result


@attrs.frozen(kw_only=True)
class EffectResolved:
    """How an effect and its job stand after a person said what became of it."""

    id: UUID
    tool: str
    status: EffectStatus
    job_id: UUID
    job_status: JobStatus
    resolution: Resolution
    job_goes_on: bool


async def intend(
    db: Database, *, pod_id: UUID, operations: Sequence[EffectIntent]
) -> dict[UUID, IntentReply]:
    """Ask for leave to call; return the answers by the ids of the intents.

    Those without an answer lost their lease. Safe to repeat: what was let through is let through.
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
    )
    return {operations[row["n"] - 1].id: _intended(row) for row in rows if row["verdict"] != "lost"}


async def record_outcomes(
    db: Database, *, pod_id: UUID, operations: Sequence[EffectReport]
) -> set[UUID]:
    """Record what became of effects whose steps are not done; return their ids. Safe to repeat."""
    rows = await db.fetch(
        "effects.tell",
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
    """Return the job's effects that may have been applied and whose step is not on record.

    `of_line`: also those that earlier jobs of its line left.
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
) -> list[EffectRow]:
    """Return effects, the newest first, older than `before`."""
    words = [status.value for status in statuses]
    if job_id is not None:
        rows = await db.fetch("effects.list_of_job", job_id, words, tool, before, limit)
    elif tool is not None:
        rows = await db.fetch("effects.list_of_tool", tool, words, before, limit)
    else:
        rows = await db.fetch("effects.list", words, before, limit)
    return [row_of(EffectRow, row, arguments=parse(row["arguments"])) for row in rows]


async def resolve(
    db: Database,
    effect_id: UUID,
    resolution: Resolution,
    *,
    by: str,
    reason: str,
    result: str | None = None,
) -> bool:
    """Record what a person says of an unknown effect; return whether its job goes on by it.

    `result`: JSON text of what it returned, of one that was applied. Raises `NotFoundError`, and
    `ConflictError` if nobody asks.
    """
    while True:
        row = await db.fetch_one("effects.resolve", effect_id, resolution.value, by, reason, result)
        if row is None:
            raise AssertionError("cortex.resolve_effect always answers")
        match row["outcome"]:
            case "resolved":
                return bool(row["is_let_go"])
            case "missing":
                raise NotFoundError(
                    f"effect {effect_id} does not exist", hint="list them: cortex effects ls"
                )
            case "again":  # a job that goes on from it has just taken it along
                continue
            case _:
                raise await _nothing_to_say(db, effect_id)


async def resolve_and_show(
    db: Database, effect_id: UUID, said: Resolution, *, by: str, reason: str, result: str | None
) -> EffectResolved:
    """Record it as `resolve` does; return how the effect and its job stand now."""
    goes_on = await resolve(db, effect_id, said, by=by, reason=reason, result=result)
    seen = await show(db, effect_id)
    return EffectResolved(
        id=seen.id,
        tool=seen.tool,
        status=seen.status,
        job_id=seen.job_id,
        job_status=seen.job_status,
        resolution=said,
        job_goes_on=goes_on,
    )


async def _nothing_to_say(db: Database, effect_id: UUID) -> ConflictError:
    effect = await show(db, effect_id)
    if effect.resolution:
        told = f"{effect.resolved_by} has said that already: {effect.resolution}"
        return ConflictError(f"effect {effect_id} is {effect.status}: {told}")
    return ConflictError(
        f"effect {effect_id} is {effect.status}, not UNKNOWN",
        hint="a person is asked only when nothing else can tell what became of it",
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
