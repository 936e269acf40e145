-- The whole schema, as all migrations together make it. Generated, never edited: migrations change
-- the schema, and `python -m tests.support.generate` makes this page anew. The migrations base
-- and readonly create the roles.

-- The permanent record: jobs, history, steps, agents, pods.
CREATE SCHEMA cortex;
GRANT USAGE ON SCHEMA cortex TO cortex_submitter;
GRANT USAGE ON SCHEMA cortex TO cortex_runtime;
GRANT USAGE ON SCHEMA cortex TO cortex_reader;

-- The transient queue: a task lives until its job no longer needs a pod.
CREATE SCHEMA cortex_worker;
GRANT USAGE ON SCHEMA cortex_worker TO cortex_runtime;
GRANT USAGE ON SCHEMA cortex_worker TO cortex_reader;

-- Applied migrations; written by `cortex migrate` only.
CREATE TABLE cortex.migration (
    version integer NOT NULL,  -- Number of the file.
    name text NOT NULL,  -- Name of the file.
    digest bytea NOT NULL,  -- SHA-256 of the file as it was applied.
    applied_at timestamptz NOT NULL DEFAULT now(),  -- When.
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);
GRANT SELECT ON cortex.migration TO cortex_submitter;
GRANT SELECT ON cortex.migration TO cortex_runtime;
GRANT SELECT ON cortex.migration TO cortex_reader;

-- The only clock of leases, due times and timestamps. A test moves time by replacing it.
CREATE FUNCTION cortex.now()
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN statement_timestamp();

-- A time-ordered identifier (RFC 9562, version 7) for callers in plain SQL.
CREATE FUNCTION cortex.uuid7()
 RETURNS uuid
 LANGUAGE sql
 PARALLEL SAFE
RETURN (encode((SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) || set_bit(set_bit(SUBSTRING(uuid_send(gen_random_uuid()) FROM 7), (4)::bigint, 1), (5)::bigint, 1)), 'hex'::text))::uuid;

CREATE FUNCTION cortex.refuse_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    -- The deletions of 0023_retention.sql, from the tables whose trigger names them. The role of pods has no right to
    -- delete, whatever it sets.
    IF TG_OP = 'DELETE' AND TG_ARGV[0] = 'unless retention' AND current_setting('cortex.retention', true) = 'deletes' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '%.% is append-only: % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation';
END $function$;

-- A named agent; its immutable versions define it.
CREATE TABLE cortex.agent (
    id uuid NOT NULL,  -- UUIDv7 made by the application.
    name text NOT NULL,  -- The name that people and jobs use.
    version integer NOT NULL,  -- The newest version: the one that newly submitted jobs use.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the first version was applied.
    CONSTRAINT agent_pkey PRIMARY KEY (id),
    CONSTRAINT agent_name_key UNIQUE (name),
    CONSTRAINT agent_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text),
    CONSTRAINT agent_version_check CHECK (version >= 1)
);
GRANT INSERT, SELECT, UPDATE ON cortex.agent TO cortex_runtime;
GRANT SELECT ON cortex.agent TO cortex_reader;

-- One immutable version of an agent's specification.
CREATE TABLE cortex.agent_version (
    agent_id uuid NOT NULL,  -- The agent.
    version integer NOT NULL,  -- 1, 2, 3 … without gaps.
    spec jsonb NOT NULL,  -- The specification as canonical JSON.
    digest bytea NOT NULL,  -- SHA-256 of the canonical JSON: applying the same again creates no version.
    applied_by text NOT NULL,  -- Who applied it.
    applied_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was applied.
    CONSTRAINT agent_version_pkey PRIMARY KEY (agent_id, version),
    CONSTRAINT agent_version_agent_id_fkey FOREIGN KEY (agent_id) REFERENCES cortex.agent(id),
    CONSTRAINT agent_version_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT agent_version_version_check CHECK (version >= 1)
);
GRANT INSERT, SELECT ON cortex.agent_version TO cortex_runtime;
GRANT SELECT ON cortex.agent_version TO cortex_reader;

CREATE TRIGGER agent_version_is_immutable BEFORE DELETE OR UPDATE ON cortex.agent_version FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- Sets of tools that versions of agents have; few, and never changed.
CREATE TABLE cortex.tool_set (
    task text NOT NULL,  -- The value of cortex_worker.task.task for jobs of agents with these tools.
    tools text[] NOT NULL,  -- Their names, sorted.
    CONSTRAINT tool_set_pkey PRIMARY KEY (task),
    CONSTRAINT tool_set_tools_check CHECK (cardinality(tools) >= 1)
);
GRANT INSERT, SELECT ON cortex.tool_set TO cortex_runtime;
GRANT SELECT ON cortex.tool_set TO cortex_reader;

-- The tools that an agent's specification names, sorted.
CREATE FUNCTION cortex.tools_of(spec jsonb)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
SELECT ARRAY(SELECT DISTINCT t.name COLLATE "C" FROM jsonb_array_elements_text(
    CASE jsonb_typeof(spec->'tools') WHEN 'array' THEN spec->'tools' ELSE '[]' END) AS t(name) ORDER BY 1) $function$;

-- The task name of jobs whose agent has these tools, sorted.
CREATE FUNCTION cortex.task_with(tools text[])
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
AS $function$
SELECT CASE WHEN tools = '{}' THEN 'run_agent' ELSE
    'run_agent ' || left(encode(sha256(convert_to(array_to_string(tools, ' '), 'UTF8')), 'hex'), 16) END $function$;

CREATE FUNCTION cortex.tool_set_of_version()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found text[] := cortex.tools_of(NEW.spec);
BEGIN
    IF found <> '{}' THEN
        INSERT INTO cortex.tool_set (task, tools) VALUES (cortex.task_with(found), found) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.tool_set_of_version() FROM PUBLIC;

CREATE TRIGGER agent_version_has_tools AFTER INSERT ON cortex.agent_version FOR EACH ROW EXECUTE FUNCTION cortex.tool_set_of_version();

-- Policies and prices, one immutable row for each set that a pod ever started with.
CREATE TABLE cortex.config (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,  -- The id that a job keeps.
    digest bytea NOT NULL,  -- SHA-256 of the canonical JSON: the same set again is the same row.
    spec jsonb NOT NULL,  -- Policies by job type and prices by model, as canonical JSON.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When a pod first had it.
    CONSTRAINT config_pkey PRIMARY KEY (id),
    CONSTRAINT config_digest_key UNIQUE (digest),
    CONSTRAINT config_digest_check CHECK (octet_length(digest) = 32)
);
GRANT INSERT, SELECT ON cortex.config TO cortex_runtime;
GRANT SELECT ON cortex.config TO cortex_reader;

CREATE TRIGGER config_is_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.config FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- Defaults of each job type: the built-in ones, and those that pods have written; used by submit_job.
CREATE TABLE cortex.job_type (
    name text NOT NULL,  -- The name under which handlers are registered.
    worker_attempts integer NOT NULL,  -- Attempts of one task before the job fails.
    max_retries integer NOT NULL,  -- Application retries of one job.
    timeout_s integer NOT NULL,  -- Seconds from the first start of a job to its timeout.
    timeout_max_s integer,  -- The longest timeout that a job of this type may get. Null, from an old pod: 1.5 times timeout_s.
    CONSTRAINT job_type_pkey PRIMARY KEY (name),
    CONSTRAINT job_type_max_retries_check CHECK (max_retries >= 0 AND max_retries <= 100),
    CONSTRAINT job_type_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text),
    CONSTRAINT job_type_timeout_max_s_check CHECK (timeout_max_s >= 1 AND timeout_max_s <= 907200),
    CONSTRAINT job_type_timeout_s_check CHECK (timeout_s >= 1 AND timeout_s <= 604800),
    CONSTRAINT job_type_worker_attempts_check CHECK (worker_attempts >= 1 AND worker_attempts <= 100)
);
GRANT INSERT, SELECT, UPDATE ON cortex.job_type TO cortex_runtime;
GRANT SELECT ON cortex.job_type TO cortex_reader;

-- State of a job; the last three are terminal.
CREATE TYPE cortex.job_status AS ENUM ('PENDING', 'RUNNING', 'WAITING_FOR_APPROVAL', 'RETRY', 'COMPLETED', 'FAILED', 'CANCELLED');

-- Whether it is a traceparent as W3C Trace Context defines it.
CREATE FUNCTION cortex.is_traceparent(header text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((header ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) AND (header !~ '^ff'::text) AND (header !~ '^...0{32}'::text) AND (header !~ '-0{16}-..$'::text));

-- The trace of a job: that of the traceparent it was submitted with, else its own, named by its id.
CREATE FUNCTION cortex.trace_id(job uuid, traceparent text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN COALESCE(substr(traceparent, 4, 32), replace((job)::text, '-'::text, ''::text));

-- What a job hands on: its trace, and its own span as the parent.
CREATE FUNCTION cortex.traceparent(job uuid, traceparent text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((((('00-'::text || cortex.trace_id(job, traceparent)) || '-'::text) || "right"(replace((job)::text, '-'::text, ''::text), 16)) || '-'::text) || COALESCE("right"(traceparent, 2), '01'::text));

-- The permanent record of one job. While a pod runs the job, its state is in its task, and the record keeps what was before: read cortex.job, which is always right.
CREATE TABLE cortex.job_record (
    id uuid NOT NULL,  -- UUIDv7 made by the submitter, so that a repeated submit finds the same job.
    type text NOT NULL,  -- The registered handler that runs it.
    tenant text NOT NULL DEFAULT 'default'::text,  -- The tenant that owns it.
    agent_id uuid,  -- The agent that it runs, if it runs one.
    agent_version integer,  -- The agent's version, bound at submit and kept on every attempt.
    status cortex.job_status NOT NULL DEFAULT 'PENDING'::cortex.job_status,  -- Its state; illegal transitions are refused.
    attempt integer NOT NULL DEFAULT 0,  -- Number of its latest run, never reused: the fence of every write.
    retry_count integer NOT NULL DEFAULT 0,  -- Application retries used.
    max_retries integer NOT NULL DEFAULT 3,  -- Application retries allowed.
    worker_attempts integer NOT NULL DEFAULT 3,  -- Worker attempts of each of its tasks.
    pod_deaths integer NOT NULL DEFAULT 0,  -- Pods that died while running it, consecutively and without a step in between: makes it a suspect, but does not condemn it.
    timeout_s integer NOT NULL DEFAULT 3600,  -- Seconds from started_at to its timeout.
    priority smallint NOT NULL DEFAULT 0,  -- Smaller runs first.
    queue_name text,  -- Jobs of one named queue run one after another; of a strict one, the next begins when the one before has ended.
    pod_id uuid,  -- The pod that runs it, or ran it last; null between attempts.
    worker_job_id bigint,  -- Its task: a soft reference, null when it has no task.
    next_retry_at timestamptz,  -- When RETRY becomes due.
    run_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Not before this instant.
    started_at timestamptz,  -- When its first attempt began.
    finished_at timestamptz,  -- When it reached its terminal state.
    cancel_requested_at timestamptz,  -- When a person requested its cancellation; its pod stops it.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was submitted.
    updated_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When any column last changed.
    cancelled_by text,  -- Who requested its cancellation.
    cancel_reason text,  -- Why.
    error_message text,  -- One line for people, set only in FAILED.
    error_code text,  -- Stable code of that error.
    checkpoint jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Small summary of its progress: step, seq, phase, totals.
    result jsonb,  -- The return value of its handler.
    payload jsonb NOT NULL,  -- Its arguments, as submitted; immutable.
    config_id integer,  -- Policies and prices that it started with, and keeps on every attempt.
    waiting_on text,  -- What it waits for besides time: a breaker (llm:NAME, tool:NAME …), budget:NAME, quota:NAME, effects:all (the freeze), approval:ID, effect:ID (an unknown outcome), person:WHAT, trust:AGENT/SERVER.TOOL (a changed tool, see mcp_tool), signal:NAME, child:STEP, or code: code that can take it, see tasks.misfit; then it fails at next_retry_at.
    suspended_at timestamptz,  -- Since when no pod has it; null while a pod has it, and before its first start.
    waited_s double precision NOT NULL DEFAULT 0,  -- Seconds between attempts so far: they do not count towards its timeout.
    rate_limit_count integer NOT NULL DEFAULT 0,  -- Application retries caused by a rate limit.
    attempts_kept integer NOT NULL DEFAULT 0,  -- Worker attempts that its next task starts with: those of a task that ended to wait, not to retry.
    waits_count integer NOT NULL DEFAULT 0,  -- How often in a row it waited for a breaker or a budget without a step in between.
    own_failure_at timestamptz,  -- When it last had to wait because its own call failed, without a step since then.
    broken_answers integer NOT NULL DEFAULT 0,  -- How often in a row its own call failed in the middle of an answer; no longer valid when own_failure_at is null.
    job_key text,  -- The key that it was submitted with: a new job with the same key replaces it while it waits.
    error_class text,  -- Class of the error that it failed with.
    error_source text,  -- What failed: the name of a breaker, as in waiting_on; null for its own code.
    origin_id uuid,  -- The failed job that it continues.
    lineage_id uuid,  -- The first job of its lineage, which names the workspace. Null if that is the job itself.
    submitted_by text DEFAULT NULLIF(current_setting('cortex.actor'::text, true), ''::text),  -- Who submitted it: the session's setting cortex.actor; of a login that may only submit, a label beside its name.
    has_open boolean NOT NULL DEFAULT false,  -- It has had effects or approvals: open ones are closed when it ends.
    was_suspect boolean NOT NULL DEFAULT false,  -- Its task was a suspect when it started to wait; its next task is one, unless it has made a step.
    submitted_with text DEFAULT COALESCE(NULLIF(current_setting('cortex.credential'::text, true), ''::text), 'db:'::text || SESSION_USER::text),  -- The credential that submitted it: os:UID, token:ID or db:LOGIN.
    process_deaths integer NOT NULL DEFAULT 0,  -- Processes of its own that died while running it, with their pods alive, consecutively and without a step in between: the poison guard.
    tags text[],  -- Words that people find it by, sorted; null: none.
    unfit_codes integer[],  -- The codes of pods that found that they cannot take it, sorted: pods of these do not claim it. Null: none did.
    traceparent text,  -- The trace and span that it was submitted in; null: its trace is its own, see cortex.trace_id.
    replaced_by uuid,  -- The job that took its key while it ran: when its attempt ends without ending it, it is cancelled.
    due_by timestamptz,  -- Its deadline: among jobs of one priority the earliest runs first, before those without one. A late job runs, too.
    parent_id uuid,  -- The job whose code submitted it, see cortex.job_child; null: a person or a program did.
    has_children boolean,  -- Its code has submitted jobs, which are to be cancelled when it ends; null: it has not.
    CONSTRAINT job_pkey PRIMARY KEY (id),
    CONSTRAINT job_record_agent_id_agent_version_fkey FOREIGN KEY (agent_id, agent_version) REFERENCES cortex.agent_version(agent_id, version),
    CONSTRAINT agent_and_version_together CHECK ((agent_id IS NULL) = (agent_version IS NULL)),
    CONSTRAINT checkpoint_is_small CHECK (pg_column_size(checkpoint) <= 16384),
    CONSTRAINT error_class_only_in_failed CHECK (error_class IS NULL OR status = 'FAILED'::cortex.job_status),
    CONSTRAINT error_message_only_in_failed CHECK ((error_message IS NOT NULL) = (status = 'FAILED'::cortex.job_status)),
    CONSTRAINT finished_at_only_when_terminal CHECK ((finished_at IS NOT NULL) = (status = ANY (ARRAY['COMPLETED'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status]))),
    CONSTRAINT job_record_attempt_check CHECK (attempt >= 0),
    CONSTRAINT job_record_job_key_check CHECK (length(job_key) >= 1 AND length(job_key) <= 500),
    CONSTRAINT job_record_max_retries_check CHECK (max_retries >= 0 AND max_retries <= 100),
    CONSTRAINT job_record_pod_deaths_check CHECK (pod_deaths >= 0),
    CONSTRAINT job_record_process_deaths_check CHECK (process_deaths >= 0),
    CONSTRAINT job_record_queue_name_check CHECK (length(queue_name) >= 1 AND length(queue_name) <= 100),
    CONSTRAINT job_record_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100),
    CONSTRAINT job_record_timeout_s_check CHECK (timeout_s >= 1 AND timeout_s <= 604800),
    CONSTRAINT job_record_unfit_codes_check CHECK (cardinality(unfit_codes) >= 1),
    CONSTRAINT job_record_waiting_on_check CHECK (length(waiting_on) >= 1 AND length(waiting_on) <= 300),
    CONSTRAINT job_record_worker_attempts_check CHECK (worker_attempts >= 1 AND worker_attempts <= 100),
    CONSTRAINT lineage_with_origin CHECK ((origin_id IS NULL) = (lineage_id IS NULL)),
    CONSTRAINT next_retry_at_only_in_retry CHECK ((next_retry_at IS NOT NULL) = (status = 'RETRY'::cortex.job_status)),
    CONSTRAINT payload_size CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT result_only_in_completed CHECK (result IS NULL OR status = 'COMPLETED'::cortex.job_status),
    CONSTRAINT retry_count_within_limit CHECK (retry_count >= 0 AND retry_count <= max_retries),
    CONSTRAINT tags_are_few CHECK (cardinality(tags) >= 1 AND cardinality(tags) <= 20),
    CONSTRAINT waiting_for_something CHECK (status <> 'WAITING_FOR_APPROVAL'::cortex.job_status OR waiting_on IS NOT NULL),
    CONSTRAINT waiting_only_when_suspended CHECK (waiting_on IS NULL OR (status = ANY (ARRAY['RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status])))
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_analyze_scale_factor=0.02, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_vacuum_cost_delay=1);
CREATE INDEX job_due_by_time ON cortex.job_record USING btree (next_retry_at) WHERE status = 'RETRY'::cortex.job_status AND worker_job_id IS NULL AND (waiting_on IS NULL OR waiting_on ~ '^(approval|budget|child|signal):'::text);
CREATE INDEX job_due_by_breaker ON cortex.job_record USING btree (waiting_on, next_retry_at) WHERE status = 'RETRY'::cortex.job_status AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'::text;
CREATE INDEX job_prober ON cortex.job_record USING btree (waiting_on, type, next_retry_at) WHERE status = 'RETRY'::cortex.job_status AND worker_job_id IS NULL AND waiting_on !~ '^(approval|budget|child|signal):'::text AND queue_name IS NULL;
CREATE INDEX job_let_go ON cortex.job_record USING btree (waiting_on, next_retry_at) WHERE status = 'RETRY'::cortex.job_status AND worker_job_id IS NOT NULL AND waiting_on IS NOT NULL;
CREATE UNIQUE INDEX job_origin ON cortex.job_record USING btree (origin_id) WHERE origin_id IS NOT NULL;
CREATE INDEX job_key ON cortex.job_record USING btree (job_key, tenant) WHERE job_key IS NOT NULL AND worker_job_id IS NULL AND (status = ANY (ARRAY['RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status]));
CREATE INDEX job_waits_for_budget ON cortex.job_record USING btree (waiting_on, id) WHERE (status = ANY (ARRAY['WAITING_FOR_APPROVAL'::cortex.job_status, 'RETRY'::cortex.job_status])) AND worker_job_id IS NULL AND waiting_on ~~ 'budget:%'::text;
CREATE INDEX job_begun_in_queue ON cortex.job_record USING btree (queue_name) WHERE queue_name IS NOT NULL AND (status = ANY (ARRAY['RUNNING'::cortex.job_status, 'RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status]));
CREATE INDEX job_lineage ON cortex.job_record USING btree (lineage_id) WHERE lineage_id IS NOT NULL;
CREATE INDEX job_waits_for_quota ON cortex.job_record USING btree (waiting_on, suspended_at) WHERE status = 'RETRY'::cortex.job_status AND worker_job_id IS NULL AND waiting_on ~~ 'quota:%'::text;
CREATE INDEX job_status ON cortex.job_record USING btree (status, created_at, id);
CREATE INDEX job_agent ON cortex.job_record USING btree (agent_id, created_at, id) WHERE agent_id IS NOT NULL;
CREATE INDEX job_tenant ON cortex.job_record USING btree (tenant, created_at, id) WHERE tenant <> 'default'::text;
CREATE INDEX job_unfinished ON cortex.job_record USING btree (tenant) WHERE tenant <> 'default'::text AND (status = ANY (ARRAY['PENDING'::cortex.job_status, 'RUNNING'::cortex.job_status, 'RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status]));
CREATE INDEX job_retry_due ON cortex.job_record USING btree (next_retry_at, id) WHERE status = 'RETRY'::cortex.job_status;
CREATE INDEX job_waits_for_person ON cortex.job_record USING btree (suspended_at) WHERE status = 'WAITING_FOR_APPROVAL'::cortex.job_status AND waiting_on ~~ 'person:%'::text;
CREATE INDEX job_waits_for_trust ON cortex.job_record USING btree (suspended_at) WHERE status = 'RETRY'::cortex.job_status AND waiting_on ~~ 'trust:%'::text;
GRANT INSERT, SELECT, UPDATE ON cortex.job_record TO cortex_runtime;
GRANT SELECT ON cortex.job_record TO cortex_reader;

-- The single table of legal transitions.
CREATE FUNCTION cortex.is_legal_transition(previous cortex.job_status, new cortex.job_status)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE previous WHEN 'PENDING'::cortex.job_status THEN (new = ANY (ARRAY['RUNNING'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status])) WHEN 'RUNNING'::cortex.job_status THEN (new = ANY (ARRAY['COMPLETED'::cortex.job_status, 'FAILED'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status, 'RETRY'::cortex.job_status, 'CANCELLED'::cortex.job_status])) WHEN 'RETRY'::cortex.job_status THEN (new = ANY (ARRAY['RUNNING'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status])) WHEN 'WAITING_FOR_APPROVAL'::cortex.job_status THEN (new = ANY (ARRAY['RUNNING'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status])) ELSE false END;

-- Seconds that a job has been without a pod until its attempt began: those of earlier waits and of the last one.
CREATE FUNCTION cortex.waited_s(before double precision, suspended_at timestamp with time zone, until timestamp with time zone)
 RETURNS double precision
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (before + COALESCE(date_part('epoch'::text, (until - suspended_at)), (0)::double precision));

-- The state of a job before a write to its record, as far as the record shows it. A write that brings a new attempt ends that attempt, and while it ran the record kept the state from before. History knows whether there was one.
CREATE FUNCTION cortex.state_before(recorded cortex.job_status, old_attempt integer, new_attempt integer)
 RETURNS cortex.job_status
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((new_attempt > old_attempt) AND (recorded <> ALL (ARRAY['COMPLETED'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status]))) THEN 'RUNNING'::cortex.job_status ELSE recorded END;

CREATE FUNCTION cortex.job_moves_illegally()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'job % cannot go from % to %', OLD.id,
        cortex.state_before(OLD.status, OLD.attempt, NEW.attempt), NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
END $function$;

CREATE TRIGGER job_moves_illegally BEFORE UPDATE OF status ON cortex.job_record FOR EACH ROW WHEN (cortex.state_before(old.status, old.attempt, new.attempt) <> new.status AND NOT cortex.is_legal_transition(cortex.state_before(old.status, old.attempt, new.attempt), new.status)) EXECUTE FUNCTION cortex.job_moves_illegally();

CREATE FUNCTION cortex.job_begins_elsewhere()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'job % must begin as PENDING, not %', NEW.id, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
END $function$;

CREATE TRIGGER job_begins_elsewhere BEFORE INSERT ON cortex.job_record FOR EACH ROW WHEN (new.status <> 'PENDING'::cortex.job_status) EXECUTE FUNCTION cortex.job_begins_elsewhere();

CREATE FUNCTION cortex.job_is_replaced()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    NEW.status := 'CANCELLED';
    NEW.next_retry_at := NULL;
    NEW.waiting_on := NULL;
    NEW.cancelled_by := coalesce(NEW.cancelled_by, 'submit');
    NEW.cancel_reason := coalesce(
        NEW.cancel_reason, cortex_worker.replaced_reason(NEW.replaced_by, NEW.job_key));
    RETURN NEW;
END $function$;

CREATE TRIGGER job_is_replaced BEFORE UPDATE OF status ON cortex.job_record FOR EACH ROW WHEN (new.replaced_by IS NOT NULL AND (new.status = ANY (ARRAY['RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status, 'CANCELLED'::cortex.job_status])) AND (new.status <> old.status OR new.attempt <> old.attempt OR new.worker_job_id IS NULL)) EXECUTE FUNCTION cortex.job_is_replaced();

CREATE FUNCTION cortex.job_stamps()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    NEW.updated_at := cortex.now();
    IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND NEW.status <> OLD.status THEN
        NEW.finished_at := cortex.now();
    END IF;
    RETURN NEW;
END $function$;

CREATE TRIGGER job_stamps BEFORE UPDATE ON cortex.job_record FOR EACH ROW WHEN (new.updated_at = old.updated_at OR new.finished_at IS NULL AND (new.status = ANY (ARRAY['COMPLETED'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status]))) EXECUTE FUNCTION cortex.job_stamps();

CREATE FUNCTION cortex.job_type_is_valid()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'job type "%" is not valid', NEW.type
        USING ERRCODE = 'check_violation', CONSTRAINT = 'job_type_check',
              HINT = '1 to 100 letters, digits, dots, underscores and dashes, the first a letter or digit';
END $function$;

CREATE TRIGGER job_type_is_valid BEFORE INSERT ON cortex.job_record FOR EACH ROW WHEN (new.type !~ '^[A-Za-z0-9][A-Za-z0-9._-]*$'::text OR length(new.type) > 100) EXECUTE FUNCTION cortex.job_type_is_valid();

CREATE FUNCTION cortex.job_is_immutable()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE TRIGGER job_is_immutable BEFORE UPDATE OF type, payload ON cortex.job_record FOR EACH ROW WHEN (new.type <> old.type OR new.payload <> old.payload) EXECUTE FUNCTION cortex.job_is_immutable();

-- Every transition of every job, written in the same transaction. Append-only.
CREATE TABLE cortex.job_history (
    job_id uuid NOT NULL,  -- The job. No foreign key: rows come from the job's own trigger, and one would make each row three times as expensive (30 instead of 9 µs). Retention deletes them with the job.
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of the rows.
    previous cortex.job_status,  -- State before; null in a job's first row.
    new cortex.job_status NOT NULL,  -- State after.
    attempt integer NOT NULL,  -- The job's attempt at that moment.
    pod_id uuid,  -- The pod that ran it at that moment.
    at timestamptz NOT NULL,  -- When, by the database's clock.
    metadata jsonb NOT NULL,  -- Details of the new state: error, retry, who and why.
    CONSTRAINT job_history_pkey PRIMARY KEY (job_id, id),
    CONSTRAINT legal_transition CHECK (previous IS NULL OR cortex.is_legal_transition(previous, new) AND (attempt = 0 OR new <> 'FAILED'::cortex.job_status OR previous <> 'PENDING'::cortex.job_status))
) WITH (autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
GRANT SELECT ON cortex.job_history TO cortex_runtime;
GRANT SELECT ON cortex.job_history TO cortex_reader;

CREATE TRIGGER job_history_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.job_history FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

CREATE FUNCTION cortex.job_history_of_insert()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT id, NULL, status, attempt, pod_id, created_at, '{}' FROM inserted;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_history_of_insert() FROM PUBLIC;

CREATE TRIGGER job_history_of_insert AFTER INSERT ON cortex.job_record REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_insert();

CREATE FUNCTION cortex.job_history_of_update()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
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
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_history_of_update() FROM PUBLIC;

CREATE TRIGGER job_history_of_update AFTER UPDATE ON cortex.job_record REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_update();

-- Attempts that ended before their job did, one row each: the reason why the job has more than one attempt.
CREATE TABLE cortex.job_attempt (
    job_id uuid NOT NULL,  -- The job.
    attempt integer NOT NULL,  -- Which attempt.
    pod_id uuid,  -- The pod that ran it.
    outcome text NOT NULL,  -- failed: retried by the worker layer · retry: by the application layer · suspended: waits for a breaker or a budget · handed_back: its pod drained · misfit: its pod's code cannot take the job · pod_died: taken over · process_died: its own process died, its pod did not · lease_expired: its pod fell silent.
    ended_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it ended.
    due_at timestamptz,  -- When the next attempt was due; null when a person decides.
    error text,  -- One line, for failed attempts.
    error_class text,  -- Class of the error: decides whether and how it is retried.
    error_code text,  -- Stable code of the error.
    error_source text,  -- What failed, or what the job waits for.
    retry_count integer,  -- Application retries used when it ended.
    CONSTRAINT job_attempt_pkey PRIMARY KEY (job_id, attempt),
    CONSTRAINT job_attempt_outcome_check CHECK (outcome = ANY (ARRAY['failed'::text, 'retry'::text, 'suspended'::text, 'handed_back'::text, 'misfit'::text, 'pod_died'::text, 'process_died'::text, 'lease_expired'::text]))
);
CREATE INDEX job_attempt_handed_back ON cortex.job_attempt USING btree (pod_id, ended_at) WHERE outcome = 'handed_back'::text;
GRANT INSERT, SELECT ON cortex.job_attempt TO cortex_runtime;
GRANT SELECT ON cortex.job_attempt TO cortex_reader;

-- Receipts of timeouts. Append-only; the transcript up to each receipt is the steps up to its checkpoint and its partial text.
CREATE TABLE cortex.timeout_event (
    job_id uuid NOT NULL,  -- The job. No foreign key: retention deletes it with its job.
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of the rows.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was recorded.
    attempt integer NOT NULL,  -- The attempt that ran out of time.
    nth integer NOT NULL,  -- Number of the timeout of that scope and step in that attempt: a call is tried several times.
    scope text NOT NULL,  -- The scope whose limit was exceeded.
    limit_s double precision NOT NULL,  -- That limit, in seconds.
    elapsed_s double precision NOT NULL,  -- Seconds since that scope began.
    phase text NOT NULL,  -- model: waiting for an answer · tool: in a tool · effect: in an effect · step: in a step of the job's own · handler: between steps.
    step_key text,  -- The step that was interrupted; null between steps.
    step_elapsed_s double precision NOT NULL,  -- Seconds since that step began, or since the last checkpoint.
    step_started_at timestamptz NOT NULL,  -- The same by the pod's clock, for comparison with the times of files.
    checkpoint_seq integer NOT NULL,  -- The last committed step, where the job continues; 0: none.
    checkpoint_key text,  -- Its key.
    retry_count integer NOT NULL,  -- Application retries used by then.
    final_action text NOT NULL,  -- retried_call: called again in the step · told_model: reported to the model · released: retried by the worker layer · retry: by the application layer · failed: the job failed.
    partial_text text,  -- The model's output so far.
    artefacts jsonb NOT NULL,  -- Files of the workspace that the step changed, the newest 200: path, bytes written, time of change.
    work_trees jsonb NOT NULL,  -- Git work trees of the job's folder and workspace: root, branch, head, uncommitted changes, diff.
    problem text,  -- Why some or all files could not be inspected.
    CONSTRAINT timeout_event_pkey PRIMARY KEY (job_id, id),
    CONSTRAINT timeout_event_once UNIQUE NULLS NOT DISTINCT (job_id, attempt, scope, step_key, nth),
    CONSTRAINT timeout_event_attempt_check CHECK (attempt >= 1),
    CONSTRAINT timeout_event_checkpoint_seq_check CHECK (checkpoint_seq >= 0),
    CONSTRAINT timeout_event_elapsed_s_check CHECK (elapsed_s >= 0::double precision),
    CONSTRAINT timeout_event_final_action_check CHECK (final_action = ANY (ARRAY['retried_call'::text, 'retry'::text, 'released'::text, 'failed'::text, 'told_model'::text])),
    CONSTRAINT timeout_event_limit_s_check CHECK (limit_s >= 0::double precision),
    CONSTRAINT timeout_event_nth_check CHECK (nth >= 1),
    CONSTRAINT timeout_event_partial_text_check CHECK (octet_length(partial_text) <= 65536),
    CONSTRAINT timeout_event_phase_check CHECK (phase = ANY (ARRAY['model'::text, 'tool'::text, 'effect'::text, 'step'::text, 'handler'::text])),
    CONSTRAINT timeout_event_retry_count_check CHECK (retry_count >= 0),
    CONSTRAINT timeout_event_scope_check CHECK (scope = ANY (ARRAY['job'::text, 'step'::text, 'call'::text, 'connect'::text, 'idle'::text])),
    CONSTRAINT timeout_event_step_elapsed_s_check CHECK (step_elapsed_s >= 0::double precision),
    CONSTRAINT timeout_event_step_key_check CHECK (length(step_key) >= 1 AND length(step_key) <= 500)
) WITH (autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
GRANT INSERT, SELECT ON cortex.timeout_event TO cortex_runtime;
GRANT SELECT ON cortex.timeout_event TO cortex_reader;

CREATE TRIGGER timeout_event_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.timeout_event FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- Committed steps, append-only: the checkpoints that a resumed job replays.
CREATE TABLE cortex.job_step (
    job_id uuid NOT NULL,  -- The job.
    seq integer NOT NULL,  -- Order of commit within the job: 1, 2, 3 … without gaps.
    attempt integer NOT NULL,  -- The attempt that committed it.
    kind text NOT NULL,  -- step: the job's own function · model: a model response · tool: a tool call · effect: the job's own call with an outside result · approval: a decision · message: a message that it published · patch: which branch of a change to its code it takes · emit: a chunk of output for those who follow the job · child: jobs that it submitted, or how they ended · first: which of several waits ended first.
    key text NOT NULL,  -- Its name in the job's code; unique within the job.
    digest bytea NOT NULL,  -- Digest of its input: a replay with another input has diverged.
    started_at timestamptz NOT NULL,  -- When it began.
    finished_at timestamptz NOT NULL,  -- When it was committed.
    cost_usd numeric(18,8),  -- Its cost in US dollars; null when zero or when the price is unknown.
    usage jsonb,  -- Tokens: input, output, cache read, cache write.
    output json,  -- Its return value; json rather than jsonb, which would change numbers: a replay must see the same.
    input text,  -- Its input as JSON: secrets redacted, at most 4 KiB. Shows what changed when a replay diverges.
    amid text,  -- error: called while an exception was being handled · failure: called after a step of its attempt had failed. A replay may skip it.
    parent_key text,  -- Key of the step whose function called it; null: the handler did. A replay that finds the parent recorded skips it.
    CONSTRAINT job_step_pkey PRIMARY KEY (job_id, seq),
    CONSTRAINT job_step_key_once UNIQUE (job_id, key),
    CONSTRAINT job_step_amid_check CHECK (amid = ANY (ARRAY['error'::text, 'failure'::text])),
    CONSTRAINT job_step_key_check CHECK (length(key) >= 1 AND length(key) <= 500),
    CONSTRAINT job_step_kind_check CHECK (kind = ANY (ARRAY['step'::text, 'model'::text, 'tool'::text, 'effect'::text, 'approval'::text, 'message'::text, 'patch'::text, 'emit'::text, 'child'::text, 'first'::text])),
    CONSTRAINT job_step_seq_check CHECK (seq >= 1)
) WITH (autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX job_step_patch ON cortex.job_step USING btree (job_id) WHERE kind = 'patch'::text;
GRANT INSERT, SELECT ON cortex.job_step TO cortex_runtime;
GRANT SELECT ON cortex.job_step TO cortex_reader;

CREATE TRIGGER job_step_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.job_step FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- Images and PDFs of prompts and tool results, by digest: steps only refer to them.
CREATE TABLE cortex.job_file (
    job_id uuid NOT NULL,  -- The first job of the lineage.
    sha256 bytea NOT NULL,  -- Digest of the content, by which steps refer to it.
    media_type text NOT NULL,  -- Its type, by its content.
    size integer NOT NULL,  -- Its size in bytes.
    kept_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first kept.
    content bytea NOT NULL,  -- The file itself.
    CONSTRAINT job_file_pkey PRIMARY KEY (job_id, sha256),
    CONSTRAINT job_file_media_type_check CHECK (length(media_type) >= 1 AND length(media_type) <= 100),
    CONSTRAINT job_file_sha256_check CHECK (length(sha256) = 32),
    CONSTRAINT job_file_size_check CHECK (size >= 1 AND size <= 33554432),
    CONSTRAINT size_is_that_of_the_content CHECK (size = length(content))
);
GRANT INSERT, SELECT ON cortex.job_file TO cortex_runtime;
GRANT SELECT ON cortex.job_file TO cortex_reader;

CREATE TRIGGER job_file_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.job_file FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- The state and the progress that code of jobs publishes: a row for each job that has.
CREATE TABLE cortex.job_published (
    job_id uuid NOT NULL,  -- The job. No foreign key: as of steps.
    attempt integer NOT NULL,  -- The attempt that published last; an earlier one changes nothing any more.
    number integer NOT NULL,  -- Its last change: 1, 2, 3 … within the attempt.
    state jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Values by key.
    done double precision,  -- How much of the total is done; null: its code has said nothing about that.
    total double precision,  -- How much there is to do.
    unit text,  -- What is counted, such as pages; may be empty.
    counts jsonb NOT NULL DEFAULT '{}'::jsonb,  -- How often its handler had assigned each key, deleted ones too; the empty one stands for the progress. By this a replay knows what is new.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was last changed.
    CONSTRAINT job_published_pkey PRIMARY KEY (job_id),
    CONSTRAINT job_published_counts_check CHECK (jsonb_typeof(counts) = 'object'::text),
    CONSTRAINT job_published_state_check CHECK (jsonb_typeof(state) = 'object'::text),
    CONSTRAINT job_published_unit_check CHECK (length(unit) <= 40),
    CONSTRAINT progress_has_a_total CHECK (done >= 0::double precision AND done <= total AND total < 'Infinity'::double precision),
    CONSTRAINT progress_is_whole CHECK (num_nonnulls(done, total, unit) = ANY (ARRAY[0, 3]))
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_cost_delay=1);
GRANT INSERT, SELECT, UPDATE ON cortex.job_published TO cortex_runtime;
GRANT SELECT ON cortex.job_published TO cortex_reader;

-- How far a job has come; null: its code has said nothing about that.
CREATE FUNCTION cortex.progress_of(of_job uuid)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT jsonb_build_object('done', p.done, 'total', p.total, 'unit', p.unit)
FROM cortex.job_published p WHERE p.job_id = of_job AND p.done IS NOT NULL $function$;
REVOKE EXECUTE ON FUNCTION cortex.progress_of(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.progress_of(uuid) TO cortex_reader;

-- The code of pods: one row for each that a pod started with, kept as long as a pod names it. The code of an attempt is that of its pod.
CREATE TABLE cortex.code (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,  -- The id that pods name.
    digest bytea NOT NULL,  -- SHA-256 of all that tells one code from another: the same code is the same row.
    version text NOT NULL,  -- What people see: the operator's word for it, or a digest of its sources.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When a pod first had it.
    used_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When a pod last started with it.
    CONSTRAINT code_pkey PRIMARY KEY (id),
    CONSTRAINT code_digest_key UNIQUE (digest),
    CONSTRAINT code_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT code_version_check CHECK (length(version) >= 1 AND length(version) <= 100)
);
GRANT INSERT, SELECT ON cortex.code TO cortex_runtime;
GRANT UPDATE (used_at) ON cortex.code TO cortex_runtime;
GRANT SELECT ON cortex.code TO cortex_reader;

CREATE TRIGGER code_is_immutable BEFORE DELETE OR UPDATE OF id, digest, version, created_at OR TRUNCATE ON cortex.code FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- The arguments that a code takes for each of its job types: the command line and the HTTP API check payloads against them. cortex.submit_job does not.
CREATE TABLE cortex.code_arguments (
    code_id integer NOT NULL,  -- The code.
    type text NOT NULL,  -- The job type.
    schema json NOT NULL,  -- JSON Schema of an object of them, in the order of the handler.
    CONSTRAINT code_arguments_pkey PRIMARY KEY (code_id, type),
    CONSTRAINT code_arguments_code FOREIGN KEY (code_id) REFERENCES cortex.code(id) ON DELETE CASCADE
);
GRANT INSERT, SELECT ON cortex.code_arguments TO cortex_runtime;
GRANT SELECT ON cortex.code_arguments TO cortex_reader;

-- Every pod that ever started: one run of `cortex up`. With `--workers` each worker process has a row: it claims, beats, drains and is taken over by itself; people see the rows of one run as one pod.
CREATE TABLE cortex.pod (
    id uuid NOT NULL,  -- Random boot id, never the host's name: a restarted pod is a new pod.
    lock_key bigint NOT NULL,  -- Key of the session advisory lock that it holds while it lives. It takes another key if a foreign login holds this one.
    backend_pid integer,  -- The server process of the session that holds its lock; null for a pod behind a pooler. The lock counts as held only by it.
    backend_start timestamptz,  -- When that process started, since its number may be used again; null if the owner of the schema may not read that of other logins.
    backend_user oid,  -- The login of that session: no other login can pass for it.
    name text NOT NULL,  -- Host name and process id, for people only.
    version text NOT NULL,  -- Version of Cortex that it runs.
    state text NOT NULL DEFAULT 'READY'::text,  -- READY, DRAINING, STOPPED (drained and ended) or DEAD (taken over).
    job_types text[] NOT NULL,  -- Job types that it can run.
    slots integer NOT NULL,  -- The most jobs that it runs at the same time.
    running integer NOT NULL DEFAULT 0,  -- Jobs that it ran at its last heartbeat.
    started_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it registered.
    heartbeat_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Its last heartbeat.
    draining_at timestamptz,  -- When it began to drain.
    ended_at timestamptz,  -- When it ended, or was found dead.
    loop_lag_ms real,  -- Longest delay of its event loop since the previous heartbeat.
    rss_bytes bigint,  -- Its resident memory.
    threads_lost integer NOT NULL DEFAULT 0,  -- Threads of sync functions that time-outs left behind and that had not ended at its last heartbeat.
    hint_latency_ms real,  -- How long a notification takes to reach it; null while none arrives.
    phase text,  -- Its shutdown phase while it drains; for a dead pod, the phase in which it died; else null.
    phase_at timestamptz,  -- When that phase began.
    abort_at timestamptz,  -- When the jobs that it still runs are handed back; in later phases, when they were.
    closed_at timestamptz,  -- The deadline for closing everything and ending.
    liveness text NOT NULL DEFAULT 'lock'::text,  -- What shows that it lives: its session lock and its heartbeat; behind a pooler, which can hold no lock, only the heartbeat.
    trouble text,  -- What is wrong with the database from this pod's view, such as disk_full, although its heartbeat succeeds; else null.
    trouble_at timestamptz,  -- Since when.
    drain_requested_at timestamptz,  -- When a person requested that it take no more jobs and hand back those that it runs; its process stays. Null: no request.
    drain_requested_by text,  -- Who requested it.
    drain_reason text,  -- Why; may be empty.
    confinement text,  -- What confines the programs that agents start; unsafe: the operator lets them run unconfined.
    tools text[] NOT NULL DEFAULT '{}'::text[],  -- The tools that it offers to agents.
    peer_check_s double precision NOT NULL DEFAULT 0.5,  -- Its setting peer_check_s: how often it polls for pods that died.
    heartbeat_s double precision NOT NULL DEFAULT 30,  -- Its setting heartbeat_s: how often it writes a heartbeat.
    zombie_s double precision NOT NULL DEFAULT 300,  -- Its setting zombie_s: the silence after which it frees the jobs of another pod.
    sweep_s double precision NOT NULL DEFAULT 60,  -- Its setting sweep_s: how often it polls for jobs of silent pods.
    silent_after_s double precision NOT NULL GENERATED ALWAYS AS (LEAST(3::double precision * heartbeat_s + 5::double precision, zombie_s)) STORED,  -- Seconds without a heartbeat after which people see it as silent: three heartbeats and a little.
    group_id uuid,  -- Shared by the workers of one run of `cortex up --workers`; null for a pod of one process.
    worker integer,  -- Its number among them, from 1; a restarted worker is a new row with the same number. Null for a pod of one process.
    has_run boolean NOT NULL DEFAULT true,  -- The record may name it: it has run a job other than upkeep, as far as it is known. See cortex.forget_pods.
    code_id integer,  -- The code that it runs.
    shown_id uuid NOT NULL GENERATED ALWAYS AS (COALESCE(group_id, id)) STORED,  -- The id by which people know the pod: shared by its workers, else its own.
    CONSTRAINT pod_pkey PRIMARY KEY (id),
    CONSTRAINT pod_lock_key_key UNIQUE (lock_key),
    CONSTRAINT pod_code FOREIGN KEY (code_id) REFERENCES cortex.code(id),
    CONSTRAINT backend_with_its_user CHECK ((backend_pid IS NULL) = (backend_user IS NULL)),
    CONSTRAINT drain_request_is_whole CHECK ((drain_requested_by IS NULL) = (drain_requested_at IS NULL) AND (drain_reason IS NULL) = (drain_requested_at IS NULL)),
    CONSTRAINT pod_confinement_check CHECK (confinement = ANY (ARRAY['bubblewrap'::text, 'landlock'::text, 'user'::text, 'none'::text, 'unsafe'::text])),
    CONSTRAINT pod_drain_reason_check CHECK (length(drain_reason) <= 500),
    CONSTRAINT pod_drain_requested_by_check CHECK (length(drain_requested_by) >= 1 AND length(drain_requested_by) <= 200),
    CONSTRAINT pod_heartbeat_s_check CHECK (heartbeat_s > 0::double precision),
    CONSTRAINT pod_liveness_check CHECK (liveness = ANY (ARRAY['lock'::text, 'heartbeat'::text])),
    CONSTRAINT pod_peer_check_s_check CHECK (peer_check_s > 0::double precision),
    CONSTRAINT pod_phase_check CHECK (phase = ANY (ARRAY['intake'::text, 'jobs'::text, 'hand_back'::text, 'flush'::text, 'sign_off'::text])),
    CONSTRAINT pod_state_check CHECK (state = ANY (ARRAY['READY'::text, 'DRAINING'::text, 'STOPPED'::text, 'DEAD'::text])),
    CONSTRAINT pod_sweep_s_check CHECK (sweep_s > 0::double precision),
    CONSTRAINT pod_trouble_check CHECK (trouble ~ '^[a-z_]{1,40}$'::text),
    CONSTRAINT pod_worker_check CHECK (worker >= 1 AND worker <= 64),
    CONSTRAINT pod_zombie_s_check CHECK (zombie_s > 0::double precision),
    CONSTRAINT trouble_with_its_instant CHECK ((trouble IS NULL) = (trouble_at IS NULL)),
    CONSTRAINT worker_of_a_group CHECK ((group_id IS NULL) = (worker IS NULL))
) WITH (fillfactor=50);
CREATE INDEX pod_ended ON cortex.pod USING btree (ended_at DESC) WHERE ended_at IS NOT NULL;
CREATE INDEX pod_idle ON cortex.pod USING btree (ended_at) WHERE NOT has_run;
CREATE INDEX pod_shown ON cortex.pod USING btree (shown_id);
CREATE INDEX pod_code ON cortex.pod USING btree (code_id);
CREATE INDEX pod_alive ON cortex.pod USING btree (heartbeat_at) WHERE state = ANY (ARRAY['READY'::text, 'DRAINING'::text]);
GRANT INSERT, SELECT, UPDATE ON cortex.pod TO cortex_runtime;
GRANT SELECT ON cortex.pod TO cortex_reader;

-- When the server began to accept writes: it was started or promoted, or it recovered from a crash. Before that, no pod could hold a lock or write a heartbeat.
CREATE FUNCTION cortex.serving_since()
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT greatest(pg_postmaster_start_time(), (
    SELECT max(backend_start) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walwriter')) $function$;
REVOKE EXECUTE ON FUNCTION cortex.serving_since() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.serving_since() TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.serving_since() TO cortex_reader;

-- The session that runs this transaction, as far as can be determined; null if it is over. A locked row names its transaction in xmax.
CREATE FUNCTION cortex.holder_of(held xid)
 RETURNS jsonb
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT jsonb_build_object('pid', l.pid, 'application', a.application_name, 'user', a.usename, 'client', a.client_addr,
                          'state', a.state, 'since', a.xact_start)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = held LIMIT 1 $function$;
REVOKE EXECUTE ON FUNCTION cortex.holder_of(xid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.holder_of(xid) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.holder_of(xid) TO cortex_reader;

-- When a process of the server started; null if there is none, or if the owner of the schema may not read it: it may with pg_read_all_stats.
CREATE FUNCTION cortex.backend_start(backend integer)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT a.backend_start FROM pg_stat_get_activity(backend) a $function$;
REVOKE EXECUTE ON FUNCTION cortex.backend_start(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.backend_start(integer) TO cortex_runtime;

-- Pods whose registered session lives and holds their lock: the same server process, started at the same time, of the same login.
CREATE FUNCTION cortex.connected_pods()
 RETURNS SETOF uuid
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT p.id
FROM pg_locks l
JOIN cortex.pod p ON p.lock_key = (l.classid::bigint << 32) | l.objid::bigint AND p.backend_pid = l.pid
JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid AND a.usesysid = p.backend_user
    AND coalesce(a.backend_start = p.backend_start, true)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) $function$;
REVOKE EXECUTE ON FUNCTION cortex.connected_pods() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.connected_pods() TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.connected_pods() TO cortex_reader;

-- Pods marked alive whose session ended. A pod behind a pooler has no session of its own; only its silence shows that it died.
CREATE FUNCTION cortex.lost_pods()
 RETURNS SETOF uuid
 LANGUAGE sql
 STABLE
AS $function$
SELECT p.id FROM cortex.pod p
WHERE p.state IN ('READY', 'DRAINING') AND p.liveness = 'lock' AND p.id NOT IN (SELECT cortex.connected_pods())
  -- After a start of the server all pods take their locks again.
  AND p.started_at < cortex.now() - interval '2 s'
  AND cortex.serving_since() < cortex.now() - interval '5 s' $function$;
REVOKE EXECUTE ON FUNCTION cortex.lost_pods() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.lost_pods() TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.lost_pods() TO cortex_reader;

-- Periodic work that all pods take turns at: a pod that finds it recently done skips it.
CREATE TABLE cortex.turn (
    name text NOT NULL,  -- Name of the work.
    ran_at timestamptz NOT NULL,  -- When a process last did it.
    since timestamptz,  -- Since when it was done without a gap, where that matters.
    CONSTRAINT turn_pkey PRIMARY KEY (name),
    CONSTRAINT turn_name_check CHECK (length(name) >= 1 AND length(name) <= 100)
) WITH (fillfactor=50);
GRANT INSERT, SELECT, UPDATE ON cortex.turn TO cortex_runtime;
GRANT SELECT ON cortex.turn TO cortex_reader;

-- Work that one process at a time does for all: while it does, its transaction has locked the row. Never changed.
CREATE TABLE cortex.runner_turn (
    name text NOT NULL,  -- Name of the work.
    CONSTRAINT runner_turn_pkey PRIMARY KEY (name)
);
GRANT SELECT, UPDATE ON cortex.runner_turn TO cortex_runtime;

-- Takes the turn of some work to the end of the transaction, without waiting; whether it was free.
CREATE FUNCTION cortex.take_turn(work text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM FROM cortex.runner_turn t WHERE t.name = work FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM cortex.runner_turn t WHERE t.name = work) THEN
        RAISE EXCEPTION 'there is no turn %', work;
    END IF;
    RETURN false;
END $function$;

-- LATER: due in the future · QUEUED: waits for its turn in a named queue · HELD: due, waits for room in the limits of its type · STRANDED: has made way in a named queue, because no living pod can take it · PAUSED: due, but its job or its tenant is paused · READY: can be claimed · LOCKED: a pod has it.
CREATE TYPE cortex_worker.task_state AS ENUM ('LATER', 'QUEUED', 'HELD', 'STRANDED', 'PAUSED', 'READY', 'LOCKED');

-- The transient row of a job that needs a pod; deleted when it does not.
CREATE TABLE cortex_worker.task (
    job_id uuid NOT NULL,  -- Its job; a job never has more than one task.
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,  -- Order of arrival; job.worker_job_id names it. Tasks are found by their job.
    task text NOT NULL,  -- Job type; for run_agent of an agent with tools, followed by their set: see cortex.tool_set. For a job that some code cannot take, followed by the set of such codes: see cortex_worker.unfit.
    state cortex_worker.task_state NOT NULL,  -- Whether it can be claimed.
    priority smallint NOT NULL DEFAULT 0,  -- Smaller runs first.
    attempt integer NOT NULL DEFAULT 0,  -- The job's attempt: raised by each claim; the fence.
    attempts_spent integer NOT NULL DEFAULT 0,  -- Claims that count against max_attempts.
    max_attempts integer NOT NULL,  -- The job fails after this many failed claims.
    locked_by uuid,  -- The pod that has it.
    locked_at timestamptz,  -- When its latest attempt began.
    running jsonb,  -- A step that its pod has reported as running, because it takes long: see cortex.running_step.
    run_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Not before this instant.
    queue_name text,  -- Tasks of one named queue run one after another.
    job_key text,  -- The key of its job, with the tenant: see cortex_worker.key_of. A new task with the same one replaces this one while it is not locked.
    is_suspect boolean NOT NULL DEFAULT false,  -- Pods or processes have died while running it: it runs in its own process.
    heartbeat_at timestamptz,  -- The latest heartbeat of its latest attempt.
    config_id integer,  -- Policies and prices of its latest attempt.
    checkpoint jsonb,  -- Small summary of the job's progress: step, seq, phase, totals. Null until its latest attempt has made a step.
    is_admitted boolean,  -- Whether the limits of its type have let it through: it keeps its places until it is deleted, or waits in its queue again. Null: the type has none.
    limit_keys text[] COLLATE "C",  -- Its keys in these limits: see cortex_worker.limit_keys. Null: its type has none.
    due_by timestamptz,  -- Within its priority, it runs before those without one, and before later ones.
    pause text,  -- Of a PAUSED task: the pause, as kind:name.
    CONSTRAINT task_pkey PRIMARY KEY (job_id),
    CONSTRAINT held_until_admitted CHECK (is_admitted IS NOT FALSE OR (state <> ALL (ARRAY['STRANDED'::cortex_worker.task_state, 'READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state]))),
    CONSTRAINT locked_by_only_when_locked CHECK ((locked_by IS NOT NULL) = (state = 'LOCKED'::cortex_worker.task_state)),
    CONSTRAINT paused_by_a_pause CHECK ((pause IS NOT NULL) = (state = 'PAUSED'::cortex_worker.task_state)),
    CONSTRAINT queued_only_in_a_queue CHECK ((state <> ALL (ARRAY['QUEUED'::cortex_worker.task_state, 'STRANDED'::cortex_worker.task_state])) OR queue_name IS NOT NULL),
    CONSTRAINT task_attempts_spent_check CHECK (attempts_spent >= 0),
    CONSTRAINT task_checkpoint_check CHECK (pg_column_size(checkpoint) <= 16384),
    CONSTRAINT task_job_key_check CHECK (length(job_key) >= 1 AND length(job_key) <= 700),
    CONSTRAINT task_max_attempts_check CHECK (max_attempts >= 1 AND max_attempts <= 100),
    CONSTRAINT task_running_check CHECK (pg_column_size(running) <= 4096)
) WITH (fillfactor=60, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.1, autovacuum_vacuum_cost_delay=0);
CREATE INDEX task_locked ON cortex_worker.task USING btree (locked_by) WHERE state = 'LOCKED'::cortex_worker.task_state;
CREATE INDEX task_later ON cortex_worker.task USING btree (run_at) WHERE state = 'LATER'::cortex_worker.task_state;
CREATE INDEX task_queued ON cortex_worker.task USING btree (queue_name, priority, run_at, id) WHERE state = 'QUEUED'::cortex_worker.task_state;
CREATE INDEX task_paused ON cortex_worker.task USING btree (pause, task, priority, run_at, id) WHERE state = 'PAUSED'::cortex_worker.task_state;
CREATE INDEX task_stranded ON cortex_worker.task USING btree (task, priority, run_at, id) WHERE state = 'STRANDED'::cortex_worker.task_state;
-- At most one task of a named queue can wait for room in its limits, be claimed or run.
CREATE UNIQUE INDEX task_queue_head ON cortex_worker.task USING btree (queue_name) WHERE queue_name IS NOT NULL AND (state = ANY (ARRAY['HELD'::cortex_worker.task_state, 'READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state]));
CREATE UNIQUE INDEX task_job_key ON cortex_worker.task USING btree (job_key) WHERE job_key IS NOT NULL;
CREATE INDEX task_ready ON cortex_worker.task USING btree (task, priority, run_at, id) WHERE state = 'READY'::cortex_worker.task_state AND NOT is_suspect;
CREATE INDEX task_due ON cortex_worker.task USING btree (task, priority, due_by, id) WHERE state = 'READY'::cortex_worker.task_state AND NOT is_suspect AND due_by IS NOT NULL;
CREATE INDEX task_queued_due ON cortex_worker.task USING btree (queue_name, priority, due_by, id) WHERE state = 'QUEUED'::cortex_worker.task_state AND due_by IS NOT NULL;
CREATE INDEX task_suspect ON cortex_worker.task USING btree (task, priority, run_at, id) WHERE state = 'READY'::cortex_worker.task_state AND is_suspect;
CREATE INDEX task_ready_named ON cortex_worker.task USING btree (task, priority, run_at, id) WHERE state = 'READY'::cortex_worker.task_state AND NOT is_suspect AND queue_name IS NOT NULL;
CREATE INDEX task_held ON cortex_worker.task USING btree (limit_keys, (1 - LEAST(attempt, 1)), priority, COALESCE(due_by, 'infinity'::timestamp with time zone), run_at, id) WHERE state = 'HELD'::cortex_worker.task_state AND limit_keys IS NOT NULL;
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.task TO cortex_runtime;
GRANT SELECT ON cortex_worker.task TO cortex_reader;

-- The step that a task runs, the longest running one: its kind, key, since when, and how many more run. Null: none, or none that runs long.
CREATE FUNCTION cortex.running_step(task cortex_worker.task)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
-- Nothing clears the report when its step ends, so that a step costs no write: it may be of an earlier attempt, or its
-- step may be in the record by now.
SELECT task.running - 'attempt'
WHERE task.state = 'LOCKED' AND (task.running->>'attempt')::int = task.attempt AND NOT EXISTS (
    SELECT FROM cortex.job_step s WHERE s.job_id = task.job_id AND s.key = task.running->>'key') $function$;

-- Kinds of tasks that some code cannot take. Few: a row is deleted a day after its last use, once no task has its name.
CREATE TABLE cortex_worker.unfit (
    task text NOT NULL,  -- The name of such tasks.
    base text NOT NULL,  -- The name of these tasks without the codes.
    codes integer[] NOT NULL,  -- The codes that cannot take them, sorted; 0: a pod without a code.
    used_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When a task last got this name.
    CONSTRAINT unfit_pkey PRIMARY KEY (task),
    CONSTRAINT unfit_codes_check CHECK (cardinality(codes) >= 1)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.unfit TO cortex_runtime;
GRANT SELECT ON cortex_worker.unfit TO cortex_reader;

-- Kinds of due tasks that no living pod and no recent tick can take: their jobs wait for code. The runner alarms adds and deletes them, in a tick, too; few.
CREATE TABLE cortex_worker.stranded (
    task text NOT NULL,  -- The name of such tasks.
    since timestamptz NOT NULL DEFAULT cortex.now(),  -- When that was first observed.
    announced_at timestamptz,  -- When it was announced; null: it has not lasted long enough yet.
    jobs integer NOT NULL,  -- How many jobs have such tasks, counted up to a bound.
    CONSTRAINT stranded_pkey PRIMARY KEY (task)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.stranded TO cortex_runtime;
GRANT SELECT ON cortex_worker.stranded TO cortex_reader;

-- The name of tasks of a kind that these codes, sorted, cannot take.
CREATE FUNCTION cortex_worker.unfit_task(base text, codes integer[])
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN ((base || ' !'::text) || "left"(encode(sha256(convert_to(array_to_string(codes, ' '::text), 'UTF8'::name)), 'hex'::text), 16));

-- The tasks that a pod with these job types, these tools and this code can take.
CREATE FUNCTION cortex.claimable(types text[], tools text[], code integer)
 RETURNS text[]
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
DECLARE
    tasks text[] := types;
BEGIN
    IF 'run_agent' = ANY (types) THEN
        tasks := tasks || ARRAY(SELECT s.task FROM cortex.tool_set s WHERE s.tools <@ claimable.tools);
    END IF;
    RETURN tasks || ARRAY(SELECT u.task FROM cortex_worker.unfit u
                          WHERE u.base = ANY (tasks) AND claimable.code <> ALL (u.codes));
END $function$;

-- The code of a pod; 0 if it has none.
CREATE FUNCTION cortex.code_of(pod uuid)
 RETURNS integer
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
BEGIN
    RETURN coalesce((SELECT p.code_id FROM cortex.pod p WHERE p.id = code_of.pod), 0);
END $function$;

-- Every job as it is now: its record and, while a pod runs it, the state that is in its task.
--   id: UUIDv7 made by the submitter, so that a repeated submit finds the same job.
--   type: The registered handler that runs it.
--   tenant: The tenant that owns it.
--   agent_id: The agent that it runs, if it runs one.
--   agent_version: The agent's version, bound at submit and kept on every attempt.
--   status: Its state; illegal transitions are refused.
--   attempt: Number of its latest run, never reused: the fence of every write.
--   retry_count: Application retries used.
--   max_retries: Application retries allowed.
--   worker_attempts: Worker attempts of each of its tasks.
--   pod_deaths: Pods that died while running it, consecutively and without a step in between: makes it a suspect, but does not condemn it.
--   timeout_s: Seconds from started_at to its timeout.
--   priority: Smaller runs first.
--   queue_name: Jobs of one named queue run one after another; of a strict one, the next begins when the one before has ended.
--   pod_id: The pod that runs it, or ran it last; null between attempts.
--   worker_job_id: Its task: a soft reference, null when it has no task.
--   next_retry_at: When RETRY becomes due.
--   heartbeat_at: Its pod's last heartbeat for it; null between attempts.
--   run_at: Not before this instant.
--   started_at: When its first attempt began.
--   finished_at: When it reached its terminal state.
--   cancel_requested_at: When a person requested its cancellation; its pod stops it.
--   created_at: When it was submitted.
--   updated_at: When any column last changed.
--   cancelled_by: Who requested its cancellation.
--   cancel_reason: Why.
--   error_message: One line for people, set only in FAILED.
--   error_code: Stable code of that error.
--   checkpoint: Small summary of its progress: step, seq, phase, totals.
--   result: The return value of its handler.
--   payload: Its arguments, as submitted; immutable.
--   config_id: Policies and prices that it started with, and keeps on every attempt.
--   waiting_on: What it waits for besides time: a breaker (llm:NAME, tool:NAME …), budget:NAME, quota:NAME, effects:all (the freeze), approval:ID, effect:ID (an unknown outcome), person:WHAT, trust:AGENT/SERVER.TOOL (a changed tool, see mcp_tool), signal:NAME, child:STEP, or code: code that can take it, see tasks.misfit; then it fails at next_retry_at.
--   suspended_at: Since when no pod has it; null while a pod has it, and before its first start.
--   waited_s: Seconds between attempts so far: they do not count towards its timeout.
--   rate_limit_count: Application retries caused by a rate limit.
--   attempts_kept: Worker attempts that its next task starts with: those of a task that ended to wait, not to retry.
--   waits_count: How often in a row it waited for a breaker or a budget without a step in between.
--   own_failure_at: When it last had to wait because its own call failed, without a step since then.
--   broken_answers: How often in a row its own call failed in the middle of an answer; no longer valid when own_failure_at is null.
--   job_key: The key that it was submitted with: a new job with the same key replaces it while it waits.
--   error_class: Class of the error that it failed with.
--   error_source: What failed: the name of a breaker, as in waiting_on; null for its own code.
--   origin_id: The failed job that it continues.
--   lineage_id: The first job of its lineage, which names the workspace. Null if that is the job itself.
--   submitted_by: Who submitted it: the session's setting cortex.actor; of a login that may only submit, a label beside its name.
--   has_open: It has had effects or approvals: open ones are closed when it ends.
--   was_suspect: Its task was a suspect when it started to wait; its next task is one, unless it has made a step.
--   submitted_with: The credential that submitted it: os:UID, token:ID or db:LOGIN.
--   process_deaths: Processes of its own that died while running it, with their pods alive, consecutively and without a step in between: the poison guard.
--   tags: Words that people find it by, sorted; null: none.
--   unfit_codes: The codes of pods that found that they cannot take it, sorted: pods of these do not claim it. Null: none did.
--   traceparent: The trace and span that it was submitted in; null: its trace is its own, see cortex.trace_id.
--   trace_id: Its trace, as 32 hex digits.
--   replaced_by: The job that took its key while it ran: when its attempt ends without ending it, it is cancelled.
--   due_by: Its deadline: among jobs of one priority the earliest runs first, before those without one. A late job runs, too.
--   parent_id: The job whose code submitted it, see cortex.job_child; null: a person or a program did.
--   has_children: Its code has submitted jobs, which are to be cancelled when it ends; null: it has not.
CREATE VIEW cortex.job AS
 SELECT r.id,
    r.type,
    r.tenant,
    r.agent_id,
    r.agent_version,
        CASE
            WHEN t.job_id IS NULL THEN r.status
            ELSE 'RUNNING'::cortex.job_status
        END AS status,
    COALESCE(t.attempt, r.attempt) AS attempt,
    r.retry_count,
    r.max_retries,
    r.worker_attempts,
        CASE
            WHEN t.checkpoint IS NULL THEN r.pod_deaths
            ELSE 0
        END AS pod_deaths,
    r.timeout_s,
    r.priority,
    r.queue_name,
    COALESCE(t.locked_by, r.pod_id) AS pod_id,
    r.worker_job_id,
        CASE
            WHEN t.job_id IS NOT NULL THEN NULL::timestamp with time zone
            WHEN r.waiting_on = 'code'::text AND ((( SELECT k.task
               FROM cortex_worker.task k
              WHERE k.job_id = r.id)) = ANY ((( SELECT array_agg(s.task) AS array_agg
               FROM cortex_worker.stranded s))::text[])) IS NOT TRUE THEN r.suspended_at
            ELSE r.next_retry_at
        END AS next_retry_at,
    t.heartbeat_at,
    r.run_at,
    COALESCE(r.started_at, t.locked_at) AS started_at,
    r.finished_at,
    r.cancel_requested_at,
    r.created_at,
    GREATEST(r.updated_at, t.locked_at) AS updated_at,
    r.cancelled_by,
    r.cancel_reason,
    r.error_message,
    r.error_code,
    COALESCE(t.checkpoint, r.checkpoint) AS checkpoint,
    r.result,
    r.payload,
    COALESCE(r.config_id, t.config_id) AS config_id,
        CASE
            WHEN t.job_id IS NOT NULL THEN NULL::text
            WHEN r.finished_at IS NULL AND (r.status = ANY (ARRAY['PENDING'::cortex.job_status, 'RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status])) AND ( SELECT true
               FROM cortex_worker.task h
              WHERE h.state = 'HELD'::cortex_worker.task_state AND h.limit_keys IS NOT NULL
             LIMIT 1) AND (( SELECT k.state
               FROM cortex_worker.task k
              WHERE k.job_id = r.id)) = 'HELD'::cortex_worker.task_state THEN 'limit:'::text || r.type
            WHEN r.waiting_on <> 'code'::text OR r.finished_at IS NOT NULL THEN r.waiting_on
            WHEN (( SELECT array_agg(s.task) AS array_agg
               FROM cortex_worker.stranded s)) IS NOT NULL AND ((( SELECT k.task
               FROM cortex_worker.task k
              WHERE k.job_id = r.id)) = ANY ((( SELECT array_agg(s.task) AS array_agg
               FROM cortex_worker.stranded s))::text[])) THEN 'code'::text
            ELSE NULL::text
        END AS waiting_on,
        CASE
            WHEN t.job_id IS NULL THEN r.suspended_at
            ELSE NULL::timestamp with time zone
        END AS suspended_at,
    cortex.waited_s(r.waited_s, r.suspended_at, t.locked_at) AS waited_s,
    r.rate_limit_count,
    r.attempts_kept,
        CASE
            WHEN t.checkpoint IS NULL THEN r.waits_count
            ELSE 0
        END AS waits_count,
        CASE
            WHEN t.checkpoint IS NULL THEN r.own_failure_at
            ELSE NULL::timestamp with time zone
        END AS own_failure_at,
    r.broken_answers,
    r.job_key,
    r.error_class,
    r.error_source,
    r.origin_id,
    r.lineage_id,
    r.submitted_by,
    r.has_open,
    r.was_suspect,
    r.submitted_with,
        CASE
            WHEN t.checkpoint IS NULL THEN r.process_deaths
            ELSE 0
        END AS process_deaths,
    r.tags,
    r.unfit_codes,
    r.traceparent,
    cortex.trace_id(r.id, r.traceparent) AS trace_id,
    r.replaced_by,
    r.due_by,
    r.parent_id,
    r.has_children
   FROM cortex.job_record r
     LEFT JOIN cortex_worker.task t ON t.job_id = r.id AND t.state = 'LOCKED'::cortex_worker.task_state;
GRANT SELECT ON cortex.job TO cortex_runtime;
GRANT SELECT ON cortex.job TO cortex_reader;

-- The jobs in a state, by index: cortex.job is right but cannot be searched by a state that is in two tables.
--   state: Its state now.
--   id: The job.
--   created_at: When it was submitted.
--   type: Its type.
CREATE VIEW cortex.job_state AS
 SELECT r.status AS state,
    r.id,
    r.created_at,
    r.type
   FROM cortex.job_record r
  WHERE r.finished_at IS NOT NULL OR (( SELECT t.state
           FROM cortex_worker.task t
          WHERE t.job_id = r.id)) IS DISTINCT FROM 'LOCKED'::cortex_worker.task_state
UNION ALL
 SELECT 'RUNNING'::cortex.job_status AS state,
    r.id,
    r.created_at,
    r.type
   FROM cortex_worker.task t
     JOIN cortex.job_record r ON r.id = t.job_id
  WHERE t.state = 'LOCKED'::cortex_worker.task_state;
GRANT SELECT ON cortex.job_state TO cortex_runtime;
GRANT SELECT ON cortex.job_state TO cortex_reader;

CREATE FUNCTION cortex_worker.task_is_claimed()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
BEGIN
    -- Steps and heartbeats change locked tasks only.
    IF NOT EXISTS (SELECT FROM before WHERE state <> 'LOCKED') THEN
        RETURN NULL;
    END IF;
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
    SELECT n.job_id, latest.new, 'RUNNING', n.attempt, n.locked_by, n.locked_at, '{}'
    FROM after n CROSS JOIN LATERAL (
        SELECT h.new FROM cortex.job_history h WHERE h.job_id = n.job_id ORDER BY h.id DESC LIMIT 1) latest
    WHERE n.state = 'LOCKED' AND latest.new <> 'RUNNING';
    -- See 0034_limits.sql.
    IF EXISTS (SELECT FROM after WHERE state = 'LOCKED' AND is_admitted) THEN
        PERFORM cortex_worker.count_begun(ARRAY(SELECT n.job_id FROM after n WHERE n.state = 'LOCKED' AND n.is_admitted));
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.task_is_claimed() FROM PUBLIC;

CREATE TRIGGER task_is_claimed AFTER UPDATE ON cortex_worker.task REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION cortex_worker.task_is_claimed();

-- Named queues whose next task may be able to begin: a promote looks at these, and at no other, and deletes the rows.
CREATE TABLE cortex_worker.queue_due (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Number of the row.
    queue text NOT NULL,  -- The queue.
    due_at timestamptz NOT NULL,  -- When to look: -infinity once the task before has made room, else the start of the task that waits.
    CONSTRAINT queue_due_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX queue_due_at ON cortex_worker.queue_due USING btree (due_at);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.queue_due TO cortex_runtime;
GRANT SELECT ON cortex_worker.queue_due TO cortex_reader;

-- Names the queue of a task or of a job in queue_due.
CREATE FUNCTION cortex_worker.queue_moves()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'task' THEN
        IF NEW.state = 'QUEUED' AND (NEW.run_at > cortex.now() OR OLD.state NOT IN ('HELD', 'READY', 'LOCKED')) THEN
            INSERT INTO cortex_worker.queue_due (queue, due_at) VALUES (NEW.queue_name, NEW.run_at);
        END IF;
        IF OLD.state NOT IN ('HELD', 'READY', 'LOCKED') THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO cortex_worker.queue_due (queue, due_at) VALUES (OLD.queue_name, '-infinity');
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.queue_moves() FROM PUBLIC;

CREATE TRIGGER task_leaves_its_queue AFTER DELETE ON cortex_worker.task FOR EACH ROW WHEN (old.queue_name IS NOT NULL AND (old.attempt > 0 OR (old.state = ANY (ARRAY['HELD'::cortex_worker.task_state, 'READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state])))) EXECUTE FUNCTION cortex_worker.queue_moves();

CREATE TRIGGER task_moves_in_its_queue AFTER UPDATE ON cortex_worker.task FOR EACH ROW WHEN (new.queue_name IS NOT NULL AND (new.state = 'QUEUED'::cortex_worker.task_state AND (old.state <> 'QUEUED'::cortex_worker.task_state OR new.run_at <> old.run_at) OR (old.state = ANY (ARRAY['HELD'::cortex_worker.task_state, 'READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state])) AND (new.state <> ALL (ARRAY['HELD'::cortex_worker.task_state, 'READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state])))) EXECUTE FUNCTION cortex_worker.queue_moves();

CREATE TRIGGER job_leaves_its_queue AFTER UPDATE OF status ON cortex.job_record FOR EACH ROW WHEN (old.queue_name IS NOT NULL AND old.worker_job_id IS NULL AND (old.status = ANY (ARRAY['RUNNING'::cortex.job_status, 'RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status])) AND (new.status <> ALL (ARRAY['RUNNING'::cortex.job_status, 'RETRY'::cortex.job_status, 'WAITING_FOR_APPROVAL'::cortex.job_status]))) EXECUTE FUNCTION cortex_worker.queue_moves();

CREATE FUNCTION cortex_worker.hint()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    has_ready boolean;
    has_queued boolean;
BEGIN
    SELECT bool_or(state = 'READY'), bool_or(state = 'QUEUED') INTO has_ready, has_queued FROM inserted;
    IF has_queued THEN
        INSERT INTO cortex_worker.queue_due (queue, due_at)
        SELECT DISTINCT i.queue_name, i.run_at FROM inserted i WHERE i.state = 'QUEUED';
    END IF;
    -- At most one notification per statement: NOTIFY takes a database-wide lock at commit.
    IF has_ready THEN
        PERFORM pg_notify('cortex_task', 'ready');
    ELSIF has_queued THEN
        PERFORM pg_notify('cortex_task', 'queued');
    END IF;
    RETURN NULL;
END $function$;

CREATE TRIGGER task_hint AFTER INSERT ON cortex_worker.task REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION cortex_worker.hint();

CREATE FUNCTION cortex_worker.task_with_tools()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    NEW.task := coalesce((
        SELECT cortex.task_with(cortex.tools_of(v.spec)) FROM cortex.job_record j
        JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
        WHERE j.id = NEW.job_id), NEW.task);
    RETURN NEW;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.task_with_tools() FROM PUBLIC;

CREATE TRIGGER task_with_tools BEFORE INSERT ON cortex_worker.task FOR EACH ROW WHEN (new.task = 'run_agent'::text) EXECUTE FUNCTION cortex_worker.task_with_tools();

-- The job types and priorities of ready tasks: a claim takes the oldest task of each first.
--   task: Name of their tasks: the type and the set of tools.
--   priority: Their priority: smaller runs first.
CREATE VIEW cortex_worker.ready_head WITH (security_invoker=true) AS
 WITH RECURSIVE head AS (
        ( SELECT task.task,
            task.priority
           FROM cortex_worker.task
          WHERE task.state = 'READY'::cortex_worker.task_state AND NOT task.is_suspect
          ORDER BY task.task, task.priority, task.run_at, task.id
         LIMIT 1)
        UNION ALL
         SELECT next.task,
            next.priority
           FROM head h
             CROSS JOIN LATERAL ( SELECT t.task,
                    t.priority
                   FROM cortex_worker.task t
                  WHERE t.state = 'READY'::cortex_worker.task_state AND NOT t.is_suspect AND ((ROW(t.task, t.priority) > ROW(h.task, h.priority)))
                  ORDER BY t.task, t.priority, t.run_at, t.id
                 LIMIT 1) next
        )
 SELECT task,
    priority
   FROM head;
GRANT SELECT ON cortex_worker.ready_head TO cortex_runtime;
GRANT SELECT ON cortex_worker.ready_head TO cortex_reader;

-- Which jobs do not start now; few. What runs ends its attempt. Facts record who paused and resumed.
CREATE TABLE cortex_worker.pause (
    kind text NOT NULL,  -- What name names; all: every job.
    name text NOT NULL,  -- A job type, a tenant, the id of a job, or a queue: there, empty is the default one, of tasks without a queue.
    paused_by text NOT NULL,  -- Who paused it.
    paused_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Since when.
    reason text NOT NULL,  -- Why.
    CONSTRAINT pause_pkey PRIMARY KEY (kind, name),
    CONSTRAINT all_has_no_name CHECK (kind <> 'all'::text OR name = ''::text),
    CONSTRAINT pause_kind_check CHECK (kind = ANY (ARRAY['all'::text, 'type'::text, 'tenant'::text, 'queue'::text, 'job'::text])),
    CONSTRAINT pause_name_check CHECK (length(name) <= 100),
    CONSTRAINT pause_paused_by_check CHECK (length(paused_by) >= 1 AND length(paused_by) <= 200),
    CONSTRAINT pause_reason_check CHECK (length(reason) >= 1 AND length(reason) <= 500)
);
GRANT DELETE, INSERT, SELECT ON cortex_worker.pause TO cortex_runtime;
GRANT SELECT ON cortex_worker.pause TO cortex_reader;

-- The queues among the pauses: a claim passes over these by index.
--   queue: The queue; empty: the default one.
--   paused_by: Who paused it.
--   paused_at: Since when.
--   reason: Why.
CREATE VIEW cortex_worker.queue_pause WITH (security_invoker=true) AS
 SELECT name AS queue,
    paused_by,
    paused_at,
    reason
   FROM cortex_worker.pause p
  WHERE kind = 'queue'::text;
GRANT SELECT ON cortex_worker.queue_pause TO cortex_runtime;
GRANT SELECT ON cortex_worker.queue_pause TO cortex_reader;

-- Those of some job types that are not paused: a claim reads the tasks of these.
CREATE FUNCTION cortex_worker.open_types(types text[])
 RETURNS text[]
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind IN ('all', 'type')) THEN
        RETURN types;
    END IF;
    RETURN ARRAY(SELECT t.name FROM unnest(types) AS t(name) WHERE NOT EXISTS (
        SELECT FROM cortex_worker.pause p WHERE p.kind = 'all' OR p.kind = 'type' AND p.name = t.name));
END $function$;

-- The pause of a job itself or of its tenant, as task.pause has it; null: there is none. A claim asks while such exist.
CREATE FUNCTION cortex_worker.pause_of(of_job uuid)
 RETURNS text
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
BEGIN
    RETURN (SELECT p.kind || ':' || p.name FROM cortex.job_record j JOIN cortex_worker.pause p
                ON p.kind = 'tenant' AND p.name = j.tenant OR p.kind = 'job' AND p.name = j.id::text
            WHERE j.id = of_job ORDER BY p.kind LIMIT 1);
END $function$;

-- The same, or the pause of its queue: of what would take places in limits meanwhile.
CREATE FUNCTION cortex_worker.pause_of_task(of_job uuid, queue_name text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
BEGIN
    RETURN coalesce(cortex_worker.pause_of(of_job), (
        SELECT p.kind || ':' || p.name FROM cortex_worker.pause p
        WHERE p.kind = 'queue' AND p.name = coalesce(pause_of_task.queue_name, '')));
END $function$;

-- Ready tasks of these names that no pause holds back, without suspects: up to so many of each by deadline, and as many by age; locked.
CREATE FUNCTION cortex_worker.due_of(tasks text[], most bigint)
 RETURNS TABLE(place tid, job_id uuid, priority smallint, due_by timestamp with time zone, run_at timestamp with time zone, id bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    is_default_paused boolean := EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = '');
    -- What these hold back at the front is soon PAUSED, by the runner `line`.
    is_picky boolean := EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind IN ('job', 'tenant'));
BEGIN
    IF is_default_paused THEN
        -- By the index of named queues: the default one may be long.
        RETURN QUERY
        SELECT t.* FROM unnest(tasks) AS known(task) CROSS JOIN LATERAL (
            SELECT t.ctid, t.job_id, t.priority, t.due_by, t.run_at, t.id FROM cortex_worker.task t
            WHERE t.task = known.task AND t.state = 'READY' AND NOT t.is_suspect AND t.queue_name IS NOT NULL
              AND (NOT is_picky OR cortex_worker.pause_of(t.job_id) IS NULL)
              AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name)
            ORDER BY t.priority, t.run_at, t.id LIMIT most FOR UPDATE SKIP LOCKED) t;
        RETURN;
    END IF;
    -- A task with a deadline is read twice, by deadline and with all others, and given once.
    RETURN QUERY
    SELECT t.* FROM unnest(tasks) AS known(task) CROSS JOIN LATERAL (
        SELECT t.ctid, t.job_id, t.priority, t.due_by, t.run_at, t.id FROM cortex_worker.task t
        WHERE t.task = known.task AND t.state = 'READY' AND NOT t.is_suspect AND t.due_by IS NOT NULL
          AND (NOT is_picky OR cortex_worker.pause_of(t.job_id) IS NULL)
          AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name)
        ORDER BY t.priority, t.due_by, t.id LIMIT most FOR UPDATE SKIP LOCKED) t
    UNION ALL
    SELECT t.* FROM unnest(tasks) AS known(task) CROSS JOIN LATERAL (
        SELECT t.ctid, t.job_id, t.priority, t.due_by, t.run_at, t.id FROM cortex_worker.task t
        WHERE t.task = known.task AND t.state = 'READY' AND NOT t.is_suspect
          AND (NOT is_picky OR cortex_worker.pause_of(t.job_id) IS NULL)
          AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = t.queue_name)
        ORDER BY t.priority, t.run_at, t.id LIMIT most FOR UPDATE SKIP LOCKED) t;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.due_of(text[],bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.due_of(text[],bigint) TO cortex_runtime;

-- What a claim may take while queues, tenants or jobs are paused or ready tasks have deadlines; locked. A table of the place of each task, its job, and what orders them.
CREATE FUNCTION cortex_worker.due_beside_pauses(tasks text[], isolated text[], most bigint, most_isolated bigint)
 RETURNS TABLE(place tid, job_id uuid, priority smallint, due_by timestamp with time zone, run_at timestamp with time zone, id bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.* FROM cortex_worker.due_of(tasks, most) t;
    RETURN QUERY
    SELECT t.* FROM (
        SELECT t.* FROM unnest(tasks || isolated) AS known(task) CROSS JOIN LATERAL (
            SELECT t.ctid, t.job_id, t.priority, t.due_by, t.run_at, t.id FROM cortex_worker.task t
            WHERE t.task = known.task AND t.state = 'READY' AND t.is_suspect AND cortex_worker.pause_of(t.job_id) IS NULL
              AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = coalesce(t.queue_name, ''))
            ORDER BY t.priority, t.run_at, t.id LIMIT most_isolated FOR UPDATE SKIP LOCKED) t
        UNION ALL
        SELECT t.* FROM cortex_worker.due_of(isolated, most_isolated) t) t
    ORDER BY t.priority, t.due_by, t.run_at, t.id LIMIT most_isolated;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.due_beside_pauses(text[],text[],bigint,bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.due_beside_pauses(text[],text[],bigint,bigint) TO cortex_runtime;

-- Named queues whose next job begins only when the one before has ended. Without a row, a queue is relaxed: the next job runs while the one before sleeps, asks people or waits for a retry.
CREATE TABLE cortex_worker.strict_queue (
    queue text NOT NULL,  -- Name of the queue. Bulk operations take turns: theirs is relaxed.
    set_by text NOT NULL,  -- Who made it strict.
    set_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Since when.
    CONSTRAINT strict_queue_pkey PRIMARY KEY (queue),
    CONSTRAINT strict_queue_queue_check CHECK (length(queue) >= 1 AND length(queue) <= 100 AND queue <> 'bulk'::text),
    CONSTRAINT strict_queue_set_by_check CHECK (length(set_by) >= 1 AND length(set_by) <= 200)
);
GRANT DELETE, INSERT, SELECT ON cortex_worker.strict_queue TO cortex_runtime;
GRANT SELECT ON cortex_worker.strict_queue TO cortex_reader;

-- What gives a suspended job its next task before its time, several rows if any of them does. Written when the job is suspended, deleted when it gets a task or ends. See 0032_waits.sql.
CREATE TABLE cortex.job_wait (
    job_id uuid NOT NULL,  -- The job. No foreign key: a wait never outlives its job's end.
    kind text NOT NULL,  -- signal: one of that name that no step has taken · child: all children of a step up to one · approval: a decision.
    name text NOT NULL,  -- Of the signals; key of the step that began the children; id of the request.
    key text NOT NULL DEFAULT ''::text,  -- For signals to a key: that key. Empty: those to the job itself.
    upto integer,  -- For children: those with a smaller ordinal have ended.
    CONSTRAINT job_wait_pkey PRIMARY KEY (job_id, kind, name, key),
    CONSTRAINT job_wait_check CHECK ((upto IS NOT NULL) = (kind = 'child'::text)),
    CONSTRAINT job_wait_key_check CHECK (length(key) <= 500),
    CONSTRAINT job_wait_kind_check CHECK (kind = ANY (ARRAY['signal'::text, 'child'::text, 'approval'::text])),
    CONSTRAINT job_wait_name_check CHECK (length(name) >= 1 AND length(name) <= 500)
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX job_wait_key ON cortex.job_wait USING btree (key, name, job_id) WHERE key <> ''::text;
GRANT DELETE, INSERT, SELECT ON cortex.job_wait TO cortex_runtime;
GRANT SELECT ON cortex.job_wait TO cortex_reader;

-- What a task has as its key: those of two tenants are never the same.
CREATE FUNCTION cortex_worker.key_of(tenant text, job_key text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN ((((length(tenant) || ':'::text) || tenant) || ':'::text) || job_key);

-- Gives a task to each of these jobs that waits without one, with the job key that it was submitted with, and named by the codes that cannot take it, and deletes what would have woken it; returns the jobs that got one. The caller holds the jobs. With are_lost, the caller also knows that the tasks that the jobs had are gone.
CREATE FUNCTION cortex.give_tasks(jobs uuid[], are_lost boolean DEFAULT false)
 RETURNS SETOF uuid
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH unfit AS MATERIALIZED (
    SELECT j.id, kind.base, j.unfit_codes AS codes
    FROM unnest(jobs) AS w(id) JOIN cortex.job_record j ON j.id = w.id
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT cortex.task_with(cortex.tools_of(v.spec)) FROM cortex.agent_version v
            WHERE j.type = 'run_agent' AND v.agent_id = j.agent_id AND v.version = j.agent_version), j.type) AS base) kind
    WHERE j.unfit_codes IS NOT NULL
), named AS (
    INSERT INTO cortex_worker.unfit (task, base, codes)
    SELECT DISTINCT cortex_worker.unfit_task(u.base, u.codes) AS task, u.base, u.codes FROM unfit u ORDER BY task
    ON CONFLICT (task) DO UPDATE SET used_at = excluded.used_at
), made AS (
    INSERT INTO cortex_worker.task (
        task, job_id, state, run_at, priority, attempt, attempts_spent, max_attempts, queue_name, job_key, is_suspect,
        due_by)
    SELECT coalesce((SELECT cortex_worker.unfit_task(u.base, u.codes) FROM unfit u WHERE u.id = j.id), j.type), j.id,
           (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                 WHEN j.status = 'PENDING' AND j.run_at > cortex.now() THEN 'LATER'
                 ELSE 'READY' END)::cortex_worker.task_state,
           CASE WHEN j.status = 'PENDING' THEN j.run_at ELSE cortex.now() END,
           j.priority, j.attempt, j.attempts_kept, j.worker_attempts, j.queue_name,
           -- The next holder of its key has cancelled it. Were one left, it must not stop all others at the unique index.
           CASE WHEN j.job_key IS NOT NULL AND NOT EXISTS (
               SELECT FROM cortex_worker.task t WHERE t.job_key = cortex_worker.key_of(j.tenant, j.job_key))
           THEN cortex_worker.key_of(j.tenant, j.job_key) END,
           j.was_suspect AND j.pod_deaths + j.process_deaths > 0, j.due_by
    FROM unnest(jobs) AS w(id) JOIN cortex.job_record j ON j.id = w.id
    -- Of a job that has a task nothing is inserted: that would wait for whoever changes the task, and perhaps for the job.
    WHERE j.status::text IN ('PENDING', 'RETRY', 'WAITING_FOR_APPROVAL') AND (are_lost OR j.worker_job_id IS NULL)
    ORDER BY j.id
    ON CONFLICT DO NOTHING
    RETURNING id, job_id
), over AS (
    DELETE FROM cortex.job_wait w USING made WHERE w.job_id = made.job_id
)
UPDATE cortex.job_record j
SET worker_job_id = made.id,
    next_retry_at = CASE WHEN j.waiting_on = 'code' THEN j.next_retry_at WHEN j.status = 'RETRY' THEN cortex.now() END
FROM made WHERE j.id = made.job_id
RETURNING j.id $function$;

-- Gives a task to a job that waits for a person, also if it waits for other things, too; returns whether it did.
CREATE FUNCTION cortex.let_go(of_job uuid)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
-- The caller holds the job's row. A job that runs or has a task finds out by itself.
SELECT EXISTS (SELECT FROM cortex.give_tasks(ARRAY(
    SELECT j.id FROM cortex.job_record j WHERE j.id = of_job AND (
        j.status::text = 'WAITING_FOR_APPROVAL' OR j.status::text = 'RETRY' AND EXISTS (
            SELECT FROM cortex.job_wait w WHERE w.job_id = j.id AND w.kind = 'approval'))))) $function$;

-- Gives a task to each of these jobs that waits for a budget; returns how many got one.
CREATE FUNCTION cortex.wake(jobs uuid[])
 RETURNS integer
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH held AS MATERIALIZED (
    SELECT j.id FROM unnest(jobs) AS w(id) JOIN cortex.job_record j ON j.id = w.id
    WHERE j.status::text IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.waiting_on LIKE 'budget:%' AND j.worker_job_id IS NULL
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
SELECT count(*)::int FROM cortex.give_tasks(ARRAY(SELECT id FROM held)) $function$;

-- Whether the caller has the rights of pods. Other callers may submit jobs, and read those that they submitted.
CREATE FUNCTION cortex.caller_is_runtime()
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN pg_has_role(CASE current_setting('role'::text) WHEN 'none'::text THEN SESSION_USER ELSE (current_setting('role'::text))::name END, 'cortex_runtime'::name, 'MEMBER'::text);

-- Whether a job with this credential was submitted by the caller's login, which no setting can change.
CREATE FUNCTION cortex.caller_submitted(submitted_with text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (submitted_with = ('db:'::text || (SESSION_USER)::text));

-- Logins that submit jobs of one tenant, and see only those. Written by the owner of the schema.
CREATE TABLE cortex.login_tenant (
    login name NOT NULL,  -- The login, which Postgres authenticates.
    tenant text NOT NULL,  -- Its tenant.
    CONSTRAINT login_tenant_pkey PRIMARY KEY (login),
    CONSTRAINT login_tenant_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100)
);

-- The only tenant whose jobs the caller submits and sees; null: all. That of the login, which no setting can change; of other logins the one to which the session keeps itself.
CREATE FUNCTION cortex.caller_tenant()
 RETURNS text
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce((SELECT l.tenant FROM cortex.login_tenant l WHERE l.login = session_user),
                nullif(current_setting('cortex.tenant', true), '')) $function$;
REVOKE EXECUTE ON FUNCTION cortex.caller_tenant() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.caller_tenant() TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.caller_tenant() TO cortex_runtime;

-- Refuses what a login without the rights of pods may not submit: types that act on the jobs of others, folders of pods, and the ids of jobs of other logins.
CREATE FUNCTION cortex.refuse_for_submitter(ids uuid[], types text[], payloads jsonb[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    wrong text;
BEGIN
    SELECT t INTO wrong FROM unnest(types) AS t
    WHERE t IN ('approval_notify', 'bulk', 'execute_tool', 'expire_approvals', 'sweep_zombies') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job type "%" may not be submitted by %', wrong, session_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'it acts on other jobs or calls any tool: GRANT cortex_runtime';
    END IF;
    SELECT k.key INTO wrong FROM unnest(types, payloads) AS s(type, payload)
    CROSS JOIN (VALUES ('folder'), ('within')) AS k(key)
    WHERE s.type = 'run_agent' AND s.payload ? k.key LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'payload.% of job type "run_agent" may not be chosen by %', wrong, session_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'it names a folder of the pods: GRANT cortex_runtime';
    END IF;
    SELECT j.id::text INTO wrong FROM unnest(ids) AS s(id) JOIN cortex.job_record j ON j.id = s.id
    WHERE NOT cortex.caller_submitted(j.submitted_with) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % was submitted by another login', wrong
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'id_of_another_job',
                  HINT = 'an id names one job: give this one another id';
    END IF;
END $function$;

-- Frees a job key of a tenant for its next holder, one at a time; cancels the waiting job, and marks a running one, which is cancelled when it would wait or be tried again.
CREATE FUNCTION cortex_worker.replace_by_key(key text, successor uuid)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    replaced uuid;
    own text;
    of_task text;
    message text := cortex_worker.replaced_reason(successor, key);
BEGIN
    SELECT j.tenant INTO own FROM cortex.job_record j WHERE j.id = successor;
    of_task := cortex_worker.key_of(own, key);
    PERFORM pg_advisory_xact_lock(hashtextextended('cortex.job_key ' || of_task, 0));
    IF NOT cortex.caller_is_runtime() AND EXISTS (
        SELECT FROM cortex.job_record j
        WHERE NOT cortex.caller_submitted(j.submitted_with) AND j.id IN (
            SELECT t.job_id FROM cortex_worker.task t WHERE t.job_key = of_task
            UNION ALL SELECT r.id FROM cortex.job_record r
            WHERE r.job_key = key AND r.tenant = own AND r.worker_job_id IS NULL AND r.status IN ('RETRY', 'WAITING_FOR_APPROVAL')))
    THEN
        RAISE EXCEPTION 'job key "%" belongs to a job of another login', key
            USING ERRCODE = 'insufficient_privilege', HINT = 'a key replaces a waiting job: choose one of your own';
    END IF;
    -- Until no job has the key: one may be claimed, or start to wait, between two of these statements.
    LOOP
        -- A locked job runs on; the key passes to its successor. It has no attempt after this one.
        WITH running AS (
            UPDATE cortex_worker.task SET job_key = NULL WHERE job_key = of_task AND state = 'LOCKED' RETURNING job_id
        )
        UPDATE cortex.job_record j SET replaced_by = successor FROM running WHERE j.id = running.job_id;
        -- A job that waits without a task, in RETRY or for a person. No subquery: the row is checked again once it is
        -- locked.
        UPDATE cortex.job_record
        SET status = 'CANCELLED', cancelled_by = 'submit', cancel_reason = message, next_retry_at = NULL,
            waiting_on = NULL
        WHERE job_key = key AND tenant = own AND worker_job_id IS NULL AND status IN ('RETRY', 'WAITING_FOR_APPROVAL');
        DELETE FROM cortex_worker.task WHERE job_key = of_task AND state <> 'LOCKED' RETURNING job_id INTO replaced;
        UPDATE cortex.job_record
        SET status = 'CANCELLED', cancelled_by = 'submit', cancel_reason = message, next_retry_at = NULL,
            waiting_on = NULL, worker_job_id = NULL
        WHERE id = replaced;
        EXIT WHEN NOT EXISTS (SELECT FROM cortex_worker.task WHERE job_key = of_task) AND NOT EXISTS (
            SELECT FROM cortex.job_record
            WHERE job_key = key AND tenant = own AND worker_job_id IS NULL AND status IN ('RETRY', 'WAITING_FOR_APPROVAL'));
    END LOOP;
    UPDATE cortex.job_record SET job_key = key WHERE id = successor;
END $function$;

-- Inserts a checked batch of jobs, and fails if one exists. Called by submit_jobs only.
CREATE FUNCTION cortex_worker.insert_jobs(ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[], priorities integer[], run_ats timestamp with time zone[], worker_attempts integer[], max_retries integer[], timeouts_s integer[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    is_pod CONSTANT boolean := cortex.caller_is_runtime();
    -- Whom another login names is a label beside its own name.
    label CONSTANT text := nullif(current_setting('cortex.actor', true), '');
    person CONSTANT text := CASE WHEN is_pod THEN label ELSE session_user || ' (' || label || ')' END;
    -- Pods and commands name their caller's credential; other logins submit with their own, and so does a login that is a
    -- person's, whatever operating-system user its command names.
    named CONSTANT text := coalesce(current_setting('cortex.credential', true), '');
    credential CONSTANT text := CASE
        WHEN named = '' OR NOT is_pod
            OR named LIKE 'os:%' AND cortex.credential_person('db:' || session_user) IS NOT NULL
        THEN 'db:' || session_user ELSE named END;
    -- The trigger gives their tasks keys: here, so that they are in no index of ready ones before.
    held CONSTANT text[] := ARRAY(SELECT l.type FROM cortex.limited_type l WHERE l.holds);
    new_ids uuid[];
BEGIN
    WITH kind AS MATERIALIZED (
        SELECT k.type, coalesce(k.agent, '') AS agent, a.id AS agent_id, a.version AS agent_version,
               coalesce((v.spec->'limits'->>'worker_attempts')::int, t.worker_attempts, 3) AS worker_attempts,
               coalesce((v.spec->'limits'->>'max_retries')::int, t.max_retries, 3) AS max_retries,
               coalesce((v.spec->'limits'->>'timeout_seconds')::int, t.timeout_s, 3600) AS timeout_s
        FROM (SELECT DISTINCT s.type, s.agent FROM unnest(types, agents) AS s(type, agent)) k
        LEFT JOIN cortex.agent a ON a.name = k.agent
        LEFT JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version
        LEFT JOIN cortex.job_type t ON t.name = k.type
    ), job AS (
        INSERT INTO cortex.job_record AS j (
            id, type, payload, agent_id, agent_version, tenant, queue_name, priority, run_at,
            worker_attempts, max_retries, timeout_s, worker_job_id, created_at, updated_at, submitted_by,
            submitted_with)
        SELECT s.id, s.type, coalesce(s.payload, '{}'), k.agent_id, k.agent_version, coalesce(s.tenant, 'default'),
               s.queue_name, coalesce(s.priority, 0), coalesce(s.run_at, moment),
               coalesce(s.worker_attempts, k.worker_attempts), coalesce(s.max_retries, k.max_retries),
               coalesce(s.timeout_s, k.timeout_s), s.task_id, moment, moment, person, credential
        FROM (
            -- Numbered in the order of the batch.
            SELECT *, nextval('cortex_worker.task_id_seq') AS task_id
            FROM (SELECT unnest(ids) AS id, unnest(types) AS type, unnest(payloads) AS payload, unnest(agents) AS agent,
                         unnest(tenants) AS tenant, unnest(queue_names) AS queue_name, unnest(priorities) AS priority,
                         unnest(run_ats) AS run_at, unnest(worker_attempts) AS worker_attempts,
                         unnest(max_retries) AS max_retries, unnest(timeouts_s) AS timeout_s) batch) s
        LEFT JOIN kind k ON k.type = s.type AND k.agent = coalesce(s.agent, '')
        -- Primary keys then grow at their ends, and two batches with the same ids do not deadlock.
        ORDER BY s.id, s.task_id
        RETURNING j.id, j.type, j.queue_name, j.priority, j.run_at, j.worker_attempts, j.worker_job_id
    ), task AS (
        INSERT INTO cortex_worker.task (
            id, task, job_id, state, is_admitted, priority, max_attempts, run_at, queue_name)
        SELECT j.worker_job_id, j.type, j.id,
               (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                     WHEN j.run_at > moment THEN 'LATER'
                     WHEN j.type = ANY (held) THEN 'HELD' ELSE 'READY' END)::cortex_worker.task_state,
               CASE WHEN j.type = ANY (held) THEN false END, j.priority, j.worker_attempts, j.run_at, j.queue_name
        FROM job j
    )
    SELECT array_agg(j.id) INTO new_ids FROM job j;
    RETURN new_ids;
END $function$;

-- Inserts those of a checked batch of jobs that do not exist; returns their ids. Called by submit_jobs only.
CREATE FUNCTION cortex_worker.insert_new_jobs(ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[], priorities integer[], run_ats timestamp with time zone[], worker_attempts integer[], max_retries integer[], timeouts_s integer[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    is_pod CONSTANT boolean := cortex.caller_is_runtime();
    -- Whom another login names is a label beside its own name.
    label CONSTANT text := nullif(current_setting('cortex.actor', true), '');
    person CONSTANT text := CASE WHEN is_pod THEN label ELSE session_user || ' (' || label || ')' END;
    -- Pods and commands name their caller's credential; other logins submit with their own, and so does a login that is a
    -- person's, whatever operating-system user its command names.
    named CONSTANT text := coalesce(current_setting('cortex.credential', true), '');
    credential CONSTANT text := CASE
        WHEN named = '' OR NOT is_pod
            OR named LIKE 'os:%' AND cortex.credential_person('db:' || session_user) IS NOT NULL
        THEN 'db:' || session_user ELSE named END;
    -- The trigger gives their tasks keys: here, so that they are in no index of ready ones before.
    held CONSTANT text[] := ARRAY(SELECT l.type FROM cortex.limited_type l WHERE l.holds);
    new_ids uuid[];
BEGIN
    WITH kind AS MATERIALIZED (
        SELECT k.type, coalesce(k.agent, '') AS agent, a.id AS agent_id, a.version AS agent_version,
               coalesce((v.spec->'limits'->>'worker_attempts')::int, t.worker_attempts, 3) AS worker_attempts,
               coalesce((v.spec->'limits'->>'max_retries')::int, t.max_retries, 3) AS max_retries,
               coalesce((v.spec->'limits'->>'timeout_seconds')::int, t.timeout_s, 3600) AS timeout_s
        FROM (SELECT DISTINCT s.type, s.agent FROM unnest(types, agents) AS s(type, agent)) k
        LEFT JOIN cortex.agent a ON a.name = k.agent
        LEFT JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version
        LEFT JOIN cortex.job_type t ON t.name = k.type
    ), job AS (
        INSERT INTO cortex.job_record AS j (
            id, type, payload, agent_id, agent_version, tenant, queue_name, priority, run_at,
            worker_attempts, max_retries, timeout_s, worker_job_id, created_at, updated_at, submitted_by,
            submitted_with)
        SELECT s.id, s.type, coalesce(s.payload, '{}'), k.agent_id, k.agent_version, coalesce(s.tenant, 'default'),
               s.queue_name, coalesce(s.priority, 0), coalesce(s.run_at, moment),
               coalesce(s.worker_attempts, k.worker_attempts), coalesce(s.max_retries, k.max_retries),
               coalesce(s.timeout_s, k.timeout_s), s.task_id, moment, moment, person, credential
        FROM (
            -- Numbered in the order of the batch.
            SELECT *, nextval('cortex_worker.task_id_seq') AS task_id
            FROM (SELECT unnest(ids) AS id, unnest(types) AS type, unnest(payloads) AS payload, unnest(agents) AS agent,
                         unnest(tenants) AS tenant, unnest(queue_names) AS queue_name, unnest(priorities) AS priority,
                         unnest(run_ats) AS run_at, unnest(worker_attempts) AS worker_attempts,
                         unnest(max_retries) AS max_retries, unnest(timeouts_s) AS timeout_s) batch) s
        LEFT JOIN kind k ON k.type = s.type AND k.agent = coalesce(s.agent, '')
        -- Primary keys then grow at their ends, and two batches with the same ids do not deadlock.
        ORDER BY s.id, s.task_id ON CONFLICT (id) DO NOTHING
        RETURNING j.id, j.type, j.queue_name, j.priority, j.run_at, j.worker_attempts, j.worker_job_id
    ), task AS (
        INSERT INTO cortex_worker.task (
            id, task, job_id, state, is_admitted, priority, max_attempts, run_at, queue_name)
        SELECT j.worker_job_id, j.type, j.id,
               (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                     WHEN j.run_at > moment THEN 'LATER'
                     WHEN j.type = ANY (held) THEN 'HELD' ELSE 'READY' END)::cortex_worker.task_state,
               CASE WHEN j.type = ANY (held) THEN false END, j.priority, j.worker_attempts, j.run_at, j.queue_name
        FROM job j
    )
    SELECT array_agg(j.id) INTO new_ids FROM job j;
    RETURN new_ids;
END $function$;

-- Submits a batch in the caller's transaction; returns the ids that were new; cortex.submitted_as names the jobs that the others stand for, where their types have rules. A null element, and every element of a null array, gets its type's default, and an empty payload.
CREATE FUNCTION cortex.submit_jobs(ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[], priorities integer[], run_ats timestamp with time zone[], worker_attempts integer[], max_retries integer[], timeouts_s integer[], job_keys text[], tags jsonb[] DEFAULT NULL::jsonb[], traceparents text[] DEFAULT NULL::text[], due_bys timestamp with time zone[] DEFAULT NULL::timestamp with time zone[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    wrong text;
    late record;
    ruled record;
    -- The subtransaction that finds repeated ids pays from ten jobs on.
    are_new boolean := coalesce(cardinality(ids) >= 10, false);
    new_ids uuid[];
    keyed record;
    other record;
    -- Pods keep to a tenant by a setting alone: to look for their login would cost each submit.
    own_tenant text := nullif(current_setting('cortex.tenant', true), '');
BEGIN
    IF NOT cortex.caller_is_runtime() THEN
        PERFORM cortex.refuse_for_submitter(ids, types, payloads);
        own_tenant := cortex.caller_tenant();
    END IF;
    IF own_tenant IS NOT NULL THEN
        SELECT t INTO wrong FROM unnest(tenants) AS t WHERE t <> own_tenant LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job of tenant "%" may not be submitted: % is of tenant "%"', wrong, session_user, own_tenant
                USING ERRCODE = 'insufficient_privilege', HINT = 'leave out the tenant';
        END IF;
        tenants := array_fill(own_tenant, ARRAY[cardinality(ids)]);
    END IF;
    -- Each check runs over the rows only if the arrays as a whole do not show already that they pass.
    IF array_remove(tenants, NULL) <> '{}' AND EXISTS (SELECT FROM cortex.tenant_cap) THEN
        PERFORM cortex.refuse_over_cap(ids, types, tenants, payloads);
    END IF;
    IF array_remove(agents, NULL) <> '{}' THEN
        SELECT n INTO wrong FROM unnest(agents) AS n
        WHERE n IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.agent a WHERE a.name = n) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'agent "%" does not exist', wrong
                USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex agents apply FILE';
        END IF;
    END IF;
    IF 'bulk' = ANY (queue_names) AND EXISTS (
        SELECT FROM unnest(types, queue_names) AS s(type, queue_name)
        WHERE s.queue_name = 'bulk' AND s.type IS DISTINCT FROM 'bulk')
    THEN
        RAISE EXCEPTION 'queue ''bulk'' is for bulk operations'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'bulk_queue', HINT = 'name another queue';
    END IF;
    IF array_remove(timeouts_s, NULL) <> '{}' THEN
        SELECT s.type, s.timeout_s, coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) AS longest_s INTO late
        FROM unnest(types, timeouts_s) AS s(type, timeout_s) LEFT JOIN cortex.job_type t ON t.name = s.type
        WHERE s.timeout_s > coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'timeout_s % is above the hard limit of job type "%": % seconds', late.timeout_s, late.type,
                late.longest_s
                USING ERRCODE = 'check_violation', CONSTRAINT = 'timeout_hard_limit',
                      HINT = 'a job may run at most 1.5 times as long as its type';
        END IF;
    END IF;
    IF array_remove(run_ats, NULL) <> '{}' THEN
        SELECT r.instant::text INTO wrong FROM unnest(run_ats) AS r(instant)
        WHERE r.instant NOT BETWEEN '0001-01-02 00:00:00Z' AND '9999-12-30 00:00:00Z' LIMIT 1;
        IF FOUND THEN
            -- Others could not be shown: whoever lists jobs would see none.
            RAISE EXCEPTION 'run_at % is not an instant of the years 1 to 9999', wrong
                USING ERRCODE = 'check_violation', CONSTRAINT = 'run_at_is_shown', HINT = 'a job without run_at is due at once';
        END IF;
    END IF;
    IF array_remove(due_bys, NULL) <> '{}' THEN
        -- A repeated submit may come when its deadline is over.
        SELECT CASE WHEN d.instant > cortex.now() THEN 'more than ten years away' ELSE 'in the past' END AS place,
               d.instant::text AS shown INTO late
        FROM unnest(ids, due_bys) AS d(id, instant)
        WHERE d.instant NOT BETWEEN cortex.now() AND cortex.now() + interval '3650 days'
          AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = d.id) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'due_by % is %', late.shown, late.place
                USING ERRCODE = 'check_violation', CONSTRAINT = 'due_by_is_ahead', HINT = 'a job without due_by has no deadline';
        END IF;
    END IF;
    IF octet_length(array_to_string(payloads, '')) > 262144 THEN
        SELECT octet_length(p::text)::text INTO wrong FROM unnest(payloads) AS p
        WHERE octet_length(p::text) > 262144 LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'payload of % bytes is larger than 262144', wrong
                USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size';
        END IF;
    END IF;
    IF types && ARRAY['execute_tool', 'http_request', 'llm_generate', 'webhook_dispatch'] THEN
        SELECT format('payload.%s of job type "%s" must be text, got %s', n.field, s.type,
                      left(coalesce((s.payload->n.field)::text, 'nothing'), 80)) INTO wrong
        FROM unnest(types, payloads) AS s(type, payload)
        JOIN (VALUES ('execute_tool', 'tool'), ('http_request', 'url'), ('llm_generate', 'model'),
                     ('webhook_dispatch', 'url')) AS n(type, field) ON n.type = s.type
        WHERE jsonb_typeof(s.payload->n.field) IS DISTINCT FROM 'string' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%', wrong USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_fits';
        END IF;
    END IF;
    IF array_remove(submit_jobs.tags, NULL) <> '{}' THEN
        SELECT t.list::text INTO wrong FROM unnest(submit_jobs.tags) AS t(list)
        WHERE jsonb_typeof(t.list) <> 'array' OR jsonb_array_length(t.list) > 20 OR EXISTS (
            SELECT FROM jsonb_array_elements(t.list) AS w(tag)
            WHERE jsonb_typeof(w.tag) <> 'string' OR length(w.tag #>> '{}') NOT BETWEEN 1 AND 100) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'tags % are not up to 20 words of 1 to 100 characters', left(wrong, 200)
                USING ERRCODE = 'check_violation', CONSTRAINT = 'tags_are_few';
        END IF;
    END IF;
    IF array_remove(traceparents, NULL) <> '{}' THEN
        SELECT t.header INTO wrong FROM unnest(traceparents) AS t(header) WHERE NOT cortex.is_traceparent(t.header) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'traceparent "%" is not valid', left(wrong, 100)
                USING ERRCODE = 'check_violation', CONSTRAINT = 'traceparent',
                      HINT = 'such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
        END IF;
    END IF;
    -- Most installations have neither limits nor rules: one probe spares them both checks.
    IF EXISTS (SELECT FROM cortex.limited_type) OR EXISTS (SELECT FROM cortex.submit_rule) THEN
        IF EXISTS (SELECT FROM cortex.limited_type l WHERE l.type = ANY (types)
                   OR starts_with(l.type, 'agent:') AND substr(l.type, 7) = ANY (agents)) THEN
            PERFORM cortex.refuse_without_limit_key(types, payloads, agents, tenants, queue_names);
        END IF;
        -- Last of all: it merges submits into jobs that exist.
        IF EXISTS (SELECT FROM cortex.submit_rule r WHERE r.type = ANY (types)) THEN
            SELECT a.* INTO ruled
            FROM cortex_worker.apply_rules(ids, types, payloads, tenants, queue_names, run_ats, job_keys) a;
            IF ruled.kept = '{}' THEN
                RETURN '{}';
            END IF;
            payloads := ruled.payloads;
            queue_names := ruled.queue_names;
            run_ats := ruled.run_ats;
            job_keys := ruled.job_keys;
            IF ruled.kept IS NOT NULL THEN
                ids := cortex_worker.at_places(ids, ruled.kept);
                types := cortex_worker.at_places(types, ruled.kept);
                payloads := cortex_worker.at_places(payloads, ruled.kept);
                agents := cortex_worker.at_places(agents, ruled.kept);
                tenants := cortex_worker.at_places(tenants, ruled.kept);
                queue_names := cortex_worker.at_places(queue_names, ruled.kept);
                priorities := cortex_worker.at_places(priorities, ruled.kept);
                run_ats := cortex_worker.at_places(run_ats, ruled.kept);
                worker_attempts := cortex_worker.at_places(worker_attempts, ruled.kept);
                max_retries := cortex_worker.at_places(max_retries, ruled.kept);
                timeouts_s := cortex_worker.at_places(timeouts_s, ruled.kept);
                job_keys := cortex_worker.at_places(job_keys, ruled.kept);
                tags := cortex_worker.at_places(tags, ruled.kept);
                traceparents := cortex_worker.at_places(traceparents, ruled.kept);
                due_bys := cortex_worker.at_places(due_bys, ruled.kept);
            END IF;
        END IF;
    END IF;
    IF are_new THEN
        BEGIN
            new_ids := cortex_worker.insert_jobs(
                ids, types, payloads, agents, tenants, queue_names, priorities, run_ats, worker_attempts, max_retries,
                timeouts_s);
        EXCEPTION WHEN unique_violation THEN
            are_new := false;
        END;
    END IF;
    IF NOT are_new THEN
        new_ids := cortex_worker.insert_new_jobs(
            ids, types, payloads, agents, tenants, queue_names, priorities, run_ats, worker_attempts, max_retries,
            timeouts_s);
    END IF;
    IF array_remove(job_keys, NULL) <> '{}' THEN
        -- In the order of keys, so that two batches do not deadlock; the last job of a batch with a key keeps it.
        FOR keyed IN
            SELECT k.id, k.job_key, k.tenant FROM unnest(ids, job_keys, tenants) WITH ORDINALITY AS k(id, job_key, tenant, n)
            WHERE k.job_key IS NOT NULL AND k.id = ANY (new_ids) ORDER BY coalesce(k.tenant, 'default'), k.job_key, k.n
        LOOP
            PERFORM cortex_worker.replace_by_key(keyed.job_key, keyed.id);
            UPDATE cortex_worker.task t SET job_key = cortex_worker.key_of(coalesce(keyed.tenant, 'default'), keyed.job_key)
            WHERE t.job_id = keyed.id;
        END LOOP;
    END IF;
    -- Jobs without tags pay nothing for them.
    IF array_remove(submit_jobs.tags, NULL) <> '{}' THEN
        UPDATE cortex.job_record j
        SET tags = ARRAY(SELECT DISTINCT w.tag COLLATE "C" FROM jsonb_array_elements_text(k.list) AS w(tag) ORDER BY 1)
        FROM unnest(ids, submit_jobs.tags) AS k(id, list)
        WHERE j.id = k.id AND k.id = ANY (new_ids) AND jsonb_array_length(k.list) > 0;
    END IF;
    -- Nor do jobs without a trace of their submitter's.
    IF array_remove(traceparents, NULL) <> '{}' THEN
        UPDATE cortex.job_record j SET traceparent = k.header
        FROM unnest(ids, traceparents) AS k(id, header)
        WHERE j.id = k.id AND k.id = ANY (new_ids) AND k.header IS NOT NULL;
    END IF;
    -- Nor do jobs without a deadline.
    IF array_remove(due_bys, NULL) <> '{}' THEN
        WITH due AS (
            UPDATE cortex.job_record j SET due_by = k.due_by
            FROM unnest(ids, due_bys) AS k(id, due_by)
            WHERE j.id = k.id AND k.id = ANY (new_ids) AND k.due_by IS NOT NULL
            RETURNING j.id, j.due_by
        )
        UPDATE cortex_worker.task t SET due_by = due.due_by FROM due WHERE t.job_id = due.id;
    END IF;
    -- An id names one job: a repeated submit must be of that one. What a repetition computes anew is not compared: the
    -- instant and the span; nor are omitted figures, whose defaults may have changed.
    IF coalesce(cardinality(new_ids), 0) < cardinality(ids) THEN
        SELECT s.id, d.fields INTO other
        FROM (SELECT unnest(ids) AS id, unnest(types) AS type, unnest(payloads) AS payload, unnest(agents) AS agent,
                     unnest(tenants) AS tenant, unnest(queue_names) AS queue_name, unnest(priorities) AS priority,
                     unnest(submit_jobs.worker_attempts) AS worker_attempts,
                     unnest(submit_jobs.max_retries) AS max_retries, unnest(timeouts_s) AS timeout_s,
                     unnest(job_keys) AS job_key, unnest(submit_jobs.tags) AS tags) s
        JOIN cortex.job_record j ON j.id = s.id
        LEFT JOIN cortex.agent a ON a.id = j.agent_id
        CROSS JOIN LATERAL (SELECT concat_ws(', ',
            CASE WHEN j.type <> s.type THEN 'type' END,
            CASE WHEN j.payload <> coalesce(s.payload, '{}') THEN 'payload' END,
            CASE WHEN a.name IS DISTINCT FROM s.agent THEN 'agent' END,
            CASE WHEN j.tenant <> coalesce(s.tenant, 'default') THEN 'tenant' END,
            CASE WHEN j.queue_name IS DISTINCT FROM s.queue_name THEN 'queue_name' END,
            CASE WHEN j.priority <> s.priority THEN 'priority' END,
            CASE WHEN j.worker_attempts <> s.worker_attempts THEN 'worker_attempts' END,
            CASE WHEN j.max_retries <> s.max_retries THEN 'max_retries' END,
            CASE WHEN j.timeout_s <> s.timeout_s THEN 'timeout_s' END,
            CASE WHEN j.job_key IS DISTINCT FROM s.job_key THEN 'job_key' END,
            CASE WHEN coalesce(j.tags, '{}') <> ARRAY(
                     SELECT DISTINCT w.tag COLLATE "C" FROM jsonb_array_elements_text(coalesce(s.tags, '[]')) AS w(tag)
                     ORDER BY 1) THEN 'tags' END) AS fields) d
        WHERE d.fields <> '' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'job % was submitted before, with another %', other.id, other.fields
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'id_of_another_job',
                      HINT = 'an id names one job: give this one another id';
        END IF;
    END IF;
    -- In the order of the batch, so that a caller can compare them as a whole.
    RETURN CASE WHEN cardinality(new_ids) = cardinality(ids) THEN ids ELSE coalesce(new_ids, '{}') END;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.submit_jobs(uuid[],text[],jsonb[],text[],text[],text[],integer[],timestamp with time zone[],integer[],integer[],integer[],text[],jsonb[],text[],timestamp with time zone[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.submit_jobs(uuid[],text[],jsonb[],text[],text[],text[],integer[],timestamp with time zone[],integer[],integer[],integer[],text[],jsonb[],text[],timestamp with time zone[]) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.submit_jobs(uuid[],text[],jsonb[],text[],text[],text[],integer[],timestamp with time zone[],integer[],integer[],integer[],text[],jsonb[],text[],timestamp with time zone[]) TO cortex_runtime;

-- The job that was first submitted under an idempotency key of the caller's login for a tenant, for 24 hours: the given id if there is none. Called by submit_job.
CREATE FUNCTION cortex.first_submit(key text, id uuid, digest bytea, tenant text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    -- Each login has keys of its own, for each tenant.
    own CONSTANT text := format('db:%I:%s', session_user, coalesce(tenant, cortex.caller_tenant(), 'default'));
    first record;
BEGIN
    IF key !~ '^[!-~]{1,200}$' THEN
        RAISE EXCEPTION 'idempotency key "%" is not 1 to 200 visible ASCII characters', left(key, 80)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'idempotency_key', HINT = 'a UUID is a good one';
    END IF;
    -- Waits for a transaction that has just used the key.
    INSERT INTO cortex.idempotency_key AS k (scope, key, digest, operation, status, response, expires_at)
    VALUES (own, first_submit.key, first_submit.digest, 'jobs.submit', 'completed', to_jsonb(first_submit.id), cortex.now() + interval '1 day')
    ON CONFLICT ON CONSTRAINT idempotency_key_pkey DO UPDATE
    SET digest = excluded.digest, response = excluded.response, created_at = cortex.now(), expires_at = excluded.expires_at
    WHERE k.expires_at <= cortex.now();
    IF FOUND THEN
        RETURN first_submit.id;
    END IF;
    SELECT k.digest, k.response #>> '{}' AS job INTO first FROM cortex.idempotency_key k
    WHERE k.scope = own AND k.key = first_submit.key;
    IF first.digest <> first_submit.digest THEN
        RAISE EXCEPTION 'key "%" was used for another submit, of job %', key, first.job
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'key_of_another_request',
                  HINT = 'give each request a key of its own';
    END IF;
    RETURN first.job::uuid;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.first_submit(text,uuid,bytea,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.first_submit(text,uuid,bytea,text) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.first_submit(text,uuid,bytea,text) TO cortex_runtime;

-- Submits a job from any language, in the caller's transaction; returns its id: that of an existing job if the rule of its type makes it stand for that. Submitting the same job again under its id, or within 24 hours under its idempotency key, does nothing; another one raises.
CREATE FUNCTION cortex.submit_job(type text, payload jsonb DEFAULT '{}'::jsonb, agent text DEFAULT NULL::text, tenant text DEFAULT NULL::text, queue_name text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, worker_attempts integer DEFAULT NULL::integer, max_retries integer DEFAULT NULL::integer, timeout_s integer DEFAULT NULL::integer, job_key text DEFAULT NULL::text, id uuid DEFAULT cortex.uuid7(), tags text[] DEFAULT NULL::text[], traceparent text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, due_by timestamp with time zone DEFAULT NULL::timestamp with time zone)
 RETURNS uuid
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    first uuid;
    new_ids uuid[];
BEGIN
    IF idempotency_key IS NOT NULL THEN
        -- Not the instant and the span, which a repetition computes anew.
        first := cortex.first_submit(idempotency_key, id, sha256(convert_to(jsonb_build_array(
            type, payload, agent, tenant, queue_name, priority, worker_attempts, max_retries, timeout_s, job_key,
            to_jsonb(tags))::text, 'UTF8')), tenant);
        IF first <> id THEN
            RETURN coalesce((SELECT s.job_id FROM cortex.submitted_as(ARRAY[first]) s), first);
        END IF;
    END IF;
    new_ids := cortex.submit_jobs(
        ARRAY[id], ARRAY[type], ARRAY[payload], ARRAY[agent], ARRAY[tenant], ARRAY[queue_name],
        ARRAY[priority], ARRAY[run_at], ARRAY[worker_attempts], ARRAY[max_retries], ARRAY[timeout_s],
        ARRAY[job_key], CASE WHEN tags IS NOT NULL THEN ARRAY[to_jsonb(tags)] END,
        CASE WHEN traceparent IS NOT NULL THEN ARRAY[traceparent] END,
        CASE WHEN due_by IS NOT NULL THEN ARRAY[due_by] END);
    IF new_ids = '{}' THEN
        RETURN coalesce((SELECT s.job_id FROM cortex.submitted_as(ARRAY[submit_job.id]) s), id);
    END IF;
    RETURN id;
END $function$;

-- Adds a job by its worker task, in the caller's transaction; returns the task's id (job.worker_job_id).
CREATE FUNCTION cortex_worker.add_job(task text, payload jsonb DEFAULT '{}'::jsonb, queue_name text DEFAULT NULL::text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, job_key text DEFAULT NULL::text, priority integer DEFAULT NULL::integer)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    added uuid := cortex.submit_job(
        type => task, payload => payload, queue_name => queue_name, run_at => run_at,
        worker_attempts => max_attempts, job_key => job_key, priority => priority);
BEGIN
    RETURN (SELECT worker_job_id FROM cortex.job WHERE id = added);
END $function$;

-- Versions of all breakers: a breaker that was deleted and comes back is newer than any pod's copy of it.
CREATE SEQUENCE cortex.breaker_version;
GRANT USAGE ON SEQUENCE cortex.breaker_version TO cortex_runtime;

-- Recent failures of everything that jobs call, and whether it may be called. A row is written only when calls fail.
CREATE TABLE cortex.breaker (
    name text NOT NULL,  -- llm:MODEL, tool:NAME, mcp:AGENT/SERVER, http:HOST or notify:CHANNEL; what job.waiting_on names.
    state text NOT NULL,  -- CLOSED: calls pass · OPEN: none until open_until · HALF_OPEN: one probe at a time across all pods.
    failures integer NOT NULL,  -- Consecutive transient failures; failures that would repeat do not count.
    successes integer NOT NULL,  -- Consecutive successful probes.
    requests bigint NOT NULL,  -- Calls since it last closed, as far as pods had a reason to report them.
    opened_at timestamptz,  -- Start of the outage, however often it was probed since.
    open_until timestamptz,  -- When it may be probed; null while a person holds it open indefinitely.
    probe integer NOT NULL,  -- Number of the latest probe: a report of an older one decides nothing.
    probe_by uuid,  -- The pod whose probe is in flight.
    probe_until timestamptz,  -- When that probe counts as lost: its pod renews this while it lives.
    forced_by text,  -- Who holds it open: until open_until if that is set, until a person closes it, or until it is probed.
    forced_reason text,  -- Why.
    forced_at timestamptz,  -- Since when.
    last_error text,  -- Code and message of the newest failure that counted.
    escalated_at timestamptz,  -- When a person was asked; once per outage.
    version bigint NOT NULL DEFAULT nextval('cortex.breaker_version'::regclass),  -- Larger with each write, and never reused: distinguishes an old copy from a new one.
    updated_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was last written.
    CONSTRAINT breaker_pkey PRIMARY KEY (name),
    CONSTRAINT breaker_failures_check CHECK (failures >= 0),
    CONSTRAINT breaker_forced_by_check CHECK (length(forced_by) >= 1 AND length(forced_by) <= 200),
    CONSTRAINT breaker_forced_reason_check CHECK (length(forced_reason) >= 1 AND length(forced_reason) <= 1000),
    CONSTRAINT breaker_last_error_check CHECK (length(last_error) <= 1000),
    CONSTRAINT breaker_name_check CHECK (length(name) >= 1 AND length(name) <= 300),
    CONSTRAINT breaker_probe_check CHECK (probe >= 0),
    CONSTRAINT breaker_requests_check CHECK (requests >= 0),
    CONSTRAINT breaker_state_check CHECK (state = ANY (ARRAY['CLOSED'::text, 'OPEN'::text, 'HALF_OPEN'::text])),
    CONSTRAINT breaker_successes_check CHECK (successes >= 0),
    CONSTRAINT forced_by_somebody_for_a_reason CHECK ((forced_by IS NULL) = (forced_reason IS NULL) AND (forced_by IS NULL) = (forced_at IS NULL)),
    CONSTRAINT forced_only_open CHECK (forced_by IS NULL OR state = 'OPEN'::text),
    CONSTRAINT open_until_unless_forced CHECK (
CASE
    WHEN state = 'CLOSED'::text THEN open_until IS NULL
    ELSE open_until IS NOT NULL OR forced_by IS NOT NULL
END),
    CONSTRAINT opened_at_only_in_an_outage CHECK ((opened_at IS NULL) = (state = 'CLOSED'::text)),
    CONSTRAINT probe_only_in_half_open CHECK ((probe_by IS NULL) = (probe_until IS NULL) AND (probe_by IS NULL OR state = 'HALF_OPEN'::text))
) WITH (fillfactor=50);
CREATE INDEX breaker_unhealthy ON cortex.breaker USING btree (updated_at DESC) WHERE state <> 'CLOSED'::text OR failures > 0;
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.breaker TO cortex_runtime;
GRANT SELECT ON cortex.breaker TO cortex_reader;

-- The current state of a breaker, from its columns of these names: an OPEN breaker whose time is over is HALF_OPEN.
CREATE FUNCTION cortex.breaker_state(state text, open_until timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
AS $function$
SELECT CASE WHEN state = 'OPEN' AND open_until <= cortex.now() THEN 'HALF_OPEN' ELSE state END $function$;

-- Breakers in their current state: changes due to time alone are visible at once.
--   name: llm:MODEL, tool:NAME, mcp:AGENT/SERVER, http:HOST or notify:CHANNEL; what job.waiting_on names.
--   state: CLOSED: calls pass · OPEN: none until open_until · HALF_OPEN: one probe at a time across all pods.
--   failures: Consecutive transient failures; failures that would repeat do not count.
--   successes: Consecutive successful probes.
--   requests: Calls since it last closed, as far as pods had a reason to report them.
--   opened_at: Start of the outage, however often it was probed since.
--   open_until: When it may be probed; null while a person holds it open indefinitely.
--   probe: Number of the latest probe: a report of an older one decides nothing.
--   probe_by: The pod whose probe is in flight.
--   probe_until: When that probe counts as lost: its pod renews this while it lives.
--   forced_by: Who holds it open: until open_until if that is set, until a person closes it, or until it is probed.
--   forced_reason: Why.
--   forced_at: Since when.
--   last_error: Code and message of the newest failure that counted.
--   escalated_at: When a person was asked; once per outage.
--   version: Larger with each write, and never reused: distinguishes an old copy from a new one.
--   updated_at: When it was last written.
CREATE VIEW cortex.breaker_now WITH (security_invoker=true) AS
 SELECT name,
    cortex.breaker_state(state, open_until) AS state,
    failures,
    successes,
    requests,
    opened_at,
    open_until,
    probe,
    probe_by,
    probe_until,
    forced_by,
    forced_reason,
    forced_at,
    last_error,
    escalated_at,
    version,
    updated_at
   FROM cortex.breaker b;
GRANT SELECT ON cortex.breaker_now TO cortex_runtime;
GRANT SELECT ON cortex.breaker_now TO cortex_reader;

-- Errors, costs, and who changed what. Append-only.
CREATE TABLE cortex.fact (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of the rows.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When, by the database's clock.
    type text NOT NULL,  -- error: something failed · cost: one call of a model · lifecycle: something changed state, or a person changed it.
    subtype text NOT NULL,  -- Details of the type: an error's code, "model_call", "budget_raised", "breaker_opened" …
    source text,  -- What failed, cost or changed: llm:NAME, tool:NAME, http:HOST, budget:NAME.
    tenant text NOT NULL DEFAULT 'default'::text,  -- The tenant that it belongs to.
    job_id uuid,  -- The job, if there is one. No foreign key: a fact may outlive its job.
    attempt integer,  -- The job's attempt.
    step text,  -- Key of the step.
    agent_id uuid,  -- The job's agent.
    agent_version integer,  -- That agent's version, whose configuration applied.
    pod_id uuid,  -- The pod.
    trace_id text,  -- Trace of its job, see cortex.trace_id.
    call_id uuid,  -- The call that a cost belongs to: each call is booked once.
    amount numeric(18,8),  -- Money; null when zero or when the price is unknown.
    currency text,  -- ISO 4217 code of the amount.
    resolves bigint,  -- The error fact that this one resolves.
    data jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Details of the type. error: message, class, attempt, max, stack, call_id (the call_id of the cost of the same model call). cost: model, outcome, usage, estimated, code, class. lifecycle: by, reason and the values before and after.
    CONSTRAINT fact_pkey PRIMARY KEY (id),
    CONSTRAINT amount_and_currency_together CHECK ((amount IS NULL) = (currency IS NULL)),
    CONSTRAINT fact_currency_check CHECK (length(currency) = 3),
    CONSTRAINT fact_data_check CHECK (pg_column_size(data) <= 131072),
    CONSTRAINT fact_source_check CHECK (length(source) >= 1 AND length(source) <= 300),
    CONSTRAINT fact_subtype_check CHECK (length(subtype) >= 1 AND length(subtype) <= 100),
    CONSTRAINT fact_type_check CHECK (type = ANY (ARRAY['error'::text, 'cost'::text, 'lifecycle'::text]))
) WITH (autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX fact_job ON cortex.fact USING btree (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX fact_type ON cortex.fact USING btree (type, at);
CREATE INDEX fact_tenant ON cortex.fact USING btree (tenant, type, at, id) WHERE tenant <> 'default'::text;
CREATE INDEX fact_source ON cortex.fact USING btree (source, at) WHERE source IS NOT NULL;
CREATE UNIQUE INDEX fact_call ON cortex.fact USING btree (call_id) WHERE call_id IS NOT NULL;
CREATE INDEX fact_pod ON cortex.fact USING btree (pod_id) WHERE (type = ANY (ARRAY['error'::text, 'lifecycle'::text])) AND pod_id IS NOT NULL;
CREATE INDEX fact_agent_call ON cortex.fact USING btree (agent_id, id) WHERE type = 'cost'::text AND agent_id IS NOT NULL;
CREATE INDEX fact_agent_call_of_tenant ON cortex.fact USING btree (agent_id, tenant, id) WHERE type = 'cost'::text AND agent_id IS NOT NULL AND tenant <> 'default'::text;
CREATE INDEX fact_resolves ON cortex.fact USING btree (resolves, id) WHERE resolves IS NOT NULL;
CREATE INDEX fact_breaker_turn ON cortex.fact USING btree (source, at, id) WHERE type = 'lifecycle'::text AND subtype ~~ 'breaker\_%'::text AND source IS NOT NULL;
CREATE INDEX fact_breaker_error ON cortex.fact USING btree (source, at, id) WHERE type = 'error'::text AND (data ->> 'class'::text) ~~ 'TRANSIENT\_%'::text AND source IS NOT NULL;
GRANT INSERT, SELECT ON cortex.fact TO cortex_runtime;
GRANT SELECT ON cortex.fact TO cortex_reader;

CREATE TRIGGER fact_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.fact FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

CREATE FUNCTION cortex.fact_gets_trace()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    SELECT cortex.trace_id(j.id, j.traceparent) INTO NEW.trace_id FROM cortex.job_record j WHERE j.id = NEW.job_id;
    RETURN NEW;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.fact_gets_trace() FROM PUBLIC;

CREATE TRIGGER fact_gets_trace BEFORE INSERT ON cortex.fact FOR EACH ROW WHEN (new.trace_id IS NULL AND new.job_id IS NOT NULL) EXECUTE FUNCTION cortex.fact_gets_trace();

-- How much the calls of a job, an agent or a tenant may use; facts record who changed it.
CREATE TABLE cortex.budget (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order in which budgets are locked.
    name text GENERATED ALWAYS AS ((((((scope || ':'::text) || subject) || ':'::text) || unit) || ':'::text) || period) STORED,  -- Its name for people and waiting jobs: scope:subject:unit:period.
    scope text NOT NULL,  -- The calls that it counts: those of one lineage of jobs, of an agent or of a tenant.
    subject text NOT NULL,  -- Name of the agent or the tenant; for a job, the id of the first job of its lineage.
    unit text NOT NULL,  -- usd: money · tokens: tokens of every kind.
    period text NOT NULL,  -- run: each lineage of jobs has its own limit · day: all share it, renewed each UTC day.
    limit_amount numeric(20,8) NOT NULL,  -- US dollars or tokens. No call begins once this much is spent.
    declared_amount numeric(20,8),  -- The amount last declared in the agent's file: declaring it again does not undo a person's change.
    changed_by text NOT NULL,  -- Who changed it last.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    reason text NOT NULL,  -- Why.
    share_of uuid,  -- The job that gave this much to its child, see cortex.let_children_go; null: people set it. Deleted with the child.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first set.
    CONSTRAINT budget_pkey PRIMARY KEY (id),
    CONSTRAINT budget_name_key UNIQUE (name),
    CONSTRAINT budget_once UNIQUE (scope, subject, unit, period),
    CONSTRAINT budget_limit_amount_check CHECK (limit_amount >= 0::numeric),
    CONSTRAINT budget_period_check CHECK (period = ANY (ARRAY['run'::text, 'day'::text])),
    CONSTRAINT budget_scope_check CHECK (scope = ANY (ARRAY['job'::text, 'agent'::text, 'tenant'::text])),
    CONSTRAINT budget_subject_check CHECK (length(subject) >= 1 AND length(subject) <= 100),
    CONSTRAINT budget_unit_check CHECK (unit = ANY (ARRAY['usd'::text, 'tokens'::text]))
);
GRANT SELECT ON cortex.budget TO cortex_runtime;
GRANT SELECT ON cortex.budget TO cortex_reader;

-- The usage of a budget in one run or on one day.
CREATE TABLE cortex.budget_use (
    budget_id bigint NOT NULL,  -- The budget. No foreign key: removing it must not fail a call in flight.
    window_key text NOT NULL,  -- Per run the first job of the lineage, per day the UTC date.
    spent numeric(20,8) NOT NULL DEFAULT 0,  -- Booked by calls that have ended.
    reserved numeric(20,8) NOT NULL DEFAULT 0,  -- Estimates of the calls in flight.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the run or the day began to use it.
    run_spent numeric(20,8) GENERATED ALWAYS AS (
CASE
    WHEN length(window_key) = 36 THEN spent
    ELSE NULL::numeric
END) STORED,  -- Spending of a run, to find the most expensive one; null for a day, whose row changes with each call and stays out of indexes.
    CONSTRAINT budget_use_pkey PRIMARY KEY (budget_id, window_key),
    CONSTRAINT budget_use_reserved_check CHECK (reserved >= 0::numeric)
) WITH (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_scale_factor=0.02);
CREATE INDEX budget_use_run ON cortex.budget_use USING btree (budget_id, run_spent) WHERE run_spent IS NOT NULL;
CREATE INDEX budget_use_at ON cortex.budget_use USING btree (at, budget_id, window_key);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.budget_use TO cortex_runtime;
GRANT SELECT ON cortex.budget_use TO cortex_reader;

-- A call in flight, with or without budgets: if its pod dies, the row left here is booked as lost.
CREATE TABLE cortex.reservation (
    id uuid NOT NULL,  -- The call; its cost is booked under the same id.
    job_id uuid NOT NULL,  -- The job.
    attempt integer NOT NULL,  -- The attempt that makes it.
    pod_id uuid NOT NULL,  -- The pod that makes it.
    tenant text NOT NULL,  -- Whose job it is.
    agent_id uuid,  -- The job's agent.
    agent_version integer,  -- That agent's version.
    step text NOT NULL,  -- Key of the step.
    model text NOT NULL,  -- The model.
    input_tokens bigint NOT NULL,  -- Likely tokens of the prompt: booked for a lost call.
    input_usd numeric(18,8),  -- Their likely price in US dollars; null when the model's price is unknown.
    budget_ids bigint[] NOT NULL,  -- Budgets in which it holds room, in the order of their ids.
    window_keys text[] NOT NULL,  -- The run or the day of each.
    amounts numeric[] NOT NULL,  -- The room in each, in its unit.
    limit_ids integer[],  -- Limits of its job type in which it holds room. Null: none.
    limit_keys text[],  -- The key in each.
    limit_tokens bigint,  -- The room in each, in tokens.
    is_batched boolean NOT NULL DEFAULT false,  -- It is that of a call in a batch, which outlives its attempt: see cortex.model_batch_call.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the call was admitted.
    CONSTRAINT reservation_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.1);
CREATE INDEX reservation_job ON cortex.reservation USING btree (job_id, attempt);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.reservation TO cortex_runtime;
GRANT SELECT ON cortex.reservation TO cortex_reader;

-- The run or the day of a budget in which the calls of a lineage count: that of a job counts those of its children, too.
CREATE FUNCTION cortex.budget_window(of_budget cortex.budget, of_lineage uuid)
 RETURNS text
 LANGUAGE sql
 STABLE
RETURN CASE WHEN ((of_budget).period <> 'run'::text) THEN (((cortex.now() AT TIME ZONE 'UTC'::text))::date)::text WHEN ((of_budget).scope = 'job'::text) THEN (of_budget).subject ELSE (of_lineage)::text END;

-- The budgets of the job with which a lineage began, its share among them.
CREATE FUNCTION cortex.budgets_of(of_lineage uuid)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce(jsonb_agg(jsonb_build_object(
    'name', b.name, 'unit', b.unit, 'limit_amount', b.limit_amount, 'spent', coalesce(u.spent, 0),
    'share_of', b.share_of) ORDER BY b.name), '[]')
FROM cortex.budget b
LEFT JOIN cortex.budget_use u ON u.budget_id = b.id AND u.window_key = cortex.budget_window(b, of_lineage)
WHERE b.scope = 'job' AND b.subject = of_lineage::text $function$;

-- Ends calls: returns their room, books what they used, records the cost. A call that has already ended is skipped.
CREATE FUNCTION cortex.settle(calls uuid[], tokens bigint[], costs numeric[], notes jsonb[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    booked int;
    exhausted jsonb[];
    is_limited boolean;
BEGIN
    WITH ended AS (
        SELECT * FROM unnest(calls, tokens, costs, notes) AS e(id, used_tokens, cost, note)
    ), gone AS (
        DELETE FROM cortex.reservation r USING ended e WHERE r.id = e.id
        RETURNING r.*, e.used_tokens, e.cost, e.note
    ), part AS (
        SELECT p.budget_id, p.window_key, sum(p.amount) AS held,
               sum(CASE b.unit WHEN 'usd' THEN coalesce(g.cost, 0) ELSE g.used_tokens END) AS used
        FROM gone g
        CROSS JOIN LATERAL unnest(g.budget_ids, g.window_keys, g.amounts) AS p(budget_id, window_key, amount)
        JOIN cortex.budget b ON b.id = p.budget_id
        GROUP BY p.budget_id, p.window_key
    ), locked AS MATERIALIZED (
        SELECT part.* FROM part
        JOIN cortex.budget_use u ON u.budget_id = part.budget_id AND u.window_key = part.window_key
        ORDER BY part.budget_id, part.window_key FOR UPDATE OF u
    ), spent AS (
        UPDATE cortex.budget_use u SET reserved = u.reserved - l.held, spent = u.spent + l.used
        FROM locked l WHERE u.budget_id = l.budget_id AND u.window_key = l.window_key
        RETURNING u.budget_id, u.window_key, u.spent, u.spent - l.used AS before
    ), token AS (
        -- In the slice in which the room was taken.
        SELECT p.id, p.key, cortex_worker.slice_at(l.per, g.at) AS began_at, sum(g.used_tokens - g.limit_tokens) AS more
        FROM gone g CROSS JOIN LATERAL unnest(g.limit_ids, g.limit_keys) AS p(id, key)
        JOIN cortex.job_limit l ON l.id = p.id
        GROUP BY 1, 2, 3
    ), slice AS MATERIALIZED (
        SELECT t.* FROM token t
        JOIN cortex_worker.limit_use u ON u.limit_id = t.id AND u.key = t.key AND u.began_at = t.began_at
        WHERE (SELECT count(*) FROM locked) >= 0  -- after the budgets, as in cortex.reserve
        ORDER BY t.id, t.key, t.began_at FOR UPDATE OF u
    ), returned AS (
        UPDATE cortex_worker.limit_use u SET used = greatest(0, u.used + s.more)
        FROM slice s WHERE u.limit_id = s.id AND u.key = s.key AND u.began_at = s.began_at
        RETURNING u.limit_id
    ), fact AS (
        INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version,
                                 pod_id, call_id, amount, currency, data)
        SELECT 'cost', 'model_call', left('llm:' || g.model, 300), g.tenant, g.job_id, g.attempt, g.step, g.agent_id,
               g.agent_version, g.pod_id, g.id, g.cost, CASE WHEN g.cost IS NOT NULL THEN 'USD' END,
               g.note || jsonb_build_object('model', g.model)
        FROM gone g
    )
    SELECT (SELECT count(*) FROM gone), (
        SELECT array_agg(jsonb_build_object(
            'budget', b.name, 'scope', b.scope, 'subject', b.subject, 'unit', b.unit, 'period', b.period,
            'window', s.window_key, 'spent', s.spent, 'limit', b.limit_amount,
            'tenant', CASE b.scope WHEN 'tenant' THEN b.subject ELSE 'default' END) ORDER BY b.id)
        FROM spent s JOIN cortex.budget b ON b.id = s.budget_id
        WHERE s.before < b.limit_amount AND s.spent >= b.limit_amount), (
        SELECT true FROM returned LIMIT 1)
    INTO booked, exhausted, is_limited;
    IF is_limited THEN
        PERFORM pg_notify('cortex_limit', '');
    END IF;
    IF exhausted IS NOT NULL THEN
        PERFORM cortex.announce('budget.spent', e->>'budget', e, e->>'tenant') FROM unnest(exhausted) AS e;
    END IF;
    RETURN booked;
END $function$;

-- Ends calls whose outcome will stay unknown: the prompt was likely paid.
CREATE FUNCTION cortex.settle_lost(calls uuid[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN (
        SELECT cortex.settle(array_agg(r.id), array_agg(r.input_tokens), array_agg(r.input_usd),
                             array_agg(jsonb_build_object(
                                 'outcome', 'lost', 'estimated', true,
                                 'usage', jsonb_build_object('input_tokens', r.input_tokens))))
        FROM cortex.reservation r WHERE r.id = ANY (calls));
END $function$;

-- Whether the cost of a call will stay unknown: its attempt is over, and its pod is gone or had a minute to book it.
CREATE FUNCTION cortex.is_lost(call cortex.reservation)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT NOT call.is_batched AND (
    NOT EXISTS (SELECT FROM cortex.pod p WHERE p.id = call.pod_id AND p.state IN ('READY', 'DRAINING'))
    -- A living pod books the real cost of its call as soon as it reaches the database again.
    OR coalesce((SELECT a.ended_at FROM cortex.job_attempt a WHERE a.job_id = call.job_id AND a.attempt = call.attempt),
                (SELECT j.finished_at FROM cortex.job j WHERE j.id = call.job_id),
                '-infinity') < cortex.now() - interval '1 minute') $function$;

-- Admits a call, or returns the budget that stops it: busy (other calls hold the room), spent, or unpriced; or the limit of its job type that has no room for its tokens; or that the lease is lost.
CREATE FUNCTION cortex.reserve(new_call uuid, of_job uuid, of_attempt integer, of_pod uuid, of_lineage uuid, of_tenant text, of_agent uuid, of_version integer, of_step text, of_model text, most_tokens bigint, most_usd numeric, likely_tokens bigint, likely_usd numeric)
 RETURNS TABLE(verdict text, budget text, unit text, spent numeric, limit_amount numeric, wait_s double precision, is_own boolean, limit_key text)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    today date := (cortex.now() AT TIME ZONE 'UTC')::date;
    known bigint[];
    windows text[];
    ids bigint[] := '{}';
    keys text[] := '{}';
    room numeric[] := '{}';
    left_over uuid[];
    parent uuid;
    lines text[] := ARRAY[of_lineage::text];
    rank int;
    worst int := 0;
    held record;
    refused record;
    asked record;
BEGIN
    SELECT NULL::int[] AS ids, NULL::text[] AS keys INTO asked;
    IF EXISTS (SELECT FROM cortex.reservation r WHERE r.id = new_call) THEN
        RETURN QUERY SELECT 'granted', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
        RETURN;
    END IF;
    SELECT j.parent_id INTO parent FROM cortex.job j
    WHERE j.id = of_job AND j.attempt = of_attempt AND j.pod_id = of_pod AND j.status::text = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'lease_lost', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
        RETURN;
    END IF;
    left_over := ARRAY(SELECT r.id FROM cortex.reservation r WHERE r.job_id = of_job AND r.attempt < of_attempt
                       AND NOT r.is_batched AND (r.pod_id = of_pod OR cortex.is_lost(r)));
    IF cardinality(left_over) > 0 THEN
        PERFORM cortex.settle_lost(left_over);
    END IF;

    -- The calls of children count towards the budgets of the jobs above them.
    IF parent IS NOT NULL THEN
        lines := lines || ARRAY(
            SELECT DISTINCT coalesce(j.lineage_id, j.id)::text FROM cortex.ancestors(of_job) AS a(id)
            JOIN cortex.job_record j ON j.id = a.id);
    END IF;
    SELECT array_agg(b.id ORDER BY b.id), array_agg(cortex.budget_window(b, of_lineage) ORDER BY b.id) INTO known, windows
    FROM (SELECT 'job' AS scope, l.id AS subject FROM unnest(lines) AS l(id)
          UNION ALL
          VALUES ('tenant', of_tenant), ('agent', (SELECT a.name FROM cortex.agent a WHERE a.id = of_agent))) mine
    JOIN cortex.budget b ON b.scope = mine.scope AND b.subject = mine.subject;

    IF known IS NOT NULL THEN
        INSERT INTO cortex.budget_use (budget_id, window_key)
        SELECT n.id, n.key FROM unnest(known, windows) AS n(id, key) ORDER BY n.id
        ON CONFLICT DO NOTHING;
        FOR held IN
            SELECT b.id, u.window_key, b.name, b.unit, b.period, b.limit_amount, u.spent, u.reserved,
                   round(CASE b.unit WHEN 'usd' THEN most_usd ELSE most_tokens END, 8) AS amount
            FROM unnest(known, windows) AS n(id, key)
            JOIN cortex.budget b ON b.id = n.id
            JOIN cortex.budget_use u ON u.budget_id = n.id AND u.window_key = n.key
            ORDER BY n.id FOR UPDATE OF u
        LOOP
            -- If no other call is in flight, a call may begin with whatever is left, so that it can be spent.
            rank := CASE WHEN held.amount IS NULL THEN 3
                         WHEN held.spent >= held.limit_amount THEN 2
                         WHEN held.reserved > 0 AND held.spent + held.reserved + held.amount > held.limit_amount THEN 1
                         ELSE 0 END;
            IF rank > worst THEN
                worst := rank;
                refused := held;
            END IF;
            ids := ids || held.id;
            keys := keys || held.window_key;
            room := room || held.amount;
        END LOOP;
        IF worst > 0 THEN
            RETURN QUERY SELECT (ARRAY['busy', 'spent', 'unpriced'])[worst], refused.name, refused.unit, refused.spent,
                refused.limit_amount, CASE refused.period WHEN 'day' THEN
                    extract(epoch FROM (today + 1)::timestamp AT TIME ZONE 'UTC' - cortex.now())::float8 END,
                EXISTS (SELECT FROM cortex.reservation r WHERE r.job_id = of_job AND r.attempt = of_attempt
                        AND NOT r.is_batched AND refused.id = ANY (r.budget_ids)), NULL;
            RETURN;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM cortex.job_limit l WHERE l.unit = 'tokens') THEN
        -- Whoever returns room locks the uses of budgets first, too.
        SELECT * INTO asked FROM cortex_worker.ask_for_tokens(of_job, of_model, most_tokens);
        IF asked.refused IS NOT NULL THEN
            RETURN QUERY SELECT 'limit', asked.refused, 'tokens', asked.used::numeric, asked.amount::numeric, asked.wait_s, false,
                asked.key;
            RETURN;
        END IF;
    END IF;
    IF known IS NOT NULL THEN
        UPDATE cortex.budget_use u SET reserved = u.reserved + n.amount
        FROM unnest(ids, keys, room) AS n(id, key, amount) WHERE u.budget_id = n.id AND u.window_key = n.key;
    END IF;

    INSERT INTO cortex.reservation (id, job_id, attempt, pod_id, tenant, agent_id, agent_version, step, model,
                                    input_tokens, input_usd, budget_ids, window_keys, amounts,
                                    limit_ids, limit_keys, limit_tokens)
    VALUES (new_call, of_job, of_attempt, of_pod, of_tenant, of_agent, of_version, of_step, of_model,
            likely_tokens, likely_usd, ids, keys, room,
            asked.ids, asked.keys, CASE WHEN asked.ids IS NOT NULL THEN most_tokens END);
    RETURN QUERY SELECT 'granted', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
END $function$;

-- Twelve hex digits that equal errors share: job type, code, and the message without its ids, numbers, paths and quoted parts other than short names.
CREATE FUNCTION cortex.fingerprint(type text, code text, message text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN substr(encode(sha256(convert_to(concat_ws(''::text, type, code, regexp_replace(regexp_replace(regexp_replace(regexp_replace("left"(message, 1000), '(?<!\w)(?!["''`][a-z_]([a-z_.-]{0,38}[a-z_])?["''`](?!\w))("[^"]*"|''[^'']*''|`[^`]*`)'::text, '""'::text, 'gi'::text), '(?<![\w/.:])~?/[\w.-][^\s"''`:,;)]*'::text, '/'::text, 'g'::text), '\m([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(0x)?[0-9a-f]*[0-9][0-9a-f]*)\M'::text, '#'::text, 'gi'::text), '[0-9#]+([.,:][0-9#]+)*'::text, '#'::text, 'g'::text)), 'UTF8'::name)), 'hex'::text), 1, 12);

-- The number of steps that a retry of a failed job keeps when the last model response, a denial or a failed child is why it failed: those before it. Null: all.
CREATE FUNCTION cortex.steps_kept(job_id uuid, error_class text, error_code text)
 RETURNS integer
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN COALESCE((SELECT (s.seq - 1) FROM cortex.job_step s WHERE ((s.job_id = steps_kept.job_id) AND (s.kind = 'approval'::text) AND (steps_kept.error_code = 'denied'::text) AND ((s.output ->> 'is_approved'::text) = 'false'::text)) ORDER BY s.seq DESC LIMIT 1), (SELECT (s.seq - 1) FROM cortex.job_step s WHERE ((s.job_id = steps_kept.job_id) AND (s.kind = 'child'::text) AND (steps_kept.error_code = 'child_failed'::text) AND ((s.output ->> 'has_failed'::text) = 'true'::text)) ORDER BY s.seq DESC LIMIT 1), (SELECT (m.seq - 1) FROM (((SELECT s.seq, s.output FROM cortex.job_step s WHERE ((s.job_id = steps_kept.job_id) AND (s.kind = 'model'::text) AND ((steps_kept.error_class = 'INVALID_OUTPUT'::text) OR (steps_kept.error_code = 'rejected'::text))) ORDER BY s.seq DESC LIMIT 1) m CROSS JOIN LATERAL (SELECT count(*) AS count FROM cortex.job_step s WHERE ((s.job_id = steps_kept.job_id) AND (s.seq > m.seq))) later) CROSS JOIN LATERAL (SELECT count(*) AS count FROM json_array_elements(CASE WHEN (json_typeof((m.output -> 'content'::text)) = 'array'::text) THEN (m.output -> 'content'::text) ELSE NULL::json END) block(value) WHERE ((block.value ->> 'type'::text) = 'tool_use'::text)) asked) WHERE ((later.count = asked.count) AND ((steps_kept.error_class = 'INVALID_OUTPUT'::text) OR ((asked.count = 0) AND ((m.output ->> 'stop_reason'::text) <> ALL (ARRAY['end_turn'::text, 'stop_sequence'::text])))))));

-- The checkpoint with which a job begins that keeps so many steps of this one; null for kept: all.
CREATE FUNCTION cortex.kept_head(job_id uuid, kept integer)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE WHEN $2 IS NULL THEN (SELECT j.checkpoint FROM cortex.job j WHERE j.id = $1) ELSE (
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'seq', max(s.seq), 'kind', (array_agg(s.kind ORDER BY s.seq DESC))[1],
        'key', (array_agg(s.key ORDER BY s.seq DESC))[1],
        'input_tokens', sum(coalesce((s.usage->>'input_tokens')::bigint, 0)
            + coalesce((s.usage->>'cache_read_tokens')::bigint, 0)
            + coalesce((s.usage->>'cache_write_tokens')::bigint, 0)) FILTER (WHERE s.usage IS NOT NULL),
        'output_tokens', sum((s.usage->>'output_tokens')::bigint),
        'cost_usd', CASE WHEN count(s.usage) > 0 THEN coalesce(sum(s.cost_usd), 0)::text END))
    FROM cortex.job_step s WHERE s.job_id = $1 AND s.seq <= $2 HAVING count(*) > 0) END $function$;

-- Whether people decided that a job fails, or let a question expire: it is no dead letter.
CREATE FUNCTION cortex.is_decision(error_code text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN COALESCE((error_code = ANY (ARRAY['denied'::text, 'approval_expired'::text])), false);

-- The outcome of each failed job; payload, attempts and times are in its job.
CREATE TABLE cortex.dead_letter (
    job_id uuid NOT NULL,  -- The failed job. No foreign key: rows come from the job's own trigger.
    lineage_id uuid NOT NULL,  -- First job of its lineage; its own id when it continues no other job.
    fingerprint text NOT NULL,  -- Shared by equal errors: see cortex.fingerprint.
    type text NOT NULL,  -- Job type.
    tenant text NOT NULL,  -- The job's tenant.
    agent_id uuid,  -- The agent that it ran, if it ran one.
    error_class text,  -- Class of the error.
    error_code text,  -- Stable code of the error.
    error_source text,  -- What failed, by the name of its breaker; null for the job's own code.
    awaits text GENERATED ALWAYS AS (
CASE
    WHEN error_class = ANY (ARRAY['TRANSIENT_INFRA'::text, 'TRANSIENT_APP'::text]) THEN error_source
    ELSE NULL::text
END) STORED,  -- The breaker whose closing triggers an automatic retry: the source of a transient error.
    state text NOT NULL DEFAULT 'OPEN'::text,  -- OPEN: undecided · ESCALATED: an operator must change something first · RETRIED: another job continues it · DISCARDED: a person gave it up · ARCHIVED: no handler could read its payload.
    created_at timestamptz NOT NULL,  -- When the job failed.
    triaged_at timestamptz,  -- When the triage handled it: if still OPEN, it waits for a person.
    resolved_at timestamptz,  -- When it was retried or discarded.
    resolved_by text,  -- By whom.
    reason text,  -- Why it was resolved, escalated or archived.
    retried_as uuid,  -- The job that continues it.
    is_automatic boolean NOT NULL DEFAULT false,  -- The triage retried it, which happens once per lineage.
    CONSTRAINT dead_letter_pkey PRIMARY KEY (job_id),
    CONSTRAINT automatic_only_in_retried CHECK (state = 'RETRIED'::text OR NOT is_automatic),
    CONSTRAINT dead_letter_resolved_by_check CHECK (length(resolved_by) >= 1 AND length(resolved_by) <= 200),
    CONSTRAINT dead_letter_state_check CHECK (state = ANY (ARRAY['OPEN'::text, 'ESCALATED'::text, 'RETRIED'::text, 'DISCARDED'::text, 'ARCHIVED'::text])),
    CONSTRAINT resolved_when_done_with CHECK ((resolved_at IS NOT NULL) = (state = ANY (ARRAY['RETRIED'::text, 'DISCARDED'::text])) AND (resolved_by IS NOT NULL) = (resolved_at IS NOT NULL)),
    CONSTRAINT retried_as_only_in_retried CHECK ((retried_as IS NOT NULL) = (state = 'RETRIED'::text))
);
CREATE INDEX dead_letter_newest ON cortex.dead_letter USING btree (created_at, job_id);
CREATE INDEX dead_letter_unresolved ON cortex.dead_letter USING btree (created_at, job_id) WHERE state = ANY (ARRAY['OPEN'::text, 'ESCALATED'::text, 'ARCHIVED'::text]);
CREATE INDEX dead_letter_tenant ON cortex.dead_letter USING btree (tenant, created_at, job_id) WHERE tenant <> 'default'::text;
CREATE INDEX dead_letter_fingerprint ON cortex.dead_letter USING btree (fingerprint text_pattern_ops, created_at);
CREATE INDEX dead_letter_untriaged ON cortex.dead_letter USING btree (COALESCE(awaits, ''::text), created_at) WHERE state = 'OPEN'::text AND triaged_at IS NULL;
-- A lineage of jobs is retried automatically once; then a person decides.
CREATE UNIQUE INDEX dead_letter_automatic ON cortex.dead_letter USING btree (lineage_id) WHERE is_automatic;
GRANT SELECT ON cortex.dead_letter TO cortex_runtime;
GRANT UPDATE (state, triaged_at, resolved_at, resolved_by, reason, retried_as, is_automatic) ON cortex.dead_letter TO cortex_runtime;
GRANT SELECT ON cortex.dead_letter TO cortex_reader;

CREATE FUNCTION cortex.dead_letter_of_failure()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    INSERT INTO cortex.dead_letter (
        job_id, lineage_id, fingerprint, type, tenant, agent_id, error_class, error_code, error_source, created_at)
    VALUES (NEW.id, coalesce(NEW.lineage_id, NEW.id),
            cortex.fingerprint(NEW.type, NEW.error_code, NEW.error_message), NEW.type, NEW.tenant,
            NEW.agent_id, NEW.error_class, NEW.error_code, NEW.error_source, NEW.finished_at);
    IF EXISTS (SELECT FROM cortex.subscription) THEN
        PERFORM cortex.announce('dead_letter.created', NEW.id::text, jsonb_strip_nulls(jsonb_build_object(
            'job', NEW.id, 'type', NEW.type, 'agent', cortex.agent_name(NEW.agent_id), 'tenant', NEW.tenant,
            'fingerprint', cortex.fingerprint(NEW.type, NEW.error_code, NEW.error_message),
            'retries', NEW.retry_count, 'error', jsonb_build_object(
                'code', NEW.error_code, 'class', NEW.error_class, 'source', NEW.error_source,
                'message', left(NEW.error_message, 500)))), NEW.tenant, cortex.traceparent(NEW.id, NEW.traceparent));
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.dead_letter_of_failure() FROM PUBLIC;

CREATE TRIGGER dead_letter_of_failure AFTER UPDATE OF status ON cortex.job_record FOR EACH ROW WHEN (new.status = 'FAILED'::cortex.job_status AND old.status <> 'FAILED'::cortex.job_status AND NOT cortex.is_decision(new.error_code)) EXECUTE FUNCTION cortex.dead_letter_of_failure();

-- The longest pause, in seconds, before an application retry of a job after this many: by the policy that it started with, or that of its agent.
CREATE FUNCTION cortex.backoff_s(of_type text, config_id integer, agent_id uuid, agent_version integer, retry_count integer)
 RETURNS double precision
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH given AS (
    SELECT c.spec->'policies'->of_type->'backoff' AS policy, v.spec->'limits'->'backoff' AS agent
    FROM (SELECT $2 AS config_id, $3 AS agent_id, $4 AS agent_version) j
    LEFT JOIN cortex.config c ON c.id = j.config_id
    LEFT JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
), figure AS (
    -- A setting that another version wrote and this one cannot read must not stop the sweep.
    SELECT n.name, (coalesce(nullif(g.agent->n.agent_name, 'null'), g.policy->n.name)) AS value
    FROM given g, (VALUES ('base_s', 'base_seconds'), ('cap_s', 'cap_seconds'), ('multiplier', 'multiplier'))
        AS n(name, agent_name)
), known AS (
    SELECT name, CASE WHEN jsonb_typeof(value) = 'number' THEN value::float8 END AS value FROM figure
)
SELECT least(coalesce((SELECT value FROM known WHERE name = 'cap_s'), 300),
             coalesce((SELECT value FROM known WHERE name = 'base_s'), 1)
             * power(coalesce((SELECT value FROM known WHERE name = 'multiplier'), 2), retry_count)) $function$;

-- How many effects of a tool, or up to which sum, all pods together may begin in an hour or a day.
CREATE TABLE cortex.quota (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order in which quotas of one tool are locked.
    name text GENERATED ALWAYS AS ((((tool || ':'::text) || COALESCE(argument, 'calls'::text)) || ':'::text) || period) STORED,  -- Its name for people and waiting jobs: tool:argument:period, or tool:calls:period.
    tool text NOT NULL,  -- The tool.
    argument text,  -- The argument that is summed, dotted if nested; null: calls are counted.
    unit text,  -- The unit of the argument, for people.
    period text NOT NULL,  -- hour or day, of UTC.
    limit_amount numeric(20,8) NOT NULL,  -- The largest number or sum.
    changed_by text NOT NULL,  -- Who changed it last.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    reason text NOT NULL,  -- Why.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first set.
    CONSTRAINT quota_pkey PRIMARY KEY (id),
    CONSTRAINT quota_name_key UNIQUE (name),
    CONSTRAINT calls_have_no_unit CHECK (argument IS NOT NULL OR unit IS NULL),
    CONSTRAINT name_fits_what_a_job_waits_for CHECK (length(name) <= 290),
    CONSTRAINT quota_argument_check CHECK (length(argument) >= 1 AND length(argument) <= 200),
    CONSTRAINT quota_limit_amount_check CHECK (limit_amount >= 0::numeric),
    CONSTRAINT quota_period_check CHECK (period = ANY (ARRAY['hour'::text, 'day'::text])),
    CONSTRAINT quota_tool_check CHECK (length(tool) >= 1 AND length(tool) <= 200),
    CONSTRAINT quota_unit_check CHECK (length(unit) >= 1 AND length(unit) <= 20)
);
CREATE INDEX quota_tool ON cortex.quota USING btree (tool, id);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.quota TO cortex_runtime;
GRANT SELECT ON cortex.quota TO cortex_reader;

-- The usage of a quota in one hour or on one day.
CREATE TABLE cortex.quota_use (
    quota_id integer NOT NULL,  -- The quota. No foreign key: removing it must not fail a call in flight.
    began_at timestamptz NOT NULL,  -- When that hour or day began.
    used numeric(20,8) NOT NULL DEFAULT 0,  -- Begun effects, or the sum of their argument.
    CONSTRAINT quota_use_pkey PRIMARY KEY (quota_id, began_at),
    CONSTRAINT quota_use_used_check CHECK (used >= 0::numeric)
) WITH (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_scale_factor=0.02);
CREATE INDEX quota_use_began ON cortex.quota_use USING btree (began_at);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.quota_use TO cortex_runtime;
GRANT SELECT ON cortex.quota_use TO cortex_reader;

-- The start of the UTC hour or day that contains an instant.
CREATE FUNCTION cortex.quota_began(period text, at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (date_trunc(period, (at AT TIME ZONE 'UTC'::text)) AT TIME ZONE 'UTC'::text);

-- Takes one effect from all quotas of its tool, or from none and returns the quota that stops it: quota (wait), never, or no_amount. What it took before counts for the rest of that hour or day.
CREATE FUNCTION cortex.take_quota(of_tool text, of_arguments json, taken_at timestamp with time zone)
 RETURNS TABLE(verdict text, quota text, used numeric, limit_amount numeric, amount numeric, wait_s double precision)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    held record;
    asked text;
    takes numeric;
    ids int[] := '{}';
    began timestamptz[] := '{}';
    amounts numeric[] := '{}';
BEGIN
    INSERT INTO cortex.quota_use (quota_id, began_at)
    SELECT q.id, cortex.quota_began(q.period, cortex.now()) FROM cortex.quota q WHERE q.tool = of_tool ORDER BY q.id
    ON CONFLICT DO NOTHING;
    FOR held IN
        SELECT q.id, q.name, q.argument, q.period, trim_scale(q.limit_amount) AS limit_amount, u.began_at,
               trim_scale(u.used) AS used
        FROM cortex.quota q
        JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = cortex.quota_began(q.period, cortex.now())
        WHERE q.tool = of_tool AND (taken_at IS NULL OR taken_at < u.began_at) ORDER BY q.id FOR UPDATE OF u
    LOOP
        takes := 1;
        IF held.argument IS NOT NULL THEN
            asked := of_arguments #>> string_to_array(held.argument, '.');
            -- Only a plain number counts: anything else cannot be held to a limit.
            IF asked IS NULL OR json_typeof(of_arguments #> string_to_array(held.argument, '.')) <> 'number'
               OR asked::numeric < 0 THEN
                RETURN QUERY SELECT 'no_amount', held.name, held.used, held.limit_amount, NULL::numeric, NULL::float8;
                RETURN;
            END IF;
            takes := round(asked::numeric, 8);
        END IF;
        IF takes > held.limit_amount THEN
            RETURN QUERY SELECT 'never', held.name, held.used, held.limit_amount, takes, NULL::float8;
            RETURN;
        ELSIF held.used + takes > held.limit_amount THEN
            RETURN QUERY SELECT 'quota', held.name, held.used, held.limit_amount, takes,
                extract(epoch FROM held.began_at + ('1 ' || held.period)::interval - cortex.now())::float8;
            RETURN;
        END IF;
        ids := ids || held.id;
        began := began || held.began_at;
        amounts := amounts || takes;
    END LOOP;
    UPDATE cortex.quota_use u SET used = u.used + n.amount
    FROM unnest(ids, began, amounts) AS n(id, began_at, amount) WHERE u.quota_id = n.id AND u.began_at = n.began_at;
END $function$;

-- How many jobs a tenant may have that have not ended, and how many bytes their payloads: a submit beyond it is refused.
CREATE TABLE cortex.tenant_cap (
    tenant text NOT NULL,  -- The tenant.
    jobs_max integer NOT NULL,  -- Most jobs that have not ended: each submit counts that far.
    bytes_max bigint,  -- Most bytes of their payloads, as stored; null: any number.
    changed_by text NOT NULL,  -- Who changed it last.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    reason text NOT NULL,  -- Why.
    CONSTRAINT tenant_cap_pkey PRIMARY KEY (tenant),
    CONSTRAINT default_has_no_cap CHECK (tenant <> 'default'::text),
    CONSTRAINT tenant_cap_bytes_max_check CHECK (bytes_max >= 1),
    CONSTRAINT tenant_cap_changed_by_check CHECK (length(changed_by) >= 1 AND length(changed_by) <= 200),
    CONSTRAINT tenant_cap_jobs_max_check CHECK (jobs_max >= 1 AND jobs_max <= 100000),
    CONSTRAINT tenant_cap_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.tenant_cap TO cortex_runtime;
GRANT SELECT ON cortex.tenant_cap TO cortex_reader;

-- Refuses a batch with which a tenant would have more jobs that have not ended, or more bytes of payloads, than its cap.
CREATE FUNCTION cortex.refuse_over_cap(ids uuid[], types text[], tenants text[], payloads jsonb[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
    capped record;
    jobs bigint;
    bytes bigint;
BEGIN
    FOR capped IN
        SELECT c.tenant, c.jobs_max, c.bytes_max, n.jobs, n.bytes FROM cortex.tenant_cap c JOIN (
            SELECT s.tenant, count(*) AS jobs, sum(pg_column_size(coalesce(s.payload, '{}'))) AS bytes
            FROM (SELECT unnest(ids) AS id, unnest(types) AS type, unnest(tenants) AS tenant,
                         unnest(payloads) AS payload) s
            -- People must be asked and notified, by jobs that the runtime submits without a person. A job that was
            -- submitted before adds none.
            WHERE s.type NOT IN ('approval_notify', 'bulk')
              AND (s.type <> 'send_notification' OR NOT cortex.caller_is_runtime()
                   OR coalesce(current_setting('cortex.credential', true), '') <> '')
              AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = s.id)
            GROUP BY s.tenant) n ON n.tenant = c.tenant
        ORDER BY c.tenant
    LOOP
        -- One at a time, to the end of the transaction: those at once would not see each other's jobs.
        PERFORM pg_advisory_xact_lock(hashtextextended('cortex.tenant_cap ' || capped.tenant, 0));
        IF capped.bytes_max IS NULL THEN
            SELECT count(*), 0 INTO jobs, bytes FROM (
                SELECT FROM cortex.job_record j WHERE j.tenant = capped.tenant AND j.tenant <> 'default'
                  AND j.status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL') LIMIT capped.jobs_max) w;
        ELSE
            SELECT count(*), coalesce(sum(w.size), 0) INTO jobs, bytes FROM (
                SELECT pg_column_size(j.payload) AS size FROM cortex.job_record j
                WHERE j.tenant = capped.tenant AND j.tenant <> 'default'
                  AND j.status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL') LIMIT capped.jobs_max) w;
        END IF;
        IF jobs + capped.jobs > capped.jobs_max OR bytes + capped.bytes > capped.bytes_max THEN
            RAISE EXCEPTION 'tenant "%" has % of at most % jobs that have not ended%', capped.tenant, jobs, capped.jobs_max,
                coalesce(format(', with %s of at most %s bytes', bytes, capped.bytes_max), '')
                USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_cap',
                      HINT = 'submit again when some have ended, or raise it: cortex quotas cap';
        END IF;
    END LOOP;
END $function$;

-- The same of new jobs that continue failed ones: their ids, and their payloads if they are others.
CREATE FUNCTION cortex.refuse_retries_over_cap(of_jobs uuid[], new_ids uuid[], others jsonb[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM cortex.tenant_cap) THEN
        PERFORM cortex.refuse_over_cap(array_agg(r.new_id), array_agg(j.type), array_agg(j.tenant),
                                       array_agg(coalesce(r.payload, j.payload)))
        FROM unnest(of_jobs, new_ids, others) AS r(job_id, new_id, payload)
        JOIN cortex.job_record j ON j.id = r.job_id AND j.status = 'FAILED'
        WHERE NOT EXISTS (SELECT FROM cortex.job_record n WHERE n.origin_id = j.id);
    END IF;
END $function$;

-- Calls with an outside result: intent before, outcome after. A PENDING effect may or may not have been applied.
CREATE TABLE cortex.effect (
    id uuid NOT NULL,  -- The invocation: the idempotency key for the other side, the same on every repetition.
    job_id uuid NOT NULL,  -- The job that intends it, the last one of its lineage.
    lineage_id uuid NOT NULL,  -- First job of that lineage: a job that continues a failed one does not repeat the effect.
    attempt integer NOT NULL,  -- The attempt of the job that may call it: the fence.
    key text NOT NULL,  -- The step that calls it.
    tool text NOT NULL,  -- The tool, or the function of the job's own code.
    tenant text NOT NULL,  -- The job's tenant.
    agent_id uuid,  -- The job's agent.
    agent_version integer,  -- That agent's version.
    arguments json NOT NULL,  -- The arguments of the call, as canonical JSON.
    digest bytea NOT NULL,  -- SHA-256 of the arguments.
    status text NOT NULL DEFAULT 'PENDING'::text,  -- PENDING: the call may be in flight, or was cut off · UNKNOWN: a person decides · COMPLETED: applied · FAILED: certainly not applied · ABANDONED: a person gave it up.
    is_sure boolean NOT NULL DEFAULT false,  -- Certainly not applied so far: the next attempt may call at once.
    calls_count integer NOT NULL DEFAULT 1,  -- How many attempts were allowed to call.
    can_reconcile boolean NOT NULL,  -- Whether the other side can look up the outcome.
    approval_id uuid,  -- The decision that it consumed: one decision admits one call.
    why text,  -- Why it failed, or why its outcome is unknown.
    result json,  -- The result that a person entered; otherwise the result is in the step.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first intended.
    called_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When an attempt was last allowed to call.
    finished_at timestamptz,  -- When its outcome was recorded.
    resolution text,  -- A person's resolution.
    resolved_by text,  -- Who.
    resolved_at timestamptz,  -- When.
    resolved_reason text,  -- Why.
    CONSTRAINT effect_pkey PRIMARY KEY (id),
    CONSTRAINT effect_approval_id_key UNIQUE (approval_id),
    CONSTRAINT effect_once UNIQUE (lineage_id, key, digest),
    CONSTRAINT effect_calls_count_check CHECK (calls_count >= 1),
    CONSTRAINT effect_check CHECK (digest = sha256(convert_to(arguments::text, 'UTF8'::name))),
    CONSTRAINT effect_key_check CHECK (length(key) >= 1 AND length(key) <= 500),
    CONSTRAINT effect_resolution_check CHECK (resolution = ANY (ARRAY['applied'::text, 'not-applied'::text, 'give-up'::text])),
    CONSTRAINT effect_resolved_by_check CHECK (length(resolved_by) >= 1 AND length(resolved_by) <= 200),
    CONSTRAINT effect_status_check CHECK (status = ANY (ARRAY['PENDING'::text, 'UNKNOWN'::text, 'COMPLETED'::text, 'FAILED'::text, 'ABANDONED'::text])),
    CONSTRAINT effect_tool_check CHECK (length(tool) >= 1 AND length(tool) <= 200),
    CONSTRAINT finished_at_only_when_final CHECK ((finished_at IS NOT NULL) = (status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'ABANDONED'::text]))),
    CONSTRAINT resolved_by_somebody_for_a_reason CHECK ((resolution IS NULL) = (resolved_by IS NULL) AND (resolution IS NULL) = (resolved_at IS NULL) AND (resolution IS NULL) = (resolved_reason IS NULL)),
    CONSTRAINT result_only_when_completed CHECK (result IS NULL OR status = 'COMPLETED'::text),
    CONSTRAINT sure_only_when_pending CHECK (status = 'PENDING'::text OR NOT is_sure)
) WITH (fillfactor=70, autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX effect_status ON cortex.effect USING btree (status, created_at DESC, id DESC);
CREATE INDEX effect_tool ON cortex.effect USING btree (tool, status, created_at DESC, id DESC);
CREATE INDEX effect_tenant ON cortex.effect USING btree (tenant, status, created_at DESC, id DESC) WHERE tenant <> 'default'::text;
CREATE INDEX effect_job ON cortex.effect USING btree (job_id, created_at DESC, id DESC);
GRANT SELECT ON cortex.effect TO cortex_runtime;
GRANT INSERT (id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, arguments, digest, can_reconcile, approval_id) ON cortex.effect TO cortex_runtime;
GRANT UPDATE (job_id, attempt, status, is_sure, calls_count, why, result, called_at, finished_at) ON cortex.effect TO cortex_runtime;
GRANT SELECT ON cortex.effect TO cortex_reader;

-- Permission for an attempt to call, or the reason against it: go · recheck: called before, with no recorded outcome · done · abandoned · diverged (with the arguments and the tool of the open call) · frozen · quota · never · no_amount · unapproved · lost.
CREATE FUNCTION cortex.intend(of_job uuid, of_attempt integer, new_id uuid, of_key text, of_tool text, of_arguments json, of_digest bytea, sure boolean, reconciles boolean, of_approval uuid, by_name boolean)
 RETURNS TABLE(id uuid, verdict text, attempt integer, result json, why text, quota text, used numeric, limit_amount numeric, amount numeric, wait_s double precision)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    owner record;
    known record;
    stop record;
BEGIN
    -- The caller holds the job's row.
    SELECT j.id, coalesce(j.lineage_id, j.id) AS line, j.tenant, j.agent_id, j.agent_version, j.has_open INTO owner
    FROM cortex.job j WHERE j.id = of_job AND j.attempt = of_attempt AND j.status::text = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT new_id, 'lost', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;

    SELECT * INTO known FROM cortex.effect e
    WHERE e.lineage_id = owner.line AND e.key = of_key AND (e.digest = of_digest
        OR e.job_id = of_job AND e.status <> 'FAILED' OR e.status IN ('PENDING', 'UNKNOWN'))
    -- Certainly not applied with these arguments, it may be open with others.
    ORDER BY e.digest = of_digest AND e.status <> 'FAILED' DESC, e.status IN ('PENDING', 'UNKNOWN') DESC,
        e.digest = of_digest DESC LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        verdict := CASE
            WHEN known.digest <> of_digest OR by_name AND known.tool <> of_tool THEN 'diverged'
            WHEN known.status = 'COMPLETED' THEN 'done'
            WHEN known.status = 'ABANDONED' THEN 'abandoned'
            WHEN known.status = 'PENDING' AND known.id = new_id THEN 'go'  -- this very statement, repeated
            WHEN sure OR known.is_sure OR known.status = 'FAILED' THEN 'go'
            ELSE 'recheck' END;
        IF verdict IN ('go', 'recheck') THEN
            -- From here on no earlier owner can record its outcome.
            UPDATE cortex.effect e SET job_id = of_job, attempt = of_attempt WHERE e.id = known.id;
            IF NOT owner.has_open THEN
                UPDATE cortex.job_record j SET has_open = true WHERE j.id = of_job;
            END IF;
        END IF;
        IF verdict <> 'go' OR known.id = new_id THEN
            RETURN QUERY SELECT known.id, verdict, known.attempt,
                -- Its result is in its step, unless a person entered one.
                CASE WHEN verdict = 'diverged' THEN known.arguments WHEN verdict = 'done' THEN coalesce(known.result, (
                    SELECT s.output FROM cortex.job_step s WHERE s.job_id = known.job_id AND s.key = known.key)) END,
                CASE WHEN verdict = 'diverged' THEN known.tool ELSE known.why END, NULL, NULL::numeric,
                NULL::numeric, NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;

    IF EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED') THEN
        RETURN QUERY SELECT coalesce(known.id, new_id), 'frozen', of_attempt, NULL::json,
            (SELECT b.forced_reason FROM cortex.breaker b WHERE b.name = 'effects:all'), NULL, NULL::numeric,
            NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;
    IF known.id IS NULL THEN
        IF of_approval IS NOT NULL AND (NOT EXISTS (
            SELECT FROM cortex.approval a
            WHERE a.id = of_approval AND a.lineage_id = owner.line AND a.tool = of_tool AND a.digest = of_digest
              AND a.status = 'APPROVED')
           OR EXISTS (SELECT FROM cortex.effect used WHERE used.approval_id = of_approval)) THEN
            RETURN QUERY SELECT new_id, 'unapproved', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric,
                NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL OR known.is_sure OR known.status = 'FAILED' THEN
        SELECT * INTO stop FROM cortex.take_quota(of_tool, of_arguments, known.called_at);
        IF FOUND THEN
            RETURN QUERY SELECT coalesce(known.id, new_id), stop.verdict, of_attempt, NULL::json, NULL, stop.quota,
                stop.used, stop.limit_amount, stop.amount, stop.wait_s;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL THEN
        IF NOT owner.has_open THEN
            UPDATE cortex.job_record j SET has_open = true WHERE j.id = of_job;
        END IF;
        INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version,
                                   arguments, digest, can_reconcile, approval_id)
        VALUES (new_id, of_job, owner.line, of_attempt, of_key, of_tool, owner.tenant, owner.agent_id,
                owner.agent_version, of_arguments, of_digest, reconciles, of_approval);
        RETURN QUERY SELECT new_id, 'go', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    ELSE
        UPDATE cortex.effect e
        SET status = 'PENDING', is_sure = false, why = NULL, finished_at = NULL, called_at = cortex.now(),
            calls_count = e.calls_count + 1
        WHERE e.id = known.id;
        RETURN QUERY SELECT known.id, 'go', known.attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    END IF;
END $function$;

-- Who has said that an approved call was not applied, so that it may be made again; append-only. It takes as many people as the approval.
CREATE TABLE cortex.effect_vote (
    effect_id uuid NOT NULL,  -- The effect.
    call integer NOT NULL,  -- Which of its calls: calls_count at that time.
    person_id uuid NOT NULL,  -- Who.
    person text NOT NULL,  -- Their name, with the label beside it.
    credential text NOT NULL,  -- What proved it.
    reason text NOT NULL,  -- Their evidence.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    CONSTRAINT effect_vote_pkey PRIMARY KEY (effect_id, call, person_id),
    CONSTRAINT effect_vote_person_check CHECK (length(person) >= 1 AND length(person) <= 200)
);
GRANT SELECT ON cortex.effect_vote TO cortex_runtime;
GRANT SELECT ON cortex.effect_vote TO cortex_reader;

CREATE TRIGGER effect_vote_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.effect_vote FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- Records a person's resolution of an effect: resolved · agreed (more people are needed), or why not: missing · not_unknown · again · shared_credential · own_request · agreed_before. Needs the role operator; that an approved call was not applied also needs the role approver, and as many people as the approval.
CREATE FUNCTION cortex.resolve_effect(of_effect uuid, said text, caller jsonb, why text, returned json)
 RETURNS TABLE(outcome text, is_let_go boolean, votes integer, people integer)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    owner uuid;
    held cortex.effect;
    lives boolean;
    who record;
    approved record;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'operator', false);
    SELECT e.job_id INTO owner FROM cortex.effect e WHERE e.id = of_effect;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', false, 0, 0;
        RETURN;
    END IF;
    PERFORM FROM cortex_worker.task t WHERE t.job_id = owner FOR UPDATE;
    SELECT j.finished_at IS NULL INTO lives FROM cortex.job_record j WHERE j.id = owner FOR UPDATE;
    SELECT * INTO held FROM cortex.effect e WHERE e.id = of_effect FOR UPDATE;
    IF held.job_id <> owner THEN
        RETURN QUERY SELECT 'again', false, 0, 0;
        RETURN;
    ELSIF held.tenant <> who.tenant THEN
        RETURN QUERY SELECT 'missing', false, 0, 0;
        RETURN;
    ELSIF held.status <> 'UNKNOWN' THEN
        RETURN QUERY SELECT 'not_unknown', false, 0, 0;
        RETURN;
    END IF;
    SELECT * INTO approved FROM cortex.approval a WHERE a.id = held.approval_id;
    IF FOUND AND said = 'not-applied' THEN
        -- Then the call is made again: that needs the people whom the call itself needed.
        SELECT * INTO who FROM cortex.person_of(caller, 'approver', true);
        people := approved.people;
        outcome := CASE
            WHEN approved.risk = 'CRITICAL' AND NOT who.is_own THEN 'shared_credential'
            WHEN cortex.is_own_request(approved.risk, held.lineage_id, approved.requested_by, approved.requested_with,
                                       who.person_id, who.name, who.credential) THEN 'own_request' END;
        -- Whose a credential is now counts, not when it voted, as in cortex.agreed.
        IF outcome IS NULL THEN
            INSERT INTO cortex.effect_vote (effect_id, call, person_id, person, credential, reason)
            SELECT of_effect, held.calls_count, who.person_id, who.name, who.credential, why
            WHERE NOT EXISTS (
                SELECT FROM cortex.effect_vote v WHERE v.effect_id = of_effect AND v.call = held.calls_count
                  AND (v.credential = who.credential OR cortex.credential_person(v.credential) = who.person_id))
            ON CONFLICT DO NOTHING;
            outcome := CASE WHEN NOT FOUND THEN 'agreed_before' END;
        END IF;
        votes := cardinality(cortex.effect_agreed_by(of_effect, held.calls_count));
        IF outcome IS NULL AND votes < people THEN
            INSERT INTO cortex.fact (
                type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
            VALUES ('lifecycle', 'effect_agreed', 'effect:' || of_effect, held.tenant, held.job_id, held.attempt,
                    held.key, held.agent_id, held.agent_version,
                    jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'resolution', said,
                                       'tool', held.tool, 'people', people, 'agreed', votes));
        END IF;
        IF outcome IS NOT NULL OR votes < people THEN
            RETURN QUERY SELECT coalesce(outcome, 'agreed'), false, votes, people;
            RETURN;
        END IF;
    END IF;
    UPDATE cortex.effect e
    SET status = CASE WHEN said = 'applied' THEN 'COMPLETED' WHEN said = 'give-up' THEN 'ABANDONED'
                      WHEN lives THEN 'PENDING' ELSE 'FAILED' END,
        is_sure = said = 'not-applied' AND lives,
        finished_at = CASE WHEN said <> 'not-applied' OR NOT lives THEN cortex.now() END,
        result = CASE WHEN said = 'applied' THEN coalesce(returned, 'null') END,
        resolution = said, resolved_by = who.name, resolved_at = cortex.now(),
        resolved_reason = $4  -- not the column `why`
    WHERE e.id = of_effect;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'effect_resolved', 'effect:' || of_effect, held.tenant, held.job_id, held.attempt, held.key,
            held.agent_id, held.agent_version,
            jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'resolution', said,
                               'tool', held.tool));
    RETURN QUERY SELECT 'resolved', lives AND cortex.let_go(held.job_id), votes, people;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.resolve_effect(uuid,text,jsonb,text,json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.resolve_effect(uuid,text,jsonb,text,json) TO cortex_runtime;

CREATE FUNCTION cortex.job_closes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM cortex.job_wait w WHERE w.job_id = NEW.id;
    IF NOT NEW.has_open THEN
        RETURN NULL;
    END IF;
    UPDATE cortex.effect
    SET status = 'UNKNOWN', is_sure = false, why = 'its job was ' || NEW.status || ' while the call was under way'
    WHERE job_id = NEW.id AND status = 'PENDING' AND NOT is_sure;
    UPDATE cortex.effect
    SET status = 'FAILED', is_sure = false, finished_at = cortex.now(), why = 'its job was ' || NEW.status || ' before it was called'
    WHERE job_id = NEW.id AND status = 'PENDING';
    UPDATE cortex.approval
    SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL, reason = 'its job was ' || NEW.status
    WHERE job_id = NEW.id AND status = 'PENDING';
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_closes() FROM PUBLIC;

CREATE TRIGGER job_closes AFTER UPDATE OF status ON cortex.job_record FOR EACH ROW WHEN ((new.has_open OR old.waiting_on IS NOT NULL AND old.worker_job_id IS NULL) AND (new.status = ANY (ARRAY['COMPLETED'::cortex.job_status, 'FAILED'::cortex.job_status, 'CANCELLED'::cortex.job_status])) AND old.status <> new.status) EXECUTE FUNCTION cortex.job_closes();

-- Requests for a person's decision; each is decided once. While a request waits, its job holds nothing.
CREATE TABLE cortex.approval (
    id uuid NOT NULL,  -- UUIDv7 made by the requesting pod.
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of the requests, also when the clock went back.
    job_id uuid NOT NULL,  -- The job that waits, the last one of its lineage.
    lineage_id uuid NOT NULL,  -- First job of that lineage.
    attempt integer NOT NULL,  -- The attempt that requested it.
    key text NOT NULL,  -- The step that waits for it.
    tool text,  -- The tool that will be called; null for a gate in the job's own code.
    tenant text NOT NULL,  -- The job's tenant.
    agent_id uuid,  -- The job's agent.
    agent_version integer,  -- That agent's version.
    requested_by text,  -- Who submitted the job: not allowed to decide a critical request.
    asked json NOT NULL,  -- The arguments that the job requested, canonical JSON.
    asked_digest bytea NOT NULL,  -- SHA-256 of those.
    arguments json NOT NULL,  -- The arguments that will run: as requested, or as a person edited them.
    digest bytea NOT NULL,  -- SHA-256 of those: the only arguments that the decision admits.
    schema jsonb,  -- JSON schema that edited arguments must fit; null: they cannot be edited.
    version integer NOT NULL DEFAULT 1,  -- Raised by each edit: a decision names the version that the person saw.
    risk text NOT NULL,  -- LOW, MED, HIGH or CRITICAL.
    effect text,  -- The outside effect, in words.
    reversible boolean,  -- Whether it can be undone; null: not declared.
    policy text,  -- The policy that requires the approval, in words.
    said text,  -- The model's text when it requested the call; decides nothing.
    people integer NOT NULL,  -- How many different people must agree.
    on_deny text NOT NULL,  -- tell: the job continues and gets the decision · fail: it fails.
    on_expiry text NOT NULL,  -- The same, for an expiry.
    status text NOT NULL DEFAULT 'PENDING'::text,  -- PENDING · APPROVED · DENIED · EXPIRED: not decided in time · CANCELLED: its job ended, or requests something else.
    token_digest bytea,  -- SHA-256 of the token of its link, which was shown once; gone with the decision.
    token_by text,  -- Who made that link.
    spent_digest bytea,  -- SHA-256 of the token of its last link, once decided: for a week the link still shows the outcome.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was requested.
    expires_at timestamptz NOT NULL,  -- From then on it cannot be decided.
    edited_by text,  -- Who edited the arguments last.
    decided_at timestamptz,  -- When it was decided, expired or cancelled.
    decided_by text,  -- Who decided; of several people the last one, see approval_vote.
    decided_person uuid,  -- That person; null without sign-in.
    channel text,  -- cli, api, page, link (without sign-in), tui or mcp.
    address text,  -- Network address of the person who decided, if known.
    client text,  -- That person's program, by its own account.
    reason text,  -- Why it was decided so.
    requested_with text,  -- The credential that submitted the job: it cannot decide a critical request.
    decided_with text,  -- The credential of decided_by; null without sign-in.
    brief text,  -- The call on one line, for messages: never all of its arguments. Null after an edit.
    remind_at timestamptz,  -- When people are reminded next: after half of its time, then after nine tenths; null: no more.
    CONSTRAINT approval_pkey PRIMARY KEY (id),
    CONSTRAINT approval_token_digest_key UNIQUE (token_digest),
    CONSTRAINT approval_address_check CHECK (length(address) <= 200),
    CONSTRAINT approval_brief_check CHECK (length(brief) >= 1 AND length(brief) <= 500),
    CONSTRAINT approval_channel_check CHECK (length(channel) <= 50),
    CONSTRAINT approval_check CHECK (asked_digest = sha256(convert_to(asked::text, 'UTF8'::name))),
    CONSTRAINT approval_check1 CHECK (digest = sha256(convert_to(arguments::text, 'UTF8'::name))),
    CONSTRAINT approval_client_check CHECK (length(client) <= 500),
    CONSTRAINT approval_decided_by_check CHECK (length(decided_by) >= 1 AND length(decided_by) <= 200),
    CONSTRAINT approval_effect_check CHECK (length(effect) <= 1000),
    CONSTRAINT approval_key_check CHECK (length(key) >= 1 AND length(key) <= 500),
    CONSTRAINT approval_on_deny_check CHECK (on_deny = ANY (ARRAY['tell'::text, 'fail'::text])),
    CONSTRAINT approval_on_expiry_check CHECK (on_expiry = ANY (ARRAY['tell'::text, 'fail'::text])),
    CONSTRAINT approval_people_check CHECK (people >= 1 AND people <= 10),
    CONSTRAINT approval_policy_check CHECK (length(policy) <= 1000),
    CONSTRAINT approval_reason_check CHECK (length(reason) <= 1000),
    CONSTRAINT approval_risk_check CHECK (risk = ANY (ARRAY['LOW'::text, 'MED'::text, 'HIGH'::text, 'CRITICAL'::text])),
    CONSTRAINT approval_said_check CHECK (length(said) <= 4000),
    CONSTRAINT approval_status_check CHECK (status = ANY (ARRAY['PENDING'::text, 'APPROVED'::text, 'DENIED'::text, 'EXPIRED'::text, 'CANCELLED'::text])),
    CONSTRAINT approval_token_digest_check CHECK (octet_length(token_digest) = 32),
    CONSTRAINT approval_tool_check CHECK (length(tool) >= 1 AND length(tool) <= 200),
    CONSTRAINT approval_version_check CHECK (version >= 1),
    CONSTRAINT critical_needs_two CHECK (risk <> 'CRITICAL'::text OR people >= 2),
    CONSTRAINT decided_at_unless_pending CHECK ((decided_at IS NULL) = (status = 'PENDING'::text)),
    CONSTRAINT decided_by_people CHECK ((decided_by IS NOT NULL) = (status = ANY (ARRAY['APPROVED'::text, 'DENIED'::text]))),
    CONSTRAINT token_only_while_pending CHECK (token_digest IS NULL OR status = 'PENDING'::text)
) WITH (fillfactor=80, autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX approval_pending ON cortex.approval USING btree (risk, expires_at, id) WHERE status = 'PENDING'::text;
CREATE INDEX approval_status ON cortex.approval USING btree (status, created_at DESC, id DESC);
CREATE INDEX approval_tenant ON cortex.approval USING btree (tenant, status, created_at DESC, id DESC) WHERE tenant <> 'default'::text;
CREATE INDEX approval_remind ON cortex.approval USING btree (remind_at) WHERE status = 'PENDING'::text AND remind_at IS NOT NULL;
CREATE INDEX approval_decided ON cortex.approval USING btree (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX approval_job ON cortex.approval USING btree (job_id);
CREATE INDEX approval_line ON cortex.approval USING btree (lineage_id, key, seq DESC);
GRANT SELECT (id, seq, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, asked, asked_digest, arguments, digest, schema, version, risk, effect, reversible, policy, said, people, on_deny, on_expiry, status, token_by, created_at, expires_at, edited_by, decided_at, decided_by, decided_person, channel, address, client, reason, requested_with, decided_with, brief, remind_at) ON cortex.approval TO cortex_runtime;
GRANT SELECT (id, seq, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, asked, asked_digest, arguments, digest, schema, version, risk, effect, reversible, policy, said, people, on_deny, on_expiry, status, token_by, created_at, expires_at, edited_by, decided_at, decided_by, decided_person, channel, address, client, reason, requested_with, decided_with) ON cortex.approval TO cortex_reader;

-- Who agreed to what; append-only. Only votes for the current arguments count.
CREATE TABLE cortex.approval_vote (
    approval_id uuid NOT NULL,  -- The request.
    person text NOT NULL,  -- Their name, with the label beside it.
    person_id uuid,  -- Who: people are counted, not names or credentials. Null without sign-in.
    digest bytea NOT NULL,  -- SHA-256 of the arguments that were agreed to.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    channel text NOT NULL,  -- cli, api, page, link (without sign-in), tui or mcp.
    address text,  -- Network address.
    client text,  -- Program.
    reason text,  -- Why.
    old json,  -- The arguments before, if this person edited them.
    credential text NOT NULL DEFAULT ''::text,  -- The credential of the vote: os:UID, token:ID or db:LOGIN; empty without sign-in.
    CONSTRAINT approval_vote_pkey PRIMARY KEY (approval_id, digest, credential),
    CONSTRAINT approval_vote_person_check CHECK (length(person) >= 1 AND length(person) <= 200)
);
CREATE INDEX approval_vote_at ON cortex.approval_vote USING btree (at);
GRANT SELECT ON cortex.approval_vote TO cortex_runtime;
GRANT SELECT ON cortex.approval_vote TO cortex_reader;

CREATE TRIGGER approval_vote_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cortex.approval_vote FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

CREATE FUNCTION cortex.approval_is_final()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF (NEW.id, NEW.job_id, NEW.lineage_id, NEW.key, NEW.risk, NEW.people, NEW.asked_digest, NEW.asked::text)
       IS DISTINCT FROM
       (OLD.id, OLD.job_id, OLD.lineage_id, OLD.key, OLD.risk, OLD.people, OLD.asked_digest, OLD.asked::text)
       OR NEW.tool IS DISTINCT FROM OLD.tool THEN
        RAISE EXCEPTION 'what approval % asks for is immutable', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status <> 'PENDING' THEN
        RAISE EXCEPTION 'approval % is % already', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status <> 'PENDING' THEN
        NEW.spent_digest := OLD.token_digest;
    END IF;
    RETURN NEW;
END $function$;

CREATE TRIGGER approval_is_final BEFORE UPDATE ON cortex.approval FOR EACH ROW EXECUTE FUNCTION cortex.approval_is_final();

-- Everybody who is responsible for the jobs of a lineage, by credential and name: who submitted one, applied or triggered its schedule, applied its flow, retried it or edited its payload. They do not agree to its critical calls.
CREATE FUNCTION cortex.involved(of_lineage uuid)
 RETURNS TABLE(credential text, name text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH line AS MATERIALIZED (
        SELECT j.id, j.type, j.payload, j.submitted_with, j.submitted_by FROM cortex.job_record j WHERE j.id = of_lineage
        UNION ALL
        SELECT j.id, j.type, j.payload, j.submitted_with, j.submitted_by FROM cortex.job_record j
        WHERE j.lineage_id = of_lineage
    )
    SELECT l.submitted_with, l.submitted_by FROM line l
    UNION
    SELECT f.data->>'credential', f.data->>'by' FROM line l JOIN cortex.fact f ON f.job_id = l.id
    WHERE f.type = 'lifecycle'
      AND f.subtype IN ('dead_letter_retried', 'decision_retried', 'retried_now', 'schedule_triggered')
    UNION
    SELECT v.applied_with, v.applied_by FROM line l
    JOIN cortex.flow_version v ON v.name = l.payload->>'flow' AND to_jsonb(v.version) = l.payload->'version'
    WHERE l.type = 'run_flow';
END $function$;

-- Requests people's decisions for the steps of an attempt, and cancels earlier requests of these steps. The job's row, which the caller holds, says whose job it is.
CREATE FUNCTION cortex.request_approvals(of_job uuid, in_attempt integer, requests jsonb)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    requested int;
BEGIN
    -- The same step now requests something else: the earlier request will not run and must not be decided.
    UPDATE cortex.approval a
    SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL,
        reason = 'its job asks for something else now'
    FROM jsonb_to_recordset(requests) AS r(key text)
    WHERE a.job_id = of_job AND a.key = r.key AND a.status = 'PENDING';
    INSERT INTO cortex.approval (
        id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, requested_with,
        asked, asked_digest, arguments, digest, schema, risk, effect, reversible, policy, said, people, on_deny, on_expiry,
        expires_at, brief, remind_at)
    SELECT r.id, j.id, coalesce(j.lineage_id, j.id), j.attempt, r.key, r.tool, j.tenant, j.agent_id, j.agent_version,
           j.submitted_by, j.submitted_with, r.arguments::json, r.digest, r.arguments::json, r.digest, r.schema, r.risk,
           r.effect, r.reversible, r.policy, r.said, r.people, r.on_deny, r.on_expiry,
           cortex.now() + r.expires_s * interval '1 second', r.brief, cortex.now() + r.expires_s / 2 * interval '1 second'
    FROM cortex.job_record j CROSS JOIN LATERAL jsonb_to_recordset(requests) AS r(
        id uuid, key text, tool text, arguments text, digest bytea, schema jsonb, risk text, effect text,
        reversible boolean, policy text, said text, people int, on_deny text, on_expiry text, expires_s float8,
        brief text)
    WHERE j.id = of_job AND j.attempt = in_attempt AND j.finished_at IS NULL;
    GET DIAGNOSTICS requested = ROW_COUNT;
    RETURN requested;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.request_approvals(uuid,integer,jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.request_approvals(uuid,integer,jsonb) TO cortex_runtime;

-- The common form of one person's names as they are recorded: ignores labels, case, blanks and variants of letters.
CREATE FUNCTION cortex.same_person(name text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN lower(btrim(regexp_replace(regexp_replace(NORMALIZE(name, NFKC), '\(.*\)'::text, ''::text), '\s+'::text, ' '::text, 'g'::text)));

-- Closes up to this many requests that were not decided in time, with the consequence that each declares. Returns how many; null while another process does this.
CREATE FUNCTION cortex.expire_approvals(most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    due record;
    its_task bigint;
    held cortex.approval;
    expired int := 0;
BEGIN
    -- One process at a time, so that two pods do not wait for each other's jobs.
    IF NOT cortex.take_turn('expire_approvals') THEN
        RETURN NULL;
    END IF;
    FOR due IN
        SELECT a.id, a.job_id FROM (
            SELECT found.* FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
                SELECT id, job_id, expires_at FROM cortex.approval
                WHERE status = 'PENDING' AND risk = level.risk AND expires_at <= cortex.now()
                ORDER BY expires_at, id LIMIT most) found
            ORDER BY found.expires_at LIMIT most) a
        ORDER BY a.job_id, a.id
    LOOP
        -- Rows locked by others are left for the next time: one job must not delay all others. A task that could not be
        -- locked, or that was created meanwhile, is not the one that the job names.
        SELECT t.id INTO its_task FROM cortex_worker.task t WHERE t.job_id = due.job_id FOR UPDATE SKIP LOCKED;
        PERFORM FROM cortex.job_record j
        WHERE j.id = due.job_id AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        UPDATE cortex.approval a SET status = 'EXPIRED', decided_at = cortex.now(), token_digest = NULL
        WHERE a.id = due.id AND a.job_id = due.job_id AND a.status = 'PENDING'
        RETURNING a.* INTO held;
        CONTINUE WHEN NOT FOUND;
        expired := expired + 1;
        INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
        VALUES ('lifecycle', 'approval_expired', 'approval:' || held.id, held.tenant, held.job_id, held.attempt,
                held.key, held.agent_id, held.agent_version,
                jsonb_build_object('risk', held.risk, 'tool', held.tool, 'expires_at', held.expires_at));
        IF held.on_expiry = 'fail' THEN
            UPDATE cortex.job_record j
            SET status = 'FAILED', waiting_on = NULL, error_code = 'approval_expired',
                error_class = 'PERMANENT', error_message = format(
                    'nobody decided on %s until %s; nothing was executed', coalesce(held.tool, held.key),
                    to_char(held.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END LOOP;
    RETURN expired;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.expire_approvals(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.expire_approvals(integer) TO cortex_runtime;

-- Whether a link permits deciding this request.
CREATE FUNCTION cortex.has_link(of_approval uuid)
 RETURNS boolean
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT a.token_digest IS NOT NULL FROM cortex.approval a WHERE a.id = of_approval $function$;
REVOKE EXECUTE ON FUNCTION cortex.has_link(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.has_link(uuid) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.has_link(uuid) TO cortex_reader;

-- Whether a digest is that of the token of a request's link; of a decided request, for a week.
CREATE FUNCTION cortex.is_link(of_approval uuid, of_digest bytea)
 RETURNS boolean
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (
    SELECT FROM cortex.approval a WHERE a.id = of_approval AND of_digest = CASE
        WHEN a.status = 'PENDING' THEN a.token_digest
        WHEN a.decided_at > cortex.now() - interval '7 days' THEN a.spent_digest END) $function$;
REVOKE EXECUTE ON FUNCTION cortex.is_link(uuid,bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.is_link(uuid,bytea) TO cortex_runtime;

-- People and programs that act. A decision counts people, whatever their credentials; none is ever deleted.
CREATE TABLE cortex.person (
    id uuid NOT NULL DEFAULT cortex.uuid7(),  -- Its name in votes.
    name text NOT NULL,  -- Recorded with everything that the person does.
    skeleton text NOT NULL,  -- The name as an eye reads it: two names that can be confused have the same one.
    created_by text NOT NULL,  -- Who made it.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was made.
    disabled_at timestamptz,  -- From then on none of its credentials is valid.
    disabled_by text,  -- Who disabled it.
    CONSTRAINT person_pkey PRIMARY KEY (id),
    CONSTRAINT person_name_key UNIQUE (name),
    CONSTRAINT person_skeleton_key UNIQUE (skeleton),
    CONSTRAINT disabled_by_only_when_disabled CHECK ((disabled_by IS NULL) = (disabled_at IS NULL)),
    CONSTRAINT person_created_by_check CHECK (length(created_by) >= 1 AND length(created_by) <= 200),
    CONSTRAINT person_disabled_by_check CHECK (length(disabled_by) >= 1 AND length(disabled_by) <= 200),
    CONSTRAINT person_name_check CHECK (length(name) >= 1 AND length(name) <= 100 AND name !~ '[()]'::text),
    CONSTRAINT person_skeleton_check CHECK (length(skeleton) >= 1)
);
GRANT SELECT ON cortex.person TO cortex_runtime;
GRANT SELECT ON cortex.person TO cortex_reader;

-- Operating-system users and database logins: each belongs to one person. Tokens name their person themselves.
CREATE TABLE cortex.person_credential (
    credential text COLLATE "C" NOT NULL,  -- os:UID, the same user on every host, or db:LOGIN.
    person_id uuid NOT NULL,  -- The person.
    created_by text NOT NULL,  -- Who mapped it; of an operating-system user that acted first, itself.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was mapped.
    CONSTRAINT person_credential_pkey PRIMARY KEY (credential),
    CONSTRAINT person_credential_person_id_fkey FOREIGN KEY (person_id) REFERENCES cortex.person(id),
    CONSTRAINT person_credential_created_by_check CHECK (length(created_by) >= 1 AND length(created_by) <= 200),
    CONSTRAINT person_credential_credential_check CHECK (credential ~ '^(os:[0-9]{1,10}|db:.{1,63})$'::text)
);
CREATE INDEX person_credential_person ON cortex.person_credential USING btree (person_id);
GRANT SELECT ON cortex.person_credential TO cortex_runtime;

-- Access to the HTTP API. The token itself is not stored: only its digest.
CREATE TABLE cortex.api_token (
    id uuid NOT NULL,  -- Its name in lists and facts.
    name text NOT NULL,  -- Name of its person, recorded with everything done with it. A person may have several tokens.
    person_id uuid NOT NULL,  -- Whose it is.
    digest bytea NOT NULL,  -- SHA-256 of the token.
    roles text[] NOT NULL,  -- viewer: reads · submitter: submits jobs and reads those it submitted · metrics: reads /metrics, and no payload · approver: reads, decides approvals · operator: reads, acts on jobs · admin: everything.
    tenant text,  -- The only tenant whose records it reads and changes; null: all.
    created_by text NOT NULL,  -- Who made it.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was made.
    expires_at timestamptz,  -- From then on it is invalid; null: never.
    revoked_at timestamptz,  -- When it was revoked: from then on it is invalid.
    revoked_by text,  -- Who revoked it.
    last_used_at timestamptz,  -- When it was last used, to the minute.
    CONSTRAINT api_token_pkey PRIMARY KEY (id),
    CONSTRAINT api_token_digest_key UNIQUE (digest),
    CONSTRAINT api_token_person_id_fkey FOREIGN KEY (person_id) REFERENCES cortex.person(id),
    CONSTRAINT api_token_created_by_check CHECK (length(created_by) >= 1 AND length(created_by) <= 200),
    CONSTRAINT api_token_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT api_token_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
    CONSTRAINT api_token_revoked_by_check CHECK (length(revoked_by) >= 1 AND length(revoked_by) <= 200),
    CONSTRAINT api_token_roles_check CHECK (cardinality(roles) >= 1 AND cardinality(roles) <= 6 AND roles <@ ARRAY['viewer'::text, 'submitter'::text, 'metrics'::text, 'approver'::text, 'operator'::text, 'admin'::text]),
    CONSTRAINT api_token_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100),
    CONSTRAINT revoked_by_only_when_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);
CREATE INDEX api_token_name ON cortex.api_token USING btree (name, created_at);
CREATE INDEX api_token_newest ON cortex.api_token USING btree (created_at, id);
CREATE INDEX api_token_person ON cortex.api_token USING btree (person_id);
GRANT SELECT (id, name, person_id, roles, tenant, created_by, created_at, expires_at, revoked_at, revoked_by, last_used_at) ON cortex.api_token TO cortex_runtime;

-- Sign-ins on a page with a token; a session has the token's rights, and does not outlive it.
CREATE TABLE cortex.api_session (
    digest bytea NOT NULL,  -- SHA-256 of the cookie.
    token_id uuid NOT NULL,  -- The token that was used to sign in: when it is revoked or expires, the session ends.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When they signed in.
    expires_at timestamptz NOT NULL,  -- From then on the person must sign in again.
    CONSTRAINT api_session_pkey PRIMARY KEY (digest),
    CONSTRAINT api_session_token_id_fkey FOREIGN KEY (token_id) REFERENCES cortex.api_token(id),
    CONSTRAINT api_session_digest_check CHECK (octet_length(digest) = 32)
);
CREATE INDEX api_session_expiry ON cortex.api_session USING btree (expires_at);
CREATE INDEX api_session_token ON cortex.api_session USING btree (token_id);

-- Keys that callers gave to their writes, each written in the transaction that it guards; kept for 24 hours.
CREATE TABLE cortex.idempotency_key (
    scope text COLLATE "C" NOT NULL DEFAULT ''::text,  -- Whose keys it is one of: tenant:NAME of a token of one tenant, db:LOGIN:TENANT of a login; empty: of all others.
    key text COLLATE "C" NOT NULL,  -- Chosen by the caller: 1 to 255 visible ASCII characters.
    digest bytea NOT NULL,  -- SHA-256 of the operation and the canonical request: the same key must come with the same request.
    operation text NOT NULL,  -- The requested operation, such as jobs.submit.
    status text NOT NULL DEFAULT 'pending'::text,  -- pending: its transaction is in progress, invisible to others · completed: the response is stored · failed: the error is stored.
    response jsonb,  -- The response, returned again for a repeated request.
    error jsonb,  -- The permanent error that was returned: code, message and hint.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the key was first used.
    expires_at timestamptz NOT NULL,  -- From then on the key counts as free, and is deleted.
    CONSTRAINT idempotency_key_pkey PRIMARY KEY (scope, key),
    CONSTRAINT error_only_when_failed CHECK ((error IS NOT NULL) = (status = 'failed'::text)),
    CONSTRAINT idempotency_key_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT idempotency_key_error_check CHECK (error ?& ARRAY['code'::text, 'message'::text, 'hint'::text]),
    CONSTRAINT idempotency_key_key_check CHECK (key ~ '^[!-~]{1,255}$'::text),
    CONSTRAINT idempotency_key_operation_check CHECK (length(operation) >= 1 AND length(operation) <= 100),
    CONSTRAINT idempotency_key_response_check CHECK (octet_length(response::text) <= 2097152),
    CONSTRAINT idempotency_key_scope_check CHECK (length(scope) <= 300),
    CONSTRAINT idempotency_key_status_check CHECK (status = ANY (ARRAY['pending'::text, 'completed'::text, 'failed'::text])),
    CONSTRAINT response_only_when_completed CHECK ((response IS NOT NULL) = (status = 'completed'::text))
);
CREATE INDEX idempotency_key_expiry ON cortex.idempotency_key USING btree (expires_at);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.idempotency_key TO cortex_runtime;

-- Who watches which job right now: only watched output is sent live. Transient, lost in a crash.
CREATE UNLOGGED TABLE cortex.watch (
    job_id uuid NOT NULL,  -- The job. No foreign key: a watch is short-lived.
    watcher uuid NOT NULL,  -- A pod on behalf of its clients, or a terminal: random, new with each start.
    pod_id uuid,  -- The pod that ran the job when the watch was last renewed; it has to send.
    asked_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When its newest follower joined: earlier output is sent again, since that follower lacks it.
    until timestamptz NOT NULL,  -- When it expires: its watcher renews it while it watches.
    CONSTRAINT watch_pkey PRIMARY KEY (job_id, watcher)
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000);
CREATE INDEX watch_pod ON cortex.watch USING btree (pod_id) WHERE pod_id IS NOT NULL;
CREATE INDEX watch_until ON cortex.watch USING btree (until);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.watch TO cortex_runtime;

-- Output of models in the last seconds, for those who watch. Transient, lost in a crash.
CREATE UNLOGGED TABLE cortex.said (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of arrival; with two pods, the later output may arrive first.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was sent.
    payload text NOT NULL,  -- Pieces of answers, as JSON.
    CONSTRAINT said_pkey PRIMARY KEY (id),
    CONSTRAINT said_payload_check CHECK (octet_length(payload) < 8000)
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000);
CREATE INDEX said_at ON cortex.said USING btree (at);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.said TO cortex_runtime;
GRANT SELECT ON cortex.said TO cortex_reader;

-- What blocks a job: an approval, an unknown effect, a quota or the freeze; null for anything else.
CREATE FUNCTION cortex.waits_for(waiting_on text)
 RETURNS jsonb
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF waiting_on = 'effects:all' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'freeze', 'by', b.forced_by, 'reason', b.forced_reason,
                                      'frozen_at', b.forced_at)
            FROM cortex.breaker b WHERE b.name = waiting_on AND b.state <> 'CLOSED');
    ELSIF waiting_on LIKE 'quota:%' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'quota', 'tool', q.tool, 'argument', q.argument, 'unit', q.unit,
                                      'period', q.period, 'limit', q.limit_amount::text,
                                      'used', coalesce(u.used, 0)::text, 'resets_at', w.resets_at)
            FROM cortex.quota q
            CROSS JOIN LATERAL (
                SELECT b.began_at, b.began_at + ('1 ' || q.period)::interval AS resets_at
                FROM (SELECT cortex.quota_began(q.period, cortex.now()) AS began_at) b) w
            LEFT JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = w.began_at
            WHERE q.name = substr(waiting_on, length('quota:') + 1));
    ELSIF waiting_on ~ '^approval:[0-9a-f-]{36}$' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'approval', 'id', a.id, 'what', coalesce(a.tool, a.key), 'risk', a.risk,
                                      'people', a.people, 'agreed', cortex.agreed(a.id, a.digest),
                                      'status', a.status, 'requested_by', a.requested_by, 'expires_at', a.expires_at)
            FROM cortex.approval a WHERE a.id = substr(waiting_on, length('approval:') + 1)::uuid);
    ELSIF waiting_on ~ '^effect:[0-9a-f-]{36}$' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'effect', 'id', e.id, 'tool', e.tool, 'status', e.status, 'why', e.why)
            FROM cortex.effect e WHERE e.id = substr(waiting_on, length('effect:') + 1)::uuid);
    END IF;
    RETURN NULL;
END $function$;

-- The head of every screen, in one row; each count ends at the given limit. effects: of unknown outcome; budgets: jobs that wait for a spent budget or quota; persons: jobs that a person must resume; lost: pods whose session ended; stranded: jobs that wait for code that no living pod has; is_unsafe: a pod lets the programs of agents run unconfined; pauses: how many there are; is_paused: everything is.
CREATE FUNCTION cortex.head(counted integer)
 RETURNS TABLE(now timestamp with time zone, approvals integer, first_expiry timestamp with time zone, breakers integer, is_frozen boolean, dead integer, ready integer, living integer, jobs_about bigint, effects integer, budgets integer, persons integer, lost integer, stranded integer, is_unsafe boolean, pauses integer, is_paused boolean)
 LANGUAGE sql
 STABLE
AS $function$
SELECT clock.now, waiting.count, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0)
              AND cortex.breaker_state(b.state, b.open_until) = 'OPEN' AND b.name <> 'effects:all' LIMIT counted) open)::int,
       EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED'),
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d
            WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED') LIMIT counted) dead)::int,
       pods.ready, pods.living,
       (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'cortex.job_record'::regclass),
       (SELECT count(*) FROM (SELECT FROM cortex.effect e WHERE e.status = 'UNKNOWN' LIMIT counted) unknown)::int,
       (SELECT count(*) FROM (
            (SELECT FROM cortex.job_record j
             WHERE j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
               AND j.waiting_on LIKE 'budget:%' LIMIT counted)
            UNION ALL
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'quota:%' LIMIT counted)
            LIMIT counted) spent)::int,
       (SELECT count(*) FROM (
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'person:%'
             LIMIT counted)
            UNION ALL
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'trust:%' LIMIT counted)
            LIMIT counted) needed)::int,
       pods.lost, (SELECT least(coalesce(sum(s.jobs), 0), counted)::int FROM cortex_worker.stranded s), pods.is_unsafe,
       (SELECT count(*) FROM (SELECT FROM cortex_worker.pause LIMIT counted) p)::int,
       EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind = 'all')
FROM (SELECT cortex.now() AS now) clock,
LATERAL (
    SELECT sum(found.count)::int AS count, min(found.first_expiry) AS first_expiry
    FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(a.expires_at) AS first_expiry FROM (
            SELECT p.expires_at FROM cortex.approval p
            WHERE p.status = 'PENDING' AND p.risk = level.risk AND p.expires_at > clock.now
            ORDER BY p.expires_at, p.id LIMIT counted) a) found) waiting,
LATERAL (
    SELECT count(DISTINCT p.shown_id) FILTER (
               WHERE p.state = 'READY' AND NOT p.is_silent AND NOT p.is_lost)::int AS ready,
           count(DISTINCT p.shown_id)::int AS living,
           count(DISTINCT p.shown_id) FILTER (WHERE p.is_lost)::int AS lost,
           coalesce(bool_or(p.confinement = 'unsafe' AND NOT p.is_lost), false) AS is_unsafe
    FROM (SELECT o.shown_id, o.state, o.confinement, o.id IN (SELECT cortex.lost_pods()) AS is_lost,
                 o.heartbeat_at < clock.now - o.silent_after_s * interval '1 second' AS is_silent
          FROM cortex.pod o WHERE o.state IN ('READY', 'DRAINING') LIMIT counted) p) pods $function$;
REVOKE EXECUTE ON FUNCTION cortex.head(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.head(integer) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.head(integer) TO cortex_reader;

-- Jobs that are submitted by the clock.
CREATE TABLE cortex.schedule (
    name text NOT NULL,  -- Its name.
    cron text NOT NULL,  -- Five fields, by the rules of Debian's cron; pods evaluate it.
    zone text NOT NULL,  -- The time zone of the expression.
    type text NOT NULL,  -- Type of the jobs.
    arguments jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Their payload.
    agent text,  -- The name of their agent, of which they get the newest version; or null.
    tenant text NOT NULL DEFAULT 'default'::text,  -- Their tenant.
    backfill_s integer NOT NULL DEFAULT 0,  -- How late an instant may be and still fire, after an outage; 0: a minute of grace, which applies to all.
    overlap text NOT NULL DEFAULT 'skip'::text,  -- When an instant comes before an earlier job has ended: skip it, queue it, or cancel the earlier job.
    jitter_s integer NOT NULL DEFAULT 0,  -- The longest delay after an instant; the delay follows from the name and the instant.
    instant_as text,  -- The argument that gets the instant; or null.
    origin text NOT NULL,  -- Declared by the migrations, by code of a pod, or by a file.
    next_at timestamptz,  -- The first instant that nothing was done about. It only moves forward, whatever the clock does. Null: none is left.
    due_at timestamptz,  -- When to look at that instant: with its jitter, or later after a problem.
    problem text,  -- Why the last try to fire it failed; or null.
    missed_count bigint NOT NULL DEFAULT 0,  -- How many instants were missed: older than the backfill period.
    missed_at timestamptz,  -- The last missed instant.
    missed_seen_at timestamptz,  -- When that was noticed.
    made_up_until timestamptz,  -- What was due up to here belongs to the last outage, and is made up for whatever the overlap says.
    skip_from timestamptz,  -- Instants due after this and up to the next column fell into a pause, and earlier ones are still to be dealt with.
    skip_until timestamptz,  -- When that pause ended.
    paused_at timestamptz,  -- When it was paused; or null. What falls into a pause never fires, and queued instants wait for its end.
    paused_by text,  -- Who paused it.
    pause_reason text,  -- Why.
    changed_by text NOT NULL,  -- Who declared it last, or the name of a pod.
    changed_with text,  -- The credential of whoever applied it last, which its jobs are submitted with; null: declared by code, or built in.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    reason text NOT NULL DEFAULT ''::text,  -- Why; may be empty.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first declared.
    CONSTRAINT schedule_pkey PRIMARY KEY (name),
    CONSTRAINT next_is_whole CHECK ((next_at IS NULL) = (due_at IS NULL)),
    CONSTRAINT pause_is_whole CHECK ((paused_by IS NULL) = (paused_at IS NULL) AND (pause_reason IS NULL) = (paused_at IS NULL)),
    CONSTRAINT schedule_arguments_check CHECK (jsonb_typeof(arguments) = 'object'::text),
    CONSTRAINT schedule_backfill_s_check CHECK (backfill_s >= 0 AND backfill_s <= 31622400),
    CONSTRAINT schedule_changed_by_check CHECK (length(changed_by) >= 1 AND length(changed_by) <= 200),
    CONSTRAINT schedule_cron_check CHECK (length(cron) >= 9 AND length(cron) <= 200),
    CONSTRAINT schedule_instant_as_check CHECK (length(instant_as) >= 1 AND length(instant_as) <= 100),
    CONSTRAINT schedule_jitter_s_check CHECK (jitter_s >= 0 AND jitter_s <= 3600),
    CONSTRAINT schedule_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text),
    CONSTRAINT schedule_origin_check CHECK (origin = ANY (ARRAY['built_in'::text, 'code'::text, 'file'::text])),
    CONSTRAINT schedule_overlap_check CHECK (overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'cancel_previous'::text])),
    CONSTRAINT schedule_pause_reason_check CHECK (length(pause_reason) <= 500),
    CONSTRAINT schedule_paused_by_check CHECK (length(paused_by) >= 1 AND length(paused_by) <= 200),
    CONSTRAINT schedule_problem_check CHECK (length(problem) <= 500),
    CONSTRAINT schedule_reason_check CHECK (length(reason) <= 500),
    CONSTRAINT schedule_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100),
    CONSTRAINT schedule_type_check CHECK (type ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text),
    CONSTRAINT schedule_zone_check CHECK (length(zone) >= 1 AND length(zone) <= 100),
    CONSTRAINT skip_is_whole CHECK ((skip_from IS NULL) = (skip_until IS NULL))
);
CREATE INDEX schedule_due ON cortex.schedule USING btree (due_at) WHERE paused_at IS NULL;
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.schedule TO cortex_runtime;
GRANT SELECT ON cortex.schedule TO cortex_reader;

-- What became of each instant of a schedule. The key is the fence: an instant is dealt with once, by whichever pod.
CREATE TABLE cortex.schedule_instant (
    schedule text NOT NULL,  -- The schedule.
    instant timestamptz NOT NULL,  -- When it should fire, without jitter.
    outcome text NOT NULL,  -- SUBMITTED; QUEUED: waits for an earlier job; SKIPPED: an earlier job had not ended; MISSED: with those after it, too late or in a pause; FAILED: could not be submitted.
    job_id uuid,  -- Its job, inserted in the same transaction. No foreign key: retention may delete the job.
    is_manual boolean NOT NULL DEFAULT false,  -- A person triggered it; it is no instant of the expression.
    is_made_up boolean NOT NULL DEFAULT false,  -- It was due in an outage, or came while such instants were made up for: it runs after the one before, whatever the overlap says.
    behind_count integer,  -- Of one that came meanwhile: how many earlier ones were open then. The next one follows only if there are fewer.
    error text,  -- Why it could not be submitted.
    reason text,  -- Why it was skipped, missed or made up for; null: it came on time.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When this was decided.
    ended_at timestamptz,  -- When its job ended, as the schedules' runner saw it; null: it has not, or nobody looked yet.
    CONSTRAINT schedule_instant_pkey PRIMARY KEY (schedule, instant),
    CONSTRAINT schedule_instant_schedule_fkey FOREIGN KEY (schedule) REFERENCES cortex.schedule(name) ON DELETE CASCADE,
    CONSTRAINT behind_when_made_up CHECK (behind_count IS NULL OR is_made_up),
    CONSTRAINT ended_when_submitted CHECK (ended_at IS NULL OR outcome = 'SUBMITTED'::text),
    CONSTRAINT error_when_failed CHECK ((error IS NOT NULL) = (outcome = 'FAILED'::text)),
    CONSTRAINT job_when_submitted CHECK ((job_id IS NOT NULL) = (outcome = 'SUBMITTED'::text)),
    CONSTRAINT never_left_out_silently CHECK (reason IS NOT NULL OR (outcome <> ALL (ARRAY['SKIPPED'::text, 'MISSED'::text]))),
    CONSTRAINT schedule_instant_error_check CHECK (length(error) <= 500),
    CONSTRAINT schedule_instant_outcome_check CHECK (outcome = ANY (ARRAY['SUBMITTED'::text, 'QUEUED'::text, 'SKIPPED'::text, 'MISSED'::text, 'FAILED'::text])),
    CONSTRAINT schedule_instant_reason_check CHECK (length(reason) <= 1000)
);
CREATE INDEX schedule_instant_job ON cortex.schedule_instant USING btree (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX schedule_instant_open ON cortex.schedule_instant USING btree (schedule) WHERE outcome = 'SUBMITTED'::text AND ended_at IS NULL;
CREATE INDEX schedule_instant_queued ON cortex.schedule_instant USING btree (schedule, instant) WHERE outcome = 'QUEUED'::text;
CREATE INDEX schedule_instant_at ON cortex.schedule_instant USING btree (at);
GRANT INSERT, SELECT, UPDATE ON cortex.schedule_instant TO cortex_runtime;
GRANT SELECT ON cortex.schedule_instant TO cortex_reader;

-- Which pods run code that declares a schedule.
CREATE TABLE cortex.schedule_pod (
    schedule text NOT NULL,  -- The schedule.
    pod_id uuid NOT NULL,  -- The pod, living or ended.
    CONSTRAINT schedule_pod_pkey PRIMARY KEY (schedule, pod_id),
    CONSTRAINT schedule_pod_pod_id_fkey FOREIGN KEY (pod_id) REFERENCES cortex.pod(id) ON DELETE CASCADE,
    CONSTRAINT schedule_pod_schedule_fkey FOREIGN KEY (schedule) REFERENCES cortex.schedule(name) ON DELETE CASCADE
);
CREATE INDEX schedule_pod_pod ON cortex.schedule_pod USING btree (pod_id);
GRANT DELETE, INSERT, SELECT ON cortex.schedule_pod TO cortex_runtime;
GRANT SELECT ON cortex.schedule_pod TO cortex_reader;

-- An instant for sentences that programs may read.
CREATE FUNCTION cortex.utc_text(at timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') $function$;

-- Submits the job of one instant, in the caller's transaction; or says why not.
CREATE FUNCTION cortex.submit_instant(held cortex.schedule, of_instant timestamp with time zone, OUT job_id uuid, OUT error text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM set_config('cortex.actor', 'schedule:' || held.name, true);
    -- Who applied the schedule is responsible for its jobs: the same person cannot agree to their critical calls.
    PERFORM set_config('cortex.credential', coalesce(held.changed_with, ''), true);
    job_id := cortex.submit_job(
        type => held.type, agent => held.agent, tenant => held.tenant,
        payload => held.arguments || CASE WHEN held.instant_as IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(
            held.instant_as, to_char(of_instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')) END);
EXCEPTION
    WHEN no_data_found OR check_violation THEN
        job_id := NULL;
        error := left(SQLERRM, 500);
END $function$;

-- The instants of a schedule whose jobs are open, and the last queued one; of those made up for alone, or of all.
CREATE FUNCTION cortex.open_instants(of_schedule text, is_made_up boolean)
 RETURNS SETOF cortex.schedule_instant
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT * FROM cortex.schedule_instant i
WHERE i.schedule = of_schedule AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL AND (NOT $2 OR i.is_made_up)
UNION ALL
(SELECT * FROM cortex.schedule_instant i
 WHERE i.schedule = of_schedule AND i.outcome = 'QUEUED' AND (NOT $2 OR i.is_made_up)
 ORDER BY i.instant DESC LIMIT 1) $function$;

-- Decides what becomes of one instant, and submits its job, in the caller's transaction. Null: it was dealt with before.
CREATE FUNCTION cortex.fire_instant(held cortex.schedule, of_instant timestamp with time zone, was_due_in_outage boolean)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    new_job uuid;
    problem text;
    why text := CASE WHEN was_due_in_outage THEN 'made up for: no pod ran when it was due' END;
    is_made_up boolean := was_due_in_outage;
    behind int;
    earlier cortex.schedule_instant;
    made_up cortex.schedule_instant;
    outcome text := 'SUBMITTED';
BEGIN
    IF EXISTS (SELECT FROM cortex.schedule_instant i WHERE i.schedule = held.name AND i.instant = of_instant) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO earlier FROM cortex.open_instants(held.name, false) ORDER BY instant DESC LIMIT 1;
    IF earlier.instant IS NOT NULL AND held.overlap = 'queue' THEN
        outcome := 'QUEUED';
    ELSIF earlier.instant IS NOT NULL THEN
        SELECT * INTO made_up FROM cortex.open_instants(held.name, true) ORDER BY instant DESC LIMIT 1;
        IF NOT is_made_up AND made_up.instant IS NOT NULL THEN
            -- It runs after those, so nothing that an outage delays is lost; but only while they become fewer: jobs
            -- that last longer than their interval would pile up for ever.
            behind := (SELECT count(*) FROM cortex.schedule_instant i
                       WHERE i.schedule = held.name AND i.outcome = 'QUEUED')
                    + (SELECT count(*) FROM cortex.schedule_instant i
                       WHERE i.schedule = held.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL);
            is_made_up := made_up.behind_count IS NULL OR behind < made_up.behind_count;
            behind := CASE WHEN is_made_up THEN behind END;
            why := CASE WHEN is_made_up THEN 'made up for: it came while earlier instants were' END;
        END IF;
        outcome := CASE
            -- What is made up for runs one after another. The first one finds a job from before the outage.
            WHEN is_made_up AND (held.overlap = 'skip' OR made_up.instant IS NOT NULL) THEN 'QUEUED'
            WHEN held.overlap = 'skip' THEN 'SKIPPED'
            ELSE 'SUBMITTED' END;
    END IF;
    IF outcome = 'SKIPPED' THEN
        why := 'the job of the instant ' || cortex.utc_text(earlier.instant) || ' had not ended';
    ELSIF outcome = 'SUBMITTED' THEN
        UPDATE cortex.schedule_instant i
        SET outcome = 'SKIPPED', at = cortex.now(),
            reason = 'the instant ' || cortex.utc_text(of_instant) || ' came before this one could run'
        WHERE i.schedule = held.name AND i.outcome = 'QUEUED' AND i.instant < of_instant;
        SELECT s.job_id, s.error INTO new_job, problem FROM cortex.submit_instant(held, of_instant) s;
        outcome := CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END;
    END IF;
    -- No ON CONFLICT: of two that fire the same instant at once, the second fails, and its job with it.
    INSERT INTO cortex.schedule_instant (schedule, instant, outcome, job_id, error, is_made_up, behind_count, reason)
    VALUES (held.name, of_instant, outcome, new_job, problem, is_made_up, behind, why);
    RETURN outcome;
END $function$;

-- Submits the oldest queued instant of a schedule once no earlier job is open. Null: nothing to do.
CREATE FUNCTION cortex.release_queued(held cortex.schedule)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    oldest timestamptz;
    new_job uuid;
    problem text;
BEGIN
    SELECT i.instant INTO oldest FROM cortex.schedule_instant i
    WHERE i.schedule = held.name AND i.outcome = 'QUEUED' ORDER BY i.instant LIMIT 1;
    IF NOT FOUND OR held.paused_at IS NOT NULL OR EXISTS (
        SELECT FROM cortex.schedule_instant i
        WHERE i.schedule = held.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL) THEN
        RETURN NULL;
    END IF;
    SELECT s.job_id, s.error INTO new_job, problem FROM cortex.submit_instant(held, oldest) s;
    UPDATE cortex.schedule_instant i
    SET outcome = CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END, job_id = new_job, error = problem
    WHERE i.schedule = held.name AND i.instant = oldest;
    RETURN CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END;
END $function$;

-- Submits a job of a schedule now, whatever its overlap says; or says why not.
CREATE FUNCTION cortex.trigger_schedule(held cortex.schedule, OUT job_id uuid, OUT error text, OUT instant timestamp with time zone)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- Never at a whole second, as the instants of an expression are.
    instant := cortex.now() + CASE WHEN extract(microseconds FROM cortex.now())::bigint % 1000000 = 0
                                   THEN interval '1 microsecond' ELSE interval '0' END;
    SELECT s.job_id, s.error INTO job_id, error FROM cortex.submit_instant(held, instant) s;
    IF error IS NULL THEN
        INSERT INTO cortex.schedule_instant (schedule, instant, outcome, job_id, is_manual)
        VALUES (held.name, instant, 'SUBMITTED', job_id, true);
    END IF;
END $function$;

-- Deletes instants that were dealt with this long ago, at least a day; returns how many.
CREATE FUNCTION cortex.forget_instants(kept_s double precision, most integer)
 RETURNS integer
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH old AS MATERIALIZED (
    SELECT i.schedule, i.instant FROM cortex.schedule_instant i JOIN cortex.schedule s ON s.name = i.schedule
    WHERE i.at < cortex.now() - greatest(kept_s, 86400) * interval '1 second' AND i.outcome <> 'QUEUED'
      AND (i.ended_at IS NOT NULL OR i.outcome <> 'SUBMITTED')
      -- No tick can come to it again: the schedule has gone past it.
      AND (s.next_at IS NULL OR i.instant < s.next_at)
    ORDER BY i.at LIMIT most FOR UPDATE OF i SKIP LOCKED
), gone AS (
    DELETE FROM cortex.schedule_instant i USING old WHERE i.schedule = old.schedule AND i.instant = old.instant
    RETURNING i.instant
)
SELECT count(*)::int FROM gone $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_instants(double precision,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_instants(double precision,integer) TO cortex_runtime;

-- Whether a pod lives, or was that of a `cortex tick` a few minutes ago: a cluster may do without other pods.
CREATE FUNCTION cortex.is_at_work(p cortex.pod)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE WHEN p.state IN ('READY', 'DRAINING') THEN
        p.heartbeat_at > cortex.now() - p.silent_after_s * interval '1 second'
        -- The last pod of a cluster has nobody who marks it dead: its session says so at once.
        AND (p.liveness <> 'lock' OR p.id IN (SELECT cortex.connected_pods()))
    -- The pod of a tick, which the next tick follows.
    ELSE p.state = 'STOPPED' AND p.name LIKE 'tick %' AND p.ended_at > cortex.now() - interval '5 minutes' END $function$;

-- Whether a pod that is at work takes jobs of this type with the tools of this agent; one that drains takes none.
CREATE FUNCTION cortex.is_served(of_type text, of_agent text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (
    SELECT FROM cortex.pod p
    WHERE (p.state = 'READY' AND p.drain_requested_at IS NULL OR p.ended_at > cortex.now() - interval '5 minutes')
      AND of_type = ANY (p.job_types)
      AND (of_agent IS NULL OR p.tools @> ARRAY(
          SELECT jsonb_array_elements_text(v.spec->'tools') FROM cortex.agent a
          JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version WHERE a.name = of_agent))
      AND cortex.is_at_work(p)) $function$;

-- Whether the code of a pod that is at work declares a schedule.
CREATE FUNCTION cortex.is_declared(of_schedule text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (
    SELECT FROM cortex.schedule_pod d JOIN cortex.pod p ON p.id = d.pod_id
    WHERE d.schedule = of_schedule AND cortex.is_at_work(p)) $function$;

-- Whether a schedule missed an instant, as was noticed within the last hour. Not of built-in ones, whose work the loops of pods do, too.
CREATE FUNCTION cortex.has_missed(s cortex.schedule)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
SELECT s.origin <> 'built_in' AND s.paused_at IS NULL
   AND coalesce(s.missed_seen_at > cortex.now() - interval '1 hour', false) $function$;

-- Background work: the last run of each runner in any process, and totals. Written every few seconds by each process.
CREATE TABLE cortex.runner (
    name text NOT NULL,  -- Name of the runner.
    interval_s double precision NOT NULL,  -- The longest time between two of its runs, as it is run now.
    first_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was recorded first.
    started_at timestamptz,  -- When its last run started; a skipped run is none.
    duration_s double precision,  -- How long that run took.
    items bigint,  -- How many items that run handled.
    error text,  -- Why that run failed; null: it succeeded.
    holder text,  -- The process that ran it, for people.
    succeeded_at timestamptz,  -- When a run last succeeded.
    late_at timestamptz,  -- Since when it is recorded as late: it had not succeeded for five intervals.
    run_count bigint NOT NULL DEFAULT 0,  -- Runs so far, failed ones too.
    item_count bigint NOT NULL DEFAULT 0,  -- Items handled so far.
    error_count bigint NOT NULL DEFAULT 0,  -- Failed runs so far.
    skip_count bigint NOT NULL DEFAULT 0,  -- Runs skipped so far because another process held its turn.
    skipped_in_a_row bigint NOT NULL DEFAULT 0,  -- Those since a run was last recorded, by any process.
    busy_s double precision NOT NULL DEFAULT 0,  -- Time that all runs took so far.
    CONSTRAINT runner_pkey PRIMARY KEY (name),
    CONSTRAINT runner_error_check CHECK (length(error) <= 2000),
    CONSTRAINT runner_interval_s_check CHECK (interval_s > 0::double precision),
    CONSTRAINT runner_last_run CHECK ((started_at IS NULL) = (duration_s IS NULL) AND (started_at IS NULL) = (items IS NULL) AND (started_at IS NULL) = (holder IS NULL)),
    CONSTRAINT runner_name_check CHECK (length(name) >= 1 AND length(name) <= 100)
) WITH (fillfactor=50);
GRANT INSERT, SELECT, UPDATE ON cortex.runner TO cortex_runtime;
GRANT SELECT ON cortex.runner TO cortex_reader;

-- When a runner that does not succeed is late: after five of its intervals.
CREATE FUNCTION cortex.late_from(succeeded_at timestamp with time zone, first_at timestamp with time zone, interval_s double precision)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (COALESCE(succeeded_at, first_at) + (((5)::double precision * interval_s) * '00:00:01'::interval));

-- When a `cortex tick` last ran jobs, after any pod; null: ticks do not, or are late.
CREATE FUNCTION cortex.ticked_at()
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN (SELECT runner.started_at FROM cortex.runner WHERE ((runner.name = 'dispatch'::text) AND (runner.holder ~~ 'tick %'::text) AND (cortex.late_from(runner.succeeded_at, runner.first_at, runner.interval_s) >= cortex.now())));

-- What lasts and is announced once: a row from its begin to its end. Few rows; the runner alarms deletes them.
CREATE TABLE cortex.alarm (
    topic text NOT NULL,  -- The topic of its message.
    key text NOT NULL,  -- What it is about: dead letters, or what refused credentials.
    since timestamptz NOT NULL DEFAULT cortex.now(),  -- Since when it has been observed.
    announced_at timestamptz,  -- When it was announced; null: it has not lasted long enough yet.
    level bigint,  -- Of dead letters: their number; twice as many are announced again.
    CONSTRAINT alarm_pkey PRIMARY KEY (topic, key),
    CONSTRAINT alarm_key_check CHECK (length(key) >= 1 AND length(key) <= 300),
    CONSTRAINT alarm_topic_check CHECK (topic = ANY (ARRAY['dead_letter.growing'::text, 'auth.failed'::text]))
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.alarm TO cortex_runtime;
GRANT SELECT ON cortex.alarm TO cortex_reader;

-- Names of tasks that living pods, and the pods of ticks of the last minutes, can take, each with their code.
CREATE FUNCTION cortex.served_tasks()
 RETURNS TABLE(task text, code integer)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT DISTINCT c.task, p.code
FROM (SELECT p.job_types, p.tools, coalesce(p.code_id, 0) AS code FROM cortex.pod p
      WHERE p.state IN ('READY', 'DRAINING')
        AND p.heartbeat_at > cortex.now() - p.silent_after_s * interval '1 second'
      UNION
      -- The next tick has the code of the last ones.
      SELECT p.job_types, p.tools, coalesce(p.code_id, 0) FROM cortex.pod p
      WHERE p.ended_at > coalesce(cortex.ticked_at(), cortex.now()) - interval '5 minutes'
        AND p.name LIKE 'tick %') p
CROSS JOIN LATERAL unnest(cortex.claimable(p.job_types, p.tools, p.code)) AS c(task) $function$;

-- Names of due tasks that no living pod can take, by their type, their tools or their code, nor the pod of a tick of the last minutes; none if there is no such pod.
CREATE FUNCTION cortex.unserved_tasks()
 RETURNS SETOF text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH RECURSIVE served AS MATERIALIZED (
    SELECT DISTINCT s.task FROM cortex.served_tasks() s
), made_way AS (
    -- Walks the distinct kinds of those of named queues that made way for others by index, one probe per kind.
    (SELECT t.task FROM cortex_worker.task t WHERE t.state = 'STRANDED' ORDER BY t.task LIMIT 1)
    UNION ALL
    SELECT (SELECT t.task FROM cortex_worker.task t WHERE t.state = 'STRANDED' AND t.task > m.task
            ORDER BY t.task LIMIT 1)
    FROM made_way m WHERE m.task IS NOT NULL
)
SELECT DISTINCT h.task FROM (
    (SELECT r.task FROM cortex_worker.ready_head r LIMIT 1000)
    UNION ALL
    (SELECT t.task FROM cortex_worker.task t WHERE t.state = 'READY' AND t.is_suspect LIMIT 1000)
    UNION ALL
    (SELECT m.task FROM made_way m WHERE m.task IS NOT NULL LIMIT 1000)) h
-- Without a pod and without ticks everything waits.
WHERE EXISTS (SELECT FROM served) AND h.task NOT IN (SELECT s.task FROM served s) $function$;

-- A named flow; its immutable versions define it.
CREATE TABLE cortex.flow (
    name text NOT NULL,  -- The name that people and jobs use.
    version integer NOT NULL,  -- The newest version: the one that newly submitted jobs use.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the first version was applied.
    CONSTRAINT flow_pkey PRIMARY KEY (name),
    CONSTRAINT flow_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'::text),
    CONSTRAINT flow_version_check CHECK (version >= 1)
);
GRANT INSERT, SELECT, UPDATE ON cortex.flow TO cortex_runtime;
GRANT SELECT ON cortex.flow TO cortex_reader;

-- One immutable version of a flow.
CREATE TABLE cortex.flow_version (
    name text NOT NULL,  -- The flow.
    version integer NOT NULL,  -- 1, 2, 3 … without gaps.
    spec jsonb NOT NULL,  -- The specification as canonical JSON.
    digest bytea NOT NULL,  -- SHA-256 of the canonical JSON: applying the same again creates no version.
    applied_by text NOT NULL,  -- Who applied it.
    applied_with text,  -- Their credential: that person cannot agree to critical calls of its jobs.
    applied_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was applied.
    CONSTRAINT flow_version_pkey PRIMARY KEY (name, version),
    CONSTRAINT flow_version_name_fkey FOREIGN KEY (name) REFERENCES cortex.flow(name),
    CONSTRAINT flow_version_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT flow_version_version_check CHECK (version >= 1)
);
GRANT INSERT, SELECT ON cortex.flow_version TO cortex_runtime;
GRANT SELECT ON cortex.flow_version TO cortex_reader;

CREATE TRIGGER flow_version_is_immutable BEFORE DELETE OR UPDATE ON cortex.flow_version FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

-- The version of the flow that a job of type run_flow with this payload runs: the newest, unless it names one. Refuses an unknown flow, and inputs that it does not take.
CREATE FUNCTION cortex.flow_of(payload jsonb, OUT kept integer, OUT kept_spec jsonb)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    wanted CONSTANT text := payload->>'flow';
    inputs CONSTANT jsonb := coalesce(nullif(payload->'inputs', 'null'), '{}');
    wrong text;
BEGIN
    IF wanted IS NULL THEN
        RAISE EXCEPTION 'a job of type "run_flow" needs a flow'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'flow_named',
                  HINT = 'name it in the payload: {"flow": NAME, "inputs": {}}';
    END IF;
    SELECT v.version, v.spec INTO kept, kept_spec
    FROM cortex.flow f JOIN cortex.flow_version v ON v.name = f.name
    WHERE f.name = wanted AND to_jsonb(v.version) = coalesce(nullif(payload->'version', 'null'), to_jsonb(f.version));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'flow "%"% does not exist', left(wanted, 100),
            coalesce(' version ' || left(payload->>'version', 20), '')
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex flows apply FILE';
    END IF;
    IF jsonb_typeof(inputs) <> 'object' THEN
        wrong := format('must be an object by their names, got %s', left(inputs::text, 80));
    ELSE
        SELECT nullif(concat_ws('; ',
            (SELECT 'lack ' || string_agg(k, ', ' ORDER BY k) FROM jsonb_each(kept_spec->'inputs') AS i(k, declared)
             WHERE (declared->>'required')::boolean AND NOT inputs ? k),
            (SELECT format('have the unknown name%s %s; known: %s', CASE WHEN count(*) > 1 THEN 's' END,
                           left(string_agg(format('"%s"', left(given, 100)), ', ' ORDER BY given), 500), coalesce(
                 (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(kept_spec->'inputs') AS k), 'none'))
             FROM jsonb_object_keys(inputs) AS given WHERE NOT coalesce(kept_spec->'inputs' ? given, false)
             HAVING count(*) > 0)), '') INTO wrong;
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'inputs of flow "%" %', wanted, wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_fits', HINT = 'see its inputs: cortex flows show ' || wanted;
    END IF;
END $function$;

-- Writes the version and the limit of its flow into a new job of type run_flow; refuses an unknown flow.
CREATE FUNCTION cortex.flow_of_job()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    kept int;
    kept_spec jsonb;
    limit_ms int;
BEGIN
    SELECT o.kept, o.kept_spec INTO kept, kept_spec FROM cortex.flow_of(NEW.payload) AS o;
    limit_ms := kept_spec->'limits'->>'timeout_ms';
    NEW.payload := NEW.payload || jsonb_build_object('version', kept);
    -- The flow's own limit replaces its type's, but not one that this job was given.
    IF limit_ms IS NOT NULL AND NEW.timeout_s = (SELECT t.timeout_s FROM cortex.job_type t WHERE t.name = 'run_flow') THEN
        NEW.timeout_s := ceil(limit_ms / 1000.0);
    END IF;
    RETURN NEW;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.flow_of_job() FROM PUBLIC;

CREATE TRIGGER flow_of_job BEFORE INSERT ON cortex.job_record FOR EACH ROW WHEN (new.type = 'run_flow'::text) EXECUTE FUNCTION cortex.flow_of_job();

-- For how long finished jobs and facts are kept: one row, or none while all are kept.
CREATE TABLE cortex.retention (
    is_set boolean NOT NULL DEFAULT true,  -- Always true: there is at most one row.
    completed_s bigint,  -- Seconds to keep a job after it was completed; null: for ever.
    failed_s bigint,  -- Seconds to keep a failed or cancelled job after its end; null: for ever.
    facts_s bigint,  -- Seconds to keep facts; null: those of a job as long as the job, others for ever.
    archive text,  -- Folder in which a copy is written first; null: no copy.
    changed_by text NOT NULL,  -- Who set it.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    reason text NOT NULL,  -- Why.
    seen_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the runner last looked, to the minute: shows that the clock was moved.
    held_until timestamptz,  -- Nothing is deleted before this: the clock was moved, or nothing ran for days. Null: nothing is held.
    CONSTRAINT retention_pkey PRIMARY KEY (is_set),
    CONSTRAINT retention_archive_check CHECK (archive ~~ '/%'::text AND length(archive) <= 1000),
    CONSTRAINT retention_changed_by_check CHECK (length(changed_by) >= 1 AND length(changed_by) <= 200),
    CONSTRAINT retention_completed_s_check CHECK (completed_s >= 86400 AND completed_s <= '3153600000'::bigint),
    CONSTRAINT retention_facts_s_check CHECK (facts_s >= 86400 AND facts_s <= '3153600000'::bigint),
    CONSTRAINT retention_failed_s_check CHECK (failed_s >= 86400 AND failed_s <= '3153600000'::bigint),
    CONSTRAINT retention_is_set_check CHECK (is_set),
    CONSTRAINT retention_reason_check CHECK (length(reason) <= 500),
    CONSTRAINT something_is_deleted CHECK (num_nonnulls(completed_s, failed_s, facts_s) > 0)
) WITH (fillfactor=50);
GRANT SELECT ON cortex.retention TO cortex_runtime;
GRANT SELECT ON cortex.retention TO cortex_reader;

-- How far the runner has read, so that it does not read again what it has deleted, or what must stay.
CREATE TABLE cortex.retention_place (
    kind text NOT NULL,  -- The state of the jobs; or FACTS.
    created_at timestamptz,  -- When the last job that was read was submitted.
    job_id uuid,  -- That job; null: none yet.
    fact_id bigint,  -- The last fact that was read.
    is_at_end boolean NOT NULL,  -- Everything old enough was read: an hour after its begin, a new pass begins.
    began_at timestamptz NOT NULL,  -- When this pass began.
    CONSTRAINT retention_place_pkey PRIMARY KEY (kind),
    CONSTRAINT place_of_a_job_or_a_fact CHECK ((created_at IS NULL) = (job_id IS NULL) AND num_nonnulls(job_id, fact_id) < 2),
    CONSTRAINT retention_place_kind_check CHECK (kind = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text, 'FACTS'::text]))
) WITH (fillfactor=50);
GRANT INSERT, SELECT, UPDATE ON cortex.retention_place TO cortex_runtime;
GRANT SELECT ON cortex.retention_place TO cortex_reader;

-- Sets the retention, or unsets it when all periods are null; records who and why. Returns the setting before; null: there was none. Needs the role operator: see person_of_all.
CREATE FUNCTION cortex.set_retention(new_completed_s bigint, new_failed_s bigint, new_facts_s bigint, new_archive text, caller jsonb, why text)
 RETURNS jsonb
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    before jsonb;
    after jsonb;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    PERFORM FROM cortex.runner_turn t WHERE t.name = 'retention.set' FOR NO KEY UPDATE;
    SELECT jsonb_build_object('completed_s', r.completed_s, 'failed_s', r.failed_s, 'facts_s', r.facts_s,
                              'archive', r.archive) INTO before
    FROM cortex.retention r;
    DELETE FROM cortex.retention;
    DELETE FROM cortex.retention_place;
    IF num_nonnulls(new_completed_s, new_failed_s, new_facts_s) > 0 THEN
        INSERT INTO cortex.retention (completed_s, failed_s, facts_s, archive, changed_by, reason)
        VALUES (new_completed_s, new_failed_s, new_facts_s, new_archive, who.name, why);
        after := jsonb_build_object('completed_s', new_completed_s, 'failed_s', new_failed_s, 'facts_s', new_facts_s,
                                    'archive', new_archive);
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', CASE WHEN after IS NULL THEN 'retention_unset' ELSE 'retention_set' END, 'retention',
            jsonb_build_object('by', who.name, 'reason', why, 'before', before, 'after', after));
    RETURN before;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.set_retention(bigint,bigint,bigint,text,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.set_retention(bigint,bigint,bigint,text,jsonb,text) TO cortex_runtime;

-- Takes the turn of deleting to the end of the transaction. No row: nothing is ever deleted. is_mine false: another process has the turn. held_s: how long nothing is deleted, since the clock was moved; null or 0: not at all.
CREATE FUNCTION cortex.retention_turn()
 RETURNS TABLE(is_mine boolean, held_s double precision, archive text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    setting cortex.retention;
    is_moved boolean;
BEGIN
    IF NOT cortex.take_turn('retention') THEN
        RETURN QUERY SELECT false, NULL::float8, NULL;
        RETURN;
    END IF;
    SELECT * INTO setting FROM cortex.retention r;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- From a clock that went forward by mistake nothing tells the time that really passed: an hour for a person to mend
    -- it. Two days, so that a `cortex tick` once a day is no such gap.
    is_moved := moment > setting.seen_at + interval '2 days' OR moment < setting.seen_at - interval '5 minutes';
    IF is_moved THEN
        setting.held_until := moment + interval '1 hour';
    END IF;
    IF is_moved OR moment >= setting.seen_at + interval '1 minute' THEN
        UPDATE cortex.retention r SET seen_at = moment, held_until = setting.held_until;
    END IF;
    RETURN QUERY SELECT true, greatest(0, extract(epoch FROM setting.held_until - moment))::float8, setting.archive;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.retention_turn() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.retention_turn() TO cortex_runtime;

-- What ended before this instant may be deleted: jobs by their state, or FACTS. Null: nothing may.
CREATE FUNCTION cortex.retention_limit(of_kind text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT cortex.now() - interval '1 second' * CASE of_kind
           WHEN 'COMPLETED' THEN r.completed_s WHEN 'FAILED' THEN r.failed_s WHEN 'CANCELLED' THEN r.failed_s
           WHEN 'FACTS' THEN r.facts_s END
FROM cortex.retention r WHERE coalesce(r.held_until <= cortex.now(), true) $function$;

-- Whether a job of the lineage of this one is not over, or failed and may be retried: then it may read how its children ended.
CREATE FUNCTION cortex.may_need_children(of_parent uuid)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (
    SELECT FROM (SELECT coalesce(p.lineage_id, p.id) AS id FROM cortex.job_record p WHERE p.id = of_parent) line
    CROSS JOIN LATERAL (
        SELECT j.id, j.finished_at FROM cortex.job_record j WHERE j.id = line.id
        UNION ALL
        SELECT j.id, j.finished_at FROM cortex.job_record j WHERE j.lineage_id = line.id) q
    WHERE q.finished_at IS NULL OR EXISTS (
        SELECT FROM cortex.dead_letter d WHERE d.job_id = q.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))) $function$;

-- Those of these first jobs whose whole lineage may be deleted now: old enough, and nothing refers to it.
CREATE FUNCTION cortex.retired(roots uuid[])
 RETURNS SETOF uuid
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    done CONSTANT timestamptz := cortex.retention_limit('COMPLETED');
    failed CONSTANT timestamptz := cortex.retention_limit('FAILED');
BEGIN
    RETURN QUERY
    SELECT r.id FROM unnest(roots) AS w(id) JOIN cortex.job_record r ON r.id = w.id AND r.lineage_id IS NULL
    WHERE NOT EXISTS (
        SELECT FROM (SELECT r.id, r.status, r.finished_at, r.parent_id
                     UNION ALL
                     SELECT h.id, h.status, h.finished_at, h.parent_id FROM cortex.job_record h WHERE h.lineage_id = r.id) j
        WHERE NOT coalesce(j.finished_at < CASE WHEN j.status = 'COMPLETED' THEN done ELSE failed END, false)
           OR EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id)
           OR EXISTS (SELECT FROM cortex.reservation c WHERE c.job_id = j.id)
           OR EXISTS (SELECT FROM cortex.dead_letter d
                      WHERE d.job_id = j.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))
           OR EXISTS (SELECT FROM cortex.effect e WHERE e.job_id = j.id AND e.status IN ('PENDING', 'UNKNOWN'))
           OR EXISTS (SELECT FROM cortex.approval a WHERE a.job_id = j.id AND (
                a.status = 'PENDING'
                OR a.spent_digest IS NOT NULL AND a.decided_at > cortex.now() - interval '7 days'))
           OR EXISTS (SELECT FROM cortex.schedule_instant i
                      WHERE i.job_id = j.id AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL)
           OR j.parent_id IS NOT NULL AND cortex.may_need_children(j.parent_id)
           OR EXISTS (SELECT FROM cortex.watch s WHERE s.job_id = j.id AND s.until > cortex.now()))
      AND NOT EXISTS (SELECT FROM cortex.job_child c JOIN cortex.job_record k ON k.id = c.job_id
                      WHERE c.lineage_id = r.id AND NOT c.is_detached)
      AND NOT EXISTS (SELECT FROM cortex.budget b WHERE b.scope = 'job' AND b.subject = r.id::text
                      AND b.share_of IS NULL);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.retired(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.retired(uuid[]) TO cortex_runtime;

-- Deletes jobs with all that belongs to them, and their facts unless those have a period of their own. The caller has locked them and checked that nothing refers to them.
CREATE FUNCTION cortex.delete_jobs(gone uuid[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
BEGIN
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.job_history o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_attempt o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.timeout_event o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_step o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_file o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_published o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.log_line o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.signal o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.signal o USING unnest(gone) AS g(id) WHERE o.taken_line = g.id;
    DELETE FROM cortex.callback o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.effect_vote o USING unnest(gone) AS g(id), cortex.effect e
    WHERE e.job_id = g.id AND o.effect_id = e.id;
    DELETE FROM cortex.effect o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.approval_vote o USING unnest(gone) AS g(id), cortex.approval a
    WHERE a.job_id = g.id AND o.approval_id = a.id;
    DELETE FROM cortex.approval o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.dead_letter o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.budget o USING unnest(gone) AS g(id)
    WHERE o.scope = 'job' AND o.subject = g.id::text AND o.share_of IS NOT NULL;
    DELETE FROM cortex.job_child o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.job_child o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    IF NOT EXISTS (SELECT FROM cortex.retention r WHERE r.facts_s IS NOT NULL) THEN
        DELETE FROM cortex.fact o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    END IF;
    DELETE FROM cortex.job_record o USING unnest(gone) AS g(id) WHERE o.id = g.id;
    PERFORM set_config('cortex.retention', '', true);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.delete_jobs(uuid[]) FROM PUBLIC;

-- Deletes the lineages of these first jobs that may be deleted, as far as nobody holds them and no fact is newer than the given one (null: any). Returns how many lineages and jobs.
CREATE FUNCTION cortex.delete_retired(roots uuid[], facts_through bigint)
 RETURNS TABLE(lineages integer, jobs integer)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    held uuid[];
    letters uuid[];
    chosen uuid[];
    gone uuid[];
BEGIN
    held := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id IN (SELECT r.id FROM unnest(roots) AS r(id)
                       UNION ALL
                       SELECT h.id FROM unnest(roots) AS r(id) JOIN cortex.job_record h ON h.lineage_id = r.id)
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    -- A retry holds the dead letter, not the job.
    letters := ARRAY(
        SELECT d.job_id FROM unnest(held) AS h(id) JOIN cortex.dead_letter d ON d.job_id = h.id
        ORDER BY d.job_id FOR UPDATE OF d SKIP LOCKED);
    -- A new statement sees what those wrote that held the rows before. Whatever could not be locked stays.
    chosen := ARRAY(
        SELECT r.id FROM cortex.retired(roots) AS r(id)
        WHERE NOT EXISTS (
            SELECT FROM (SELECT r.id UNION ALL SELECT h.id FROM cortex.job_record h WHERE h.lineage_id = r.id) j
            WHERE j.id <> ALL (held)
               OR EXISTS (SELECT FROM cortex.dead_letter d WHERE d.job_id = j.id AND d.job_id <> ALL (letters))
               -- Recorded after the copy was made.
               OR EXISTS (SELECT FROM cortex.fact f WHERE f.job_id = j.id AND f.id > facts_through)));
    gone := ARRAY(SELECT r.id FROM unnest(chosen) AS r(id)
                  UNION ALL
                  SELECT h.id FROM unnest(chosen) AS r(id) JOIN cortex.job_record h ON h.lineage_id = r.id);
    PERFORM cortex.delete_jobs(gone);
    RETURN QUERY SELECT cardinality(chosen), cardinality(gone);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.delete_retired(uuid[],bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.delete_retired(uuid[],bigint) TO cortex_runtime;

-- Deletes jobs of built-in schedules that ended well this long ago, at least a day, with their instants, whatever the retention: their record is kept small. Returns how many.
CREATE FUNCTION cortex.forget_upkeep(kept_s double precision, most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 86400) * interval '1 second';
    held uuid[];
BEGIN
    held := ARRAY(
        SELECT run.job_id FROM cortex.schedule s CROSS JOIN LATERAL (
            SELECT i.job_id FROM cortex.schedule_instant i JOIN cortex.job_record j ON j.id = i.job_id
            WHERE i.schedule = s.name AND i.ended_at < old AND (s.next_at IS NULL OR i.instant < s.next_at)
              -- A failed one stays with its dead letter, and one that continues it with the failed one.
              AND j.status IN ('COMPLETED', 'CANCELLED') AND j.lineage_id IS NULL
              AND NOT EXISTS (SELECT FROM cortex.job_record h WHERE h.lineage_id = j.id)
              AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id)
              AND NOT EXISTS (SELECT FROM cortex.watch w WHERE w.job_id = j.id AND w.until > cortex.now())
            ORDER BY i.instant LIMIT most FOR UPDATE OF i, j SKIP LOCKED) run
        WHERE s.origin = 'built_in');
    DELETE FROM cortex.schedule_instant i USING unnest(held) AS h(id) WHERE i.job_id = h.id;
    PERFORM cortex.delete_jobs(held);
    RETURN cardinality(held);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_upkeep(double precision,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_upkeep(double precision,integer) TO cortex_runtime;

-- Deletes pods that ended this long ago, at least a day, and that no job and no fact names, then the codes that only they ran. Returns how many pods.
CREATE FUNCTION cortex.forget_pods(kept_s double precision, most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 86400) * interval '1 second';
    oldest timestamptz;
    named uuid[];
    gone uuid[];
    deleted int;
BEGIN
    gone := ARRAY(
        SELECT p.id FROM cortex.pod p WHERE NOT p.has_run AND p.state IN ('STOPPED', 'DEAD') AND p.ended_at < old
        ORDER BY p.ended_at LIMIT most FOR UPDATE SKIP LOCKED);
    named := ARRAY(
        SELECT p.id FROM cortex.pod p WHERE p.id = ANY (gone) AND EXISTS (
            SELECT FROM cortex.fact f WHERE f.type IN ('error', 'lifecycle') AND f.pod_id = p.id));
    UPDATE cortex.pod p SET has_run = true WHERE p.id = ANY (named);
    -- What ran jobs goes once retention has deleted all that is as old.
    SELECT min(m.at) INTO oldest FROM (
        SELECT (SELECT min(j.created_at) FROM cortex.job_record j WHERE j.status = w.status) AS at
        FROM unnest(enum_range(NULL::cortex.job_status)) AS w(status)
        UNION ALL
        SELECT (SELECT min(f.at) FROM cortex.fact f WHERE f.type = k.type)
        FROM unnest(ARRAY['error', 'cost', 'lifecycle']) AS k(type)) m;
    gone := gone || ARRAY(
        SELECT p.id FROM cortex.pod p WHERE p.state IN ('STOPPED', 'DEAD') AND p.ended_at < least(oldest, old)
        ORDER BY p.ended_at LIMIT most FOR UPDATE SKIP LOCKED);
    DELETE FROM cortex.pod p WHERE p.id = ANY (gone) AND p.id <> ALL (named);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    -- A pod that has just stored its code registers within the day that it is kept.
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.code c WHERE c.id IN (
        SELECT k.id FROM cortex.code k
        WHERE k.used_at < old AND NOT EXISTS (SELECT FROM cortex.pod p WHERE p.code_id = k.id)
        ORDER BY k.used_at LIMIT most FOR UPDATE SKIP LOCKED);
    PERFORM set_config('cortex.retention', '', true);
    RETURN deleted;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_pods(double precision,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_pods(double precision,integer) TO cortex_runtime;

-- Those of these facts that may be deleted now: old enough, not of a job that is not over, not about who is responsible for one, not resolved by a younger one.
CREATE FUNCTION cortex.retired_facts(facts bigint[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    old CONSTANT timestamptz := cortex.retention_limit('FACTS');
BEGIN
    RETURN QUERY
    SELECT f.id FROM unnest(facts) AS w(id) JOIN cortex.fact f ON f.id = w.id
    WHERE f.at < old
      AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = f.job_id AND j.finished_at IS NULL)
      -- Nor who is responsible for a job that continues this one.
      AND NOT (f.subtype IN ('dead_letter_retried', 'decision_retried', 'retried_now', 'schedule_triggered') AND EXISTS (
          SELECT FROM cortex.job_record j JOIN cortex.job_record h ON h.lineage_id = coalesce(j.lineage_id, j.id)
          WHERE j.id = f.job_id AND h.finished_at IS NULL))
      AND NOT EXISTS (SELECT FROM cortex.fact r WHERE r.resolves = f.id AND r.at >= old);
END $function$;

-- Deletes those of these facts that may be deleted: the only way to delete a fact. Returns how many.
CREATE FUNCTION cortex.delete_retired_facts(facts bigint[])
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    deleted int;
BEGIN
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.fact f USING cortex.retired_facts(facts) AS r(id) WHERE f.id = r.id;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('cortex.retention', '', true);
    RETURN deleted;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.delete_retired_facts(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.delete_retired_facts(bigint[]) TO cortex_runtime;

-- Who gets which messages: a message is written once for each subscription that matches it.
CREATE TABLE cortex.subscription (
    name text NOT NULL,  -- Its name for people. Its circuit breaker is notify:NAME.
    topic text NOT NULL,  -- Pattern of the topics that it gets; * stands for any characters.
    topic_like text GENERATED ALWAYS AS (replace(replace(topic, '_'::text, '\_'::text), '*'::text, '%'::text)) STORED,  -- The same as a LIKE pattern.
    filter jsonb NOT NULL DEFAULT '{}'::jsonb,  -- It gets only messages whose payload contains this object.
    channel text NOT NULL,  -- How they are sent: to the log, to a webhook, to Slack, by e-mail, or to a handler in the code of pods.
    config jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Details of the channel: address, template, and the names of its secrets, never the secrets.
    is_heavy boolean NOT NULL DEFAULT false,  -- A pod sends at most two of its messages at a time.
    tenant text,  -- It gets only messages of this tenant; null: of all.
    min_risk text,  -- It gets only messages whose payload names a risk, at least this one; null: all.
    fallback text,  -- The subscription that gets those of its messages that could not be sent; null: nobody does.
    attempts integer,  -- How often a message is tried before it fails; null: the default of the channel.
    timeout_s integer,  -- How long one attempt may take; null: the default of the channel.
    changed_by text NOT NULL,  -- Who changed it last: a person, or the pod whose code has it.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first applied.
    CONSTRAINT subscription_pkey PRIMARY KEY (name),
    CONSTRAINT subscription_fallback_fkey FOREIGN KEY (fallback) REFERENCES cortex.subscription(name),
    CONSTRAINT subscription_attempts_check CHECK (attempts >= 1 AND attempts <= 16),
    CONSTRAINT subscription_changed_by_check CHECK (length(changed_by) >= 1 AND length(changed_by) <= 200),
    CONSTRAINT subscription_channel_check CHECK (channel = ANY (ARRAY['log'::text, 'webhook'::text, 'slack'::text, 'email'::text, 'handler'::text])),
    CONSTRAINT subscription_check CHECK (fallback <> name),
    CONSTRAINT subscription_config_check CHECK (jsonb_typeof(config) = 'object'::text AND pg_column_size(config) <= 32768),
    CONSTRAINT subscription_filter_check CHECK (jsonb_typeof(filter) = 'object'::text AND pg_column_size(filter) <= 8192),
    CONSTRAINT subscription_min_risk_check CHECK (min_risk = ANY (ARRAY['LOW'::text, 'MED'::text, 'HIGH'::text, 'CRITICAL'::text])),
    CONSTRAINT subscription_name_check CHECK (name ~ '^[a-z0-9][a-z0-9._-]*$'::text AND length(name) <= 100),
    CONSTRAINT subscription_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100),
    CONSTRAINT subscription_timeout_s_check CHECK (timeout_s >= 1 AND timeout_s <= 300),
    CONSTRAINT subscription_topic_check CHECK (topic ~ '^[a-z0-9_*-]+(\.[a-z0-9_*-]+)*$'::text AND length(topic) <= 100)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.subscription TO cortex_runtime;
GRANT SELECT ON cortex.subscription TO cortex_reader;

-- Subscriptions whose receiver has taken no message since an attempt failed; a message that is sent deletes the row.
CREATE TABLE cortex.failing_subscription (
    subscription text NOT NULL,  -- Its name. No foreign key: whoever records an outcome must not wait for whoever removes it.
    since timestamptz NOT NULL,  -- When the first of these attempts failed.
    failed_at timestamptz NOT NULL,  -- When the last one failed.
    failures integer NOT NULL,  -- How many failed.
    last_error text NOT NULL,  -- Why the last one failed.
    CONSTRAINT failing_subscription_pkey PRIMARY KEY (subscription),
    CONSTRAINT failing_subscription_failures_check CHECK (failures > 0),
    CONSTRAINT failing_subscription_last_error_check CHECK (length(last_error) <= 1000)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.failing_subscription TO cortex_runtime;
GRANT SELECT ON cortex.failing_subscription TO cortex_reader;

-- Messages to send, one row for each subscription that gets one. Sent rows are deleted after a while.
CREATE TABLE cortex.outbox (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of the rows: messages of one key are sent in it.
    id uuid NOT NULL,  -- The message, shared by its rows: receivers discard a second message with the same id.
    topic text NOT NULL,  -- What it is about: words with dots, such as job.failed.
    key text,  -- Messages of one key go to a subscription one after another, in order; null: in no order.
    payload jsonb NOT NULL,  -- Its content.
    headers jsonb NOT NULL DEFAULT '{}'::jsonb,  -- Further details of its publisher, for its receivers.
    tenant text NOT NULL,  -- The tenant that it belongs to.
    trace text,  -- The traceparent of the job that it is about or that published it; null: of none.
    subscription text,  -- The subscription that gets it. Null: nobody had subscribed to its topic when it was published.
    escalated_from text,  -- The subscription by which it could not be sent before; null: this one is the first.
    status text NOT NULL DEFAULT 'PENDING'::text,  -- PENDING: waits for its time · PROCESSING: a pod is sending it · SENT · FAILED: given up, until a person retries it.
    attempts integer NOT NULL DEFAULT 0,  -- How often a pod began to send it, except where it handed it back unsent, died or lost its lease.
    claim integer NOT NULL DEFAULT 0,  -- How often a pod claimed it: the fence. It only grows, so that what an earlier claim reports is refused.
    lost_count integer NOT NULL DEFAULT 0,  -- How many pods died, or lost their lease, while they had it.
    available_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Not before this instant.
    is_parked boolean NOT NULL DEFAULT false,  -- Waits behind an earlier message of its key; whoever ends that unparks it.
    locked_by uuid,  -- The pod that is sending it.
    locked_until timestamptz,  -- When other pods may take it from that pod, unless that renews its lease.
    last_error text,  -- Why the last attempt failed.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was published.
    finished_at timestamptz,  -- When it was sent or given up.
    CONSTRAINT outbox_pkey PRIMARY KEY (seq),
    CONSTRAINT finished_at_only_when_final CHECK ((finished_at IS NOT NULL) = (status = ANY (ARRAY['SENT'::text, 'FAILED'::text]))),
    CONSTRAINT locked_while_processing CHECK ((locked_by IS NOT NULL) = (status = 'PROCESSING'::text) AND (locked_until IS NOT NULL) = (status = 'PROCESSING'::text)),
    CONSTRAINT outbox_attempts_check CHECK (attempts >= 0),
    CONSTRAINT outbox_check CHECK (claim >= attempts),
    CONSTRAINT outbox_headers_check CHECK (jsonb_typeof(headers) = 'object'::text AND pg_column_size(headers) <= 8192),
    CONSTRAINT outbox_key_check CHECK (length(key) >= 1 AND length(key) <= 300),
    CONSTRAINT outbox_last_error_check CHECK (length(last_error) <= 1000),
    CONSTRAINT outbox_lost_count_check CHECK (lost_count >= 0),
    CONSTRAINT outbox_payload_check CHECK (jsonb_typeof(payload) = 'object'::text),
    CONSTRAINT outbox_status_check CHECK (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text, 'SENT'::text, 'FAILED'::text])),
    CONSTRAINT outbox_tenant_check CHECK (length(tenant) >= 1 AND length(tenant) <= 100),
    CONSTRAINT outbox_topic_check CHECK (topic ~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$'::text AND length(topic) <= 100),
    CONSTRAINT outbox_trace_check CHECK (length(trace) >= 1 AND length(trace) <= 100),
    CONSTRAINT parked_only_while_pending CHECK (status = 'PENDING'::text OR NOT is_parked)
) WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX outbox_due ON cortex.outbox USING btree (subscription, available_at, seq) WHERE status = 'PENDING'::text AND NOT is_parked;
CREATE INDEX outbox_line ON cortex.outbox USING btree (subscription, key, seq) WHERE key IS NOT NULL AND (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text]));
CREATE INDEX outbox_leased ON cortex.outbox USING btree (locked_until) WHERE status = 'PROCESSING'::text;
CREATE INDEX outbox_status ON cortex.outbox USING btree (status, seq);
CREATE UNIQUE INDEX outbox_id ON cortex.outbox USING btree (id, subscription);
GRANT DELETE, SELECT ON cortex.outbox TO cortex_runtime;
GRANT UPDATE (status, attempts, claim, lost_count, available_at, is_parked, locked_by, locked_until, last_error, finished_at) ON cortex.outbox TO cortex_runtime;
GRANT SELECT ON cortex.outbox TO cortex_reader;

-- How many messages of a subscription wait for their time or behind another of their key, counted up to a limit.
CREATE FUNCTION cortex.waiting_messages(of_subscription text, most integer)
 RETURNS integer
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT least(most, count(*))::int FROM (
    (SELECT FROM cortex.outbox o
     WHERE o.subscription = of_subscription AND o.status = 'PENDING' AND NOT o.is_parked LIMIT most)
    UNION ALL
    (SELECT FROM cortex.outbox o
     WHERE o.subscription = of_subscription AND o.key IS NOT NULL AND o.status IN ('PENDING', 'PROCESSING')
       AND o.is_parked LIMIT most)) w $function$;

-- Whether only the runtime itself may publish under this topic.
CREATE FUNCTION cortex.is_runtime_topic(topic text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (split_part(topic, '.'::text, 1) = ANY (ARRAY['job'::text, 'approval'::text, 'breaker'::text, 'budget'::text, 'dead_letter'::text, 'schedule'::text, 'pod'::text, 'work'::text, 'recovery'::text, 'effect'::text, 'runner'::text, 'auth'::text, 'cortex'::text]));

-- The place of a risk, from 1 for the least; null: no risk.
CREATE FUNCTION cortex.risk_rank(risk text)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN array_position(ARRAY['LOW'::text, 'MED'::text, 'HIGH'::text, 'CRITICAL'::text], risk);

-- Whether a subscription gets messages like this one.
CREATE FUNCTION cortex.subscribes(s cortex.subscription, of_topic text, of_tenant text, content jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((of_topic ~~ (s).topic_like) AND (content @> (s).filter) AND (((s).tenant IS NULL) OR ((s).tenant = of_tenant)) AND (((s).min_risk IS NULL) OR (cortex.risk_rank((content ->> 'risk'::text)) >= cortex.risk_rank((s).min_risk))));

-- Publishes messages of the runtime, in the caller's transaction; those that nobody subscribes to are not written. Returns how many rows were written.
CREATE FUNCTION cortex.announce_all(topics text[], keys text[], payloads jsonb[], tenants text[], traces text[])
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    written int;
BEGIN
    IF EXISTS (SELECT FROM unnest(topics) AS t WHERE t LIKE 'approval.%') THEN
        RAISE EXCEPTION 'a message about a request is published by the request itself'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, tenant, trace, subscription)
    SELECT m.id, m.topic, left(m.key, 300), m.payload, m.tenant, m.trace, s.name
    FROM (SELECT cortex.uuid7() AS id, a.*
          FROM unnest(topics, keys, payloads, tenants, traces)
              WITH ORDINALITY AS a(topic, key, payload, tenant, trace, n)) m
    JOIN cortex.subscription s ON cortex.subscribes(s, m.topic, m.tenant, m.payload)
    ORDER BY m.n, s.name;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written > 0 THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    END IF;
    RETURN written;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.announce_all(text[],text[],jsonb[],text[],text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.announce_all(text[],text[],jsonb[],text[],text[]) TO cortex_runtime;

-- The same for one message.
CREATE FUNCTION cortex.announce(topic text, key text, payload jsonb, tenant text DEFAULT 'default'::text, trace text DEFAULT NULL::text)
 RETURNS integer
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE WHEN EXISTS (SELECT FROM cortex.subscription s WHERE $1 LIKE s.topic_like)
            THEN cortex.announce_all(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4], ARRAY[$5]) ELSE 0 END $function$;
REVOKE EXECUTE ON FUNCTION cortex.announce(text,text,jsonb,text,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.announce(text,text,jsonb,text,text) TO cortex_runtime;

-- See publish; with the id of the message.
CREATE FUNCTION cortex.publish_as(message uuid, topic text, payload jsonb, key text, tenant text, headers jsonb, trace text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_variable
DECLARE
    written int;
BEGIN
    IF topic !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' OR length(topic) > 100 THEN
        RAISE EXCEPTION 'topic "%" is not valid', left(topic, 120)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'topic',
                  HINT = 'words of lower-case letters, digits, _ and -, with dots between them, such as order.paid';
    ELSIF cortex.is_runtime_topic(topic) THEN
        RAISE EXCEPTION 'topic "%" is one of the runtime''s own', topic
            USING ERRCODE = 'check_violation', CONSTRAINT = 'topic', HINT = 'begin it with another word';
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, subscription)
    SELECT message, topic, key, payload, headers, tenant, trace, s.name FROM cortex.subscription s
    WHERE cortex.subscribes(s, topic, tenant, payload) ORDER BY s.name;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written > 0 THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    ELSE
        INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, status, finished_at)
        VALUES (message, topic, key, payload, headers, tenant, trace, 'SENT', cortex.now());
    END IF;
    RETURN message;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.publish_as(uuid,text,jsonb,text,text,jsonb,text) FROM PUBLIC;

-- Publishes a message from any language, in the caller's transaction; returns its id. Messages of one key are sent in the order in which they are published, unless their transactions overlap.
CREATE FUNCTION cortex.publish(topic text, payload jsonb DEFAULT '{}'::jsonb, key text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, headers jsonb DEFAULT '{}'::jsonb, trace text DEFAULT NULL::text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF octet_length($2::text) > 262144 THEN
        RAISE EXCEPTION 'payload of % bytes is larger than 262144', octet_length($2::text)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size',
                  HINT = 'keep large data elsewhere and publish its address';
    ELSIF coalesce(jsonb_typeof($2), 'null') <> 'object' THEN
        RAISE EXCEPTION 'payload is of type %, not a JSON object', coalesce(jsonb_typeof($2), 'null')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'such as {"order": 1}';
    ELSIF length($3) NOT BETWEEN 1 AND 300 THEN
        RAISE EXCEPTION 'key of % characters is not within 1 to 300', length($3)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'messages of one key are sent in order';
    END IF;
    RETURN cortex.publish_as(cortex.uuid7(), $1, $2, $3, $4, $5, $6);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.publish(text,jsonb,text,text,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.publish(text,jsonb,text,text,jsonb,text) TO cortex_runtime;

-- The name of an agent by its id.
CREATE FUNCTION cortex.agent_name(of_agent uuid)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT a.name FROM cortex.agent a WHERE a.id = $1 $function$;

-- What a job hands on: its trace, and its own span as the parent.
CREATE FUNCTION cortex.traceparent_of(job uuid)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT cortex.traceparent(j.id, j.traceparent) FROM cortex.job_record j WHERE j.id = $1 $function$;

-- Who got a request that still waits: the same subscriptions get its reminders, and once how it ended.
CREATE TABLE cortex.approval_notice (
    approval_id uuid NOT NULL,  -- The request.
    subscription text NOT NULL,  -- The subscription.
    CONSTRAINT approval_notice_pkey PRIMARY KEY (approval_id, subscription),
    CONSTRAINT approval_notice_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES cortex.approval(id) ON DELETE CASCADE
);
GRANT SELECT ON cortex.approval_notice TO cortex_runtime;
GRANT SELECT ON cortex.approval_notice TO cortex_reader;

-- Publishes a message about a request, in the caller's transaction, to whoever subscribes to the topic or got the request. Returns the subscriptions that get it.
CREATE FUNCTION cortex.announce_approval(of_approval cortex.approval, topic text, message uuid, stage text)
 RETURNS text[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    content CONSTANT jsonb := jsonb_strip_nulls(jsonb_build_object(
        'approval', of_approval.id, 'job', of_approval.job_id, 'agent', cortex.agent_name(of_approval.agent_id),
        'tenant', of_approval.tenant, 'tool', of_approval.tool, 'step', of_approval.key, 'call', of_approval.brief,
        'risk', of_approval.risk, 'people', of_approval.people, 'effect', left(of_approval.effect, 300),
        'reversible', of_approval.reversible, 'policy', left(of_approval.policy, 300),
        'requested_by', of_approval.requested_by, 'status', of_approval.status, 'stage', stage,
        'created_at', of_approval.created_at, 'expires_at', of_approval.expires_at,
        'decided_at', of_approval.decided_at, 'decided_by', of_approval.decided_by, 'channel', of_approval.channel,
        'reason', left(of_approval.reason, 500)));
    receivers text[];
BEGIN
    WITH written AS (
        INSERT INTO cortex.outbox (id, topic, key, payload, tenant, trace, subscription)
        SELECT message, $2, of_approval.id::text, content, of_approval.tenant,
               cortex.traceparent_of(of_approval.job_id), s.name
        FROM cortex.subscription s
        WHERE (cortex.subscribes(s, $2, of_approval.tenant, content)
               OR EXISTS (SELECT FROM cortex.approval_notice n
                          WHERE n.approval_id = of_approval.id AND n.subscription = s.name))
          -- A repeated reminder by the same job is the same message.
          AND NOT EXISTS (SELECT FROM cortex.outbox o WHERE o.id = message AND o.subscription = s.name)
        ORDER BY s.name RETURNING subscription
    ), noticed AS (
        INSERT INTO cortex.approval_notice (approval_id, subscription)
        SELECT of_approval.id, subscription FROM written WHERE of_approval.status = 'PENDING' ON CONFLICT DO NOTHING
    )
    SELECT array_agg(subscription) INTO receivers FROM written;
    IF of_approval.status <> 'PENDING' THEN
        DELETE FROM cortex.approval_notice WHERE approval_id = of_approval.id;
    END IF;
    IF receivers IS NOT NULL THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    END IF;
    RETURN coalesce(receivers, '{}');
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.announce_approval(cortex.approval,text,uuid,text) FROM PUBLIC;

CREATE FUNCTION cortex.approval_announces()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM cortex.subscription) THEN
        PERFORM cortex.announce_approval(
            NEW, CASE NEW.status WHEN 'PENDING' THEN 'approval.requested' WHEN 'EXPIRED' THEN 'approval.expired'
                                 ELSE 'approval.decided' END, cortex.uuid7(), NULL);
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.approval_announces() FROM PUBLIC;

CREATE TRIGGER approval_requested AFTER INSERT ON cortex.approval FOR EACH ROW EXECUTE FUNCTION cortex.approval_announces();

CREATE TRIGGER approval_decided AFTER UPDATE OF status ON cortex.approval FOR EACH ROW WHEN (new.status <> old.status) EXECUTE FUNCTION cortex.approval_announces();

-- Reminds of up to this many requests that have waited for half, or for nine tenths, of their time. Returns how many; null while another process does this.
CREATE FUNCTION cortex.remind_approvals(most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    held cortex.approval;
    second timestamptz;
    is_second boolean;
    passed int := 0;
BEGIN
    IF NOT cortex.take_turn('remind_approvals') THEN
        RETURN NULL;
    END IF;
    FOR held IN
        SELECT a.* FROM cortex.approval a WHERE a.status = 'PENDING' AND a.remind_at <= cortex.now()
        ORDER BY a.remind_at LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        second := held.created_at + 0.9 * (held.expires_at - held.created_at);
        is_second := held.remind_at >= second OR cortex.now() >= second;
        -- With the message: no process can remind of the same stage again, and none after the decision.
        UPDATE cortex.approval a SET remind_at = CASE WHEN NOT is_second THEN second END WHERE a.id = held.id;
        passed := passed + 1;
        IF held.expires_at > cortex.now() THEN
            PERFORM cortex.announce_approval(
                held, 'approval.reminder', cortex.uuid7(), CASE WHEN is_second THEN '90 %' ELSE '50 %' END);
        END IF;
    END LOOP;
    RETURN passed;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.remind_approvals(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.remind_approvals(integer) TO cortex_runtime;

-- Reminds of one request, if it still waits, by a message of this id; the same id reminds once. Returns its state and the subscriptions that got the message; no row if there is no such request.
CREATE FUNCTION cortex.remind_approval(of_approval uuid, message uuid)
 RETURNS TABLE(status text, receivers text[])
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    held cortex.approval;
BEGIN
    SELECT a.* INTO held FROM cortex.approval a WHERE a.id = of_approval FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    ELSIF held.status = 'PENDING' AND held.expires_at > cortex.now() THEN
        PERFORM cortex.announce_approval(held, 'approval.reminder', message, 'requested');
    END IF;
    RETURN QUERY SELECT CASE WHEN held.status = 'PENDING' AND held.expires_at <= cortex.now() THEN 'EXPIRED'
                             ELSE held.status END,
                        ARRAY(SELECT o.subscription FROM cortex.outbox o WHERE o.id = message ORDER BY o.subscription);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.remind_approval(uuid,uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.remind_approval(uuid,uuid) TO cortex_runtime;

-- Gives a message that could not be sent to the fallback of its subscription, in the transaction that gives it up.
CREATE FUNCTION cortex.message_escalates()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    next_one text;
BEGIN
    SELECT s.fallback INTO next_one FROM cortex.subscription s
    WHERE s.name = NEW.subscription AND s.fallback IS NOT NULL
      -- Subscribed itself, or the head of the chain: it has this message.
      AND NOT EXISTS (SELECT FROM cortex.outbox o WHERE o.id = NEW.id AND o.subscription = s.fallback);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.topic IN ('approval.requested', 'approval.reminder') THEN
        -- Decided meanwhile: nobody is needed any more. Whoever decides concurrently waits, and sees this receiver.
        PERFORM FROM cortex.approval a
        WHERE a.id = (NEW.payload->>'approval')::uuid AND a.status = 'PENDING' FOR SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        INSERT INTO cortex.approval_notice (approval_id, subscription)
        VALUES ((NEW.payload->>'approval')::uuid, next_one) ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, subscription, escalated_from)
    VALUES (NEW.id, NEW.topic, NEW.key, NEW.payload, NEW.headers, NEW.tenant, NEW.trace, next_one, NEW.subscription)
    ON CONFLICT DO NOTHING;
    PERFORM pg_notify('cortex_outbox', 'message');
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.message_escalates() FROM PUBLIC;

CREATE TRIGGER message_escalates AFTER UPDATE OF status ON cortex.outbox FOR EACH ROW WHEN (new.status = 'FAILED'::text AND old.status <> 'FAILED'::text) EXECUTE FUNCTION cortex.message_escalates();

CREATE FUNCTION cortex.breaker_announces()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    content CONSTANT jsonb := jsonb_strip_nulls(jsonb_build_object(
        'breaker', NEW.name, 'state', NEW.state, 'failures', greatest(NEW.failures, OLD.failures),
        'opened_at', coalesce(NEW.opened_at, OLD.opened_at), 'open_until', NEW.open_until, 'by', NEW.forced_by,
        'reason', left(NEW.forced_reason, 500), 'error', left(coalesce(NEW.last_error, OLD.last_error), 500),
        'tenant', 'default'));
BEGIN
    IF OLD.state = 'CLOSED' AND NEW.state <> 'CLOSED' THEN
        PERFORM cortex.announce('breaker.opened', NEW.name, content);
    ELSIF OLD.state <> 'CLOSED' AND NEW.state = 'CLOSED' THEN
        PERFORM cortex.announce('breaker.closed', NEW.name, content);
    END IF;
    IF OLD.escalated_at IS NULL AND NEW.escalated_at IS NOT NULL THEN
        PERFORM cortex.announce('breaker.escalated', NEW.name, content);
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.breaker_announces() FROM PUBLIC;

CREATE TRIGGER breaker_announces AFTER UPDATE ON cortex.breaker FOR EACH ROW WHEN ((old.state = 'CLOSED'::text) <> (new.state = 'CLOSED'::text) OR old.escalated_at IS NULL AND new.escalated_at IS NOT NULL) EXECUTE FUNCTION cortex.breaker_announces();

CREATE FUNCTION cortex.pod_died()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM cortex.announce('pod.died', NEW.id::text, jsonb_strip_nulls(jsonb_build_object(
        'pod', NEW.id, 'name', NEW.name, 'version', NEW.version, 'heartbeat_at', NEW.heartbeat_at, 'phase', NEW.phase,
        'tenant', 'default')));
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.pod_died() FROM PUBLIC;

CREATE TRIGGER pod_died AFTER UPDATE OF state ON cortex.pod FOR EACH ROW WHEN (new.state = 'DEAD'::text AND old.state <> 'DEAD'::text) EXECUTE FUNCTION cortex.pod_died();

CREATE FUNCTION cortex.effect_is_unknown()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM cortex.announce('effect.unknown', NEW.job_id::text, jsonb_strip_nulls(jsonb_build_object(
        'effect', NEW.id, 'job', NEW.job_id, 'agent', cortex.agent_name(NEW.agent_id), 'tenant', NEW.tenant,
        'tool', NEW.tool, 'step', NEW.key, 'why', left(NEW.why, 500))), NEW.tenant, cortex.traceparent_of(NEW.job_id));
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.effect_is_unknown() FROM PUBLIC;

CREATE TRIGGER effect_is_unknown AFTER UPDATE OF status ON cortex.effect FOR EACH ROW WHEN (new.status = 'UNKNOWN'::text AND old.status <> 'UNKNOWN'::text) EXECUTE FUNCTION cortex.effect_is_unknown();

CREATE FUNCTION cortex.credentials_refused()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- Once until they work again: the runner alarms notices that.
    INSERT INTO cortex.alarm (topic, key, announced_at) VALUES ('auth.failed', NEW.source, cortex.now())
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM cortex.announce('auth.failed', NEW.source, jsonb_strip_nulls(jsonb_build_object(
            'source', NEW.source, 'code', NEW.subtype, 'job', NEW.job_id, 'agent', cortex.agent_name(NEW.agent_id),
            'tenant', NEW.tenant, 'error', left(NEW.data->>'message', 500))), NEW.tenant,
            cortex.traceparent_of(NEW.job_id));
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.credentials_refused() FROM PUBLIC;

CREATE TRIGGER credentials_refused AFTER INSERT ON cortex.fact FOR EACH ROW WHEN (new.type = 'error'::text AND (new.subtype = ANY (ARRAY['authentication'::text, 'permission'::text])) AND (new.source ~~ 'llm:%'::text OR new.source ~~ 'notify:%'::text)) EXECUTE FUNCTION cortex.credentials_refused();

CREATE FUNCTION cortex.step_publishes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- What it may refuse was checked before the step: here it would refuse the steps of other jobs, too.
    PERFORM cortex.publish_as(
        cortex.uuid7(), NEW.output->>'topic', (NEW.output->'payload')::jsonb, NEW.output->>'key', j.tenant, '{}',
        cortex.traceparent(j.id, j.traceparent))
    FROM cortex.job_record j WHERE j.id = NEW.job_id;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.step_publishes() FROM PUBLIC;

CREATE TRIGGER step_publishes AFTER INSERT ON cortex.job_step FOR EACH ROW WHEN (new.kind = 'message'::text AND new.attempt > 0) EXECUTE FUNCTION cortex.step_publishes();

-- Which clients wait right now for the end of which jobs: these ends are notified. Transient, lost in a crash.
CREATE UNLOGGED TABLE cortex.waiting_client (
    job_id uuid NOT NULL,  -- The job. No foreign key: a wait is short-lived.
    client uuid NOT NULL,  -- The client: random, new with each connection. Its channel has this name, which only the client knows.
    until timestamptz NOT NULL,  -- When the row expires: its client renews it while it waits.
    CONSTRAINT waiting_client_pkey PRIMARY KEY (job_id, client)
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000);
CREATE INDEX waiting_client_until ON cortex.waiting_client USING btree (until);
GRANT SELECT ON cortex.waiting_client TO cortex_runtime;

-- Notifies the clients that wait for these jobs, which end in this transaction. Called by the history of jobs.
CREATE FUNCTION cortex.notify_clients(jobs uuid[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- Only reads: a lock here would hold up the ends of jobs.
    PERFORM pg_notify('cortex_client_' || replace(w.client::text, '-', ''), string_agg(w.job_id::text, ','))
    FROM (
        SELECT c.client, c.job_id, row_number() OVER (PARTITION BY c.client) / 200 AS part
        FROM cortex.waiting_client c WHERE c.job_id = ANY (jobs) AND c.until > cortex.now()) w
    GROUP BY w.client, w.part;
END $function$;

-- Notifies a client of the ends of these jobs from now on, for at most 60 seconds: those that the caller may read. The channel is cortex_client_ and the hex digits of the client's id. A job may have ended just before: look afterwards.
CREATE FUNCTION cortex.wait_for_jobs(client uuid, jobs uuid[], lapse_s double precision)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
BEGIN
    DELETE FROM cortex.waiting_client c USING (
        SELECT o.job_id, o.client FROM cortex.waiting_client o
        WHERE o.until < cortex.now() ORDER BY o.until LIMIT 1000 FOR UPDATE SKIP LOCKED) lapsed
    WHERE c.job_id = lapsed.job_id AND c.client = lapsed.client;
    INSERT INTO cortex.waiting_client AS c (job_id, client, until)
    SELECT j.id, wait_for_jobs.client, cortex.now() + least(lapse_s, 60) * interval '1 second'
    FROM (SELECT DISTINCT unnest(jobs) AS id) asked JOIN cortex.job_record j ON j.id = asked.id
    WHERE j.finished_at IS NULL AND (cortex.caller_is_runtime() OR cortex.caller_submitted(j.submitted_with))
      AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
    ORDER BY j.id
    ON CONFLICT ON CONSTRAINT waiting_client_pkey DO UPDATE SET until = excluded.until;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.wait_for_jobs(uuid,uuid[],double precision) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.wait_for_jobs(uuid,uuid[],double precision) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.wait_for_jobs(uuid,uuid[],double precision) TO cortex_runtime;

-- Of the given jobs, those that have ended, those that wait for code, and those that do not exist for the caller (without a status). Beyond this size, as stored, further results are left out; the first is complete, whatever its size.
CREATE FUNCTION cortex.job_results(jobs uuid[], bytes_max bigint)
 RETURNS TABLE(id uuid, status text, error_code text, error_class text, error_message text, cancelled_by text, cancel_reason text, finished_at timestamp with time zone, misfit text, is_whole boolean, result text)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
SELECT e.id, e.status, e.error_code, e.error_class, e.error_message, e.cancelled_by, e.cancel_reason, e.finished_at,
       e.misfit, e.before < $2 AS is_whole, CASE WHEN e.before < $2 THEN e.result::text END AS result
FROM (
    SELECT asked.id, j.status::text, j.error_code, j.error_class, j.error_message, j.cancelled_by, j.cancel_reason,
           j.finished_at, j.result, CASE WHEN j.finished_at IS NULL THEN (
               SELECT a.error FROM cortex.job_attempt a WHERE a.job_id = j.id AND a.outcome = 'misfit'
               ORDER BY a.attempt DESC LIMIT 1) END AS misfit,
           coalesce(sum(pg_column_size(j.result)) OVER (
               ORDER BY asked.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM unnest($1) WITH ORDINALITY AS asked(id, n)
    LEFT JOIN cortex.job j ON j.id = asked.id
        AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
        AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
    WHERE j.id IS NULL OR j.finished_at IS NOT NULL
       OR j.waiting_on = 'code'
) e;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_results(uuid[],bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.job_results(uuid[],bigint) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.job_results(uuid[],bigint) TO cortex_runtime;

-- What happened to each of several jobs after a position, in one snapshot: transitions, ended attempts, committed steps, and the claim of a new attempt. Returns the positions, from 1, of those to which something happened, of those that have ended, and of those that do not exist for the caller (without a status). is_cut: there are more steps, whose chunks would make it too large.
CREATE FUNCTION cortex.job_events(jobs uuid[], history_ids bigint[], ended_attempts integer[], seqs integer[], claimed_attempts integer[], rows_max integer)
 RETURNS TABLE(n integer, status text, is_ended boolean, history jsonb, attempts jsonb, steps jsonb, claim jsonb, is_cut boolean)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
SELECT asked.n::int AS n, j.status::text AS status, j.finished_at IS NOT NULL AS is_ended, h.rows AS history,
       e.rows AS attempts, s.rows AS steps, CASE WHEN t.locked_by IS NOT NULL THEN
           jsonb_build_object('attempt', j.attempt, 'at', t.locked_at, 'pod', p.name, 'code_version', c.version)
       END AS claim, coalesce(s.is_cut, false) AS is_cut
FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS asked(job_id, history_id, ended_attempt, seq, claimed_attempt, n)
LEFT JOIN cortex.job j ON j.id = asked.job_id
    AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
    AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.id) AS rows FROM (
        SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata, hp.name AS pod, hc.version AS code_version
        FROM cortex.job_history h LEFT JOIN cortex.pod hp ON hp.id = h.pod_id
        LEFT JOIN cortex.code hc ON hc.id = hp.code_id
        WHERE h.job_id = j.id AND h.id > asked.history_id ORDER BY h.id LIMIT $6) r) h ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.attempt) AS rows FROM (
        SELECT a.attempt, a.outcome, a.ended_at, a.due_at, a.error, a.error_class, a.error_code, a.error_source,
               a.retry_count, ap.name AS pod, ac.version AS code_version
        FROM cortex.job_attempt a LEFT JOIN cortex.pod ap ON ap.id = a.pod_id
        LEFT JOIN cortex.code ac ON ac.id = ap.code_id
        WHERE a.job_id = j.id AND a.attempt > asked.ended_attempt ORDER BY a.attempt LIMIT $6) r) e ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(to_jsonb(r) - 'bytes' - CASE WHEN r.kind = 'emit' THEN '' ELSE 'chunk' END ORDER BY r.seq)
               FILTER (WHERE r.bytes <= 1048576) AS rows,
           bool_or(r.bytes > 1048576) AS is_cut FROM (
        SELECT s.*, sum(coalesce(octet_length(s.chunk::text), 0)) OVER (ORDER BY s.seq) AS bytes FROM (
            SELECT s.seq, s.attempt, s.kind, s.key, s.started_at, s.finished_at, s.cost_usd, s.usage,
                   CASE WHEN s.kind = 'emit' THEN s.output END AS chunk
            FROM cortex.job_step s
            WHERE s.job_id = j.id AND s.seq > asked.seq ORDER BY s.seq LIMIT $6) s) r) s ON true
LEFT JOIN cortex_worker.task t ON t.job_id = j.id AND j.attempt > asked.claimed_attempt
LEFT JOIN cortex.pod p ON p.id = t.locked_by
LEFT JOIN cortex.code c ON c.id = p.code_id
WHERE j.id IS NULL OR j.finished_at IS NOT NULL OR h.rows IS NOT NULL OR e.rows IS NOT NULL OR s.rows IS NOT NULL
   OR t.locked_by IS NOT NULL
ORDER BY asked.n;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_events(uuid[],bigint[],integer[],integer[],integer[],integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.job_events(uuid[],bigint[],integer[],integer[],integer[],integer) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.job_events(uuid[],bigint[],integer[],integer[],integer[],integer) TO cortex_runtime;

-- What a job has published: its state, and how far it has come. No row: it does not exist for the caller.
CREATE FUNCTION cortex.job_shows(job uuid)
 RETURNS TABLE(state jsonb, done double precision, total double precision, unit text, at timestamp with time zone)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN QUERY
    SELECT coalesce(p.state, '{}'), p.done, p.total, p.unit, p.at
    FROM cortex.job_record j LEFT JOIN cortex.job_published p ON p.job_id = j.id
    WHERE j.id = job AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
      AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.job_shows(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.job_shows(uuid) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.job_shows(uuid) TO cortex_runtime;

-- A job type, and the arguments that the codes of the pods take that serve it. is_exact leaves out pods whose session has ended, which others have not marked dead yet. Ready pods that a person drains, or that are silent, do not serve it.
CREATE FUNCTION cortex.served_type(type text, is_exact boolean)
 RETURNS TABLE(is_served boolean, timeout_s integer, others text[], codes json)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
WITH living AS MATERIALIZED (
    SELECT p.code_id FROM cortex.pod p
    WHERE p.state = 'READY' AND $1 = ANY (p.job_types) AND p.drain_requested_at IS NULL
      AND p.heartbeat_at >= cortex.now() - p.silent_after_s * interval '1 second'
      AND (NOT $2 OR p.liveness = 'heartbeat' OR p.id IN (SELECT cortex.connected_pods()))
)
SELECT EXISTS (SELECT FROM living) AS is_served, t.timeout_s,
       CASE WHEN t.name IS NULL THEN ARRAY(SELECT o.name FROM cortex.job_type o ORDER BY o.name) ELSE '{}' END AS others,
       (SELECT coalesce(json_agg(json_build_object('version', c.version, 'schema', a.schema) ORDER BY c.id DESC), '[]')
        FROM cortex.code_arguments a JOIN cortex.code c ON c.id = a.code_id
        WHERE a.type = $1 AND a.code_id IN (SELECT code_id FROM living)) AS codes
FROM (VALUES ($1)) AS asked(name) LEFT JOIN cortex.job_type t ON t.name = asked.name;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.served_type(text,boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.served_type(text,boolean) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.served_type(text,boolean) TO cortex_runtime;

-- What code of jobs logged and printed, line by line. Deleted with the job, and by age.
CREATE TABLE cortex.log_line (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of arrival; with two pods, the later line may have the lower one.
    job_id uuid NOT NULL,  -- The job. No foreign key: see above.
    attempt integer NOT NULL,  -- The attempt that wrote it.
    number bigint NOT NULL,  -- Order within the attempt: a batch that is sent twice is stored once.
    at timestamptz NOT NULL,  -- When it was written, by the database's clock.
    level smallint NOT NULL,  -- 10 debug, 20 info, 30 warning, 40 error, 50 critical.
    step text,  -- Key of the step that wrote it; null: the handler itself.
    source text,  -- The logger's name, stdout or stderr; null: ctx.log.
    message text NOT NULL,  -- The text, without secrets, cut if it was long.
    fields jsonb,  -- What was logged beside the text, by name.
    dropped bigint,  -- Lines that are missing at this place; the message says why.
    CONSTRAINT log_line_pkey PRIMARY KEY (id),
    CONSTRAINT log_line_once UNIQUE (job_id, attempt, number),
    CONSTRAINT log_line_attempt_check CHECK (attempt >= 1),
    CONSTRAINT log_line_dropped_check CHECK (dropped >= 1),
    CONSTRAINT log_line_fields_check CHECK (pg_column_size(fields) <= 65536),
    CONSTRAINT log_line_level_check CHECK (level = ANY (ARRAY[10, 20, 30, 40, 50])),
    CONSTRAINT log_line_message_check CHECK (length(message) <= 9000),
    CONSTRAINT log_line_number_check CHECK (number >= 1)
) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=1);
CREATE INDEX log_line_trouble ON cortex.log_line USING btree (id) WHERE level >= 30;
GRANT INSERT, SELECT ON cortex.log_line TO cortex_runtime;
GRANT SELECT ON cortex.log_line TO cortex_reader;

-- Deletes the oldest lines as far as they were written this long ago, at least a minute. Returns how many.
CREATE FUNCTION cortex.forget_lines(kept_s double precision, most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 60) * interval '1 second';
    deleted int;
BEGIN
    -- Mostly there is nothing to do: one line says so.
    IF NOT coalesce((SELECT l.at < old FROM cortex.log_line l ORDER BY l.id LIMIT 1), false) THEN
        RETURN 0;
    END IF;
    DELETE FROM cortex.log_line o USING (
        SELECT l.id, l.at FROM cortex.log_line l ORDER BY l.id LIMIT most) oldest
    WHERE o.id = oldest.id AND oldest.at < old;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_lines(double precision,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_lines(double precision,integer) TO cortex_runtime;

-- Whether the session's login owns the schema, or is a superuser: commands that several people share use such logins.
CREATE FUNCTION cortex.caller_is_owner()
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (SELECT pg_has_role(SESSION_USER, n.nspowner, 'MEMBER'::text) AS pg_has_role FROM pg_namespace n WHERE (n.nspname = 'cortex'::name));

-- Whether the session's login may act as a person without a token: the owner's, or a member of cortex_operator.
CREATE FUNCTION cortex.caller_is_operator()
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (cortex.caller_is_owner() OR (EXISTS (SELECT FROM pg_roles r WHERE ((r.rolname = 'cortex_operator'::name) AND pg_has_role(SESSION_USER, r.oid, 'MEMBER'::text)))));

-- Whether a statement runs with the owner's rights, as in the functions of this file; never with those of pods.
CREATE FUNCTION cortex.writes_as_owner()
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (SELECT pg_has_role(CURRENT_USER, n.nspowner, 'MEMBER'::text) AS pg_has_role FROM pg_namespace n WHERE (n.nspname = 'cortex'::name));

-- Whose a credential is, valid or not: token:ID, os:UID or db:LOGIN; null: nobody's.
CREATE FUNCTION cortex.credential_person(of_credential text)
 RETURNS uuid
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE
    WHEN of_credential ~ '^token:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    THEN (SELECT t.person_id FROM cortex.api_token t WHERE t.id = substr(of_credential, 7)::uuid)
    ELSE (SELECT c.person_id FROM cortex.person_credential c WHERE c.credential = of_credential) END $function$;
REVOKE EXECUTE ON FUNCTION cortex.credential_person(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.credential_person(text) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.credential_person(text) TO cortex_reader;

-- The credential to record for who names this one: that of the login without any, and if the login is a person's, whatever operating-system user its command names.
CREATE FUNCTION cortex.acting_credential(named text)
 RETURNS text
 LANGUAGE sql
 STABLE
RETURN CASE WHEN ((COALESCE(named, ''::text) = ''::text) OR ((named ~~ 'os:%'::text) AND (cortex.credential_person(('db:'::text || (SESSION_USER)::text)) IS NOT NULL))) THEN ('db:'::text || (SESSION_USER)::text) ELSE named END;

-- The token that a token's or a session's digest stands for, valid or not.
CREATE FUNCTION cortex.holder_of_digest(of_digest bytea)
 RETURNS TABLE(token_id uuid, person_id uuid, name text, roles text[], tenant text, is_revoked boolean, is_expired boolean)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT t.id, p.id, p.name, t.roles, t.tenant, t.revoked_at IS NOT NULL OR p.disabled_at IS NOT NULL,
       coalesce(t.expires_at <= cortex.now(), false)
FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
WHERE t.id = coalesce(
    (SELECT k.id FROM cortex.api_token k WHERE k.digest = of_digest),
    (SELECT s.token_id FROM cortex.api_session s WHERE s.digest = of_digest AND s.expires_at > cortex.now())) $function$;
REVOKE EXECUTE ON FUNCTION cortex.holder_of_digest(bytea) FROM PUBLIC;

-- The person of an operating-system user, who becomes one by acting for the first time. Called by person_of only.
CREATE FUNCTION cortex.person_of_user(caller jsonb)
 RETURNS uuid
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    own CONSTANT text := 'os:' || (caller->>'uid')::bigint;
    person uuid := cortex.credential_person(own);
    called CONSTANT text := coalesce(caller->>'user', replace(own, ':', '-'));
BEGIN
    IF person IS NOT NULL THEN
        RETURN person;
    END IF;
    -- Somebody who acts for the first time, as this user of whatever host. Two at once wait here for each other.
    INSERT INTO cortex.person AS p (name, skeleton, created_by)
    VALUES (called, coalesce(caller->>'skeleton', called), own) ON CONFLICT DO NOTHING RETURNING p.id INTO person;
    IF person IS NULL THEN
        person := cortex.credential_person(own);
        IF person IS NULL THEN
            RAISE EXCEPTION 'operating-system user % (uid %) belongs to no person, and a person with such a name exists',
                called, caller->>'uid'
                USING ERRCODE = 'insufficient_privilege',
                      HINT = format('say whose it is: cortex people add NAME --os %s', caller->>'uid');
        END IF;
        RETURN person;
    END IF;
    INSERT INTO cortex.person_credential (credential, person_id, created_by) VALUES (own, person, own);
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'person_created', 'person:' || called,
            jsonb_build_object('by', called, 'person_id', person, 'credential', own, 'host', caller->>'host'));
    RETURN person;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.person_of_user(jsonb) FROM PUBLIC;

-- Who a caller is, with the right that is needed: the person, the name to record with the label beside it, the credential, whether it is a token or a login of that person alone, and the only tenant that it is for. Raises insufficient_privilege. Without `must_be_person` an administering login that belongs to nobody is named by itself. Called by the functions that only people may call; needed: approver, operator or admin.
CREATE FUNCTION cortex.person_of(caller jsonb, needed text, must_be_person boolean)
 RETURNS TABLE(person_id uuid, name text, credential text, is_own boolean, tenant text)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    held record;
    login CONSTANT text := 'db:' || session_user;
    proof CONSTANT bytea := decode(caller->>'digest', 'hex');
BEGIN
    IF proof IS NOT NULL THEN
        SELECT * INTO held FROM cortex.holder_of_digest(proof);
        IF NOT FOUND OR held.is_revoked OR held.is_expired THEN
            RAISE EXCEPTION 'this token or session is not valid, or no longer'
                USING ERRCODE = 'insufficient_privilege', HINT = 'sign in again, or create another: cortex tokens create';
        ELSIF NOT held.roles && ARRAY[needed, 'admin'] THEN
            RAISE EXCEPTION 'this needs the role %; % has: %', needed, held.name, array_to_string(held.roles, ', ')
                USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin for a token that has it';
        END IF;
        person_id := held.person_id;
        tenant := held.tenant;
        credential := 'token:' || held.token_id;
        is_own := true;
    ELSIF NOT cortex.caller_is_operator() THEN
        RAISE EXCEPTION 'database login % may not act for a person', session_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('set CORTEX_TOKEN, or an administrator runs: GRANT cortex_operator TO %I', session_user);
    ELSE
        person_id := cortex.credential_person(login);
        credential := login;
        is_own := person_id IS NOT NULL;
        IF person_id IS NULL AND cortex.caller_is_owner() AND caller ? 'uid' THEN
            person_id := cortex.person_of_user(caller);
            credential := 'os:' || (caller->>'uid')::bigint;
        END IF;
    END IF;
    SELECT p.name, p.disabled_at INTO held FROM cortex.person p WHERE p.id = person_id;
    IF held.disabled_at IS NOT NULL THEN
        RAISE EXCEPTION 'person % is disabled', held.name
            USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin: cortex people enable';
    ELSIF person_id IS NULL AND must_be_person THEN
        RAISE EXCEPTION 'database login % belongs to no person', session_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('set CORTEX_TOKEN, or say whose it is: cortex people add NAME --login %s', session_user);
    END IF;
    name := coalesce(held.name, session_user);
    name := left(name || coalesce(' (' || nullif(caller->>'as', name) || ')', ''), 200);
    RETURN NEXT;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.person_of(jsonb,text,boolean) FROM PUBLIC;

-- Who a caller is that acts on the whole installation: as person_of says, but no token of one tenant.
CREATE FUNCTION cortex.person_of_all(caller jsonb, needed text)
 RETURNS TABLE(person_id uuid, name text, credential text)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, needed, false);
    IF who.tenant IS NOT NULL THEN
        RAISE EXCEPTION 'this is about all tenants; the token of % is of tenant %', who.name, who.tenant
            USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin for a token of all tenants';
    END IF;
    RETURN QUERY SELECT who.person_id, who.name, who.credential;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.person_of_all(jsonb,text) FROM PUBLIC;

-- Who a caller would act as, for screens: nothing is checked, and nobody is made. Null: not known yet.
CREATE FUNCTION cortex.known_person(caller jsonb)
 RETURNS TABLE(person_id uuid, credential text)
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    IF caller ? 'digest' THEN
        RETURN QUERY SELECT h.person_id, 'token:' || h.token_id FROM cortex.holder_of_digest(decode(caller->>'digest', 'hex')) h;
    ELSIF cortex.credential_person('db:' || session_user) IS NOT NULL THEN
        RETURN QUERY SELECT cortex.credential_person('db:' || session_user), 'db:' || session_user;
    ELSE
        RETURN QUERY SELECT cortex.credential_person('os:' || (caller->>'uid')), 'os:' || (caller->>'uid');
    END IF;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.known_person(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.known_person(jsonb) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.known_person(jsonb) TO cortex_reader;

-- The person of a name, who is made if there is none. Raises unique_violation for a name that can be confused with another one.
CREATE FUNCTION cortex.found_person(called text, its_skeleton text, by_name text)
 RETURNS uuid
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found record;
BEGIN
    INSERT INTO cortex.person AS p (name, skeleton, created_by) VALUES (called, its_skeleton, by_name)
    ON CONFLICT DO NOTHING RETURNING p.id INTO found;
    IF found.id IS NOT NULL THEN
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'person_created', 'person:' || called, jsonb_build_object('by', by_name, 'person_id', found.id));
        RETURN found.id;
    END IF;
    SELECT p.id, p.name, p.disabled_at INTO found FROM cortex.person p WHERE p.name = called OR p.skeleton = its_skeleton
    ORDER BY p.name = called DESC LIMIT 1;
    IF found.name <> called THEN
        RAISE EXCEPTION 'the name "%" can be confused with "%", who exists', called, found.name
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'person_skeleton_key', HINT = 'give another name';
    ELSIF found.disabled_at IS NOT NULL THEN
        RAISE EXCEPTION 'person % is disabled', called
            USING ERRCODE = 'check_violation', HINT = format('enable it first: cortex people enable %s', called);
    END IF;
    RETURN found.id;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.found_person(text,text,text) FROM PUBLIC;

-- Makes a person, or finds the one of this name, and gives them credentials: os:UID, db:LOGIN. Those of another person pass over; what was voted with them counts for the new one. Needs the role admin.
CREATE FUNCTION cortex.add_person(called text, its_skeleton text, credentials text[], caller jsonb, why text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    person uuid;
    given text;
    before uuid;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'admin');
    person := cortex.found_person(called, its_skeleton, who.name);
    FOREACH given IN ARRAY credentials LOOP
        before := cortex.credential_person(given);
        CONTINUE WHEN before = person;
        INSERT INTO cortex.person_credential AS c (credential, person_id, created_by) VALUES (given, person, who.name)
        ON CONFLICT ON CONSTRAINT person_credential_pkey
        DO UPDATE SET person_id = excluded.person_id, created_by = excluded.created_by, created_at = cortex.now();
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'person_mapped', 'person:' || called, jsonb_build_object(
            'by', who.name, 'reason', why, 'person_id', person, 'credential', given,
            'before', (SELECT p.name FROM cortex.person p WHERE p.id = before)));
    END LOOP;
    RETURN person;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.add_person(text,text,text[],jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.add_person(text,text,text[],jsonb,text) TO cortex_runtime;

-- Disables a person, whose credentials are not valid from then on, or enables them again: changed, unchanged or missing. Needs the role admin.
CREATE FUNCTION cortex.switch_person(called text, is_enabled boolean, caller jsonb, why text)
 RETURNS text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    held record;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'admin');
    SELECT p.id, p.disabled_at IS NULL AS was_enabled INTO held FROM cortex.person p WHERE p.name = called FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF held.was_enabled = is_enabled THEN
        RETURN 'unchanged';
    END IF;
    UPDATE cortex.person p
    SET disabled_at = CASE WHEN NOT is_enabled THEN cortex.now() END, disabled_by = CASE WHEN NOT is_enabled THEN who.name END
    WHERE p.id = held.id;
    IF NOT is_enabled THEN
        DELETE FROM cortex.api_session s USING cortex.api_token t WHERE s.token_id = t.id AND t.person_id = held.id;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', CASE WHEN is_enabled THEN 'person_enabled' ELSE 'person_disabled' END, 'person:' || called,
            jsonb_build_object('by', who.name, 'reason', why, 'person_id', held.id));
    RETURN 'changed';
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.switch_person(text,boolean,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.switch_person(text,boolean,jsonb,text) TO cortex_runtime;

-- Creates a token for the person of a name, who is made if there is none. Needs the role admin. No row if the id or the digest exists already.
CREATE FUNCTION cortex.create_token(new_id uuid, holder text, its_skeleton text, new_digest bytea, with_roles text[], lasts_s double precision, caller jsonb, why text, of_tenant text)
 RETURNS TABLE(id uuid, name text, roles text[], tenant text, created_by text, created_at timestamp with time zone, expires_at timestamp with time zone, revoked_at timestamp with time zone, revoked_by text, last_used_at timestamp with time zone, now timestamp with time zone)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    who record;
    person uuid;
    made cortex.api_token;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'admin', false);
    IF who.tenant IS DISTINCT FROM of_tenant AND who.tenant IS NOT NULL THEN
        RAISE EXCEPTION 'the token of % is for tenant % only', who.name, who.tenant USING ERRCODE = 'insufficient_privilege';
    END IF;
    person := cortex.found_person(holder, its_skeleton, who.name);
    INSERT INTO cortex.api_token AS t (id, name, person_id, digest, roles, expires_at, created_by, tenant)
    VALUES (
        new_id, holder, person, new_digest, with_roles, cortex.now() + lasts_s * interval '1 second', who.name, of_tenant)
    ON CONFLICT DO NOTHING RETURNING t.* INTO made;
    IF made.id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'token_created', 'token:' || holder, jsonb_build_object(
        'by', who.name, 'reason', why, 'token_id', new_id, 'roles', with_roles, 'expires_at', made.expires_at,
        'tenant', of_tenant));
    RETURN QUERY SELECT made.id, made.name, made.roles, made.tenant, made.created_by, made.created_at, made.expires_at,
                        made.revoked_at, made.revoked_by, made.last_used_at, cortex.now();
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.create_token(uuid,text,text,bytea,text[],double precision,jsonb,text,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.create_token(uuid,text,text,bytea,text[],double precision,jsonb,text,text) TO cortex_runtime;

-- Revokes a token and ends its sessions. Needs the role admin. No row if there is none.
CREATE FUNCTION cortex.revoke_token(of_token uuid, caller jsonb, why text)
 RETURNS TABLE(id uuid, name text, revoked_by text, revoked_at timestamp with time zone, was_revoked boolean)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    who record;
    held cortex.api_token;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'admin', false);
    SELECT t.* INTO held FROM cortex.api_token t
    WHERE t.id = of_token AND (who.tenant IS NULL OR t.tenant = who.tenant) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    was_revoked := held.revoked_at IS NOT NULL;
    IF NOT was_revoked THEN
        UPDATE cortex.api_token t SET revoked_at = cortex.now(), revoked_by = who.name WHERE t.id = of_token
        RETURNING t.* INTO held;
        DELETE FROM cortex.api_session s WHERE s.token_id = of_token;
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'token_revoked', 'token:' || held.name,
                jsonb_build_object('by', who.name, 'reason', why, 'token_id', of_token));
    END IF;
    RETURN QUERY SELECT held.id, held.name, held.revoked_by, held.revoked_at, was_revoked;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.revoke_token(uuid,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.revoke_token(uuid,jsonb,text) TO cortex_runtime;

-- The token with a digest, and whether it is still valid; notes its use, once a minute. No row for an unknown digest.
CREATE FUNCTION cortex.use_token(of_digest bytea)
 RETURNS TABLE(id uuid, name text, roles text[], tenant text, is_revoked boolean, is_expired boolean)
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH noted AS (
    UPDATE cortex.api_token SET last_used_at = cortex.now()
    WHERE digest = of_digest AND revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true)
      AND coalesce(last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT t.id, t.name, t.roles, t.tenant, t.revoked_at IS NOT NULL OR p.disabled_at IS NOT NULL,
       coalesce(t.expires_at <= cortex.now(), false)
FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id WHERE t.digest = of_digest $function$;
REVOKE EXECUTE ON FUNCTION cortex.use_token(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.use_token(bytea) TO cortex_runtime;

-- Starts a session of a token's holder, by the digests of the cookie and of the token. No row for an invalid token.
CREATE FUNCTION cortex.sign_in(cookie bytea, of_digest bytea, lasts_s double precision)
 RETURNS TABLE(token_id uuid)
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH expired AS MATERIALIZED (
    SELECT digest FROM cortex.api_session WHERE expires_at <= cortex.now()
    ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.api_session s USING expired WHERE s.digest = expired.digest
), holder AS MATERIALIZED (
    SELECT t.id, t.name FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
    WHERE t.digest = of_digest AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
      AND p.disabled_at IS NULL
    FOR SHARE
), begun AS (
    INSERT INTO cortex.api_session (digest, token_id, expires_at)
    SELECT cookie, id, cortex.now() + lasts_s * interval '1 second' FROM holder
    RETURNING token_id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'signed_in', 'token:' || name, jsonb_build_object('by', name, 'token_id', id) FROM holder
)
SELECT token_id FROM begun $function$;
REVOKE EXECUTE ON FUNCTION cortex.sign_in(bytea,bytea,double precision) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.sign_in(bytea,bytea,double precision) TO cortex_runtime;

-- The token behind a valid session, by the digest of its cookie; notes its use. No row when either is not valid.
CREATE FUNCTION cortex.use_session(cookie bytea)
 RETURNS TABLE(id uuid, name text, roles text[], tenant text)
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH found AS MATERIALIZED (
    SELECT t.id, t.name, t.roles, t.tenant FROM cortex.api_session s JOIN cortex.api_token t ON t.id = s.token_id
    JOIN cortex.person p ON p.id = t.person_id
    WHERE s.digest = cookie AND s.expires_at > cortex.now() AND p.disabled_at IS NULL
      AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
), noted AS (
    UPDATE cortex.api_token t SET last_used_at = cortex.now()
    FROM found WHERE t.id = found.id AND coalesce(t.last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT found.id, found.name, found.roles, found.tenant FROM found $function$;
REVOKE EXECUTE ON FUNCTION cortex.use_session(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.use_session(bytea) TO cortex_runtime;

-- Ends a session, by the digest of its cookie.
CREATE FUNCTION cortex.sign_out(cookie bytea)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DELETE FROM cortex.api_session WHERE digest = cookie $function$;
REVOKE EXECUTE ON FUNCTION cortex.sign_out(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.sign_out(bytea) TO cortex_runtime;

-- The people who have said that this call of an effect was not applied, and whose word counts: each once, without those who are disabled.
CREATE FUNCTION cortex.effect_agreed_by(of_effect uuid, of_call integer)
 RETURNS text[]
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce(array_agg(w.person ORDER BY w.at, w.person), '{}') FROM (
    SELECT DISTINCT ON (p.id) v.person, v.at FROM cortex.effect_vote v
    JOIN cortex.person p ON p.id = coalesce(cortex.credential_person(v.credential), v.person_id)
    WHERE v.effect_id = of_effect AND v.call = of_call AND p.disabled_at IS NULL
    ORDER BY p.id, v.at) w $function$;
REVOKE EXECUTE ON FUNCTION cortex.effect_agreed_by(uuid,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.effect_agreed_by(uuid,integer) TO cortex_runtime;
GRANT EXECUTE ON FUNCTION cortex.effect_agreed_by(uuid,integer) TO cortex_reader;

-- How many different people agreed to these arguments: of a request that waits without those who are disabled.
CREATE FUNCTION cortex.agreed(of_approval uuid, to_digest bytea)
 RETURNS integer
 LANGUAGE sql
 STABLE
RETURN (SELECT (count(DISTINCT w.person))::integer AS count FROM (SELECT COALESCE(cortex.credential_person(v.credential), v.person_id, agreed.of_approval) AS person FROM cortex.approval_vote v WHERE ((v.approval_id = agreed.of_approval) AND (v.digest = agreed.to_digest))) w WHERE (NOT (EXISTS (SELECT FROM (cortex.person p JOIN cortex.approval a ON ((a.id = agreed.of_approval))) WHERE ((p.id = w.person) AND (p.disabled_at IS NOT NULL) AND (a.status = 'PENDING'::text))))));

-- Whether this person, by any credential, agreed to these arguments.
CREATE FUNCTION cortex.has_agreed(of_approval uuid, to_digest bytea, of_person uuid, with_credential text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (EXISTS (SELECT FROM cortex.approval_vote v WHERE ((v.approval_id = has_agreed.of_approval) AND (v.digest = has_agreed.to_digest) AND ((v.credential = has_agreed.with_credential) OR (v.person_id = has_agreed.of_person) OR (cortex.credential_person(v.credential) = has_agreed.of_person)))));

-- Whether a request is critical and this person is responsible for a job of its lineage, see involved: they do not agree to it.
CREATE FUNCTION cortex.is_own_request(of_risk text, of_lineage uuid, requested_by text, requested_with text, of_person uuid, of_name text, with_credential text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN CASE WHEN (of_risk = 'CRITICAL'::text) THEN (EXISTS (SELECT FROM (SELECT is_own_request.requested_with AS credential, is_own_request.requested_by AS name UNION ALL SELECT i.credential, i.name FROM cortex.involved(is_own_request.of_lineage) i(credential, name)) own WHERE ((own.credential = is_own_request.with_credential) OR (cortex.credential_person(own.credential) = is_own_request.of_person) OR (cortex.same_person(own.name) = cortex.same_person(is_own_request.of_name))))) ELSE false END;

-- The single way to decide, for people only: see person_of; `link` in the caller is the digest of the token of the request's link. approved · agreed (more people are needed) · denied, or why not: already · expired · changed · no_credential · shared_credential · own_request · not_editable · agreed_before · missing; again: to be repeated.
CREATE FUNCTION cortex.decide(of_approval uuid, is_approved boolean, caller jsonb, seen bytea, why text, by_channel text, by_address text, by_client text, edited json)
 RETURNS TABLE(outcome text, votes integer)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    owner uuid;
    its_task bigint;
    held cortex.approval;
    agreed int;
    stands json;
    stands_digest bytea;
    who record;
BEGIN
    SELECT a.job_id INTO owner FROM cortex.approval a WHERE a.id = of_approval;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', 0;
        RETURN;
    END IF;
    IF caller ? 'link' THEN
        SELECT NULL::uuid AS person_id, caller->>'name' AS name, NULL::text AS credential, false AS is_own,
               NULL::text AS tenant INTO who;
    ELSE
        SELECT * INTO who FROM cortex.person_of(caller, 'approver', true);
    END IF;
    -- In the order of all locks. After these, nothing can suspend, resume or end the job concurrently.
    SELECT t.id INTO its_task FROM cortex_worker.task t WHERE t.job_id = owner FOR UPDATE;
    PERFORM FROM cortex.job_record j WHERE j.id = owner AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE;
    IF NOT FOUND THEN
        -- It got its task, or lost it, during the wait for the locks: a concurrent suspend would not see this.
        RETURN QUERY SELECT 'again', 0;
        RETURN;
    END IF;
    SELECT * INTO held FROM cortex.approval a WHERE a.id = of_approval FOR UPDATE;
    stands := coalesce(edited, held.arguments);
    stands_digest := sha256(convert_to(stands::text, 'UTF8'));
    agreed := cortex.agreed(of_approval, held.digest);

    outcome := CASE
        WHEN who.tenant <> held.tenant THEN 'missing'
        WHEN held.status <> 'PENDING' THEN 'already'
        WHEN held.expires_at <= cortex.now() THEN 'expired'
        WHEN seen IS DISTINCT FROM held.digest THEN 'changed'
        WHEN who.credential IS NULL AND (
            held.people > 1 OR held.risk IN ('HIGH', 'CRITICAL') OR edited IS NOT NULL
            OR held.token_digest IS DISTINCT FROM decode(caller->>'link', 'hex')) THEN 'no_credential'
        WHEN NOT is_approved THEN NULL
        WHEN held.risk = 'CRITICAL' AND NOT who.is_own THEN 'shared_credential'
        WHEN cortex.is_own_request(
                held.risk, held.lineage_id, held.requested_by, held.requested_with, who.person_id, who.name, who.credential)
            THEN 'own_request'
        WHEN stands_digest <> held.digest AND held.schema IS NULL THEN 'not_editable'
        WHEN stands_digest = held.digest AND cortex.has_agreed(of_approval, held.digest, who.person_id, who.credential)
            THEN 'agreed_before'
        END;
    IF outcome IS NOT NULL THEN
        RETURN QUERY SELECT outcome, agreed;
        RETURN;
    END IF;

    IF NOT is_approved THEN
        UPDATE cortex.approval a
        SET status = 'DENIED', decided_at = cortex.now(), decided_by = who.name, decided_person = who.person_id,
            reason = why, channel = by_channel, address = by_address, client = by_client, token_digest = NULL,
            decided_with = who.credential
        WHERE a.id = of_approval;
        outcome := 'denied';
    ELSE
        INSERT INTO cortex.approval_vote (
            approval_id, person, person_id, digest, credential, channel, address, client, reason, old)
        SELECT of_approval, who.name, who.person_id, stands_digest, coalesce(who.credential, ''), by_channel, by_address,
               by_client, why, CASE WHEN stands_digest <> held.digest THEN held.arguments END
        -- Edited back to what this person agreed to before, it is no second vote.
        WHERE NOT cortex.has_agreed(of_approval, stands_digest, who.person_id, who.credential)
        ON CONFLICT DO NOTHING;
        agreed := cortex.agreed(of_approval, stands_digest);
        UPDATE cortex.approval a
        SET arguments = stands, digest = stands_digest,
            version = a.version + CASE WHEN stands_digest <> held.digest THEN 1 ELSE 0 END,
            edited_by = CASE WHEN stands_digest <> held.digest THEN who.name ELSE a.edited_by END,
            brief = CASE WHEN stands_digest <> held.digest THEN NULL ELSE a.brief END,
            status = CASE WHEN agreed >= a.people THEN 'APPROVED' ELSE 'PENDING' END,
            decided_at = CASE WHEN agreed >= a.people THEN cortex.now() END,
            decided_by = CASE WHEN agreed >= a.people THEN who.name END,
            decided_person = CASE WHEN agreed >= a.people THEN who.person_id END,
            decided_with = CASE WHEN agreed >= a.people THEN who.credential END,
            reason = CASE WHEN agreed >= a.people THEN why END,
            channel = CASE WHEN agreed >= a.people THEN by_channel END,
            address = CASE WHEN agreed >= a.people THEN by_address END,
            client = CASE WHEN agreed >= a.people THEN by_client END,
            token_digest = CASE WHEN agreed >= a.people THEN NULL ELSE a.token_digest END
        WHERE a.id = of_approval;
        outcome := CASE WHEN agreed >= held.people THEN 'approved' ELSE 'agreed' END;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'approval_' || outcome, 'approval:' || of_approval, held.tenant, held.job_id, held.attempt,
            held.key, held.agent_id, held.agent_version,
            jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'channel', by_channel,
                               'address', by_address, 'risk', held.risk, 'tool', held.tool, 'people', held.people, 'agreed', agreed,
                               'was_edited', stands_digest <> held.asked_digest));
    IF outcome <> 'agreed' THEN
        IF outcome = 'denied' AND held.on_deny = 'fail' THEN
            UPDATE cortex.job_record j
            SET status = 'FAILED', waiting_on = NULL, error_code = 'denied',
                error_class = 'PERMANENT', error_message = format('%s was denied by %s%s',
                    coalesce(held.tool, held.key), who.name, coalesce(': ' || why, ''))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END IF;
    RETURN QUERY SELECT outcome, agreed;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.decide(uuid,boolean,jsonb,bytea,text,text,text,text,json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.decide(uuid,boolean,jsonb,bytea,text,text,text,text,json) TO cortex_runtime;

-- Gives a pending request a new link, by the digest of its token, which replaces the previous one. Needs the role approver. Null if the request can no longer be decided.
CREATE FUNCTION cortex.link_approval(of_approval uuid, of_digest bytea, caller jsonb, why text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    held cortex.approval;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'approver', false);
    UPDATE cortex.approval a SET token_digest = of_digest, token_by = who.name
    WHERE a.id = of_approval AND a.status = 'PENDING' AND a.expires_at > cortex.now()
      AND (who.tenant IS NULL OR a.tenant = who.tenant) RETURNING a.* INTO held;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'approval_linked', 'approval:' || of_approval, held.tenant, held.job_id, held.attempt, held.key,
            held.agent_id, held.agent_version, jsonb_build_object('by', who.name, 'reason', why));
    RETURN of_approval;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.link_approval(uuid,bytea,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.link_approval(uuid,bytea,jsonb,text) TO cortex_runtime;

CREATE FUNCTION cortex.freeze_is_lifted()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'only a person lifts the freeze of effects'
        USING ERRCODE = 'insufficient_privilege', HINT = 'run: cortex freeze off';
END $function$;

CREATE TRIGGER freeze_is_kept BEFORE UPDATE ON cortex.breaker FOR EACH ROW WHEN (old.name = 'effects:all'::text AND old.state <> 'CLOSED'::text AND (new.name <> old.name OR new.state <> 'OPEN'::text OR new.open_until IS NOT NULL OR new.forced_by IS NULL) AND NOT cortex.writes_as_owner()) EXECUTE FUNCTION cortex.freeze_is_lifted();

CREATE TRIGGER freeze_is_not_deleted BEFORE DELETE ON cortex.breaker FOR EACH ROW WHEN (old.name = 'effects:all'::text AND old.state <> 'CLOSED'::text AND NOT cortex.writes_as_owner()) EXECUTE FUNCTION cortex.freeze_is_lifted();

-- Lets effects begin again; false if they were not frozen. Needs the role operator.
CREATE FUNCTION cortex.lift_freeze(caller jsonb, why text)
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    held cortex.breaker;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.* INTO held FROM cortex.breaker b WHERE b.name = 'effects:all' FOR UPDATE;
    IF NOT FOUND OR held.state = 'CLOSED' THEN
        RETURN false;
    END IF;
    UPDATE cortex.breaker b
    SET state = 'CLOSED', failures = 0, successes = 0, requests = 0, opened_at = NULL, open_until = NULL, probe_by = NULL,
        probe_until = NULL, forced_by = NULL, forced_reason = NULL, forced_at = NULL, escalated_at = NULL,
        version = nextval('cortex.breaker_version'), updated_at = cortex.now()
    WHERE b.name = 'effects:all';
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'breaker_forced_closed', 'effects:all', jsonb_strip_nulls(jsonb_build_object(
        'before', held.state, 'after', 'CLOSED', 'failures', held.failures, 'opened_at', held.opened_at, 'by', who.name,
        'reason', why)));
    PERFORM pg_notify('cortex_breaker', 'effects:all');
    RETURN true;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.lift_freeze(jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.lift_freeze(jsonb,text) TO cortex_runtime;

-- Sets a limit, new or not. `is_declared`: a file declares it, and the same declaration again changes nothing. Returns its name, and the limit after and before; no row when nothing changed. Needs the role operator.
CREATE FUNCTION cortex.put_budget(of_scope text, of_subject text, of_unit text, of_period text, new_limit numeric, caller jsonb, why text, is_declared boolean)
 RETURNS TABLE(name text, after numeric, before numeric)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    who record;
    old_limit numeric;
    put record;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.limit_amount INTO old_limit FROM cortex.budget b
    WHERE b.scope = of_scope AND b.subject = of_subject AND b.unit = of_unit AND b.period = of_period FOR UPDATE;
    INSERT INTO cortex.budget AS b (scope, subject, unit, period, limit_amount, declared_amount, changed_by, reason)
    VALUES (of_scope, of_subject, of_unit, of_period, new_limit, CASE WHEN is_declared THEN new_limit END, who.name, why)
    ON CONFLICT ON CONSTRAINT budget_once DO UPDATE
    SET limit_amount = excluded.limit_amount, changed_by = excluded.changed_by, changed_at = cortex.now(),
        reason = excluded.reason, declared_amount = coalesce(excluded.declared_amount, b.declared_amount)
    WHERE NOT is_declared OR b.declared_amount IS DISTINCT FROM excluded.declared_amount
    RETURNING b.name, b.limit_amount INTO put;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_set', 'budget:' || put.name,
            CASE WHEN of_scope = 'tenant' THEN of_subject ELSE 'default' END,
            CASE WHEN of_scope = 'job' THEN of_subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'after', put.limit_amount, 'before', old_limit));
    RETURN QUERY SELECT put.name, put.limit_amount, old_limit;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.put_budget(text,text,text,text,numeric,jsonb,text,boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.put_budget(text,text,text,text,numeric,jsonb,text,boolean) TO cortex_runtime;

-- Raises a limit; no row unless it grows. Returns it before and after. Needs the role operator.
CREATE FUNCTION cortex.raise_budget(of_name text, new_limit numeric, caller jsonb, why text)
 RETURNS TABLE(name text, before numeric, after numeric)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    who record;
    held cortex.budget;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.* INTO held FROM cortex.budget b WHERE b.name = of_name AND b.limit_amount < new_limit FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE cortex.budget b SET limit_amount = new_limit, changed_by = who.name, changed_at = cortex.now(), reason = why
    WHERE b.id = held.id;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_raised', 'budget:' || held.name,
            CASE WHEN held.scope = 'tenant' THEN held.subject ELSE 'default' END,
            CASE WHEN held.scope = 'job' THEN held.subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'before', held.limit_amount, 'after', new_limit));
    RETURN QUERY SELECT held.name, held.limit_amount, new_limit;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.raise_budget(text,numeric,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.raise_budget(text,numeric,jsonb,text) TO cortex_runtime;

-- Removes a limit and what was counted for it; returns the limit that it had. Needs the role operator.
CREATE FUNCTION cortex.remove_budget(of_name text, caller jsonb, why text)
 RETURNS TABLE(name text, before numeric)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    who record;
    gone cortex.budget;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    DELETE FROM cortex.budget b WHERE b.name = of_name RETURNING b.* INTO gone;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM cortex.budget_use u WHERE u.budget_id = gone.id;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_removed', 'budget:' || gone.name,
            CASE WHEN gone.scope = 'tenant' THEN gone.subject ELSE 'default' END,
            CASE WHEN gone.scope = 'job' THEN gone.subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'before', gone.limit_amount));
    RETURN QUERY SELECT gone.name, gone.limit_amount;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.remove_budget(text,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.remove_budget(text,jsonb,text) TO cortex_runtime;

CREATE FUNCTION cortex.fact_is_of_people()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'a fact % is recorded by the act itself only', NEW.subtype USING ERRCODE = 'insufficient_privilege';
END $function$;

CREATE TRIGGER fact_is_of_people BEFORE INSERT ON cortex.fact FOR EACH ROW WHEN (new.type = 'lifecycle'::text AND (new.subtype = ANY (ARRAY['approval_approved'::text, 'approval_agreed'::text, 'approval_denied'::text, 'approval_linked'::text, 'effect_resolved'::text, 'effect_agreed'::text, 'token_created'::text, 'token_revoked'::text, 'signed_in'::text, 'person_created'::text, 'person_mapped'::text, 'person_disabled'::text, 'person_enabled'::text, 'approval_expired'::text, 'budget_set'::text, 'budget_raised'::text, 'budget_removed'::text, 'retention_set'::text, 'retention_unset'::text, 'mcp_trusted'::text])) AND NOT cortex.writes_as_owner()) EXECUTE FUNCTION cortex.fact_is_of_people();

CREATE FUNCTION cortex.step_was_decided()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NOT EXISTS (
        SELECT FROM cortex.approval a JOIN cortex.job_record j ON j.id = NEW.job_id
        WHERE a.id::text = NEW.output->>'approval_id' AND a.lineage_id = coalesce(j.lineage_id, j.id) AND a.key = NEW.key
          AND a.status = CASE NEW.output->>'is_approved' WHEN 'true' THEN 'APPROVED' ELSE 'DENIED' END
          -- Those that people edited are in the step, others are not.
          AND CASE WHEN NEW.output->'arguments' IS NULL THEN a.digest = a.asked_digest
                   WHEN (NEW.output->'arguments')::text = a.arguments::text THEN true
                   ELSE (NEW.output->'arguments')::jsonb = a.arguments::jsonb END)
    THEN
        RAISE EXCEPTION 'step % of job % is a decision that nobody has made', NEW.key, NEW.job_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $function$;

CREATE TRIGGER job_step_was_decided BEFORE INSERT ON cortex.job_step FOR EACH ROW WHEN (new.kind = 'approval'::text) EXECUTE FUNCTION cortex.step_was_decided();

CREATE FUNCTION cortex.effect_was_resolved()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'what people said of effect % stands, and so does how often it was called', OLD.id
        USING ERRCODE = 'insufficient_privilege';
END $function$;

CREATE TRIGGER effect_was_resolved BEFORE UPDATE OF status, result, calls_count ON cortex.effect FOR EACH ROW WHEN ((new.calls_count < old.calls_count OR (old.resolution = ANY (ARRAY['applied'::text, 'give-up'::text])) AND (new.status <> old.status OR new.result::text IS DISTINCT FROM old.result::text)) AND NOT cortex.writes_as_owner()) EXECUTE FUNCTION cortex.effect_was_resolved();

CREATE FUNCTION cortex.responsibility_is_immutable()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'who submitted job %, and which job it continues, is immutable', OLD.id
        USING ERRCODE = 'insufficient_privilege';
END $function$;

CREATE TRIGGER job_keeps_who_is_responsible BEFORE UPDATE OF id, tenant, submitted_by, submitted_with, origin_id, lineage_id, parent_id ON cortex.job_record FOR EACH ROW WHEN ((new.id <> old.id OR new.tenant <> old.tenant OR new.submitted_by IS DISTINCT FROM old.submitted_by OR new.submitted_with IS DISTINCT FROM old.submitted_with OR new.origin_id IS DISTINCT FROM old.origin_id OR new.lineage_id IS DISTINCT FROM old.lineage_id OR new.parent_id IS DISTINCT FROM old.parent_id) AND NOT cortex.writes_as_owner()) EXECUTE FUNCTION cortex.responsibility_is_immutable();

-- Tools of the MCP servers of agents.
CREATE TABLE cortex.mcp_tool (
    agent text NOT NULL,  -- The agent's name, or job: and the name of a job type.
    server text NOT NULL,  -- The name that the agent gives to the server.
    identity text NOT NULL,  -- SHA-256 of what the agent declares about the server, in hex.
    tool text NOT NULL,  -- The tool's name at its server.
    accepted text,  -- What models are told: description, schemas and hints as canonical JSON; null: the tool is new, and not offered to them.
    accepted_at timestamptz,  -- Since when.
    accepted_by text,  -- Who accepted it; null: the first use of the server.
    offered text,  -- What the server says now, if that differs; empty: it has the tool no more.
    offered_at timestamptz,  -- When that was noticed.
    CONSTRAINT mcp_tool_pkey PRIMARY KEY (agent, server, identity, tool),
    CONSTRAINT mcp_tool_agent_check CHECK (char_length(agent) >= 1 AND char_length(agent) <= 200),
    CONSTRAINT mcp_tool_check CHECK ((accepted IS NULL) = (accepted_at IS NULL) AND (offered IS NULL) = (offered_at IS NULL)),
    CONSTRAINT mcp_tool_check1 CHECK (accepted IS NOT NULL OR offered IS NOT NULL),
    CONSTRAINT mcp_tool_identity_check CHECK (identity ~ '^[0-9a-f]{64}$'::text),
    CONSTRAINT mcp_tool_server_check CHECK (char_length(server) >= 1 AND char_length(server) <= 64),
    CONSTRAINT mcp_tool_tool_check CHECK (char_length(tool) >= 1 AND char_length(tool) <= 128)
);
GRANT SELECT ON cortex.mcp_tool TO cortex_runtime;
GRANT SELECT ON cortex.mcp_tool TO cortex_reader;

-- Records what a server of an agent says about its tools: an object of texts by name. On its first use all are accepted, later only new ones that the agent's specification names; a difference is kept for a person to see. Returns all of that server. Called by pods.
CREATE FUNCTION cortex.note_mcp_tools(of_agent text, of_server text, of_identity text, texts jsonb, named text[])
 RETURNS SETOF cortex.mcp_tool
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    is_first boolean;
BEGIN
    -- Pods that meet a server at once agree on its first use.
    PERFORM FROM cortex.runner_turn r WHERE r.name = 'specs' FOR NO KEY UPDATE;
    is_first := NOT EXISTS (SELECT FROM cortex.mcp_tool t
                            WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity);
    INSERT INTO cortex.mcp_tool (agent, server, identity, tool, accepted, accepted_at, offered, offered_at)
    SELECT of_agent, of_server, of_identity, f.key,
           CASE WHEN f.is_taken THEN f.value END, CASE WHEN f.is_taken THEN cortex.now() END,
           CASE WHEN NOT f.is_taken THEN f.value END, CASE WHEN NOT f.is_taken THEN cortex.now() END
    FROM (SELECT e.key, e.value, is_first OR e.key = ANY (named) AS is_taken FROM jsonb_each_text(texts) e) f
    ON CONFLICT DO NOTHING;
    DELETE FROM cortex.mcp_tool t
    WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.accepted IS NULL
      AND NOT texts ? t.tool;
    WITH now_offered AS (
        SELECT o.tool, nullif(coalesce(e.value, ''), o.accepted) AS offered
        FROM cortex.mcp_tool o LEFT JOIN jsonb_each_text(texts) e ON e.key = o.tool
        WHERE o.agent = of_agent AND o.server = of_server AND o.identity = of_identity
    ), changed AS (
        UPDATE cortex.mcp_tool t
        SET offered = n.offered, offered_at = CASE WHEN n.offered IS NOT NULL THEN cortex.now() END
        FROM now_offered n
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = n.tool
          AND t.offered IS DISTINCT FROM n.offered
        RETURNING t.tool, t.offered
    )
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'mcp_changed', 'agent:' || left(of_agent, 290),
           jsonb_build_object('server', of_server, 'tools', jsonb_agg(c.tool ORDER BY c.tool))
    FROM changed c WHERE c.offered IS NOT NULL HAVING count(*) > 0;
    RETURN QUERY SELECT t.* FROM cortex.mcp_tool t
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity ORDER BY t.tool COLLATE "C";
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.note_mcp_tools(text,text,text,jsonb,text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.note_mcp_tools(text,text,text,jsonb,text[]) TO cortex_runtime;

-- Accepts what a server says now about some of its tools, an object of the texts by name as the person has seen them; returns the names of those that were accepted. Jobs that wait for it are due at once. Needs the role operator.
CREATE FUNCTION cortex.trust_mcp_tools(of_agent text, of_server text, of_identity text, shown jsonb, caller jsonb, why text)
 RETURNS SETOF text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    who record;
    waited CONSTANT text := 'trust:' || of_agent || '/' || of_server || '.';
    taken text[];
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    -- Exactly what the person has seen: what a server says meanwhile is another change.
    WITH changed AS (
        UPDATE cortex.mcp_tool t
        SET accepted = t.offered, accepted_at = cortex.now(), accepted_by = who.name, offered = NULL, offered_at = NULL
        FROM jsonb_each_text(shown) s
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = s.key
          AND t.offered = s.value AND t.offered <> ''
        RETURNING t.tool
    ), gone AS (
        DELETE FROM cortex.mcp_tool t USING jsonb_each_text(shown) s
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = s.key
          AND t.offered = '' AND s.value = ''
        RETURNING t.tool
    )
    SELECT array_agg(c.tool ORDER BY c.tool) INTO taken
    FROM (SELECT tool FROM changed UNION ALL SELECT tool FROM gone) c;
    IF taken IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'mcp_trusted', 'agent:' || left(of_agent, 290), jsonb_build_object(
        'by', who.name, 'credential', who.credential, 'reason', why, 'server', of_server, 'tools', taken));
    UPDATE cortex.job_record j SET next_retry_at = cortex.now()
    WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on !~ '^(approval|budget|child|signal):'
      AND j.waiting_on = ANY (SELECT waited || tool FROM unnest(taken) tool) AND j.next_retry_at > cortex.now();
    RETURN QUERY SELECT unnest(taken);
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.trust_mcp_tools(text,text,text,jsonb,jsonb,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.trust_mcp_tools(text,text,text,jsonb,jsonb,text) TO cortex_runtime;

-- Batches of model calls, each one before it is sent to its provider.
CREATE TABLE cortex.model_batch (
    id uuid NOT NULL,  -- The batch, before it has an id at its provider.
    endpoint text NOT NULL,  -- The provider, or the endpoint of the settings, that gets it.
    state text NOT NULL,  -- SENDING: it may have been sent, its id is not known · SENT · ENDED: all results are here · UNSENT: it certainly was not created, its calls are in others · LOST: nobody will know what became of it.
    remote_id text,  -- Its id at the provider.
    call_count integer NOT NULL,  -- How many calls it has.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- Since when it may have been sent.
    due_at timestamptz NOT NULL,  -- When a process may look at it: until then one has it in its hands.
    ended_at timestamptz,  -- When it was over for Cortex.
    CONSTRAINT model_batch_pkey PRIMARY KEY (id),
    CONSTRAINT model_batch_call_count_check CHECK (call_count > 0),
    CONSTRAINT model_batch_check CHECK ((remote_id IS NULL) = (state = ANY (ARRAY['SENDING'::text, 'UNSENT'::text, 'LOST'::text]))),
    CONSTRAINT model_batch_check1 CHECK ((ended_at IS NULL) = (state = ANY (ARRAY['SENDING'::text, 'SENT'::text]))),
    CONSTRAINT model_batch_endpoint_check CHECK (length(endpoint) >= 1 AND length(endpoint) <= 100),
    CONSTRAINT model_batch_remote_id_check CHECK (length(remote_id) >= 1 AND length(remote_id) <= 200),
    CONSTRAINT model_batch_state_check CHECK (state = ANY (ARRAY['SENDING'::text, 'SENT'::text, 'ENDED'::text, 'UNSENT'::text, 'LOST'::text]))
);
CREATE INDEX model_batch_due ON cortex.model_batch USING btree (due_at) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX model_batch_remote ON cortex.model_batch USING btree (endpoint, remote_id) WHERE remote_id IS NOT NULL;
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.model_batch TO cortex_runtime;
GRANT SELECT ON cortex.model_batch TO cortex_reader;

-- Model calls in batches, or on their way into one. Its id is also that of its reservation, and its name in the batch.
CREATE TABLE cortex.model_batch_call (
    id uuid NOT NULL,  -- The call: that of its reservation and of its cost, and its custom id.
    lineage_id uuid NOT NULL,  -- The first job of the lineage.
    job_id uuid NOT NULL,  -- The job that waits.
    step text NOT NULL,  -- Key of the step.
    digest bytea NOT NULL,  -- Of the request: a job whose code asks for another one gets no answer to this.
    endpoint text NOT NULL,  -- The provider, or the endpoint of the settings.
    model text NOT NULL,  -- The model, as the job names it.
    config_id integer,  -- Configuration with the prices of the job.
    request text,  -- The request as JSON, with references to files; null once it is done.
    size bigint NOT NULL,  -- Its bytes, with its files in base64.
    state text NOT NULL DEFAULT 'WAITING'::text,  -- WAITING: in no batch · SENT: in a batch, which may have been sent · SUCCEEDED · FAILED: to be made directly · DROPPED: its job wanted it no more before it was sent.
    batch_id uuid,  -- The batch.
    is_dropped boolean NOT NULL DEFAULT false,  -- Its job wants it no more: its cost is booked, its answer is not kept.
    added_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When the job asked for it.
    ready_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it may be put into a batch: later if its provider refused for now.
    done_at timestamptz,  -- When it was over.
    taken_at timestamptz,  -- When its job last took the outcome.
    answer text,  -- The response as plain JSON.
    usage jsonb,  -- Its tokens.
    cost_usd numeric(18,8),  -- US dollars; null if the price is unknown.
    failure text,  -- Why it has to be made directly.
    CONSTRAINT model_batch_call_pkey PRIMARY KEY (id),
    CONSTRAINT model_batch_call_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES cortex.model_batch(id),
    CONSTRAINT model_batch_call_check CHECK ((done_at IS NULL) = (state = ANY (ARRAY['WAITING'::text, 'SENT'::text]))),
    CONSTRAINT model_batch_call_check1 CHECK ((batch_id IS NULL) = (state = 'WAITING'::text) OR (state = ANY (ARRAY['FAILED'::text, 'DROPPED'::text]))),
    CONSTRAINT model_batch_call_check2 CHECK ((answer IS NULL) = (state <> 'SUCCEEDED'::text) OR is_dropped),
    CONSTRAINT model_batch_call_failure_check CHECK (length(failure) <= 2000),
    CONSTRAINT model_batch_call_size_check CHECK (size > 0),
    CONSTRAINT model_batch_call_state_check CHECK (state = ANY (ARRAY['WAITING'::text, 'SENT'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'DROPPED'::text]))
);
CREATE UNIQUE INDEX model_batch_call_step ON cortex.model_batch_call USING btree (lineage_id, step) WHERE NOT is_dropped;
CREATE INDEX model_batch_call_waiting ON cortex.model_batch_call USING btree (endpoint, ready_at, id) WHERE state = 'WAITING'::text;
CREATE INDEX model_batch_call_sent ON cortex.model_batch_call USING btree (batch_id, id) WHERE state = 'SENT'::text;
CREATE INDEX model_batch_call_done ON cortex.model_batch_call USING btree (job_id) WHERE done_at IS NOT NULL AND taken_at IS NULL;
CREATE INDEX model_batch_call_old ON cortex.model_batch_call USING btree (done_at) WHERE done_at IS NOT NULL;
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.model_batch_call TO cortex_runtime;
GRANT SELECT ON cortex.model_batch_call TO cortex_reader;

-- The call of a step, and notes that its job has seen the outcome, if there is one. A call with another request is dropped.
CREATE FUNCTION cortex.find_batch_call(of_lineage uuid, of_job uuid, of_step text, of_digest bytea)
 RETURNS SETOF cortex.model_batch_call
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    known cortex.model_batch_call;
BEGIN
    SELECT * INTO known FROM cortex.model_batch_call c
    WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_dropped FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF known.digest <> of_digest THEN
        PERFORM cortex.drop_batch_calls(ARRAY[known.id]);
        RETURN;
    END IF;
    RETURN QUERY UPDATE cortex.model_batch_call c
        SET job_id = of_job, taken_at = CASE WHEN c.done_at IS NOT NULL THEN cortex.now() END
        WHERE c.id = known.id RETURNING c.*;
END $function$;

-- Gives up calls whose jobs want them no more: unsent ones at once, others when their results come, which are booked. Returns how many were unsent.
CREATE FUNCTION cortex.drop_batch_calls(calls uuid[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    unsent uuid[];
BEGIN
    WITH dropped AS (
        UPDATE cortex.model_batch_call c
        SET is_dropped = true, answer = NULL,
            state = CASE c.state WHEN 'WAITING' THEN 'DROPPED' ELSE c.state END,
            done_at = CASE c.state WHEN 'WAITING' THEN cortex.now() ELSE c.done_at END,
            request = CASE c.state WHEN 'WAITING' THEN NULL ELSE c.request END
        WHERE c.id = ANY (calls) AND NOT c.is_dropped
        RETURNING c.id, c.state
    )
    SELECT array_agg(d.id) INTO unsent FROM dropped d WHERE d.state = 'DROPPED';
    PERFORM cortex.settle_batch_calls(unsent, NULL, NULL, 'cancelled');
    RETURN coalesce(cardinality(unsent), 0);
END $function$;

-- Books calls of batches; one without a usage has cost nothing. See cortex.settle.
CREATE FUNCTION cortex.settle_batch_calls(calls uuid[], usages jsonb[], costs numeric[], outcome text)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT cortex.settle(
    array_agg(e.id ORDER BY e.id),
    array_agg((SELECT coalesce(sum(v.value::bigint), 0) FROM jsonb_each_text(coalesce(e.usage, '{}')) v
               WHERE v.key IN ('input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens'))::bigint
              ORDER BY e.id),
    array_agg(CASE WHEN e.usage IS NULL THEN 0 ELSE e.cost END ORDER BY e.id),
    array_agg(jsonb_build_object('outcome', outcome, 'estimated', false, 'batch', true,
                                 'usage', coalesce(e.usage, '{}')) ORDER BY e.id))
FROM unnest(calls, usages, costs) AS e(id, usage, cost) HAVING count(*) > 0 $function$;

-- Has a call wait for a batch, with the room that was reserved for it; false: the attempt is over.
CREATE FUNCTION cortex.add_batch_call(new_call uuid, of_job uuid, of_attempt integer, of_pod uuid, of_lineage uuid, of_step text, of_digest bytea, to_endpoint text, of_model text, of_config integer, given text, of_size bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM cortex.model_batch_call c WHERE c.id = new_call) THEN
        RETURN true;
    END IF;
    UPDATE cortex.reservation r SET is_batched = true WHERE r.id = new_call AND EXISTS (
        SELECT FROM cortex.job j WHERE j.id = of_job AND j.attempt = of_attempt AND j.pod_id = of_pod
        AND j.status::text = 'RUNNING');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO cortex.model_batch_call (id, lineage_id, job_id, step, digest, endpoint, model, config_id, request, size)
    VALUES (new_call, of_lineage, of_job, of_step, of_digest, to_endpoint, of_model, of_config, given, of_size);
    RETURN true;
END $function$;

-- Puts waiting calls of one endpoint into a new batch, once enough of them wait or the first one long enough, and gives it to the caller for some seconds. Before, drops those of ended jobs, and gives up those that wait for a day. One process at a time.
CREATE FUNCTION cortex.gather_batch(new_batch uuid, endpoints text[], count_max integer, bytes_max bigint, wait_s double precision, lease_s double precision)
 RETURNS SETOF cortex.model_batch_call
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    chosen text;
    late uuid[];
    ids uuid[];
BEGIN
    IF NOT cortex.take_turn('batches') THEN
        RETURN;
    END IF;
    PERFORM cortex.drop_batch_calls(ARRAY(
        SELECT c.id FROM cortex.model_batch_call c LEFT JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.state = 'WAITING' AND (j.id IS NULL OR j.finished_at IS NOT NULL) ORDER BY c.id LIMIT 1000));
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), request = NULL, failure = 'no pod could send it within a day'
        WHERE c.id IN (SELECT w.id FROM cortex.model_batch_call w
                       WHERE w.state = 'WAITING' AND w.added_at < cortex.now() - interval '1 day' LIMIT 1000)
        RETURNING c.id
    )
    SELECT array_agg(f.id) INTO late FROM failed f;
    PERFORM cortex.settle_batch_calls(late, NULL, NULL, 'failed');
    SELECT e.name INTO chosen FROM unnest(endpoints) AS e(name)
    CROSS JOIN LATERAL (
        SELECT min(n.ready_at) AS first_at, count(*) AS waiting, sum(n.size) AS bytes
        FROM (SELECT c.ready_at, c.size FROM cortex.model_batch_call c
              WHERE c.state = 'WAITING' AND c.endpoint = e.name AND c.ready_at <= cortex.now()
              ORDER BY c.ready_at, c.id LIMIT count_max) n) w
    WHERE w.first_at <= cortex.now() - wait_s * interval '1 second' OR w.waiting >= count_max OR w.bytes >= bytes_max
    ORDER BY w.first_at LIMIT 1;
    IF chosen IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(s.id) INTO ids FROM (
        SELECT n.id, sum(n.size) OVER (ORDER BY n.ready_at, n.id) AS upto, row_number() OVER (ORDER BY n.ready_at, n.id)
        FROM (SELECT c.id, c.ready_at, c.size FROM cortex.model_batch_call c
              WHERE c.state = 'WAITING' AND c.endpoint = chosen AND c.ready_at <= cortex.now()
              ORDER BY c.ready_at, c.id LIMIT count_max) n) s
    WHERE s.upto <= bytes_max OR s.row_number = 1;
    INSERT INTO cortex.model_batch (id, endpoint, state, call_count, due_at)
    VALUES (new_batch, chosen, 'SENDING', cardinality(ids), cortex.now() + lease_s * interval '1 second');
    RETURN QUERY UPDATE cortex.model_batch_call c SET state = 'SENT', batch_id = new_batch
        WHERE c.id = ANY (ids) AND c.state = 'WAITING' RETURNING c.*;
END $function$;

-- Ends a batch that certainly was not created: its calls wait for another one, or, without a pause or after a day, are to be made directly. Returns how many those are.
CREATE FUNCTION cortex.unsend_batch(of_batch uuid, why text, again_s double precision)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    over uuid[];
BEGIN
    UPDATE cortex.model_batch b SET state = 'UNSENT', ended_at = cortex.now()
    WHERE b.id = of_batch AND b.state = 'SENDING';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF again_s IS NOT NULL THEN
        UPDATE cortex.model_batch_call c
        SET state = 'WAITING', batch_id = NULL, ready_at = cortex.now() + again_s * interval '1 second'
        WHERE c.batch_id = of_batch AND c.state = 'SENT' AND NOT c.is_dropped
          AND c.added_at > cortex.now() - interval '1 day';
    END IF;
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), failure = left(why, 2000), request = NULL
        WHERE c.batch_id = of_batch AND c.state = 'SENT' RETURNING c.id
    )
    SELECT array_agg(f.id) INTO over FROM failed f;
    PERFORM cortex.settle_batch_calls(over, NULL, NULL, 'failed');
    RETURN coalesce(cardinality(over), 0);
END $function$;

-- Keeps results of a batch and books them; a call that has a result already is skipped. Returns how many were new.
CREATE FUNCTION cortex.end_batch_calls(of_batch uuid, calls uuid[], answers text[], usages jsonb[], costs numeric[], failures text[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    kept record;
    number int := 0;
BEGIN
    FOR kept IN
        WITH ended AS (
            UPDATE cortex.model_batch_call c
            SET state = CASE WHEN e.answer IS NULL THEN 'FAILED' ELSE 'SUCCEEDED' END, done_at = cortex.now(),
                answer = CASE WHEN NOT c.is_dropped THEN e.answer END, usage = e.usage, cost_usd = e.cost,
                failure = left(e.failure, 2000), request = NULL
            FROM unnest(calls, answers, usages, costs, failures) AS e(id, answer, usage, cost, failure)
            WHERE c.id = e.id AND c.batch_id = of_batch AND c.state = 'SENT'
            RETURNING c.id, c.state, e.usage, e.cost
        )
        SELECT CASE d.state WHEN 'SUCCEEDED' THEN 'kept' ELSE 'failed' END AS outcome,
               array_agg(d.id) AS ids, array_agg(d.usage) AS usages, array_agg(d.cost) AS costs
        FROM ended d GROUP BY 1
    LOOP
        PERFORM cortex.settle_batch_calls(kept.ids, kept.usages, kept.costs, kept.outcome);
        number := number + cardinality(kept.ids);
    END LOOP;
    RETURN number;
END $function$;

-- Ends a batch; calls that it has no result of are booked as lost, and are to be made directly. Returns how many.
CREATE FUNCTION cortex.end_batch(of_batch uuid, are_lost boolean, why text)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    over uuid[];
BEGIN
    UPDATE cortex.model_batch b SET state = CASE WHEN are_lost THEN 'LOST' ELSE 'ENDED' END, ended_at = cortex.now()
    WHERE b.id = of_batch AND b.state = CASE WHEN are_lost THEN 'SENDING' ELSE 'SENT' END;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), failure = left(why, 2000), request = NULL
        WHERE c.batch_id = of_batch AND c.state = 'SENT' RETURNING c.id
    )
    SELECT array_agg(f.id) INTO over FROM failed f;
    PERFORM cortex.settle_lost(over);
    RETURN coalesce(cardinality(over), 0);
END $function$;

-- Jobs that may have what they wait for. Handled by any pod at once, and deleted: see cortex.wake_waiting.
CREATE TABLE cortex.job_wake (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of arrival.
    job_id uuid,  -- The job; null: those that wait for a key.
    tenant text,  -- Of the jobs that wait for the key.
    name text,  -- Of the signal to the key.
    key text,  -- The key to which a signal was sent.
    wave smallint NOT NULL DEFAULT 0,  -- How often jobs that wait for the key have been woken for signals that none has taken yet.
    due_at timestamptz NOT NULL DEFAULT '-infinity'::timestamp with time zone,  -- Not before: those that were woken have a moment to take them.
    CONSTRAINT job_wake_pkey PRIMARY KEY (id),
    CONSTRAINT wake_of_a_job_or_a_key CHECK (num_nulls(job_id, key) = 1 AND (num_nulls(tenant, name, key) = ANY (ARRAY[0, 3])))
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.job_wake TO cortex_runtime;
GRANT SELECT ON cortex.job_wake TO cortex_reader;

-- Whether what a suspended job waits for is there.
CREATE FUNCTION cortex.is_wait_met(wait cortex.job_wait)
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN CASE wait.kind
        WHEN 'signal' THEN cortex.has_signal(wait.job_id, wait.name, nullif(wait.key, ''))
        WHEN 'child' THEN cortex.have_children_ended(wait.job_id, wait.name, wait.upto)
        WHEN 'approval' THEN EXISTS (
            SELECT FROM cortex.approval a WHERE a.id = wait.name::uuid AND a.status <> 'PENDING')
        ELSE false
    END;
END $function$;

-- Gives tasks to jobs that have what they wait for, for up to so many rows of cortex.job_wake. Returns how many rows were handled, how many jobs got a task, and how much is to be looked at again: jobs that others hold, keys for which more jobs wait.
CREATE FUNCTION cortex.wake_waiting(most integer)
 RETURNS TABLE(handled integer, woken integer, postponed integer)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    between_waves CONSTANT interval := interval '0.5 seconds';
    jobs uuid[];
    keys jsonb;
    met uuid[];
    held uuid[];
BEGIN
    WITH old AS MATERIALIZED (
        SELECT w.id FROM cortex.job_wake w
        -- One that is due later than any is written was written before the clock was set back.
        WHERE w.due_at <= cortex.now() OR w.due_at > cortex.now() + 10 * between_waves
        ORDER BY w.id LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM cortex.job_wake w USING old WHERE w.id = old.id RETURNING w.job_id, w.tenant, w.name, w.key, w.wave
    ), sent AS (
        SELECT g.tenant, g.name, g.key, max(g.wave) AS wave, min(g.wave) = 0 AS is_new FROM gone g WHERE g.key IS NOT NULL
        GROUP BY g.tenant, g.name, g.key
    )
    SELECT count(*), coalesce(array_agg(DISTINCT g.job_id) FILTER (WHERE g.job_id IS NOT NULL), '{}'),
           coalesce((SELECT jsonb_agg(jsonb_build_array(s.tenant, s.name, s.key, s.wave, s.is_new)) FROM sent s), '[]')
    INTO handled, jobs, keys FROM gone g;
    woken := 0;
    postponed := (SELECT count(*) FROM (SELECT FROM cortex.job_wake w WHERE w.due_at > cortex.now() LIMIT 1) w);
    IF handled = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- Each statement from here on sees all that was committed with these rows.
    IF keys <> '[]' THEN
        -- As many jobs of a key as it has signals. A job that was woken may die, end, be paused or wait for code before it
        -- takes one: so each half second in which a signal is left and jobs wait, twice as many more are woken. Younger
        -- signals, for which jobs were woken just now, do not count: else a stream of signals would wake all jobs.
        WITH sent AS MATERIALIZED (
            SELECT k.value->>0 AS tenant, k.value->>1 AS name, k.value->>2 AS key, (k.value->>3)::int AS wave, n.left_count,
                   least(most, n.left_count * (1 << (k.value->>3)::int)
                               + CASE WHEN (k.value->>4)::boolean THEN n.count - n.left_count ELSE 0 END)::int AS number
            FROM jsonb_array_elements(keys) AS k CROSS JOIN LATERAL (
                SELECT count(*) AS count, count(*) FILTER (
                    WHERE s.sent_at <= cortex.now() - between_waves OR s.sent_at > cortex.now() + 10 * between_waves)
                    AS left_count
                FROM (
                    SELECT s.sent_at FROM cortex.signal s WHERE s.key = k.value->>2 AND s.tenant = k.value->>0
                        AND s.name = k.value->>1 AND s.taken_at IS NULL LIMIT most) s) n
            WHERE n.count > 0
        ), asked AS MATERIALIZED (
            SELECT k.*, f.ids FROM sent k CROSS JOIN LATERAL (
                SELECT ARRAY(
                    SELECT w.job_id FROM cortex.job_wait w JOIN cortex.job_record j ON j.id = w.job_id
                    WHERE w.key = k.key AND w.name = k.name AND w.key <> '' AND j.tenant = k.tenant
                      -- The same jobs would be found for ever, and none after them, if they could not take it.
                      AND EXISTS (SELECT FROM cortex.signal s WHERE s.key = k.key AND s.tenant = k.tenant
                                  AND s.name = k.name AND s.taken_at IS NULL
                                  AND (s.only_for IS NULL OR s.only_for = j.submitted_with))
                    ORDER BY w.job_id LIMIT k.number) AS ids) f
        ), more AS (
            -- Those that get a task now are not found again.
            INSERT INTO cortex.job_wake (tenant, name, key, wave, due_at)
            SELECT a.tenant, a.name, a.key, CASE WHEN a.left_count > 0 THEN least(a.wave + 1, 15) ELSE 1 END,
                   cortex.now() + between_waves
            FROM asked a WHERE cardinality(a.ids) = a.number RETURNING id
        )
        SELECT jobs || coalesce(array_agg(w.id), '{}'), postponed + (SELECT count(*) FROM more) INTO jobs, postponed
        FROM asked a CROSS JOIN LATERAL unnest(a.ids) AS w(id);
    END IF;
    -- What a job that has ended left open, the one that continues it waits for: children that are being cancelled.
    WITH RECURSIVE line AS (
        SELECT w.id FROM unnest(jobs) AS w(id)
        UNION
        SELECT c.id FROM line l JOIN cortex.job_record j ON j.id = l.id JOIN cortex.job_record c ON c.origin_id = j.id
        WHERE j.finished_at IS NOT NULL
    )
    SELECT array_agg(l.id) INTO jobs FROM line l;
    met := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id = ANY (jobs) AND j.worker_job_id IS NULL AND j.status::text IN ('RETRY', 'WAITING_FOR_APPROVAL')
          AND EXISTS (SELECT FROM cortex.job_wait w WHERE w.job_id = j.id AND cortex.is_wait_met(w)));
    IF met = '{}' THEN
        RETURN NEXT;
        RETURN;
    END IF;
    held := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id = ANY (met) AND j.worker_job_id IS NULL AND j.status::text IN ('RETRY', 'WAITING_FOR_APPROVAL')
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    woken := (SELECT count(*) FROM cortex.give_tasks(held));
    IF cardinality(held) < cardinality(met) THEN
        INSERT INTO cortex.job_wake (job_id) SELECT m.id FROM unnest(met) AS m(id) WHERE m.id <> ALL (held);
        postponed := postponed + cardinality(met) - cardinality(held);
    END IF;
    RETURN NEXT;
END $function$;

-- Withdraws what has lost against the first of several waits: requests to people are cancelled, signals are the first of their queues again, children that are not detached are to be cancelled.
CREATE FUNCTION cortex.first_withdraws()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    line uuid;
BEGIN
    -- Its pod holds the task: nobody decides a request of the job, and no other attempt takes a signal, meanwhile.
    IF NEW.output->'approvals' IS NOT NULL THEN
        UPDATE cortex.approval a
        SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL, reason = 'its job goes on without it'
        WHERE a.job_id = NEW.job_id AND a.status = 'PENDING'
          AND a.key IN (SELECT json_array_elements_text(NEW.output->'approvals'));
    END IF;
    IF NEW.output->'signals' IS NOT NULL THEN
        line := (SELECT coalesce(j.lineage_id, j.id) FROM cortex.job_record j WHERE j.id = NEW.job_id);
        WITH back AS (
            UPDATE cortex.signal s SET taken_by = NULL, taken_line = NULL, taken_step = NULL, taken_at = NULL
            FROM json_array_elements_text(NEW.output->'signals') AS loser(step)
            WHERE s.taken_line = line AND s.taken_step = loser.step AND s.taken_at IS NOT NULL
            RETURNING s.tenant, s.name, s.key
        )
        -- Another job may wait for one of a key; this one runs.
        INSERT INTO cortex.job_wake (tenant, name, key)
        SELECT DISTINCT b.tenant, b.name, b.key FROM back b WHERE b.key IS NOT NULL;
        IF FOUND THEN
            PERFORM pg_notify('cortex_wake', '');
        END IF;
    END IF;
    IF NEW.output->'children' IS NOT NULL THEN
        INSERT INTO cortex.child_cut (parent_id, step)
        SELECT DISTINCT NEW.job_id, loser.step FROM json_array_elements_text(NEW.output->'children') AS loser(step)
        WHERE loser.step <> ''
        ON CONFLICT DO NOTHING;
        PERFORM pg_notify('cortex_wake', '');
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.first_withdraws() FROM PUBLIC;

CREATE TRIGGER first_withdraws AFTER INSERT ON cortex.job_step FOR EACH ROW WHEN (new.kind = 'first'::text AND new.attempt > 0) EXECUTE FUNCTION cortex.first_withdraws();

-- Events from outside for jobs: those that wait to be received, and those that were.
CREATE TABLE cortex.signal (
    id uuid NOT NULL,  -- The signal.
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Order of arrival.
    tenant text NOT NULL,  -- Of its job, or of the jobs that may take it.
    name text NOT NULL,  -- A step receives signals of one name.
    job_id uuid,  -- The job that it was sent to; null: it was sent to a key.
    lineage_id uuid,  -- The first job of that job's lineage: a job that continues a failed one takes what that has left.
    key text,  -- The key that it was sent to, for whichever job asks for it first; kept for 24 hours.
    payload jsonb NOT NULL,  -- Its content.
    sent_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was sent.
    sent_by text,  -- Who sent it, as the sender says: its setting cortex.actor.
    sent_with text NOT NULL,  -- The credential that sent it: os:UID, token:ID or db:LOGIN.
    only_for text,  -- Only jobs that were submitted with this credential take it: that of a login that may only submit. Null: any job of the tenant.
    idempotency_key text,  -- Sending it again under the same key does nothing.
    taken_by uuid,  -- The job that has received it.
    taken_line uuid,  -- The first job of that job's lineage.
    taken_step text,  -- The step that has received it: asking again returns the same signal.
    taken_at timestamptz,  -- When it was received.
    CONSTRAINT signal_pkey PRIMARY KEY (id),
    CONSTRAINT signal_key_check CHECK (length(key) >= 1 AND length(key) <= 500),
    CONSTRAINT signal_name_check CHECK (length(name) >= 1 AND length(name) <= 100),
    CONSTRAINT signal_payload_check CHECK (pg_column_size(payload) <= 2097152),
    CONSTRAINT signal_to_a_job_or_a_key CHECK (num_nulls(lineage_id, key) = 1 AND (job_id IS NULL) = (lineage_id IS NULL)),
    CONSTRAINT taken_as_a_whole CHECK (num_nulls(taken_by, taken_line, taken_step, taken_at) = ANY (ARRAY[0, 4]))
) WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.1, autovacuum_vacuum_cost_delay=1);
CREATE INDEX signal_of_job ON cortex.signal USING btree (lineage_id, name, seq) WHERE taken_at IS NULL AND lineage_id IS NOT NULL;
CREATE INDEX signal_of_key ON cortex.signal USING btree (key, tenant, name, seq) WHERE taken_at IS NULL AND key IS NOT NULL;
CREATE INDEX signal_old ON cortex.signal USING btree (sent_at) WHERE taken_at IS NULL AND key IS NOT NULL;
CREATE INDEX signal_list ON cortex.signal USING btree (lineage_id, seq) WHERE lineage_id IS NOT NULL;
CREATE UNIQUE INDEX signal_taken ON cortex.signal USING btree (taken_line, taken_step) WHERE taken_at IS NOT NULL;
CREATE UNIQUE INDEX signal_once_for_job ON cortex.signal USING btree (lineage_id, idempotency_key) WHERE lineage_id IS NOT NULL AND idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX signal_once_for_key ON cortex.signal USING btree (key, tenant, COALESCE(only_for, ''::text), idempotency_key) WHERE key IS NOT NULL AND idempotency_key IS NOT NULL;
GRANT SELECT ON cortex.signal TO cortex_runtime;
GRANT SELECT ON cortex.signal TO cortex_reader;

-- Refuses a signal that cannot be sent to any job.
CREATE FUNCTION cortex.refuse_signal(name text, payload jsonb, job uuid, key text, idempotency_key text)
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    bytes_max CONSTANT int := 262144;
    bytes int := octet_length(payload::text);
BEGIN
    IF bytes > bytes_max AND bytes < 2 * bytes_max THEN
        -- As its sender counts: jsonb shows a blank after each comma and colon.
        bytes := octet_length(regexp_replace(payload::text, '("(?:[^"\\]|\\.)*")|([,:]) ', '\1\2', 'g'));
    END IF;
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 100 OR name ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'name % of a signal is not text of 1 to 100 characters', coalesce(quote_literal(left(name, 60)), 'null')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'such as payment: the name that the job receives';
    END IF;
    IF num_nulls(job, key) <> 1 THEN
        RAISE EXCEPTION 'signal "%" is %', name,
            CASE WHEN job IS NULL THEN 'for neither a job nor a key' ELSE 'for both a job and a key' END
            USING ERRCODE = 'invalid_parameter_value', HINT = 'name the job that receives it, or a key such as order-8812';
    END IF;
    IF length(key) NOT BETWEEN 1 AND 500 OR key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'key % of signal "%" is not text of 1 to 500 characters', quote_literal(left(key, 60)), name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'such as order-8812';
    END IF;
    IF bytes > bytes_max THEN
        RAISE EXCEPTION 'signal "%" has % bytes of JSON, more than %', name, bytes, bytes_max
            USING ERRCODE = 'invalid_parameter_value', HINT = 'keep large data elsewhere and send where it is';
    END IF;
    -- What pods could not read again: jsonb writes large numbers out, digit by digit.
    IF jsonb_path_exists(payload, '$.** ? (@ >= 18446744073709551616 || @ < -9223372036854775808)')
       OR jsonb_path_exists(payload, 'strict $.**{65 to last}') THEN
        RAISE EXCEPTION 'signal "%" has a number that does not fit 64 bits, or is nested deeper than 64 levels', name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'send it as text';
    END IF;
    IF idempotency_key !~ '^[!-~]{1,200}$' THEN
        RAISE EXCEPTION 'idempotency key "%" is not 1 to 200 visible ASCII characters', left(idempotency_key, 80)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'a UUID is a good one';
    END IF;
END $function$;

-- The job that receives what is sent to this one: itself, or the one that continues it. Raises if there is none, unless this key shows that it was sent before, and for a job that the caller may not know of.
CREATE FUNCTION cortex.signal_target(job uuid, of_tenant text, idempotency_key text)
 RETURNS cortex.job_record
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    asked cortex.job_record;
    target cortex.job_record;
BEGIN
    SELECT j.* INTO asked FROM cortex.job_record j
    WHERE j.id = signal_target.job AND j.tenant = coalesce(of_tenant, j.tenant)
      AND (cortex.caller_is_runtime() OR cortex.caller_submitted(j.submitted_with));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % does not exist', job
            USING ERRCODE = 'no_data_found', HINT = 'list them: cortex jobs ls';
    END IF;
    target := asked;
    IF asked.finished_at IS NOT NULL THEN
        SELECT j.* INTO target FROM cortex.job_record j
        WHERE j.lineage_id = coalesce(asked.lineage_id, asked.id) AND j.finished_at IS NULL;
        IF NOT FOUND AND EXISTS (
            SELECT FROM cortex.signal s WHERE s.lineage_id = coalesce(asked.lineage_id, asked.id)
              AND s.idempotency_key = signal_target.idempotency_key) THEN
            RETURN asked;  -- the same signal again, whose sender has not heard that it arrived
        ELSIF target.id IS NULL THEN
            RAISE EXCEPTION 'job % is %: it has ended and receives no signals', job, asked.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'signal_to_ended_job',
                      HINT = CASE WHEN asked.status = 'FAILED' THEN 'retry it first: cortex dead retry ' || asked.id
                                  ELSE 'submit it anew, or send the signal to a key' END;
        END IF;
    END IF;
    RETURN target;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.signal_target(uuid,text,text) FROM PUBLIC;

-- Sends a signal from any language, in the caller's transaction: to a job, or to a key, for the job that asks for it; returns its id. Sending the same again to the same job or key under an idempotency key does nothing; another one raises. Raises for a job that has ended.
CREATE FUNCTION cortex.send_signal(name text, payload jsonb DEFAULT 'null'::jsonb, job uuid DEFAULT NULL::uuid, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    waiting_max CONSTANT int := 10000;
    is_runtime CONSTANT boolean := cortex.caller_is_runtime();
    own_tenant CONSTANT text := CASE WHEN is_runtime THEN nullif(current_setting('cortex.tenant', true), '')
                                     ELSE cortex.caller_tenant() END;
    target cortex.job_record;
    made cortex.signal;
    first record;
BEGIN
    PERFORM cortex.refuse_signal(send_signal.name, send_signal.payload, send_signal.job, send_signal.key,
                                 send_signal.idempotency_key);
    IF length(send_signal.tenant) NOT BETWEEN 1 AND 100 OR send_signal.tenant ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'tenant % of signal "%" is not text of 1 to 100 characters', quote_literal(left(send_signal.tenant, 60)),
            send_signal.name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'the tenant of the job that receives it; none: default';
    END IF;
    IF send_signal.tenant <> own_tenant THEN
        RAISE EXCEPTION 'a signal for tenant "%" may not be sent: % is of tenant "%"', send_signal.tenant, session_user, own_tenant
            USING ERRCODE = 'insufficient_privilege', HINT = 'leave out the tenant';
    END IF;
    made.id := cortex.uuid7();
    made.tenant := coalesce(own_tenant, send_signal.tenant);
    made.key := send_signal.key;
    IF send_signal.job IS NOT NULL THEN
        target := cortex.signal_target(send_signal.job, made.tenant, send_signal.idempotency_key);
        made.tenant := target.tenant;
        made.job_id := target.id;
        made.lineage_id := coalesce(target.lineage_id, target.id);
    END IF;
    made.tenant := coalesce(made.tenant, 'default');
    made.only_for := CASE WHEN NOT is_runtime THEN 'db:' || session_user END;
    made.sent_with := coalesce(made.only_for, nullif(current_setting('cortex.credential', true), ''), 'db:' || session_user);
    IF EXISTS (
        SELECT FROM cortex.signal s WHERE s.taken_at IS NULL AND s.lineage_id = made.lineage_id OFFSET waiting_max - 1 LIMIT 1)
       OR EXISTS (
        -- What a login that may only submit sends counts for itself alone: it stops no other sender.
        SELECT FROM cortex.signal s WHERE s.taken_at IS NULL AND s.key = made.key AND s.tenant = made.tenant
          AND s.only_for IS NOT DISTINCT FROM made.only_for
        OFFSET waiting_max - 1 LIMIT 1) THEN
        RAISE EXCEPTION '% has % signals that no job has received', coalesce('job ' || target.id, format('key %L', made.key)),
            waiting_max
            USING ERRCODE = 'check_violation', CONSTRAINT = 'signals_waiting', HINT = 'send it again when the job has received some';
    END IF;
    INSERT INTO cortex.signal (id, tenant, name, job_id, lineage_id, key, payload, sent_by, sent_with, only_for, idempotency_key)
    VALUES (made.id, made.tenant, send_signal.name, made.job_id, made.lineage_id, made.key,
            coalesce(send_signal.payload, 'null'), nullif(current_setting('cortex.actor', true), ''), made.sent_with,
            made.only_for, send_signal.idempotency_key)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT s.id, s.name, s.payload INTO first FROM cortex.signal s
        WHERE s.idempotency_key = send_signal.idempotency_key AND (
            s.lineage_id = made.lineage_id
            OR s.key = made.key AND s.tenant = made.tenant AND coalesce(s.only_for, '') = coalesce(made.only_for, ''));
        IF first.name <> send_signal.name OR first.payload <> coalesce(send_signal.payload, 'null') THEN
            RAISE EXCEPTION 'key "%" was used for another signal: %', send_signal.idempotency_key, first.id
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'key_of_another_request',
                      HINT = 'give each signal a key of its own';
        END IF;
        RETURN first.id;
    END IF;
    IF made.job_id IS NOT NULL THEN
        INSERT INTO cortex.job_wake (job_id) VALUES (made.job_id);
    ELSE
        INSERT INTO cortex.job_wake (tenant, name, key) VALUES (made.tenant, send_signal.name, made.key);
    END IF;
    PERFORM pg_notify('cortex_wake', '');
    RETURN made.id;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.send_signal(text,jsonb,uuid,text,text,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.send_signal(text,jsonb,uuid,text,text,text) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.send_signal(text,jsonb,uuid,text,text,text) TO cortex_runtime;

-- Whether a signal of that name waits for a job, or for one that asks for the key.
CREATE FUNCTION cortex.has_signal(of_job uuid, of_name text, of_key text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (
    SELECT FROM cortex.job_record j JOIN cortex.signal s ON s.lineage_id = coalesce(j.lineage_id, j.id)
    WHERE j.id = of_job AND of_key IS NULL AND s.name = of_name AND s.taken_at IS NULL
    UNION ALL
    SELECT FROM cortex.job_record j JOIN cortex.signal s ON s.key = of_key AND s.tenant = j.tenant
    WHERE j.id = of_job AND s.name = of_name AND s.taken_at IS NULL
      AND (s.only_for IS NULL OR s.only_for = j.submitted_with)) $function$;

-- Gives a step of a running job the first signal in its queue that no step has, or the one that the step has already. Without an id: there is none yet. is_owned false: the attempt is over.
CREATE FUNCTION cortex.take_signal(of_job uuid, of_attempt integer, of_pod uuid, of_step text, of_name text, of_key text)
 RETURNS TABLE(is_owned boolean, id uuid, payload text, sent_at timestamp with time zone)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    line uuid;
    own cortex.job_record;
BEGIN
    -- A takeover waits for this: two attempts never ask at once.
    SELECT j.* INTO own FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
    WHERE t.job_id = of_job AND t.attempt = of_attempt AND t.locked_by = of_pod FOR SHARE OF t;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL, NULL::timestamptz;
        RETURN;
    END IF;
    line := coalesce(own.lineage_id, own.id);
    RETURN QUERY SELECT true, s.id, s.payload::text, s.sent_at FROM cortex.signal s
        WHERE s.taken_line = line AND s.taken_step = of_step AND s.taken_at IS NOT NULL AND s.name = of_name;
    IF FOUND THEN
        RETURN;
    END IF;
    -- Whoever asks for the same key at the same time gets the next one.
    RETURN QUERY UPDATE cortex.signal s
        SET taken_by = of_job, taken_line = line, taken_step = of_step, taken_at = cortex.now()
        WHERE s.id = (
            SELECT n.id FROM cortex.signal n
            WHERE of_key IS NULL AND n.lineage_id = line AND n.name = of_name AND n.taken_at IS NULL
            ORDER BY n.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
        OR s.id = (
            SELECT n.id FROM cortex.signal n
            WHERE n.key = of_key AND n.tenant = own.tenant AND n.name = of_name AND n.taken_at IS NULL
              AND (n.only_for IS NULL OR n.only_for = own.submitted_with)
            ORDER BY n.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING true, s.id, s.payload::text, s.sent_at;
    IF NOT FOUND THEN
        RETURN QUERY SELECT true, NULL::uuid, NULL, NULL::timestamptz;
    END IF;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.take_signal(uuid,integer,uuid,text,text,text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.take_signal(uuid,integer,uuid,text,text,text) TO cortex_runtime;

-- Deletes signals to keys that no job has asked for within 24 hours; returns how many.
CREATE FUNCTION cortex.forget_signals(most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    gone int;
BEGIN
    DELETE FROM cortex.signal s WHERE s.id IN (
        SELECT o.id FROM cortex.signal o
        WHERE o.taken_at IS NULL AND o.key IS NOT NULL AND o.sent_at < cortex.now() - interval '24 hours'
          AND NOT EXISTS (SELECT FROM cortex.job_wait w WHERE w.key = o.key AND w.name = o.name AND w.key <> '')
        ORDER BY o.sent_at LIMIT most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_signals(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_signals(integer) TO cortex_runtime;

-- URLs to which anybody may POST signals of one name to one job: see ctx.callback_url.
CREATE TABLE cortex.callback (
    id uuid NOT NULL,  -- Its id in the URL, which is no secret: derived from the lineage and the step.
    lineage_id uuid NOT NULL,  -- The first job of the lineage that receives what is posted.
    token_digest bytea NOT NULL,  -- SHA-256 of the token in the URL, which is stored nowhere.
    step text NOT NULL,  -- Key of the step that opened it.
    name text NOT NULL,  -- The name of its signals.
    schema jsonb,  -- JSON schema of the bodies that it takes; null: any JSON.
    opened_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was opened.
    expires_at timestamptz NOT NULL,  -- From then on it takes nothing.
    CONSTRAINT callback_pkey PRIMARY KEY (id),
    CONSTRAINT callback_name_check CHECK (length(name) >= 1 AND length(name) <= 100),
    CONSTRAINT callback_step_check CHECK (length(step) >= 1 AND length(step) <= 500),
    CONSTRAINT callback_token_digest_check CHECK (octet_length(token_digest) = 32)
);
CREATE INDEX callback_of_job ON cortex.callback USING btree (lineage_id);
GRANT INSERT, SELECT, UPDATE ON cortex.callback TO cortex_runtime;
GRANT SELECT (id, lineage_id, step, name, schema, opened_at, expires_at) ON cortex.callback TO cortex_reader;

-- Job types and agents with limits. The pod that registered last declares those of its types, and whoever applies an agent those of the agent. Few.
CREATE TABLE cortex.limited_type (
    type text NOT NULL,  -- The job type, or agent:NAME.
    spec jsonb NOT NULL,  -- Its limits, in their order.
    holds boolean NOT NULL,  -- Whether a limit decides when jobs begin; otherwise all of them concern the tokens of their calls.
    shape integer NOT NULL DEFAULT 1,  -- Raised when the keys of its tasks have to be made anew.
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When they were declared differently from before.
    CONSTRAINT limited_type_pkey PRIMARY KEY (type),
    CONSTRAINT limited_type_type_check CHECK (length(type) >= 1 AND length(type) <= 100)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.limited_type TO cortex_runtime;
GRANT SELECT ON cortex.limited_type TO cortex_reader;

-- Each limit of the job types and agents with limits.
CREATE TABLE cortex.job_limit (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,  -- Its number.
    type text NOT NULL,  -- The job type, or agent:NAME.
    place smallint NOT NULL,  -- Its place among the limits of its type, from 1.
    unit text NOT NULL,  -- running: jobs that have begun and not ended or begun to wait · jobs: jobs that begin · tokens: of calls of models.
    per text,  -- In which span of time, at any moment; null: at once.
    key text,  -- What it is counted for: tenant, agent or queue of the job, or a path into its payload. Null: all jobs of the type together.
    amount bigint NOT NULL,  -- At most so many for one key.
    name text GENERATED ALWAYS AS ((((type || ':'::text) || unit) || COALESCE('/'::text || per, ''::text)) || COALESCE(':'::text || key, ''::text)) STORED,  -- Its name for people and waiting jobs: digest:running:tenant, digest:jobs/minute:customer.
    created_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was first declared.
    CONSTRAINT job_limit_pkey PRIMARY KEY (id),
    CONSTRAINT job_limit_name_key UNIQUE (name),
    CONSTRAINT job_limit_type_fkey FOREIGN KEY (type) REFERENCES cortex.limited_type(type) ON DELETE CASCADE,
    CONSTRAINT job_limit_amount_check CHECK (amount >= 1 AND amount <= '1000000000000'::bigint),
    CONSTRAINT job_limit_key_check CHECK (length(key) >= 1 AND length(key) <= 100),
    CONSTRAINT job_limit_per_check CHECK (per = ANY (ARRAY['second'::text, 'minute'::text, 'hour'::text, 'day'::text])),
    CONSTRAINT job_limit_place_check CHECK (place >= 1 AND place <= 10),
    CONSTRAINT job_limit_unit_check CHECK (unit = ANY (ARRAY['running'::text, 'jobs'::text, 'tokens'::text])),
    CONSTRAINT rates_are_per_time CHECK ((unit = 'running'::text) = (per IS NULL))
);
CREATE INDEX job_limit_type ON cortex.job_limit USING btree (type, place);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.job_limit TO cortex_runtime;
GRANT SELECT ON cortex.job_limit TO cortex_reader;

-- The places that jobs hold in limits of how many run at once, and until they begin, in limits per time. Each is deleted with the task of its job at the latest.
CREATE TABLE cortex_worker.limit_hold (
    job_id uuid NOT NULL,  -- The job.
    limit_id integer NOT NULL,  -- The limit.
    key text COLLATE "C" NOT NULL,  -- Its key in that limit; empty: the limit has none, or the payload does not name it.
    taken_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When it was let through.
    CONSTRAINT limit_hold_pkey PRIMARY KEY (job_id, limit_id),
    CONSTRAINT limit_hold_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES cortex.job_limit(id) ON DELETE CASCADE
) WITH (autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000);
CREATE INDEX limit_hold_key ON cortex_worker.limit_hold USING btree (limit_id, key);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.limit_hold TO cortex_runtime;
GRANT SELECT ON cortex_worker.limit_hold TO cortex_reader;

-- What was used of limits per time, in slices of a sixtieth of that time. A slice counts until all of it is older than that.
CREATE TABLE cortex_worker.limit_use (
    limit_id integer NOT NULL,  -- The limit.
    key text COLLATE "C" NOT NULL,  -- The key.
    began_at timestamptz NOT NULL,  -- When the slice began.
    used bigint NOT NULL,  -- Jobs that began in it, or tokens.
    CONSTRAINT limit_use_pkey PRIMARY KEY (limit_id, key, began_at),
    CONSTRAINT limit_use_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES cortex.job_limit(id) ON DELETE CASCADE,
    CONSTRAINT limit_use_used_check CHECK (used >= 0)
) WITH (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_scale_factor=0.02);
CREATE INDEX limit_use_began ON cortex_worker.limit_use USING btree (began_at);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.limit_use TO cortex_runtime;
GRANT SELECT ON cortex_worker.limit_use TO cortex_reader;

-- Whose turn it was last. Few rows: one for all keys, and one for each key with tasks that other keys tell apart.
CREATE TABLE cortex_worker.limit_cursor (
    turn text[] COLLATE "C" NOT NULL,  -- Type, shape and key that take turns; empty: which of these was last.
    served text[] COLLATE "C" NOT NULL,  -- The one that was let through last.
    served_at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    CONSTRAINT limit_cursor_pkey PRIMARY KEY (turn)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex_worker.limit_cursor TO cortex_runtime;
GRANT SELECT ON cortex_worker.limit_cursor TO cortex_reader;

-- The length of a span of time, without regard to time zones.
CREATE FUNCTION cortex_worker.span_of(per text)
 RETURNS interval
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN CASE per WHEN 'second'::text THEN '00:00:01'::interval WHEN 'minute'::text THEN '00:01:00'::interval WHEN 'hour'::text THEN '01:00:00'::interval ELSE '24:00:00'::interval END;

-- When the slice of a limit per time began that contains an instant.
CREATE FUNCTION cortex_worker.slice_at(per text, at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN date_bin((cortex_worker.span_of(per) / (60)::double precision), at, '2000-01-01 00:00:00+00'::timestamp with time zone);

-- What counts at this moment of a key of a limit per time: at least what was used in the span that ends now.
CREATE FUNCTION cortex_worker.used_of(of_limit integer, of_key text, per text)
 RETURNS bigint
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN (SELECT (COALESCE(sum(u.used), (0)::numeric))::bigint AS "coalesce" FROM cortex_worker.limit_use u WHERE ((u.limit_id = used_of.of_limit) AND (u.key = used_of.of_key) AND (u.began_at > ((cortex.now() - cortex_worker.span_of(used_of.per)) - (cortex_worker.span_of(used_of.per) / (60)::double precision)))));

-- When the oldest use of a key of a limit per time stops counting; null: there is none.
CREATE FUNCTION cortex_worker.room_at(of_limit integer, of_key text, per text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN (SELECT ((min(u.began_at) + cortex_worker.span_of(room_at.per)) + (cortex_worker.span_of(room_at.per) / (60)::double precision)) FROM cortex_worker.limit_use u WHERE ((u.limit_id = room_at.of_limit) AND (u.key = room_at.of_key) AND (u.used > 0) AND (u.began_at > ((cortex.now() - cortex_worker.span_of(room_at.per)) - (cortex_worker.span_of(room_at.per) / (60)::double precision)))));

-- A text, number or boolean of 1 to 200 characters at a dotted path; null: there is none.
CREATE FUNCTION cortex_worker.scalar_at(payload jsonb, path text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((jsonb_typeof((payload #> string_to_array(path, '.'::text))) = ANY (ARRAY['string'::text, 'number'::text, 'boolean'::text])) AND ((length((payload #>> string_to_array(path, '.'::text))) >= 1) AND (length((payload #>> string_to_array(path, '.'::text))) <= 200))) THEN (payload #>> string_to_array(path, '.'::text)) ELSE NULL::text END;

-- Whose limits count a job: its agent's, if it runs an agent, else its type's.
CREATE FUNCTION cortex_worker.limited_as(type text, agent text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((type = 'run_agent'::text) AND (agent IS NOT NULL)) THEN ('agent:'::text || agent) ELSE type END;

-- The key of a job in a limit; null: the job does not have it.
CREATE FUNCTION cortex_worker.limit_key(path text, payload jsonb, tenant text, agent text, queue text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE path WHEN 'tenant'::text THEN COALESCE(tenant, 'default'::text) WHEN 'agent'::text THEN agent WHEN 'queue'::text THEN queue ELSE cortex_worker.scalar_at(payload, CASE WHEN starts_with(path, 'payload.'::text) THEN substr(path, 9) ELSE path END) END;

-- What a task of a limited type has as its keys: the type and its shape, the key by which turns are taken, and the key in each of its limits that decide when jobs begin.
CREATE FUNCTION cortex_worker.limit_keys(of_type text, shape integer, payload jsonb, tenant text, agent text, queue text)
 RETURNS text[]
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
-- Turns are taken by the first limit that has a key; a job without a key that was asked for later shares the empty one.
SELECT ARRAY[of_type, shape::text, coalesce((array_agg(k.key ORDER BY k.place) FILTER (WHERE k.path IS NOT NULL))[1], '')]
    || array_agg(k.key ORDER BY k.place)
FROM (SELECT l.place, l.key AS path,
             CASE WHEN l.key IS NULL THEN ''
                  ELSE coalesce(cortex_worker.limit_key(l.key, payload, tenant, agent, queue), '') END AS key
      FROM cortex.job_limit l WHERE l.type = of_type AND l.unit <> 'tokens') k $function$;

-- Refuses a batch with a job that lacks the key of a limit of its type.
CREATE FUNCTION cortex.refuse_without_limit_key(types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    lacking record;
BEGIN
    SELECT s.type, l.key, l.name INTO lacking
    FROM (SELECT unnest(types) AS type, unnest(payloads) AS payload, unnest(agents) AS agent, unnest(tenants) AS tenant,
                 unnest(queue_names) AS queue_name) s
    JOIN cortex.job_limit l ON l.type = cortex_worker.limited_as(s.type, s.agent)
    -- The model of a call is known when it is made.
    WHERE l.key IS NOT NULL AND NOT (l.unit = 'tokens' AND l.key = 'model')
      AND cortex_worker.limit_key(l.key, s.payload, s.tenant, s.agent, s.queue_name) IS NULL
    LIMIT 1;
    IF FOUND AND lacking.key IN ('agent', 'queue') THEN
        RAISE EXCEPTION 'a job of type "%" must have % %: limit % counts by it', lacking.type,
            CASE lacking.key WHEN 'agent' THEN 'an' ELSE 'a' END, lacking.key, lacking.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_key', HINT = format('name its %s', lacking.key);
    ELSIF FOUND THEN
        RAISE EXCEPTION 'payload.% of job type "%" must be a text, number or boolean of 1 to 200 characters: limit % counts by it',
            CASE WHEN starts_with(lacking.key, 'payload.') THEN substr(lacking.key, 9) ELSE lacking.key END,
            lacking.type, lacking.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_key', HINT = 'add it to the payload';
    END IF;
END $function$;

-- Makes tasks of limited types wait for their limits, under their keys as they are now; those that have been let through are left alone. Returns how many.
CREATE FUNCTION cortex_worker.hold_tasks(jobs uuid[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    number int;
BEGIN
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM unnest(jobs) AS w(id) JOIN cortex_worker.task t ON t.job_id = w.id
        WHERE t.state <> 'LOCKED' AND t.is_admitted IS NOT TRUE
        ORDER BY t.job_id FOR UPDATE OF t
    ), keyed AS MATERIALIZED (
        SELECT k.job_id, ARRAY[k.type, k.shape::text, coalesce((array_agg(k.key ORDER BY k.place) FILTER (WHERE k.has_key))[1], '')]
               || array_agg(k.key ORDER BY k.place) AS keys
        FROM (SELECT task.job_id, l.type, l.shape, g.place, g.key IS NOT NULL AS has_key, CASE WHEN g.key IS NULL THEN '' ELSE
                     coalesce(cortex_worker.limit_key(g.key, j.payload, j.tenant, a.name, j.queue_name), '') END AS key
              FROM task JOIN cortex.job_record j ON j.id = task.job_id
              LEFT JOIN cortex.agent a ON a.id = j.agent_id
              JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
              JOIN cortex.job_limit g ON g.type = l.type AND g.unit <> 'tokens') k
        GROUP BY k.job_id, k.type, k.shape
    )
    UPDATE cortex_worker.task t
    SET is_admitted = false,
        state = CASE t.state WHEN 'READY' THEN 'HELD' WHEN 'STRANDED' THEN 'QUEUED' ELSE t.state END,
        limit_keys = k.keys
    FROM keyed k WHERE t.job_id = k.job_id AND t.state <> 'LOCKED';
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $function$;

CREATE FUNCTION cortex_worker.hold_new_tasks()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    jobs uuid[];
    number int;
BEGIN
    IF NOT EXISTS (SELECT FROM cortex.limited_type WHERE holds) AND NOT EXISTS (SELECT FROM inserted WHERE NOT is_admitted)
    THEN
        RETURN NULL;
    END IF;
    -- The type is the first word of what a task is called.
    jobs := ARRAY(SELECT i.job_id FROM inserted i
                  WHERE NOT i.is_admitted OR EXISTS (
                      SELECT FROM cortex.limited_type l WHERE l.type = split_part(i.task, ' ', 1) AND l.holds)
                  OR split_part(i.task, ' ', 1) = 'run_agent' AND EXISTS (
                      SELECT FROM cortex.job_record j JOIN cortex.agent a ON a.id = j.agent_id
                      JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
                      WHERE j.id = i.job_id));
    IF jobs = '{}' THEN
        RETURN NULL;
    END IF;
    number := cortex_worker.hold_tasks(jobs);
    IF number > 0 THEN
        PERFORM pg_notify('cortex_limit', '');
    END IF;
    IF number < cardinality(jobs) THEN
        -- The limits were removed since the submit read them: nothing would let these through.
        UPDATE cortex_worker.task t
        SET is_admitted = NULL, state = CASE t.state WHEN 'HELD' THEN 'READY' ELSE t.state END
        WHERE t.job_id = ANY (jobs) AND NOT t.is_admitted AND t.limit_keys IS NULL;
        PERFORM pg_notify('cortex_task', 'ready');
    END IF;
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.hold_new_tasks() FROM PUBLIC;

CREATE TRIGGER task_waits_for_limits AFTER INSERT ON cortex_worker.task REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION cortex_worker.hold_new_tasks();

CREATE FUNCTION cortex_worker.free_places()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM cortex_worker.limit_hold WHERE job_id = OLD.job_id;
    PERFORM pg_notify('cortex_limit', '');
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.free_places() FROM PUBLIC;

-- Counts jobs that begin in the limits per time that let them through. Called by the trigger of claims only.
CREATE FUNCTION cortex_worker.count_begun(jobs uuid[])
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH begun AS (
    DELETE FROM cortex_worker.limit_hold h USING cortex.job_limit l
    WHERE h.job_id = ANY (jobs) AND l.id = h.limit_id AND l.unit = 'jobs'
    RETURNING l.id, h.key, l.per
)
INSERT INTO cortex_worker.limit_use AS u (limit_id, key, began_at, used)
SELECT b.id, b.key, cortex_worker.slice_at(b.per, cortex.now()), count(*)
FROM begun b GROUP BY b.id, b.key, b.per
-- In this order, so that two claims do not deadlock.
ORDER BY b.id, b.key
ON CONFLICT ON CONSTRAINT limit_use_pkey DO UPDATE SET used = u.used + excluded.used $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.count_begun(uuid[]) FROM PUBLIC;

CREATE TRIGGER task_frees_places AFTER DELETE ON cortex_worker.task FOR EACH ROW WHEN (old.is_admitted) EXECUTE FUNCTION cortex_worker.free_places();

-- A task that waits in its named queue again asks for its places again when it is at the head.
CREATE FUNCTION cortex_worker.give_places_back()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    is_limited CONSTANT boolean := EXISTS (SELECT FROM cortex.limited_type l WHERE l.type = NEW.limit_keys[1] AND l.holds);
BEGIN
    UPDATE cortex_worker.task t
    SET is_admitted = CASE WHEN is_limited THEN false END, limit_keys = CASE WHEN is_limited THEN t.limit_keys END
    WHERE t.job_id = NEW.job_id AND t.is_admitted AND t.state IN ('QUEUED', 'STRANDED');
    DELETE FROM cortex_worker.limit_hold WHERE job_id = NEW.job_id;
    PERFORM pg_notify('cortex_limit', '');
    RETURN NULL;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.give_places_back() FROM PUBLIC;

CREATE TRIGGER task_gives_places_back AFTER UPDATE ON cortex_worker.task FOR EACH ROW WHEN (old.is_admitted AND new.is_admitted AND (old.state = ANY (ARRAY['READY'::cortex_worker.task_state, 'LOCKED'::cortex_worker.task_state])) AND (new.state = ANY (ARRAY['QUEUED'::cortex_worker.task_state, 'STRANDED'::cortex_worker.task_state]))) EXECUTE FUNCTION cortex_worker.give_places_back();

-- The keys by which turns are taken that have waiting tasks, in their order, in a range.
CREATE FUNCTION cortex_worker.held_turns(after text[], upto text[], most integer)
 RETURNS TABLE(turn text[])
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
-- Walks the keys by which turns are taken by index, one probe each. No text lies between K and K || chr(1).
WITH RECURSIVE walk AS (
    (SELECT t.limit_keys[1:3] AS turn FROM cortex_worker.task t
     WHERE t.state = 'HELD' AND t.limit_keys >= after COLLATE "C" ORDER BY t.limit_keys LIMIT 1)
    UNION ALL
    SELECT (SELECT t.limit_keys[1:3] FROM cortex_worker.task t
            WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[w.turn[1], w.turn[2], w.turn[3] || chr(1)] COLLATE "C"
            ORDER BY t.limit_keys LIMIT 1)
    FROM walk w WHERE w.turn IS NOT NULL AND (upto IS NULL OR w.turn <= upto COLLATE "C")
)
SELECT w.turn FROM walk w WHERE w.turn IS NOT NULL AND (upto IS NULL OR w.turn <= upto COLLATE "C") LIMIT most $function$;

-- The different keys of the waiting tasks of one turn, in their order, after some keys: of jobs that have begun (0), and of the others (1).
CREATE FUNCTION cortex_worker.held_lanes(turn text[], after text[], most integer)
 RETURNS TABLE(keys text[], fresh integer)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH RECURSIVE walk AS (
    (SELECT t.limit_keys AS keys, 1 - least(t.attempt, 1) AS fresh FROM cortex_worker.task t
     WHERE t.state = 'HELD' AND t.limit_keys >= coalesce(after, turn) COLLATE "C"
       AND t.limit_keys < ARRAY[turn[1], turn[2], turn[3] || chr(1)] COLLATE "C"
     ORDER BY t.limit_keys, 1 - least(t.attempt, 1) LIMIT 1)
    UNION ALL
    SELECT next.* FROM walk w CROSS JOIN LATERAL (
        SELECT t.limit_keys, 1 - least(t.attempt, 1) FROM cortex_worker.task t
        WHERE t.state = 'HELD' AND (t.limit_keys, 1 - least(t.attempt, 1)) > (w.keys COLLATE "C", w.fresh)
          AND t.limit_keys < ARRAY[turn[1], turn[2], turn[3] || chr(1)] COLLATE "C"
        ORDER BY t.limit_keys, 1 - least(t.attempt, 1) LIMIT 1) next
)
SELECT w.keys, w.fresh FROM walk w LIMIT most $function$;

-- Shares the rooms of gates among entries, in turns: how many of each are let through, the room left, the entry that was served last, and whether an entry of the first round found a gate full that had room when the pass began.
CREATE FUNCTION cortex_worker.share_room(turns integer[], fresh integer[], waiting integer[], gates text[], INOUT rooms bigint[], budget integer, is_cut boolean, OUT grants integer[], OUT last_served integer, OUT was_full boolean)
 RETURNS record
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    number CONSTANT int := cardinality(turns);
    at_start CONSTANT bigint[] := rooms;
    granted int := 0;
    before_round int;
    -- Where the others of a turn continue: those that were served in this pass wait for the rest.
    served int[] := array_fill(0, ARRAY[number]);
    round int := 0;
    entry int;
    best int;
    gate int;
    is_free boolean;
BEGIN
    grants := array_fill(0, ARRAY[number]);
    was_full := false;
    LOOP
        before_round := granted;
        round := round + 1;
        entry := 1;
        WHILE entry <= number AND granted < budget LOOP
            best := NULL;
            LOOP
                IF grants[entry] < waiting[entry] AND (best IS NULL OR fresh[best] = 1 AND served[entry] < served[best]) THEN
                    is_free := true;
                    FOREACH gate IN ARRAY gates[entry]::int[] LOOP
                        IF rooms[gate] <= 0 THEN
                            is_free := false;
                            was_full := was_full OR round = 1 AND at_start[gate] > 0;
                            EXIT;
                        END IF;
                    END LOOP;
                    IF is_free THEN
                        best := entry;
                    END IF;
                END IF;
                entry := entry + 1;
                EXIT WHEN entry > number OR turns[entry] <> turns[entry - 1];
            END LOOP;
            IF best IS NOT NULL THEN
                FOREACH gate IN ARRAY gates[best]::int[] LOOP
                    rooms[gate] := rooms[gate] - 1;
                END LOOP;
                grants[best] := grants[best] + 1;
                granted := granted + 1;
                served[best] := round;
                last_served := best;
            END IF;
        END LOOP;
        -- Where more keys wait than one pass looks at, each gets one before any gets two.
        EXIT WHEN granted = before_round OR granted >= budget OR is_cut;
    END LOOP;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.share_room(integer[],integer[],integer[],text[],bigint[],integer,boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.share_room(integer[],integer[],integer[],text[],bigint[],integer,boolean) TO cortex_runtime;

-- Lets waiting tasks of limited types through, up to a number, as far as all their limits have room, in turns between keys. Returns how many, whether another process does it just now, and in how many seconds to look again. Locks: its turn, the tasks (skipping locked).
CREATE FUNCTION cortex_worker.admit(budget integer)
 RETURNS TABLE(count integer, is_skipped boolean, due_in_s double precision)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    -- What one pass looks at: keys that take turns, and of each the keys by which its tasks differ.
    turns_max CONSTANT int := 500;
    lanes_max CONSTANT int := 200;
    paused_max CONSTANT int := 200;
    aside_max CONSTANT int := 5000;
    is_picky CONSTANT boolean := EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind IN ('tenant', 'job', 'queue'));
    latest text[] COLLATE "C" := (SELECT c.served FROM cortex_worker.limit_cursor c WHERE c.turn = '{}');
    seen record;
    shared record;
    stale uuid[];
    done int := 0;
    room_in_s float8;
    has_more boolean := false;
BEGIN
    IF NOT cortex.take_turn('limits') THEN
        RETURN QUERY SELECT 0, true, NULL::float8;
        RETURN;
    END IF;
    -- Without limits, a session does not even plan what follows: that takes 20 ms.
    IF NOT EXISTS (SELECT FROM cortex.limited_type l WHERE l.holds)
       AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.state = 'HELD' AND t.limit_keys IS NOT NULL) THEN
        RETURN QUERY SELECT 0, false, NULL::float8;
        RETURN;
    END IF;
    -- Tasks whose transaction had not seen yet that their type has limits, or other ones.
    stale := ARRAY(
        SELECT t.job_id FROM cortex.limited_type l CROSS JOIN LATERAL (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = l.type AND t.state = 'READY' AND NOT t.is_suspect AND t.is_admitted IS NULL LIMIT budget) t
        WHERE l.holds AND l.changed_at > cortex.now() - interval '1 hour'
        UNION ALL
        -- Those of agents among the first ones of all agents with the same tools: whatever comes later is seen before it begins.
        SELECT t.job_id FROM (
            SELECT 'run_agent' AS task UNION ALL SELECT s.task FROM cortex.tool_set s) kind CROSS JOIN LATERAL (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = kind.task AND t.state = 'READY' AND NOT t.is_suspect AND t.is_admitted IS NULL
              AND EXISTS (SELECT FROM cortex.limited_type l WHERE starts_with(l.type, 'agent:') AND l.holds
                          AND l.changed_at > cortex.now() - interval '1 hour')
            ORDER BY t.priority, t.run_at, t.id LIMIT 1000) t
        JOIN cortex.job_record j ON j.id = t.job_id JOIN cortex.agent a ON a.id = j.agent_id
        JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
        UNION ALL
        SELECT t.job_id FROM cortex.limited_type l CROSS JOIN LATERAL (
            (SELECT t.job_id FROM cortex_worker.task t
             WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[l.type] COLLATE "C"
               AND t.limit_keys < ARRAY[l.type, l.shape::text] COLLATE "C" LIMIT budget)
            UNION ALL
            (SELECT t.job_id FROM cortex_worker.task t
             WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[l.type, l.shape::text || chr(1)] COLLATE "C"
               AND t.limit_keys < ARRAY[l.type || chr(1)] COLLATE "C" LIMIT budget)) t
        WHERE l.holds
        LIMIT budget);
    IF stale <> '{}' THEN
        RETURN QUERY SELECT cortex_worker.hold_tasks(stale), false, 0::float8;
        RETURN;
    END IF;
    WITH turn AS MATERIALIZED (
        SELECT w.turn, row_number() OVER (ORDER BY w.part, w.turn)::int AS n FROM (
            SELECT 0 AS part, h.turn FROM cortex_worker.held_turns(
                CASE WHEN latest IS NULL THEN '{}' ELSE ARRAY[latest[1], latest[2], latest[3] || chr(1)] END, NULL, turns_max + 1) h
            UNION ALL
            SELECT 1, h.turn FROM cortex_worker.held_turns('{}', latest, turns_max + 1) h WHERE latest IS NOT NULL) w
        ORDER BY w.part, w.turn LIMIT turns_max + 1
    ), lane AS MATERIALIZED (
        SELECT t.n AS turn_no, t.turn, w.keys, w.fresh,
               row_number() OVER (ORDER BY t.n, w.fresh, w.part, w.keys)::int AS n,
               w.number > lanes_max AS is_cut, w.is_last
        FROM turn t LEFT JOIN cortex_worker.limit_cursor c ON c.turn = t.turn
        CROSS JOIN LATERAL (
            SELECT l.*, pg_catalog.count(*) OVER () AS number,
                   row_number() OVER (ORDER BY l.part DESC, l.keys DESC, l.fresh DESC) = 1 AS is_last
            FROM (SELECT 0 AS part, f.keys, f.fresh FROM cortex_worker.held_lanes(
                      t.turn, CASE WHEN c.served IS NOT NULL THEN array_append(c.served, '') END, lanes_max + 1) f
                  UNION ALL
                  SELECT 1, f.keys, f.fresh FROM cortex_worker.held_lanes(t.turn, NULL, lanes_max + 1) f
                  WHERE c.served IS NOT NULL AND f.keys <= c.served COLLATE "C"
                  LIMIT lanes_max + 1) l) w
        WHERE t.n <= turns_max
    ), link AS MATERIALIZED (
        -- Gates are numbered, so that no join compares each with each.
        SELECT l.*, g.id, g.unit, g.per, g.amount, l.keys[3 + g.place] AS key,
               CASE WHEN g.id IS NOT NULL THEN dense_rank() OVER (ORDER BY g.id, l.keys[3 + g.place]) END AS gate
        FROM lane l LEFT JOIN cortex.job_limit g
            ON g.type = l.turn[1] AND g.unit <> 'tokens' AND (g.unit = 'running' OR l.fresh = 1)
    ), gate AS MATERIALIZED (
        SELECT g.gate AS n, g.id, g.key, g.per,
               g.amount - CASE g.unit WHEN 'running' THEN 0 ELSE cortex_worker.used_of(g.id, g.key, g.per) END - (
                   SELECT pg_catalog.count(*) FROM (
                       SELECT FROM cortex_worker.limit_hold h WHERE h.limit_id = g.id AND h.key = g.key LIMIT g.amount) h) AS room
        FROM (SELECT DISTINCT k.gate, k.id, k.key, k.unit, k.per, k.amount FROM link k WHERE k.gate IS NOT NULL) g
    ), room AS MATERIALIZED (
        SELECT coalesce(array_agg(g.room ORDER BY g.n), '{}') AS rooms, array_agg(g.id ORDER BY g.n) AS limit_ids,
               array_agg(g.key ORDER BY g.n) AS gate_keys, array_agg(g.per ORDER BY g.n) AS pers
        FROM gate g
    ), entry AS MATERIALIZED (
        SELECT l.n, l.turn_no, l.keys, l.fresh, l.is_cut, l.is_last, l.gates, l.room, CASE WHEN is_picky THEN (
                   -- What is paused takes no place: of the first ones of a key, so that a pass stays short.
                   SELECT pg_catalog.count(*) FROM (
                       SELECT t.job_id, t.queue_name FROM cortex_worker.task t
                       WHERE t.state = 'HELD' AND t.limit_keys = l.keys COLLATE "C" AND 1 - least(t.attempt, 1) = l.fresh
                         AND coalesce(l.room, 1) > 0
                       ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id LIMIT paused_max) t
                   WHERE cortex_worker.pause_of_task(t.job_id, t.queue_name) IS NULL) ELSE (
                   SELECT pg_catalog.count(*) FROM (
                       SELECT FROM cortex_worker.task t
                       WHERE t.state = 'HELD' AND t.limit_keys = l.keys COLLATE "C" AND 1 - least(t.attempt, 1) = l.fresh
                       LIMIT greatest(0, least(budget, l.room))) t) END::int AS waiting
        FROM (SELECT k.n, k.turn_no, k.keys, k.fresh, k.is_cut, k.is_last, array_remove(array_agg(k.gate), NULL) AS gates,
                     min(r.rooms[k.gate]) AS room
              FROM room r CROSS JOIN link k GROUP BY k.n, k.turn_no, k.keys, k.fresh, k.is_cut, k.is_last) l
    )
    SELECT array_agg(e.turn_no ORDER BY e.n) AS turns, array_agg(e.keys::text ORDER BY e.n) AS keys,
           array_agg(e.fresh ORDER BY e.n) AS fresh, array_agg(e.waiting ORDER BY e.n) AS waiting,
           array_agg(e.gates::text ORDER BY e.n) AS gates,
           array_agg(CASE WHEN e.is_cut AND e.is_last THEN e.n END) AS cut,
           array_agg(e.waiting = 0 AND coalesce(e.room, 1) > 0 ORDER BY e.n) AS blocked,
           (SELECT r.rooms FROM room r) AS rooms, (SELECT r.limit_ids FROM room r) AS limit_ids,
           (SELECT r.gate_keys FROM room r) AS gate_keys, (SELECT r.pers FROM room r) AS pers,
           (SELECT pg_catalog.count(*) > turns_max FROM turn) AS is_cut
    INTO seen FROM entry e;
    IF seen.keys IS NULL THEN
        RETURN QUERY SELECT 0, false, NULL::float8;
        RETURN;
    END IF;
    IF is_picky AND true = ANY (seen.blocked) THEN
        -- The others of their keys do not wait behind the many of a paused tenant or queue.
        WITH paused AS MATERIALIZED (
            SELECT t.job_id, cortex_worker.pause_of_task(t.job_id, t.queue_name) AS pause
            FROM unnest(seen.keys, seen.fresh, seen.blocked) AS b(keys, fresh, is_blocked) CROSS JOIN LATERAL (
                SELECT t.job_id, t.queue_name FROM cortex_worker.task t
                WHERE t.state = 'HELD' AND t.limit_keys = b.keys::text[] COLLATE "C" AND 1 - least(t.attempt, 1) = b.fresh
                ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id
                LIMIT aside_max FOR UPDATE SKIP LOCKED) t
            WHERE b.is_blocked LIMIT aside_max
        )
        UPDATE cortex_worker.task t SET state = 'PAUSED', pause = p.pause
        FROM paused p WHERE t.job_id = p.job_id AND t.state = 'HELD' AND p.pause IS NOT NULL;
        has_more := FOUND;
    END IF;
    SELECT * INTO shared FROM cortex_worker.share_room(
        seen.turns, seen.fresh, seen.waiting, seen.gates, seen.rooms, budget, seen.is_cut);
    IF shared.last_served IS NOT NULL THEN
        WITH chosen AS MATERIALIZED (
            SELECT t.job_id, g.keys::text[] AS keys, g.fresh
            FROM unnest(seen.keys, seen.fresh, shared.grants) AS g(keys, fresh, number) CROSS JOIN LATERAL (
                SELECT t.job_id FROM cortex_worker.task t
                WHERE t.state = 'HELD' AND t.limit_keys = g.keys::text[] COLLATE "C" AND 1 - least(t.attempt, 1) = g.fresh
                  AND (NOT is_picky OR cortex_worker.pause_of_task(t.job_id, t.queue_name) IS NULL)
                ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id
                LIMIT g.number FOR UPDATE SKIP LOCKED) t
            WHERE g.number > 0
        ), let_through AS (
            UPDATE cortex_worker.task t SET is_admitted = true, state = 'READY'
            FROM chosen c WHERE t.job_id = c.job_id AND t.state = 'HELD'
            RETURNING t.job_id, c.keys, c.fresh
        ), taken AS MATERIALIZED (
            SELECT a.job_id, a.fresh, l.id, l.unit, a.keys[3 + l.place] AS key
            FROM let_through a JOIN cortex.job_limit l ON l.type = a.keys[1] AND l.unit <> 'tokens'
        ), held AS (
            INSERT INTO cortex_worker.limit_hold (job_id, limit_id, key)
            -- In limits per time once for each job: one that has begun has been counted.
            SELECT k.job_id, k.id, k.key FROM taken k WHERE k.unit = 'running' OR k.fresh = 1
        ), hinted AS (
            SELECT pg_notify('cortex_task', 'ready') FROM (SELECT FROM let_through LIMIT 1) a
        )
        SELECT (SELECT pg_catalog.count(*)::int FROM let_through) FROM (SELECT pg_catalog.count(*) FROM hinted) h INTO done;
    END IF;
    PERFORM cortex_worker.note_turns(
        seen.turns, seen.keys, shared.grants, array_remove(seen.cut, NULL),
        CASE WHEN seen.is_cut AND NOT shared.was_full THEN cardinality(seen.turns) ELSE shared.last_served END);
    -- What has a place and has not begun may begin now, and counts from then on.
    SELECT extract(epoch FROM min(least(
        cortex_worker.room_at(g.id, g.key, g.per),
        cortex.now() + cortex_worker.span_of(g.per) + cortex_worker.span_of(g.per) / 60)) - cortex.now()) INTO room_in_s
    FROM unnest(seen.limit_ids, seen.gate_keys, seen.pers, shared.rooms) AS g(id, key, per, room)
    WHERE g.per IS NOT NULL AND g.room <= 0;
    RETURN QUERY SELECT done, false, CASE WHEN seen.is_cut OR has_more THEN 0 ELSE room_in_s END;
END $function$;

-- Notes whose turn it was last, of entries as they are in share_room.
CREATE FUNCTION cortex_worker.note_turns(turns integer[], keys text[], grants integer[], cut integer[], latest integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF latest IS NOT NULL THEN
        INSERT INTO cortex_worker.limit_cursor AS c (turn, served) VALUES ('{}', (keys[latest]::text[])[1:3])
        ON CONFLICT (turn) DO UPDATE SET served = excluded.served, served_at = cortex.now();
    END IF;
    -- Within a turn: of those with several keys, the last one served, or looked at where there are more.
    INSERT INTO cortex_worker.limit_cursor AS c (turn, served)
    SELECT DISTINCT ON (w.turn_no) w.keys[1:3], w.keys
    FROM (SELECT e.turn_no, e.keys::text[] AS keys, e.n, e.n = ANY (cut) AS is_cut, e.granted,
                 count(*) OVER (PARTITION BY e.turn_no) AS number
          FROM unnest(turns, keys, grants) WITH ORDINALITY AS e(turn_no, keys, granted, n)) w
    WHERE w.number > 1 AND (w.granted > 0 OR w.is_cut)
    ORDER BY w.turn_no, w.granted > 0 DESC, w.n DESC
    ON CONFLICT (turn) DO UPDATE SET served = excluded.served, served_at = cortex.now();
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.note_turns(integer[],text[],integer[],integer[],integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.note_turns(integer[],text[],integer[],integer[],integer) TO cortex_runtime;

-- Where a task stands among those of its keys, counted up to a bound, and the limits that it waits for. Null: it does not.
CREATE FUNCTION cortex.line_of(task cortex_worker.task, most bigint)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
SELECT jsonb_build_object(
    'ahead', (SELECT count(*) FROM (
        SELECT FROM cortex_worker.task t
        WHERE t.state = 'HELD' AND t.limit_keys = task.limit_keys
          AND (1 - least(t.attempt, 1), t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id)
              < (1 - least(task.attempt, 1), task.priority, coalesce(task.due_by, timestamptz 'infinity'), task.run_at,
                 task.id) LIMIT most) t),
    'waiting', (SELECT count(*) FROM (
        SELECT FROM cortex_worker.task t WHERE t.state = 'HELD' AND t.limit_keys = task.limit_keys LIMIT most) t),
    'limits', (SELECT jsonb_agg(jsonb_build_object(
            'name', l.name, 'key', l.key, 'value', l.value, 'unit', l.unit, 'per', l.per, 'amount', l.amount,
            'used', CASE l.unit WHEN 'running' THEN 0 ELSE cortex_worker.used_of(l.id, l.value, l.per) END
                    + (SELECT count(*) FROM cortex_worker.limit_hold h WHERE h.limit_id = l.id AND h.key = l.value),
            'room_at', CASE WHEN l.unit <> 'running' THEN cortex_worker.room_at(l.id, l.value, l.per) END) ORDER BY l.place)
        FROM (SELECT l.*, task.limit_keys[3 + l.place] AS value FROM cortex.job_limit l
              WHERE l.type = task.limit_keys[1] AND l.unit <> 'tokens' AND (l.unit = 'running' OR task.attempt = 0)) l))
WHERE task.state = 'HELD' $function$;

-- Takes room for the tokens of a call from all limits of its job's type, or from none and returns the limit without room, and in how many seconds the oldest of what counts there stops counting.
CREATE FUNCTION cortex_worker.ask_for_tokens(of_job uuid, of_model text, tokens bigint, OUT refused text, OUT key text, OUT used bigint, OUT amount bigint, OUT wait_s double precision, OUT ids integer[], OUT keys text[])
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    asked record;
BEGIN
    FOR asked IN
        SELECT l.id, l.name, l.per, l.amount,
               CASE WHEN l.key = 'model' THEN of_model
                    ELSE coalesce(cortex_worker.limit_key(l.key, j.payload, j.tenant, a.name, j.queue_name), '') END AS key
        FROM cortex.job_record j LEFT JOIN cortex.agent a ON a.id = j.agent_id
        JOIN cortex.job_limit l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.unit = 'tokens'
        WHERE j.id = of_job ORDER BY l.id
    LOOP
        -- One call at a time asks for a key, to the end of its transaction: those at once would not see each other's room.
        PERFORM pg_advisory_xact_lock(hashtextextended(format('cortex.job_limit %s %s', asked.id, asked.key), 0));
        used := cortex_worker.used_of(asked.id, asked.key, asked.per);
        -- If nothing counts, a call may begin that is larger than the limit: it could never begin otherwise.
        IF used > 0 AND used + tokens > asked.amount THEN
            refused := asked.name;
            key := asked.key;
            amount := asked.amount;
            wait_s := extract(epoch FROM cortex_worker.room_at(asked.id, asked.key, asked.per) - cortex.now());
            RETURN;
        END IF;
        ids := ids || asked.id;
        keys := keys || asked.key;
    END LOOP;
    -- What settling returns goes back into this slice.
    INSERT INTO cortex_worker.limit_use AS u (limit_id, key, began_at, used)
    SELECT l.id, n.key, cortex_worker.slice_at(l.per, cortex.now()), tokens
    FROM unnest(ids, keys) AS n(id, key) JOIN cortex.job_limit l ON l.id = n.id ORDER BY l.id
    ON CONFLICT ON CONSTRAINT limit_use_pkey DO UPDATE SET used = u.used + excluded.used;
END $function$;

-- Sets the limits of job types as a pod declares them, or of agents (agent:NAME): an array of objects with unit, per, key and amount for each type. What was declared last holds, for waiting jobs, too. Returns how many types changed.
CREATE FUNCTION cortex.declare_limits(types text[], specs jsonb[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    declared record;
    number int := 0;
BEGIN
    FOR declared IN
        SELECT w.type, w.spec, w.spec <> '[]' AS has_any, l.type IS NOT NULL AS is_known
        FROM unnest(types, specs) AS w(type, spec) LEFT JOIN cortex.limited_type l ON l.type = w.type
        WHERE coalesce(l.spec, '[]') <> w.spec ORDER BY w.type
    LOOP
        -- Nothing is let through meanwhile. Two pods that declare at the same time do it one after the other.
        PERFORM FROM cortex.runner_turn t WHERE t.name = 'limits' FOR NO KEY UPDATE;
        PERFORM cortex_worker.set_limits(declared.type, declared.spec);
        number := number + 1;
    END LOOP;
    IF number > 0 THEN
        PERFORM pg_notify('cortex_limit', ''), pg_notify('cortex_task', 'ready');
    END IF;
    RETURN number;
END $function$;

-- Sets the limits of one job type or agent; the caller has the turn of limits. A limit whose amount alone changes keeps its places and its usage.
CREATE FUNCTION cortex_worker.set_limits(of_type text, wanted jsonb)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    are_held CONSTANT boolean := EXISTS (SELECT FROM jsonb_array_elements(wanted) AS w(l) WHERE w.l->>'unit' <> 'tokens');
    before_keys text[];
    after_keys text[];
BEGIN
    SELECT array_agg(l.name ORDER BY l.place) FILTER (WHERE l.unit <> 'tokens') INTO before_keys
    FROM cortex.job_limit l WHERE l.type = of_type;
    IF EXISTS (
        SELECT FROM cortex.job_limit l WHERE l.type = of_type AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(wanted) AS w(l)
            WHERE w.l->>'unit' = l.unit AND w.l->>'per' IS NOT DISTINCT FROM l.per AND w.l->>'key' IS NOT DISTINCT FROM l.key))
    THEN
        -- Whoever ends or begins a job has its task, and then writes its places: those go with their limit.
        PERFORM FROM cortex_worker.task t
        WHERE t.is_admitted AND t.limit_keys[1] = of_type ORDER BY t.job_id FOR UPDATE;
    END IF;
    INSERT INTO cortex.limited_type AS t (type, spec, holds) VALUES (of_type, wanted, are_held)
    ON CONFLICT (type) DO UPDATE SET spec = excluded.spec, holds = excluded.holds, changed_at = cortex.now();
    WITH declared AS MATERIALIZED (
        SELECT w.l->>'unit' AS unit, w.l->>'per' AS per, w.l->>'key' AS key, (w.l->>'amount')::bigint AS amount,
               row_number() OVER (ORDER BY w.l->>'unit' = 'tokens', w.n) AS place
        FROM jsonb_array_elements(wanted) WITH ORDINALITY AS w(l, n)
    ), gone AS (
        -- With its places and its usage.
        DELETE FROM cortex.job_limit l
        WHERE l.type = of_type AND NOT EXISTS (
            SELECT FROM declared d
            WHERE d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per AND d.key IS NOT DISTINCT FROM l.key)
    ), kept AS (
        UPDATE cortex.job_limit l SET amount = d.amount, place = d.place FROM declared d
        WHERE l.type = of_type AND d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per
          AND d.key IS NOT DISTINCT FROM l.key
        RETURNING l.name
    )
    INSERT INTO cortex.job_limit (type, place, unit, per, key, amount)
    SELECT of_type, d.place, d.unit, d.per, d.key, d.amount FROM declared d
    WHERE NOT EXISTS (SELECT FROM cortex.job_limit l
                      WHERE l.type = of_type AND d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per
                        AND d.key IS NOT DISTINCT FROM l.key)
    ORDER BY d.place;
    SELECT array_agg(l.name ORDER BY l.place) FILTER (WHERE l.unit <> 'tokens') INTO after_keys
    FROM cortex.job_limit l WHERE l.type = of_type;
    IF after_keys IS DISTINCT FROM before_keys THEN
        UPDATE cortex.limited_type t SET shape = t.shape + 1 WHERE t.type = of_type;
        IF are_held THEN
            PERFORM cortex_worker.take_in(of_type);
        ELSE
            PERFORM cortex_worker.let_all_go(of_type);
        END IF;
    END IF;
    DELETE FROM cortex.limited_type t WHERE t.type = of_type AND t.spec = '[]';
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.set_limits(text,jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.set_limits(text,jsonb) TO cortex_runtime;

-- Makes all tasks of a type or agent subject to limits that it did not have before: those of jobs that run take their places.
CREATE FUNCTION cortex_worker.take_in(of_type text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- Reads all tasks, and only when a type gets its first limits, or other ones. Those that wait for other keys get
    -- theirs in the next passes.
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
        LEFT JOIN cortex.agent a ON a.id = j.agent_id
        WHERE t.is_admitted IS NULL AND split_part(t.task, ' ', 1) = CASE WHEN starts_with(of_type, 'agent:') THEN 'run_agent'
                                                                     ELSE of_type END
          AND cortex_worker.limited_as(j.type, a.name) = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    )
    UPDATE cortex_worker.task t
    SET is_admitted = t.state = 'LOCKED' OR t.attempt > 0 AND t.state IN ('LATER', 'READY')
                      AND j.status = 'RUNNING',
        state = CASE WHEN t.state = 'READY' AND NOT (t.attempt > 0 AND j.status = 'RUNNING') THEN 'HELD'
                     WHEN t.state = 'STRANDED' AND NOT (t.attempt > 0 AND j.status = 'RUNNING') THEN 'QUEUED'
                     ELSE t.state END,
        limit_keys = cortex_worker.limit_keys(of_type, l.shape, j.payload, j.tenant, a.name, j.queue_name)
    FROM task JOIN cortex.job_record j ON j.id = task.job_id
    JOIN cortex.limited_type l ON l.type = of_type LEFT JOIN cortex.agent a ON a.id = j.agent_id
    WHERE t.job_id = task.job_id;
    -- Jobs that run count from now on, even if there are more than the limit permits; what is yet to begin, per time, too.
    WITH task AS MATERIALIZED (
        SELECT t.job_id, t.attempt = 0 AS is_fresh FROM cortex_worker.task t
        WHERE t.is_admitted AND t.limit_keys[1] = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    ), keyed AS MATERIALIZED (
        SELECT j.id AS job_id, task.is_fresh,
               cortex_worker.limit_keys(of_type, l.shape, j.payload, j.tenant, a.name, j.queue_name) AS keys
        FROM task JOIN cortex.job_record j ON j.id = task.job_id
        JOIN cortex.limited_type l ON l.type = of_type LEFT JOIN cortex.agent a ON a.id = j.agent_id
    )
    INSERT INTO cortex_worker.limit_hold (job_id, limit_id, key)
    SELECT k.job_id, l.id, k.keys[3 + l.place]
    FROM keyed k JOIN cortex.job_limit l ON l.type = of_type AND (l.unit = 'running' OR l.unit = 'jobs' AND k.is_fresh)
    ON CONFLICT DO NOTHING;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.take_in(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.take_in(text) TO cortex_runtime;

-- Lets all tasks go that waited for limits which their type or agent no longer has.
CREATE FUNCTION cortex_worker.let_all_go(of_type text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM cortex_worker.task t
        WHERE t.is_admitted IS FALSE AND t.limit_keys[1] = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    )
    UPDATE cortex_worker.task t
    SET is_admitted = NULL, limit_keys = NULL, state = CASE t.state WHEN 'HELD' THEN 'READY' ELSE t.state END
    FROM task WHERE t.job_id = task.job_id AND t.is_admitted IS FALSE;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.let_all_go(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.let_all_go(text) TO cortex_runtime;

-- Job types whose submits obey a rule, as their code declares it: @job(singleton=…, debounce=…, throttle=…).
CREATE TABLE cortex.submit_rule (
    type text NOT NULL,  -- The job type.
    kind text NOT NULL,  -- singleton: one unfinished job per key · debounce: a newer submit moves the waiting job and gives it its arguments · throttle: one job per key and period.
    key text NOT NULL,  -- Template of the key, such as {customer}; empty: one key per tenant.
    arguments text[] NOT NULL,  -- The arguments that the template names.
    on_conflict text,  -- What a submit does while a job with its key has not ended. return: names that job · replace: cancels it if it waits, lets its attempt end if it runs, and runs after it · queue: runs after it · refuse: raises.
    period_s double precision,  -- debounce: seconds from the newest submit to the start · throttle: seconds between two jobs.
    longest_s double precision,  -- debounce: seconds from the first submit after which the job starts anyway.
    CONSTRAINT submit_rule_pkey PRIMARY KEY (type),
    CONSTRAINT longest_of_debounce CHECK ((longest_s IS NOT NULL) = (kind = 'debounce'::text)),
    CONSTRAINT on_conflict_of_singletons CHECK ((on_conflict IS NOT NULL) = (kind = 'singleton'::text)),
    CONSTRAINT period_of_others CHECK ((period_s IS NULL) = (kind = 'singleton'::text)),
    CONSTRAINT submit_rule_check CHECK (longest_s >= period_s AND longest_s <= 2592000::double precision),
    CONSTRAINT submit_rule_key_check CHECK (length(key) <= 200),
    CONSTRAINT submit_rule_kind_check CHECK (kind = ANY (ARRAY['singleton'::text, 'debounce'::text, 'throttle'::text])),
    CONSTRAINT submit_rule_on_conflict_check CHECK (on_conflict = ANY (ARRAY['return'::text, 'replace'::text, 'queue'::text, 'refuse'::text])),
    CONSTRAINT submit_rule_period_s_check CHECK (period_s >= 1::double precision AND period_s <= 2592000::double precision)
);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.submit_rule TO cortex_runtime;
GRANT SELECT ON cortex.submit_rule TO cortex_reader;

-- The latest job of each key of types with a rule. Its row is what two submits of one key wait for. Deleted by housekeeping when the job has ended and the period is over.
CREATE TABLE cortex.submit_key (
    id bytea NOT NULL,  -- SHA-256 of the type, the tenant and the values of the key.
    type text NOT NULL,  -- The job type.
    tenant text NOT NULL,  -- The tenant: keys of two tenants are never the same.
    key text NOT NULL,  -- The key for people, shortened.
    job_id uuid NOT NULL,  -- The latest job. Not a reference: retention may have deleted it.
    since timestamptz NOT NULL,  -- When that was submitted.
    until timestamptz NOT NULL,  -- When housekeeping looks at it next: after the period.
    CONSTRAINT submit_key_pkey PRIMARY KEY (id),
    CONSTRAINT submit_key_id_check CHECK (octet_length(id) = 32)
);
CREATE INDEX submit_key_until ON cortex.submit_key USING btree (until);
GRANT DELETE, INSERT, SELECT, UPDATE ON cortex.submit_key TO cortex_runtime;
GRANT SELECT ON cortex.submit_key TO cortex_reader;

-- The jobs that submits of the last 24 hours under these ids got in place of new ones, because of the rule of their type.
CREATE FUNCTION cortex.submitted_as(ids uuid[])
 RETURNS TABLE(id uuid, job_id uuid)
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT asked.id, (k.response #>> '{}')::uuid FROM unnest(ids) AS asked(id)
JOIN cortex.idempotency_key k ON k.scope = 'submit' AND k.key = asked.id::text $function$;
REVOKE EXECUTE ON FUNCTION cortex.submitted_as(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.submitted_as(uuid[]) TO cortex_submitter;
GRANT EXECUTE ON FUNCTION cortex.submitted_as(uuid[]) TO cortex_runtime;

-- Records the job that a submit got in place of a new one.
CREATE FUNCTION cortex_worker.note_submit(id uuid, job_id uuid)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
-- Kept as long as an idempotency key: a submit whose reply was lost is repeated under its id.
INSERT INTO cortex.idempotency_key AS k (scope, key, digest, operation, status, response, expires_at)
VALUES ('submit', note_submit.id::text, sha256(convert_to(note_submit.id::text, 'UTF8')), 'jobs.submit', 'completed',
        to_jsonb(note_submit.job_id), cortex.now() + interval '1 day')
ON CONFLICT ON CONSTRAINT idempotency_key_pkey DO UPDATE SET response = excluded.response, expires_at = excluded.expires_at $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.note_submit(uuid,uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.note_submit(uuid,uuid) TO cortex_runtime;

-- Gives a job that has never started the arguments and the start of a newer submit; false: it has started or ended.
CREATE FUNCTION cortex_worker.move_debounced(of_job uuid, to_payload jsonb, due timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- The task first: a claim that has it makes this wait, and then it is locked.
    PERFORM FROM cortex_worker.task t WHERE t.job_id = of_job FOR UPDATE;
    UPDATE cortex_worker.task t
    SET run_at = CASE WHEN t.state = 'HELD' THEN t.run_at ELSE due END,
        -- Limits may count by what changes: it asks for its places again.
        is_admitted = CASE WHEN t.is_admitted THEN false ELSE t.is_admitted END, pause = NULL,
        -- What is due stays as it is; what waits for a limit has been due. Of what is paused, the next pass sees it.
        state = (CASE WHEN t.state = 'HELD' THEN 'HELD'
                      WHEN due > cortex.now() THEN CASE WHEN t.queue_name IS NOT NULL THEN 'QUEUED' ELSE 'LATER' END
                      WHEN t.state = 'READY' THEN CASE WHEN t.is_admitted THEN 'HELD' ELSE 'READY' END
                      WHEN t.queue_name IS NOT NULL THEN 'QUEUED' ELSE 'LATER' END)::cortex_worker.task_state
    WHERE t.job_id = of_job AND t.attempt = 0 AND t.state <> 'LOCKED';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM cortex_worker.limit_hold h WHERE h.job_id = of_job;
    IF FOUND THEN
        PERFORM pg_notify('cortex_limit', '');
    END IF;
    UPDATE cortex.job_record j SET payload = coalesce(to_payload, '{}'), run_at = due WHERE j.id = of_job;
    -- Its limits may count by what has changed.
    PERFORM cortex_worker.hold_tasks(ARRAY[of_job])
    FROM cortex_worker.task t WHERE t.job_id = of_job AND t.limit_keys IS NOT NULL;
    RETURN true;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.move_debounced(uuid,jsonb,timestamp with time zone) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.move_debounced(uuid,jsonb,timestamp with time zone) TO cortex_runtime;

-- A key for people; keys are compared by the values themselves.
CREATE FUNCTION cortex_worker.shown_key(key text, arguments text[], payload jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    shown text := key;
    argument text;
BEGIN
    FOREACH argument IN ARRAY arguments LOOP
        shown := replace(shown, '{' || argument || '}', coalesce(left(payload->>argument, 100), ''));
    END LOOP;
    RETURN left(shown, 200);
END $function$;

-- The key of a job of a type with a rule.
CREATE FUNCTION cortex_worker.rule_key(type text, tenant text, arguments text[], payload jsonb)
 RETURNS bytea
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN sha256(convert_to((jsonb_build_array(type, tenant, (SELECT jsonb_agg((rule_key.payload -> a.name) ORDER BY a.i) AS jsonb_agg FROM unnest(rule_key.arguments) WITH ORDINALITY a(name, i))))::text, 'UTF8'::name));

-- The strict queue in which the jobs of a singleton take turns.
CREATE FUNCTION cortex_worker.queue_of_key(key bytea)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ('singleton:'::text || "left"(encode(key, 'hex'::text), 32));

-- Why a job was cancelled for its successor: a singleton is named by its key for people.
CREATE FUNCTION cortex_worker.replaced_reason(successor uuid, key text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce((
    SELECT format('replaced by job %s with the same singleton key', successor) || coalesce(' ' || quote_literal(nullif(k.shown, '')), '')
    FROM cortex.job_record j JOIN cortex.submit_rule r ON r.type = j.type AND r.on_conflict = 'replace'
    CROSS JOIN LATERAL (SELECT cortex_worker.shown_key(r.key, r.arguments, j.payload) AS shown) k
    WHERE j.id = successor), format('replaced by job %s with the same key %L', successor, key)) $function$;

-- The elements of an array at these places; null where it has none.
CREATE FUNCTION cortex_worker.at_places(list anyarray, places integer[])
 RETURNS anyarray
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT ARRAY(SELECT list[k.place] FROM unnest(places) WITH ORDINALITY AS k(place, n) ORDER BY k.n) $function$;

-- Applies the rules of their types to a batch: changes its arrays, and returns the places of those that become jobs; null: all. Called by submit_jobs only.
CREATE FUNCTION cortex_worker.apply_rules(INOUT ids uuid[], types text[], INOUT payloads jsonb[], tenants text[], INOUT queue_names text[], INOUT run_ats timestamp with time zone[], INOUT job_keys text[], OUT kept integer[])
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    is_pod CONSTANT boolean := cortex.caller_is_runtime();
    wrong text;
    one record;
    held cortex.submit_key;
    -- The latest of this batch that is new, and whose key that is.
    own_key bytea;
    own_n int;
    is_live boolean;
    own_queue text;
    merged int[] := '{}';
    of_job uuid;
BEGIN
    SELECT format('job type "%s" is a %s by %s: its payload has no "%s"', r.type, r.kind, r.key, a.name) INTO wrong
    FROM unnest(types, payloads) AS s(type, payload) JOIN cortex.submit_rule r ON r.type = s.type
    CROSS JOIN unnest(r.arguments) AS a(name)
    WHERE s.payload IS NULL OR jsonb_typeof(s.payload) <> 'object' OR NOT s.payload ? a.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_fits', HINT = 'give the argument: the key is made of it';
    END IF;
    -- In the order of keys, so that two batches do not deadlock.
    FOR one IN
        SELECT b.n::int AS n, b.id, b.payload, b.tenant, b.queue_name, b.run_at, b.job_key, r.type, r.kind, r.on_conflict,
               r.period_s * interval '1 second' AS period, r.longest_s * interval '1 second' AS longest,
               cortex_worker.rule_key(r.type, b.tenant, r.arguments, b.payload) AS key,
               cortex_worker.shown_key(r.key, r.arguments, b.payload) AS shown
        FROM (SELECT a.*, coalesce(a.given_tenant, 'default') AS tenant FROM (
                  SELECT unnest(ids) AS id, unnest(types) AS type, unnest(payloads) AS payload,
                         unnest(tenants) AS given_tenant, unnest(queue_names) AS queue_name, unnest(run_ats) AS run_at,
                         unnest(job_keys) AS job_key, generate_subscripts(ids, 1) AS n) a) b
        JOIN cortex.submit_rule r ON r.type = b.type
        WHERE b.id IS NOT NULL
        ORDER BY key, b.n
    LOOP
        -- The key's row: another submit with this key waits here until this transaction ends.
        INSERT INTO cortex.submit_key AS k (id, type, tenant, key, job_id, since, until)
        VALUES (one.key, one.type, one.tenant, one.shown, one.id, moment, moment + coalesce(one.period, interval '1 hour'))
        ON CONFLICT (id) DO UPDATE SET key = excluded.key
        RETURNING * INTO held;
        IF one.kind = 'singleton' THEN
            IF one.queue_name IS NOT NULL OR one.on_conflict = 'replace' AND one.job_key IS NOT NULL THEN
                RAISE EXCEPTION 'job type "%" is a singleton: its jobs take turns in a queue of their own', one.type
                    USING ERRCODE = 'check_violation', CONSTRAINT = 'submit_rule',
                          HINT = 'leave out the queue and the job key';
            END IF;
            -- Its jobs take turns in a strict queue: two never run at once, also if a person retries a failed one.
            own_queue := cortex_worker.queue_of_key(one.key);
            INSERT INTO cortex_worker.strict_queue (queue, set_by) VALUES (own_queue, 'singleton') ON CONFLICT DO NOTHING;
            queue_names := CASE WHEN coalesce(cardinality(queue_names), 0) = 0
                                THEN array_fill(NULL::text, ARRAY[cardinality(ids)]) ELSE queue_names END;
            queue_names[one.n] := own_queue;
            IF one.on_conflict = 'replace' THEN
                job_keys := CASE WHEN coalesce(cardinality(job_keys), 0) = 0
                                 THEN array_fill(NULL::text, ARRAY[cardinality(ids)]) ELSE job_keys END;
                job_keys[one.n] := own_queue;
            END IF;
            IF one.on_conflict IN ('replace', 'queue') THEN
                UPDATE cortex.submit_key k SET job_id = one.id, since = moment WHERE k.id = one.key AND k.job_id <> one.id;
                CONTINUE;
            END IF;
        END IF;
        IF one.kind = 'debounce' AND one.run_at IS NOT NULL THEN
            RAISE EXCEPTION 'job type "%" has a debounce, which sets when its jobs start', one.type
                USING ERRCODE = 'check_violation', CONSTRAINT = 'submit_rule', HINT = 'leave out the delay';
        END IF;
        -- A repeated submit, whose reply was lost.
        SELECT s.job_id INTO of_job FROM cortex.submitted_as(ARRAY[one.id]) s;
        IF FOUND THEN
            merged := merged || one.n;
            CONTINUE;
        END IF;
        IF held.job_id = one.id AND EXISTS (SELECT FROM cortex.job_record j WHERE j.id = one.id) THEN
            CONTINUE;
        END IF;
        is_live := held.job_id <> one.id AND CASE one.kind
            WHEN 'throttle' THEN held.since + one.period > moment
            ELSE own_key = one.key AND own_n IS NOT NULL OR EXISTS (
                SELECT FROM cortex.job_record j WHERE j.id = held.job_id AND j.finished_at IS NULL) END;
        IF one.kind = 'singleton' AND NOT is_live THEN
            -- A person has retried the job: another continues it.
            SELECT j.id INTO of_job FROM cortex.job_record o
            JOIN cortex.job_record j ON j.lineage_id = coalesce(o.lineage_id, o.id)
            WHERE o.id = held.job_id AND o.id <> one.id AND j.finished_at IS NULL LIMIT 1;
            IF FOUND THEN
                is_live := true;
                held.job_id := of_job;
            END IF;
        END IF;
        IF is_live AND NOT is_pod AND EXISTS (
            SELECT FROM cortex.job_record j WHERE j.id = held.job_id AND NOT cortex.caller_submitted(j.submitted_with))
        THEN
            RAISE EXCEPTION '% "%" of job type "%" belongs to a job of another login', one.kind, one.shown, one.type
                USING ERRCODE = 'insufficient_privilege', HINT = 'let one login submit all jobs of this type';
        END IF;
        IF is_live AND one.on_conflict = 'refuse' THEN
            RAISE EXCEPTION 'job % of singleton "%" of job type "%" has not ended', held.job_id, one.shown, one.type
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'singleton', HINT = 'submit again when it has ended, or cancel it';
        END IF;
        IF is_live AND one.kind = 'debounce' THEN
            IF own_key = one.key AND own_n IS NOT NULL THEN
                payloads[own_n] := one.payload;
            ELSE
                is_live := cortex_worker.move_debounced(
                    held.job_id, one.payload, least(moment + one.period, held.since + one.longest));
            END IF;
        END IF;
        IF is_live THEN
            PERFORM cortex_worker.note_submit(one.id, held.job_id);
            merged := merged || one.n;
            CONTINUE;
        END IF;
        own_key := one.key;
        own_n := one.n;
        IF held.job_id <> one.id THEN
            UPDATE cortex.submit_key k
            SET job_id = one.id, since = moment, until = moment + coalesce(one.period, interval '1 hour') WHERE k.id = one.key;
        END IF;
        IF one.kind = 'debounce' THEN
            -- Its arguments may be replaced: a repetition of this submit must not compare them.
            PERFORM cortex_worker.note_submit(one.id, one.id);
            run_ats := CASE WHEN coalesce(cardinality(run_ats), 0) = 0
                            THEN array_fill(NULL::timestamptz, ARRAY[cardinality(ids)]) ELSE run_ats END;
            run_ats[one.n] := moment + one.period;
        END IF;
    END LOOP;
    IF merged <> '{}' THEN
        kept := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n WHERE n <> ALL (merged) ORDER BY n);
    END IF;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex_worker.apply_rules(uuid[],text[],jsonb[],text[],text[],timestamp with time zone[],text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.apply_rules(uuid[],text[],jsonb[],text[],text[],timestamp with time zone[],text[]) TO cortex_runtime;

-- The queue of a job that continues another one: that of its key, if its type is a singleton.
CREATE FUNCTION cortex_worker.retry_queue(of_type text, tenant text, queue_name text, payload jsonb)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce((
    SELECT cortex_worker.queue_of_key(cortex_worker.rule_key(r.type, retry_queue.tenant, r.arguments, retry_queue.payload))
    FROM cortex.submit_rule r
    WHERE r.type = of_type AND r.kind = 'singleton' AND retry_queue.payload ?& r.arguments), queue_name) $function$;

-- Refuses other payloads of retries that lack the key of a limit or of a singleton, and keeps the strict queues in which retried singletons take turns.
CREATE FUNCTION cortex.check_retries(of_jobs uuid[], new_ids uuid[], others jsonb[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    wrong text;
BEGIN
    IF EXISTS (SELECT FROM cortex.limited_type) AND array_remove(others, NULL) <> '{}' THEN
        PERFORM cortex.refuse_without_limit_key(
            array_agg(j.type), array_agg(o.payload), array_agg(a.name), array_agg(j.tenant), array_agg(j.queue_name))
        FROM unnest(of_jobs, others) AS o(id, payload) JOIN cortex.job_record j ON j.id = o.id
        LEFT JOIN cortex.agent a ON a.id = j.agent_id WHERE o.payload IS NOT NULL;
    END IF;
    IF NOT EXISTS (SELECT FROM cortex.submit_rule r WHERE r.kind = 'singleton') THEN
        RETURN;
    END IF;
    SELECT format('job type "%s" is a %s by %s: its payload has no "%s"', r.type, r.kind, r.key, a.name) INTO wrong
    FROM unnest(of_jobs, others) AS o(id, payload) JOIN cortex.job_record j ON j.id = o.id
    JOIN cortex.submit_rule r ON r.type = j.type AND r.kind = 'singleton' CROSS JOIN unnest(r.arguments) AS a(name)
    WHERE NOT o.payload ? a.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_fits', HINT = 'give the argument: the key is made of it';
    END IF;
    WITH single AS MATERIALIZED (
        SELECT cortex_worker.rule_key(r.type, j.tenant, r.arguments, p.payload) AS key, o.new_id, r.type, j.tenant,
               cortex_worker.shown_key(r.key, r.arguments, p.payload) AS shown
        FROM unnest(of_jobs, new_ids, others) AS o(id, new_id, payload) JOIN cortex.job_record j ON j.id = o.id
        JOIN cortex.submit_rule r ON r.type = j.type AND r.kind = 'singleton'
        CROSS JOIN LATERAL (SELECT coalesce(o.payload, j.payload) AS payload) p
        WHERE p.payload ?& r.arguments ORDER BY key
    ), named AS (
        INSERT INTO cortex.submit_key (id, type, tenant, key, job_id, since, until)
        SELECT s.key, s.type, s.tenant, s.shown, s.new_id, cortex.now(), cortex.now() + interval '1 hour' FROM single s
        ON CONFLICT DO NOTHING
    )
    INSERT INTO cortex_worker.strict_queue (queue, set_by) SELECT cortex_worker.queue_of_key(s.key), 'singleton' FROM single s
    ON CONFLICT DO NOTHING;
END $function$;

-- The children of jobs: submitted once by a step of a lineage, however often its attempts, or a job that continues it, come to that step.
CREATE TABLE cortex.job_child (
    lineage_id uuid NOT NULL,  -- The first job of the parent's lineage.
    step text NOT NULL,  -- Key of the parent's step.
    ordinal integer NOT NULL,  -- Which of the children of that step, from 0.
    job_id uuid NOT NULL,  -- The child; once it was retried, the job that continues it.
    parent_id uuid NOT NULL,  -- The job of the lineage that submitted it, or that took it on when it was retried.
    is_detached boolean NOT NULL,  -- It goes on when its parent ends.
    is_held boolean NOT NULL,  -- It is not submitted yet: as many of its step run as may at once. With ended_at: it never was, as its parent ended.
    terms jsonb,  -- What it is submitted with; null once it is. Empty: a person retried it, it runs beside those that may run at once.
    ended_at timestamptz,  -- When it ended.
    CONSTRAINT job_child_pkey PRIMARY KEY (lineage_id, step, ordinal),
    CONSTRAINT held_with_terms CHECK (NOT is_held OR terms IS NOT NULL),
    CONSTRAINT job_child_ordinal_check CHECK (ordinal >= 0),
    CONSTRAINT job_child_step_check CHECK (length(step) >= 1 AND length(step) <= 500)
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE UNIQUE INDEX job_child_job ON cortex.job_child USING btree (job_id);
CREATE INDEX job_child_open ON cortex.job_child USING btree (lineage_id, step, is_held, ordinal) WHERE ended_at IS NULL;
GRANT SELECT ON cortex.job_child TO cortex_runtime;
GRANT SELECT ON cortex.job_child TO cortex_reader;

-- Jobs whose children are to be cancelled: all, as they have ended, or those of a step that they wait for no more. A row until all are.
CREATE TABLE cortex.child_cut (
    parent_id uuid NOT NULL,  -- The job.
    step text NOT NULL DEFAULT ''::text,  -- Key of the step that has begun them; empty: all, the job has ended.
    at timestamptz NOT NULL DEFAULT cortex.now(),  -- When.
    CONSTRAINT child_cut_pkey PRIMARY KEY (parent_id, step)
);
GRANT SELECT ON cortex.child_cut TO cortex_runtime;
GRANT SELECT ON cortex.child_cut TO cortex_reader;

-- Submits up to so many of the children that a step holds, in their order; returns how many. A child that continues an earlier job keeps its steps, as a retry does, and settles its dead letter.
CREATE FUNCTION cortex.let_children_go(of_lineage uuid, of_step text, most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    gone int;
    others jsonb;
BEGIN
    WITH next AS MATERIALIZED (
        SELECT c.ctid AS place, c.terms FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.is_held AND c.ended_at IS NULL
        ORDER BY c.ordinal LIMIT most FOR UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE cortex.job_child c SET is_held = false, terms = NULL FROM next n
        WHERE c.ctid = n.place
        RETURNING c.job_id, c.parent_id, n.terms
    ), origin AS MATERIALIZED (
        SELECT f.job_id, o.id, coalesce(o.lineage_id, o.id) AS lineage_id, o.config_id,
               cortex.steps_kept(o.id, o.error_class, o.error_code) AS kept
        FROM freed f JOIN cortex.job_record o ON o.id = (f.terms->>'continues')::uuid
    ), job AS (
        INSERT INTO cortex.job_record AS j (
            id, parent_id, type, payload, tenant, agent_id, agent_version, queue_name, priority, run_at, worker_attempts,
            max_retries, timeout_s, worker_job_id, created_at, updated_at, submitted_by, submitted_with, tags,
            traceparent, due_by, origin_id, lineage_id, config_id, checkpoint)
        SELECT f.job_id, p.id, t.type, f.terms->'payload', p.tenant, t.agent_id, t.agent_version, t.queue_name, t.priority,
               coalesce(t.run_at, moment + t.delay_s * interval '1 second', moment), t.worker_attempts, t.max_retries,
               t.timeout_s, nextval('cortex_worker.task_id_seq'), moment, moment, p.submitted_by, p.submitted_with,
               t.tags, t.traceparent, p.due_by, o.id, o.lineage_id, o.config_id, CASE WHEN o.id IS NULL THEN '{}' ELSE coalesce(cortex.kept_head(o.id, o.kept), '{}') END
        FROM freed f JOIN cortex.job_record p ON p.id = f.parent_id
        CROSS JOIN LATERAL jsonb_to_record(f.terms) AS t(
            type text, agent_id uuid, agent_version int, queue_name text, priority int, run_at timestamptz,
            delay_s float8, worker_attempts int, max_retries int, timeout_s int, tags text[], traceparent text)
        LEFT JOIN origin o ON o.job_id = f.job_id
        ORDER BY f.job_id
        -- A person has just retried the job that it was to continue.
        ON CONFLICT (origin_id) WHERE origin_id IS NOT NULL DO NOTHING
        RETURNING j.id, j.type, j.queue_name, j.priority, j.run_at, j.worker_attempts, j.worker_job_id, j.due_by
    ), step AS (
        INSERT INTO cortex.job_step (
            job_id, seq, attempt, kind, key, digest, started_at, finished_at, cost_usd, usage, output, input, amid,
            parent_key)
        SELECT o.job_id, s.seq, 0, s.kind, s.key, s.digest, s.started_at, s.finished_at, s.cost_usd, s.usage, s.output,
               s.input, s.amid, s.parent_key
        FROM job j JOIN origin o ON o.job_id = j.id JOIN cortex.job_step s ON s.job_id = o.id
        WHERE o.kept IS NULL OR s.seq <= o.kept
    ), letter AS (
        UPDATE cortex.dead_letter d
        SET state = 'RETRIED', resolved_at = moment, resolved_by = 'job:' || f.parent_id,
            reason = 'the job that submitted it was retried', retried_as = f.job_id,
            triaged_at = coalesce(d.triaged_at, moment)
        FROM freed f JOIN job j ON j.id = f.job_id JOIN origin o ON o.job_id = f.job_id
        WHERE d.job_id = o.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
    ), share AS (
        -- Its lineage begins with it: a job that continues it has the same share.
        INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason, share_of)
        SELECT 'job', f.job_id::text, s.unit, 'run', s.amount::numeric, 'job:' || f.parent_id,
               'its share, as step ' || of_step || ' says', f.parent_id
        FROM freed f JOIN job j ON j.id = f.job_id CROSS JOIN LATERAL jsonb_each_text(f.terms->'budget') AS s(unit, amount)
        ON CONFLICT ON CONSTRAINT budget_once DO NOTHING
    ), task AS (
        INSERT INTO cortex_worker.task (id, task, job_id, state, priority, max_attempts, run_at, queue_name, due_by)
        SELECT j.worker_job_id, j.type, j.id,
               (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                     WHEN j.run_at > moment THEN 'LATER' ELSE 'READY' END)::cortex_worker.task_state,
               j.priority, j.worker_attempts, j.run_at, j.queue_name, j.due_by
        FROM job j
    )
    SELECT (SELECT count(*) FROM job),
           (SELECT jsonb_object_agg(o.job_id, o.id) FROM origin o WHERE o.job_id NOT IN (SELECT j.id FROM job j))
    INTO gone, others;
    IF others IS NOT NULL THEN
        PERFORM cortex.continue_child(h.id, c.job_id) FROM jsonb_each_text(others) AS o(child, origin)
        JOIN cortex.job_child c ON c.job_id = o.child::uuid JOIN cortex.job_record h ON h.origin_id = o.origin::uuid;
        -- Those run beside the others: their places are for the next ones.
        gone := gone + cortex.let_children_go(of_lineage, of_step, (SELECT count(*)::int FROM jsonb_object_keys(others)));
    END IF;
    RETURN gone;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.let_children_go(uuid,text,integer) FROM PUBLIC;

-- Has a new job take the place of a child that it continues. It gives its place to no other when it ends: the child has.
CREATE FUNCTION cortex.continue_child(new_job uuid, of_child uuid)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
UPDATE cortex.job_child c
SET job_id = new_job, terms = '{}', ended_at = (SELECT j.finished_at FROM cortex.job_record j WHERE j.id = new_job)
WHERE c.job_id = of_child $function$;
REVOKE EXECUTE ON FUNCTION cortex.continue_child(uuid,uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.continue_child(uuid,uuid) TO cortex_runtime;

-- The job whose child this one is, the one whose child that is, and so on, up to one that is detached; at most 100.
CREATE FUNCTION cortex.ancestors(of_job uuid)
 RETURNS SETOF uuid
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
WITH RECURSIVE line AS (
    SELECT j.parent_id AS id, 1 AS nth FROM cortex.job_record j
    WHERE j.id = of_job AND j.parent_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM cortex.job_child c WHERE c.job_id = j.id AND c.is_detached)
    UNION ALL
    SELECT j.parent_id, l.nth + 1 FROM line l JOIN cortex.job_record j ON j.id = l.id
    WHERE j.parent_id IS NOT NULL AND l.nth < 100
      AND NOT EXISTS (SELECT FROM cortex.job_child c WHERE c.job_id = j.id AND c.is_detached)
)
SELECT l.id FROM line l ORDER BY l.nth $function$;

-- Refuses terms and payloads with which children could not be submitted: held ones are, when others end, and must not fail then.
CREATE FUNCTION cortex.check_children(given jsonb, payloads jsonb[])
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    wrong text;
BEGIN
    SELECT t.field INTO wrong
    FROM (VALUES
        ('type', coalesce(given->>'type' ~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' AND length(given->>'type') <= 100, false)),
        ('queue_name', length(given->>'queue_name') BETWEEN 1 AND 100),
        ('priority', (given->>'priority')::int BETWEEN -32767 AND 32767),
        ('delay_s', (given->>'delay_s')::float8 BETWEEN 0 AND 315360000),
        ('max_retries', (given->>'max_retries')::int BETWEEN 0 AND 100),
        ('timeout_s', (given->>'timeout_s')::int BETWEEN 1 AND 604800),
        ('tags', CASE WHEN jsonb_typeof(given->'tags') = 'array' THEN jsonb_array_length(given->'tags') BETWEEN 1 AND 20
                 ELSE given->'tags' IS NULL END),
        ('traceparent', cortex.is_traceparent(given->>'traceparent')),
        ('budget', CASE jsonb_typeof(given->'budget') WHEN 'object' THEN NOT EXISTS (
            SELECT FROM jsonb_each_text(given->'budget') AS b(unit, amount)
            WHERE NOT CASE b.unit WHEN 'usd' THEN b.amount::numeric BETWEEN 0.000001 AND 1000000
                      WHEN 'tokens' THEN b.amount::numeric BETWEEN 1 AND 1000000000000 ELSE false END)
            ELSE given->'budget' IS NULL END)) AS t(field, is_valid)
    WHERE NOT t.is_valid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% % of children is out of bounds', wrong, left((given->wrong)::text, 80)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'children_terms';
    END IF;
    IF given->>'type' IN ('approval_notify', 'bulk', 'expire_approvals', 'sweep_zombies') OR given->>'queue_name' = 'bulk' THEN
        RAISE EXCEPTION 'a job may not submit a job of type "%"', given->>'type'
            USING ERRCODE = 'insufficient_privilege', HINT = 'it acts on other jobs: people submit it';
    END IF;
    -- A child is its parent's own: it cannot stand for another job.
    SELECT r.kind INTO wrong FROM cortex.submit_rule r WHERE r.type = given->>'type';
    IF FOUND THEN
        RAISE EXCEPTION 'job type "%" has a %: its jobs cannot be children', given->>'type', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'children_terms', HINT = 'submit it with a client, or drop the rule';
    END IF;
    SELECT octet_length(p::text)::text INTO wrong FROM unnest(payloads) AS p
    WHERE octet_length(p::text) > 262144 OR jsonb_typeof(p) <> 'object' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'payload of % bytes is larger than 262144, or no object', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size';
    END IF;
END $function$;

-- Submits children of a running job, those of one step from a position on, unless they were; holds them, or lets so many of the step run at once. Verdicts: done, lease_lost, too_deep, ancestor, busy (repeat it), other: an earlier attempt has submitted another job in the place of this ordinal.
CREATE FUNCTION cortex.spawn_children(of_job uuid, of_attempt integer, of_pod uuid, of_step text, first integer, ids uuid[], payloads jsonb[], given jsonb, let_go integer, depth_max integer)
 RETURNS TABLE(verdict text, ordinal integer)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    parent cortex.job_record;
    line uuid[];
    kind record;
    of_lineage uuid;
    detached CONSTANT boolean := coalesce((given->>'is_detached')::boolean, false);
    full_terms jsonb;
    kept_payloads jsonb[];
    other int;
    added int;
    above record;
BEGIN
    PERFORM FROM cortex_worker.task t
    WHERE t.job_id = of_job AND t.attempt = of_attempt AND t.locked_by = of_pod FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'lease_lost', NULL::int;
        RETURN;
    END IF;
    SELECT * INTO parent FROM cortex.job_record j WHERE j.id = of_job;
    of_lineage := coalesce(parent.lineage_id, parent.id);
    line := ARRAY(SELECT a FROM cortex.ancestors(of_job) AS a);
    IF cardinality(line) >= depth_max THEN
        RETURN QUERY SELECT 'too_deep', cardinality(line);
        RETURN;
    END IF;
    IF of_job = ANY (ids) OR line && ids THEN
        RETURN QUERY SELECT 'ancestor', NULL::int;
        RETURN;
    END IF;
    PERFORM cortex.check_children(given, payloads);
    IF given->>'type' = 'run_flow' THEN
        -- As a submit does: what is held runs the version that takes its inputs. What is on record has one.
        kept_payloads := ARRAY(
            SELECT CASE WHEN EXISTS (SELECT FROM cortex.job_child c WHERE c.lineage_id = of_lineage AND c.step = of_step
                                       AND c.ordinal = first + p.n::int - 1) THEN p.payload
                   ELSE p.payload || jsonb_build_object('version', (cortex.flow_of(p.payload)).kept) END
            FROM unnest(payloads) WITH ORDINALITY AS p(payload, n) ORDER BY p.n);
    END IF;
    IF EXISTS (SELECT FROM cortex.limited_type l WHERE l.type = cortex_worker.limited_as(given->>'type', given->>'agent')) THEN
        PERFORM cortex.refuse_without_limit_key(
            array_fill(given->>'type', ARRAY[cardinality(ids)]), payloads,
            array_fill(given->>'agent', ARRAY[cardinality(ids)]), array_fill(parent.tenant, ARRAY[cardinality(ids)]),
            array_fill(given->>'queue_name', ARRAY[cardinality(ids)]));
    END IF;
    SELECT a.id AS agent_id, a.version AS agent_version,
           coalesce((v.spec->'limits'->>'worker_attempts')::int, t.worker_attempts, 3) AS worker_attempts,
           coalesce((v.spec->'limits'->>'max_retries')::int, t.max_retries, 3) AS max_retries,
           coalesce((v.spec->'limits'->>'timeout_seconds')::int, t.timeout_s, 3600) AS timeout_s,
           coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) AS longest_s
    INTO kind
    FROM (SELECT given->>'type' AS type, given->>'agent' AS agent) k
    LEFT JOIN cortex.agent a ON a.name = k.agent
    LEFT JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version
    LEFT JOIN cortex.job_type t ON t.name = k.type;
    IF given->>'agent' IS NOT NULL AND kind.agent_id IS NULL THEN
        RAISE EXCEPTION 'agent "%" does not exist', given->>'agent'
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex agents apply FILE';
    END IF;
    IF (given->>'timeout_s')::int > kind.longest_s THEN
        RAISE EXCEPTION 'timeout_s % is above the hard limit of job type "%": % seconds', given->>'timeout_s', given->>'type',
            kind.longest_s
            USING ERRCODE = 'check_violation', CONSTRAINT = 'timeout_hard_limit',
                  HINT = 'a job may run at most 1.5 times as long as its type';
    END IF;
    full_terms := jsonb_build_object(
        'agent_id', kind.agent_id, 'agent_version', kind.agent_version, 'worker_attempts', kind.worker_attempts,
        'max_retries', kind.max_retries, 'timeout_s', kind.timeout_s, 'priority', parent.priority)
        || jsonb_strip_nulls(given) - 'is_detached' - 'agent';
    INSERT INTO cortex.job_child AS c (lineage_id, step, ordinal, job_id, parent_id, is_detached, is_held, terms)
    SELECT of_lineage, of_step, first + s.nth::int - 1, s.id, of_job, detached, true,
           full_terms || jsonb_build_object('payload', s.payload)
    FROM unnest(ids, coalesce(kept_payloads, payloads)) WITH ORDINALITY AS s(id, payload, nth)
    ORDER BY s.nth
    ON CONFLICT (lineage_id, step, ordinal) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added > 0 AND given ? 'budget' AND NOT detached THEN
        -- Not what is left of it at this moment: that changes, and a call of the child that finds too little waits.
        SELECT b.name, b.unit, b.limit_amount, s.amount::numeric AS share INTO above
        FROM jsonb_each_text(given->'budget') AS s(unit, amount)
        JOIN cortex.budget b ON b.scope = 'job' AND b.unit = s.unit AND b.subject = ANY (ARRAY(
            SELECT coalesce(j.lineage_id, j.id)::text FROM cortex.job_record j WHERE j.id = of_job OR j.id = ANY (line)))
        WHERE s.amount::numeric > b.limit_amount ORDER BY b.limit_amount LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'step "%" gives a child % %, more than the % % that its parent may spend', of_step,
                trim_scale(above.share), above.unit, trim_scale(above.limit_amount), above.unit
                USING ERRCODE = 'check_violation', CONSTRAINT = 'child_share',
                      HINT = format('give it less, or raise the budget above it: cortex budgets raise %s --to %s --reason TEXT',
                                    above.name, trim_scale(above.share));
        END IF;
    END IF;
    -- What an earlier attempt has submitted in their places must be the same.
    SELECT c.ordinal INTO other
    FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
    WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal BETWEEN first AND first + cardinality(ids) - 1
      AND c.job_id <> ids[c.ordinal - first + 1]
      AND (CASE WHEN given->>'type' = 'run_flow' AND NOT payloads[c.ordinal - first + 1] ? 'version'
                THEN coalesce(j.payload, c.terms->'payload') - 'version' ELSE coalesce(j.payload, c.terms->'payload') END
               IS DISTINCT FROM payloads[c.ordinal - first + 1]
           OR coalesce(j.type, c.terms->>'type') IS DISTINCT FROM given->>'type')
    ORDER BY c.ordinal LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'other', other;
        RETURN;
    END IF;
    IF NOT parent.has_children IS TRUE THEN
        UPDATE cortex.job_record j SET has_children = true WHERE j.id = of_job;
    END IF;
    IF let_go IS NOT NULL THEN
        RETURN QUERY SELECT o.verdict, NULL::int
            FROM cortex.open_children(of_lineage, of_step, parent.tenant, let_go) AS o(verdict);
        RETURN;
    END IF;
    RETURN QUERY SELECT 'done', NULL::int;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.spawn_children(uuid,integer,uuid,text,integer,uuid[],jsonb[],jsonb,integer,integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.spawn_children(uuid,integer,uuid,text,integer,uuid[],jsonb[],jsonb,integer,integer) TO cortex_runtime;

-- Lets as many children of a step run at once; busy: one of them is just ending, repeat it. The cap of the tenant counts them; those that follow take the places of others.
CREATE FUNCTION cortex.open_children(of_lineage uuid, of_step text, of_tenant text, let_go integer)
 RETURNS text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    running int;
    locked int;
    room int;
BEGIN
    -- Whoever ends one that runs now, and did not see those that are held, cannot have locked it: it waits for this.
    -- One that a person has retried has no place that it could give to another.
    SELECT count(*) INTO running FROM (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_held AND c.ended_at IS NULL AND c.terms IS NULL
        LIMIT let_go) r;
    SELECT count(*) INTO locked FROM (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_held AND c.ended_at IS NULL AND c.terms IS NULL
        LIMIT let_go FOR UPDATE SKIP LOCKED) r;
    IF locked < running THEN
        RETURN 'busy';
    END IF;
    room := let_go - locked;
    IF room > 0 AND of_tenant <> 'default' AND EXISTS (SELECT FROM cortex.tenant_cap) THEN
        PERFORM cortex.refuse_over_cap(array_agg(n.job_id), array_agg(n.type), array_agg(of_tenant), array_agg(n.payload))
        FROM (SELECT c.job_id, c.terms->>'type' AS type, c.terms->'payload' AS payload FROM cortex.job_child c
              WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.is_held AND c.ended_at IS NULL
              ORDER BY c.ordinal LIMIT room) n
        HAVING count(*) > 0;
    END IF;
    PERFORM cortex.let_children_go(of_lineage, of_step, room);
    RETURN 'done';
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.open_children(uuid,text,text,integer) FROM PUBLIC;

-- Takes on the children that an earlier job of the lineage left at a step, from an ordinal on: those that run go on, those that failed, were cancelled or never began run again, as many as given at once. Verdicts: done, lease_lost, wait: some are still being cancelled, busy or more: repeat it.
CREATE FUNCTION cortex.adopt_children(of_job uuid, of_attempt integer, of_pod uuid, of_step text, first integer, new_ids uuid[], let_go integer)
 RETURNS text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    parent cortex.job_record;
    of_lineage uuid;
    opened text;
BEGIN
    PERFORM FROM cortex_worker.task t
    WHERE t.job_id = of_job AND t.attempt = of_attempt AND t.locked_by = of_pod FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'lease_lost';
    END IF;
    SELECT * INTO parent FROM cortex.job_record j WHERE j.id = of_job;
    of_lineage := coalesce(parent.lineage_id, parent.id);
    IF NOT parent.has_children IS TRUE THEN
        UPDATE cortex.job_record j SET has_children = true WHERE j.id = of_job;
    END IF;
    -- Whoever retries one of them by hand locks these, too, before the child: then it finds them settled.
    PERFORM FROM cortex.dead_letter d
    WHERE d.job_id = ANY (ARRAY(
        SELECT c.job_id FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND j.status = 'FAILED'
        ORDER BY c.ordinal LIMIT cardinality(new_ids)))
    ORDER BY d.job_id FOR UPDATE;
    -- One that a person's decision failed has none: such a retry locks its record instead.
    PERFORM FROM cortex.job_record r
    WHERE r.id = ANY (ARRAY(
        SELECT c.job_id FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND j.status = 'FAILED' AND cortex.is_decision(j.error_code)
        ORDER BY c.ordinal LIMIT cardinality(new_ids)))
    ORDER BY r.id FOR NO KEY UPDATE;
    -- A batch locks the children that it ends in an order of its own: this waits for none of them.
    WITH running AS MATERIALIZED (
        SELECT c.ctid AS place FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND NOT c.is_held AND c.ended_at IS NULL AND j.cancel_requested_at IS NULL
        ORDER BY c.ordinal FOR UPDATE OF c SKIP LOCKED
    )
    UPDATE cortex.job_child c SET parent_id = of_job FROM running r WHERE c.ctid = r.place;
    IF EXISTS (SELECT FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
                 AND NOT c.is_held AND c.ended_at IS NULL AND j.cancel_requested_at IS NULL) THEN
        RETURN 'busy';
    END IF;
    -- Those that are being cancelled with the earlier job end first.
    IF EXISTS (SELECT FROM cortex.job_child c
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
                 AND NOT c.is_held AND c.ended_at IS NULL) THEN
        RETURN 'wait';
    END IF;
    WITH left_over AS MATERIALIZED (
        SELECT c.ctid AS place, c.ordinal, c.is_held, c.terms, c.job_id
        FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first
          AND (c.parent_id <> of_job AND (c.is_held OR j.status IN ('FAILED', 'CANCELLED'))
               OR j.status = 'CANCELLED' AND j.cancelled_by = 'job:' || parent.origin_id)
        ORDER BY c.ordinal LIMIT cardinality(new_ids) FOR UPDATE OF c SKIP LOCKED
    ), again AS MATERIALIZED (
        SELECT l.*, row_number() OVER (ORDER BY l.ordinal) AS nth FROM left_over l
    )
    UPDATE cortex.job_child c
    SET parent_id = of_job, ended_at = NULL, is_held = true,
        job_id = CASE WHEN a.is_held THEN c.job_id ELSE new_ids[a.nth] END,
        terms = CASE WHEN a.is_held THEN a.terms ELSE (
            SELECT jsonb_strip_nulls(jsonb_build_object(
                'type', j.type, 'agent_id', j.agent_id, 'agent_version', j.agent_version, 'queue_name', j.queue_name,
                'priority', j.priority, 'worker_attempts', j.worker_attempts, 'max_retries', j.max_retries,
                'timeout_s', j.timeout_s, 'tags', to_jsonb(j.tags), 'traceparent', j.traceparent, 'continues', j.id))
                || jsonb_build_object('payload', j.payload)
            FROM cortex.job_record j WHERE j.id = a.job_id) END
    FROM again a WHERE c.ctid = a.place;
    IF EXISTS (SELECT FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first
                 AND (c.parent_id <> of_job AND (c.is_held OR j.status IN ('FAILED', 'CANCELLED'))
                      OR j.status = 'CANCELLED' AND j.cancelled_by = 'job:' || parent.origin_id)) THEN
        RETURN 'more';
    END IF;
    SELECT cortex.open_children(of_lineage, of_step, parent.tenant, let_go) INTO opened;
    RETURN opened;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.adopt_children(uuid,integer,uuid,text,integer,uuid[],integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.adopt_children(uuid,integer,uuid,text,integer,uuid[],integer) TO cortex_runtime;

-- Whether the child that has a share, or a job that continues it, has not ended.
CREATE FUNCTION cortex.is_share_used(of_child uuid)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = of_child AND j.finished_at IS NULL)
    OR EXISTS (SELECT FROM cortex.job_record j WHERE j.lineage_id = of_child AND j.finished_at IS NULL) $function$;

-- Whether all children of a step below this ordinal have ended, also those that are held until others end.
CREATE FUNCTION cortex.have_children_ended(of_job uuid, of_step text, upto integer)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT NOT EXISTS (
    SELECT FROM cortex.job_record j CROSS JOIN (VALUES (false), (true)) AS w(is_held)
    CROSS JOIN LATERAL (
        SELECT c.ordinal FROM cortex.job_child c
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.step = of_step AND c.is_held = w.is_held
          AND c.ended_at IS NULL
        ORDER BY c.ordinal LIMIT 1) open
    WHERE j.id = of_job AND open.ordinal < upto) $function$;

-- How many children of a step have not ended, by state; held: not submitted yet, unserved: of a type that no pod runs.
CREATE FUNCTION cortex.open_counts(of_job uuid, of_step text)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT jsonb_object_agg(s.state, s.number) FROM (
    SELECT CASE WHEN c.is_held THEN 'held'
                WHEN j.status::text = 'PENDING' AND EXISTS (SELECT FROM cortex_worker.stranded x WHERE x.task = j.type)
                THEN 'unserved' ELSE j.status::text END AS state, count(*) AS number
    FROM cortex.job_record p
    JOIN cortex.job_child c ON c.lineage_id = coalesce(p.lineage_id, p.id) AND c.step = of_step AND c.ended_at IS NULL
    LEFT JOIN cortex.job j ON j.id = c.job_id AND NOT c.is_held
    WHERE p.id = of_job GROUP BY 1) s $function$;

-- Called for jobs that have just ended, some of which are children or have some. Each child gives its place to the next one that its step holds; the children of a job that has ended are to be cancelled.
CREATE FUNCTION cortex.families_end(jobs uuid[])
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    kin record;
BEGIN
    FOR kin IN
        WITH ended AS (
            UPDATE cortex.job_child c SET ended_at = cortex.now()
            WHERE c.job_id = ANY (jobs) AND c.ended_at IS NULL
            RETURNING c.lineage_id, c.step, c.parent_id, c.terms
        )
        SELECT e.lineage_id, e.step, array_agg(DISTINCT e.parent_id) AS parents, (count(*) FILTER (WHERE e.terms IS NULL))::int AS count FROM ended e GROUP BY e.lineage_id, e.step
        ORDER BY e.lineage_id, e.step
    LOOP
        PERFORM cortex.let_children_go(kin.lineage_id, kin.step, kin.count);
        INSERT INTO cortex.job_wake (job_id) SELECT p.id FROM unnest(kin.parents) AS p(id);
    END LOOP;
    INSERT INTO cortex.child_cut (parent_id)
    SELECT j.id FROM unnest(jobs) AS e(id) JOIN cortex.job_record j ON j.id = e.id
    WHERE j.has_children AND EXISTS (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.parent_id = j.id AND c.ended_at IS NULL
          AND NOT c.is_detached)
    ON CONFLICT DO NOTHING;
    PERFORM pg_notify('cortex_wake', '');
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.families_end(uuid[]) FROM PUBLIC;

-- Gives up up to so many children that jobs held when they ended. Returns how many: repeat it until that is none.
CREATE FUNCTION cortex.withdraw_children(most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    withdrawn int;
BEGIN
    -- Waits for whoever is just submitting one of them: what begins then is seen by the next statement.
    WITH own AS MATERIALIZED (
        SELECT k.lineage_id, k.step, k.ordinal
        FROM cortex.child_cut p JOIN cortex.job_record j ON j.id = p.parent_id
        JOIN cortex.job_child k ON k.lineage_id = coalesce(j.lineage_id, j.id) AND k.parent_id = p.parent_id
        WHERE k.is_held AND k.ended_at IS NULL AND NOT k.is_detached AND (p.step = '' OR k.step = p.step)
        LIMIT most
    ), held AS MATERIALIZED (
        SELECT c.ctid AS place FROM own JOIN cortex.job_child c USING (lineage_id, step, ordinal)
        WHERE c.is_held AND c.ended_at IS NULL
        ORDER BY c.lineage_id, c.step, c.ordinal FOR UPDATE OF c
    )
    UPDATE cortex.job_child c SET ended_at = cortex.now() FROM held h WHERE c.ctid = h.place;
    GET DIAGNOSTICS withdrawn = ROW_COUNT;
    RETURN withdrawn;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.withdraw_children(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.withdraw_children(integer) TO cortex_runtime;

-- Forgets which of these jobs have children to be cancelled, once that was requested for all. Returns how many.
CREATE FUNCTION cortex.forget_cuts(parents uuid[])
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    forgotten int;
BEGIN
    DELETE FROM cortex.child_cut p USING cortex.job_record j
    WHERE p.parent_id = ANY (parents) AND j.id = p.parent_id AND NOT EXISTS (
        SELECT FROM cortex.job_child c JOIN cortex.job_record k ON k.id = c.job_id
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.parent_id = j.id AND c.ended_at IS NULL
          AND NOT c.is_detached AND k.cancel_requested_at IS NULL AND (p.step = '' OR c.step = p.step));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $function$;
REVOKE EXECUTE ON FUNCTION cortex.forget_cuts(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_cuts(uuid[]) TO cortex_runtime;
