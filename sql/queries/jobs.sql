-- name: submit
-- Submits a batch; returns the ids that were new, or null if all were. Arrays of equal length or empty, see
-- cortex.submit_jobs; $8 delays in seconds from now or null; for all: $13 who submits, or null, $14 the credential, or
-- null; $15 tags of each as a JSON array or null, $16 their traceparents or null, $17 instants that win over $8, or null,
-- $18 their deadlines or null.
SELECT nullif(cortex.submit_jobs(
    $1::uuid[], $2::text[], $3::jsonb[], $4::text[], $5::text[], $6::text[], $7::int[],
    (SELECT array_agg(coalesce(d.run_at, cortex.now() + d.delay_s * interval '1 second') ORDER BY d.n)
     FROM unnest($8::float8[], $17::timestamptz[]) WITH ORDINALITY AS d(delay_s, run_at, n)), $9::int[], $10::int[], $11::int[], $12::text[], $15::jsonb[],
    $16::text[], $18::timestamptz[]), $1) AS ids
FROM (SELECT set_config('cortex.actor', coalesce($13, ''), true),
             set_config('cortex.credential', coalesce($14, ''), true) OFFSET 0) actor;

-- name: submitted_as
-- The jobs that submits stand for whose types have rules. $1 ids of submits that were not new. Locks: none.
SELECT s.id, s.job_id FROM cortex.submitted_as($1::uuid[]) s WHERE s.job_id <> s.id;

-- name: note_submitted
-- Records who submitted jobs, and why. $1 ids, $2 who, $3 why. Locks: none.
INSERT INTO cortex.fact (type, subtype, tenant, job_id, agent_id, agent_version, data)
SELECT 'lifecycle', 'job_submitted', tenant, id, agent_id, agent_version,
       jsonb_build_object('by', $2::text, 'reason', $3::text)
FROM cortex.job WHERE id = ANY ($1::uuid[]);

-- name: of_types
-- Those of some jobs that have one of these types. $1 ids, $2 types. Locks: none.
SELECT j.id, j.type FROM cortex.job_record j WHERE j.id = ANY ($1::uuid[]) AND j.type = ANY ($2::text[]) ORDER BY j.id;

-- name: complete
-- Ends jobs that have done their work: deletes their tasks and writes their results, for attempts that still own them.
-- $1 pod id; per job: $2 ids (ordered), $3 attempts, $4 results. Locks: tasks, then jobs. Returns the jobs that ended.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::jsonb[]) AS e(job_id, attempt, result)
), gone AS (
    DELETE FROM cortex_worker.task t USING ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1
    RETURNING e.*, t.locked_at, t.config_id, t.checkpoint
)
UPDATE cortex.job_record j
SET status = 'COMPLETED', result = g.result, finished_at = cortex.now(), updated_at = cortex.now(), worker_job_id = NULL,
    attempt = g.attempt, pod_id = $1, started_at = coalesce(j.started_at, g.locked_at), config_id = g.config_id,
    waited_s = cortex.waited_s(j.waited_s, j.suspended_at, g.locked_at), suspended_at = NULL,
    checkpoint = coalesce(g.checkpoint, j.checkpoint),
    pod_deaths = CASE WHEN g.checkpoint IS NULL THEN j.pod_deaths ELSE 0 END,
    process_deaths = CASE WHEN g.checkpoint IS NULL THEN j.process_deaths ELSE 0 END,
    waits_count = CASE WHEN g.checkpoint IS NULL THEN j.waits_count ELSE 0 END,
    own_failure_at = CASE WHEN g.checkpoint IS NULL THEN j.own_failure_at END,
    next_retry_at = NULL, waiting_on = NULL
FROM gone g
WHERE j.id = g.job_id AND j.attempt < g.attempt AND j.finished_at IS NULL
RETURNING j.id;

