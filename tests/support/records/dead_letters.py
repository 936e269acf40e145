"""Failed jobs with their dead letters, in bulk and by the path that a test wants."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

DEFAULTS: dict[str, Any] = {
    "error_message": "it broke",
    "error_code": "job_failed",
    "error_class": "TRANSIENT_INFRA",
    "error_source": None,
}

_BEGIN = """
    UPDATE cortex.job_record SET status = 'RUNNING', started_at = cortex.now()
    WHERE id = ANY ($1)
"""
_STEPS = """
    INSERT INTO cortex.job_step (
        job_id, seq, attempt, kind, key, digest, started_at, finished_at, cost_usd, usage, output)
    SELECT id, n, 1, CASE n WHEN $3::int THEN 'model' ELSE 'step' END, 'step ' || n,
           sha256(n::text::bytea), cortex.now(), cortex.now(), 0.25,
           '{"input_tokens": 7}', CASE n WHEN $3 THEN $4::json ELSE to_json('out ' || n) END
    FROM unnest($1::uuid[]) AS id, generate_series(1, $2::int) AS n
"""
_END = """
    UPDATE cortex.job_record SET status = 'FAILED', attempt = 1, worker_job_id = NULL,
        checkpoint = $2::jsonb, error_message = $3, error_code = $4, error_class = $5,
        error_source = $6
    WHERE id = ANY ($1)
"""

_IS_ENDED = """
    CREATE FUNCTION cortex.test_is_ended() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF NEW.origin_id = ANY (TG_ARGV[0]::uuid[]) AND NEW.checkpoint <> '{}' THEN
            %s;
        END IF;
        RETURN NEW;
    END $$
"""
_BE_ENDED = """
    CREATE TRIGGER test_is_ended BEFORE INSERT ON cortex.job_record
    FOR EACH ROW EXECUTE FUNCTION cortex.test_is_ended('{%s}')
"""
_AS_TOO_LONG = """
    RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'
"""
_BY_SOMEBODY = "PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(9)"


def fail(
    dsn: str,
    count: int = 1,
    *,
    steps: int = 0,
    response: tuple[int, str] = (0, "null"),
    submitted: dict[str, Any] | None = None,
    **cause: Any,
) -> list[UUID]:
    """Submit `count` jobs and let them fail after these steps.

    `response`: which step is a model's, and its output; `submitted`: arguments of
    cortex.submit_job; `cause`: columns of the error.
    """
    given = {"type": "work", "payload": "{}"} | (submitted or {})
    names = "".join(f", {name} => ${number}" for number, name in enumerate(given, 2))
    ids = [new_id() for _ in range(count)]
    submit = f"SELECT cortex.submit_job(id => id{names}) FROM unnest($1::uuid[]) AS id"  # noqa: S608
    sql(dsn, submit, ids, *given.values())
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = ANY ($1)", ids)
    sql(dsn, _BEGIN, ids)
    sql(dsn, _STEPS, ids, steps, *response)
    head = {"seq": steps, "kind": "step", "key": f"step {steps}"} if steps else {}
    error = DEFAULTS | cause
    sql(dsn, _END, ids, json.dumps(head), *(error[name] for name in DEFAULTS))
    return ids


def make_large(dsn: str, job_id: UUID) -> None:
    """Let it take too long to copy the steps of a job; without the wait."""
    sql(dsn, _IS_ENDED % _AS_TOO_LONG)
    sql(dsn, _BE_ENDED % job_id)


@contextmanager
def cancelling(dsn: str, job_id: UUID) -> Iterator[None]:
    """Somebody who cancels each statement that copies the steps of a job."""
    sql(dsn, _IS_ENDED % _BY_SOMEBODY)
    sql(dsn, _BE_ENDED % job_id)
    yield
    sql(dsn, "DROP FUNCTION cortex.test_is_ended CASCADE")


def letter(dsn: str, job_id: UUID) -> dict[str, Any]:
    """A job's dead letter."""
    (row,) = sql(dsn, "SELECT * FROM cortex.dead_letter WHERE job_id = $1", job_id)
    return dict(row)


def lifecycle(dsn: str, job_id: UUID) -> list[tuple[str, dict[str, Any]]]:
    """(subtype, data) of what was recorded about a job's letter, in order."""
    query = """
        SELECT subtype, data FROM cortex.fact
        WHERE job_id = $1 AND type = 'lifecycle' AND subtype LIKE 'dead_letter%' ORDER BY id
    """
    return [(row["subtype"], json.loads(row["data"])) for row in sql(dsn, query, job_id)]


def set_breaker(dsn: str, name: str, state: str) -> None:
    """Let a breaker be in a state."""
    query = """
        INSERT INTO cortex.breaker (
            name, state, failures, successes, requests, probe, opened_at, open_until)
        SELECT $1, $2, 0, 0, 0, 0, cortex.now(),
               cortex.now() + CASE $2 WHEN 'OPEN' THEN interval '1 day' ELSE '0' END
        WHERE $2 <> 'CLOSED'
        UNION ALL SELECT $1, $2, 0, 0, 0, 0, NULL, NULL WHERE $2 = 'CLOSED'
        ON CONFLICT (name) DO UPDATE
        SET state = excluded.state, opened_at = excluded.opened_at, open_until = excluded.open_until
    """
    sql(dsn, query, name, state)
