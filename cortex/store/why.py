"""The facts that explain why a job is not running."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import NotFoundError
from cortex.domain.job import JobStatus, running_step_of
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.waiting import awaited_of
from cortex.domain.why_facts import (
    AHEAD_MAX,
    AttemptFacts,
    BreakerFacts,
    BudgetFacts,
    DeafFacts,
    FleetFacts,
    LimitFacts,
    LineFacts,
    MisfitFacts,
    OwnerFacts,
    PauseFacts,
    QueueFacts,
    TaskFacts,
    WaitFacts,
    WhyFacts,
)
from cortex.postgres.database import Database, Record


async def facts_of(db: Database, job_id: UUID) -> WhyFacts:
    """Read them all in one snapshot. Raises `NotFoundError`."""
    rows = await db.fetch("why.facts", [job_id], AHEAD_MAX + 1)
    if not rows:
        raise NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
    return _facts(rows[0])


async def facts_of_all(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, WhyFacts]:
    """Return the facts of several jobs, by one statement.

    For lists: the tasks ahead of them are not counted.
    """
    rows = await db.fetch("why.facts", list(job_ids), 0) if job_ids else ()
    return {row["job_id"]: _facts(row) for row in rows}


def _facts(row: Record) -> WhyFacts:
    return WhyFacts(
        **{name: row[name] for name in _PLAIN},
        status=JobStatus(row["status"]),
        running_step=None
        if row["running_step"] is None
        else running_step_of(orjson.loads(row["running_step"])),
        task=_task(row),
        owner=_owner(row),
        queue=_queue(row),
        pause=_pause(row),
        fleet=_fleet(row),
        breaker=_breaker(row),
        budget=_budget(row),
        awaited=None if row["awaited"] is None else awaited_of(orjson.loads(row["awaited"])),
        last=_last(row),
        line=None if row["line"] is None else _line(orjson.loads(row["line"])),
        deaf=_deaf(row),
        misfits=() if row["misfits"] is None else _misfits(orjson.loads(row["misfits"])),
        waits=() if row["waits"] is None else _waits(orjson.loads(row["waits"])),
    )


_PLAIN = (
    *("now", "job_id", "type", "attempt", "retry_count", "max_retries", "started_at"),
    *("finished_at", "heartbeat_at", "suspended_at", "next_retry_at", "cancel_requested_at"),
    *("cancelled_by", "cancel_reason", "error_message", "error_class", "error_code", "waiting_on"),
    *("step", "ahead_count", "priority", "due_by"),
)


def _task(row: Record) -> TaskFacts | None:
    if row["task_state"] is None:
        return None
    return TaskFacts(
        state=row["task_state"],
        run_at=row["task_run_at"],
        attempts_spent=row["attempts_spent"],
        max_attempts=row["max_attempts"],
        priority=row["task_priority"],
    )


def _deaf(row: Record) -> DeafFacts | None:
    if row["deaf"] is None:
        return None
    data = orjson.loads(row["deaf"])
    return DeafFacts(
        stopped_by=data["stopped_by"],
        over_s=data["over_s"],
        at=row["deaf_at"],
        stands_at=next(reversed(data["stands_at"]), "an unknown place"),
    )


def _owner(row: Record) -> OwnerFacts | None:
    if row["pod"] is None:
        return None
    return OwnerFacts(
        name=row["pod"],
        code_version=row["code_version"],
        is_alive=row["pod_is_alive"],
        silent_after_s=row["silent_after_s"],
        swept_after_s=row["zombie_s"] + row["sweep_s"],
        threads_lost=row["threads_lost"],
    )


def _queue(row: Record) -> QueueFacts | None:
    if row["queue_name"] is None:
        return None
    return QueueFacts(
        name=row["queue_name"],
        head_id=row["head_id"],
        is_head_running=row["head_is_running"],
        head_waits=None if row["head_waits"] is None else JobStatus(row["head_waits"]),
    )


def _line(row: Mapping[str, Any]) -> LineFacts:
    limits = (
        LimitFacts(
            **{name: each[name] for name in attrs.fields_dict(LimitFacts) if name != "room_at"},
            room_at=None if each["room_at"] is None else datetime.fromisoformat(each["room_at"]),
        )
        for each in row["limits"] or ()
    )
    return LineFacts(ahead=row["ahead"], waiting=row["waiting"], limits=tuple(limits))


def _pause(row: Record) -> PauseFacts | None:
    if row["paused_by"] is None:
        return None
    return PauseFacts(
        target=Pausable(PauseKind(row["pause_kind"]), row["pause_name"]),
        queue=row["queue_name"],
        by=row["paused_by"],
        at=row["paused_at"],
        reason=row["pause_reason"],
    )


def _fleet(row: Record) -> FleetFacts:
    poll_setting = {} if row["peer_check_s"] is None else {"look_s": row["peer_check_s"]}
    return FleetFacts(
        **poll_setting,
        ready_count=row["ready_count"],
        knowing_count=row["knowing_count"],
        slots=int(row["slots"]),
        free_slots=int(row["free_slots"]),
        draining_count=row["draining_count"],
        types=tuple(row["types"]),
        needs=tuple(row["needs"]),
        lacking=tuple(row["lacking"]),
        tools=tuple(row["tools"]),
        has_ticks=row["has_ticks"],
        do_ticks_lack=row["do_ticks_lack"],
    )


def _breaker(row: Record) -> BreakerFacts | None:
    if row["breaker_state"] is None:
        return None
    return BreakerFacts(
        name=row["waiting_on"],
        state=row["breaker_state"],
        open_until=row["open_until"],
        is_probed=row["is_probed"],
        forced_by=row["forced_by"],
        reason=row["forced_reason"],
        last_error=row["breaker_error"],
    )


def _budget(row: Record) -> BudgetFacts | None:
    if row["budget"] is None:
        return None
    return BudgetFacts(
        name=row["budget"],
        unit=row["budget_unit"],
        share_of=row["share_of"],
        limit=row["limit_amount"],
        spent=row["spent"],
    )


def _misfits(rows: Sequence[Mapping[str, Any]]) -> tuple[MisfitFacts, ...]:
    return tuple(MisfitFacts(**{**row, "at": datetime.fromisoformat(row["at"])}) for row in rows)


def _waits(rows: Sequence[Mapping[str, Any]]) -> tuple[WaitFacts, ...]:
    return tuple(WaitFacts(**{**row, "awaited": awaited_of(row["awaited"])}) for row in rows)


def _last(row: Record) -> AttemptFacts | None:
    if row["last_attempt"] is None:
        return None
    return AttemptFacts(
        attempt=row["last_attempt"],
        outcome=row["last_outcome"],
        error=row["last_error"],
        error_class=row["last_error_class"],
        code=row["last_error_code"],
        source=row["last_error_source"],
        pod=row["last_pod"],
        threads_lost=row["last_threads_lost"],
        has_pod=row["last_has_pod"],
    )
