-- name: request
-- Requests that a living pod take no more jobs and hand back those that it runs. $1 the id that people know it by, $2
-- who, $3 why. Locks: its workers, by id. No row, and no record, if it was requested before, or if the pod drains by
-- itself or has ended.
WITH living AS MATERIALIZED (
    SELECT id FROM cortex.pod
    WHERE shown_id = $1 AND state IN ('READY', 'DRAINING') AND phase IS NULL AND drain_requested_at IS NULL
    ORDER BY id FOR NO KEY UPDATE
), asked AS (
    UPDATE cortex.pod p
    SET drain_requested_at = cortex.now(), drain_requested_by = $2, drain_reason = $3
    FROM living WHERE p.id = living.id
    RETURNING p.id, p.name
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, pod_id, data)
    SELECT 'lifecycle', 'pod_drained', 'pod:' || left(name, 290), id,
           jsonb_build_object('by', $2::text, 'reason', $3::text)
    FROM asked ORDER BY id LIMIT 1
), hinted AS (
    SELECT count(pg_notify('cortex_control', id::text)) FROM asked
)
SELECT asked.id FROM asked CROSS JOIN hinted;

-- name: withdraw
-- Withdraws the request, so that the pod takes jobs again. $1 the id that people know it by, $2 who, $3 why. Locks: its
-- workers, by id. No row if there was no request, or if the pod has ended.
WITH before AS MATERIALIZED (
    SELECT id, drain_requested_at, drain_requested_by FROM cortex.pod
    WHERE shown_id = $1 AND drain_requested_at IS NOT NULL AND state IN ('READY', 'DRAINING') ORDER BY id FOR UPDATE
), free AS (
    UPDATE cortex.pod p
    SET drain_requested_at = NULL, drain_requested_by = NULL, drain_reason = NULL
    FROM before WHERE p.id = before.id
    RETURNING p.id, p.name
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, pod_id, data)
    SELECT 'lifecycle', 'pod_undrained', 'pod:' || left(free.name, 290), free.id,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'drained_by', before.drain_requested_by,
                              'drained_at', before.drain_requested_at)
    FROM free JOIN before ON before.id = free.id ORDER BY free.id LIMIT 1
), hinted AS (
    SELECT count(pg_notify('cortex_control', id::text)) FROM free
)
SELECT free.id FROM free CROSS JOIN hinted;

-- name: is_requested
-- Whether a drain is requested of the pod that this process belongs to. $1 its own id.
SELECT EXISTS (
    SELECT FROM cortex.pod own JOIN cortex.pod p ON p.shown_id = own.shown_id
    WHERE own.id = $1 AND p.drain_requested_at IS NOT NULL AND (p.id = own.id OR p.state IN ('READY', 'DRAINING'))
) AS is_requested;

-- name: standing
-- The state of one pod: of its newest living worker, else of the last one. $1 the id that people know it by.
SELECT name, state, phase, drain_requested_at, drain_requested_by, drain_reason, running
FROM cortex.pod WHERE shown_id = $1
ORDER BY state IN ('READY', 'DRAINING') DESC, started_at DESC LIMIT 1;

-- name: moved
-- The jobs that a pod has handed back since its drain began, in groups: `what` is runs (now on `pod`), waits, ended, or
-- lost: it will never run again. $1 the id that people know the pod by, $2 most attempts to read, the newest. One row of
-- nulls if there are none; `is_whole`: everything that it handed back is included. Locks: none.
WITH back AS MATERIALIZED (
    SELECT each.job_id FROM cortex.pod p CROSS JOIN LATERAL (
        SELECT a.job_id, a.ended_at FROM cortex.job_attempt a
        WHERE a.pod_id = p.id AND a.outcome = 'handed_back'
          AND a.ended_at >= coalesce(p.drain_requested_at, p.draining_at)
        ORDER BY a.ended_at DESC LIMIT $2::int) each
    WHERE p.shown_id = $1
    ORDER BY each.ended_at DESC LIMIT $2::int
), moved AS (
    SELECT DISTINCT job_id FROM back
), stood AS (
    SELECT CASE WHEN j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN 'ended' WHEN t.state = 'LOCKED' THEN 'runs'
                WHEN t.job_id IS NOT NULL OR j.status IN ('RETRY', 'WAITING_FOR_APPROVAL') THEN 'waits'
                ELSE 'lost' END AS what,
           CASE WHEN t.state = 'LOCKED' THEN t.locked_by END AS pod_id
    FROM moved m LEFT JOIN cortex.job j ON j.id = m.job_id LEFT JOIN cortex_worker.task t ON t.job_id = m.job_id
)
SELECT f.what, f.pod, f.count, read.count < $2::int AS is_whole
FROM (SELECT count(*) FROM back) read LEFT JOIN (
    SELECT s.what, p.name AS pod, count(*)::int AS count
    FROM stood s LEFT JOIN cortex.pod p ON p.id = s.pod_id GROUP BY s.what, p.shown_id, p.name) f ON true
ORDER BY f.what, f.count DESC, f.pod;

-- name: named
-- Living pods with a name, or whose id begins or ends with digits. $1 name, $2 digits or null, $3 limit.
SELECT shown_id AS id, name FROM cortex.pod
WHERE state IN ('READY', 'DRAINING')
  AND (name = $1 OR starts_with(replace(shown_id::text, '-', ''), $2::text)
       OR right(replace(shown_id::text, '-', ''), length($2::text)) = $2::text)
GROUP BY shown_id, name ORDER BY min(started_at), shown_id LIMIT $3;
