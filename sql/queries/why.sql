-- name: facts
-- Everything that explains why jobs are not running, in one snapshot. A silent pod does not count as living. $1 job
-- ids, $2 how many tasks ahead of its own to count. Locks: none.
WITH connected AS MATERIALIZED (
    SELECT cortex.connected_pods() AS id
), living AS MATERIALIZED (
    SELECT p.shown_id, p.state, p.job_types, p.tools, p.slots, p.running, p.peer_check_s, coalesce(p.code_id, 0) AS code
    FROM cortex.pod p
    WHERE p.state IN ('READY', 'DRAINING') AND (p.liveness = 'heartbeat' OR p.id IN (SELECT id FROM connected))
      AND p.heartbeat_at >= cortex.now() - p.silent_after_s * interval '1 second'
)
SELECT cortex.now() AS now, j.id AS job_id, j.type, j.status, j.attempt, j.retry_count, j.max_retries, j.started_at,
       j.finished_at, j.heartbeat_at, j.suspended_at, j.next_retry_at, j.cancel_requested_at, j.cancelled_by,
       j.cancel_reason, j.error_message, j.error_class, j.error_code,
       j.waiting_on,
       nullif(concat_ws(' ', j.checkpoint->>'seq', j.checkpoint->>'key'), '') AS step,
       cortex.running_step(t) AS running_step, t.state::text AS task_state, t.run_at AS task_run_at, t.attempts_spent, t.max_attempts,
       p.name AS pod, c.version AS code_version, CASE p.liveness WHEN 'lock' THEN p.id IN (SELECT id FROM connected)
            ELSE p.heartbeat_at >= cortex.now() - p.silent_after_s * interval '1 second' END AS pod_is_alive,
       p.silent_after_s, p.zombie_s, p.sweep_s, coalesce(p.threads_lost, 0) AS threads_lost,
       t.queue_name, qp.kind AS pause_kind, qp.name AS pause_name, qp.paused_by, qp.paused_at, qp.reason AS pause_reason, j.due_by,
       t.priority AS task_priority, j.priority, coalesce(head.job_id, begun.id) AS head_id,
       coalesce(head.state = 'LOCKED', false) AS head_is_running,
       CASE WHEN head.job_id IS NULL THEN begun.status::text END AS head_waits,
       b.state AS breaker_state, b.open_until, coalesce(b.probe_until > cortex.now(), false) AS is_probed, b.forced_by,
       b.forced_reason, b.last_error AS breaker_error, g.name AS budget, g.unit AS budget_unit, g.share_of, g.limit_amount, coalesce(spent.spent, 0) AS spent,
       cortex.waits_for(j.waiting_on) AS awaited, cortex.line_of(t, $2) AS line, fleet.*, ahead.ahead_count, a.attempt AS last_attempt,
       a.outcome AS last_outcome, a.error AS last_error, a.error_class AS last_error_class,
       a.error_code AS last_error_code, a.error_source AS last_error_source, a.pod AS last_pod,
       coalesce(a.threads_lost, 0) AS last_threads_lost, coalesce(a.has_pod, false) AS last_has_pod, misfit.misfits, wakes.waits, deaf.data AS deaf,
       deaf.at AS deaf_at
FROM cortex.job j
LEFT JOIN cortex_worker.task t ON t.job_id = j.id
LEFT JOIN cortex_worker.unfit u ON u.task = t.task
LEFT JOIN cortex.tool_set s ON s.task = coalesce(u.base, t.task)
LEFT JOIN LATERAL (
    SELECT e.* FROM cortex_worker.pause e
    WHERE t.job_id IS NOT NULL AND CASE e.kind
        WHEN 'all' THEN true WHEN 'queue' THEN e.name = coalesce(t.queue_name, '') WHEN 'type' THEN e.name = j.type
        WHEN 'tenant' THEN e.name = j.tenant ELSE e.name = j.id::text END
    ORDER BY e.kind LIMIT 1) qp ON true
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN cortex.code c ON c.id = p.code_id
LEFT JOIN cortex.breaker_now b ON b.name = j.waiting_on
LEFT JOIN cortex.budget g ON g.name = CASE WHEN j.waiting_on LIKE 'budget:%' THEN substr(j.waiting_on, 8) END
LEFT JOIN cortex.budget_use spent ON spent.budget_id = g.id
    AND spent.window_key = cortex.budget_window(g, coalesce(j.lineage_id, j.id))
LEFT JOIN LATERAL (
    SELECT h.job_id, h.state FROM cortex_worker.task h
    WHERE h.queue_name = t.queue_name AND h.state IN ('HELD', 'READY', 'LOCKED') AND h.job_id <> j.id) head ON true
LEFT JOIN LATERAL (
    -- The oldest of those that have begun and wait; the next one of a strict queue waits for it.
    SELECT r.id, r.status FROM cortex.job_record r
    WHERE t.state = 'QUEUED' AND j.status = 'PENDING' AND r.queue_name = t.queue_name
      AND r.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')
      AND EXISTS (SELECT FROM cortex_worker.strict_queue q WHERE q.queue = t.queue_name)
    ORDER BY r.created_at, r.id LIMIT 1) begun ON true
