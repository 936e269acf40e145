"""Steps: the append-only checkpoints of a job."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import MisfitKind, UnfitCodeError
from cortex.domain.job import NumberedStep, OpenEffect, Past, Step, StepKind
from cortex.domain.usage import Usage
from cortex.postgres.database import Database, Record, affected
from cortex.store import effects
from cortex.store.jobs import StepRow, SubstitutionRow
from cortex.store.rows import rows_of, unless_all_null

PAGE_MAX = 100
"""Steps loaded at once: outputs may be 4 MiB each."""
PATCHED_JOBS_MAX: Final = 100_000
"""Jobs that a list looks at, oldest first."""
_KINDS: Final = frozenset(StepKind)


@attrs.frozen(kw_only=True)
class StepWithOutput(StepRow):
    """A committed step and what it returned, as JSON text."""

    output: str | None


@attrs.frozen(kw_only=True)
class FullStep(StepRow):
    """A committed step with its input and what it returned."""

    digest: bytes
    output: Any
    amid: str | None
    parent_key: str | None
    input: str | None


async def commit(db: Database, *, pod_id: UUID, operations: Sequence[NumberedStep]) -> set[UUID]:
    """Append one step to each of several jobs; return the jobs whose step was appended.

    No two operations may be of one job. Repeating it appends nothing: see `recorded`.
    """
    ordered = sorted(operations, key=lambda op: op.step.lease.job_id)
    columns: tuple[Sequence[object], ...] = (
        [op.step.lease.job_id for op in ordered],
        [op.step.lease.attempt for op in ordered],
        [op.seq for op in ordered],
        [op.step.kind.value for op in ordered],
        [op.step.key for op in ordered],
        [op.step.digest for op in ordered],
        [op.step.duration_s for op in ordered],
        unless_all_null([op.step.cost_usd for op in ordered]),
        unless_all_null([op.step.usage for op in ordered]),
        [op.step.output for op in ordered],
        unless_all_null([op.head for op in ordered]),
        [op.step.given for op in ordered],
        unless_all_null([op.step.amid for op in ordered]),
        unless_all_null([op.step.parent_key for op in ordered]),
    )
    effects = [op.step.effect for op in ordered]
    if not any(effects):
        return affected(await db.fetch("steps.commit", pod_id, *columns), "job_id")
    outcomes: tuple[Sequence[object], ...] = (
        [effect and effect.id for effect in effects],
        [effect is not None and effect.why_not is None for effect in effects],
        [effect and effect.why_not for effect in effects],
    )
    return affected(await db.fetch("steps.commit_effects", pod_id, *columns, *outcomes), "job_id")


async def recorded(db: Database, operations: Sequence[NumberedStep]) -> set[UUID]:
    """Return the jobs in which these steps are recorded, by the same attempts."""
    rows = await db.fetch(
        "steps.recorded",
        [op.step.lease.job_id for op in operations],
        [op.step.lease.attempt for op in operations],
        [op.seq for op in operations],
        [op.step.key for op in operations],
        [op.step.digest for op in operations],
    )
    return affected(rows, "job_id")


async def of_job(db: Database, job_id: UUID) -> list[Step]:
    """Return every committed step of a job in order, outputs included.

    Raises `UnfitCodeError` if a newer release recorded a step of a kind that this one lacks.
    """
    return [_step(row) for row in await _all(db, job_id, with_inputs=False)]


def _step(row: Record) -> Step:
    if row["kind"] not in _KINDS:
        raise _newer(row, f"is of kind {row['kind']!r}")
    try:
        usage = None if row["usage"] is None else Usage.from_json(orjson.loads(row["usage"]))
    except TypeError as error:
        raise _newer(row, f"counts usage {row['usage']}") from error
    return Step(
        seq=row["seq"],
        key=row["key"],
        digest=row["digest"],
        output=row["output"],
        usage=usage,
        cost_usd=row["cost_usd"],
        kind=StepKind(row["kind"]),
        amid=row["amid"],
        parent_key=row["parent_key"],
    )


def _newer(row: Record, what: str) -> UnfitCodeError:
    return UnfitCodeError(
        f"step {row['seq']} {row['key']!r} on record {what}, which this release of Cortex does"
        " not know",
        kind=MisfitKind.STEP,
        hint="run pods of one version of Cortex, the newest one that has run here",
    )


@attrs.frozen(kw_only=True)
class JobRecord:
    """What a job has on record when an attempt begins."""

    steps: list[Step]
    effects: list[OpenEffect]
    past: Past


async def record_of(
    db: Database, job_id: UUID, *, lineage_id: UUID, of_line: bool, has_steps: bool, has_open: bool
) -> JobRecord:
    """Return the record of a job that a pod runs.

    `of_line`: what earlier jobs of its lineage left open counts, too. `has_steps`, `has_open`: it
    has steps, and has had effects or questions.
    """
    committed = await of_job(db, job_id) if has_steps else []
    left = []
    if has_open or of_line:
        left = await effects.unrecorded(db, job_id, lineage_id=lineage_id, of_line=of_line)
    row = await db.fetch_one("steps.past", job_id, lineage_id, of_line)
    past = (
        Past()
        if row is None
        else Past(questions=tuple(row["questions"]), is_same_code=row["is_same_code"])
    )
    return JobRecord(steps=committed, effects=left, past=past)


async def input_of(db: Database, job_id: UUID, key: str) -> str | None:
    """Return the stored input of a committed step; None for a step older than this column."""
    row = await db.fetch_one("steps.input_of", job_id, key)
    return None if row is None else row["input"]


async def page(db: Database, job_id: UUID, *, after: int = 0, limit: int = 1000) -> list[StepRow]:
    """Return steps after a position, without outputs, for people."""
    return rows_of(StepRow, await db.fetch("steps.page", job_id, after, limit))


async def substitutions(db: Database, job_id: UUID, *, after: int = 0) -> list[SubstitutionRow]:
    """Return which other models answered in steps after a position."""
    return rows_of(SubstitutionRow, await db.fetch("steps.substitutions", job_id, after))


async def page_with_outputs(
    db: Database, job_id: UUID, *, after: int = 0, limit: int, bytes_max: int
) -> tuple[list[StepWithOutput], bool]:
    """Return steps after a position with their outputs, and whether there are more.

    Outputs are JSON text, bounded in total; but the first one is always complete.
    """
    rows = await db.fetch("steps.page_with_outputs", job_id, after, limit, bytes_max)
    return rows_of(StepWithOutput, rows), bool(rows) and rows[0]["found_count"] > len(rows)


async def outputs(db: Database, job_id: UUID) -> list[FullStep]:
    """Return every step of a job with its output decoded, for people and machines."""
    return rows_of(FullStep, await _all(db, job_id, with_inputs=True))


async def _all(db: Database, job_id: UUID, *, with_inputs: bool) -> list[Record]:
    """Load the steps page by page: a page fits into a statement's time."""
    rows: list[Record] = []
    while True:
        after = rows[-1]["seq"] if rows else 0
        page = await db.fetch("steps.of_job", job_id, after, PAGE_MAX, with_inputs)
        rows += page
        if len(page) < PAGE_MAX:
            return rows


