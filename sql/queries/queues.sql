-- name: make_strict
-- Makes a named queue strict: the next job begins only when the one before has ended. $1 queue, $2 who, $3 why. Locks:
-- the row, the tasks that had made way. No row comes back if it was strict.
WITH made AS (
    INSERT INTO cortex_worker.strict_queue (queue, set_by) VALUES ($1, $2)
    ON CONFLICT (queue) DO NOTHING
    RETURNING queue
), gone_back AS (
    -- In a strict queue nothing makes way.
    UPDATE cortex_worker.task t SET state = 'QUEUED' FROM made WHERE t.state = 'STRANDED' AND t.queue_name = made.queue
)
INSERT INTO cortex.fact (type, subtype, source, data)
SELECT 'lifecycle', 'queue_made_strict', 'queue:' || queue, jsonb_build_object('by', $2::text, 'reason', $3::text)
FROM made
RETURNING id;

-- name: make_relaxed
-- Lets the next job of a queue run while the one before waits, and notifies all pods. $1 queue, $2 who, $3 why. Locks:
-- the row. No row comes back if it was relaxed.
WITH made AS (
    DELETE FROM cortex_worker.strict_queue WHERE queue = $1 RETURNING queue, set_by, set_at
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'queue_made_relaxed', 'queue:' || queue,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'set_by', set_by, 'set_at', set_at)
    FROM made
), named AS (
    INSERT INTO cortex_worker.queue_due (queue, due_at) SELECT queue, '-infinity' FROM made
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM made
)
SELECT made.queue FROM made LEFT JOIN hinted ON true;

