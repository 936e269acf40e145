-- name: register
-- Enters a pod. $1 id, $2 lock key, $3 name, $4 version, $5 job types, $6 slots.
INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO NOTHING;

-- name: lock
-- Takes the pod's session lock, the sign that it lives. $1 lock key. Returns whether it was free.
SELECT pg_try_advisory_lock($1) AS held;

-- name: beat
-- One heartbeat of a pod and of all its jobs. $1 pod id, $2 ids of its jobs (ordered), $3 their attempts,
-- $4 state, $5 loop lag in ms, $6 resident bytes, $7 hint latency in ms or null.
-- Locks: the pod, its jobs. Returns the jobs that are still its own.
WITH pod AS (
    UPDATE cortex.pod
    SET heartbeat_at = cortex.now(), running = cardinality($2::uuid[]),
        state = CASE state WHEN 'STOPPED' THEN state ELSE $4 END,
        draining_at = CASE WHEN $4 = 'DRAINING' THEN coalesce(draining_at, cortex.now()) END,
        ended_at = CASE state WHEN 'STOPPED' THEN ended_at END,
        loop_lag_ms = $5, rss_bytes = $6, hint_latency_ms = $7
    WHERE id = $1
    RETURNING id
)
UPDATE cortex.job j SET heartbeat_at = cortex.now()
FROM unnest($2::uuid[], $3::int[]) AS mine(id, attempt), pod
WHERE j.id = mine.id AND j.attempt = mine.attempt AND j.status::text = 'RUNNING' AND j.pod_id = pod.id
RETURNING j.id;

-- name: leave
-- A pod leaves in order, unless something is still its own: then its lock falls free, and that is taken over.
-- $1 pod id. Returns it if it has left.
UPDATE cortex.pod SET state = 'STOPPED', ended_at = cortex.now(), running = 0
WHERE id = $1 AND NOT EXISTS (SELECT FROM cortex.job j WHERE j.status = 'RUNNING' AND j.pod_id = $1)
RETURNING id;

-- name: ended_owners
-- Pods that ended although jobs are still theirs: a claim was on its way when they did. $1 the looking pod's id.
SELECT p.id, p.lock_key, p.name FROM cortex.pod p
WHERE p.id <> $1 AND p.state NOT IN ('READY', 'DRAINING') AND p.id IN (
    SELECT j.pod_id FROM cortex.job j WHERE j.status = 'RUNNING' AND j.pod_id IS NOT NULL);

-- name: without_lock
-- Pods said to be alive whose session lock nobody holds. $1 the looking pod's id.
-- Empty within $2 seconds of the server's start: everybody's locks are new then.
SELECT p.id, p.lock_key, p.name FROM cortex.pod p
WHERE p.state IN ('READY', 'DRAINING') AND p.id <> $1
  AND pg_postmaster_start_time() < clock_timestamp() - $2::float8 * interval '1 second'
  AND NOT EXISTS (
      SELECT FROM pg_locks l
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = (p.lock_key >> 32) & 4294967295
        AND l.objid::bigint = p.lock_key & 4294967295);

-- name: retire_silent
-- Marks pods dead that have been silent for long and own no job. $1 seconds of silence.
UPDATE cortex.pod p SET state = 'DEAD', ended_at = cortex.now(), running = 0
WHERE p.state IN ('READY', 'DRAINING') AND p.heartbeat_at < cortex.now() - $1::float8 * interval '1 second'
  AND NOT EXISTS (SELECT FROM cortex.job j WHERE j.status = 'RUNNING' AND j.pod_id = p.id);

-- name: list
-- Pods that live, then the newest that ended. $1 how many ended ones.
(SELECT *, cortex.now() AS now FROM cortex.pod WHERE state IN ('READY', 'DRAINING') ORDER BY started_at)
UNION ALL
(SELECT *, cortex.now() AS now FROM cortex.pod
 WHERE ended_at IS NOT NULL AND state NOT IN ('READY', 'DRAINING')
 ORDER BY ended_at DESC LIMIT $1);

-- name: live_types
-- Job types that the living pods can run.
SELECT DISTINCT unnest(job_types) AS name FROM cortex.pod WHERE state = 'READY' ORDER BY name;

-- name: probe
-- A notification from a pod to itself, to measure whether hints arrive. $1 channel, $2 payload.
SELECT pg_notify($1, $2);