LEFT JOIN LATERAL (
    SELECT e.attempt, e.outcome, e.error, e.error_class, e.error_code, e.error_source, o.name AS pod, o.threads_lost,
           o.state IN ('READY', 'DRAINING') AS has_pod
    FROM cortex.job_attempt e LEFT JOIN cortex.pod o ON o.id = e.pod_id
    WHERE e.job_id = j.id ORDER BY e.attempt DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT e.data, e.at FROM cortex.fact e
    WHERE t.state = 'LOCKED' AND e.job_id = j.id AND e.attempt = j.attempt
      AND e.subtype = 'handler_ignores_cancellation' ORDER BY e.id DESC LIMIT 1) deaf ON true
CROSS JOIN LATERAL (
    SELECT jsonb_agg(to_jsonb(w) ORDER BY w.kind, w.name, w.key) AS waits FROM (
        SELECT o.kind, o.name, nullif(o.key, '') AS key,
               CASE o.kind WHEN 'approval' THEN cortex.waits_for('approval:' || o.name) END AS awaited,
               CASE o.kind WHEN 'child' THEN cortex.open_counts(j.id, o.name) END AS children
        FROM cortex.job_wait o WHERE o.job_id = j.id LIMIT 100) w) wakes
CROSS JOIN LATERAL (SELECT coalesce(s.tools, '{}') AS tools) needed
CROSS JOIN LATERAL (
    -- What the codes that looked could not take, one row each, the last one first.
    SELECT jsonb_agg(to_jsonb(m) ORDER BY m.attempt DESC) AS misfits FROM (
        SELECT DISTINCT ON (l.code_id) l.attempt, l.ended_at AS at, l.error, l.error_source AS kind, l.pod, l.version FROM (
            SELECT e.attempt, e.ended_at, e.error, e.error_source, o.name AS pod, o.code_id, c.version
            FROM cortex.job_attempt e LEFT JOIN cortex.pod o ON o.id = e.pod_id LEFT JOIN cortex.code c ON c.id = o.code_id
            WHERE j.unfit_codes IS NOT NULL AND e.job_id = j.id AND e.outcome = 'misfit'
            ORDER BY e.attempt DESC LIMIT 20) l
        ORDER BY l.code_id, l.attempt DESC) m) misfit
CROSS JOIN LATERAL (
    SELECT count(DISTINCT l.shown_id) FILTER (WHERE l.state = 'READY') AS ready_count,
           min(l.peer_check_s) FILTER (WHERE l.state = 'READY') AS peer_check_s,
           count(DISTINCT l.shown_id) FILTER (WHERE l.state = 'READY' AND l.is_able) AS knowing_count,
           count(DISTINCT l.shown_id) FILTER (WHERE l.state = 'DRAINING' AND l.is_able) AS draining_count,
           coalesce(sum(l.slots) FILTER (WHERE l.state = 'READY' AND l.is_able), 0) AS slots,
           coalesce(sum(greatest(0, l.slots - l.running)) FILTER (WHERE l.state = 'READY' AND l.is_able), 0) AS free_slots,
           needed.tools AS needs,
           ARRAY(SELECT need FROM unnest(needed.tools) AS need WHERE NOT EXISTS (
               SELECT FROM living k WHERE k.state = 'READY' AND need = ANY (k.tools))) AS lacking,
           ARRAY(SELECT DISTINCT unnest(k.tools) AS name FROM living k WHERE k.state = 'READY'
                 ORDER BY name LIMIT 100) AS tools,
           ARRAY(SELECT DISTINCT unnest(k.job_types) AS name FROM living k WHERE k.state = 'READY'
                 ORDER BY name LIMIT 100) AS types,
           cortex.ticked_at() IS NOT NULL AS has_ticks,
           EXISTS (SELECT FROM cortex.pod p WHERE p.name LIKE 'tick %' AND p.ended_at > cortex.now() - interval '5 minutes')
               AND NOT cortex.is_served(j.type, NULL) AS do_ticks_lack
    FROM (SELECT p.*, j.type = ANY (p.job_types) AND needed.tools <@ p.tools
                     AND coalesce(p.code <> ALL (j.unfit_codes), true) AS is_able FROM living p) l) fleet
CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM (
                SELECT FROM cortex_worker.task r
                WHERE t.state = 'READY' AND r.state = 'READY' AND NOT r.is_suspect AND r.task = t.task
                  AND (r.priority, r.run_at, r.id) < (t.priority, t.run_at, t.id) LIMIT $2) r)
         + (SELECT count(*) FROM (
                SELECT FROM cortex_worker.task q
                WHERE t.state = 'QUEUED' AND q.state = 'QUEUED' AND q.queue_name = t.queue_name
                  AND (q.priority, q.run_at, q.id) < (t.priority, t.run_at, t.id) LIMIT $2) q) AS ahead_count) ahead
WHERE j.id = ANY ($1::uuid[]);
