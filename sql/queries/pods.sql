-- name: ensure_code
-- Stores the code of a pod, once, and notes that it is used. $1 digest, $2 version, $3 job types, $4 the schemas of their
-- arguments. Locks: only the row. Returns its id.
WITH made AS (
    INSERT INTO cortex.code (digest, version) VALUES ($1, $2)
    ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at
    RETURNING id
), stored AS (
    INSERT INTO cortex.code_arguments (code_id, type, schema)
    SELECT made.id, k.type, k.schema::json FROM made, unnest($3::text[], $4::text[]) AS k(type, schema)
    ON CONFLICT DO NOTHING
)
SELECT id FROM made;

-- name: served
-- A job type, and the codes of the pods that serve it. $1 type, $2 whether to leave out pods whose session has ended,
-- which others have not marked dead yet. Ready pods that a person drains, or that are silent, do not serve it.
SELECT * FROM cortex.served_type($1, $2);

-- name: types
-- Every job type that is built in or that a pod has ever had, with the arguments that the codes of ready pods take.
WITH living AS MATERIALIZED (
    SELECT p.code_id, p.job_types FROM cortex.pod p WHERE p.state = 'READY'
)
SELECT t.name AS type, EXISTS (SELECT FROM living l WHERE t.name = ANY (l.job_types)) AS is_live,
       (SELECT coalesce(json_agg(json_build_object('version', c.version, 'schema', a.schema) ORDER BY c.id DESC), '[]')
        FROM cortex.code_arguments a JOIN cortex.code c ON c.id = a.code_id
        WHERE a.type = t.name AND a.code_id IN (SELECT code_id FROM living)) AS codes
FROM cortex.job_type t ORDER BY t.name;

-- name: register
-- Registers a pod. $1 id, $2 lock key, $3 name, $4 version, $5 job types, $6 slots, $7 what shows that it lives,
-- $8 how it confines the programs of agents, $9 the tools for them; its settings: $10 peer_check_s, $11 heartbeat_s,
-- $12 zombie_s, $13 sweep_s; for a worker of several, else null: $14 their common id, $15 its number; $16 digest of
-- its code. A worker begins with the drain request that its pod has. A session that holds the lock is noted as the one
-- whose end is the pod's death; called again after a reconnect. Locks: the pod, which a takeover may hold.
INSERT INTO cortex.pod AS k (id, lock_key, name, version, job_types, slots, liveness, confinement, tools, peer_check_s,
                        heartbeat_s, zombie_s, sweep_s, group_id, worker, drain_requested_at, drain_requested_by,
                        drain_reason, code_id, backend_pid, backend_start, backend_user)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, s.drain_requested_at, s.drain_requested_by,
       s.drain_reason, (SELECT c.id FROM cortex.code c WHERE c.digest = $16),
       own.pid, cortex.backend_start(own.pid), own.usesysid
FROM (VALUES (0)) one LEFT JOIN LATERAL (
    SELECT a.pid, a.usesysid FROM pg_locks l JOIN pg_stat_get_activity(pg_backend_pid()) a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32) | l.objid::bigint = $2) own ON true
LEFT JOIN LATERAL (
    SELECT p.drain_requested_at, p.drain_requested_by, p.drain_reason FROM cortex.pod p
    WHERE p.shown_id = $14 AND p.state IN ('READY', 'DRAINING') AND p.drain_requested_at IS NOT NULL
    LIMIT 1) s ON true
ON CONFLICT (id) DO UPDATE
-- Another heartbeat, so that a takeover that has begun to suspect the pod begins anew.
SET lock_key = excluded.lock_key, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
    backend_user = excluded.backend_user, heartbeat_at = cortex.now()
WHERE excluded.backend_pid IS NOT NULL;

-- name: lock
-- Takes the pod's session lock, the sign that it lives. $1 lock key, $2 the pod. Its row names this session in the same
-- transaction, if there is one: a lock of a session that it does not name does not count, and the next statement may be
-- late. Locks: the pod, which a takeover may hold. Returns whether the lock was free, and if not, whether another login
-- than this one holds it.
WITH t AS MATERIALIZED (
    SELECT pg_try_advisory_lock($1::bigint) AS is_held
), named AS (
    UPDATE cortex.pod p
    SET lock_key = $1, backend_pid = own.pid, backend_start = cortex.backend_start(own.pid), backend_user = own.usesysid,
        heartbeat_at = cortex.now()
    FROM t, pg_stat_get_activity(pg_backend_pid()) own WHERE t.is_held AND p.id = $2::uuid
)
SELECT t.is_held, NOT t.is_held AND EXISTS (
    SELECT FROM pg_locks l JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32) | l.objid::bigint = $1::bigint
      AND a.usesysid <> (SELECT o.usesysid FROM pg_stat_get_activity(pg_backend_pid()) o)) AS is_foreign
FROM t;

