-- name: submitter
-- Who submitted a bulk operation and when, and the present. $1 job id. Locks: none.
SELECT j.submitted_by, j.created_at, coalesce(j.lineage_id, j.id) AS id, cortex.now() AS now
FROM cortex.job j WHERE j.id = $1;

-- name: standing
-- The present, and whether another bulk operation waits for its turn. $1 the queue. Locks: none.
SELECT cortex.now() AS now, EXISTS (
    SELECT FROM cortex_worker.task t
    WHERE t.queue_name = $1 AND t.state = 'QUEUED' AND t.run_at <= cortex.now()) AS is_awaited;
