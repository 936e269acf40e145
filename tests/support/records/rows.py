"""Queries of tests on the record, and moves of its clock, in SQL of their own."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any
from uuid import UUID, uuid4

from cortex.domain.job import UPKEEP
from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import sql

TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")


def new_id() -> UUID:
    return uuid4()


def seeded_random() -> Random:
    """Chance whose seed is printed, and can be given again as CORTEX_TEST_SEED."""
    seed = int(os.environ.get("CORTEX_TEST_SEED") or uuid4().int % 2**32)
    sys.stdout.write(f"CORTEX_TEST_SEED={seed}\n")
    return Random(seed)


ATTACH = """
    UPDATE cortex.pod p
    SET backend_pid = a.pid, backend_start = cortex.backend_start(a.pid), backend_user = a.usesysid
    FROM pg_stat_activity a WHERE a.pid = pg_backend_pid() AND p.lock_key = ANY ($1::bigint[])
"""
"""Registers the session that runs it as that of the pods with these lock keys, which it holds."""


def hold_turns(*names: str) -> str:
    """The statement that takes the turns of some work, to the end of its transaction."""
    listed = ", ".join(f"'{name}'" for name in names)
    locked = f"SELECT FROM cortex.runner_turn WHERE name IN ({listed}) FOR UPDATE"
    return f"SELECT count(*) FROM ({locked}) t"  # noqa: S608


def as_runtime(dsn: str) -> str:
    """The address for sessions with the rights that a pod has."""
    return f"{dsn}&role=cortex_runtime"


def submit(
    dsn: str,
    type_: str,
    payload: dict[str, Any] | None = None,
    *,
    json_text: str | None = None,
    **named: object,
) -> UUID:
    """Submit a job as any program would, by plain SQL; `named`: arguments of cortex.submit_job."""
    text = json.dumps(payload or {}) if json_text is None else json_text
    given = "".join(f", {name} => ${number}" for number, name in enumerate(named, 3))
    query = f"SELECT cortex.submit_job($1, $2::jsonb{given}) AS id"
    job_id: UUID = sql(dsn, query, type_, text, *named.values())[0]["id"]
    return job_id


def submit_many(dsn: str, count: int, type_: str, payload: dict[str, Any]) -> None:
    """Submit `count` equal jobs."""
    query = "SELECT cortex.submit_job($1, $2::jsonb) FROM generate_series(1, $3)"
    sql(dsn, query, type_, json.dumps(payload), count)


def job_row(dsn: str, job_id: UUID) -> dict[str, Any]:
    """The row of a job, its checkpoint and result decoded, with its pod's and its task's facts."""
    query = """
        SELECT j.*, p.name AS pod, t.state AS task_state, t.attempts_spent, t.run_at AS task_run_at,
               cortex.now() AS now
        FROM cortex.job j LEFT JOIN cortex.pod p ON p.id = j.pod_id
        LEFT JOIN cortex_worker.task t ON t.job_id = j.id WHERE j.id = $1
    """
    row = dict(sql(dsn, query, job_id)[0])
    for name in ("checkpoint", "result"):
        row[name] = None if row[name] is None else json.loads(row[name])
    return row


def until_status(
    dsn: str, job_id: UUID, *statuses: str, within_s: float = WITHIN_S
) -> dict[str, Any]:
    """Wait until the job is in one of these states; return its row."""
    what = " or ".join(statuses)
    return until_job(dsn, job_id, lambda row: row["status"] in statuses, what, within_s=within_s)


def until_job(
    dsn: str,
    job_id: UUID,
    holds: Callable[[dict[str, Any]], object],
    what: str,
    *,
    within_s: float = WITHIN_S,
) -> dict[str, Any]:
    """Wait until `holds(row)` is true of the job; return that row."""
    row: dict[str, Any] = {}

    def look() -> dict[str, Any] | None:
        nonlocal row
        row = job_row(dsn, job_id)
        return row if holds(row) else None

    try:
        return eventually(look, what=f"job is {what}", within_s=within_s) or {}
    except BaseException as error:
        shown = ("status", "attempt", "task_state", "error_message", "pod", "checkpoint")
        error.add_note(f"job {job_id}: { ({name: row.get(name) for name in shown}) }")
        raise


def job_count(dsn: str, condition: str) -> int:
    """Count jobs that fulfil a condition on `cortex.job`, besides those of built-in schedules."""
    query = f"SELECT count(*) AS n FROM cortex.job WHERE type <> ALL ($1) AND ({condition})"  # noqa: S608
    return int(sql(dsn, query, list(UPKEEP))[0]["n"])


def until_jobs(dsn: str, condition: str, *, count: int, within_s: float = WITHIN_S) -> None:
    """Wait until a number of jobs fulfil a condition."""
    found = 0

    def look() -> bool:
        nonlocal found
        found = job_count(dsn, condition)
        return found == count

    try:
        eventually(look, what=f"{count} jobs with {condition}", within_s=within_s)
    except BaseException as error:
        error.add_note(f"there were {found}")
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


class NoPause(Random):
    """Chance that makes every jittered pause nothing."""

    def random(self) -> float:
        return 0.0


def move_clock(dsn: str, seconds: float) -> None:
    """Set cortex.now() ahead of the server's clock by some seconds from now on."""
    sql(
        dsn,
        "CREATE OR REPLACE FUNCTION cortex.now() RETURNS timestamptz LANGUAGE sql STABLE "
        f"PARALLEL SAFE RETURN statement_timestamp() + interval '{seconds:f} seconds'",
    )


