-- 0001 spine: jobs, their history and steps, agents, pods, and the worker queue.
--
-- Locks: none that matter, every object is new. Old pods: there are none.
-- Forward only: never edited after it has landed; the runner records its digest.

CREATE SCHEMA IF NOT EXISTS cortex;
CREATE SCHEMA cortex_worker;

COMMENT ON SCHEMA cortex IS 'The permanent record: jobs, history, steps, agents, pods.';
COMMENT ON SCHEMA cortex_worker IS 'The transient queue: a task lives until its job needs no pod any more.';

-- ------------------------------------------------------------------ clock and identifiers

CREATE FUNCTION cortex.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN statement_timestamp();
COMMENT ON FUNCTION cortex.now() IS
    'The only clock that leases, due times and stamps use. A test moves time by replacing it.';

CREATE FUNCTION cortex.uuid7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(
        -- 48 bits of Unix milliseconds, then random bits with version 7 and the variant of a v4.
        substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        || set_bit(set_bit(substring(uuid_send(gen_random_uuid()) FROM 7), 4, 1), 5, 1),
        'hex')::uuid;
COMMENT ON FUNCTION cortex.uuid7() IS 'A time-ordered identifier (RFC 9562, version 7) for callers in plain SQL.';

-- ------------------------------------------------------------------ agents

