-- name: results
-- Of the given jobs, those that have ended, those whose code no living pod has, and those that do not exist (without a
-- status). $1 ids, $2 bytes: beyond this size, as stored, further results are left out (the first is complete, whatever
-- its size).
SELECT e.id, e.status, e.error_code, e.error_class, e.error_message, e.cancelled_by, e.cancel_reason, e.finished_at,
       e.misfit, e.before < $2 AS is_whole, CASE WHEN e.before < $2 THEN e.result::text END AS result
FROM (
    SELECT asked.id, j.status::text, j.error_code, j.error_class, j.error_message, j.cancelled_by, j.cancel_reason,
           j.finished_at, j.result, CASE WHEN j.finished_at IS NULL THEN (
               SELECT a.error FROM cortex.job_attempt a WHERE a.job_id = j.id AND a.outcome = 'misfit'
               ORDER BY a.attempt DESC LIMIT 1) END AS misfit,
           coalesce(sum(pg_column_size(j.result)) OVER (
               ORDER BY asked.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM unnest($1::uuid[]) WITH ORDINALITY AS asked(id, n)
    LEFT JOIN cortex.job j ON j.id = asked.id
    WHERE j.id IS NULL OR j.finished_at IS NOT NULL
       OR j.waiting_on = 'code'
) e;

-- name: since
-- What happened to each of several jobs after a position, in one snapshot: transitions, ended attempts, committed
-- steps, and the claim of a new attempt. $1 job ids, $2 after history ids, $3 after ended attempts, $4 after steps, $5
-- newest attempts known, $6 most rows of each kind and job. Returns the positions, from 1, of those to which something
-- happened, of those that have ended, and of those that do not exist (without a status).
SELECT asked.n::int AS n, j.status::text AS status, j.finished_at IS NOT NULL AS is_ended, h.rows AS history, e.rows AS attempts, s.rows AS steps,
       CASE WHEN t.locked_by IS NOT NULL THEN
           jsonb_build_object('attempt', j.attempt, 'at', t.locked_at, 'pod', p.name, 'code_version', c.version)
       END AS claim
FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[], $5::int[])
    WITH ORDINALITY AS asked(job_id, history_id, ended_attempt, seq, claimed_attempt, n)
LEFT JOIN cortex.job j ON j.id = asked.job_id
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.id) AS rows FROM (
        SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata, hp.name AS pod, hc.version AS code_version
        FROM cortex.job_history h LEFT JOIN cortex.pod hp ON hp.id = h.pod_id
        LEFT JOIN cortex.code hc ON hc.id = hp.code_id
        WHERE h.job_id = asked.job_id AND h.id > asked.history_id ORDER BY h.id LIMIT $6) r) h ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.attempt) AS rows FROM (
        SELECT a.attempt, a.outcome, a.ended_at, a.due_at, a.error, a.error_class, a.error_code, a.error_source,
               a.retry_count, ap.name AS pod, ac.version AS code_version
        FROM cortex.job_attempt a LEFT JOIN cortex.pod ap ON ap.id = a.pod_id
        LEFT JOIN cortex.code ac ON ac.id = ap.code_id
        WHERE a.job_id = asked.job_id AND a.attempt > asked.ended_attempt ORDER BY a.attempt LIMIT $6) r) e ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.seq) AS rows FROM (
        SELECT s.seq, s.attempt, s.kind, s.key, s.started_at, s.finished_at, s.cost_usd, s.usage
        FROM cortex.job_step s
        WHERE s.job_id = asked.job_id AND s.seq > asked.seq ORDER BY s.seq LIMIT $6) r) s ON true
LEFT JOIN cortex_worker.task t ON t.job_id = j.id AND j.attempt > asked.claimed_attempt
LEFT JOIN cortex.pod p ON p.id = t.locked_by
LEFT JOIN cortex.code c ON c.id = p.code_id
WHERE j.id IS NULL OR j.finished_at IS NOT NULL OR h.rows IS NOT NULL OR e.rows IS NOT NULL OR s.rows IS NOT NULL OR t.locked_by IS NOT NULL
ORDER BY asked.n;
