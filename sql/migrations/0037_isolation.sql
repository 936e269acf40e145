-- 0037 isolation: suspects of pods' deaths run in processes of their own, and only the death of such a process counts
-- against its job.
--
-- Locks: ACCESS EXCLUSIVE on job and job_attempt for a column and a constraint without a scan, for an instant.
-- Old pods: may keep running; they take over as they did and may still call a job poison for the deaths of pods.

ALTER TABLE cortex.job ADD COLUMN process_deaths int NOT NULL DEFAULT 0 CHECK (process_deaths >= 0);
COMMENT ON COLUMN cortex.job.process_deaths IS
    'Processes of its own that died while running it, their pods alive, in a row and without a step in between: the poison guard.';
COMMENT ON COLUMN cortex.job.pod_deaths IS
    'Pods that died while running it, in a row and without a step in between: it makes a job a suspect and condemns none.';
COMMENT ON COLUMN cortex_worker.task.is_suspect IS
    'Pods or processes have died while running it: it runs in a process of its own.';
COMMENT ON COLUMN cortex.job.was_suspect IS
    'Its task was a suspect when it came to wait; its next task is one, unless it has made a step.';
COMMENT ON COLUMN cortex.pod.blame IS 'Not used any more; pods of versions before 0037 write it.';

-- What is there fits: the constraint before it was narrower.
ALTER TABLE cortex.job_attempt
    DROP CONSTRAINT job_attempt_outcome_check,
    ADD CONSTRAINT job_attempt_outcome_check CHECK (
        outcome IN ('failed', 'retry', 'suspended', 'handed_back', 'pod_died', 'process_died', 'lease_expired')) NOT VALID;
COMMENT ON COLUMN cortex.job_attempt.outcome IS
    'failed: tried again by the worker layer · retry: by the application layer · suspended: waits for a breaker or a budget · handed_back: its pod drained · pod_died: taken over · process_died: its own process died beside its pod · lease_expired: its pod fell silent.';

CREATE OR REPLACE FUNCTION cortex.give_tasks(jobs uuid[]) RETURNS SETOF uuid
    LANGUAGE sql SET search_path = pg_catalog AS $$
WITH made AS (
    INSERT INTO cortex_worker.task (
        task, job_id, state, priority, attempt, attempts_spent, max_attempts, queue_name, job_key, is_suspect)
    SELECT j.type, j.id, (CASE WHEN j.queue_name IS NULL THEN 'READY' ELSE 'QUEUED' END)::cortex_worker.task_state,
           j.priority, j.attempt, j.attempts_kept, j.worker_attempts, j.queue_name,
           -- Whoever wanted its key has cancelled it, but for one who took the key before it came to wait.
           CASE WHEN NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_key = j.job_key) THEN j.job_key END,
           j.was_suspect AND j.pod_deaths + j.process_deaths > 0
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
