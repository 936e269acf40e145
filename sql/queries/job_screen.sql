-- name: look
-- One job for its screen, in one snapshot: the job, what it did since the last poll, and what it waits for. $1 id, $2
-- after this step, or null for the newest ones, $3 how many steps, $4 how many of everything else, the newest of each,
-- $5 cap of each count of the screen's head, which is included. Budgets are those per run that it counts against, and
-- the one that it waits for. Locks: none.
SELECT j.id, j.type, j.status, j.attempt, j.worker_attempts, j.checkpoint, j.agent_version, j.created_at, j.started_at,
       j.finished_at, j.heartbeat_at, j.run_at, j.next_retry_at, j.cancel_requested_at, j.cancelled_by, j.cancel_reason,
       j.error_message, j.error_code, j.error_class, j.retry_count, j.max_retries, j.waiting_on, j.origin_id, j.parent_id, j.has_children,
       coalesce(j.lineage_id, j.id) AS lineage_id, a.name AS agent, p.name AS pod, p.silent_after_s, p.zombie_s,
       last.error AS last_error, last.error_code AS last_error_code, b.state AS breaker_state, cortex.waits_for(j.waiting_on) AS awaited,
       cortex.progress_of(j.id) AS progress, cortex.running_step(t) AS running_step, cortex.now() AS now, (SELECT to_jsonb(h) FROM cortex.head($5) h) AS head,
       CASE WHEN j.checkpoint ? 'cache_read_tokens' THEN
         (SELECT sum((f.data->>'saved_usd')::numeric) FROM cortex.fact f WHERE f.job_id = $1 AND f.type || '' = 'cost')
         END AS cache_saved_usd,
       (SELECT h.at FROM cortex.job_history h WHERE h.job_id = $1 AND h.new = 'RUNNING' ORDER BY h.id DESC LIMIT 1)
         AS running_since,
       (SELECT coalesce(jsonb_agg(s ORDER BY s.seq), '[]') FROM (
            (SELECT f.seq, f.attempt, f.kind, f.key, f.started_at, f.finished_at, f.cost_usd, f.usage,
                    CASE WHEN f.kind = 'tool' AND pg_column_size(f.output) < 4096 AND json_typeof(f.output) = 'object'
                         THEN f.output->>'tool_error' IS NOT NULL ELSE false END AS is_error,
                    CASE WHEN f.kind = 'emit' THEN left(f.output::text, 4000) END AS chunk
             FROM cortex.job_step f WHERE f.job_id = $1 AND f.seq > $2 ORDER BY f.seq LIMIT $3)
            UNION ALL
            (SELECT f.seq, f.attempt, f.kind, f.key, f.started_at, f.finished_at, f.cost_usd, f.usage,
                    CASE WHEN f.kind = 'tool' AND pg_column_size(f.output) < 4096 AND json_typeof(f.output) = 'object'
                         THEN f.output->>'tool_error' IS NOT NULL ELSE false END AS is_error,
                    CASE WHEN f.kind = 'emit' THEN left(f.output::text, 4000) END AS chunk
             FROM cortex.job_step f WHERE f.job_id = $1 AND $2::int IS NULL ORDER BY f.seq DESC LIMIT $3)) s) AS steps,
       (SELECT coalesce(jsonb_agg(e ORDER BY e.attempt), '[]') FROM (
            SELECT e.attempt, e.outcome, e.ended_at, e.due_at, e.error, e.error_class, e.error_code,
                   e.error_source, e.retry_count, ep.name AS pod, ec.version AS code_version
            FROM cortex.job_attempt e LEFT JOIN cortex.pod ep ON ep.id = e.pod_id
            LEFT JOIN cortex.code ec ON ec.id = ep.code_id
            WHERE e.job_id = $1 ORDER BY e.attempt DESC LIMIT $4) e) AS attempts,
       (SELECT coalesce(jsonb_agg(e ORDER BY e.created_at, e.id), '[]') FROM (
            SELECT e.id, e.key, e.tool, e.status, e.attempt, e.created_at, e.finished_at
            FROM cortex.effect e WHERE e.job_id = $1 ORDER BY e.created_at DESC, e.id DESC LIMIT $4) e) AS effects,
       (SELECT coalesce(jsonb_agg(q ORDER BY q.created_at, q.id), '[]') FROM (
            SELECT q.id, q.key, q.tool, q.risk, q.status, q.created_at, q.expires_at, q.decided_at, q.decided_by
            FROM cortex.approval q WHERE q.job_id = $1 ORDER BY q.created_at DESC, q.id DESC LIMIT $4) q) AS approvals,
       (SELECT coalesce(jsonb_agg(g ORDER BY g.scope DESC, g.name), '[]') FROM (
            SELECT g.name, g.scope, g.unit, g.limit_amount, coalesce(u.spent, 0) AS spent
            FROM cortex.budget g LEFT JOIN cortex.budget_use u ON u.budget_id = g.id
              AND u.window_key = cortex.budget_window(g, coalesce(j.lineage_id, j.id))
            WHERE g.name IN ('job:' || coalesce(j.lineage_id, j.id) || ':usd:run',
                             'job:' || coalesce(j.lineage_id, j.id) || ':tokens:run', 'agent:' || a.name || ':usd:run',
                             'tenant:' || j.tenant || ':usd:run',
                             CASE WHEN j.waiting_on LIKE 'budget:%' THEN substr(j.waiting_on, 8) END)) g) AS budgets