def postpone_retries(dsn: str) -> None:
    """Have jobs retried a day later than they draw, so that none is before a test has looked."""
    sql(
        dsn,
        "CREATE FUNCTION cortex.postpone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.next_retry_at := NEW.next_retry_at + interval '1 day'; RETURN NEW; END $$",
    )
    sql(
        dsn,
        "CREATE TRIGGER postpone BEFORE UPDATE ON cortex.job_record FOR EACH ROW "
        "WHEN (NEW.status = 'RETRY' AND OLD.status <> 'RETRY') EXECUTE FUNCTION cortex.postpone()",
    )


def stop_clock(dsn: str, at: datetime) -> None:
    """Stop cortex.now() at an instant, so that later steps may take as long as they like."""
    sql(
        dsn,
        "CREATE OR REPLACE FUNCTION cortex.now() RETURNS timestamptz LANGUAGE sql STABLE "
        f"PARALLEL SAFE RETURN '{at.isoformat()}'::timestamptz",
    )


def assert_one_truth(dsn: str) -> None:
    """Every job's history is a path, its attempts only grow, its steps are dense and each once.

    Shares no code with the system, reads only the record. Raises `AssertionError` naming the jobs.
    """
    wrong = [*_wrong_paths(dsn), *_wrong_steps(dsn), *_wrong_heads(dsn)]
    assert not wrong, "\n".join(["", *wrong[:20]])


def _wrong_paths(dsn: str) -> Iterator[str]:
    query = "SELECT job_id, previous, new, attempt FROM cortex.job_history ORDER BY job_id, id"
    for job_id, rows in groupby(sql(dsn, query), key=itemgetter("job_id")):
        path = list(rows)
        states = [None, *(row["new"] for row in path)]
        if [row["previous"] for row in path] != states[:-1]:
            yield f"{job_id}: history is no path: {[tuple(row)[1:] for row in path]}"
        if sum(state in TERMINAL for state in states) > 1:
            yield f"{job_id}: more than one terminal state: {states}"
        numbers = [row["attempt"] for row in path]
        if numbers != sorted(numbers):
            yield f"{job_id}: attempts go back: {numbers}"


def _wrong_steps(dsn: str) -> Iterator[str]:
    query = "SELECT job_id, seq, attempt, key FROM cortex.job_step ORDER BY job_id, seq"
    for job_id, rows in groupby(sql(dsn, query), key=itemgetter("job_id")):
        found = list(rows)
        if [row["seq"] for row in found] != list(range(1, len(found) + 1)):
            yield f"{job_id}: steps are not dense: {[row['seq'] for row in found]}"
        numbers = [row["attempt"] for row in found]
        if numbers != sorted(numbers):
            yield f"{job_id}: an older attempt wrote later: {numbers}"
        if twice := [key for key, n in Counter(row["key"] for row in found).items() if n > 1]:
            yield f"{job_id}: keys twice: {twice}"


def _wrong_heads(dsn: str) -> Iterator[str]:
    query = """
        SELECT j.id, j.status, coalesce((j.checkpoint->>'seq')::int, 0) AS head,
               (SELECT count(*) FROM cortex.job_step s WHERE s.job_id = j.id) AS steps,
               (SELECT count(*) FROM cortex_worker.task t WHERE t.job_id = j.id) AS tasks
        FROM cortex.job j
    """
    for row in sql(dsn, query):
        if row["head"] != row["steps"]:
            yield f"{row['id']}: the head says {row['head']}, there are {row['steps']} steps"
        if row["tasks"] not in _tasks_of(row["status"]):
            yield f"{row['id']} is {row['status']} and has {row['tasks']} tasks"


def _tasks_of(status: str) -> set[int]:
    if status in TERMINAL:
        return {0}
    # Between attempts a job has a task only once it is due.
    return {0, 1} if status in ("RETRY", "WAITING_FOR_APPROVAL") else {1}
