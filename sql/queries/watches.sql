-- name: watch
-- Begins or renews the watches of one watcher, and hints the pods that run the jobs; clears away a few lapsed ones.
-- $1 watcher, $2 job ids, $3 seconds until they lapse, $4 those of the jobs that somebody new follows, $5 whether it
-- hears no notifications. Locks: its watches, and lapsed ones that nobody has locked.
-- Returns how many pods were hinted.
WITH lapsed AS (
    SELECT job_id, watcher FROM cortex.watch
    WHERE until < cortex.now() AND watcher <> $1 ORDER BY until LIMIT 100 FOR UPDATE SKIP LOCKED
), cleared AS (
    DELETE FROM cortex.watch w USING lapsed l WHERE w.job_id = l.job_id AND w.watcher = l.watcher
), kept AS (
    INSERT INTO cortex.watch AS w (job_id, watcher, pod_id, until, is_polled)
    SELECT j.id, $1, CASE WHEN j.status::text = 'RUNNING' THEN j.pod_id END,
           cortex.now() + $3::float8 * interval '1 second', $5
    FROM unnest($2::uuid[]) AS asked(id) JOIN cortex.job j ON j.id = asked.id
    ORDER BY j.id
    ON CONFLICT (job_id, watcher) DO UPDATE
    SET pod_id = excluded.pod_id, until = excluded.until,
        asked_at = CASE WHEN w.job_id = ANY ($4::uuid[]) THEN excluded.asked_at ELSE w.asked_at END
    RETURNING w.pod_id
)
SELECT count(pg_notify('cortex_control', p.pod_id::text)) AS hint_count
FROM (SELECT DISTINCT pod_id FROM kept WHERE pod_id IS NOT NULL) p;

-- name: unwatch
-- Ends watches of one watcher, and hints the pods that ran the jobs. $1 watcher, $2 job ids. Locks: its watches.
-- Returns how many pods were hinted.
WITH gone AS (
    DELETE FROM cortex.watch WHERE watcher = $1 AND job_id = ANY ($2::uuid[]) RETURNING pod_id
)
SELECT count(pg_notify('cortex_control', p.pod_id::text)) AS hint_count
FROM (SELECT DISTINCT pod_id FROM gone WHERE pod_id IS NOT NULL) p;

-- name: of_pod
-- Which of a pod's jobs are watched, for how many seconds yet, since when by the newest, and whether by one that hears
-- no notifications. $1 pod id.
SELECT job_id, extract(epoch FROM max(until) - cortex.now())::float8 AS left_s, max(asked_at) AS asked_at,
       bool_or(is_polled) AS is_polled
FROM cortex.watch WHERE pod_id = $1 AND until > cortex.now() GROUP BY job_id;

-- name: send
-- Sends payloads to all who listen to what models say, in one transaction. $1 payloads of less than 8000 bytes,
-- $2 whether to keep them for those who hear no notifications.
-- Locks: that of all notifications, at commit; which does not wait for the disc, since nothing of this matters for long.
WITH kept AS (
    INSERT INTO cortex.said (payload) SELECT payload FROM unnest($1::text[]) AS payload WHERE $2::bool
)
SELECT count(pg_notify('cortex_stream', payload)) AS count, set_config('synchronous_commit', 'off', true)
FROM unnest($1::text[]) AS payload;

-- name: said
-- What was kept in the last seconds, the newest in order of coming. $1 seconds, $2 ids that are known: without their
-- payloads, $3 limit.
SELECT s.id, s.payload FROM (
    SELECT id, CASE WHEN id <> ALL ($2::bigint[]) THEN payload END AS payload FROM cortex.said
    WHERE at > cortex.now() - $1::float8 * interval '1 second' ORDER BY at DESC LIMIT $3) s
ORDER BY s.id;

-- name: forget
-- Deletes what was kept. $1 seconds that it is kept, $2 limit. Locks: the oldest of it, skipping locked. Returns their ids.
WITH old AS MATERIALIZED (
    SELECT id FROM cortex.said WHERE at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM cortex.said s USING old WHERE s.id = old.id RETURNING s.id;