FROM cortex.job j
LEFT JOIN cortex.agent a ON a.id = j.agent_id
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN cortex.breaker_now b ON b.name = j.waiting_on
LEFT JOIN LATERAL (
    SELECT e.error, e.error_code FROM cortex.job_attempt e WHERE e.job_id = j.id
    ORDER BY e.attempt DESC LIMIT 1) last ON true
LEFT JOIN cortex_worker.task t ON t.job_id = j.id
WHERE j.id = $1;

-- name: steps_before
-- Steps of a job before a position, the last one first, without what they emitted. $1 job id, $2 before seq, $3 limit. Locks: none.
SELECT s.seq, s.attempt, s.kind, s.key, s.started_at, s.finished_at, s.cost_usd, s.usage,
       CASE WHEN s.kind = 'tool' AND pg_column_size(s.output) < 4096 AND json_typeof(s.output) = 'object'
            THEN s.output->>'tool_error' IS NOT NULL ELSE false END AS is_error, NULL::text AS chunk
FROM cortex.job_step s WHERE s.job_id = $1 AND s.seq < $2 ORDER BY s.seq DESC LIMIT $3;

-- name: detail
-- Details of one step of a job, and of the job's submission and course. $1 job id, $2 key of the step, $3 most
-- characters of each text, $4 how many transitions, the newest, $5 how many steps before it to search for the model's
-- answer that called it. Texts are JSON, cut. Locks: none.
SELECT s.seq, encode(s.digest, 'hex') AS digest, s.input, left(s.output::text, $3) AS output,
       octet_length(s.output::text) AS output_bytes, left(m.output::text, $3) AS asked_by,
       left(j.payload::text, $3) AS payload, j.trace_id, e.id AS effect_id, e.tool, e.status AS effect_status, e.is_sure,
       e.calls_count, e.can_reconcile, e.why, left(e.arguments::text, $3) AS arguments,
       left(e.result::text, $3) AS effect_result, e.created_at AS effect_at, e.finished_at AS effect_finished_at,
       e.resolution, e.resolved_by,
       (SELECT coalesce(jsonb_agg(h ORDER BY h.id), '[]') FROM (
            SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata->>'waiting_on' AS waiting_on, hp.name AS pod, hc.version AS code_version
            FROM cortex.job_history h LEFT JOIN cortex.pod hp ON hp.id = h.pod_id
            LEFT JOIN cortex.code hc ON hc.id = hp.code_id
            WHERE h.job_id = $1 ORDER BY h.id DESC LIMIT $4) h) AS history
FROM cortex.job j
LEFT JOIN cortex.job_step s ON s.job_id = j.id AND s.key = $2
LEFT JOIN cortex.effect e ON e.lineage_id = coalesce(j.lineage_id, j.id) AND e.key = $2 AND e.job_id = j.id
LEFT JOIN LATERAL (
    SELECT b.output FROM cortex.job_step b
    WHERE b.job_id = j.id AND s.kind = 'tool' AND b.seq < s.seq AND b.seq >= s.seq - $5::int AND b.kind = 'model'
    ORDER BY b.seq DESC LIMIT 1) m ON true
WHERE j.id = $1;