-- name: finish
-- The same for any terminal state, with facts; a separate statement, so that others do not pay for it.
-- $1 pod id; per job: $2 ids (ordered), $3 attempts, $4 states, $5 results, $6 error messages, $7 error codes,
-- $8 error classes, $9 error sources, $10 data of their facts.
-- Locks: tasks, then jobs. Returns the jobs that ended.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::cortex.job_status[], $5::jsonb[], $6::text[], $7::text[],
                         $8::text[], $9::text[], $10::jsonb[])
        AS e(job_id, attempt, status, result, error, code, class, source, fact)
), gone AS (
    DELETE FROM cortex_worker.task t USING ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1
    RETURNING e.*, t.locked_at, t.config_id, t.checkpoint
), finished AS (
    UPDATE cortex.job_record j
    SET status = g.status, result = g.result, error_message = g.error, error_code = g.code, error_class = g.class,
        error_source = g.source, finished_at = cortex.now(), updated_at = cortex.now(), worker_job_id = NULL,
        attempt = g.attempt, pod_id = $1, started_at = coalesce(j.started_at, g.locked_at), config_id = g.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, g.locked_at), suspended_at = NULL,
        checkpoint = coalesce(g.checkpoint, j.checkpoint),
        pod_deaths = CASE WHEN g.checkpoint IS NULL THEN j.pod_deaths ELSE 0 END,
        process_deaths = CASE WHEN g.checkpoint IS NULL THEN j.process_deaths ELSE 0 END,
        waits_count = CASE WHEN g.checkpoint IS NULL THEN j.waits_count ELSE 0 END,
        own_failure_at = CASE WHEN g.checkpoint IS NULL THEN j.own_failure_at END,
        next_retry_at = NULL, waiting_on = NULL
    FROM gone g
    WHERE j.id = g.job_id AND j.attempt < g.attempt AND j.finished_at IS NULL
    RETURNING j.id, j.tenant, j.attempt, j.agent_id, j.agent_version, g.code, g.source, g.fact
), fact AS (
    INSERT INTO cortex.fact (
        type, subtype, source, tenant, job_id, attempt, agent_id, agent_version, pod_id, data)
    SELECT 'error', code, source, tenant, id, attempt, agent_id, agent_version, $1, fact
    FROM finished WHERE fact IS NOT NULL
)
SELECT id FROM finished;

-- name: settled
-- Attempts that have already ended as requested: for writes whose reply was lost. $1 ids, $2 attempts, $3 states.
SELECT j.id FROM cortex.job j
JOIN unnest($1::uuid[], $2::int[], $3::cortex.job_status[]) AS e(job_id, attempt, status) ON j.id = e.job_id
WHERE j.attempt = e.attempt AND j.status = e.status;

-- name: cancel
-- Cancels jobs that no pod runs; requests it from the pods of running ones. $1 ids (ordered), $2 who, $3 why. Locks:
-- the tasks, then the jobs (ordered). Returns for each job the state before, with who had cancelled it and why, and the
-- state after. If a job got a task only while this waited for its lock, this statement cannot see the task: it does
-- nothing to that job, and must be repeated.
WITH task AS MATERIALIZED (
    SELECT t.job_id, t.id, t.state, t.locked_by
    FROM unnest($1::uuid[]) AS asked(id) JOIN cortex_worker.task t ON t.job_id = asked.id
    ORDER BY t.job_id FOR UPDATE OF t
), before AS MATERIALIZED (
    SELECT j.id, j.status, j.worker_job_id AS task_id, j.cancelled_by, j.cancel_reason
    FROM unnest($1::uuid[]) AS asked(id) JOIN cortex.job_record j ON j.id = asked.id
    WHERE (SELECT count(*) FROM task) >= 0 ORDER BY j.id FOR UPDATE OF j
), found AS MATERIALIZED (
    SELECT b.id, CASE WHEN t.state = 'LOCKED' THEN 'RUNNING' ELSE b.status END AS status, b.cancelled_by, b.cancel_reason,
           b.task_id IS DISTINCT FROM t.id AS is_outdated, coalesce(t.state = 'LOCKED', false) AS is_locked, t.locked_by
    FROM before b LEFT JOIN task t ON t.job_id = b.id
), gone AS (
    DELETE FROM cortex_worker.task t USING task WHERE t.job_id = task.job_id AND task.state <> 'LOCKED'
), after AS (
    UPDATE cortex.job_record j
    SET cancel_requested_at = coalesce(j.cancel_requested_at, cortex.now()),
        cancelled_by = coalesce(j.cancelled_by, $2), cancel_reason = coalesce(j.cancel_reason, $3),
        status = CASE WHEN f.is_locked THEN j.status ELSE 'CANCELLED' END,
        worker_job_id = CASE WHEN f.is_locked THEN j.worker_job_id END,
        next_retry_at = CASE WHEN f.is_locked THEN j.next_retry_at END,
        waiting_on = CASE WHEN f.is_locked THEN j.waiting_on END
    FROM found f
    WHERE j.id = f.id AND f.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') AND NOT f.is_outdated
    RETURNING j.id, CASE WHEN f.is_locked THEN f.status ELSE j.status END AS status,
              CASE WHEN f.is_locked THEN f.locked_by ELSE j.pod_id END AS pod_id
), hinted AS (
    SELECT pg_notify('cortex_control', a.pod_id::text) FROM (SELECT DISTINCT pod_id FROM after WHERE status = 'RUNNING') a
)
SELECT found.id, found.status AS before, coalesce(after.status, found.status) AS after, after.pod_id, found.is_outdated,
       found.cancelled_by, found.cancel_reason, (SELECT count(*) FROM hinted) AS hint_count
