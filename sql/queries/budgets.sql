-- name: reserve
-- Admits a call if every budget that it counts against has room. $1 call id, $2 job id, $3 attempt, $4 pod id,
-- $5 first job of the lineage, $6 tenant, $7 agent id, $8 agent version, $9 step, $10 model, $11 most tokens it can
-- take, $12 most US dollars or null when unknown, $13 likely tokens of its prompt, $14 their US dollars or null.
-- Locks: uses of the budgets, in the order of their ids. Repeating the same call admits it again.
SELECT * FROM cortex.reserve($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: settle
-- Ends calls: returns their room, books what they used, records the cost. $1 call ids, $2 tokens, $3 US dollars or null
-- when unknown, $4 data of the facts. Locks: the reservations, then uses of their budgets, in the order of their ids.
-- Returns how many; a call that has already ended is not booked again.
SELECT cortex.settle($1, $2, $3, $4) AS booked;

-- name: sweep
-- Books calls as lost whose attempt is over and whose cost will stay unknown. $1 after this call, $2 how many to check.
-- Locks: its turn, tried without waiting, so that one process works at a time; reservations (skipping locked),
-- then uses of their budgets. Returns how many it booked, and the call to continue after; null at the end.
WITH alone AS MATERIALIZED (
    SELECT cortex.take_turn('budgets.sweep') AS is_alone
), looked AS MATERIALIZED (
    SELECT near.* FROM alone CROSS JOIN LATERAL (
        SELECT r.id, r.job_id, r.attempt, r.pod_id FROM cortex.reservation r
        WHERE alone.is_alone AND r.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
        ORDER BY r.id LIMIT $2) near
), over AS MATERIALIZED (
    SELECT l.id FROM looked l LEFT JOIN cortex.job j ON j.id = l.job_id
    WHERE j.id IS NULL OR j.status::text <> 'RUNNING' OR j.attempt <> l.attempt OR j.pod_id IS DISTINCT FROM l.pod_id
), lost AS MATERIALIZED (
    SELECT r.id FROM over JOIN cortex.reservation r ON r.id = over.id
    WHERE cortex.is_lost(r)
    ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
)
SELECT coalesce((SELECT cortex.settle_lost(array_agg(id)) FROM lost HAVING count(*) > 0), 0) AS booked,
       CASE WHEN is_alone THEN (SELECT id FROM looked ORDER BY id OFFSET $2 - 1) ELSE $1::uuid END AS after,
       NOT is_alone AS is_skipped
FROM alone;

-- name: put
-- Sets a limit, new or not. $1 scope, $2 subject, $3 unit, $4 period, $5 limit, $6 the caller, $7 why, $8 whether an
-- agent's file declares it: then the same declaration again changes nothing. Locks: the budget. Records who changed it
-- and why. Returns its name and the limit before and after; nothing when nothing changed. See cortex.put_budget.
SELECT * FROM cortex.put_budget($1, $2, $3, $4, $5, $6::jsonb, $7, $8);

-- name: raise
-- Raises a limit; nothing happens unless it grows. $1 name, $2 new limit, $3 the caller, $4 why. Locks: the budget.
-- Records who raised it and why. Returns the limit before and after. See cortex.raise_budget.
SELECT * FROM cortex.raise_budget($1, $2, $3::jsonb, $4);

-- name: remove
-- Removes a limit and what was counted for it. $1 name, $2 the caller, $3 why. Locks: the budget, then its uses.
-- Records who removed it and why. Returns the limit that it had. See cortex.remove_budget.
SELECT name, before, NULL::numeric AS after FROM cortex.remove_budget($1, $2::jsonb, $3);

-- name: wake
-- Gives a task to jobs that wait for these budgets, which now have room or are gone. $1 names, $2 limit. Locks: the
-- jobs (ordered, skipping locked). Returns how many.
WITH waiting AS MATERIALIZED (
    SELECT w.id FROM unnest($1::text[]) AS asked(name)
    CROSS JOIN LATERAL (
        SELECT j.id, j.lineage_id FROM cortex.job_record j
        WHERE j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
          AND j.waiting_on LIKE 'budget:%' AND j.waiting_on = 'budget:' || asked.name
    ) w
    LEFT JOIN cortex.budget b ON b.name = asked.name
    LEFT JOIN cortex.budget_use u ON u.budget_id = b.id
        AND u.window_key = cortex.budget_window(b, coalesce(w.lineage_id, w.id))
    WHERE b.id IS NULL OR coalesce(u.spent, 0) < b.limit_amount
    LIMIT $2
)
SELECT coalesce((SELECT cortex.wake(array_agg(id)) FROM waiting HAVING count(*) > 0), 0) AS count;

-- name: wake_next
-- Checks some jobs that wait for a budget, and gives a task to those whose budget now has room or is gone. $1, $2 after
-- this job: what it waits for, its id; $3 how many to check. Locks: its turn, tried without waiting, so that
-- one process works at a time; the jobs that get a task (ordered, skipping locked). Returns how many got a task, and the
-- job to continue after; null at the end.
WITH alone AS MATERIALIZED (
    SELECT cortex.take_turn('budgets.wake_next') AS is_alone
), looked AS MATERIALIZED (
    SELECT near.* FROM alone CROSS JOIN LATERAL (
        SELECT j.id, j.waiting_on, coalesce(j.lineage_id, j.id) AS line FROM cortex.job_record j
        WHERE alone.is_alone AND j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
          AND j.waiting_on LIKE 'budget:%' AND (j.waiting_on, j.id) > ($1::text, $2::uuid)
        ORDER BY j.waiting_on, j.id LIMIT $3) near
), ready AS MATERIALIZED (
    SELECT l.id FROM looked l
    LEFT JOIN cortex.budget b ON b.name = substr(l.waiting_on, length('budget:') + 1)
    LEFT JOIN cortex.budget_use u ON u.budget_id = b.id AND u.window_key = cortex.budget_window(b, l.line)
    WHERE b.id IS NULL OR coalesce(u.spent, 0) < b.limit_amount
), last AS MATERIALIZED (
    SELECT waiting_on, id FROM looked ORDER BY waiting_on, id OFFSET $3 - 1
)
SELECT coalesce((SELECT cortex.wake(array_agg(id)) FROM ready HAVING count(*) > 0), 0) AS woken,
       CASE WHEN is_alone THEN (SELECT waiting_on FROM last) ELSE $1::text END AS after_name,
       CASE WHEN is_alone THEN (SELECT id FROM last) ELSE $2::uuid END AS after_id,
       NOT is_alone AS is_skipped
FROM alone;

-- name: forget
-- Deletes usage of days long past, and of runs all of whose jobs ended long ago and that hold no room. $1, $2, $3 after
-- this use: when it began, budget, run or day, nulls from the start; $4 how many to check, $5 seconds to keep a day, $6
-- to keep a run. Locks: the uses (ordered, skipping locked). Returns how many were deleted, and the use to continue
-- after; null at the end.
WITH looked AS MATERIALIZED (
    SELECT u.at, u.budget_id, u.window_key, CASE WHEN u.run_spent IS NOT NULL THEN u.window_key::uuid END AS line
    FROM cortex.budget_use u
    WHERE u.at < cortex.now() - least($5::float8, $6::float8) * interval '1 second'
      AND (u.at, u.budget_id, u.window_key)
          > (coalesce($1::timestamptz, '-infinity'), coalesce($2::bigint, 0), coalesce($3::text, ''))
    ORDER BY u.at, u.budget_id, u.window_key LIMIT $4
), over AS MATERIALIZED (
    SELECT u.budget_id, u.window_key FROM looked l
    JOIN cortex.budget_use u ON u.budget_id = l.budget_id AND u.window_key = l.window_key
    WHERE CASE WHEN l.line IS NULL THEN l.at < cortex.now() - $5::float8 * interval '1 second'
          ELSE u.reserved = 0
               AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = l.line AND (
                   j.finished_at IS NULL OR j.finished_at >= cortex.now() - $6::float8 * interval '1 second'))
               AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.lineage_id = l.line AND (
                   j.finished_at IS NULL OR j.finished_at >= cortex.now() - $6::float8 * interval '1 second'))
          END
    ORDER BY u.budget_id, u.window_key FOR UPDATE OF u SKIP LOCKED
), gone AS (
    DELETE FROM cortex.budget_use u USING over
    WHERE u.budget_id = over.budget_id AND u.window_key = over.window_key RETURNING u.budget_id
)
SELECT (SELECT count(*) FROM gone) AS count, last.* FROM (SELECT) one
LEFT JOIN LATERAL (
    SELECT at, budget_id, window_key FROM looked ORDER BY at, budget_id, window_key OFFSET $4 - 1) last ON true;

