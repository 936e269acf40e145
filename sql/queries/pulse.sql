-- name: recent
-- Recent activity by buckets of time; 0 is the current one. Always one row per bucket, the oldest first. $1 seconds of
-- a bucket, $2 how many, $3 most blocks of history to read, $4 first starts of a bucket whose wait is looked up, $5
-- seconds back to sum costs, $6 most calls. Locks: none. History needs no index by time: rows are only appended, so the
-- newest are in its last blocks. Once retention deletes, new rows go into earlier blocks as well: then the history of the
-- newest jobs is read, too.
WITH clock AS MATERIALIZED (
    SELECT cortex.now() AS now, floor(extract(epoch FROM cortex.now()) / $1::float8)::bigint AS bucket,
           greatest(0, pg_relation_size('cortex.job_history') / current_setting('block_size')::int - $3::int) AS first_block
), moved AS MATERIALIZED (
    SELECT h.job_id, h.at, h.new, h.previous,
           (SELECT bucket FROM clock) - floor(extract(epoch FROM h.at) / $1::float8)::bigint AS ago
    FROM (
        SELECT t.job_id, t.at, t.new, t.previous FROM cortex.job_history t
        WHERE t.ctid >= (SELECT format('(%s,0)', first_block)::tid FROM clock)
        UNION ALL
        SELECT n.job_id, n.at, n.new, n.previous
        FROM (SELECT o.ctid AS place, o.* FROM cortex.job_history o
              WHERE EXISTS (SELECT FROM cortex.retention) AND (SELECT first_block FROM clock) > 0
              ORDER BY o.job_id DESC, o.id DESC LIMIT 20 * $3::int) n
        WHERE n.place < (SELECT format('(%s,0)', first_block)::tid FROM clock)) h
), counted AS (
    SELECT ago, count(*) FILTER (WHERE new = 'RUNNING') AS started, count(*) FILTER (WHERE new = 'COMPLETED') AS done,
           count(*) FILTER (WHERE new = 'FAILED') AS failed
    FROM moved WHERE ago BETWEEN 0 AND $2::int - 1 GROUP BY ago
), sample AS (
    SELECT m.ago, m.job_id, m.at FROM (
        SELECT s.*, row_number() OVER (PARTITION BY s.ago ORDER BY s.at DESC) AS n FROM moved s
        WHERE s.ago BETWEEN 0 AND $2::int - 1 AND s.previous = 'PENDING' AND s.new = 'RUNNING') m
    WHERE m.n <= $4::int
), waited AS (
    SELECT s.ago, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (
               ORDER BY greatest(0, extract(epoch FROM s.at - j.run_at))::float8) AS wait_s
    FROM sample s CROSS JOIN LATERAL (
        SELECT run_at FROM cortex.job_record WHERE id = s.job_id OFFSET 0) j
    GROUP BY s.ago
), call AS MATERIALIZED (
    SELECT f.at, f.amount, CASE f.data->>'outcome' WHEN 'kept' THEN (f.data->>'took_s')::float8 END AS took_s,
           (SELECT bucket FROM clock) - floor(extract(epoch FROM f.at) / $1::float8)::bigint AS ago
    FROM cortex.fact f
    WHERE f.type = 'cost' AND f.at > (SELECT now FROM clock) - $5::float8 * interval '1 second'
    ORDER BY f.at DESC LIMIT $6::int
), spent AS (
    SELECT ago, sum(amount) AS usd, percentile_cont(0.5) WITHIN GROUP (ORDER BY took_s) AS model_p50_s
    FROM call WHERE ago BETWEEN 0 AND $2::int - 1 GROUP BY ago
), known AS (
    -- Null: everything was read.
    SELECT (SELECT min(at) FROM moved WHERE (SELECT first_block FROM clock) > 0) AS history_since,
           (SELECT min(at) FROM call HAVING count(*) >= $6::int) AS calls_since,
           (SELECT coalesce(sum(amount), 0) FROM call) AS spent_usd, (SELECT count(*) FROM call) AS calls
)
SELECT b.ago, coalesce(c.started, 0) AS started, coalesce(c.done, 0) AS done, coalesce(c.failed, 0) AS failed,
       w.wait_s[1] AS wait_p50_s, w.wait_s[2] AS wait_p95_s, s.model_p50_s, coalesce(s.usd, 0) AS usd, k.*, clock.now
FROM generate_series($2::int - 1, 0, -1) AS b(ago)
LEFT JOIN counted c USING (ago) LEFT JOIN waited w USING (ago) LEFT JOIN spent s USING (ago)
CROSS JOIN known k CROSS JOIN clock
ORDER BY b.ago DESC;

-- name: attention
-- What needs a person now, and what fails: breakers that admit no call, dead or silent pods, late runners, waiting
-- requests, effects of unknown outcome, jobs that wait for a budget, a quota or a person, and the newest failed jobs
-- that wait for a decision. $1 most of each. Locks: none. A breaker that is held open names who holds it, why and until
-- when. A request without a tool has its step's name.
(SELECT 'breaker' AS kind, NULL::uuid AS id, NULL::uuid AS job_id, b.name, 'OPEN' AS word, NULL AS agent,
        b.opened_at AS at, b.open_until AS until, b.forced_by AS by, b.forced_reason AS text
 FROM cortex.breaker b
 WHERE (b.state <> 'CLOSED' OR b.failures > 0) AND cortex.breaker_state(b.state, b.open_until) = 'OPEN'
   AND b.name <> 'effects:all'
 ORDER BY b.updated_at DESC LIMIT $1::int)
