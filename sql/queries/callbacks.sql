-- name: open_one
-- Opens the callback of a step, or the same one again, if the attempt still runs. $1 callback, $2 the job, $3 its attempt,
-- $4 its pod, $5 the first job of the lineage, $6 digest of the token, $7 key of the step, $8 name of the signal, $9 schema,
-- $10 seconds for which it is good. Locks: the task (shared), the row of the callback. Returns when it expires; no row: the
-- attempt is over.
WITH own AS MATERIALIZED (
    SELECT FROM cortex_worker.task t
    WHERE t.job_id = $2::uuid AND t.attempt = $3::int AND t.locked_by = $4::uuid FOR SHARE
)
INSERT INTO cortex.callback AS c (id, lineage_id, token_digest, step, name, schema, expires_at)
SELECT $1::uuid, $5::uuid, $6::bytea, $7::text, $8::text, $9::jsonb, cortex.now() + $10::float8 * interval '1 second'
FROM own
ON CONFLICT (id) DO UPDATE SET token_digest = excluded.token_digest, name = excluded.name, schema = excluded.schema,
    expires_at = excluded.expires_at
RETURNING c.expires_at;

-- name: find
-- Reads the callback of a token. $1 callback, $2 digest of the token. Locks: none.
SELECT c.id, c.lineage_id, c.name, c.schema, c.expires_at, c.expires_at <= cortex.now() AS is_expired, j.tenant
FROM cortex.callback c JOIN cortex.job_record j ON j.id = c.lineage_id
WHERE c.id = $1 AND c.token_digest = $2;

-- name: fate
-- Whether a lineage of jobs may still receive something. $1 its first job. Locks: none. Returns OPEN: a job of it has not
-- ended; FAILED: people may still retry it; else OVER.
SELECT CASE
    WHEN EXISTS (SELECT FROM cortex.job_record j WHERE j.id = $1 AND j.finished_at IS NULL)
      OR EXISTS (SELECT FROM cortex.job_record j WHERE j.lineage_id = $1 AND j.finished_at IS NULL) THEN 'OPEN'
    WHEN EXISTS (SELECT FROM cortex.dead_letter d WHERE d.job_id = $1 AND d.resolved_at IS NULL)
      OR EXISTS (SELECT FROM cortex.job_record j JOIN cortex.dead_letter d ON d.job_id = j.id
                 WHERE j.lineage_id = $1 AND d.resolved_at IS NULL) THEN 'FAILED'
    ELSE 'OVER' END AS fate;
