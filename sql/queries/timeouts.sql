-- name: record
-- Stores receipts of timeouts; an existing one is left unchanged. A receipt of an attempt that has lost
-- its job is as valid as any other; one of a nonexistent attempt is not stored.
-- Per receipt: $1 job ids, $2 attempts, $3 ordinals, $4 scopes, $5 limits in s, $6 elapsed s, $7 phases, $8 step
-- keys, $9 s in the step, $10 its starts, $11 checkpoint seqs, $12 their keys, $13 retry counts, $14 final actions,
-- $15 partial texts, $16 artefacts, $17 work trees, $18 problems. Locks: none. Returns the jobs whose receipt is new.
INSERT INTO cortex.timeout_event (
    job_id, attempt, nth, scope, limit_s, elapsed_s, phase, step_key, step_elapsed_s, step_started_at,
    checkpoint_seq, checkpoint_key, retry_count, final_action, partial_text, artefacts, work_trees, problem)
SELECT r.*
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::float8[], $6::float8[], $7::text[], $8::text[],
            $9::float8[], $10::timestamptz[], $11::int[], $12::text[], $13::int[], $14::text[], $15::text[],
            $16::jsonb[], $17::jsonb[], $18::text[])
    AS r(job_id, attempt, nth, scope, limit_s, elapsed_s, phase, step_key, step_elapsed_s, step_started_at,
         checkpoint_seq, checkpoint_key, retry_count, final_action, partial_text, artefacts, work_trees, problem)
JOIN cortex.job j ON j.id = r.job_id AND j.attempt >= r.attempt
ORDER BY r.job_id, r.attempt, r.nth
ON CONFLICT DO NOTHING
RETURNING job_id;

-- name: of_job
-- Receipts of a job in order. $1 job id, $2 after id, $3 limit.
SELECT id, at, job_id, attempt, nth, scope, limit_s, elapsed_s, phase, step_key, step_elapsed_s, step_started_at,
       checkpoint_seq, checkpoint_key, retry_count, final_action, partial_text, artefacts, work_trees, problem
FROM cortex.timeout_event WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: that_ended
-- The timeout that ended a job's last attempt, if one did. $1 job id. Returns the receipt's id.
SELECT max(e.id) AS id FROM cortex.job j JOIN cortex.timeout_event e ON e.job_id = j.id AND e.attempt = j.attempt
WHERE j.id = $1 AND e.final_action IN ('failed', 'retry', 'released');

-- name: lock_resume
-- Allows one person at a time to resume a job: files are set aside between inspection and action. $1 job id. Locks: an
-- advisory lock to the end of the transaction, which the caller keeps open. Returns whether it got the lock.
SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.resume ' || $1::uuid, 0)) AS is_held;

-- name: settled
-- When a job's last committed step finished, and which of some files of its workspace its steps name, in their inputs
-- or their results. Outputs of the model are excluded: they name files that are not written yet. $1 job id, $2 the
-- files. Locks: none.
SELECT coalesce((SELECT max(s.finished_at) FROM cortex.job_step s WHERE s.job_id = j.id), j.started_at, j.created_at) AS at,
       ARRAY(SELECT f.path FROM unnest($2::text[]) AS f(path) WHERE EXISTS (
           SELECT FROM cortex.job_step s WHERE s.job_id = j.id AND s.kind NOT IN ('model', 'approval')
             AND (strpos(s.input, f.path) > 0 OR strpos(s.output::text, f.path) > 0))) AS files
FROM cortex.job j WHERE j.id = $1;
