-- name: submitter
-- Who submitted a bulk operation and when, for which tenant, and the present. $1 job id. Locks: none.
SELECT j.submitted_by, j.submitted_with, j.created_at, j.tenant, coalesce(j.lineage_id, j.id) AS id, cortex.now() AS now
FROM cortex.job j WHERE j.id = $1;

-- name: progress
-- The state of a bulk operation, with the sums after its last slice, and its result. $1 job id. Locks: none.
SELECT j.status, j.result, j.error_message, j.cancelled_by, s.output AS progress
FROM cortex.job j LEFT JOIN LATERAL (
    SELECT CASE WHEN key <> 'choose' THEN output END AS output
    FROM cortex.job_step WHERE job_id = j.id ORDER BY seq DESC LIMIT 1) s ON true
WHERE j.id = $1;

-- name: turn
-- The present, and whether another bulk operation waits for its turn. $1 the queue. Locks: none.
SELECT cortex.now() AS now, EXISTS (
    SELECT FROM cortex_worker.task t
    WHERE t.queue_name = $1 AND t.state = 'QUEUED' AND t.run_at <= cortex.now()) AS is_awaited;
