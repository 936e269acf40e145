-- name: reserve
-- Lets a call begin if every budget that it counts against has room. $1 call id, $2 job id, $3 attempt, $4 pod id,
-- $5 first job of the line, $6 tenant, $7 agent id, $8 agent version, $9 step, $10 model, $11 most tokens that it can
-- take, $12 most US dollars or null when unknown, $13 likely tokens of its prompt, $14 their US dollars or null.
-- Locks: uses of the budgets, in the order of their ids. The same call again is granted again.
SELECT * FROM cortex.reserve($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: settle
-- Ends a call: gives its room back, books what it used, records the cost. $1 call id, $2 tokens, $3 US dollars or
-- null when unknown, $4 data of the fact. Locks: the reservation, then uses of its budgets, in the order of their ids.
-- Returns 0 when it was ended before: then nothing is booked.
SELECT cortex.settle(ARRAY[$1::uuid], ARRAY[$2::bigint], ARRAY[$3::numeric], ARRAY[$4::jsonb]) AS booked;

-- name: sweep
-- Books calls as lost whose attempt is over, or whose pod lost the job. $1 limit.
-- Locks: reservations (skipping locked), then uses of their budgets. Returns how many.
WITH lost AS MATERIALIZED (
    SELECT r.id FROM cortex.reservation r LEFT JOIN cortex.job j ON j.id = r.job_id
    WHERE j.id IS NULL OR j.status::text <> 'RUNNING' OR j.attempt <> r.attempt OR j.pod_id IS DISTINCT FROM r.pod_id
    ORDER BY r.at LIMIT $1 FOR UPDATE OF r SKIP LOCKED
)
SELECT cortex.settle_lost(array_agg(id)) AS booked FROM lost HAVING count(*) > 0;

-- name: put
-- Sets a limit, new or not. $1 scope, $2 subject, $3 unit, $4 period, $5 limit, $6 who, $7 why, $8 whether an agent's
-- file declares it: then the same declaration again changes nothing. Locks: the budget. Records who changed it and why.
-- Returns its name and the limit before and after; nothing when nothing changed.
WITH before AS MATERIALIZED (
    SELECT limit_amount FROM cortex.budget
    WHERE scope = $1 AND subject = $2 AND unit = $3 AND period = $4 FOR UPDATE
), put AS (
    INSERT INTO cortex.budget AS b (scope, subject, unit, period, limit_amount, declared_amount, changed_by, reason)
    SELECT $1, $2, $3, $4, $5, CASE WHEN $8 THEN $5::numeric END, $6, $7 WHERE (SELECT count(*) FROM before) >= 0
    ON CONFLICT ON CONSTRAINT budget_once DO UPDATE
    SET limit_amount = excluded.limit_amount, changed_by = excluded.changed_by, changed_at = cortex.now(),
        reason = excluded.reason, declared_amount = coalesce(excluded.declared_amount, b.declared_amount)
    WHERE NOT $8 OR b.declared_amount IS DISTINCT FROM excluded.declared_amount
    RETURNING b.name, b.limit_amount
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', 'budget_set', 'budget:' || put.name, CASE WHEN $1 = 'tenant' THEN $2 ELSE 'default' END,
           CASE WHEN $1 = 'job' THEN $2::uuid END,
           jsonb_build_object('by', $6::text, 'reason', $7::text, 'after', put.limit_amount,
                              'before', (SELECT limit_amount FROM before))
    FROM put
)
SELECT put.name, put.limit_amount AS after, (SELECT limit_amount FROM before) AS before FROM put;

-- name: raise
-- Raises a limit; nothing happens unless it grows. $1 name, $2 new limit, $3 who, $4 why. Locks: the budget.
-- Records who raised it and why. Returns the limit before and after.
WITH before AS MATERIALIZED (
    SELECT id, limit_amount FROM cortex.budget WHERE name = $1 AND limit_amount < $2 FOR UPDATE
), raised AS (
    UPDATE cortex.budget b
    SET limit_amount = $2, changed_by = $3, changed_at = cortex.now(), reason = $4
    FROM before WHERE b.id = before.id
    RETURNING b.name, b.scope, b.subject, b.limit_amount AS after, before.limit_amount AS before
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', 'budget_raised', 'budget:' || name, CASE WHEN scope = 'tenant' THEN subject ELSE 'default' END,
           CASE WHEN scope = 'job' THEN subject::uuid END,
           jsonb_build_object('by', $3::text, 'reason', $4::text, 'before', before, 'after', after)
    FROM raised
)
SELECT name, before, after FROM raised;

-- name: remove
-- Removes a limit and what was counted for it. $1 name, $2 who, $3 why. Locks: the budget, then its uses.
-- Records who removed it and why. Returns the limit that it had.
WITH gone AS (
    DELETE FROM cortex.budget WHERE name = $1 RETURNING id, name, scope, subject, limit_amount
), uses AS (
    DELETE FROM cortex.budget_use u USING gone WHERE u.budget_id = gone.id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', 'budget_removed', 'budget:' || name, CASE WHEN scope = 'tenant' THEN subject ELSE 'default' END,
           CASE WHEN scope = 'job' THEN subject::uuid END,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'before', limit_amount)
    FROM gone
)
SELECT name, limit_amount AS before FROM gone;