-- name: beat
-- One heartbeat of a pod and of all its jobs. $1 pod id, $2 ids of its jobs (ordered), $3 their attempts,
-- $4 state, $5 loop lag in ms, $6 resident bytes, $7 hint latency in ms or null; if it drains, else null:
-- $8 its phase, $9 seconds until the abort, $10 seconds until all is closed; if its calls fail, else null:
-- $11 its trouble with the database, $12 for how many seconds; $13 whether it ran jobs other than upkeep;
-- $14 threads that time-outs left behind.
-- Locks: the pod, its tasks, skipping locked: a lock on one job must not make all others seem dead.
-- Returns the jobs that are still its own.
WITH pod AS (
    UPDATE cortex.pod
    SET heartbeat_at = cortex.now(), running = cardinality($2::uuid[]),
        state = CASE state WHEN 'STOPPED' THEN state ELSE $4 END,
        draining_at = CASE WHEN $4 = 'DRAINING' THEN coalesce(draining_at, cortex.now()) END,
        ended_at = CASE state WHEN 'STOPPED' THEN ended_at END,
        loop_lag_ms = $5, rss_bytes = $6, hint_latency_ms = $7,
        phase = CASE state WHEN 'STOPPED' THEN phase ELSE $8::text END,
        -- Deadlines change when a phase begins, and not by the time that a heartbeat takes to arrive.
        phase_at = CASE WHEN phase = $8 THEN phase_at WHEN $8 IS NOT NULL THEN cortex.now() END,
        abort_at = CASE WHEN phase = $8 THEN abort_at ELSE cortex.now() + $9::float8 * interval '1 second' END,
        closed_at = CASE WHEN phase = $8 THEN closed_at ELSE cortex.now() + $10::float8 * interval '1 second' END,
        trouble = $11::text, trouble_at = cortex.now() - $12::float8 * interval '1 second',
        has_run = CASE state WHEN 'STOPPED' THEN has_run ELSE $13 END,
        threads_lost = $14
    WHERE id = (SELECT p.id FROM cortex.pod p WHERE p.id = $1 FOR NO KEY UPDATE SKIP LOCKED)
), mine AS MATERIALIZED (
    SELECT m.id FROM unnest($2::uuid[], $3::int[]) AS m(id, attempt) JOIN cortex_worker.task t ON t.job_id = m.id
    WHERE t.attempt = m.attempt AND t.locked_by = $1 AND EXISTS (SELECT FROM cortex.pod p WHERE p.id = $1)
), held AS MATERIALIZED (
    SELECT t.job_id FROM mine JOIN cortex_worker.task t ON t.job_id = mine.id
    ORDER BY t.job_id FOR NO KEY UPDATE OF t SKIP LOCKED
), beaten AS (
    UPDATE cortex_worker.task t SET heartbeat_at = cortex.now() FROM held
    WHERE t.job_id = held.job_id AND t.locked_by = $1
)
SELECT id FROM mine;

-- name: report_steps
-- Notes which steps jobs of a pod run, for people who look. $1 pod id; per job: $2 ids, $3 attempts, $4 kinds of the
-- longest running steps or null for none, $5 their keys, $6 for how many seconds, $7 how many more run. Locks: its
-- tasks, skipping locked. Returns the jobs whose step was noted.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::float8[], $7::int[])
        AS s(job_id, attempt, kind, key, for_s, more)
), held AS MATERIALIZED (
    SELECT t.job_id FROM given g JOIN cortex_worker.task t ON t.job_id = g.job_id AND t.attempt = g.attempt
    WHERE t.locked_by = $1 ORDER BY t.job_id FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE cortex_worker.task t
SET running = CASE WHEN g.key IS NOT NULL THEN jsonb_build_object(
        'attempt', g.attempt, 'kind', g.kind, 'key', g.key, 'since', cortex.now() - g.for_s * interval '1 second',
        'more', g.more) END
FROM given g JOIN held ON held.job_id = g.job_id
WHERE t.job_id = g.job_id AND t.locked_by = $1
RETURNING t.job_id AS id;

-- name: leave
-- Marks a pod as ended in order, unless it still owns a job: then its lock is released, and others take its jobs over.
-- $1 pod id, $2 whether it ran jobs other than upkeep. Returns it if it was marked.
UPDATE cortex.pod SET state = 'STOPPED', ended_at = cortex.now(), running = 0, phase = NULL, has_run = $2
WHERE id = $1 AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.state = 'LOCKED' AND t.locked_by = $1)
RETURNING id;

-- name: ended_owners
-- Pods that ended although they still own jobs: a claim was in flight. $1 the calling pod's id.
SELECT p.id, p.name, p.heartbeat_at FROM cortex.pod p
WHERE p.id <> $1 AND p.state NOT IN ('READY', 'DRAINING') AND p.id IN (
    SELECT t.locked_by FROM cortex_worker.task t WHERE t.state = 'LOCKED');

