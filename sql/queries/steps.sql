-- name: commit
-- Appends one finished step to each of several jobs and moves their heads, for attempts that still own them.
-- $1 pod id; per step: $2 job ids (ordered, each once), $3 attempts, $4 seqs, $5 kinds, $6 keys, $7 digests,
-- $8 durations in seconds, $9 costs, $10 usages, $11 outputs, $12 heads or null, $13 inputs, $14 the amid of
-- each, $15 its parent step. Locks: tasks.
-- Returns the jobs whose step was appended. A repeated step appends nothing: the head of its job, which is read again
-- once its row is locked, has the step's seq by then. (ON CONFLICT would cost a tenth of the statement.)
WITH owned AS (
    UPDATE cortex_worker.task t
    SET checkpoint = coalesce(s.head, jsonb_build_object('seq', s.seq, 'kind', s.kind, 'key', s.key))
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::text[], $7::bytea[], $8::float8[],
                $9::numeric[], $10::jsonb[], $11::json[], $12::jsonb[], $13::text[], $14::text[], $15::text[])
        AS s(job_id, attempt, seq, kind, key, digest, duration_s, cost_usd, usage, output, head, input, amid, parent_key)
    WHERE t.job_id = s.job_id AND t.attempt = s.attempt AND t.locked_by = $1
      AND coalesce((t.checkpoint ->> 'seq')::int, 0) < s.seq
    RETURNING s.*
)
INSERT INTO cortex.job_step (
    job_id, attempt, seq, kind, key, digest, started_at, finished_at, cost_usd, usage, output, input, amid, parent_key)
SELECT job_id, attempt, seq, kind, key, digest, cortex.now() - duration_s * interval '1 second',
       cortex.now(), cost_usd, usage, output, input, amid, parent_key
FROM owned
RETURNING job_id;

-- name: commit_effects
-- The same for steps some of which are outcomes of effects, which it closes at the same time; a separate statement, so
-- that other steps do not pay for it. $1 to $15 as for commit; $16 effects or null, $17 whether each was applied, $18
-- why not. Locks: tasks, then effects.
WITH owned AS (
    UPDATE cortex_worker.task t
    SET checkpoint = coalesce(s.head, jsonb_build_object('seq', s.seq, 'kind', s.kind, 'key', s.key))
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::text[], $7::bytea[], $8::float8[],
                $9::numeric[], $10::jsonb[], $11::json[], $12::jsonb[], $13::text[], $14::text[], $15::text[], $16::uuid[],
                $17::bool[], $18::text[])
        AS s(job_id, attempt, seq, kind, key, digest, duration_s, cost_usd, usage, output, head, input, amid, parent_key,
             effect_id, applied, why)
    WHERE t.job_id = s.job_id AND t.attempt = s.attempt AND t.locked_by = $1
      AND coalesce((t.checkpoint ->> 'seq')::int, 0) < s.seq
    RETURNING s.*
), closed AS (
    UPDATE cortex.effect e
    SET status = CASE WHEN o.applied THEN 'COMPLETED' ELSE 'FAILED' END, is_sure = false, why = o.why,
        finished_at = cortex.now()
    FROM owned o
    WHERE o.effect_id IS NOT NULL AND e.id = o.effect_id AND e.job_id = o.job_id AND e.attempt = o.attempt
      AND e.status NOT IN ('COMPLETED', 'ABANDONED')
)
INSERT INTO cortex.job_step (
    job_id, attempt, seq, kind, key, digest, started_at, finished_at, cost_usd, usage, output, input, amid, parent_key)
SELECT job_id, attempt, seq, kind, key, digest, cortex.now() - duration_s * interval '1 second',
       cortex.now(), cost_usd, usage, output, input, amid, parent_key
FROM owned
RETURNING job_id;