# --- Patches: which unfinished jobs need which branch of a change to their code.


@attrs.frozen(kw_only=True)
class PatchRow:
    """A patch in one job type."""

    patch: str
    type: str
    old: int
    """Unfinished jobs that keep the old branch."""
    new: int
    """Unfinished jobs that take the new branch."""
    undecided: int
    """Unfinished jobs of the type that have steps, but not this decision: they may need either."""
    old_job: UUID | None
    """The oldest that keeps the old branch."""
    undecided_job: UUID | None
    is_capped: bool
    """There are more than `PATCHED_JOBS_MAX` jobs: newer ones are not counted."""


async def patches(db: Database) -> list[PatchRow]:
    """Return the patches that unfinished jobs have reached, by name, then by type."""
    return rows_of(PatchRow, await db.fetch("steps.patches", PATCHED_JOBS_MAX))


# --- The records of many jobs that are not over, for a replay that does nothing.

LIVE_JOBS_MAX: Final = 100_000
BATCH_BYTES_MAX: Final = 16 * 2**20
"""Outputs loaded at once, as far as one job has no more."""


@attrs.frozen(kw_only=True)
class LiveJob:
    """A job that is not over, without its record."""

    id: UUID
    type: str
    attempt: int
    payload: str
    """JSON text."""
    agent_id: UUID | None
    agent_version: int | None
    tenant: str
    lineage_id: UUID | None
    timeout_s: int
    bytes: int
    """Size of its steps' outputs, as stored."""


@attrs.frozen(kw_only=True)
class LiveRecord:
    """A job that is not over, with its record."""

    job: LiveJob
    steps: tuple[Step, ...]
    effects: tuple[OpenEffect, ...]
    arguments: dict[str, str]
    """The arguments of these effects, JSON texts by key."""
    questions: tuple[str, ...]
    """Keys of steps that wait for people."""
    misfit: str | None = None
    """Why this release cannot read its steps, which are empty then."""


async def live(db: Database, *, limit: int = LIVE_JOBS_MAX) -> list[UUID]:
    """Return jobs that are not over, oldest first."""
    return [row["id"] for row in await db.fetch("steps.live", limit)]


async def live_jobs(db: Database, ids: Sequence[UUID]) -> list[LiveJob]:
    """Return those of these jobs that are not over."""
    return rows_of(LiveJob, await db.fetch("steps.live_jobs", list(ids)))


async def records_of(db: Database, jobs: Sequence[LiveJob]) -> list[LiveRecord]:
    """Return jobs with their records."""
    ids = [job.id for job in jobs]
    committed: dict[UUID, list[Step]] = {job_id: [] for job_id in ids}
    misfits: dict[UUID, str] = {}
    for row in await db.fetch("steps.of_jobs", ids):
        try:
            committed[row["job_id"]].append(_step(row))
        except UnfitCodeError as error:
            misfits.setdefault(row["job_id"], error.message)
    begun: dict[UUID, list[Record]] = {job_id: [] for job_id in ids}
    for row in await db.fetch("steps.open_of_jobs", ids):
        begun[row["job_id"]].append(row)
    return [
        LiveRecord(
            job=job,
            steps=() if job.id in misfits else tuple(committed[job.id]),
            effects=tuple(
                OpenEffect(row["key"], row["status"]) for row in begun[job.id] if row["status"]
            ),
            arguments={row["key"]: row["arguments"] for row in begun[job.id] if row["status"]},
            questions=tuple(row["key"] for row in begun[job.id] if not row["status"]),
            misfit=misfits.get(job.id),
        )
        for job in jobs
    ]
