-- name: due
-- Gives a task to each due job in RETRY. $1 limit. Locks: its turn to the end of the statement, the jobs
-- (skipping locked ones). One process works at a time; any other is skipped. A job that waits for a breaker is due
-- once it has closed, and otherwise stays, except for one that may probe it. Of the jobs that wait for a quota, as many
-- are due as it has room for, also early if it was changed meanwhile. Returns how many tasks were made, whose insert
-- notifies the pods; whether it was skipped; whether any job waited for a breaker or a quota; and in how many seconds the
-- first one became due of all jobs that were in RETRY before.
WITH RECURSIVE turn AS MATERIALIZED (
    SELECT cortex.take_turn('retries') AS is_mine
), waited AS (
    -- Walks the distinct names of breakers and quotas by index, one probe per name.
    (SELECT waiting_on AS name FROM cortex.job_record
     WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'
     ORDER BY waiting_on LIMIT 1)
    UNION ALL
    SELECT (SELECT j.waiting_on FROM cortex.job_record j
            WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on !~ '^(approval|budget|child|signal):'
              AND j.waiting_on > w.name
            ORDER BY j.waiting_on LIMIT 1)
    FROM waited w WHERE w.name IS NOT NULL
), quota AS MATERIALIZED (
    -- For a quota of an amount, the number of calls that fit is unknown: twenty a pass. Jobs that were released and are
    -- not claimed yet may take a place.
    SELECT w.name, q.changed_at, greatest(0, CASE
               WHEN q.argument IS NULL THEN least($1, q.limit_amount - coalesce(u.used, 0))
               WHEN coalesce(u.used, 0) < q.limit_amount THEN least($1, 20) ELSE 0 END - (
               SELECT count(*) FROM (
                   SELECT FROM cortex.job_record j
                   WHERE j.status = 'RETRY' AND j.worker_job_id IS NOT NULL AND j.waiting_on = w.name
                     AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id AND t.state = 'LOCKED')
                   LIMIT $1) j
           ))::int AS room
    FROM waited w JOIN cortex.quota q ON q.name = substr(w.name, length('quota:') + 1)
    LEFT JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = cortex.quota_began(q.period, cortex.now())
    WHERE w.name LIKE 'quota:%' AND (SELECT is_mine FROM turn)
), gate AS MATERIALIZED (
    SELECT w.name, coalesce(b.state, 'CLOSED') = 'CLOSED' AS lets_all,
           CASE WHEN b.state = 'CLOSED' OR w.name LIKE 'quota:%' AND q.name IS NULL THEN 'infinity'
                ELSE cortex.now() END AS until,
           -- How many calls fit is unknown, as for a quota of an amount.
           coalesce(q.room, CASE WHEN w.name LIKE 'limit:%' THEN least($1, 20) ELSE $1 END)::int AS room,
           q.changed_at,
           (b.state = 'OPEN' AND b.open_until <= cortex.now()  -- null while a person holds it open
            OR b.state = 'HALF_OPEN' AND coalesce(b.probe_until <= cortex.now(), true))
           -- A released job that no pod has claimed for this long no longer counts.
           AND coalesce((
               SELECT j.next_retry_at FROM cortex.job_record j
               WHERE j.status = 'RETRY' AND j.worker_job_id IS NOT NULL AND j.waiting_on = w.name
                 AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id AND t.state = 'LOCKED')
               ORDER BY j.next_retry_at DESC LIMIT 1) <= cortex.now() - interval '10 seconds', true) AS lets_one
    FROM waited w LEFT JOIN cortex.breaker b ON b.name = w.name LEFT JOIN quota q ON q.name = w.name
    WHERE w.name IS NOT NULL AND (SELECT is_mine FROM turn)
), known AS MATERIALIZED (
    SELECT unnest(cortex_worker.open_types(ARRAY(
        SELECT DISTINCT unnest(job_types) FROM cortex.pod WHERE state = 'READY'))) AS type
), prober AS (
    -- Prefers a job that a pod can claim at once: of a type that a pod runs and that is not paused, in no busy or paused queue.
    SELECT c.id, c.next_retry_at FROM gate g CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT j.id, j.next_retry_at, true AS is_claimable FROM known CROSS JOIN LATERAL (
                SELECT id, next_retry_at FROM cortex.job_record
                WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'
                  AND queue_name IS NULL AND waiting_on = g.name AND type = known.type AND next_retry_at <= g.until
                  AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause WHERE queue = '')
                  AND (NOT EXISTS (SELECT FROM cortex_worker.pause) OR cortex_worker.pause_of(id) IS NULL)
                ORDER BY next_retry_at LIMIT 1) j
            UNION ALL
            SELECT j.id, j.next_retry_at, j.type IN (SELECT type FROM known) AND (
                SELECT count(*) FROM cortex_worker.task t
                WHERE t.queue_name = j.queue_name AND t.state IN ('READY', 'LOCKED')) = 0 AND NOT EXISTS (
                SELECT FROM cortex_worker.queue_pause p WHERE p.queue = coalesce(j.queue_name, ''))
                AND (NOT EXISTS (SELECT FROM cortex_worker.pause) OR cortex_worker.pause_of(j.id) IS NULL)
            FROM (SELECT id, next_retry_at, type, queue_name FROM cortex.job_record
                  WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'
                    AND waiting_on = g.name AND next_retry_at <= g.until
                  ORDER BY next_retry_at LIMIT 20) j) candidate
        ORDER BY is_claimable DESC, next_retry_at LIMIT 1) c
    WHERE g.lets_one
), plain AS MATERIALIZED (
    -- Jobs after held ones are still processed, however many are held for long.
    SELECT id, next_retry_at FROM cortex.job_record
    WHERE (SELECT is_mine FROM turn) AND status = 'RETRY' AND worker_job_id IS NULL
      AND (waiting_on IS NULL OR waiting_on ~ '^(approval|budget|child|signal):') AND next_retry_at <= cortex.now()
    ORDER BY next_retry_at LIMIT $1 FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    -- Not SKIP LOCKED: a repeated pass must choose the same job to probe with.
    SELECT d.id, d.next_retry_at FROM (
        SELECT id, next_retry_at FROM plain
        UNION ALL
        SELECT j.id, j.next_retry_at FROM gate g CROSS JOIN LATERAL (
            (SELECT id, next_retry_at FROM cortex.job_record
             WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'
               AND waiting_on = g.name AND next_retry_at <= g.until
             ORDER BY next_retry_at LIMIT g.room)
            UNION
            (SELECT id, next_retry_at FROM cortex.job_record
             WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'quota:%'
               AND waiting_on = g.name AND suspended_at < g.changed_at + interval '10 seconds'
               -- An attempt that was just about to wait when it was changed is checked again, once.
               AND (suspended_at < g.changed_at OR g.changed_at > (
                    SELECT h.at FROM cortex.job_history h
                    WHERE h.job_id = job_record.id AND h.new = 'RUNNING' ORDER BY h.id DESC LIMIT 1))
             ORDER BY suspended_at LIMIT g.room)
            ORDER BY next_retry_at LIMIT g.room) j
        WHERE g.lets_all AND g.room > 0
        UNION ALL
        SELECT id, next_retry_at FROM prober) d
), held AS MATERIALIZED (
    -- The limit counts unlocked jobs: those held behind one breaker do not delay others.
    SELECT j.id FROM chosen JOIN cortex.job_record j ON j.id = chosen.id
    WHERE j.status::text = 'RETRY' AND j.worker_job_id IS NULL
    ORDER BY chosen.next_retry_at LIMIT $1 FOR UPDATE OF j SKIP LOCKED
)
SELECT (SELECT count(*) FROM cortex.give_tasks(ARRAY(SELECT id FROM held))) AS count,
       NOT is_mine AS is_skipped,
       EXISTS (SELECT FROM waited WHERE name IS NOT NULL) AS is_held,
       extract(epoch FROM least(
           (SELECT next_retry_at FROM cortex.job_record
            WHERE status = 'RETRY' AND worker_job_id IS NULL AND (waiting_on IS NULL OR waiting_on ~ '^(approval|budget|child|signal):')
            ORDER BY next_retry_at LIMIT 1),
           CASE WHEN EXISTS (SELECT FROM waited WHERE name IS NOT NULL) THEN cortex.now() END
       ) - cortex.now())::float8 AS due_in_s