-- name: without_lock
-- Pods marked alive whose session does not hold their lock, although they can hold one. $1 the calling pod's id. Empty
-- until the server has served for $2 seconds: before that, all locks are new.
SELECT p.id, p.name, p.heartbeat_at FROM cortex.pod p
WHERE p.state IN ('READY', 'DRAINING') AND p.id <> $1 AND p.liveness = 'lock'
  AND cortex.serving_since() < cortex.now() - $2::float8 * interval '1 second'
  AND p.id NOT IN (SELECT cortex.connected_pods());

-- name: retire_silent
-- Marks pods dead that have been silent for long and own no job. $1 seconds of silence. They may have run jobs after
-- their last heartbeat.
UPDATE cortex.pod p SET state = 'DEAD', ended_at = cortex.now(), running = 0, has_run = true
WHERE p.state IN ('READY', 'DRAINING') AND p.heartbeat_at < cortex.now() - $1::float8 * interval '1 second'
  AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.state = 'LOCKED' AND t.locked_by = p.id);

-- name: list
-- Living pods, then the newest that ended: a row for each worker, those of one pod with the same `shown_id`. Workers
-- that ended are left out while another one of their pod lives. $1 how many ended ones, $2 most leases to read, oldest
-- first.
-- `oldest_lease_at`: the oldest renewal among its jobs, or, if only older renewals of other pods were read, the
-- youngest of those: its own are no older. `longest_claim_at`: since when it has had its oldest claim, null if not all
-- leases were read. `running`: if they were not, and for an ended pod, as last reported by itself. `connections`: its
-- sessions here, of all its workers; null where the server does not know: for a pod behind a pooler, an older pod, or
-- one that shares its name. `is_lost`: its session ended, and no other pod has marked it dead yet.
WITH lease AS MATERIALIZED (
    SELECT t.locked_by AS pod_id, t.heartbeat_at, t.locked_at FROM cortex_worker.task t
    WHERE t.state = 'LOCKED' AND t.heartbeat_at IS NOT NULL ORDER BY t.heartbeat_at LIMIT $2::int
), unread AS MATERIALIZED (
    SELECT max(heartbeat_at) AS since FROM lease HAVING count(*) >= $2::int
), held AS MATERIALIZED (
    SELECT l.pod_id, count(*)::int AS count, min(l.heartbeat_at) AS oldest_lease_at,
           CASE WHEN NOT EXISTS (SELECT FROM unread) THEN min(l.locked_at) END AS longest_claim_at
    FROM lease l GROUP BY l.pod_id
), session AS MATERIALIZED (
    SELECT a.application_name AS name, count(*)::int AS count FROM pg_stat_activity a
    WHERE a.datname = current_database() GROUP BY a.application_name
), ended AS MATERIALIZED (
    -- Of several workers the last one that ended stands for the pod.
    SELECT p.shown_id, p.ended_at FROM cortex.pod p
    WHERE p.ended_at IS NOT NULL AND p.state NOT IN ('READY', 'DRAINING')
      AND (p.group_id IS NULL OR NOT EXISTS (
          SELECT FROM cortex.pod o WHERE o.shown_id = p.shown_id
            AND (o.state IN ('READY', 'DRAINING') OR (o.ended_at, o.id) > (p.ended_at, p.id))))
    ORDER BY p.ended_at DESC LIMIT $1
), page AS (
    (SELECT *, 0 AS part, started_at AS at FROM cortex.pod WHERE state IN ('READY', 'DRAINING'))
    UNION ALL
    (SELECT p.*, 1, e.ended_at FROM ended e JOIN cortex.pod p ON p.shown_id = e.shown_id)
)
SELECT p.*, h.longest_claim_at,
       coalesce(h.oldest_lease_at, CASE WHEN p.running > 0 THEN (SELECT since FROM unread) END) AS oldest_lease_at,
       CASE WHEN p.part = 0 AND p.liveness = 'lock'
             AND min(p.shown_id::text) OVER namesakes = max(p.shown_id::text) OVER namesakes
            THEN s.count END AS connections,
       CASE WHEN p.part = 0 AND NOT EXISTS (SELECT FROM unread) THEN coalesce(h.count, 0) ELSE p.running END AS running_now,
       p.id IN (SELECT cortex.lost_pods()) AS is_lost, c.version AS code_version,
       cortex.now() AS now
FROM page p LEFT JOIN cortex.code c ON c.id = p.code_id LEFT JOIN held h ON h.pod_id = p.id LEFT JOIN session s ON s.name = left('cortex ' || p.name, 63)
WINDOW namesakes AS (PARTITION BY p.part, left(p.name, 56))
ORDER BY p.part, CASE p.part WHEN 0 THEN p.at END, p.at DESC, p.started_at;

-- name: live_types
-- Job types that the living pods can run.
SELECT DISTINCT unnest(job_types) AS name FROM cortex.pod WHERE state = 'READY' ORDER BY name;

-- name: probe
-- A notification from a pod to itself, to measure whether hints arrive. $1 channel, $2 payload.
SELECT pg_notify($1, $2);

-- name: forget
-- Deletes pods that ended long ago and that the record does not name. $1 seconds since, $2 limit. Returns how many.
SELECT cortex.forget_pods($1, $2) AS count;
