-- name: watch
-- Starts or renews the watches of one watcher, and notifies the pods that run the jobs; deletes a few expired ones. $1
-- watcher, $2 job ids, $3 seconds until they expire, $4 those of the jobs that have a new follower. Locks: its watches, and unlocked expired ones. Returns how many pods were
-- notified.
WITH lapsed AS (
    SELECT job_id, watcher FROM cortex.watch
    WHERE until < cortex.now() AND watcher <> $1 ORDER BY until LIMIT 100 FOR UPDATE SKIP LOCKED
), cleared AS (
    DELETE FROM cortex.watch w USING lapsed l WHERE w.job_id = l.job_id AND w.watcher = l.watcher
), kept AS (
    INSERT INTO cortex.watch AS w (job_id, watcher, pod_id, until)
    SELECT j.id, $1, CASE WHEN j.status::text = 'RUNNING' THEN j.pod_id END,
           cortex.now() + $3::float8 * interval '1 second'
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
-- Ends watches of one watcher, and notifies the pods that ran the jobs. $1 watcher, $2 job ids. Locks: its watches.
-- Returns how many pods were notified.
WITH gone AS (
    DELETE FROM cortex.watch WHERE watcher = $1 AND job_id = ANY ($2::uuid[]) RETURNING pod_id
)
SELECT count(pg_notify('cortex_control', p.pod_id::text)) AS hint_count
FROM (SELECT DISTINCT pod_id FROM gone WHERE pod_id IS NOT NULL) p;

-- name: of_pod
-- The watched jobs of a pod: for how many more seconds, and since when by the newest follower. $1 pod id.
SELECT job_id, extract(epoch FROM max(until) - cortex.now())::float8 AS left_s, max(asked_at) AS asked_at
FROM cortex.watch WHERE pod_id = $1 AND until > cortex.now() GROUP BY job_id;

-- name: send
-- Stores output of models for all watchers, and notifies them that there is some. $1 payloads of less than 8000 bytes.
-- Locks: the lock of all notifications, at commit, which does not wait for the disk: this output matters only briefly.
WITH kept AS (
    INSERT INTO cortex.said (payload) SELECT payload FROM unnest($1::text[]) AS payload RETURNING id
)
SELECT pg_notify('cortex_stream', max(id)::text), set_config('synchronous_commit', 'off', true) FROM kept;

-- name: said
-- Output stored in the last seconds, the newest in order of arrival. $1 seconds, $2 known ids: without their payloads,
-- $3 limit.
SELECT s.id, s.payload FROM (
    SELECT id, CASE WHEN id <> ALL ($2::bigint[]) THEN payload END AS payload FROM cortex.said
    WHERE at > cortex.now() - $1::float8 * interval '1 second' ORDER BY at DESC LIMIT $3) s
ORDER BY s.id;

-- name: forget
-- Deletes stored output. $1 seconds to keep it, $2 limit. Locks: the oldest of it, skipping locked. Returns their ids.
WITH old AS MATERIALIZED (
    SELECT id FROM cortex.said WHERE at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM cortex.said s USING old WHERE s.id = old.id RETURNING s.id;