-- name: wake
-- Lets jobs go on that wait for budgets which have room now, or are gone: each gets a task. $1 names, $2 limit.
-- Locks: the jobs (ordered, skipping locked). Returns how many.
WITH waiting AS MATERIALIZED (
    SELECT w.id FROM unnest($1::text[]) AS asked(name)
    CROSS JOIN LATERAL (
        (SELECT j.id, j.lineage_id FROM cortex.job j
         WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.waiting_on = 'budget:' || asked.name AND j.worker_job_id IS NULL)
        UNION ALL
        (SELECT j.id, j.lineage_id FROM cortex.job j
         WHERE j.status = 'RETRY' AND coalesce(j.waiting_on, '') = 'budget:' || asked.name AND j.worker_job_id IS NULL)
    ) w
    LEFT JOIN cortex.budget b ON b.name = asked.name
    LEFT JOIN cortex.budget_use u ON u.budget_id = b.id AND u.window_key = CASE b.period
        WHEN 'run' THEN coalesce(w.lineage_id, w.id)::text ELSE (cortex.now() AT TIME ZONE 'UTC')::date::text END
    WHERE b.id IS NULL OR coalesce(u.spent, 0) < b.limit_amount
    LIMIT $2
), held AS MATERIALIZED (
    SELECT j.id, j.type, j.priority, j.attempt, j.worker_attempts, j.queue_name
    FROM waiting JOIN cortex.job j ON j.id = waiting.id
    WHERE j.status::text IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.waiting_on LIKE 'budget:%' AND j.worker_job_id IS NULL
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), task AS (
    INSERT INTO cortex_worker.task (task, job_id, state, priority, attempt, max_attempts, queue_name)
    SELECT type, id, (CASE WHEN queue_name IS NULL THEN 'READY' ELSE 'QUEUED' END)::cortex_worker.task_state,
           priority, attempt, worker_attempts, queue_name
    FROM held
    ON CONFLICT (job_id) DO NOTHING
    RETURNING id, job_id
), woken AS (
    UPDATE cortex.job j SET worker_job_id = task.id FROM task WHERE j.id = task.job_id RETURNING j.id
)
SELECT count(*) FROM woken;

-- name: waited_for
-- Distinct names that jobs wait for, budgets or not, in order. $1 after this name, $2 limit. Locks: none.
WITH RECURSIVE person AS (
    -- Walks the names by index, one probe a name.
    (SELECT waiting_on AS name FROM cortex.job
     WHERE status = 'WAITING_FOR_APPROVAL' AND waiting_on > $1 ORDER BY waiting_on LIMIT 1)
    UNION ALL
    SELECT (SELECT j.waiting_on FROM cortex.job j
            WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.waiting_on > p.name ORDER BY j.waiting_on LIMIT 1)
    FROM person p WHERE p.name IS NOT NULL
), day AS (
    (SELECT coalesce(waiting_on, '') AS name FROM cortex.job
     WHERE status = 'RETRY' AND worker_job_id IS NULL AND coalesce(waiting_on, '') > $1
     ORDER BY coalesce(waiting_on, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce(j.waiting_on, '') FROM cortex.job j
            WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND coalesce(j.waiting_on, '') > d.name
            ORDER BY coalesce(j.waiting_on, '') LIMIT 1)
    FROM day d WHERE d.name IS NOT NULL
)
SELECT name FROM ((SELECT name FROM person LIMIT $2) UNION (SELECT name FROM day LIMIT $2)) waits
WHERE name IS NOT NULL ORDER BY name LIMIT $2;

-- name: declared
-- Budgets that the agent's file has declared, and that still exist. $1 name of the agent. Locks: none.
SELECT name FROM cortex.budget
WHERE scope = 'agent' AND subject = $1 AND declared_amount IS NOT NULL ORDER BY name;

-- name: show
-- One budget. $1 name.
SELECT * FROM cortex.budget WHERE name = $1;

-- name: list
-- Budgets by name with what is spent: per day today, per run of the run that spent most. $1 after this name, $2 limit.
SELECT b.*, u.window_key, coalesce(u.spent, 0) AS spent, coalesce(u.reserved, 0) AS reserved,
       (SELECT count(*) FROM cortex.job j
        WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.waiting_on = 'budget:' || b.name AND j.worker_job_id IS NULL)
       + (SELECT count(*) FROM cortex.job j
          WHERE j.status = 'RETRY' AND coalesce(j.waiting_on, '') = 'budget:' || b.name AND j.worker_job_id IS NULL)
           AS waiting_jobs,
       cortex.now() AS now
FROM (SELECT * FROM cortex.budget WHERE name > $1 ORDER BY name LIMIT $2) b
LEFT JOIN LATERAL (
    SELECT * FROM cortex.budget_use s
    WHERE s.budget_id = b.id
      AND (b.period = 'run' OR s.window_key = (cortex.now() AT TIME ZONE 'UTC')::date::text)
    ORDER BY s.spent DESC LIMIT 1) u ON true
ORDER BY b.name;
