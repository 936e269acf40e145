-- 0008 time-outs: a receipt for each, with what it left behind.
--
-- Locks: none that matter, every object is new. Old pods: may keep running, they leave no receipts.

CREATE TABLE cortex.timeout_event (
    job_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    attempt int NOT NULL CHECK (attempt >= 1),
    nth int NOT NULL CHECK (nth >= 1),
    scope text NOT NULL CHECK (scope IN ('job', 'step', 'call', 'connect', 'idle')),
    limit_s float8 NOT NULL CHECK (limit_s >= 0),
    elapsed_s float8 NOT NULL CHECK (elapsed_s >= 0),
    phase text NOT NULL CHECK (phase IN ('model', 'tool', 'step', 'handler')),
    step_key text CHECK (length(step_key) BETWEEN 1 AND 500),
    step_elapsed_s float8 NOT NULL CHECK (step_elapsed_s >= 0),
    step_started_at timestamptz NOT NULL,
    checkpoint_seq int NOT NULL CHECK (checkpoint_seq >= 0),
    checkpoint_key text,
    retry_count int NOT NULL CHECK (retry_count >= 0),
    final_action text NOT NULL
        CHECK (final_action IN ('retried_call', 'retry', 'released', 'failed', 'told_model')),
    partial_text text CHECK (octet_length(partial_text) <= 65536),
    artefacts jsonb NOT NULL,
    work_trees jsonb NOT NULL,
    problem text,
    PRIMARY KEY (job_id, id),
    CONSTRAINT timeout_event_once UNIQUE NULLS NOT DISTINCT (job_id, attempt, scope, step_key, nth)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.timeout_event IS
    'Receipts of time-outs. Append-only; the transcript up to each are the steps to its checkpoint and its partial text.';
COMMENT ON COLUMN cortex.timeout_event.job_id IS 'The job. No foreign key: a receipt outlives its job.';
COMMENT ON COLUMN cortex.timeout_event.id IS 'Order of the rows.';
COMMENT ON COLUMN cortex.timeout_event.at IS 'When it was recorded.';
COMMENT ON COLUMN cortex.timeout_event.attempt IS 'The attempt that ran out of time.';
COMMENT ON COLUMN cortex.timeout_event.nth IS 'Which time-out of that scope and step in that attempt: a call is tried several times.';
COMMENT ON COLUMN cortex.timeout_event.scope IS 'Whose limit fired.';
COMMENT ON COLUMN cortex.timeout_event.limit_s IS 'That limit, in seconds.';
COMMENT ON COLUMN cortex.timeout_event.elapsed_s IS 'Seconds since that scope began.';
COMMENT ON COLUMN cortex.timeout_event.phase IS
    'model: waiting for an answer · tool: in a tool · step: in a step of the job''s own · handler: between steps.';
COMMENT ON COLUMN cortex.timeout_event.step_key IS 'The step that was interrupted; null between steps.';
COMMENT ON COLUMN cortex.timeout_event.step_elapsed_s IS 'Seconds since that step began, or since the last checkpoint.';
COMMENT ON COLUMN cortex.timeout_event.step_started_at IS 'The same by the pod''s clock: what the files'' times compare with.';
COMMENT ON COLUMN cortex.timeout_event.checkpoint_seq IS 'The last committed step, where the job goes on; 0: none.';
COMMENT ON COLUMN cortex.timeout_event.checkpoint_key IS 'Its key.';
COMMENT ON COLUMN cortex.timeout_event.retry_count IS 'Application retries used by then.';
COMMENT ON COLUMN cortex.timeout_event.final_action IS
    'retried_call: called again in the step · told_model: the model was told · released: tried again by the worker layer · retry: by the application layer · failed: the job failed.';
COMMENT ON COLUMN cortex.timeout_event.partial_text IS 'What the model had said by then.';
COMMENT ON COLUMN cortex.timeout_event.artefacts IS
    'Files of the workspace that the step changed, the newest 200: path, bytes written, when changed.';
COMMENT ON COLUMN cortex.timeout_event.work_trees IS
    'Git work trees of the job''s folder and workspace: root, branch, head, uncommitted changes, diff.';
COMMENT ON COLUMN cortex.timeout_event.problem IS 'Why the files could not be looked at, or not all.';

CREATE TRIGGER timeout_event_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.timeout_event
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

GRANT SELECT, INSERT ON cortex.timeout_event TO cortex_runtime;
