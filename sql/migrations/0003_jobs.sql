-- Jobs: their configuration, their states, their rows, and the rules that every write obeys.

-- ------------------------------------------------------------------ configuration of pods

CREATE TABLE cortex.config (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    spec jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.config IS 'Policies and prices, one immutable row for each set that a pod ever started with.';
COMMENT ON COLUMN cortex.config.id IS 'The id that a job keeps.';
COMMENT ON COLUMN cortex.config.digest IS 'SHA-256 of the canonical JSON: the same set again is the same row.';
COMMENT ON COLUMN cortex.config.spec IS 'Policies by job type and prices by model, as canonical JSON.';
COMMENT ON COLUMN cortex.config.created_at IS 'When a pod first had it.';
CREATE TRIGGER config_is_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.config
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

CREATE TABLE cortex.job_type (
    name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    worker_attempts int NOT NULL CHECK (worker_attempts BETWEEN 1 AND 100),
    max_retries int NOT NULL CHECK (max_retries BETWEEN 0 AND 100),
    timeout_s int NOT NULL CHECK (timeout_s BETWEEN 1 AND 604800),
    timeout_max_s int CHECK (timeout_max_s BETWEEN 1 AND 907200)
);
COMMENT ON TABLE cortex.job_type IS
    'Defaults of each job type: the built-in ones, and those that pods have written; used by submit_job.';
COMMENT ON COLUMN cortex.job_type.name IS 'The name under which handlers are registered.';
COMMENT ON COLUMN cortex.job_type.worker_attempts IS 'Attempts of one task before the job fails.';
COMMENT ON COLUMN cortex.job_type.max_retries IS 'Application retries of one job.';
COMMENT ON COLUMN cortex.job_type.timeout_s IS 'Seconds from the first start of a job to its timeout.';
COMMENT ON COLUMN cortex.job_type.timeout_max_s IS
    'The longest timeout that a job of this type may get. Null, from an old pod: 1.5 times timeout_s.';

-- The built-in ones, so that their jobs may be submitted before any pod has registered.
INSERT INTO cortex.job_type (name, worker_attempts, max_retries, timeout_s, timeout_max_s) VALUES
    ('approval_notify', 10, 5, 300, 450),
    ('bulk', 3, 3, 604800, 907200),
    ('execute_tool', 3, 3, 1200, 1800),
    ('expire_approvals', 2, 0, 60, 90),
    ('http_request', 5, 3, 600, 900),
    ('llm_generate', 3, 5, 3600, 5400),
    ('run_agent', 3, 5, 3600, 5400),
    ('run_flow', 3, 5, 1800, 2700),
    ('send_notification', 10, 5, 300, 450),
    ('sweep_zombies', 2, 0, 60, 90),
    ('webhook_dispatch', 5, 3, 600, 900);

GRANT SELECT, INSERT ON cortex.config TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE ON cortex.job_type TO cortex_runtime;

-- ------------------------------------------------------------------ jobs

CREATE TYPE cortex.job_status AS ENUM (
    'PENDING', 'RUNNING', 'WAITING_FOR_APPROVAL', 'RETRY', 'COMPLETED', 'FAILED', 'CANCELLED');
COMMENT ON TYPE cortex.job_status IS 'State of a job; the last three are terminal.';

CREATE FUNCTION cortex.is_traceparent(header text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN header ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' AND header !~ '^ff'
        AND header !~ '^...0{32}' AND header !~ '-0{16}-..$';
COMMENT ON FUNCTION cortex.is_traceparent IS 'Whether it is a traceparent as W3C Trace Context defines it.';

CREATE FUNCTION cortex.trace_id(job uuid, traceparent text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(substr(traceparent, 4, 32), replace(job::text, '-', ''));
COMMENT ON FUNCTION cortex.trace_id IS
    'The trace of a job: that of the traceparent it was submitted with, else its own, named by its id.';

CREATE FUNCTION cortex.traceparent(job uuid, traceparent text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '00-' || cortex.trace_id(job, traceparent) || '-' || right(replace(job::text, '-', ''), 16) || '-'
        || coalesce(right(traceparent, 2), '01');
COMMENT ON FUNCTION cortex.traceparent IS 'What a job hands on: its trace, and its own span as the parent.';

CREATE TABLE cortex.job_record (
    id uuid CONSTRAINT job_pkey PRIMARY KEY,
    type text NOT NULL,
    tenant text NOT NULL DEFAULT 'default' CHECK (length(tenant) BETWEEN 1 AND 100),
    agent_id uuid,
    agent_version int,
    status cortex.job_status NOT NULL DEFAULT 'PENDING',
    attempt int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    retry_count int NOT NULL DEFAULT 0,
    max_retries int NOT NULL DEFAULT 3 CHECK (max_retries BETWEEN 0 AND 100),
    worker_attempts int NOT NULL DEFAULT 3 CHECK (worker_attempts BETWEEN 1 AND 100),
    pod_deaths int NOT NULL DEFAULT 0 CHECK (pod_deaths >= 0),
    timeout_s int NOT NULL DEFAULT 3600 CHECK (timeout_s BETWEEN 1 AND 604800),
    priority smallint NOT NULL DEFAULT 0,
    queue_name text CHECK (length(queue_name) BETWEEN 1 AND 100),
    pod_id uuid,
    worker_job_id bigint,
    next_retry_at timestamptz,
    run_at timestamptz NOT NULL DEFAULT cortex.now(),
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    updated_at timestamptz NOT NULL DEFAULT cortex.now(),
    cancelled_by text,
    cancel_reason text,
    error_message text,
    error_code text,
    checkpoint jsonb NOT NULL DEFAULT '{}',
    result jsonb,
    payload jsonb NOT NULL,
    config_id int,
    waiting_on text CHECK (length(waiting_on) BETWEEN 1 AND 300),
    suspended_at timestamptz,
    waited_s float8 NOT NULL DEFAULT 0,
    rate_limit_count int NOT NULL DEFAULT 0,
    attempts_kept int NOT NULL DEFAULT 0,
    waits_count int NOT NULL DEFAULT 0,
    own_failure_at timestamptz,
    broken_answers int NOT NULL DEFAULT 0,
    job_key text CHECK (length(job_key) BETWEEN 1 AND 500),
    error_class text,
    error_source text,
    origin_id uuid,
    lineage_id uuid,
    submitted_by text DEFAULT nullif(current_setting('cortex.actor', true), ''),
    has_open boolean NOT NULL DEFAULT false,
    was_suspect boolean NOT NULL DEFAULT false,
    submitted_with text DEFAULT coalesce(nullif(current_setting('cortex.credential', true), ''), 'db:' || session_user),
    process_deaths int NOT NULL DEFAULT 0 CHECK (process_deaths >= 0),
    tags text[] CONSTRAINT tags_are_few CHECK (cardinality(tags) BETWEEN 1 AND 20),
    unfit_codes int[] CHECK (cardinality(unfit_codes) >= 1),
    traceparent text, -- checked at submit alone: here each update would match it again
    replaced_by uuid,
    due_by timestamptz,
    parent_id uuid,
    has_children boolean,
    FOREIGN KEY (agent_id, agent_version) REFERENCES cortex.agent_version,
    CONSTRAINT agent_and_version_together CHECK ((agent_id IS NULL) = (agent_version IS NULL)),
    CONSTRAINT retry_count_within_limit CHECK (retry_count >= 0 AND retry_count <= max_retries),
    CONSTRAINT next_retry_at_only_in_retry CHECK ((next_retry_at IS NOT NULL) = (status = 'RETRY')),
    CONSTRAINT finished_at_only_when_terminal
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'CANCELLED'))),
    CONSTRAINT error_message_only_in_failed CHECK ((error_message IS NOT NULL) = (status = 'FAILED')),
    CONSTRAINT result_only_in_completed CHECK (result IS NULL OR status = 'COMPLETED'),
    -- jsonb is at most a few times its text; the exact limit of 256 KiB of text is checked at submit.
    CONSTRAINT payload_size CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT checkpoint_is_small CHECK (pg_column_size(checkpoint) <= 16384),
    CONSTRAINT waiting_only_when_suspended
        CHECK (waiting_on IS NULL OR status IN ('RETRY', 'WAITING_FOR_APPROVAL')),
    CONSTRAINT waiting_for_something CHECK (status <> 'WAITING_FOR_APPROVAL' OR waiting_on IS NOT NULL),
    CONSTRAINT error_class_only_in_failed CHECK (error_class IS NULL OR status = 'FAILED'),
    CONSTRAINT lineage_with_origin CHECK ((origin_id IS NULL) = (lineage_id IS NULL))
) WITH (
    fillfactor = 70,                            -- room for HOT updates of the checkpoint head
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);
COMMENT ON TABLE cortex.job_record IS
    'The permanent record of one job. While a pod runs the job, its state is in its task, and the record keeps what was '
    'before: read cortex.job, which is always right.';
COMMENT ON COLUMN cortex.job_record.id IS 'UUIDv7 made by the submitter, so that a repeated submit finds the same job.';
COMMENT ON COLUMN cortex.job_record.type IS 'The registered handler that runs it.';
COMMENT ON COLUMN cortex.job_record.tenant IS 'The tenant that owns it.';
COMMENT ON COLUMN cortex.job_record.agent_id IS 'The agent that it runs, if it runs one.';
COMMENT ON COLUMN cortex.job_record.agent_version IS 'The agent''s version, bound at submit and kept on every attempt.';
COMMENT ON COLUMN cortex.job_record.status IS 'Its state; illegal transitions are refused.';
COMMENT ON COLUMN cortex.job_record.attempt IS 'Number of its latest run, never reused: the fence of every write.';
COMMENT ON COLUMN cortex.job_record.retry_count IS 'Application retries used.';
COMMENT ON COLUMN cortex.job_record.max_retries IS 'Application retries allowed.';
COMMENT ON COLUMN cortex.job_record.worker_attempts IS 'Worker attempts of each of its tasks.';
COMMENT ON COLUMN cortex.job_record.pod_deaths IS
    'Pods that died while running it, consecutively and without a step in between: makes it a suspect, but does not '
    'condemn it.';
COMMENT ON COLUMN cortex.job_record.timeout_s IS 'Seconds from started_at to its timeout.';
COMMENT ON COLUMN cortex.job_record.priority IS 'Smaller runs first.';
COMMENT ON COLUMN cortex.job_record.queue_name IS
    'Jobs of one named queue run one after another; of a strict one, the next begins when the one before has ended.';
COMMENT ON COLUMN cortex.job_record.pod_id IS 'The pod that runs it, or ran it last; null between attempts.';
COMMENT ON COLUMN cortex.job_record.worker_job_id IS 'Its task: a soft reference, null when it has no task.';
COMMENT ON COLUMN cortex.job_record.next_retry_at IS 'When RETRY becomes due.';
COMMENT ON COLUMN cortex.job_record.run_at IS 'Not before this instant.';
COMMENT ON COLUMN cortex.job_record.started_at IS 'When its first attempt began.';
COMMENT ON COLUMN cortex.job_record.finished_at IS 'When it reached its terminal state.';
COMMENT ON COLUMN cortex.job_record.cancel_requested_at IS 'When a person requested its cancellation; its pod stops it.';
COMMENT ON COLUMN cortex.job_record.created_at IS 'When it was submitted.';
COMMENT ON COLUMN cortex.job_record.updated_at IS 'When any column last changed.';
COMMENT ON COLUMN cortex.job_record.cancelled_by IS 'Who requested its cancellation.';
COMMENT ON COLUMN cortex.job_record.cancel_reason IS 'Why.';
COMMENT ON COLUMN cortex.job_record.error_message IS 'One line for people, set only in FAILED.';
COMMENT ON COLUMN cortex.job_record.error_code IS 'Stable code of that error.';
COMMENT ON COLUMN cortex.job_record.checkpoint IS 'Small summary of its progress: step, seq, phase, totals.';
COMMENT ON COLUMN cortex.job_record.result IS 'The return value of its handler.';
COMMENT ON COLUMN cortex.job_record.payload IS 'Its arguments, as submitted; immutable.';
COMMENT ON COLUMN cortex.job_record.config_id IS 'Policies and prices that it started with, and keeps on every attempt.';
COMMENT ON COLUMN cortex.job_record.waiting_on IS
    'What it waits for besides time: a breaker (llm:NAME, tool:NAME …), budget:NAME, quota:NAME, effects:all (the '
    'freeze), approval:ID, effect:ID (an unknown outcome), person:WHAT, trust:AGENT/SERVER.TOOL (a changed tool, see '
    'mcp_tool), signal:NAME, child:STEP, or code: code that can take it, see tasks.misfit; then it fails at next_retry_at.';
COMMENT ON COLUMN cortex.job_record.suspended_at IS
    'Since when no pod has it; null while a pod has it, and before its first start.';
COMMENT ON COLUMN cortex.job_record.waited_s IS 'Seconds between attempts so far: they do not count towards its timeout.';
COMMENT ON COLUMN cortex.job_record.rate_limit_count IS 'Application retries caused by a rate limit.';
COMMENT ON COLUMN cortex.job_record.attempts_kept IS
    'Worker attempts that its next task starts with: those of a task that ended to wait, not to retry.';
COMMENT ON COLUMN cortex.job_record.waits_count IS
    'How often in a row it waited for a breaker or a budget without a step in between.';
COMMENT ON COLUMN cortex.job_record.own_failure_at IS
    'When it last had to wait because its own call failed, without a step since then.';
COMMENT ON COLUMN cortex.job_record.broken_answers IS
    'How often in a row its own call failed in the middle of an answer; no longer valid when own_failure_at is null.';
COMMENT ON COLUMN cortex.job_record.job_key IS
    'The key that it was submitted with: a new job with the same key replaces it while it waits.';
COMMENT ON COLUMN cortex.job_record.error_class IS 'Class of the error that it failed with.';
COMMENT ON COLUMN cortex.job_record.error_source IS
    'What failed: the name of a breaker, as in waiting_on; null for its own code.';
COMMENT ON COLUMN cortex.job_record.origin_id IS 'The failed job that it continues.';
COMMENT ON COLUMN cortex.job_record.lineage_id IS
    'The first job of its lineage, which names the workspace. Null if that is the job itself.';
COMMENT ON COLUMN cortex.job_record.submitted_by IS 'Who submitted it: the session''s setting cortex.actor; of a login that may only submit, a label beside its name.';
COMMENT ON COLUMN cortex.job_record.has_open IS 'It has had effects or approvals: open ones are closed when it ends.';
COMMENT ON COLUMN cortex.job_record.was_suspect IS
    'Its task was a suspect when it started to wait; its next task is one, unless it has made a step.';
COMMENT ON COLUMN cortex.job_record.submitted_with IS
    'The credential that submitted it: os:UID, token:ID or db:LOGIN.';
COMMENT ON COLUMN cortex.job_record.process_deaths IS
    'Processes of its own that died while running it, with their pods alive, consecutively and without a step in '
    'between: the poison guard.';
COMMENT ON COLUMN cortex.job_record.tags IS 'Words that people find it by, sorted; null: none.';
COMMENT ON COLUMN cortex.job_record.unfit_codes IS
    'The codes of pods that found that they cannot take it, sorted: pods of these do not claim it. Null: none did.';
COMMENT ON COLUMN cortex.job_record.traceparent IS
    'The trace and span that it was submitted in; null: its trace is its own, see cortex.trace_id.';
COMMENT ON COLUMN cortex.job_record.replaced_by IS
    'The job that took its key while it ran: when its attempt ends without ending it, it is cancelled.';
COMMENT ON COLUMN cortex.job_record.due_by IS
    'Its deadline: among jobs of one priority the earliest runs first, before those without one. A late job runs, too.';
COMMENT ON COLUMN cortex.job_record.parent_id IS
    'The job whose code submitted it, see cortex.job_child; null: a person or a program did.';
COMMENT ON COLUMN cortex.job_record.has_children IS
    'Its code has submitted jobs, which are to be cancelled when it ends; null: it has not.';
-- RETRY without a task, by what the job waits for: time and what has many names, which wakes the job itself (a budget, a
-- signal, children, people), or a breaker.
CREATE INDEX job_due_by_time ON cortex.job_record (next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND (waiting_on IS NULL OR waiting_on ~ '^(approval|budget|child|signal):');
CREATE INDEX job_due_by_breaker ON cortex.job_record (waiting_on, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):';
-- The job that probes a breaker, among those of the default queue whose type can be claimed.
CREATE INDEX job_prober ON cortex.job_record (waiting_on, type, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):' AND queue_name IS NULL;
-- Jobs released by a breaker or a quota that no pod has claimed yet.
CREATE INDEX job_let_go ON cortex.job_record (waiting_on, next_retry_at)
    WHERE status = 'RETRY' AND worker_job_id IS NOT NULL AND waiting_on IS NOT NULL;
-- A failed job is continued once.
CREATE UNIQUE INDEX job_origin ON cortex.job_record (origin_id) WHERE origin_id IS NOT NULL;
-- Jobs with a key that wait without a task: a new job with the same key replaces them.
CREATE INDEX job_key ON cortex.job_record (job_key, tenant) WHERE job_key IS NOT NULL AND worker_job_id IS NULL
    AND status IN ('RETRY', 'WAITING_FOR_APPROVAL');
CREATE INDEX job_waits_for_budget ON cortex.job_record (waiting_on, id)
    WHERE status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND worker_job_id IS NULL AND waiting_on LIKE 'budget:%';
-- The jobs of a named queue that have begun and have no pod: the next one of a strict queue waits for them.
CREATE INDEX job_begun_in_queue ON cortex.job_record (queue_name)
    WHERE queue_name IS NOT NULL AND status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL');
CREATE INDEX job_lineage ON cortex.job_record (lineage_id) WHERE lineage_id IS NOT NULL;
CREATE INDEX job_waits_for_quota ON cortex.job_record (waiting_on, suspended_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'quota:%';
-- Lists of jobs, newest first: read backwards, so that new jobs fill the last page of their state.
CREATE INDEX job_status ON cortex.job_record (status, created_at, id);
CREATE INDEX job_agent ON cortex.job_record (agent_id, created_at, id) WHERE agent_id IS NOT NULL;
-- Lists of one tenant's jobs. Jobs of the tenant that all have who name none pay nothing for it.
CREATE INDEX job_tenant ON cortex.job_record (tenant, created_at, id) WHERE tenant <> 'default';
-- What the cap of a tenant is compared with.
CREATE INDEX job_unfinished ON cortex.job_record (tenant)
    WHERE tenant <> 'default' AND status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL');
-- The list of jobs in RETRY by due time. The id makes pages exact when many are due at the same instant.
CREATE INDEX job_retry_due ON cortex.job_record (next_retry_at, id) WHERE status = 'RETRY';
CREATE INDEX job_waits_for_person ON cortex.job_record (suspended_at)
    WHERE status = 'WAITING_FOR_APPROVAL' AND waiting_on LIKE 'person:%';
CREATE INDEX job_waits_for_trust ON cortex.job_record (suspended_at)
    WHERE status = 'RETRY' AND waiting_on LIKE 'trust:%';

GRANT SELECT, INSERT, UPDATE ON cortex.job_record TO cortex_runtime;

-- ------------------------------------------------------------------ rules of jobs

CREATE FUNCTION cortex.is_legal_transition(previous cortex.job_status, new cortex.job_status)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE previous
        WHEN 'PENDING' THEN new IN ('RUNNING', 'FAILED', 'CANCELLED')
        WHEN 'RUNNING' THEN new IN ('COMPLETED', 'FAILED', 'WAITING_FOR_APPROVAL', 'RETRY', 'CANCELLED')
        WHEN 'RETRY' THEN new IN ('RUNNING', 'FAILED', 'CANCELLED')
        WHEN 'WAITING_FOR_APPROVAL' THEN new IN ('RUNNING', 'FAILED', 'CANCELLED')
        ELSE false
    END;
COMMENT ON FUNCTION cortex.is_legal_transition IS 'The single table of legal transitions.';

CREATE FUNCTION cortex.waited_s(before float8, suspended_at timestamptz, until timestamptz) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN before + coalesce(date_part('epoch', until - suspended_at), 0);
COMMENT ON FUNCTION cortex.waited_s IS
    'Seconds that a job has been without a pod until its attempt began: those of earlier waits and of the last one.';

CREATE FUNCTION cortex.state_before(recorded cortex.job_status, old_attempt int, new_attempt int)
    RETURNS cortex.job_status LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN new_attempt > old_attempt AND recorded NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
                THEN 'RUNNING' ELSE recorded END;
COMMENT ON FUNCTION cortex.state_before IS
    'The state of a job before a write to its record, as far as the record shows it. A write that brings a new attempt '
    'ends that attempt, and while it ran the record kept the state from before. History knows whether there was one.';

CREATE FUNCTION cortex.job_moves_illegally() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % cannot go from % to %', OLD.id,
        cortex.state_before(OLD.status, OLD.attempt, NEW.attempt), NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
END $$;
CREATE TRIGGER job_moves_illegally BEFORE UPDATE OF status ON cortex.job_record
    FOR EACH ROW WHEN (
        cortex.state_before(OLD.status, OLD.attempt, NEW.attempt) <> NEW.status
        AND NOT cortex.is_legal_transition(cortex.state_before(OLD.status, OLD.attempt, NEW.attempt), NEW.status))
    EXECUTE FUNCTION cortex.job_moves_illegally();

CREATE FUNCTION cortex.job_begins_elsewhere() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % must begin as PENDING, not %', NEW.id, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
END $$;
CREATE TRIGGER job_begins_elsewhere BEFORE INSERT ON cortex.job_record
    FOR EACH ROW WHEN (NEW.status <> 'PENDING') EXECUTE FUNCTION cortex.job_begins_elsewhere();

-- A job that lost its key while it ran has no further attempt, however this one ends: its successor may have run by
-- then. A write that ends no attempt, such as a request to cancel, leaves the job to its pod. Fires before the other
-- rules: triggers fire in the order of their names.
CREATE FUNCTION cortex.job_is_replaced() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'CANCELLED';
    NEW.next_retry_at := NULL;
    NEW.waiting_on := NULL;
    NEW.cancelled_by := coalesce(NEW.cancelled_by, 'submit');
    NEW.cancel_reason := coalesce(
        NEW.cancel_reason, cortex_worker.replaced_reason(NEW.replaced_by, NEW.job_key));
    RETURN NEW;
END $$;
CREATE TRIGGER job_is_replaced BEFORE UPDATE OF status ON cortex.job_record
    FOR EACH ROW WHEN (
        NEW.replaced_by IS NOT NULL AND NEW.status IN ('RETRY', 'WAITING_FOR_APPROVAL', 'CANCELLED')
        AND (NEW.status <> OLD.status OR NEW.attempt <> OLD.attempt OR NEW.worker_job_id IS NULL))
    EXECUTE FUNCTION cortex.job_is_replaced();

-- The statements of the hot path write these themselves: then this is not called.
CREATE FUNCTION cortex.job_stamps() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := cortex.now();
    IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND NEW.status <> OLD.status THEN
        NEW.finished_at := cortex.now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_stamps BEFORE UPDATE ON cortex.job_record
    FOR EACH ROW WHEN (
        NEW.updated_at = OLD.updated_at
        OR NEW.finished_at IS NULL AND NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED'))
    EXECUTE FUNCTION cortex.job_stamps();

CREATE FUNCTION cortex.job_type_is_valid() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job type "%" is not valid', NEW.type
        USING ERRCODE = 'check_violation', CONSTRAINT = 'job_type_check',
              HINT = '1 to 100 letters, digits, dots, underscores and dashes, the first a letter or digit';
END $$;
-- Not a CHECK: that would match the expression again at each update, which costs more than the rest of it. And not with
-- {0,99} in it: that expression has a hundred states, and costs as much as two index entries.
CREATE TRIGGER job_type_is_valid BEFORE INSERT ON cortex.job_record
    FOR EACH ROW WHEN (NEW.type !~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' OR length(NEW.type) > 100)
    EXECUTE FUNCTION cortex.job_type_is_valid();

CREATE FUNCTION cortex.job_is_immutable() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    -- A newer submit of a debounce gives the waiting job its arguments: see cortex_worker.move_debounced.
    IF NEW.type = OLD.type AND EXISTS (
        SELECT FROM cortex.submit_rule r JOIN cortex_worker.task t ON t.job_id = OLD.id
        WHERE r.type = OLD.type AND r.kind = 'debounce' AND t.attempt = 0 AND t.state <> 'LOCKED')
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the type and the payload of job % are immutable', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'job_is_immutable';
END $$;
CREATE TRIGGER job_is_immutable BEFORE UPDATE OF type, payload ON cortex.job_record
    FOR EACH ROW WHEN (NEW.type <> OLD.type OR NEW.payload <> OLD.payload)
    EXECUTE FUNCTION cortex.job_is_immutable();