CREATE TABLE cortex.agent (
    id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    version int NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.agent IS 'A named agent; what it is stands in its immutable versions.';
COMMENT ON COLUMN cortex.agent.id IS 'UUIDv7 made by the application.';
COMMENT ON COLUMN cortex.agent.name IS 'The name that people and jobs use.';
COMMENT ON COLUMN cortex.agent.version IS 'The newest version: what a job submitted now will use.';
COMMENT ON COLUMN cortex.agent.created_at IS 'When the first version was applied.';

CREATE TABLE cortex.agent_version (
    agent_id uuid NOT NULL REFERENCES cortex.agent,
    version int NOT NULL CHECK (version >= 1),
    spec jsonb NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    applied_by text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (agent_id, version)
);
COMMENT ON TABLE cortex.agent_version IS 'One immutable version of an agent''s specification.';
COMMENT ON COLUMN cortex.agent_version.agent_id IS 'The agent.';
COMMENT ON COLUMN cortex.agent_version.version IS '1, 2, 3 … without gaps.';
COMMENT ON COLUMN cortex.agent_version.spec IS 'The specification as canonical JSON.';
COMMENT ON COLUMN cortex.agent_version.digest IS 'SHA-256 of the canonical JSON: applying the same again makes no version.';
COMMENT ON COLUMN cortex.agent_version.applied_by IS 'Who applied it.';
COMMENT ON COLUMN cortex.agent_version.applied_at IS 'When it was applied.';

CREATE FUNCTION cortex.refuse_change() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%.% is append-only: % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER agent_version_is_immutable
    BEFORE UPDATE OR DELETE ON cortex.agent_version
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- ------------------------------------------------------------------ job types

CREATE TABLE cortex.job_type (
    name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    worker_attempts int NOT NULL CHECK (worker_attempts BETWEEN 1 AND 100),
    max_retries int NOT NULL CHECK (max_retries BETWEEN 0 AND 100),
    timeout_s int NOT NULL CHECK (timeout_s BETWEEN 1 AND 604800)
);
COMMENT ON TABLE cortex.job_type IS 'Defaults of each job type, written by the pods that know it; used by submit_job.';
COMMENT ON COLUMN cortex.job_type.name IS 'The name under which handlers are registered.';
COMMENT ON COLUMN cortex.job_type.worker_attempts IS 'Attempts of one task before the job fails.';
COMMENT ON COLUMN cortex.job_type.max_retries IS 'Application retries of one job.';
COMMENT ON COLUMN cortex.job_type.timeout_s IS 'Seconds from the first start of a job to its time-out.';

-- ------------------------------------------------------------------ jobs

CREATE TYPE cortex.job_status AS ENUM (
    'PENDING', 'RUNNING', 'WAITING_FOR_APPROVAL', 'RETRY', 'COMPLETED', 'FAILED', 'CANCELLED');
COMMENT ON TYPE cortex.job_status IS 'State of a job; the last three are terminal.';

CREATE TABLE cortex.job (
    id uuid PRIMARY KEY,
    type text NOT NULL CHECK (type ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
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
    approval_token bytea CHECK (octet_length(approval_token) = 32),
    next_retry_at timestamptz,
    heartbeat_at timestamptz,
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
    FOREIGN KEY (agent_id, agent_version) REFERENCES cortex.agent_version,
    CONSTRAINT agent_and_version_together CHECK ((agent_id IS NULL) = (agent_version IS NULL)),
    CONSTRAINT retry_count_within_limit CHECK (retry_count >= 0 AND retry_count <= max_retries),
    CONSTRAINT next_retry_at_only_in_retry CHECK ((next_retry_at IS NOT NULL) = (status = 'RETRY')),
    CONSTRAINT approval_token_only_in_approval
        CHECK ((approval_token IS NOT NULL) = (status = 'WAITING_FOR_APPROVAL')),
    CONSTRAINT finished_at_only_when_terminal
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'CANCELLED'))),
    CONSTRAINT error_message_only_in_failed CHECK ((error_message IS NOT NULL) = (status = 'FAILED')),
    CONSTRAINT result_only_in_completed CHECK (result IS NULL OR status = 'COMPLETED'),
    -- jsonb is at most a few times its text; the exact limit of 256 KiB of text is checked at submit.
    CONSTRAINT payload_size CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT checkpoint_is_small CHECK (pg_column_size(checkpoint) <= 16384)
) WITH (
    fillfactor = 70,                            -- room for HOT updates of the checkpoint head
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);
COMMENT ON TABLE cortex.job IS 'The permanent record of one job.';
COMMENT ON COLUMN cortex.job.id IS 'UUIDv7 made by the submitter, so that a repeated submit is found again.';
COMMENT ON COLUMN cortex.job.type IS 'Which registered handler runs it.';
COMMENT ON COLUMN cortex.job.tenant IS 'Whose job it is.';
COMMENT ON COLUMN cortex.job.agent_id IS 'The agent that it runs, if it runs one.';
COMMENT ON COLUMN cortex.job.agent_version IS 'The agent''s version, bound at submit and kept on every attempt.';
COMMENT ON COLUMN cortex.job.status IS 'Where it stands; illegal transitions are refused.';
COMMENT ON COLUMN cortex.job.attempt IS 'Number of its latest run, never reused: the fence of every write.';
COMMENT ON COLUMN cortex.job.retry_count IS 'Application retries used.';
COMMENT ON COLUMN cortex.job.max_retries IS 'Application retries allowed.';
COMMENT ON COLUMN cortex.job.worker_attempts IS 'Worker attempts of each of its tasks.';
COMMENT ON COLUMN cortex.job.pod_deaths IS 'Pods that died while running it, in a row and without a step in between: the poison guard.';
COMMENT ON COLUMN cortex.job.timeout_s IS 'Seconds from started_at to its time-out.';
COMMENT ON COLUMN cortex.job.priority IS 'Smaller runs first.';
COMMENT ON COLUMN cortex.job.queue_name IS 'Jobs of one named queue run one after another.';
COMMENT ON COLUMN cortex.job.pod_id IS 'The pod that runs it, or ran it last; null between attempts.';
COMMENT ON COLUMN cortex.job.worker_job_id IS 'Its task: a soft reference, null when nothing is in flight.';
COMMENT ON COLUMN cortex.job.approval_token IS 'SHA-256 of the token of the approval that it waits for.';
COMMENT ON COLUMN cortex.job.next_retry_at IS 'When RETRY becomes due.';
COMMENT ON COLUMN cortex.job.heartbeat_at IS 'When its pod last said that it runs; null between attempts.';
COMMENT ON COLUMN cortex.job.run_at IS 'Not before this instant.';
COMMENT ON COLUMN cortex.job.started_at IS 'When its first attempt began.';
COMMENT ON COLUMN cortex.job.finished_at IS 'When it reached its terminal state.';
COMMENT ON COLUMN cortex.job.cancel_requested_at IS 'When a person asked for its end; its pod stops it.';
COMMENT ON COLUMN cortex.job.created_at IS 'When it was submitted.';
COMMENT ON COLUMN cortex.job.updated_at IS 'Stamped on any change.';
COMMENT ON COLUMN cortex.job.cancelled_by IS 'Who asked for its cancellation.';
COMMENT ON COLUMN cortex.job.cancel_reason IS 'Why.';
COMMENT ON COLUMN cortex.job.error_message IS 'One line for people, set exactly in FAILED.';
COMMENT ON COLUMN cortex.job.error_code IS 'Stable code of that error.';
COMMENT ON COLUMN cortex.job.checkpoint IS 'Small head of its progress: step, seq, phase, totals.';
COMMENT ON COLUMN cortex.job.result IS 'What its handler returned.';
COMMENT ON COLUMN cortex.job.payload IS 'What it was submitted with; immutable.';

