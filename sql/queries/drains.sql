-- name: request
-- Requests that a living pod take no more jobs and hand back those that it runs. $1 pod id, $2 who, $3 why. Locks: the
-- pod. No row, and no record, if it was requested before, or if the pod drains by itself or has ended.
WITH asked AS (
    UPDATE cortex.pod
    SET drain_requested_at = cortex.now(), drain_requested_by = $2, drain_reason = $3
    WHERE id = $1 AND state IN ('READY', 'DRAINING') AND phase IS NULL AND drain_requested_at IS NULL
    RETURNING id, name
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, pod_id, data)
    SELECT 'lifecycle', 'pod_drained', 'pod:' || left(name, 290), id,
           jsonb_build_object('by', $2::text, 'reason', $3::text)
    FROM asked
), hinted AS (
    SELECT pg_notify('cortex_control', id::text) FROM asked
)
SELECT asked.id FROM asked LEFT JOIN hinted ON true;

-- name: withdraw
-- Withdraws the request, so that the pod takes jobs again. $1 pod id, $2 who, $3 why. Locks: the pod. No row if there
-- was no request, or if the pod has ended.
WITH before AS MATERIALIZED (
    SELECT id, drain_requested_at, drain_requested_by FROM cortex.pod
    WHERE id = $1 AND drain_requested_at IS NOT NULL AND state IN ('READY', 'DRAINING') FOR UPDATE
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
    FROM free, before
), hinted AS (
    SELECT pg_notify('cortex_control', id::text) FROM free
)
SELECT free.id FROM free LEFT JOIN hinted ON true;

-- name: is_requested
-- Whether a drain of the pod is requested. $1 pod id.
SELECT drain_requested_at IS NOT NULL AS is_requested FROM cortex.pod WHERE id = $1;

-- name: standing
-- The state of one pod. $1 pod id.
SELECT name, state, phase, drain_requested_at, drain_requested_by, drain_reason, running
FROM cortex.pod WHERE id = $1;

-- name: moved
-- The jobs that a pod has handed back since its drain began, in groups: `what` is runs (now on `pod`), waits, ended, or
-- lost: it will never run again. $1 pod id, $2 most attempts to read, the newest. One row of nulls if there are none;
-- `is_whole`: everything that it handed back is included. Locks: none.
WITH back AS MATERIALIZED (
    SELECT a.job_id FROM cortex.job_attempt a
    WHERE a.pod_id = $1 AND a.outcome = 'handed_back'
      AND a.ended_at >= (SELECT coalesce(drain_requested_at, draining_at) FROM cortex.pod WHERE id = $1)
    ORDER BY a.ended_at DESC LIMIT $2::int
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
    FROM stood s LEFT JOIN cortex.pod p ON p.id = s.pod_id GROUP BY s.what, s.pod_id, p.name) f ON true
ORDER BY f.what, f.count DESC, f.pod;

-- name: named
-- Living pods with a name, or whose id begins or ends with digits. $1 name, $2 digits or null, $3 limit.
SELECT id, name FROM cortex.pod
WHERE state IN ('READY', 'DRAINING')
  AND (name = $1 OR starts_with(replace(id::text, '-', ''), $2::text)
       OR right(replace(id::text, '-', ''), length($2::text)) = $2::text)
ORDER BY started_at, id LIMIT $3;
