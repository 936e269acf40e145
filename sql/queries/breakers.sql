-- name: enter
-- Creates a closed breaker unless it exists. $1 name.
INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe)
VALUES ($1, 'CLOSED', 0, 0, 0, 0) ON CONFLICT (name) DO NOTHING;

-- name: hold
-- One breaker, to change in the same transaction. $1 name. Locks: the breaker.
SELECT *, cortex.now() AS now FROM cortex.breaker WHERE name = $1 FOR UPDATE;

-- name: save
-- Writes a held breaker, records its change as facts, notifies pods. $1 name, $2 state, $3 failures, $4 successes,
-- $5 requests, $6 opened_at, $7 open_until, $8 probe, $9 probe_by, $10 probe_until, $11 forced_by, $12 forced_reason,
-- $13 forced_at, $14 last_error, $15 escalated_at, $16 the version that it was made from,
-- $17 subtypes of the facts, $18 their data as JSON, $19 whether to notify other pods at once.
-- Locks: the breaker. Returns its new version; no row if its version is not $16.
WITH saved AS (
    UPDATE cortex.breaker
    SET state = $2, failures = $3, successes = $4, requests = $5, opened_at = $6, open_until = $7,
        probe = $8, probe_by = $9, probe_until = $10,
        forced_by = $11, forced_reason = $12, forced_at = $13, last_error = $14, escalated_at = $15,
        version = nextval('cortex.breaker_version'), updated_at = cortex.now()
    WHERE name = $1 AND version = $16
    RETURNING name, version
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', change.subtype, saved.name, $18::jsonb FROM saved, unnest($17::text[]) AS change(subtype)
), hinted AS (
    SELECT pg_notify('cortex_breaker', '') FROM saved WHERE $19::bool
)
SELECT saved.version FROM saved LEFT JOIN hinted ON true;

-- name: look
-- The time, and the breakers that a pod must know, newest changes first. $1 limit. Always at least one row.
SELECT b.*, clock.now FROM (SELECT cortex.now() AS now) clock LEFT JOIN LATERAL (
    SELECT * FROM cortex.breaker WHERE state <> 'CLOSED' OR failures > 0 ORDER BY updated_at DESC LIMIT $1
) b ON true;

-- name: list
-- Breakers for people: those that are not closed first, then the newest changes. $1 a name or null for all, $2 limit,
-- $3 most jobs to count for each. Excludes the freeze of effects: see freeze.
SELECT b.*, p.name AS probe_pod, cortex.now() AS now,
       (SELECT count(*) FROM (
            SELECT FROM cortex.job_record j
            WHERE j.waiting_on = b.name AND j.waiting_on !~ '^(approval|budget|child|signal):' AND j.status = 'RETRY'
              AND j.worker_job_id IS NULL LIMIT $3) w) AS waiting
FROM cortex.breaker_now b LEFT JOIN cortex.pod p ON p.id = b.probe_by
WHERE ($1::text IS NULL OR b.name = $1) AND b.name <> 'effects:all'
ORDER BY b.state = 'CLOSED', b.failures = 0, b.updated_at DESC LIMIT $2;

-- name: past
-- Recent history of breakers: their state changes, and the newest transient errors that count for them. $1 names, $2
-- seconds back for the changes, $3 most changes to read of each, the newest, $4 errors of each. One row per name;
-- `known_since`: earlier changes were not read, null: all were.
SELECT w.name, t.known_since, coalesce(t.turns, '[]') AS turns, coalesce(e.errors, '[]') AS errors
FROM unnest($1::text[]) AS w(name)
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) >= $3::int THEN min(c.at) END AS known_since,
           jsonb_agg(jsonb_build_object('at', c.at, 'before', c.data->>'before', 'after', c.data->>'after')
                     ORDER BY c.at, c.id) AS turns
    FROM (
        SELECT f.at, f.id, f.data FROM cortex.fact f
        WHERE f.source = w.name AND f.type = 'lifecycle' AND f.subtype LIKE 'breaker\_%'
          AND f.at > cortex.now() - $2::float8 * interval '1 second'
        ORDER BY f.at DESC, f.id DESC LIMIT $3::int) c) t
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('at', last.at, 'code', last.subtype, 'message', left(last.message, 500))
                     ORDER BY last.at DESC, last.id DESC) AS errors
    FROM (
        SELECT f.at, f.id, f.subtype, f.data->>'message' AS message FROM cortex.fact f
        WHERE f.source = w.name AND f.type = 'error' AND f.data->>'class' LIKE 'TRANSIENT\_%'
        ORDER BY f.at DESC, f.id DESC LIMIT $4::int) last) e;

-- name: freeze
-- Whether a person has frozen new effects, since when and why, and how many jobs wait. $1 most jobs to count. Always
-- one row.
SELECT b.name IS NOT NULL AS is_frozen, b.forced_by AS by, b.forced_reason AS reason, b.forced_at AS frozen_at,
       (SELECT count(*) FROM (
            SELECT FROM cortex.job_record j
            WHERE j.waiting_on = 'effects:all' AND j.waiting_on !~ '^(approval|budget|child|signal):' AND j.status = 'RETRY'
              AND j.worker_job_id IS NULL LIMIT $1) w) AS waiting_jobs,
       cortex.now() AS now
FROM (SELECT) one LEFT JOIN cortex.breaker b ON b.name = 'effects:all' AND b.state <> 'CLOSED';

-- name: forget
-- Removes breakers that have been closed and unchanged for this long. $1 seconds, $2 limit. Locks: those breakers,
-- skipping locked ones.
WITH idle AS MATERIALIZED (
    SELECT name FROM cortex.breaker
    WHERE state = 'CLOSED' AND updated_at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY name LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM cortex.breaker b USING idle WHERE b.name = idle.name RETURNING b.name;

-- name: lift_freeze
-- Lets effects begin again, and notifies pods. $1 the caller, $2 why. Locks: the freeze. Records who and why. False if
-- effects were not frozen. See cortex.lift_freeze.
SELECT cortex.lift_freeze($1::jsonb, $2) AS is_lifted;
