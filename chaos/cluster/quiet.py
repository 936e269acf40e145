"""Waits until a healed cluster has come to rest, and reports when it does not."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import orjson
from attrs import frozen

from chaos.cluster.stage import Stage

POLL_S: Final = 0.25
DUMP_WITHIN_S: Final = 3.0

OPEN: Final = ("open_count", "task_count", "message_count", "queued_count")
"""All are 0 at rest."""
_BACKLOG = """
    SELECT
        (SELECT count(*) FROM cortex.job
         WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')) AS open_count,
        (SELECT count(*) FROM cortex_worker.task) AS task_count,
        (SELECT count(*) FROM cortex.outbox
         WHERE status IN ('PENDING', 'PROCESSING')) AS message_count,
        (SELECT count(*) FROM cortex.schedule_instant WHERE outcome = 'QUEUED') AS queued_count,
        (SELECT min(due) - cortex.now() FROM (
            SELECT run_at AS due FROM cortex_worker.task
            UNION ALL SELECT next_retry_at FROM cortex.job WHERE status = 'RETRY'
            UNION ALL SELECT available_at FROM cortex.outbox WHERE status = 'PENDING'
            UNION ALL SELECT locked_until FROM cortex.outbox WHERE status = 'PROCESSING'
            UNION ALL SELECT open_until FROM cortex.breaker WHERE state = 'OPEN') later
         WHERE due > cortex.now()) AS next_in,
        (SELECT count(*) FROM cortex.job_history) AS history_count,
        (SELECT count(*) FROM cortex.job_step) AS step_count,
        (SELECT count(*) FROM cortex.effect) AS effect_count
"""
_ACTIVITY = """
    SELECT pid, application_name, client_port, state, wait_event_type, wait_event,
           pg_blocking_pids(pid) AS blocked_by, now() - xact_start AS xact, query
    FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY xact_start
"""
_LOCKS = """
    SELECT l.pid, l.locktype, l.relation::regclass::text AS relation, l.mode, l.granted,
           l.classid, l.objid, l.transactionid::text AS transaction
    FROM pg_locks l ORDER BY l.granted, l.pid
"""
_OPEN_MESSAGES = """
    SELECT to_jsonb(o) - 'payload' AS message, p.name AS pod, p.state AS pod_state,
           to_jsonb(b) AS breaker
    FROM cortex.outbox o
    LEFT JOIN cortex.pod p ON p.id = o.locked_by
    LEFT JOIN cortex.breaker b ON b.name = 'notify:' || o.subscription
    WHERE o.status IN ('PENDING', 'PROCESSING') ORDER BY o.seq LIMIT 1000
"""
_OPEN_JOBS = """
    SELECT to_jsonb(j) - 'payload' AS job, to_jsonb(t) AS task, p.name AS pod, p.state AS pod_state
    FROM cortex.job j
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    LEFT JOIN cortex_worker.task t ON t.job_id = j.id
    WHERE j.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') ORDER BY j.id
"""
DUMPED: Final = {
    "activity": _ACTIVITY,
    "locks": _LOCKS,
    "open_jobs": _OPEN_JOBS,
    "open_messages": _OPEN_MESSAGES,
}


@frozen(kw_only=True)
class Patience:
    """How long to wait, in seconds."""

    idle_s: float = 20.0
    """Without any progress, and with nothing due later, the cluster is stuck."""
    whole_s: float = 150.0
    """In any case."""


class StuckError(Exception):
    """The cluster does not come to rest."""


async def until_quiet(stage: Stage, *, patience: Patience) -> None:
    """Wait until all jobs have ended and all messages were sent.

    Raises `StuckError` with the reason.
    """
    began_s = moved_at_s = stage.history.now_s
    previous: tuple[object, ...] = ()
    while True:
        now_s = stage.history.now_s
        backlog = await _backlog(stage)
        if backlog is not None:
            if not any(backlog[name] for name in OPEN):
                return
            counts = tuple(value for name, value in backlog.items() if name != "next_in")
            is_due_later = backlog["next_in"] is not None and backlog["next_in"] < timedelta(
                seconds=patience.whole_s
            )
            if counts != previous or is_due_later:
                previous, moved_at_s = counts, now_s
        description = _describe(backlog)
        if now_s - moved_at_s > patience.idle_s:
            raise StuckError(f"nothing moved for {patience.idle_s:g} s: {description}")
        if now_s - began_s > patience.whole_s:
            raise StuckError(f"not at rest after {patience.whole_s:g} s: {description}")
        await asyncio.sleep(POLL_S)


async def dump(stage: Stage, folder: Path) -> None:
    """Write down what everything waits for: tasks of every pod, sessions, locks, open jobs."""
    for pod in stage.pods:
        if pod.ready is not None:  # earlier, the signal would end it
            pod.cont()
            pod.signal(signal.SIGUSR1)
    for name, query in DUMPED.items():
        try:
            rows = await stage.postgres.sql(query)
            lines = [orjson.dumps(row, default=str).decode() for row in rows]
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            lines = [f"not available: {error!r}"]
        (folder / f"stuck_{name}.jsonl").write_text("\n".join(lines) + "\n")
    await asyncio.sleep(DUMP_WITHIN_S)  # by then, the pods' logs contain their task trees


async def _backlog(stage: Stage) -> dict[str, Any] | None:
    """How much is open and has happened; None while the database does not answer."""
    try:
        (row,) = await stage.postgres.sql(_BACKLOG)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        return None
    return row


def _describe(backlog: dict[str, Any] | None) -> str:
    if backlog is None:
        return "the database does not answer"
    return (
        f"{backlog['open_count']} jobs are open, {backlog['task_count']} tasks left, "
        f"{backlog['message_count']} messages not sent, {backlog['queued_count']} instants queued"
    )