-- name: declared
-- Budgets that the agent's file has declared, and that still exist. $1 name of the agent. Locks: none.
SELECT name FROM cortex.budget
WHERE scope = 'agent' AND subject = $1 AND declared_amount IS NOT NULL ORDER BY name;

-- name: show
-- One budget. $1 name.
SELECT * FROM cortex.budget WHERE name = $1;

-- name: list
-- Budgets by name with what is spent: per day today, per run of the run that spent most. $1 after this name, $2 limit,
-- $3 a tenant, whose own budgets alone are listed, or null for all. Shares of children that have ended are left out.
SELECT b.*, u.window_key, coalesce(u.spent, 0) AS spent, coalesce(u.reserved, 0) AS reserved,
       (SELECT count(*) FROM cortex.job_record j
        WHERE j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
          AND j.waiting_on LIKE 'budget:%' AND j.waiting_on = 'budget:' || b.name) AS waiting_jobs,
       cortex.now() AS now
FROM (SELECT * FROM cortex.budget o WHERE o.name > $1 AND ($3::text IS NULL OR o.scope = 'tenant' AND o.subject = $3)
        AND (o.share_of IS NULL OR cortex.is_share_used(o.subject::uuid))
      ORDER BY o.name LIMIT $2) b
LEFT JOIN LATERAL (
    (SELECT r.window_key, r.spent, r.reserved FROM cortex.budget_use r
     WHERE b.period = 'run' AND r.budget_id = b.id AND r.run_spent IS NOT NULL
     ORDER BY r.run_spent DESC LIMIT 1)
    UNION ALL
    (SELECT d.window_key, d.spent, d.reserved FROM cortex.budget_use d
     WHERE b.period = 'day' AND d.budget_id = b.id AND d.window_key = (cortex.now() AT TIME ZONE 'UTC')::date::text)
) u ON true
ORDER BY b.name;
