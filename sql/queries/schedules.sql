-- name: turn
-- One caller at a time fires schedules. Locks: its turn to the end of the transaction, if it is free.
SELECT cortex.take_turn('schedules') AS is_mine;

-- name: settle
-- Notes which jobs of schedules have ended, or were deleted. Locks: the instants, skipping locked ones.
UPDATE cortex.schedule_instant i SET ended_at = cortex.now()
FROM (
    SELECT o.schedule, o.instant FROM cortex.schedule_instant o
    WHERE o.outcome = 'SUBMITTED' AND o.ended_at IS NULL
      AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = o.job_id AND j.finished_at IS NULL)
    FOR UPDATE OF o SKIP LOCKED) ended
WHERE i.schedule = ended.schedule AND i.instant = ended.instant;

-- name: due
-- Schedules with an instant that is due, and those with a queued instant that no job holds up. $1 limit.
(SELECT s.name, s.due_at FROM cortex.schedule s
 WHERE s.paused_at IS NULL AND s.due_at <= cortex.now() ORDER BY s.due_at LIMIT $1)
UNION
SELECT s.name, s.due_at FROM cortex.schedule s
WHERE s.paused_at IS NULL
  AND EXISTS (SELECT FROM cortex.schedule_instant i WHERE i.schedule = s.name AND i.outcome = 'QUEUED')
  AND NOT EXISTS (SELECT FROM cortex.schedule_instant i
                  WHERE i.schedule = s.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL)
ORDER BY due_at, name LIMIT $1;

-- name: take
-- A schedule that is due or has queued instants, to be fired in this transaction. $1 name. Locks: the schedule, unless
-- somebody holds it. `running`: the jobs of earlier instants, as far as they are known to run.
SELECT s.*, cortex.now() AS now, s.paused_at IS NULL AND coalesce(s.due_at <= cortex.now(), false) AS is_due,
       ARRAY(SELECT i.job_id FROM cortex.schedule_instant i
             WHERE i.schedule = s.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL ORDER BY i.job_id) AS running
FROM cortex.schedule s WHERE s.name = $1 FOR UPDATE OF s SKIP LOCKED;

-- name: fire
-- Deals with instants of a schedule that this transaction has taken. $1 name, $2 instants in order, $3 whether each was
-- due in an outage. Locks: none besides. Returns the outcomes; null: it was dealt with before.
SELECT f.instant, cortex.fire_instant(s, f.instant, f.was_due_in_outage) AS outcome
FROM cortex.schedule s
CROSS JOIN (
    SELECT * FROM unnest($2::timestamptz[], $3::boolean[]) AS due(instant, was_due_in_outage) ORDER BY instant) f
WHERE s.name = $1;

-- name: release
-- Submits the oldest queued instant of a schedule that this transaction has taken, if it may run. $1 name.
SELECT cortex.release_queued(s) AS outcome FROM cortex.schedule s WHERE s.name = $1;

-- name: advance
-- Moves a taken schedule past its instants; records and announces missed ones, unless it is built in. $1 name, $2 next instant, $3 when it is due; if
-- instants were missed, else null: $4 the first, $5 the last, $6 how many, $7 whether there may be more, $8 why; $9 the
-- end of the outage that is made up for, or null. Locks: the schedule.
WITH moved AS (
    UPDATE cortex.schedule s
    SET next_at = $2, due_at = $3, problem = NULL, missed_count = s.missed_count + coalesce($6::int, 0),
        missed_at = coalesce($5::timestamptz, s.missed_at),
        missed_seen_at = CASE WHEN $5 IS NULL THEN s.missed_seen_at ELSE cortex.now() END,
        made_up_until = coalesce($9::timestamptz, s.made_up_until),
        skip_from = CASE WHEN s.skip_until >= $3 THEN s.skip_from END,
        skip_until = CASE WHEN s.skip_until >= $3 THEN s.skip_until END
    WHERE s.name = $1 RETURNING s.name, s.tenant, s.type, s.backfill_s, s.origin
), noted_instant AS (
    INSERT INTO cortex.schedule_instant (schedule, instant, outcome, reason)
    SELECT name, $4, 'MISSED', left($8, 1000) FROM moved WHERE $6 IS NOT NULL AND origin <> 'built_in'
    ON CONFLICT DO NOTHING
), missed AS (
    SELECT name, tenant, jsonb_build_object(
               'type', type, 'first', $4::timestamptz, 'last', $5, 'count', $6, 'is_more', $7::boolean,
               'backfill_s', backfill_s) AS data
    FROM moved WHERE $6 IS NOT NULL AND origin <> 'built_in'
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'schedule_missed', 'schedule:' || name, tenant, data FROM missed
)
SELECT cortex.announce('schedule.missed', 'schedule:' || name, data || jsonb_build_object('schedule', name), tenant)
FROM missed;

-- name: postpone
-- Leaves a schedule alone for a minute, since it could not be evaluated. $1 name, $2 why. Locks: the schedule.
UPDATE cortex.schedule SET due_at = cortex.now() + interval '1 minute', problem = left($2, 500) WHERE name = $1;