FROM found LEFT JOIN after ON after.id = found.id;

-- name: prioritize
-- Gives a job that is not over another priority; a running one has it from its next wait on. $1 id, $2 priority, $3 who, $4
-- why. Locks: the task, then the job. No row: the job does not exist.
WITH task AS MATERIALIZED (
    SELECT t.job_id FROM cortex_worker.task t WHERE t.job_id = $1 FOR UPDATE
), before AS MATERIALIZED (
    SELECT j.id, j.priority, j.finished_at, j.status::text AS status FROM cortex.job_record j
    WHERE j.id = $1 AND (SELECT count(*) FROM task) >= 0 FOR UPDATE OF j
), moved AS (
    UPDATE cortex.job_record j SET priority = $2 FROM before b WHERE j.id = b.id AND b.finished_at IS NULL
    RETURNING j.id, j.tenant, b.priority AS before
), ordered AS (
    UPDATE cortex_worker.task t SET priority = $2 FROM moved m WHERE t.job_id = m.id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, tenant, job_id, data)
    SELECT 'lifecycle', 'job_prioritized', tenant, id,
           jsonb_build_object('by', $3::text, 'reason', $4::text, 'before', before, 'after', $2::int)
    FROM moved
)
SELECT b.priority AS before, b.finished_at IS NOT NULL AS is_ended, b.status FROM before b;

-- name: cancel_requests
-- Jobs of a pod that a person wants to cancel. $1 pod id, $2 ids of its jobs.
SELECT t.job_id AS id, t.attempt FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
WHERE t.job_id = ANY ($2::uuid[]) AND t.locked_by = $1 AND j.cancel_requested_at IS NOT NULL;

-- name: show
-- One job in full. $1 id.
SELECT j.*, a.name AS agent, p.name AS pod, c.version AS code_version, p.silent_after_s, p.zombie_s, t.state::text AS task_state,
       t.attempts_spent, t.run_at AS task_run_at, cortex.running_step(t) AS running_step, e.error AS last_error, cortex.waits_for(j.waiting_on) AS awaited, cortex.now() AS now,
       cortex.progress_of(j.id) AS progress,
       (SELECT s.state FROM cortex.job_published s WHERE s.job_id = j.id) AS state,
       cortex.budgets_of(coalesce(j.lineage_id, j.id)) AS budgets, i.schedule, i.instant AS scheduled_for, i.reason AS schedule_reason,
       CASE WHEN j.checkpoint ? 'cache_read_tokens' THEN
         (SELECT sum((f.data->>'saved_usd')::numeric) FROM cortex.fact f WHERE f.job_id = $1 AND f.type || '' = 'cost')
         END AS cache_saved_usd
FROM cortex.job j
LEFT JOIN cortex.schedule_instant i ON i.job_id = j.id
LEFT JOIN cortex.agent a ON a.id = j.agent_id
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN cortex.code c ON c.id = p.code_id
LEFT JOIN cortex_worker.task t ON t.job_id = j.id
LEFT JOIN LATERAL (
    SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
    ORDER BY attempt DESC LIMIT 1) e ON true
WHERE j.id = $1;

-- name: ids_by_suffix
-- Jobs whose id ends with a suffix, newest first, among the newest 100,000. $1 suffix in lower case without dashes.
SELECT id FROM (SELECT id FROM cortex.job_record ORDER BY id DESC LIMIT 100000) recent
WHERE replace(id::text, '-', '') LIKE '%' || $1 LIMIT 10;