UNION ALL
(SELECT 'pod', p.shown_id, NULL, p.name, CASE WHEN p.is_lost THEN 'DEAD' ELSE p.state END, NULL, p.heartbeat_at, NULL, NULL,
        NULL
 FROM (SELECT DISTINCT ON (o.shown_id) o.*
       FROM (SELECT *, id IN (SELECT cortex.lost_pods()) AS is_lost FROM cortex.pod
             WHERE state IN ('READY', 'DRAINING')) o
       WHERE o.is_lost OR o.heartbeat_at < cortex.now() - o.silent_after_s * interval '1 second'
       ORDER BY o.shown_id, o.heartbeat_at) p
 ORDER BY p.heartbeat_at LIMIT $1::int)
UNION ALL
(SELECT 'runner', NULL, NULL, r.name, 'LATE', NULL, coalesce(r.succeeded_at, r.first_at), NULL, NULL, left(r.error, 300)
 FROM cortex.runner r
 WHERE cortex.late_from(r.succeeded_at, r.first_at, r.interval_s) < cortex.now()
 ORDER BY r.name LIMIT $1::int)
UNION ALL
(SELECT 'approval', found.id, found.job_id, coalesce(found.tool, found.key), found.risk, g.name, found.created_at,
        found.expires_at, NULL, NULL
 FROM (SELECT due.* FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
           SELECT a.id, a.job_id, a.tool, a.key, a.risk, a.agent_id, a.created_at, a.expires_at FROM cortex.approval a
           WHERE a.status = 'PENDING' AND a.risk = level.risk AND a.expires_at > cortex.now()
           ORDER BY a.expires_at, a.id LIMIT $1::int) due
       ORDER BY due.expires_at, due.id LIMIT $1::int) found
 LEFT JOIN cortex.agent g ON g.id = found.agent_id
 ORDER BY found.expires_at, found.id)
UNION ALL
(SELECT 'effect', e.id, e.job_id, e.tool, e.status, g.name, e.called_at, NULL, NULL, left(e.why, 300)
 FROM (SELECT * FROM cortex.effect WHERE status = 'UNKNOWN' ORDER BY created_at, id LIMIT $1::int) e
 LEFT JOIN cortex.agent g ON g.id = e.agent_id
 ORDER BY e.created_at, e.id)
UNION ALL
(SELECT 'job', j.id, j.id, j.type, j.waiting_on, g.name, j.suspended_at, j.next_retry_at, NULL, NULL
 FROM (
     (SELECT * FROM cortex.job_record WHERE status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND worker_job_id IS NULL
        AND waiting_on LIKE 'budget:%' ORDER BY waiting_on, id LIMIT $1::int)
     UNION ALL
     (SELECT * FROM cortex.job_record WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'quota:%'
      ORDER BY waiting_on, suspended_at LIMIT $1::int)
     UNION ALL
     (SELECT * FROM cortex.job_record WHERE status = 'WAITING_FOR_APPROVAL' AND worker_job_id IS NULL
        AND waiting_on LIKE 'person:%'
      ORDER BY suspended_at LIMIT $1::int)
     UNION ALL
     (SELECT * FROM cortex.job_record WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'trust:%'
      ORDER BY suspended_at LIMIT $1::int)) j
 LEFT JOIN cortex.agent g ON g.id = j.agent_id
 ORDER BY j.suspended_at, j.id LIMIT $1::int)
UNION ALL
(SELECT 'failure', d.job_id, d.job_id, d.type,
        coalesce(d.error_code, d.error_class), g.name, d.created_at, NULL, NULL, left(j.error_message, 300)
 FROM (SELECT * FROM cortex.dead_letter WHERE state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
       ORDER BY created_at DESC, job_id DESC LIMIT $1::int) d
 JOIN cortex.job j ON j.id = d.job_id
 LEFT JOIN cortex.agent g ON g.id = d.agent_id
 ORDER BY d.created_at DESC, d.job_id DESC);

-- name: errors
-- Counts the errors of the last $1 seconds, the newest $2 at most: of attempts, and of calls that were repeated in their
-- step. Returns with them how many seconds back it read, and the dead letters of the last $1 seconds, $2 at most. Locks:
-- none.
WITH error AS MATERIALIZED (
    SELECT f.at, f.step IS NULL AS is_of_attempt, f.step IS NOT NULL AND f.data ? 'max' AS is_repeated
    FROM cortex.fact f
    WHERE f.type = 'error' AND f.at > cortex.now() - $1::float8 * interval '1 second'
    ORDER BY f.at DESC LIMIT $2::int
)
SELECT count(*) FILTER (WHERE is_of_attempt) AS attempt_count, count(*) FILTER (WHERE is_repeated) AS call_count,
       (CASE WHEN count(*) < $2::int THEN $1::float8 ELSE extract(epoch FROM cortex.now() - min(at)) END)::float8 AS span_s,
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d WHERE d.created_at > cortex.now() - $1::float8 * interval '1 second'
            LIMIT $2::int) l) AS letter_count
FROM error;