CREATE INDEX job_pending ON cortex.job (created_at) WHERE status = 'PENDING';
CREATE INDEX job_retry ON cortex.job (next_retry_at) WHERE status = 'RETRY';
CREATE INDEX job_approval ON cortex.job (approval_token) WHERE status = 'WAITING_FOR_APPROVAL';
CREATE INDEX job_running ON cortex.job (heartbeat_at) WHERE status = 'RUNNING';
CREATE INDEX job_worker_job ON cortex.job (worker_job_id) WHERE worker_job_id IS NOT NULL;
CREATE INDEX job_agent ON cortex.job (agent_id, created_at DESC) WHERE agent_id IS NOT NULL;
CREATE INDEX job_status ON cortex.job (status, created_at DESC);

-- ------------------------------------------------------------------ history

CREATE TABLE cortex.job_history (
    job_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    previous cortex.job_status,
    new cortex.job_status NOT NULL,
    attempt int NOT NULL,
    pod_id uuid,
    at timestamptz NOT NULL,
    metadata jsonb NOT NULL,
    PRIMARY KEY (job_id, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.job_history IS 'Every transition of every job, in the transaction that made it. Append-only.';
COMMENT ON COLUMN cortex.job_history.job_id IS 'The job. No foreign key: rows come from the job''s own trigger.';
COMMENT ON COLUMN cortex.job_history.id IS 'Order of the rows.';
COMMENT ON COLUMN cortex.job_history.previous IS 'State before; null in a job''s first row.';
COMMENT ON COLUMN cortex.job_history.new IS 'State after.';
COMMENT ON COLUMN cortex.job_history.attempt IS 'The job''s attempt at that moment.';
COMMENT ON COLUMN cortex.job_history.pod_id IS 'The pod that ran it at that moment.';
COMMENT ON COLUMN cortex.job_history.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN cortex.job_history.metadata IS 'What belongs to the new state: error, retry, who and why.';

CREATE FUNCTION cortex.is_legal_transition(previous cortex.job_status, new cortex.job_status)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE previous
        WHEN 'PENDING' THEN new IN ('RUNNING', 'CANCELLED')
        WHEN 'RUNNING' THEN new IN ('COMPLETED', 'FAILED', 'WAITING_FOR_APPROVAL', 'RETRY', 'CANCELLED')
        WHEN 'RETRY' THEN new IN ('RUNNING', 'FAILED', 'CANCELLED')
        WHEN 'WAITING_FOR_APPROVAL' THEN new IN ('RUNNING', 'FAILED', 'CANCELLED')
        ELSE false
    END;
COMMENT ON FUNCTION cortex.is_legal_transition IS 'The one table of legal transitions.';

CREATE FUNCTION cortex.job_before_update() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := cortex.now();
    IF NEW.status <> OLD.status THEN
        IF NOT cortex.is_legal_transition(OLD.status, NEW.status) THEN
            RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
        END IF;
        IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN
            NEW.finished_at := cortex.now();
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_before_update BEFORE UPDATE ON cortex.job
    FOR EACH ROW EXECUTE FUNCTION cortex.job_before_update();

CREATE FUNCTION cortex.job_before_insert() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % must begin as PENDING, not %', NEW.id, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
END $$;
CREATE TRIGGER job_begins_pending BEFORE INSERT ON cortex.job
    FOR EACH ROW WHEN (NEW.status <> 'PENDING') EXECUTE FUNCTION cortex.job_before_insert();

CREATE FUNCTION cortex.job_payload_is_immutable() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the payload of job % is immutable', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_is_immutable';
END $$;
CREATE TRIGGER job_payload_is_immutable BEFORE UPDATE OF payload ON cortex.job
    FOR EACH ROW WHEN (NEW.payload IS DISTINCT FROM OLD.payload)
    EXECUTE FUNCTION cortex.job_payload_is_immutable();

-- History is written with the owner's rights: the runtime's role can only read the table. One insert a
-- statement, not one a row: measured, 10 of 52 us of a job's life in the server.
CREATE FUNCTION cortex.job_history_of_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT id, NULL, status, attempt, pod_id, created_at, '{}' FROM inserted;
    RETURN NULL;
END $$;
CREATE TRIGGER job_history_of_insert AFTER INSERT ON cortex.job
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_insert();

CREATE FUNCTION cortex.job_history_of_update() RETURNS trigger
    -- The runtime's sessions forbid hash joins; without one, this would compare each row with each.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET enable_hashjoin = on AS $$
BEGIN
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT n.id, o.status, n.status, n.attempt, n.pod_id, n.updated_at,
           CASE n.status
               WHEN 'FAILED' THEN jsonb_build_object('error', n.error_message, 'code', n.error_code)
               WHEN 'RETRY' THEN jsonb_build_object(
                   'retry_count', n.retry_count, 'next_retry_at', n.next_retry_at)
               WHEN 'CANCELLED' THEN jsonb_build_object('by', n.cancelled_by, 'reason', n.cancel_reason)
               ELSE '{}'
           END
    FROM after n JOIN before o ON o.id = n.id
    WHERE o.status <> n.status;
    RETURN NULL;
END $$;
CREATE TRIGGER job_history_of_update AFTER UPDATE ON cortex.job
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_update();

CREATE TRIGGER job_history_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.job_history
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- ------------------------------------------------------------------ attempts that did not finish the job

CREATE TABLE cortex.job_attempt (
    job_id uuid NOT NULL,
    attempt int NOT NULL,
    pod_id uuid,
    outcome text NOT NULL CHECK (outcome IN ('failed', 'handed_back', 'pod_died', 'lease_expired')),
    ended_at timestamptz NOT NULL DEFAULT cortex.now(),
    due_at timestamptz NOT NULL,
    error text,
    PRIMARY KEY (job_id, attempt)
);
COMMENT ON TABLE cortex.job_attempt IS
    'Attempts that ended before their job did, one row each: why the job has more than one attempt.';
COMMENT ON COLUMN cortex.job_attempt.job_id IS 'The job.';
COMMENT ON COLUMN cortex.job_attempt.attempt IS 'Which attempt.';
COMMENT ON COLUMN cortex.job_attempt.pod_id IS 'The pod that ran it.';
COMMENT ON COLUMN cortex.job_attempt.outcome IS
    'failed: the handler raised · handed_back: its pod drained · pod_died: taken over · lease_expired: its pod fell silent.';
COMMENT ON COLUMN cortex.job_attempt.ended_at IS 'When it ended.';
COMMENT ON COLUMN cortex.job_attempt.due_at IS 'When the next one was due.';
COMMENT ON COLUMN cortex.job_attempt.error IS 'One line, for failed attempts.';

-- ------------------------------------------------------------------ steps

CREATE TABLE cortex.job_step (
    job_id uuid NOT NULL,
    seq int NOT NULL CHECK (seq >= 1),
    attempt int NOT NULL,
    kind text NOT NULL CHECK (kind IN ('step', 'model', 'tool')),
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
    digest bytea NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    cost_usd numeric(18, 8),
    usage jsonb,
    output json,
    PRIMARY KEY (job_id, seq),
    CONSTRAINT job_step_key_once UNIQUE (job_id, key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.job_step IS 'Committed steps, append-only: the checkpoints that a resumed job replays.';
COMMENT ON COLUMN cortex.job_step.job_id IS 'The job.';
COMMENT ON COLUMN cortex.job_step.seq IS 'Order of commit within the job: 1, 2, 3 … without gaps.';
COMMENT ON COLUMN cortex.job_step.attempt IS 'The attempt that committed it.';
COMMENT ON COLUMN cortex.job_step.kind IS 'step: the job''s own function · model: a model response · tool: a tool call.';
COMMENT ON COLUMN cortex.job_step.key IS 'Its name in the job''s code; unique within the job.';
COMMENT ON COLUMN cortex.job_step.digest IS 'Digest of its input: a replay that asks for another input diverged.';
COMMENT ON COLUMN cortex.job_step.started_at IS 'When it began.';
COMMENT ON COLUMN cortex.job_step.finished_at IS 'When it was committed.';
COMMENT ON COLUMN cortex.job_step.cost_usd IS 'What it cost in US dollars; null when nothing or when the price is unknown.';
COMMENT ON COLUMN cortex.job_step.usage IS 'Tokens: input, output, cache read, cache write.';
COMMENT ON COLUMN cortex.job_step.output IS 'What it returned; json and not jsonb, which would change numbers: a replay must see the same.';
CREATE TRIGGER job_step_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.job_step
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- ------------------------------------------------------------------ pods

CREATE TABLE cortex.pod (
    id uuid PRIMARY KEY,
    lock_key bigint NOT NULL UNIQUE,
    name text NOT NULL,
    version text NOT NULL,
    state text NOT NULL DEFAULT 'READY' CHECK (state IN ('READY', 'DRAINING', 'STOPPED', 'DEAD')),
    job_types text[] NOT NULL,
    slots int NOT NULL,
    running int NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT cortex.now(),
    heartbeat_at timestamptz NOT NULL DEFAULT cortex.now(),
    draining_at timestamptz,
    ended_at timestamptz,
    loop_lag_ms real,
    rss_bytes bigint,
    hint_latency_ms real
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.pod IS 'Every pod that ever started: one run of `cortex up`.';
COMMENT ON COLUMN cortex.pod.id IS 'Random boot id, never the host''s name: a restarted pod is another pod.';
COMMENT ON COLUMN cortex.pod.lock_key IS 'Key of the session advisory lock that it holds while it lives.';
COMMENT ON COLUMN cortex.pod.name IS 'Host name and process id, for people only.';
COMMENT ON COLUMN cortex.pod.version IS 'Version of Cortex that it runs.';
COMMENT ON COLUMN cortex.pod.state IS 'READY, DRAINING, STOPPED (left in order) or DEAD (taken over).';
COMMENT ON COLUMN cortex.pod.job_types IS 'Job types that it can run.';
COMMENT ON COLUMN cortex.pod.slots IS 'Jobs that it runs at once at most.';
COMMENT ON COLUMN cortex.pod.running IS 'Jobs that it ran at its last heartbeat.';
COMMENT ON COLUMN cortex.pod.started_at IS 'When it registered.';
COMMENT ON COLUMN cortex.pod.heartbeat_at IS 'Its last heartbeat.';
COMMENT ON COLUMN cortex.pod.draining_at IS 'When it began to leave.';
COMMENT ON COLUMN cortex.pod.ended_at IS 'When it left, or was found dead.';
COMMENT ON COLUMN cortex.pod.loop_lag_ms IS 'Worst delay of its event loop since the heartbeat before.';
COMMENT ON COLUMN cortex.pod.rss_bytes IS 'Its resident memory.';
COMMENT ON COLUMN cortex.pod.hint_latency_ms IS 'How long a notification takes to reach it; null while none arrives.';
CREATE INDEX pod_ended ON cortex.pod (ended_at DESC) WHERE ended_at IS NOT NULL;
CREATE INDEX pod_alive ON cortex.pod (heartbeat_at) WHERE state IN ('READY', 'DRAINING');

-- ------------------------------------------------------------------ the worker queue

CREATE TYPE cortex_worker.task_state AS ENUM ('LATER', 'QUEUED', 'READY', 'LOCKED');
COMMENT ON TYPE cortex_worker.task_state IS
    'LATER: due in the future · QUEUED: waits for its turn in a named queue · READY: to be claimed · LOCKED: a pod has it.';

CREATE TABLE cortex_worker.task (
    job_id uuid PRIMARY KEY,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    task text NOT NULL,
    state cortex_worker.task_state NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    attempt int NOT NULL DEFAULT 0,
    attempts_spent int NOT NULL DEFAULT 0 CHECK (attempts_spent >= 0),
    max_attempts int NOT NULL CHECK (max_attempts BETWEEN 1 AND 100),
    locked_by uuid,
    locked_at timestamptz,
    run_at timestamptz NOT NULL DEFAULT cortex.now(),
    queue_name text,
    job_key text CHECK (length(job_key) BETWEEN 1 AND 500),
    CONSTRAINT locked_by_only_when_locked CHECK ((locked_by IS NOT NULL) = (state = 'LOCKED')),
    CONSTRAINT queued_only_in_a_queue CHECK (state <> 'QUEUED' OR queue_name IS NOT NULL)
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,         -- short-lived rows: vacuum by count, not by share
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE cortex_worker.task IS 'The transient row of a job that needs a pod; deleted when it does not.';
COMMENT ON COLUMN cortex_worker.task.id IS 'Order of arrival; job.worker_job_id names it. Tasks are found by their job.';
COMMENT ON COLUMN cortex_worker.task.task IS 'Job type.';
COMMENT ON COLUMN cortex_worker.task.job_id IS 'Its job; a job never has more than one task.';
COMMENT ON COLUMN cortex_worker.task.state IS 'Whether it can be claimed.';
COMMENT ON COLUMN cortex_worker.task.priority IS 'Smaller runs first.';
COMMENT ON COLUMN cortex_worker.task.attempt IS 'The job''s attempt: raised by each claim, the fence.';
COMMENT ON COLUMN cortex_worker.task.attempts_spent IS 'Claims that count against max_attempts.';
COMMENT ON COLUMN cortex_worker.task.max_attempts IS 'After so many failed claims the job fails.';
COMMENT ON COLUMN cortex_worker.task.locked_by IS 'The pod that has it.';
COMMENT ON COLUMN cortex_worker.task.locked_at IS 'Since when.';
COMMENT ON COLUMN cortex_worker.task.run_at IS 'Not before this instant.';
COMMENT ON COLUMN cortex_worker.task.queue_name IS 'Tasks of one named queue run one after another.';
COMMENT ON COLUMN cortex_worker.task.job_key IS 'A new task with the same key replaces this one while it is not locked.';

CREATE INDEX task_ready ON cortex_worker.task (task, priority, run_at, id) WHERE state = 'READY';
CREATE INDEX task_later ON cortex_worker.task (run_at) WHERE state = 'LATER';
CREATE INDEX task_queued ON cortex_worker.task (queue_name, priority, run_at, id) WHERE state = 'QUEUED';
CREATE UNIQUE INDEX task_queue_head ON cortex_worker.task (queue_name)
    WHERE queue_name IS NOT NULL AND state IN ('READY', 'LOCKED');
CREATE UNIQUE INDEX task_job_key ON cortex_worker.task (job_key) WHERE job_key IS NOT NULL;
COMMENT ON INDEX cortex_worker.task_queue_head IS 'At most one task of a named queue can be claimed or running.';

CREATE FUNCTION cortex_worker.hint() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    -- One notification a statement at most: NOTIFY takes a lock over the whole database at commit.
    IF EXISTS (SELECT FROM inserted WHERE state = 'READY') THEN
        PERFORM pg_notify('cortex_task', 'ready');
    ELSIF EXISTS (SELECT FROM inserted WHERE state = 'QUEUED') THEN
        PERFORM pg_notify('cortex_task', 'queued');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER task_hint AFTER INSERT ON cortex_worker.task
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION cortex_worker.hint();

-- ------------------------------------------------------------------ submitting

CREATE FUNCTION cortex_worker.replace_by_key(key text, successor uuid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    replaced uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('cortex.job_key ' || key, 0));
    DELETE FROM cortex_worker.task WHERE job_key = key AND state <> 'LOCKED' RETURNING job_id INTO replaced;
    UPDATE cortex.job
    SET status = 'CANCELLED', cancelled_by = 'submit', worker_job_id = NULL, next_retry_at = NULL,
        cancel_reason = format('replaced by job %s with the same key %L', successor, key)
    WHERE id = replaced;
    -- A locked one runs on; the key passes to its successor.
    UPDATE cortex_worker.task SET job_key = NULL WHERE job_key = key;
END $$;
COMMENT ON FUNCTION cortex_worker.replace_by_key IS 'Frees a job key for its next holder, one at a time; cancels the waiting one.';

CREATE FUNCTION cortex.submit_jobs(
    ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[],
    priorities int[], run_ats timestamptz[], worker_attempts int[], max_retries int[], timeouts_s int[],
    job_keys text[]
) RETURNS SETOF uuid
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    wrong text;
    new_ids uuid[];
    keyed record;
BEGIN
    SELECT n INTO wrong FROM unnest(agents) AS n
    WHERE n IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.agent a WHERE a.name = n) LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'agent "%" does not exist', wrong
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex agents apply FILE';
    END IF;
    SELECT octet_length(p::text)::text INTO wrong FROM unnest(payloads) AS p
    WHERE octet_length(p::text) > 262144 LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'payload of % bytes is larger than 262144', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size';
    END IF;
    WITH asked AS (
        SELECT * FROM unnest(ids, types, payloads, agents, tenants, queue_names, priorities, run_ats,
                             worker_attempts, max_retries, timeouts_s)
            AS s(id, type, payload, agent, tenant, queue_name, priority, run_at,
                 worker_attempts, max_retries, timeout_s)
    ), job AS (
        INSERT INTO cortex.job AS j (
            id, type, payload, agent_id, agent_version, tenant, queue_name, priority, run_at,
            worker_attempts, max_retries, timeout_s, worker_job_id)
        SELECT s.id, s.type, s.payload, a.id, a.version, coalesce(s.tenant, 'default'), s.queue_name,
               coalesce(s.priority, 0), coalesce(s.run_at, cortex.now()),
               coalesce(s.worker_attempts, (l.limits->>'worker_attempts')::int, t.worker_attempts, 3),
               coalesce(s.max_retries, (l.limits->>'max_retries')::int, t.max_retries, 3),
               coalesce(s.timeout_s, (l.limits->>'timeout_seconds')::int, t.timeout_s, 3600),
               nextval('cortex_worker.task_id_seq')
        FROM asked s
        LEFT JOIN cortex.agent a ON a.name = s.agent
        LEFT JOIN LATERAL (
            SELECT v.spec->'limits' AS limits FROM cortex.agent_version v
            WHERE v.agent_id = a.id AND v.version = a.version) l ON true
        LEFT JOIN cortex.job_type t ON t.name = s.type
        ON CONFLICT (id) DO NOTHING
        RETURNING j.*
    ), task AS (
        INSERT INTO cortex_worker.task (
            id, task, job_id, state, priority, max_attempts, run_at, queue_name)
        SELECT j.worker_job_id, j.type, j.id,
               (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                     WHEN j.run_at > cortex.now() THEN 'LATER' ELSE 'READY' END)::cortex_worker.task_state,
               j.priority, j.worker_attempts, j.run_at, j.queue_name
        FROM job j
    )
    SELECT array_agg(j.id) INTO new_ids FROM job j;
    -- By key, so that two batches do not wait for each other; the last one of a batch keeps its key.
    FOR keyed IN
        SELECT k.id, k.job_key FROM unnest(ids, job_keys) WITH ORDINALITY AS k(id, job_key, n)
        WHERE k.job_key IS NOT NULL AND k.id = ANY (new_ids) ORDER BY k.job_key, k.n
    LOOP
        PERFORM cortex_worker.replace_by_key(keyed.job_key, keyed.id);
        UPDATE cortex_worker.task t SET job_key = keyed.job_key WHERE t.job_id = keyed.id;
    END LOOP;
    RETURN QUERY SELECT unnest(new_ids);
END $$;
COMMENT ON FUNCTION cortex.submit_jobs IS
    'Submits a batch in the caller''s transaction; returns the ids that were new. A null element takes its type''s default.';

CREATE FUNCTION cortex.submit_job(
    type text,
    payload jsonb DEFAULT '{}',
    agent text DEFAULT NULL,
    tenant text DEFAULT NULL,
    queue_name text DEFAULT NULL,
    priority int DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    worker_attempts int DEFAULT NULL,
    max_retries int DEFAULT NULL,
    timeout_s int DEFAULT NULL,
    job_key text DEFAULT NULL,
    id uuid DEFAULT cortex.uuid7()
) RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    PERFORM cortex.submit_jobs(
        ARRAY[id], ARRAY[type], ARRAY[payload], ARRAY[agent], ARRAY[tenant], ARRAY[queue_name],
        ARRAY[priority], ARRAY[run_at], ARRAY[worker_attempts], ARRAY[max_retries], ARRAY[timeout_s],
        ARRAY[job_key]);
    RETURN id;
END $$;
COMMENT ON FUNCTION cortex.submit_job IS
    'Submits a job from any language, in the caller''s transaction; returns its id. The same id again does nothing.';

CREATE FUNCTION cortex_worker.add_job(
    task text,
    payload jsonb DEFAULT '{}',
    queue_name text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    max_attempts int DEFAULT NULL,
    job_key text DEFAULT NULL,
    priority int DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    added uuid := cortex.submit_job(
        type => task, payload => payload, queue_name => queue_name, run_at => run_at,
        worker_attempts => max_attempts, job_key => job_key, priority => priority);
BEGIN
    RETURN (SELECT worker_job_id FROM cortex.job WHERE id = added);
END $$;
COMMENT ON FUNCTION cortex_worker.add_job IS
    'Adds a job by its worker task, in the caller''s transaction; returns the task''s id (job.worker_job_id).';

-- ------------------------------------------------------------------ roles

DO $$
BEGIN
    CREATE ROLE cortex_runtime NOLOGIN;
EXCEPTION
    -- Roles belong to the whole server: another database, or another pod just now, may have made it.
    WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$
BEGIN
    -- Since Postgres 16 who makes a role is its member, but may not SET ROLE to it.
    IF NOT pg_has_role(current_user, 'cortex_runtime',
                       CASE WHEN current_setting('server_version_num')::int >= 160000
                            THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE format('GRANT cortex_runtime TO %I', current_user);
    END IF;
END $$;

GRANT USAGE ON SCHEMA cortex, cortex_worker TO cortex_runtime;
GRANT SELECT ON ALL TABLES IN SCHEMA cortex TO cortex_runtime;
GRANT INSERT, UPDATE ON cortex.job, cortex.agent, cortex.job_type, cortex.pod TO cortex_runtime;
GRANT INSERT ON cortex.job_step, cortex.job_attempt, cortex.agent_version TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON cortex_worker.task TO cortex_runtime;
GRANT USAGE ON SEQUENCE cortex_worker.task_id_seq TO cortex_runtime;
