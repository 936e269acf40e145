-- name: figures
-- System-wide metrics: unfinished jobs, due tasks and the age of the oldest (in seconds), those of them that no living
-- pod serves, unresolved dead letters,
-- messages of the outbox, schedules that missed an instant within the last hour, the
-- seconds since the last `cortex tick` if ticks run the jobs, runners and those of them that are late, jobs that wait for
-- signals, children, limits or time, and pauses that are older than a day.
-- Tasks of paused queues are not due; a task that was handed back keeps its place, and is due again since its attempt
-- ended. $1 most rows to count of each. Locks: none.
WITH RECURSIVE held AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM cortex_worker.queue_pause WHERE queue = '') AS is_default
), walk AS (
    -- As a claim searches: past the heads of paused queues, and while the default queue is paused, only named ones; of
    -- each type and priority past those that were handed back, to the first that was not.
    (SELECT task, priority, timestamptz '-infinity' AS run_at, 0::bigint AS id, NULL::uuid AS job_id, 1 AS attempt
     FROM cortex_worker.ready_head LIMIT 1000)
    UNION ALL
    SELECT next.* FROM walk w CROSS JOIN LATERAL (
        (SELECT t.task, t.priority, t.run_at, t.id, t.job_id, t.attempt FROM cortex_worker.task t
         WHERE t.task = w.task AND t.priority = w.priority AND (t.run_at, t.id) > (w.run_at, w.id)
           AND t.state = 'READY' AND NOT t.is_suspect
           AND NOT (SELECT is_default FROM held)
           AND (t.queue_name IS NULL
                OR NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name))
         ORDER BY t.run_at, t.id LIMIT 1)
        UNION ALL
        (SELECT t.task, t.priority, t.run_at, t.id, t.job_id, t.attempt FROM cortex_worker.task t
         WHERE t.task = w.task AND t.priority = w.priority AND (t.run_at, t.id) > (w.run_at, w.id)
           AND t.state = 'READY' AND NOT t.is_suspect
           AND (SELECT is_default FROM held) AND t.queue_name IS NOT NULL
           AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name)
         ORDER BY t.run_at, t.id LIMIT 1)) next
    WHERE w.attempt > 0
), walked AS MATERIALIZED (
    SELECT * FROM walk LIMIT 5000
), search AS (
    -- Where that search ended, as in queues.list; named queues alone have one each.
    SELECT b.task, b.priority, b.run_at AS low, n.run_at AS high, n.run_at AS found
    FROM (SELECT DISTINCT ON (task, priority) * FROM walked ORDER BY task, priority, run_at DESC, id DESC) b
    CROSS JOIN LATERAL (
        SELECT t.run_at, t.attempt FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND t.task = b.task AND t.priority = b.priority
          AND NOT (SELECT is_default FROM held)
          AND (t.queue_name IS NULL
               OR NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name))
        ORDER BY t.run_at DESC, t.id DESC LIMIT 1) n
    WHERE b.id > 0 AND b.attempt > 0 AND n.attempt = 0
    UNION ALL
    SELECT h.task, h.priority, CASE p.attempt WHEN 0 THEN h.low ELSE p.run_at END,
           CASE p.attempt WHEN 0 THEN h.middle ELSE h.high END, CASE p.attempt WHEN 0 THEN p.run_at ELSE h.found END
    FROM (SELECT *, low + (high - low) / 2 AS middle FROM search WHERE high - low > interval '1 millisecond') h
    CROSS JOIN LATERAL (
        SELECT t.run_at, t.attempt FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND t.task = h.task AND t.priority = h.priority
          AND t.run_at >= h.middle
          AND (t.queue_name IS NULL
               OR NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name))
        ORDER BY t.run_at, t.id LIMIT 1) p
), oldest AS MATERIALIZED (
    SELECT least((SELECT min(greatest(w.run_at, (
                      SELECT a.ended_at FROM cortex.job_attempt a
                      WHERE w.attempt > 0 AND a.job_id = w.job_id AND a.attempt = w.attempt)))
                  FROM walked w WHERE w.id > 0),
                 (SELECT min(found) FROM search)) AS due_at
), due AS MATERIALIZED (
    SELECT count(*) AS count FROM (
        SELECT 1 FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND NOT (SELECT is_default FROM held)
          AND (t.queue_name IS NULL
               OR NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name))
        UNION ALL
        -- In the order of an index, so that the one of named queues alone is read.
        (SELECT 1 FROM cortex_worker.task t
         WHERE t.state = 'READY' AND NOT t.is_suspect AND (SELECT is_default FROM held) AND t.queue_name IS NOT NULL
           AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name)
         ORDER BY t.task, t.priority, t.run_at, t.id LIMIT $1)
        LIMIT $1) t
), stranded AS MATERIALIZED (
    SELECT coalesce(sum(s.jobs), 0) AS count FROM cortex_worker.stranded s
), waiting AS MATERIALIZED (
    -- One bounded part of the table for both words: a first-of has several rows.
    SELECT w.kind, count(DISTINCT w.job_id) AS count
    FROM (SELECT kind, job_id FROM cortex.job_wait LIMIT $1) w GROUP BY w.kind
), letter AS MATERIALIZED (
    SELECT state FROM cortex.dead_letter WHERE state IN ('OPEN', 'ESCALATED', 'ARCHIVED') LIMIT $1
)
SELECT (SELECT count(*) FROM (SELECT FROM cortex.job_state WHERE state = 'PENDING' LIMIT $1) j) AS pending,
       (SELECT count(*) FROM (SELECT FROM cortex.job_state WHERE state = 'RUNNING' LIMIT $1) j) AS running,
       (SELECT count(*) FROM (SELECT FROM cortex.job_state WHERE state = 'RETRY' LIMIT $1) j) AS retry,
       (SELECT count(*) FROM (SELECT FROM cortex.job_state WHERE state = 'WAITING_FOR_APPROVAL' LIMIT $1) j)
           AS waiting_for_approval,
       (SELECT count FROM due) AS due,
       coalesce(extract(epoch FROM cortex.now() - (SELECT due_at FROM oldest)), 0)::float8 AS oldest_due_s,
       (SELECT count FROM stranded) AS stranded,
       ARRAY(SELECT split_part(s.task, ' ', 1) FROM cortex_worker.stranded s WHERE s.jobs > 0
             GROUP BY 1 ORDER BY sum(s.jobs) DESC, 1) AS stranded_types,
       coalesce((SELECT count FROM waiting WHERE kind = 'signal'), 0) AS waiting_signal,
       coalesce((SELECT count FROM waiting WHERE kind = 'child'), 0) AS waiting_child,
       (SELECT count(*) FROM (
            SELECT FROM cortex.job_record WHERE status = 'RETRY' AND worker_job_id IS NULL
              AND waiting_on !~ '^(approval|budget|child|signal):' AND waiting_on = 'sleep' LIMIT $1) j) AS waiting_sleep,
       (SELECT count(*) FROM (
            SELECT FROM cortex_worker.task WHERE state = 'HELD' AND limit_keys IS NOT NULL LIMIT $1) t) AS waiting_limit,
       (SELECT count(*) FROM cortex_worker.pause WHERE paused_at < cortex.now() - interval '1 day') AS old_pauses,
       (SELECT count(*) FROM letter WHERE state = 'OPEN') AS open,
       (SELECT count(*) FROM letter WHERE state = 'ESCALATED') AS escalated,
       (SELECT count(*) FROM letter WHERE state = 'ARCHIVED') AS archived,
       (SELECT count(*) FROM (SELECT FROM cortex.outbox WHERE status = 'PENDING' LIMIT $1) o) AS messages_pending,
       (SELECT count(*) FROM (SELECT FROM cortex.outbox WHERE status = 'PROCESSING' LIMIT $1) o) AS messages_processing,
       (SELECT count(*) FROM (SELECT FROM cortex.outbox WHERE status = 'FAILED' LIMIT $1) o) AS messages_failed,
       -- What waits for its next attempt, or for a receiver that fails, is not late.
       coalesce((
           SELECT greatest(0, extract(epoch FROM cortex.now() - min(first.available_at))) FROM cortex.subscription s
           CROSS JOIN LATERAL (
               SELECT o.available_at FROM cortex.outbox o
               WHERE o.subscription = s.name AND o.status = 'PENDING' AND NOT o.is_parked
               ORDER BY o.available_at, o.seq LIMIT 1) first
           WHERE NOT EXISTS (SELECT FROM cortex.failing_subscription f WHERE f.subscription = s.name)), 0)::float8
           AS oldest_message_s,
       (SELECT count(*) FROM cortex.schedule s WHERE cortex.has_missed(s)) AS missed_schedules,
       extract(epoch FROM cortex.now() - cortex.ticked_at())::float8 AS ticked_s,
       ARRAY(SELECT name FROM cortex.runner ORDER BY name) AS runners,
       ARRAY(SELECT name FROM cortex.runner
             WHERE cortex.late_from(succeeded_at, first_at, interval_s) < cortex.now()) AS late_runners;