-- name: history
-- Transitions of a job in order, after a position. $1 job id, $2 after history id, $3 limit or null.
SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata, p.name AS pod, c.version AS code_version
FROM cortex.job_history h LEFT JOIN cortex.pod p ON p.id = h.pod_id LEFT JOIN cortex.code c ON c.id = p.code_id
WHERE h.job_id = $1 AND h.id > $2 ORDER BY h.id LIMIT $3;

-- name: attempts
-- Attempts of a job that ended before it did, after an attempt. $1 job id, $2 after attempt, $3 limit
-- or null.
SELECT a.attempt, a.outcome, a.ended_at, a.due_at, a.error, a.error_class, a.error_code, a.error_source,
       a.retry_count, p.name AS pod, c.version AS code_version
FROM cortex.job_attempt a LEFT JOIN cortex.pod p ON p.id = a.pod_id LEFT JOIN cortex.code c ON c.id = p.code_id
WHERE a.job_id = $1 AND a.attempt > $2 ORDER BY a.attempt LIMIT $3;

-- name: follow
-- One job and what happened to it since the last poll, in one snapshot. $1 id, $2 after history id, $3 after ended
-- attempt, $4 after step, $5 most rows of each.
SELECT j.id, j.type, j.status, j.attempt, j.worker_attempts, j.timeout_s, j.checkpoint, j.result, j.agent_version,
       j.created_at, j.started_at, j.finished_at, j.heartbeat_at, j.run_at, j.next_retry_at, j.cancel_requested_at,
       j.cancelled_by, j.cancel_reason, j.error_message, j.error_code, j.error_class, j.error_source,
       j.retry_count, j.max_retries, j.waiting_on, j.origin_id, a.name AS agent, p.name AS pod, c.version AS code_version,
       p.silent_after_s, p.zombie_s, t.state::text AS task_state, t.run_at AS task_run_at,
       CASE WHEN t.state = 'LOCKED' THEN t.locked_at END AS locked_at, cortex.now() AS now,
       (SELECT coalesce(jsonb_agg(h ORDER BY h.id), '[]') FROM (
            SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata, hp.name AS pod, hc.version AS code_version
            FROM cortex.job_history h LEFT JOIN cortex.pod hp ON hp.id = h.pod_id
            LEFT JOIN cortex.code hc ON hc.id = hp.code_id
            WHERE h.job_id = $1 AND h.id > $2 ORDER BY h.id LIMIT $5) h) AS history,
       (SELECT coalesce(jsonb_agg(e ORDER BY e.attempt), '[]') FROM (
            SELECT e.attempt, e.outcome, e.ended_at, e.due_at, e.error, e.error_class, e.error_code,
                   e.error_source, e.retry_count, ep.name AS pod, ec.version AS code_version
            FROM cortex.job_attempt e LEFT JOIN cortex.pod ep ON ep.id = e.pod_id
            LEFT JOIN cortex.code ec ON ec.id = ep.code_id
            WHERE e.job_id = $1 AND e.attempt > $3 ORDER BY e.attempt LIMIT $5) e) AS attempts,
       (SELECT coalesce(jsonb_agg(s ORDER BY s.seq), '[]') FROM (
            SELECT s.seq, s.attempt, s.kind, s.key, s.started_at, s.finished_at, s.cost_usd, s.usage,
                   CASE WHEN s.kind = 'emit' THEN left(s.output::text, 4000) END AS chunk
            FROM cortex.job_step s WHERE s.job_id = $1 AND s.seq > $4 ORDER BY s.seq LIMIT $5) s) AS steps,
       cortex.waits_for(j.waiting_on) AS awaited, cortex.progress_of(j.id) AS progress
FROM cortex.job j
LEFT JOIN cortex.agent a ON a.id = j.agent_id
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN cortex.code c ON c.id = p.code_id
LEFT JOIN cortex_worker.task t ON t.job_id = j.id
WHERE j.id = $1;

-- name: unfinished
-- The newest unfinished job of an agent whose payload contains the given object. $1 agent name, $2 object.
SELECT j.id FROM cortex.job j JOIN cortex.agent a ON a.id = j.agent_id
WHERE a.name = $1 AND j.payload @> $2::jsonb AND j.finished_at IS NULL
ORDER BY j.created_at DESC LIMIT 1;

