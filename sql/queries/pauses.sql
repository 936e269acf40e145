-- name: list
-- Pauses, the latest first, but for those of jobs that have ended. $1 kinds or null, $2 names or null, $3 the only tenant whose pauses are read, or null, $4 limit.
-- Locks: none. With the number of tasks that they hold back, for tenants and jobs, counted up to 10,000.
SELECT p.kind, p.name, p.paused_by, p.paused_at, p.reason, cortex.now() AS now,
       (SELECT count(*) FROM (
            SELECT FROM cortex_worker.task t WHERE t.state = 'PAUSED' AND t.pause = p.kind || ':' || p.name LIMIT 10000) h)::int
           AS held
FROM cortex_worker.pause p
WHERE ($1::text[] IS NULL OR p.kind = ANY ($1)) AND ($2::text[] IS NULL OR p.name = ANY ($2))
  AND NOT EXISTS (
      SELECT FROM cortex.job_record j
      WHERE j.id = CASE WHEN p.kind = 'job' THEN p.name::uuid END AND j.finished_at IS NOT NULL)
  AND ($3::text IS NULL OR p.kind = 'tenant' AND p.name = $3
       OR p.kind = 'job' AND EXISTS (
           SELECT FROM cortex.job_record j WHERE j.id = CASE WHEN p.kind = 'job' THEN p.name::uuid END AND j.tenant = $3))
ORDER BY p.paused_at DESC, p.kind, p.name LIMIT $4;

-- name: known
-- Whether there is what a person wants to pause. $1 kind, $2 name. Locks: none.
SELECT CASE $1
    WHEN 'type' THEN EXISTS (SELECT FROM cortex.job_type k WHERE k.name = $2)
    WHEN 'tenant' THEN $2 = 'default' OR EXISTS (SELECT FROM cortex.tenant_cap c WHERE c.tenant = $2)
        OR EXISTS (SELECT FROM cortex.job_record j WHERE j.tenant = $2 AND j.tenant <> 'default')
    WHEN 'job' THEN EXISTS (SELECT FROM cortex.job_record j WHERE j.id = $2::text::uuid AND j.finished_at IS NULL)
    ELSE true END AS is_known;

-- name: add
-- Keeps jobs from starting; running ones end their attempts. $1 kind, $2 name, $3 who, $4 why. Locks:
-- the pause. If it is paused already, nothing is recorded, and no row comes back.
WITH paused AS (
    INSERT INTO cortex_worker.pause (kind, name, paused_by, reason) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING
    RETURNING kind, name, paused_by, reason
)
INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
SELECT 'lifecycle', kind || '_paused', CASE kind WHEN 'all' THEN kind ELSE kind || ':' || coalesce(nullif(name, ''), 'default') END,
       CASE kind WHEN 'tenant' THEN name WHEN 'job' THEN (SELECT j.tenant FROM cortex.job_record j WHERE j.id = p.name::uuid)
                 ELSE 'default' END,
       CASE WHEN kind = 'job' THEN name::uuid END, jsonb_build_object('by', paused_by, 'reason', reason)
FROM paused p
RETURNING id;

-- name: remove
-- Ends a pause, and notifies all pods. $1 kind, $2 name, $3 who, $4 why. Locks: the pause. No row comes back if there was
-- none.
WITH resumed AS (
    DELETE FROM cortex_worker.pause WHERE kind = $1 AND name = $2 RETURNING kind, name, paused_by, paused_at, reason
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', kind || '_resumed', CASE kind WHEN 'all' THEN kind ELSE kind || ':' || coalesce(nullif(name, ''), 'default') END,
           CASE kind WHEN 'tenant' THEN name
                     WHEN 'job' THEN (SELECT j.tenant FROM cortex.job_record j WHERE j.id = r.name::uuid)
                     ELSE 'default' END,
           CASE WHEN kind = 'job' THEN name::uuid END,
           jsonb_build_object('by', $3::text, 'reason', $4::text, 'paused_by', paused_by, 'paused_at', paused_at,
                              'paused_for', reason)
    FROM resumed r
), named AS (
    INSERT INTO cortex_worker.queue_due (queue, due_at) SELECT name, '-infinity' FROM resumed WHERE kind = 'queue' AND name <> ''
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM resumed
)
SELECT resumed.name FROM resumed LEFT JOIN hinted ON true;

-- name: park
-- Sets aside the ready tasks of paused tenants and jobs at the front of each type and priority, so that claims do not read
-- past them; and those in paused queues that have places in limits; gives these back. $1 limit of each. Locks: the tasks (ordered, skipping locked).
-- Returns how many.
WITH front AS MATERIALIZED (
    SELECT t.job_id, t.queue_name, t.is_admitted FROM cortex_worker.ready_head h CROSS JOIN LATERAL (
        SELECT t.job_id, t.queue_name, t.is_admitted FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND t.task = h.task AND t.priority = h.priority
        ORDER BY t.run_at, t.id LIMIT $1) t
    WHERE EXISTS (SELECT FROM cortex_worker.pause WHERE kind IN ('job', 'tenant'))
       OR EXISTS (SELECT FROM cortex_worker.pause WHERE kind = 'queue') AND EXISTS (SELECT FROM cortex.limited_type WHERE holds)
), paused AS MATERIALIZED (
    SELECT t.job_id, f.pause
    FROM (SELECT front.job_id,
                 CASE WHEN front.is_admitted THEN cortex_worker.pause_of_task(front.job_id, front.queue_name)
                      ELSE cortex_worker.pause_of(front.job_id) END AS pause FROM front) f
    JOIN cortex_worker.task t ON t.job_id = f.job_id
    WHERE f.pause IS NOT NULL AND t.state = 'READY'
    ORDER BY t.job_id FOR UPDATE OF t SKIP LOCKED
), parked AS (
    UPDATE cortex_worker.task t
    SET state = 'PAUSED', pause = p.pause, is_admitted = CASE WHEN t.is_admitted THEN false ELSE t.is_admitted END
    FROM paused p WHERE t.job_id = p.job_id AND t.state = 'READY'
    RETURNING t.job_id
), freed AS (
    DELETE FROM cortex_worker.limit_hold h USING parked p WHERE h.job_id = p.job_id RETURNING h.job_id
), hinted AS (
    SELECT pg_notify('cortex_limit', '') FROM (SELECT FROM freed LIMIT 1) f
)
SELECT count(*)::int AS count, (SELECT count(*) FROM hinted) AS hint_count FROM parked;