-- name: pause_s
-- Seconds until the next schedule is due, and whether queued instants wait.
SELECT extract(epoch FROM min(s.due_at) FILTER (WHERE s.paused_at IS NULL) - cortex.now())::float8 AS next_s,
       EXISTS (SELECT FROM cortex.schedule_instant i JOIN cortex.schedule q ON q.name = i.schedule
               WHERE i.outcome = 'QUEUED' AND q.paused_at IS NULL) AS is_queued
FROM cortex.schedule s;

-- name: lock_names
-- One caller at a time declares schedules, so that two cannot create the same one. Locks: its turn, to the end of the
-- transaction. Returns the time.
SELECT cortex.now() AS now FROM cortex.runner_turn WHERE name = 'schedules.names' FOR NO KEY UPDATE;

-- name: hold
-- A schedule, to change it in the same transaction. $1 name. Locks: the schedule.
SELECT *, cortex.now() AS now FROM cortex.schedule WHERE name = $1 FOR UPDATE;

-- name: put
-- Creates or replaces a schedule that `hold` has shown. $1 name, $2 cron, $3 zone, $4 type, $5 arguments, $6 agent,
-- $7 tenant, $8 backfill in seconds, $9 overlap, $10 jitter in seconds, $11 the argument for the instant, $12 origin,
-- $13 next instant, $14 when it is due, $15 who, $16 why, $17 by which credential. Locks: the schedule. Records and notifies.
WITH put AS (
    INSERT INTO cortex.schedule (name, cron, zone, type, arguments, agent, tenant, backfill_s, overlap, jitter_s,
                                 instant_as, origin, next_at, due_at, changed_by, reason, changed_with)
    VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, 'default'), $8, $9, $10, $11, $12, $13, $14, $15, $16,
            CASE WHEN $17::text IS NOT NULL THEN cortex.acting_credential($17) END)
    ON CONFLICT (name) DO UPDATE
    SET cron = excluded.cron, zone = excluded.zone, type = excluded.type, arguments = excluded.arguments,
        agent = excluded.agent, tenant = excluded.tenant, backfill_s = excluded.backfill_s, overlap = excluded.overlap,
        jitter_s = excluded.jitter_s, instant_as = excluded.instant_as, origin = excluded.origin,
        next_at = excluded.next_at, due_at = excluded.due_at, problem = NULL, changed_by = excluded.changed_by,
        changed_at = cortex.now(), reason = excluded.reason, changed_with = excluded.changed_with
    RETURNING name, tenant, cron, zone, type
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'schedule_applied', 'schedule:' || name, tenant,
           jsonb_build_object('by', $15::text, 'reason', $16::text, 'cron', cron, 'zone', zone, 'type', type)
    FROM put
), hinted AS (
    SELECT pg_notify('cortex_breaker', '') FROM put
)
SELECT put.name FROM put LEFT JOIN hinted ON true;

-- name: declare
-- Records which schedules the code of a pod declares, and forgets those of pods that ended long ago. $1 pod id, $2 names.
WITH gone AS (
    DELETE FROM cortex.schedule_pod d USING cortex.pod p
    WHERE p.id = d.pod_id AND p.ended_at < cortex.now() - interval '1 hour'
)
INSERT INTO cortex.schedule_pod (schedule, pod_id) SELECT unnest($2::text[]), $1 ON CONFLICT DO NOTHING;

-- name: pause
-- Pauses a schedule. $1 name, $2 who, $3 why. Locks: the schedule. Records it. Returns whether it was paused before.
WITH before AS MATERIALIZED (
    SELECT name, tenant, paused_at IS NOT NULL AS was_paused FROM cortex.schedule WHERE name = $1 FOR UPDATE
), paused AS (
    UPDATE cortex.schedule s SET paused_at = cortex.now(), paused_by = $2, pause_reason = $3
    FROM before b WHERE s.name = b.name AND NOT b.was_paused
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'schedule_paused', 'schedule:' || name, tenant,
           jsonb_build_object('by', $2::text, 'reason', $3::text)
    FROM before WHERE NOT was_paused
)
SELECT name, was_paused FROM before;

-- name: resume
-- Resumes a schedule that `hold` has shown as paused. $1 name, $2 next instant, $3 when it is due, $4 who, $5 why; if
-- instants fell into the pause, else null: $6 the first of them, $7 what to note about them; $8 whether instants before
-- the pause are still to be dealt with. Locks: the schedule. Records and notifies.
WITH resumed AS (
    UPDATE cortex.schedule s
    SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, next_at = $2, due_at = $3,
        skip_from = CASE WHEN $8 THEN coalesce(s.skip_from, s.paused_at) END,
        skip_until = CASE WHEN $8 THEN cortex.now() END
    WHERE s.name = $1 RETURNING s.name, s.tenant
), noted_instant AS (
    INSERT INTO cortex.schedule_instant (schedule, instant, outcome, reason)
    SELECT name, $6, 'MISSED', left($7, 1000) FROM resumed WHERE $6::timestamptz IS NOT NULL
    ON CONFLICT DO NOTHING
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'schedule_resumed', 'schedule:' || name, tenant,
           jsonb_build_object('by', $4::text, 'reason', $5::text)
    FROM resumed
), hinted AS (
    SELECT pg_notify('cortex_breaker', '') FROM resumed
)
SELECT resumed.name FROM resumed LEFT JOIN hinted ON true;

