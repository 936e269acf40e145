-- The history of jobs: their transitions, the attempts that ended before their job did, and timeouts.

CREATE TABLE cortex.job_history (
    job_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    previous cortex.job_status,
    new cortex.job_status NOT NULL,
    attempt int NOT NULL,
    pod_id uuid,
    at timestamptz NOT NULL,
    metadata jsonb NOT NULL,
    PRIMARY KEY (job_id, id),
    -- PENDING to FAILED is legal only before the first attempt: no code fitted the job.
    CONSTRAINT legal_transition CHECK (previous IS NULL OR cortex.is_legal_transition(previous, new)
        AND (attempt = 0 OR new <> 'FAILED' OR previous <> 'PENDING'))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.job_history IS 'Every transition of every job, written in the same transaction. Append-only.';
COMMENT ON COLUMN cortex.job_history.job_id IS
    'The job. No foreign key: rows come from the job''s own trigger, and one would make each row three times as '
    'expensive (30 instead of 9 µs). Retention deletes them with the job.';
COMMENT ON COLUMN cortex.job_history.id IS 'Order of the rows.';
COMMENT ON COLUMN cortex.job_history.previous IS 'State before; null in a job''s first row.';
COMMENT ON COLUMN cortex.job_history.new IS 'State after.';
COMMENT ON COLUMN cortex.job_history.attempt IS 'The job''s attempt at that moment.';
COMMENT ON COLUMN cortex.job_history.pod_id IS 'The pod that ran it at that moment.';
COMMENT ON COLUMN cortex.job_history.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN cortex.job_history.metadata IS 'Details of the new state: error, retry, who and why.';
CREATE TRIGGER job_history_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.job_history
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

GRANT SELECT ON cortex.job_history TO cortex_runtime;

-- History is written with the owner's rights: the role of pods can only read the table. The triggers insert once per
-- statement, not once per row: history costs 10 of the 52 µs that a job takes in the server.
CREATE FUNCTION cortex.job_history_of_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT id, NULL, status, attempt, pod_id, created_at, '{}' FROM inserted;
    RETURN NULL;
END $$;
CREATE TRIGGER job_history_of_insert AFTER INSERT ON cortex.job_record
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_insert();

-- The state before is the one that history has last, and not one that the writer claims: a job that no pod has claimed
-- cannot end as if it had run. While a pod runs a job its record keeps an older attempt, and what is written to it
-- meanwhile is no transition, unless it ends the job.
CREATE FUNCTION cortex.job_history_of_update() RETURNS trigger
    -- A look by index for each row: the plan is kept, and the table may have been small when it was made.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    ended uuid[];
BEGIN
    WITH written AS (
        INSERT INTO cortex.job_history AS r (job_id, previous, new, attempt, pod_id, at, metadata)
        SELECT n.id, latest.new, n.status, n.attempt, n.pod_id, n.updated_at,
               CASE n.status
                   WHEN 'FAILED' THEN jsonb_build_object(
                       'error', n.error_message, 'code', n.error_code, 'class', n.error_class)
                   WHEN 'RETRY' THEN jsonb_build_object(
                       'retry_count', n.retry_count, 'next_retry_at', n.next_retry_at, 'waiting_on', n.waiting_on)
                   WHEN 'WAITING_FOR_APPROVAL' THEN
                       CASE WHEN n.waiting_on LIKE 'approval:%' THEN (
                           SELECT jsonb_build_object('waiting_on', n.waiting_on, 'approval', a.id, 'expires_at', a.expires_at)
                           FROM cortex.approval a WHERE a.id = substr(n.waiting_on, 10)::uuid)
                       ELSE jsonb_build_object('waiting_on', n.waiting_on) END
                   WHEN 'CANCELLED' THEN jsonb_build_object('by', n.cancelled_by, 'reason', n.cancel_reason)
                   ELSE '{}'
               END
        FROM after n CROSS JOIN LATERAL (
            SELECT h.new, h.attempt FROM cortex.job_history h WHERE h.job_id = n.id ORDER BY h.id DESC LIMIT 1) latest
        WHERE latest.new <> n.status AND (n.attempt >= latest.attempt OR n.finished_at IS NOT NULL)
        RETURNING r.job_id, r.new AS state
    )
    SELECT array_agg(w.job_id) FILTER (WHERE w.state IN ('COMPLETED', 'FAILED', 'CANCELLED')) INTO ended FROM written w;
    -- Jobs without a family pay one look at the rows of their statement, which are in memory.
    IF ended IS NOT NULL AND EXISTS (SELECT FROM after n WHERE n.parent_id IS NOT NULL OR n.has_children) THEN
        PERFORM cortex.families_end(ended);
    END IF;
    -- Without clients that wait and without subscriptions, each costs one look at an empty table per statement.
    IF ended IS NOT NULL AND EXISTS (SELECT FROM cortex.waiting_client) THEN
        PERFORM cortex.notify_clients(ended);
    END IF;
    IF ended IS NOT NULL AND EXISTS (SELECT FROM cortex.subscription) THEN
        PERFORM cortex.announce_all(
            array_agg(e.topic), array_agg(e.id::text), array_agg(e.content), array_agg(e.tenant), array_agg(e.trace))
        FROM (
            SELECT t.topic, n.id, n.tenant, cortex.traceparent(n.id, n.traceparent) AS trace, jsonb_strip_nulls(jsonb_build_object(
                       'job', n.id, 'type', n.type, 'agent', a.name, 'tenant', n.tenant, 'queue', n.queue_name,
                       'status', n.status, 'attempt', n.attempt, 'finished_at', n.finished_at,
                       'error', CASE WHEN n.status = 'FAILED' THEN jsonb_build_object(
                           'code', n.error_code, 'class', n.error_class, 'source', n.error_source,
                           'message', left(n.error_message, 500)) END,
                       'by', CASE WHEN n.status = 'CANCELLED' THEN n.cancelled_by END,
                       'reason', CASE WHEN n.status = 'CANCELLED' THEN left(n.cancel_reason, 500) END)) AS content
            FROM after n
            JOIN (VALUES ('COMPLETED', 'job.completed'), ('FAILED', 'job.failed'), ('CANCELLED', 'job.cancelled'))
                AS t(status, topic) ON t.status = n.status::text
            LEFT JOIN cortex.agent a ON a.id = n.agent_id
            WHERE n.id = ANY (ended) AND EXISTS (SELECT FROM cortex.subscription s WHERE t.topic LIKE s.topic_like)
            ORDER BY n.id) e
        HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_history_of_update AFTER UPDATE ON cortex.job_record
    REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_update();

-- CREATE TRIGGER needs EXECUTE, which PUBLIC has on a new function. With it, a read-only session could put such a
-- trigger on its own temporary table, and write history with the owner's rights. The same holds for the other trigger
-- functions that run with the owner's rights.
REVOKE EXECUTE ON FUNCTION cortex.job_history_of_insert(), cortex.job_history_of_update() FROM PUBLIC;

-- ------------------------------------------------------------------ attempts

CREATE TABLE cortex.job_attempt (
    job_id uuid NOT NULL,
    attempt int NOT NULL,
    pod_id uuid,
    outcome text NOT NULL CHECK (
        outcome IN ('failed', 'retry', 'suspended', 'handed_back', 'misfit', 'pod_died', 'process_died', 'lease_expired')),
    ended_at timestamptz NOT NULL DEFAULT cortex.now(),
    due_at timestamptz,
    error text,
    error_class text,
    error_code text,
    error_source text,
    retry_count int,
    PRIMARY KEY (job_id, attempt)
);
COMMENT ON TABLE cortex.job_attempt IS
    'Attempts that ended before their job did, one row each: the reason why the job has more than one attempt.';
COMMENT ON COLUMN cortex.job_attempt.job_id IS 'The job.';
COMMENT ON COLUMN cortex.job_attempt.attempt IS 'Which attempt.';
COMMENT ON COLUMN cortex.job_attempt.pod_id IS 'The pod that ran it.';
COMMENT ON COLUMN cortex.job_attempt.outcome IS
    'failed: retried by the worker layer · retry: by the application layer · suspended: waits for a breaker or a '
    'budget · handed_back: its pod drained · misfit: its pod''s code cannot take the job · pod_died: taken over · process_died: its own process died, its pod did '
    'not · lease_expired: its pod fell silent.';
COMMENT ON COLUMN cortex.job_attempt.ended_at IS 'When it ended.';
COMMENT ON COLUMN cortex.job_attempt.due_at IS 'When the next attempt was due; null when a person decides.';
COMMENT ON COLUMN cortex.job_attempt.error IS 'One line, for failed attempts.';
COMMENT ON COLUMN cortex.job_attempt.error_class IS 'Class of the error: decides whether and how it is retried.';
COMMENT ON COLUMN cortex.job_attempt.error_code IS 'Stable code of the error.';
COMMENT ON COLUMN cortex.job_attempt.error_source IS 'What failed, or what the job waits for.';
COMMENT ON COLUMN cortex.job_attempt.retry_count IS 'Application retries used when it ended.';
-- What a drained pod handed back, however many attempts other pods have ended since. Claims and commits pay nothing for
-- it: it holds only attempts that were handed back.
CREATE INDEX job_attempt_handed_back ON cortex.job_attempt (pod_id, ended_at)
    WHERE outcome = 'handed_back';

GRANT SELECT, INSERT ON cortex.job_attempt TO cortex_runtime;

-- ------------------------------------------------------------------ timeouts

CREATE TABLE cortex.timeout_event (
    job_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    attempt int NOT NULL CHECK (attempt >= 1),
    nth int NOT NULL CHECK (nth >= 1),
    scope text NOT NULL CHECK (scope IN ('job', 'step', 'call', 'connect', 'idle')),
    limit_s float8 NOT NULL CHECK (limit_s >= 0),
    elapsed_s float8 NOT NULL CHECK (elapsed_s >= 0),
    phase text NOT NULL CHECK (phase IN ('model', 'tool', 'effect', 'step', 'handler')),
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
    'Receipts of timeouts. Append-only; the transcript up to each receipt is the steps up to its checkpoint and its '
    'partial text.';
COMMENT ON COLUMN cortex.timeout_event.job_id IS 'The job. No foreign key: retention deletes it with its job.';
COMMENT ON COLUMN cortex.timeout_event.id IS 'Order of the rows.';
COMMENT ON COLUMN cortex.timeout_event.at IS 'When it was recorded.';
COMMENT ON COLUMN cortex.timeout_event.attempt IS 'The attempt that ran out of time.';
COMMENT ON COLUMN cortex.timeout_event.nth IS
    'Number of the timeout of that scope and step in that attempt: a call is tried several times.';
COMMENT ON COLUMN cortex.timeout_event.scope IS 'The scope whose limit was exceeded.';
COMMENT ON COLUMN cortex.timeout_event.limit_s IS 'That limit, in seconds.';
COMMENT ON COLUMN cortex.timeout_event.elapsed_s IS 'Seconds since that scope began.';
COMMENT ON COLUMN cortex.timeout_event.phase IS
    'model: waiting for an answer · tool: in a tool · effect: in an effect · step: in a step of the job''s own · '
    'handler: between steps.';
COMMENT ON COLUMN cortex.timeout_event.step_key IS 'The step that was interrupted; null between steps.';
COMMENT ON COLUMN cortex.timeout_event.step_elapsed_s IS 'Seconds since that step began, or since the last checkpoint.';
COMMENT ON COLUMN cortex.timeout_event.step_started_at IS
    'The same by the pod''s clock, for comparison with the times of files.';
COMMENT ON COLUMN cortex.timeout_event.checkpoint_seq IS 'The last committed step, where the job continues; 0: none.';
COMMENT ON COLUMN cortex.timeout_event.checkpoint_key IS 'Its key.';
COMMENT ON COLUMN cortex.timeout_event.retry_count IS 'Application retries used by then.';
COMMENT ON COLUMN cortex.timeout_event.final_action IS
    'retried_call: called again in the step · told_model: reported to the model · released: retried by the worker '
    'layer · retry: by the application layer · failed: the job failed.';
COMMENT ON COLUMN cortex.timeout_event.partial_text IS 'The model''s output so far.';
COMMENT ON COLUMN cortex.timeout_event.artefacts IS
    'Files of the workspace that the step changed, the newest 200: path, bytes written, time of change.';
COMMENT ON COLUMN cortex.timeout_event.work_trees IS
    'Git work trees of the job''s folder and workspace: root, branch, head, uncommitted changes, diff.';
COMMENT ON COLUMN cortex.timeout_event.problem IS 'Why some or all files could not be inspected.';
CREATE TRIGGER timeout_event_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.timeout_event
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

GRANT SELECT, INSERT ON cortex.timeout_event TO cortex_runtime;