-- name: unpark
-- Makes tasks due again whose pause is over, and notifies pods. Ends the pauses of jobs that have ended, and records that.
-- $1 limit. Locks: the pauses, the tasks, skipping locked. Returns how many tasks.
WITH RECURSIVE ended AS (
    DELETE FROM cortex_worker.pause p USING cortex.job_record j
    WHERE p.kind = 'job' AND j.id = CASE WHEN p.kind = 'job' THEN p.name::uuid END AND j.finished_at IS NOT NULL
    RETURNING p.name, p.paused_by, p.paused_at, p.reason, j.id, j.tenant, j.status
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', 'job_resumed', 'job:' || name, tenant, id,
           jsonb_build_object('by', 'cortex', 'reason', 'the job is ' || status, 'paused_by', paused_by,
                              'paused_at', paused_at, 'paused_for', reason)
    FROM ended
), pause AS (
    -- Walks the distinct pauses by index, one probe per pause.
    (SELECT pause AS name FROM cortex_worker.task WHERE state = 'PAUSED' ORDER BY pause LIMIT 1)
    UNION ALL
    SELECT (SELECT t.pause FROM cortex_worker.task t WHERE t.state = 'PAUSED' AND t.pause > p.name ORDER BY t.pause LIMIT 1)
    FROM pause p WHERE p.name IS NOT NULL
), over AS MATERIALIZED (
    SELECT t.job_id FROM pause o CROSS JOIN LATERAL (
        SELECT t.job_id FROM cortex_worker.task t WHERE t.state = 'PAUSED' AND t.pause = o.name
        ORDER BY t.task, t.priority, t.run_at, t.id LIMIT $1 FOR UPDATE SKIP LOCKED) t
    WHERE o.name IS NOT NULL
      AND NOT EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind || ':' || p.name = o.name)
    LIMIT $1
), due AS (
    UPDATE cortex_worker.task t
    SET pause = NULL,
        state = (CASE WHEN t.queue_name IS NOT NULL THEN 'QUEUED' WHEN t.is_admitted IS FALSE THEN 'HELD'
                      ELSE 'READY' END)::cortex_worker.task_state
    FROM over o WHERE t.job_id = o.job_id AND t.state = 'PAUSED'
    RETURNING t.state
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued'), pg_notify('cortex_limit', '') FROM (SELECT FROM due LIMIT 1) d
)
SELECT count(*)::int AS count, (SELECT count(*) FROM hinted) AS hint_count FROM due;

-- name: age
-- Raises the priority of tasks that have been ready for long, each by one step: to the next more urgent priority of those
-- that ready tasks have now. While tasks with deadlines are ready, it is ordered as if it had been due when it became ready.
-- $1 seconds after which that begins, $2 limit, $3 seconds since the last turn of any pod. Locks: the tasks, skipping locked; the turn. Returns how many.
WITH turn AS (
    INSERT INTO cortex.turn AS r (name, ran_at) VALUES ('age', cortex.now())
    ON CONFLICT (name) DO UPDATE SET ran_at = excluded.ran_at
    WHERE r.ran_at NOT BETWEEN excluded.ran_at - $3::float8 * interval '1 second' AND excluded.ran_at
    RETURNING ran_at
), head AS MATERIALIZED (
    SELECT h.task, h.priority FROM cortex_worker.ready_head h LIMIT 1000
), step AS MATERIALIZED (
    SELECT d.priority, lag(d.priority) OVER (ORDER BY d.priority) AS urgent FROM (SELECT DISTINCT priority FROM head) d
), deadline AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect AND due_by IS NOT NULL) AS are_ready
), old AS MATERIALIZED (
    SELECT t.job_id, s.urgent FROM turn, deadline, head h JOIN step s ON s.priority = h.priority CROSS JOIN LATERAL (
        SELECT t.job_id FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND t.task = h.task AND t.priority = h.priority
          AND t.run_at < turn.ran_at - $1::float8 * interval '1 second'
          AND (s.urgent IS NOT NULL OR deadline.are_ready AND t.due_by IS NULL)
        ORDER BY t.run_at, t.id LIMIT $2 FOR UPDATE SKIP LOCKED) t
    LIMIT $2
), aged AS (
    UPDATE cortex_worker.task t
    SET priority = coalesce(o.urgent, t.priority),
        due_by = CASE WHEN deadline.are_ready THEN coalesce(t.due_by, t.run_at) ELSE t.due_by END
    FROM old o, deadline WHERE t.job_id = o.job_id AND t.state = 'READY'
    RETURNING t.job_id
)
SELECT count(*)::int AS count FROM aged;