-- name: recorded
-- Steps that are recorded as they were sent: for writes whose reply was lost. $1 job ids, $2 attempts, $3 seqs, $4
-- keys, $5 digests.
SELECT s.job_id FROM cortex.job_step s
JOIN unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::bytea[]) AS a(job_id, attempt, seq, key, digest)
    ON s.job_id = a.job_id AND s.seq = a.seq
WHERE s.attempt = a.attempt AND s.key = a.key AND s.digest = a.digest;

-- name: of_job
-- Committed steps of a job in order, with their outputs. $1 job id, $2 after seq, $3 limit, $4 whether to include their
-- inputs: a replay needs none.
SELECT seq, attempt, kind, key, digest, started_at, finished_at, cost_usd, usage, output, amid, parent_key,
       CASE WHEN $4 THEN input END AS input
FROM cortex.job_step WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- name: past
-- The past of a job that a pod runs: the keys of questions to people whose answers are not recorded as steps, and
-- whether all earlier attempts ran on pods with the code of this one. $1 job, $2 first job of its lineage, $3 whether
-- it continues an earlier job's steps: then that job's questions count, too, and the code is not compared. Locks: none.
SELECT ARRAY(SELECT DISTINCT a.key FROM cortex.approval a
             WHERE a.lineage_id = $2 AND ($3 OR a.job_id = $1) AND a.status <> 'CANCELLED'
               AND NOT EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = $1 AND s.key = a.key)) AS questions,
       -- After many attempts the code counts as changed: comparing all of them would cost more each time.
       NOT $3 AND t.attempt <= 100 AND p.code_id IS NOT NULL AND t.attempt - 1 = (
           SELECT count(*) FROM cortex.job_attempt e JOIN cortex.pod ep ON ep.id = e.pod_id
           WHERE e.job_id = $1 AND ep.code_id = p.code_id) AS is_same_code
FROM cortex_worker.task t LEFT JOIN cortex.pod p ON p.id = t.locked_by WHERE t.job_id = $1;

-- name: input_of
-- The stored input of one step. $1 job id, $2 key.
SELECT input FROM cortex.job_step WHERE job_id = $1 AND key = $2;

-- name: page
-- Steps of a job after a position, without their outputs. $1 job id, $2 after seq, $3 limit.
SELECT seq, attempt, kind, key, started_at, finished_at, cost_usd, usage
FROM cortex.job_step WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- name: substitutions
-- Which other models answered a job's calls in the place of those that were asked for, each with how many answers it
-- gave, the first and last step, and why it was asked the last time. $1 job id, $2 after seq. Locks: none.
SELECT s.output->'substitution'->>'model' AS model, count(*) AS answers, min(s.seq) AS first_seq, max(s.seq) AS last_seq,
       (array_agg(s.output->'substitution'->>'reason' ORDER BY s.seq DESC))[1] AS reason
FROM cortex.job_step s
WHERE s.job_id = $1 AND s.seq > $2 AND s.kind = 'model' AND s.output->'substitution'->>'model' IS NOT NULL
GROUP BY 1 ORDER BY first_seq;

-- name: page_with_outputs
-- The same with their outputs, as far as these fit: after the first step, those that would bring the outputs above $4
-- bytes are left out. $1 job id, $2 after seq, $3 limit. Each row has the total count, up to one beyond the limit.
SELECT seq, attempt, kind, key, started_at, finished_at, cost_usd, usage, output, found_count
FROM (
    SELECT s.*, coalesce(sum(octet_length(s.output::text)) OVER (ORDER BY s.seq), 0) AS bytes,
           row_number() OVER (ORDER BY s.seq) AS n, count(*) OVER () AS found_count
    FROM (SELECT * FROM cortex.job_step WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3::int + 1) s
) s
WHERE n <= $3 AND (bytes <= $4 OR n = 1) ORDER BY seq;