FROM turn;

-- name: now
-- Retries jobs at once: in RETRY, or when they wait for a person to fix something, they get their tasks; between two
-- worker attempts their tasks become due; and pods whose code has handed them back look at them again. $1 ids (ordered),
-- $2 who, $3 why, $4 by which credential. Locks: the tasks, then the jobs (ordered). Records a fact for each changed job. Returns the state of each job before, and whether it was released.
WITH task AS MATERIALIZED (
    SELECT t.job_id, t.id, t.task, t.state, t.run_at
    FROM unnest($1::uuid[]) AS asked(id) JOIN cortex_worker.task t ON t.job_id = asked.id
    ORDER BY t.job_id FOR UPDATE OF t
), before AS MATERIALIZED (
    SELECT j.id, j.status, j.waiting_on, j.worker_job_id, j.tenant, j.attempt, j.agent_id, j.agent_version,
           j.next_retry_at, j.finished_at, j.unfit_codes IS NOT NULL AS is_unfit
    FROM unnest($1::uuid[]) AS asked(id) JOIN cortex.job_record j ON j.id = asked.id
    WHERE (SELECT count(*) FROM task) >= 0 ORDER BY j.id FOR UPDATE OF j
), freed AS (
    UPDATE cortex_worker.task t
    SET run_at = least(t.run_at, cortex.now()), task = coalesce(u.base, t.task),
        -- The snapshot still shows an attempt that just ends as locked, until the row is checked again.
        locked_by = NULL, pause = NULL,
        state = (CASE WHEN t.state = 'HELD' THEN 'HELD' WHEN t.queue_name IS NOT NULL THEN 'QUEUED'
                      WHEN t.is_admitted IS FALSE THEN 'HELD' ELSE 'READY' END)::cortex_worker.task_state
    FROM before b JOIN task ON task.job_id = b.id LEFT JOIN cortex_worker.unfit u ON u.task = task.task
    WHERE t.job_id = task.job_id AND task.state <> 'LOCKED' AND b.finished_at IS NULL
      AND (b.is_unfit OR b.status::text IN ('RUNNING', 'RETRY') AND task.run_at > cortex.now())
    RETURNING t.job_id, b.is_unfit
), refit AS (
    UPDATE cortex.job_record j
    SET unfit_codes = NULL, waiting_on = CASE WHEN j.waiting_on <> 'code' THEN j.waiting_on END,
        next_retry_at = CASE WHEN j.waiting_on = 'code' THEN cortex.now() ELSE j.next_retry_at END
    FROM freed WHERE j.id = freed.job_id AND freed.is_unfit
), made AS MATERIALIZED (
    SELECT job_id FROM cortex.give_tasks(ARRAY(
        SELECT b.id FROM before b
        WHERE b.worker_job_id IS NULL
          AND (b.status::text = 'RETRY' OR b.status::text = 'WAITING_FOR_APPROVAL' AND b.waiting_on LIKE 'person:%')
    )) AS made(job_id)
), let_go AS MATERIALIZED (
    SELECT job_id FROM freed UNION ALL SELECT job_id FROM made
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, agent_id, agent_version, data)
    SELECT 'lifecycle', 'retried_now', b.waiting_on, b.tenant, b.id, b.attempt, b.agent_id, b.agent_version,
           jsonb_build_object('by', $2::text, 'credential', cortex.acting_credential($4), 'reason', $3::text, 'status', b.status,
                              'due_at', coalesce(b.next_retry_at, task.run_at))
    FROM let_go JOIN before b ON b.id = let_go.job_id LEFT JOIN task ON task.job_id = b.id
), hinted AS (
    -- The task's own trigger does not notify on updates.
    SELECT pg_notify('cortex_task', 'ready') FROM (SELECT FROM freed LIMIT 1) f
)
SELECT b.id, CASE WHEN task.state = 'LOCKED' THEN 'RUNNING' ELSE b.status END AS status,
       CASE WHEN task.state IS DISTINCT FROM 'LOCKED' THEN b.waiting_on END AS waiting_on,
       b.worker_job_id IS NOT NULL AS has_task, task.state::text AS task_state,
       let_go.job_id IS NOT NULL AS is_let_go, (SELECT count(*) FROM hinted) AS hint_count
FROM before b LEFT JOIN task ON task.job_id = b.id LEFT JOIN let_go ON let_go.job_id = b.id;

-- name: standing
-- The state of jobs concerning a retry by a person. $1 ids. Locks: none.
SELECT j.id, j.status, j.waiting_on, j.worker_job_id IS NOT NULL AS has_task, t.state::text AS task_state,
       t.run_at > cortex.now() AS is_later, j.unfit_codes IS NOT NULL AS is_unfit
FROM unnest($1::uuid[]) AS asked(id) JOIN cortex.job j ON j.id = asked.id
LEFT JOIN cortex_worker.task t ON t.job_id = j.id;

-- name: let_go_since
-- Which of these jobs a person has retried. $1 ids, $2 who, $3 why, $4 since when. Locks: none.
SELECT DISTINCT f.job_id FROM cortex.fact f
WHERE f.job_id = ANY ($1::uuid[]) AND f.subtype = 'retried_now' AND f.at >= $4::timestamptz
  AND f.data->>'by' = $2::text AND f.data->>'reason' = $3::text;