-- name: trigger
-- Submits a job of a schedule now. $1 name, $2 who, $3 why, $4 by which credential. Locks: the schedule. Records it.
-- Returns the job, or why it could not be submitted.
WITH held AS MATERIALIZED (
    SELECT s FROM cortex.schedule s WHERE s.name = $1 FOR UPDATE
), made AS MATERIALIZED (
    SELECT (held.s).name, (held.s).tenant, t.job_id, t.error FROM held CROSS JOIN LATERAL cortex.trigger_schedule(held.s) t
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    SELECT 'lifecycle', 'schedule_triggered', 'schedule:' || name, tenant, job_id,
           jsonb_build_object('by', $2::text, 'credential', cortex.acting_credential($4), 'reason', $3::text)
    FROM made WHERE job_id IS NOT NULL
)
SELECT name, job_id, error FROM made;

-- name: remove
-- Removes a schedule with what is known about its instants; its jobs stay. $1 name, $2 who, $3 why. Locks: the
-- schedule. Records it. Refuses built-in ones, and those that code of a living pod declares: returns why.
WITH held AS MATERIALIZED (
    SELECT s.name, s.tenant, s.origin, s.cron, cortex.is_declared(s.name) AS is_declared
    FROM cortex.schedule s WHERE s.name = $1 FOR UPDATE
), gone AS (
    DELETE FROM cortex.schedule s USING held h
    WHERE s.name = h.name AND h.origin <> 'built_in' AND NOT h.is_declared
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'schedule_removed', 'schedule:' || name, tenant,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'cron', cron)
    FROM held WHERE origin <> 'built_in' AND NOT is_declared
)
SELECT name, origin, is_declared FROM held;

-- name: list
-- Schedules by name. $1 after this name, $2 limit, $3 a name or null for all, $4 a tenant or null for all.
SELECT s.*, cortex.now() AS now, cortex.is_served(s.type, s.agent) AS is_served,
       s.origin <> 'code' OR cortex.is_declared(s.name) AS is_declared, cortex.has_missed(s) AS has_missed,
       (SELECT count(*) FROM cortex.schedule_instant i WHERE i.schedule = s.name AND i.outcome = 'QUEUED') AS queued,
       l.instant AS last_instant, l.outcome AS last_outcome, l.job_id AS last_job_id, l.error AS last_error,
       j.status AS last_status
FROM cortex.schedule s
LEFT JOIN LATERAL (
    SELECT i.instant, i.outcome, i.job_id, i.error FROM cortex.schedule_instant i
    WHERE i.schedule = s.name AND i.outcome <> 'QUEUED' ORDER BY i.instant DESC LIMIT 1) l ON true
LEFT JOIN cortex.job j ON j.id = l.job_id
WHERE s.name > $1 AND ($3::text IS NULL OR s.name = $3) AND ($4::text IS NULL OR s.tenant = $4)
ORDER BY s.name LIMIT $2;

-- name: instants
-- What became of the last instants of a schedule, the newest first. $1 name, $2 before this instant or null, $3 limit.
SELECT i.instant, i.outcome, i.job_id, i.is_manual, i.is_made_up, i.error, i.reason, i.at, j.status, j.finished_at
FROM cortex.schedule_instant i LEFT JOIN cortex.job j ON j.id = i.job_id
WHERE i.schedule = $1 AND ($2::timestamptz IS NULL OR i.instant < $2)
ORDER BY i.instant DESC LIMIT $3;

-- name: past_runs
-- What the last ended jobs of a schedule took. $1 name, $2 how many at most.
SELECT count(*) AS runs, count(*) FILTER (WHERE e.status = 'COMPLETED') AS completed,
       avg(extract(epoch FROM e.finished_at - e.started_at))::float8 AS mean_s, avg(e.usd) AS mean_usd
FROM (
    SELECT j.status, j.started_at, j.finished_at, coalesce((
               SELECT sum(f.amount) FROM cortex.fact f
               WHERE f.job_id = j.id AND f.type = 'cost' AND f.currency = 'USD'), 0) AS usd
    FROM cortex.schedule_instant i JOIN cortex.job_record j ON j.id = i.job_id
    WHERE i.schedule = $1 AND i.outcome = 'SUBMITTED' AND j.finished_at IS NOT NULL
    ORDER BY i.instant DESC LIMIT $2) e;

-- name: forget
-- Deletes instants that were dealt with long ago. $1 seconds to keep them, $2 limit. Returns how many.
SELECT cortex.forget_instants($1, $2) AS count;