-- name: patches
-- Counts, per patch and job type, the jobs that need each branch, among the $1 oldest jobs that have begun and are not
-- over. Locks: none.
WITH live AS MATERIALIZED (
    SELECT s.id, s.type FROM cortex.job_state s
    -- A job that is PENDING has never run: it has no record and takes the new branch.
    WHERE s.state IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')
    ORDER BY s.id LIMIT $1
), decided AS MATERIALIZED (
    SELECT l.id, l.type, s.key, s.output::text = 'true' AS is_new
    FROM live l JOIN cortex.job_step s ON s.job_id = l.id WHERE s.kind = 'patch'
), known AS (
    SELECT d.key, d.type, count(*) FILTER (WHERE NOT d.is_new) AS old, count(*) FILTER (WHERE d.is_new) AS new,
           min(d.id::text) FILTER (WHERE NOT d.is_new)::uuid AS old_job
    FROM decided d GROUP BY d.key, d.type
), begun AS MATERIALIZED (
    SELECT l.id, l.type FROM live l
    WHERE l.type IN (SELECT k.type FROM known k)
      AND (SELECT s.seq FROM cortex.job_step s WHERE s.job_id = l.id AND s.seq = 1) IS NOT NULL
)
SELECT substr(k.key, length('patched: ') + 1) AS patch, k.type, k.old, k.new, coalesce(u.count, 0) AS undecided,
       k.old_job, u.job AS undecided_job, (SELECT count(*) = $1 FROM live) AS is_capped
FROM known k LEFT JOIN LATERAL (
    SELECT count(*), min(b.id::text)::uuid AS job FROM begun b
    WHERE b.type = k.type AND NOT EXISTS (
        SELECT FROM decided d WHERE d.id = b.id AND d.key = k.key)) u ON true
ORDER BY k.key, k.type;

-- name: live
-- Jobs that are not over, oldest first. $1 limit. Locks: none.
SELECT s.id FROM cortex.job_state s WHERE s.state IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')
ORDER BY s.id LIMIT $1;

-- name: live_jobs
-- Of these jobs, those that are not over, and how many bytes their steps' outputs take. $1 ids. Locks: none.
SELECT j.id, j.type, j.attempt, j.payload, j.agent_id, j.agent_version, j.tenant, j.lineage_id, j.timeout_s,
       (SELECT coalesce(sum(pg_column_size(s.output)), 0) FROM cortex.job_step s WHERE s.job_id = j.id)::bigint AS bytes
FROM cortex.job j WHERE j.id = ANY ($1::uuid[]) AND j.finished_at IS NULL ORDER BY j.id;

-- name: of_jobs
-- Committed steps of several jobs, each job's in order. $1 job ids. Locks: none.
SELECT job_id, seq, kind, key, digest, cost_usd, usage, output, amid, parent_key
FROM cortex.job_step WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id, seq;

-- name: open_of_jobs
-- What several jobs, or the earlier ones that they continue, have begun and not recorded as a step: effects that may
-- have been applied, and questions to people (then without a status). $1 job ids. Locks: none.
WITH asked AS MATERIALIZED (
    SELECT r.id, coalesce(r.lineage_id, r.id) AS line, r.lineage_id IS NOT NULL
           AND (SELECT s.seq FROM cortex.job_step s WHERE s.job_id = r.id AND s.seq = 1) IS NOT NULL AS of_line
    FROM cortex.job_record r WHERE r.id = ANY ($1::uuid[]) AND (r.has_open OR r.lineage_id IS NOT NULL)
)
SELECT o.id AS job_id, e.key, e.status, e.arguments::text AS arguments
FROM asked o JOIN cortex.effect e ON e.lineage_id = o.line
WHERE e.status <> 'FAILED' AND (o.of_line OR e.job_id = o.id)
  AND NOT EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = e.job_id AND s.key = e.key)
UNION ALL
SELECT DISTINCT o.id, a.key, NULL, NULL
FROM asked o JOIN cortex.approval a ON a.lineage_id = o.line
WHERE a.status <> 'CANCELLED' AND (o.of_line OR a.job_id = o.id)
  AND NOT EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = o.id AND s.key = a.key);
