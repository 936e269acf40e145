-- 0018 recovery: whom the death of a pod is blamed on, over all the statements that take its jobs; suspects that wait
-- stay suspects; and what runs with the owner's rights looks at a caller's temporary tables last.
--
-- Locks: ACCESS EXCLUSIVE on pod and job for columns without a rewrite, for an instant.
-- Old pods: may keep running; they take over as they did, and what waits in them is no suspect any more.

ALTER TABLE cortex.pod ADD COLUMN blame text CHECK (blame IN ('nobody', 'all', 'suspect', 'company'));
COMMENT ON COLUMN cortex.pod.blame IS
    'Of a dead pod, which of its jobs its death is counted against: nobody (it was leaving, and had stopped them), all, its one suspect (no other job without a step was there), or all without a step since they were claimed.';

ALTER TABLE cortex.job ADD COLUMN was_suspect boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cortex.job.was_suspect IS
    'Its task was a suspect of pods'' deaths when it came to wait; its next task is one, unless it has made a step.';

CREATE OR REPLACE FUNCTION cortex.give_tasks(jobs uuid[]) RETURNS SETOF uuid
    LANGUAGE sql SET search_path = pg_catalog AS $$
WITH made AS (
    INSERT INTO cortex_worker.task (
        task, job_id, state, priority, attempt, attempts_spent, max_attempts, queue_name, job_key, is_suspect)
    SELECT j.type, j.id, (CASE WHEN j.queue_name IS NULL THEN 'READY' ELSE 'QUEUED' END)::cortex_worker.task_state,
           j.priority, j.attempt, j.attempts_kept, j.worker_attempts, j.queue_name,
           -- Whoever wanted its key has cancelled it, but for one who took the key before it came to wait.
           CASE WHEN NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_key = j.job_key) THEN j.job_key END,
           j.was_suspect AND j.pod_deaths > 0
    FROM unnest(jobs) AS w(id) JOIN cortex.job j ON j.id = w.id
    WHERE j.status::text IN ('RETRY', 'WAITING_FOR_APPROVAL') AND j.worker_job_id IS NULL
    ORDER BY j.id
    ON CONFLICT DO NOTHING
    RETURNING id, job_id
)
UPDATE cortex.job j
SET worker_job_id = made.id, next_retry_at = CASE WHEN j.status = 'RETRY' THEN cortex.now() END
FROM made WHERE j.id = made.job_id
RETURNING j.id $$;

-- Else a caller's temporary table would come before the catalogue's own.
ALTER FUNCTION cortex.job_history_of_insert() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.job_history_of_update() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.dead_letter_of_failure() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.job_closes() SET search_path = pg_catalog, pg_temp;
