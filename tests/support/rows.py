"""What tests ask of the record, and how they move its clock: by SQL of their own, not the store's."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID, uuid4

from tests.support.eventually import eventually
from tests.support.postgres import sql

TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")


def new_id() -> UUID:
    return uuid4()


def seeded_random() -> Random:
    """Chance whose seed is printed, and can be given again as CORTEX_TEST_SEED."""
    seed = int(os.environ.get("CORTEX_TEST_SEED") or uuid4().int % 2**32)
    print(f"CORTEX_TEST_SEED={seed}")
    return Random(seed)


def as_runtime(dsn: str) -> str:
    """The address for sessions with the rights that a pod has."""
    return f"{dsn}&role=cortex_runtime"


def submit(dsn: str, type_: str, payload: dict[str, Any] | None = None, **named: object) -> UUID:
    """Submit a job as any program would, by plain SQL; `named`: arguments of cortex.submit_job."""
    given = "".join(f", {name} => ${number}" for number, name in enumerate(named, 3))
    query = f"SELECT cortex.submit_job($1, $2::jsonb{given}) AS id"
    job_id: UUID = sql(dsn, query, type_, json.dumps(payload or {}), *named.values())[0]["id"]
    return job_id


def job_row(dsn: str, job_id: UUID) -> dict[str, Any]:
    """The row of a job, its checkpoint and result decoded, with its pod's and its task's facts."""
    query = """
        SELECT j.*, p.name AS pod, t.state AS task_state, t.attempts_spent, t.run_at AS task_run_at,
               cortex.now() AS now
        FROM cortex.job j LEFT JOIN cortex.pod p ON p.id = j.pod_id
        LEFT JOIN cortex_worker.task t ON t.job_id = j.id WHERE j.id = $1
    """
    row = dict(sql(dsn, query, job_id)[0])
    for name in ("checkpoint", "result", "payload"):
        row[name] = None if row[name] is None else json.loads(row[name])
    return row


def until_status(dsn: str, job_id: UUID, *statuses: str, within_s: float = 10.0) -> dict[str, Any]:
    """Wait until the job stands in one of these states; return its row."""
    return until_job(
        dsn, job_id, lambda row: row["status"] in statuses, " or ".join(statuses), within_s=within_s
    )


def until_job(
    dsn: str, job_id: UUID, holds: Any, what: str, *, within_s: float = 10.0
) -> dict[str, Any]:
    """Wait until `holds(row)` is true of the job; return that row."""

    def look() -> tuple[bool, dict[str, Any]] | None:
        row = job_row(dsn, job_id)
        return (True, row) if holds(row) else None

    try:
        return eventually(look, what=f"job is {what}", within_s=within_s)[1]
    except BaseException as error:
        row = job_row(dsn, job_id)
        shown = ("status", "attempt", "task_state", "error_message", "pod", "checkpoint")
        error.add_note(f"job {job_id}: { ({name: row[name] for name in shown}) }")
        raise


def history(dsn: str, job_id: UUID) -> list[tuple[str | None, str, int]]:
    """(previous, new, attempt) of each transition, in order."""
    query = "SELECT previous, new, attempt FROM cortex.job_history WHERE job_id = $1 ORDER BY id"
    return [(row["previous"], row["new"], row["attempt"]) for row in sql(dsn, query, job_id)]


def steps(dsn: str, job_id: UUID) -> list[tuple[int, int, str, str]]:
    """(seq, attempt, kind, key) of each committed step, in order."""
    query = "SELECT seq, attempt, kind, key FROM cortex.job_step WHERE job_id = $1 ORDER BY seq"
    return [tuple(row.values()) for row in sql(dsn, query, job_id)]


def attempts(dsn: str, job_id: UUID) -> list[tuple[int, str]]:
    """(attempt, outcome) of each attempt that ended before the job did, in order."""
    query = "SELECT attempt, outcome FROM cortex.job_attempt WHERE job_id = $1 ORDER BY attempt"
    return [(row["attempt"], row["outcome"]) for row in sql(dsn, query, job_id)]


def move_clock(dsn: str, seconds: float) -> None:
    """Let cortex.now() be so many seconds ahead of the server's clock from now on."""
    sql(
        dsn,
        "CREATE OR REPLACE FUNCTION cortex.now() RETURNS timestamptz LANGUAGE sql STABLE "
        f"PARALLEL SAFE RETURN statement_timestamp() + interval '{seconds:f} seconds'",
    )


def assert_one_truth(dsn: str, job_ids: Sequence[UUID] | None = None) -> None:
    """Of these jobs, or all: the history is a path, attempts only grow, steps are dense and once.

    Shares no code with the system; reads only the record. Raises `AssertionError` naming the jobs.
    """
    wrong: list[str] = []
    chosen = None if job_ids is None else list(job_ids)
    transitions: dict[UUID, list[Any]] = {}
    for row in sql(
        dsn,
        "SELECT job_id, previous, new, attempt FROM cortex.job_history "
        "WHERE $1::uuid[] IS NULL OR job_id = ANY ($1) ORDER BY job_id, id",
        chosen,
    ):
        transitions.setdefault(row["job_id"], []).append(row)
    for job_id, path in transitions.items():
        before = [None, *(row["new"] for row in path[:-1])]
        if [row["previous"] for row in path] != before:
            wrong.append(f"{job_id}: history is no path: {[tuple(row) for row in path]}")
        if sum(row["new"] in TERMINAL for row in path) > 1:
            wrong.append(f"{job_id}: more than one terminal state")
        numbers = [row["attempt"] for row in path]
        if numbers != sorted(numbers):
            wrong.append(f"{job_id}: attempts go back: {numbers}")
    committed: dict[UUID, list[Any]] = {}
    for row in sql(
        dsn,
        "SELECT job_id, seq, attempt, key FROM cortex.job_step "
        "WHERE $1::uuid[] IS NULL OR job_id = ANY ($1) ORDER BY job_id, seq",
        chosen,
    ):
        committed.setdefault(row["job_id"], []).append(row)
    for job_id, found in committed.items():
        if [row["seq"] for row in found] != list(range(1, len(found) + 1)):
            wrong.append(f"{job_id}: steps are not dense: {[row['seq'] for row in found]}")
        numbers = [row["attempt"] for row in found]
        if numbers != sorted(numbers):
            wrong.append(f"{job_id}: an older attempt wrote later: {numbers}")
        if twice := [key for key, n in Counter(row["key"] for row in found).items() if n > 1]:
            wrong.append(f"{job_id}: keys twice: {twice}")
    heads = sql(
        dsn,
        "SELECT id, status, (checkpoint->>'seq')::int AS seq, "
        "(SELECT count(*) FROM cortex.job_step s WHERE s.job_id = j.id) AS count, "
        "EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id) AS has_task "
        "FROM cortex.job j WHERE $1::uuid[] IS NULL OR id = ANY ($1)",
        chosen,
    )
    for row in heads:
        if (row["seq"] or 0) != row["count"]:
            wrong.append(f"{row['id']}: head says {row['seq']}, {row['count']} steps are there")
        if row["has_task"] == (row["status"] in TERMINAL):
            wrong.append(f"{row['id']}: {row['status']}, task: {row['has_task']}")
    assert not wrong, "\n".join(["", *wrong[:20]])