-- name: list
-- Queues for people: the default one, the paused ones, then by name those that have tasks or are strict. Reads at most
-- $3 tasks of each in each state. $1 names, or null for all, $2 how many queues, $3 tasks. Locks: none. In a named
-- queue, the oldest ready task is the oldest of those that were read. A task that was handed back keeps its place, and
-- is ready again since its attempt ended, as in metrics.figures: tasks behind it may be older.
WITH RECURSIVE waiting AS (
    -- Walks the distinct names of the queues by index, one probe per name.
    (SELECT queue_name AS queue FROM cortex_worker.task WHERE state = 'QUEUED' ORDER BY queue_name LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue_name FROM cortex_worker.task t
            WHERE t.state = 'QUEUED' AND t.queue_name > w.queue ORDER BY t.queue_name LIMIT 1)
    FROM waiting w WHERE w.queue IS NOT NULL
), stranded AS MATERIALIZED (
    -- None, unless code is missing.
    SELECT t.queue_name AS queue, count(*) AS ready, min(t.run_at) AS oldest_at
    FROM (SELECT queue_name, run_at FROM cortex_worker.task WHERE state = 'STRANDED' LIMIT $2::bigint * $3::bigint) t GROUP BY 1
), named AS MATERIALIZED (
    SELECT unnest($1::text[]) AS queue
    UNION SELECT '' WHERE $1 IS NULL
    UNION (SELECT queue FROM cortex_worker.queue_pause WHERE $1 IS NULL ORDER BY queue LIMIT $2)
    UNION (SELECT queue FROM cortex_worker.strict_queue WHERE $1 IS NULL ORDER BY queue LIMIT $2)
    UNION (SELECT queue FROM waiting WHERE $1 IS NULL AND queue IS NOT NULL LIMIT $2)
    UNION (SELECT queue FROM stranded WHERE $1 IS NULL LIMIT $2)
    UNION (SELECT queue_name FROM cortex_worker.task
           WHERE $1 IS NULL AND queue_name IS NOT NULL AND state IN ('READY', 'LOCKED') ORDER BY queue_name LIMIT $2)
), shown AS MATERIALIZED (
    SELECT n.queue, p.paused_by, p.paused_at, p.reason,
           EXISTS (SELECT FROM cortex_worker.strict_queue o WHERE o.queue = n.queue) AS is_strict
    FROM named n LEFT JOIN cortex_worker.queue_pause p ON p.queue = n.queue
    ORDER BY n.queue <> '', p.queue IS NULL, n.queue LIMIT $2
), figure AS MATERIALIZED (
    SELECT s.queue, f.*
    FROM shown s CROSS JOIN LATERAL (
        SELECT q.ready + h.ready + coalesce(a.ready, 0) AS ready, h.running, q.later,
               least(q.oldest_at, h.oldest_at, a.oldest_at) AS oldest_at
        FROM (WITH looked AS MATERIALIZED (
                  SELECT t.run_at, t.job_id, t.attempt FROM cortex_worker.task t
                  WHERE t.state = 'QUEUED' AND t.queue_name = s.queue ORDER BY t.priority, t.run_at, t.id LIMIT $3)
              SELECT count(*) FILTER (WHERE run_at <= cortex.now()) AS ready,
                     count(*) FILTER (WHERE run_at > cortex.now()) AS later,
                     min(greatest(run_at, (SELECT a.ended_at FROM cortex.job_attempt a
                                           WHERE l.attempt > 0 AND a.job_id = l.job_id AND a.attempt = l.attempt)))
                         FILTER (WHERE run_at <= cortex.now()) AS oldest_at
              FROM looked l) q,
             (SELECT count(*) FILTER (WHERE t.state = 'READY') AS ready,
                     count(*) FILTER (WHERE t.state = 'LOCKED') AS running,
                     min(greatest(t.run_at, (SELECT a.ended_at FROM cortex.job_attempt a
                                             WHERE a.job_id = t.job_id AND a.attempt = t.attempt)))
                         FILTER (WHERE t.state = 'READY') AS oldest_at
              FROM cortex_worker.task t WHERE t.queue_name = s.queue AND t.state IN ('READY', 'LOCKED')) h
             LEFT JOIN stranded a ON a.queue = s.queue
        WHERE s.queue <> ''
        UNION ALL
        SELECT r.ready + s2.ready + d.due, l.running, d2.later, least(o.oldest_at, d.oldest_at)
        FROM (SELECT count(*) AS ready FROM (
                  SELECT FROM cortex_worker.task
                  WHERE state = 'READY' AND NOT is_suspect AND queue_name IS NULL LIMIT $3) t) r,
             (SELECT count(*) AS ready FROM (
                  SELECT FROM cortex_worker.task
                  WHERE state = 'READY' AND is_suspect AND queue_name IS NULL LIMIT $3) t) s2,
             (SELECT count(*) AS due, min(run_at) AS oldest_at FROM (
                  SELECT run_at FROM cortex_worker.task WHERE state = 'LATER' AND run_at <= cortex.now()
                  ORDER BY run_at LIMIT $3) t) d,
             (SELECT count(*) AS later FROM (
                  SELECT FROM cortex_worker.task WHERE state = 'LATER' AND run_at > cortex.now() LIMIT $3) t) d2,
             (SELECT count(*) AS running FROM (
                  SELECT FROM cortex_worker.task t WHERE t.state = 'LOCKED' AND t.queue_name IS NULL LIMIT $3) t) l,
             (WITH RECURSIVE walk AS (
                  -- By index for each type and priority: past the tasks that were handed back, to the first other one.
                  (SELECT task, priority, timestamptz '-infinity' AS run_at, 0::bigint AS id, NULL::uuid AS job_id,
                          1 AS attempt FROM cortex_worker.ready_head LIMIT 1000)
                  UNION ALL
                  SELECT next.* FROM walk w CROSS JOIN LATERAL (
                      SELECT t.task, t.priority, t.run_at, t.id, t.job_id, t.attempt FROM cortex_worker.task t
                      WHERE t.state = 'READY' AND NOT t.is_suspect AND t.queue_name IS NULL
                        AND t.task = w.task AND t.priority = w.priority AND (t.run_at, t.id) > (w.run_at, w.id)
                      ORDER BY t.run_at, t.id LIMIT 1) next
                  WHERE w.attempt > 0
              ), walked AS MATERIALIZED (
                  SELECT * FROM walk LIMIT 5000
              ), search AS (
                  -- If that search ended early: a binary search by time between there and the newest task, if that
                  -- waits. Exact if the tasks that were handed back are the oldest; never older than a waiting one.
                  SELECT b.task, b.priority, b.run_at AS low, n.run_at AS high, n.run_at AS found
                  FROM (SELECT DISTINCT ON (task, priority) * FROM walked
                        ORDER BY task, priority, run_at DESC, id DESC) b
                  CROSS JOIN LATERAL (
                      SELECT t.run_at, t.attempt FROM cortex_worker.task t
                      WHERE t.state = 'READY' AND NOT t.is_suspect AND t.queue_name IS NULL
                        AND t.task = b.task AND t.priority = b.priority
                      ORDER BY t.run_at DESC, t.id DESC LIMIT 1) n
                  WHERE b.id > 0 AND b.attempt > 0 AND n.attempt = 0
                  UNION ALL
                  SELECT h.task, h.priority, CASE p.attempt WHEN 0 THEN h.low ELSE p.run_at END,
                         CASE p.attempt WHEN 0 THEN h.middle ELSE h.high END,
                         CASE p.attempt WHEN 0 THEN p.run_at ELSE h.found END
                  FROM (SELECT *, low + (high - low) / 2 AS middle FROM search
                        WHERE high - low > interval '1 millisecond') h
                  CROSS JOIN LATERAL (
                      SELECT t.run_at, t.attempt FROM cortex_worker.task t
                      WHERE t.state = 'READY' AND NOT t.is_suspect AND t.queue_name IS NULL
                        AND t.task = h.task AND t.priority = h.priority AND t.run_at >= h.middle
                      ORDER BY t.run_at, t.id LIMIT 1) p)
              SELECT least((SELECT min(greatest(w.run_at, (
                                SELECT a.ended_at FROM cortex.job_attempt a
                                WHERE w.attempt > 0 AND a.job_id = w.job_id AND a.attempt = w.attempt)))
                            FROM walked w WHERE w.id > 0),
                           (SELECT min(found) FROM search)) AS oldest_at) o
        WHERE s.queue = '') f
)
SELECT nullif(s.queue, '') AS queue, s.paused_by, s.paused_at, s.reason, s.is_strict,
       least(f.ready, $3)::int AS ready, least(f.running, $3)::int AS running, least(f.later, $3)::int AS later,
       greatest(f.ready, f.running, f.later) >= $3 AS is_capped,
       CASE WHEN f.ready > 0 THEN greatest(0, extract(epoch FROM cortex.now() - f.oldest_at))::float8 END
           AS oldest_ready_s, cortex.now() AS now
FROM shown s JOIN figure f ON f.queue = s.queue
ORDER BY s.queue <> '', s.paused_at IS NULL, s.queue;
