"""Jobs that ended days ago, with all that belongs to them, and what is left of them."""

from uuid import UUID

from tests.support.records.rows import submit
from tests.support.servers.postgres import sql

_OF_JOB = (
    *("job_history", "job_attempt", "timeout_event", "job_step", "effect", "approval"),
    *("dead_letter", "fact", "log_line", "job_file", "job_published"),
)


def an_ended_job(
    dsn: str,
    status: str = "COMPLETED",
    *,
    days: float = 40,
    continues: UUID | None = None,
    is_settled: bool = True,
) -> UUID:
    """A job that ended so many days ago; its dead letter, if it has one, is settled."""
    job_id = submit(dsn, "work", {"x": 1})
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
    for state in ("RUNNING", status):
        sql(
            dsn,
            """
            UPDATE cortex.job_record SET status = $2::text::cortex.job_status, worker_job_id = NULL,
                updated_at = clock_timestamp(),  -- otherwise the end is stamped
                created_at = cortex.now() - ($3 + 1) * interval '1 day',
                finished_at = CASE WHEN $2 <> 'RUNNING'
                                   THEN cortex.now() - $3 * interval '1 day' END,
                error_message = CASE WHEN $2 = 'FAILED' THEN 'broken' END,
                origin_id = $4, lineage_id = coalesce(
                    (SELECT coalesce(o.lineage_id, o.id) FROM cortex.job_record o WHERE o.id = $4))
            WHERE id = $1
            """,
            job_id,
            state,
            days,
            continues,
        )
    if is_settled:
        sql(
            dsn,
            """
            UPDATE cortex.dead_letter SET state = 'DISCARDED', resolved_at = cortex.now(),
                resolved_by = 'ana', reason = 'a test'
            WHERE job_id = $1
            """,
            job_id,
        )
    return job_id


def with_everything(dsn: str, job_id: UUID) -> None:
    """Give a job a record in each table whose records belong to jobs."""
    sql(
        dsn,
        """
        INSERT INTO cortex.job_attempt (job_id, attempt, outcome)
        SELECT $1, 1, 'retry'
        """,
        job_id,
    )
    sql(
        dsn,
        """
        INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at,
                                     finished_at, output)
        VALUES ($1, 1, 1, 'step', 'one', '', cortex.now(), cortex.now(),
                E'{"n": 1.50,\n "text": "a\\\\nb"}')
        """,
        job_id,
    )
    sql(
        dsn,
        """
        INSERT INTO cortex.timeout_event (job_id, attempt, nth, scope, limit_s, elapsed_s, phase,
            step_elapsed_s, step_started_at, checkpoint_seq, retry_count, final_action, artefacts,
            work_trees)
        VALUES ($1, 1, 1, 'step', 1, 2, 'step', 2, cortex.now(), 0, 0, 'retry', '[]', '[]')
        """,
        job_id,
    )
    sql(
        dsn,
        """
        INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, arguments,
                                   digest, status, can_reconcile, finished_at)
        VALUES (cortex.uuid7(), $1, $1, 1, 'one', 'pay', 'default', '{}', sha256('{}'), 'COMPLETED',
                false, cortex.now())
        """,
        job_id,
    )
    sql(
        dsn,
        """
        WITH asked AS (
            INSERT INTO cortex.approval (id, job_id, lineage_id, attempt, key, tenant, asked,
                asked_digest, arguments, digest, risk, people, on_deny, on_expiry, status,
                expires_at, decided_at, decided_by, spent_digest)
            VALUES (cortex.uuid7(), $1, $1, 1, 'one', 'default', '{}', sha256('{}'), '{}',
                    sha256('{}'), 'LOW', 1, 'fail', 'fail', 'APPROVED', cortex.now(),
                    cortex.now() - interval '8 days', 'ana', sha256('token'))
            RETURNING id)
        INSERT INTO cortex.approval_vote (approval_id, person, digest, channel)
        SELECT id, 'ana', sha256('{}'), 'cli' FROM asked
        """,
        job_id,
    )
    sql(
        dsn,
        """
        INSERT INTO cortex.log_line (job_id, attempt, number, at, level, message)
        VALUES ($1, 1, 1, cortex.now(), 20, 'read')
        """,
        job_id,
    )
    _with_file(dsn, job_id)
    sql(
        dsn,
        "INSERT INTO cortex.fact (type, subtype, job_id) VALUES ('error', 'broken', $1)",
        job_id,
    )


def _with_file(dsn: str, job_id: UUID) -> None:
    sql(dsn, "INSERT INTO cortex.job_published (job_id, attempt, number) VALUES ($1, 1, 1)", job_id)
    sql(
        dsn,
        """
        INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content)
        VALUES ($1, sha256('GIF89a'), 'image/gif', 6, 'GIF89a')
        """,
        job_id,
    )


def left_of(dsn: str, job_id: UUID) -> set[str]:
    """The tables that still have a record of a job."""
    query = "SELECT EXISTS (SELECT FROM cortex.{table} WHERE {key} = $1) AS has"
    tables = {"job_record": "id", **dict.fromkeys(_OF_JOB, "job_id")}
    return {
        table
        for table, key in tables.items()
        if sql(dsn, query.format(table=table, key=key), job_id)[0]["has"]
    }
