-- 0002 failure: application retries, what a job waits for, where it came from, what it began with.
--
-- Locks: ACCESS EXCLUSIVE on job and job_attempt until all migrations of this run are done; no rewrite (constant
-- defaults), but the checks and indexes scan job once: under a second for 400,000 jobs.
-- Old pods: must not keep running, they would not leave RETRY in order.

-- ------------------------------------------------------------------ what a pod was configured with

CREATE TABLE cortex.config (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    spec jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.config IS 'Policies and prices, one immutable row for each set that a pod ever started with.';
COMMENT ON COLUMN cortex.config.id IS 'What a job keeps.';
COMMENT ON COLUMN cortex.config.digest IS 'SHA-256 of the canonical JSON: the same set again is the same row.';
COMMENT ON COLUMN cortex.config.spec IS 'Policies by job type and prices by model, as canonical JSON.';
COMMENT ON COLUMN cortex.config.created_at IS 'When a pod first had it.';
CREATE TRIGGER config_is_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.config
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- ------------------------------------------------------------------ jobs

ALTER TABLE cortex.job
    ADD COLUMN config_id int,
    ADD COLUMN waiting_on text CHECK (length(waiting_on) BETWEEN 1 AND 300),
    ADD COLUMN suspended_at timestamptz,
    ADD COLUMN waited_s float8 NOT NULL DEFAULT 0,
    ADD COLUMN rate_limit_count int NOT NULL DEFAULT 0,
    ADD COLUMN attempts_kept int NOT NULL DEFAULT 0,
    ADD COLUMN waits_count int NOT NULL DEFAULT 0,
    ADD COLUMN own_failure_at timestamptz,
    ADD COLUMN job_key text CHECK (length(job_key) BETWEEN 1 AND 500),
    ADD COLUMN error_class text,
    ADD COLUMN error_source text,
    ADD COLUMN origin_id uuid,
    ADD COLUMN lineage_id uuid,
    ADD CONSTRAINT waiting_only_when_suspended
        CHECK (waiting_on IS NULL OR status IN ('RETRY', 'WAITING_FOR_APPROVAL')),
    ADD CONSTRAINT error_class_only_in_failed CHECK (error_class IS NULL OR status = 'FAILED'),
    ADD CONSTRAINT lineage_with_origin CHECK ((origin_id IS NULL) = (lineage_id IS NULL));
COMMENT ON COLUMN cortex.job.config_id IS 'Policies and prices that it began with, and keeps on every attempt.';
COMMENT ON COLUMN cortex.job.waiting_on IS
    'What it waits for besides time: "llm:NAME", "tool:NAME", "http:HOST" (a breaker) or "budget:NAME".';
COMMENT ON COLUMN cortex.job.suspended_at IS 'Since when no pod has it; null while one does, and before its first start.';
COMMENT ON COLUMN cortex.job.waited_s IS 'Seconds between attempts so far: they do not count towards its time-out.';
COMMENT ON COLUMN cortex.job.rate_limit_count IS 'Application retries that a rate limit cost it.';
COMMENT ON COLUMN cortex.job.attempts_kept IS
    'Worker attempts that its next task begins with: those of a task that ended to wait, not to be tried again.';
COMMENT ON COLUMN cortex.job.waits_count IS 'How often in a row it waited for a breaker or a budget without a step in between.';
COMMENT ON COLUMN cortex.job.own_failure_at IS
    'When it last had to wait because its own call failed, without a step since then.';
COMMENT ON COLUMN cortex.job.job_key IS 'The key that it was submitted with: a new job with the same replaces it while it waits.';
COMMENT ON COLUMN cortex.job.error_class IS 'Class of the error that it failed with.';
COMMENT ON COLUMN cortex.job.error_source IS 'What failed: the name of a breaker, as in waiting_on; null for its own code.';
COMMENT ON COLUMN cortex.job.origin_id IS 'The failed job that it goes on from.';
COMMENT ON COLUMN cortex.job.lineage_id IS 'The first job of that line: its name is the workspace''s. Null for itself.';

CREATE INDEX job_due_by_time ON cortex.job (next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND (waiting_on IS NULL OR waiting_on LIKE 'budget:%');
CREATE INDEX job_due_by_breaker ON cortex.job (waiting_on, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on NOT LIKE 'budget:%';
CREATE INDEX job_prober ON cortex.job (waiting_on, type, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on NOT LIKE 'budget:%' AND queue_name IS NULL;
CREATE INDEX job_let_go ON cortex.job (waiting_on, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NOT NULL AND waiting_on IS NOT NULL;
CREATE INDEX job_origin ON cortex.job (origin_id) WHERE origin_id IS NOT NULL;

CREATE INDEX job_key ON cortex.job (job_key) WHERE job_key IS NOT NULL AND worker_job_id IS NULL
    AND status IN ('RETRY', 'WAITING_FOR_APPROVAL');

CREATE OR REPLACE FUNCTION cortex_worker.replace_by_key(key text, successor uuid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    replaced uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('cortex.job_key ' || key, 0));
    DELETE FROM cortex_worker.task WHERE job_key = key AND state <> 'LOCKED' RETURNING job_id INTO replaced;
    -- Also one that waits without a task, in RETRY or for a person.
    UPDATE cortex.job
    SET status = 'CANCELLED', cancelled_by = 'submit', worker_job_id = NULL, next_retry_at = NULL,
        waiting_on = NULL, approval_token = NULL,
        cancel_reason = format('replaced by job %s with the same key %L', successor, key)
    WHERE id = replaced OR id IN (
        SELECT j.id FROM cortex.job j WHERE j.job_key = key AND j.worker_job_id IS NULL
          AND j.status IN ('RETRY', 'WAITING_FOR_APPROVAL'));
    -- A locked one runs on; the key passes to its successor.
    UPDATE cortex_worker.task SET job_key = NULL WHERE job_key = key;
    UPDATE cortex.job SET job_key = key WHERE id = successor;
END $$;

-- ------------------------------------------------------------------ attempts

ALTER TABLE cortex.job_attempt
    DROP CONSTRAINT job_attempt_outcome_check,
    ADD CONSTRAINT job_attempt_outcome_check CHECK (
        outcome IN ('failed', 'retry', 'suspended', 'handed_back', 'pod_died', 'lease_expired')),
    ALTER COLUMN due_at DROP NOT NULL,
    ADD COLUMN error_class text,
    ADD COLUMN error_code text,
    ADD COLUMN error_source text,
    ADD COLUMN retry_count int;
COMMENT ON COLUMN cortex.job_attempt.due_at IS 'When the next one was due; null when a person decides.';
COMMENT ON COLUMN cortex.job_attempt.outcome IS
    'failed: tried again by the worker layer · retry: by the application layer · suspended: waits for a breaker or a budget · handed_back: its pod drained · pod_died: taken over · lease_expired: its pod fell silent.';
COMMENT ON COLUMN cortex.job_attempt.error_class IS 'Class of the error: what decided whether and how it is tried again.';
COMMENT ON COLUMN cortex.job_attempt.error_code IS 'Stable code of the error.';
COMMENT ON COLUMN cortex.job_attempt.error_source IS 'What failed, or what is waited for.';
COMMENT ON COLUMN cortex.job_attempt.retry_count IS 'Application retries used when it ended.';

-- ------------------------------------------------------------------ history

CREATE OR REPLACE FUNCTION cortex.job_history_of_update() RETURNS trigger
    -- The runtime's sessions forbid hash joins; without one, this would compare each row with each.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET enable_hashjoin = on AS $$
BEGIN
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT n.id, o.status, n.status, n.attempt, n.pod_id, n.updated_at,
           CASE n.status
               WHEN 'FAILED' THEN jsonb_build_object(
                   'error', n.error_message, 'code', n.error_code, 'class', n.error_class)
               WHEN 'RETRY' THEN jsonb_build_object(
                   'retry_count', n.retry_count, 'next_retry_at', n.next_retry_at, 'waiting_on', n.waiting_on)
               WHEN 'WAITING_FOR_APPROVAL' THEN jsonb_build_object('waiting_on', n.waiting_on)
               WHEN 'CANCELLED' THEN jsonb_build_object('by', n.cancelled_by, 'reason', n.cancel_reason)
               ELSE '{}'
           END
    FROM after n JOIN before o ON o.id = n.id
    WHERE o.status <> n.status;
    RETURN NULL;
END $$;

GRANT SELECT, INSERT ON cortex.config TO cortex_runtime;