-- name: counts
-- How many of the given jobs are in which state. $1 ids.
SELECT status, count(*) AS count FROM cortex.job WHERE id = ANY ($1::uuid[]) GROUP BY status;

-- name: ensure_types
-- Writes the defaults of the job types that a pod has. $1 names, $2 worker attempts, $3 retries, $4 timeouts, $5 the
-- longest timeouts of their jobs.
INSERT INTO cortex.job_type AS t (name, worker_attempts, max_retries, timeout_s, timeout_max_s)
SELECT * FROM unnest($1::text[], $2::int[], $3::int[], $4::int[], $5::int[])
    AS k(name, worker_attempts, max_retries, timeout_s, timeout_max_s)
ORDER BY name
ON CONFLICT (name) DO UPDATE
SET worker_attempts = excluded.worker_attempts, max_retries = excluded.max_retries, timeout_s = excluded.timeout_s,
    timeout_max_s = excluded.timeout_max_s
WHERE (t.worker_attempts, t.max_retries, t.timeout_s, t.timeout_max_s)
      IS DISTINCT FROM (excluded.worker_attempts, excluded.max_retries, excluded.timeout_s, excluded.timeout_max_s);

-- name: ensure_rules
-- Writes the rules about submits of the job types that a pod has, and deletes those of types that have none any more.
-- $1 types; $2 types with a rule, $3 its kind, $4 key, $5 the arguments that the key names, as a JSON array, $6 what happens
-- in a conflict, $7 period, $8 longest. Locks: the rules, ordered.
WITH gone AS (
    DELETE FROM cortex.submit_rule WHERE type = ANY ($1::text[]) AND type <> ALL ($2::text[])
)
INSERT INTO cortex.submit_rule AS r (type, kind, key, arguments, on_conflict, period_s, longest_s)
SELECT k.type, k.kind, k.key, ARRAY(SELECT jsonb_array_elements_text(k.arguments)), k.on_conflict, k.period_s, k.longest_s
FROM unnest($2::text[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::float8[], $8::float8[])
    AS k(type, kind, key, arguments, on_conflict, period_s, longest_s)
ORDER BY k.type
ON CONFLICT (type) DO UPDATE
SET kind = excluded.kind, key = excluded.key, arguments = excluded.arguments, on_conflict = excluded.on_conflict,
    period_s = excluded.period_s, longest_s = excluded.longest_s
WHERE (r.kind, r.key, r.arguments, r.on_conflict, r.period_s, r.longest_s)
      IS DISTINCT FROM (excluded.kind, excluded.key, excluded.arguments, excluded.on_conflict, excluded.period_s,
                        excluded.longest_s);

-- name: resumed
-- What traces of jobs lack that an earlier pod could not export. $1 job ids, $2 their attempts now. Of each: the failed
-- job that it continues, and the attempts right before this one that ended with their pods. Locks: none.
SELECT j.id, o.id AS origin_id, o.traceparent AS origin_traceparent, coalesce((
    SELECT jsonb_agg(jsonb_build_object(
        'attempt', a.attempt, 'outcome', a.outcome, 'ended_at', a.ended_at, 'pod', p.name, 'began_at', greatest(
            (SELECT max(h.at) FROM cortex.job_history h
             WHERE h.job_id = j.id AND h.new = 'RUNNING' AND h.attempt <= a.attempt),
            (SELECT b.ended_at FROM cortex.job_attempt b WHERE b.job_id = j.id AND b.attempt = a.attempt - 1)))
        ORDER BY a.attempt)
    FROM cortex.job_attempt a LEFT JOIN cortex.pod p ON p.id = a.pod_id
    WHERE a.job_id = j.id AND a.attempt < w.attempt AND a.outcome IN ('pod_died', 'lease_expired')
      AND NOT EXISTS (
          SELECT FROM cortex.job_attempt b WHERE b.job_id = j.id AND b.attempt BETWEEN a.attempt AND w.attempt - 1
              AND b.outcome NOT IN ('pod_died', 'lease_expired'))), '[]') AS lost
FROM unnest($1::uuid[], $2::int[]) AS w(job_id, attempt)
JOIN cortex.job_record j ON j.id = w.job_id
LEFT JOIN cortex.job_record o ON o.id = j.origin_id;
