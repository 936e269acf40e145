-- name: head
-- What stands at the top of every screen, each count as far as a cap. $1 cap. Always one row.
SELECT clock.now, waiting.count AS approvals, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0) AND b.state <> 'CLOSED'
              AND b.name <> 'effects:all' LIMIT $1) open)::int AS breakers,
       EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED') AS is_frozen,
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d WHERE d.state IN ('OPEN', 'ESCALATED') LIMIT $1) dead)::int AS dead,
       pods.ready, pods.living,
       (SELECT greatest(c.reltuples, 0)::bigint FROM pg_class c WHERE c.oid = 'cortex.job'::regclass) AS jobs_about
FROM (SELECT cortex.now() AS now) clock,
LATERAL (
    SELECT sum(found.count)::int AS count, min(found.first_expiry) AS first_expiry
    FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(a.expires_at) AS first_expiry FROM (
            SELECT p.expires_at FROM cortex.approval p
            WHERE p.status = 'PENDING' AND p.risk = level.risk AND p.expires_at > clock.now
            ORDER BY p.expires_at, p.id LIMIT $1) a) found) waiting,
LATERAL (
    SELECT count(*) FILTER (WHERE p.state = 'READY')::int AS ready, count(*)::int AS living
    FROM (SELECT state FROM cortex.pod WHERE state IN ('READY', 'DRAINING') LIMIT $1) p) pods;

-- name: jobs
-- Jobs as a list shows them, those that exist. $1 ids.
SELECT j.id, j.type, j.status, j.attempt, j.retry_count, j.max_retries, j.checkpoint, j.created_at, j.started_at,
       j.finished_at, j.next_retry_at, j.heartbeat_at, j.run_at, j.cancel_requested_at, j.cancelled_by,
       j.error_message, j.error_code, j.waiting_on, j.tenant, j.queue_name, e.error AS last_error,
       cortex.waits_for(j.waiting_on) AS awaited, a.name AS agent, p.name AS pod, cortex.now() AS now
FROM cortex.job j
LEFT JOIN cortex.agent a ON a.id = j.agent_id
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN LATERAL (
    SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
    ORDER BY attempt DESC LIMIT 1) e ON true
WHERE j.id = ANY ($1::uuid[]);

-- name: breakers
-- Circuit breakers: those that are not closed first, then the newest changes; of each, how many jobs wait for it.
-- $1 limit, $2 how many of those are counted. The freeze of effects is none of them.
SELECT b.*, p.name AS probe_pod,
       (SELECT count(*) FROM (
            SELECT FROM cortex.job j
            WHERE j.waiting_on = b.name AND j.waiting_on NOT LIKE 'budget:%' AND j.status = 'RETRY'
              AND j.worker_job_id IS NULL LIMIT $2) held)::int AS waiting
FROM cortex.breaker b LEFT JOIN cortex.pod p ON p.id = b.probe_by
WHERE b.name <> 'effects:all'
ORDER BY b.state = 'CLOSED', b.failures = 0, b.updated_at DESC LIMIT $1;
