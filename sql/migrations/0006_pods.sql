-- Pods, how other pods detect that one is gone, and the periodic work that all of them share.

CREATE TABLE cortex.code (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    version text NOT NULL CHECK (length(version) BETWEEN 1 AND 100),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    used_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.code IS
    'The code of pods: one row for each that a pod started with, kept as long as a pod names it. The code of an attempt '
    'is that of its pod.';
COMMENT ON COLUMN cortex.code.id IS 'The id that pods name.';
COMMENT ON COLUMN cortex.code.digest IS 'SHA-256 of all that tells one code from another: the same code is the same row.';
COMMENT ON COLUMN cortex.code.version IS 'What people see: the operator''s word for it, or a digest of its sources.';
COMMENT ON COLUMN cortex.code.created_at IS 'When a pod first had it.';
COMMENT ON COLUMN cortex.code.used_at IS 'When a pod last started with it.';
CREATE TRIGGER code_is_immutable BEFORE UPDATE OF id, digest, version, created_at OR DELETE OR TRUNCATE ON cortex.code
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

CREATE TABLE cortex.code_arguments (
    code_id int NOT NULL CONSTRAINT code_arguments_code REFERENCES cortex.code ON DELETE CASCADE,
    type text NOT NULL,
    schema json NOT NULL,
    PRIMARY KEY (code_id, type)
);
COMMENT ON TABLE cortex.code_arguments IS
    'The arguments that a code takes for each of its job types: the command line and the HTTP API check payloads against them. '
    'cortex.submit_job does not.';
COMMENT ON COLUMN cortex.code_arguments.code_id IS 'The code.';
COMMENT ON COLUMN cortex.code_arguments.type IS 'The job type.';
COMMENT ON COLUMN cortex.code_arguments.schema IS 'JSON Schema of an object of them, in the order of the handler.';

GRANT SELECT, INSERT, UPDATE (used_at) ON cortex.code TO cortex_runtime;
GRANT SELECT, INSERT ON cortex.code_arguments TO cortex_runtime;

CREATE TABLE cortex.pod (
    id uuid PRIMARY KEY,
    lock_key bigint NOT NULL UNIQUE,
    backend_pid int,
    backend_start timestamptz,
    backend_user oid,
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
    threads_lost int NOT NULL DEFAULT 0,
    hint_latency_ms real,
    phase text CHECK (phase IN ('intake', 'jobs', 'hand_back', 'flush', 'sign_off')),
    phase_at timestamptz,
    abort_at timestamptz,
    closed_at timestamptz,
    liveness text NOT NULL DEFAULT 'lock' CHECK (liveness IN ('lock', 'heartbeat')),
    trouble text CHECK (trouble ~ '^[a-z_]{1,40}$'),
    trouble_at timestamptz,
    drain_requested_at timestamptz,
    drain_requested_by text CHECK (length(drain_requested_by) BETWEEN 1 AND 200),
    drain_reason text CHECK (length(drain_reason) <= 500),
    confinement text CHECK (confinement IN ('bubblewrap', 'landlock', 'user', 'none', 'unsafe')),
    tools text[] NOT NULL DEFAULT '{}',
    peer_check_s float8 NOT NULL DEFAULT 0.5 CHECK (peer_check_s > 0),
    heartbeat_s float8 NOT NULL DEFAULT 30 CHECK (heartbeat_s > 0),
    zombie_s float8 NOT NULL DEFAULT 300 CHECK (zombie_s > 0),
    sweep_s float8 NOT NULL DEFAULT 60 CHECK (sweep_s > 0),
    silent_after_s float8 NOT NULL GENERATED ALWAYS AS (least(3 * heartbeat_s + 5, zombie_s)) STORED,
    group_id uuid,
    worker int CHECK (worker BETWEEN 1 AND 64),
    has_run boolean NOT NULL DEFAULT true,
    code_id int CONSTRAINT pod_code REFERENCES cortex.code,
    shown_id uuid NOT NULL GENERATED ALWAYS AS (coalesce(group_id, id)) STORED,
    CONSTRAINT backend_with_its_user CHECK ((backend_pid IS NULL) = (backend_user IS NULL)),
    CONSTRAINT worker_of_a_group CHECK ((group_id IS NULL) = (worker IS NULL)),
    CONSTRAINT trouble_with_its_instant CHECK ((trouble IS NULL) = (trouble_at IS NULL)),
    CONSTRAINT drain_request_is_whole CHECK (
        (drain_requested_by IS NULL) = (drain_requested_at IS NULL)
        AND (drain_reason IS NULL) = (drain_requested_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.pod IS
    'Every pod that ever started: one run of `cortex up`. With `--workers` each worker process has a row: it claims, '
    'beats, drains and is taken over by itself; people see the rows of one run as one pod.';
COMMENT ON COLUMN cortex.pod.id IS 'Random boot id, never the host''s name: a restarted pod is a new pod.';
COMMENT ON COLUMN cortex.pod.lock_key IS
    'Key of the session advisory lock that it holds while it lives. It takes another key if a foreign login holds this one.';
COMMENT ON COLUMN cortex.pod.backend_pid IS
    'The server process of the session that holds its lock; null for a pod behind a pooler. The lock counts as held only by it.';
COMMENT ON COLUMN cortex.pod.backend_start IS
    'When that process started, since its number may be used again; null if the owner of the schema may not read that of '
    'other logins.';
COMMENT ON COLUMN cortex.pod.backend_user IS 'The login of that session: no other login can pass for it.';
COMMENT ON COLUMN cortex.pod.name IS 'Host name and process id, for people only.';
COMMENT ON COLUMN cortex.pod.version IS 'Version of Cortex that it runs.';
COMMENT ON COLUMN cortex.pod.state IS 'READY, DRAINING, STOPPED (drained and ended) or DEAD (taken over).';
COMMENT ON COLUMN cortex.pod.job_types IS 'Job types that it can run.';
COMMENT ON COLUMN cortex.pod.slots IS 'The most jobs that it runs at the same time.';
COMMENT ON COLUMN cortex.pod.running IS 'Jobs that it ran at its last heartbeat.';
COMMENT ON COLUMN cortex.pod.started_at IS 'When it registered.';
COMMENT ON COLUMN cortex.pod.heartbeat_at IS 'Its last heartbeat.';
COMMENT ON COLUMN cortex.pod.draining_at IS 'When it began to drain.';
COMMENT ON COLUMN cortex.pod.ended_at IS 'When it ended, or was found dead.';
COMMENT ON COLUMN cortex.pod.loop_lag_ms IS 'Longest delay of its event loop since the previous heartbeat.';
COMMENT ON COLUMN cortex.pod.rss_bytes IS 'Its resident memory.';
COMMENT ON COLUMN cortex.pod.threads_lost IS
    'Threads of sync functions that time-outs left behind and that had not ended at its last heartbeat.';
COMMENT ON COLUMN cortex.pod.hint_latency_ms IS 'How long a notification takes to reach it; null while none arrives.';
COMMENT ON COLUMN cortex.pod.phase IS
    'Its shutdown phase while it drains; for a dead pod, the phase in which it died; else null.';
COMMENT ON COLUMN cortex.pod.phase_at IS 'When that phase began.';
COMMENT ON COLUMN cortex.pod.abort_at IS
    'When the jobs that it still runs are handed back; in later phases, when they were.';
COMMENT ON COLUMN cortex.pod.closed_at IS 'The deadline for closing everything and ending.';
COMMENT ON COLUMN cortex.pod.liveness IS
    'What shows that it lives: its session lock and its heartbeat; behind a pooler, which can hold no lock, only the '
    'heartbeat.';
COMMENT ON COLUMN cortex.pod.trouble IS
    'What is wrong with the database from this pod''s view, such as disk_full, although its heartbeat succeeds; else '
    'null.';
COMMENT ON COLUMN cortex.pod.trouble_at IS 'Since when.';
COMMENT ON COLUMN cortex.pod.drain_requested_at IS
    'When a person requested that it take no more jobs and hand back those that it runs; its process stays. Null: no '
    'request.';
COMMENT ON COLUMN cortex.pod.drain_requested_by IS 'Who requested it.';
COMMENT ON COLUMN cortex.pod.drain_reason IS 'Why; may be empty.';
COMMENT ON COLUMN cortex.pod.confinement IS
    'What confines the programs that agents start; unsafe: the operator lets them run unconfined.';
COMMENT ON COLUMN cortex.pod.tools IS 'The tools that it offers to agents.';
COMMENT ON COLUMN cortex.pod.peer_check_s IS 'Its setting peer_check_s: how often it polls for pods that died.';
COMMENT ON COLUMN cortex.pod.heartbeat_s IS 'Its setting heartbeat_s: how often it writes a heartbeat.';
COMMENT ON COLUMN cortex.pod.zombie_s IS 'Its setting zombie_s: the silence after which it frees the jobs of another pod.';
COMMENT ON COLUMN cortex.pod.sweep_s IS 'Its setting sweep_s: how often it polls for jobs of silent pods.';
COMMENT ON COLUMN cortex.pod.silent_after_s IS
    'Seconds without a heartbeat after which people see it as silent: three heartbeats and a little.';
COMMENT ON COLUMN cortex.pod.group_id IS
    'Shared by the workers of one run of `cortex up --workers`; null for a pod of one process.';
COMMENT ON COLUMN cortex.pod.worker IS
    'Its number among them, from 1; a restarted worker is a new row with the same number. Null for a pod of one '
    'process.';
COMMENT ON COLUMN cortex.pod.has_run IS
    'The record may name it: it has run a job other than upkeep, as far as it is known. See cortex.forget_pods.';
COMMENT ON COLUMN cortex.pod.code_id IS 'The code that it runs.';
COMMENT ON COLUMN cortex.pod.shown_id IS
    'The id by which people know the pod: shared by its workers, else its own.';
CREATE INDEX pod_ended ON cortex.pod (ended_at DESC) WHERE ended_at IS NOT NULL;
CREATE INDEX pod_idle ON cortex.pod (ended_at) WHERE NOT has_run;
CREATE INDEX pod_shown ON cortex.pod (shown_id);
CREATE INDEX pod_code ON cortex.pod (code_id);
CREATE INDEX pod_alive ON cortex.pod (heartbeat_at) WHERE state IN ('READY', 'DRAINING');

GRANT SELECT, INSERT, UPDATE ON cortex.pod TO cortex_runtime;

CREATE FUNCTION cortex.serving_since() RETURNS timestamptz
    -- With the owner's rights: other roles may not read when the server's own processes started. pg_temp is named last:
    -- otherwise a caller's temporary view would hide the catalogue's.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT greatest(pg_postmaster_start_time(), (
    SELECT max(backend_start) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walwriter')) $$;
COMMENT ON FUNCTION cortex.serving_since IS
    'When the server began to accept writes: it was started or promoted, or it recovered from a crash. Before that, '
    'no pod could hold a lock or write a heartbeat.';

CREATE FUNCTION cortex.holder_of(held xid) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('pid', l.pid, 'application', a.application_name, 'user', a.usename, 'client', a.client_addr,
                          'state', a.state, 'since', a.xact_start)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = held LIMIT 1 $$;
COMMENT ON FUNCTION cortex.holder_of IS
    'The session that runs this transaction, as far as can be determined; null if it is over. A locked row names its '
    'transaction in xmax.';

CREATE FUNCTION cortex.backend_start(backend int) RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT a.backend_start FROM pg_stat_get_activity(backend) a $$;
COMMENT ON FUNCTION cortex.backend_start IS
    'When a process of the server started; null if there is none, or if the owner of the schema may not read it: it may '
    'with pg_read_all_stats.';

CREATE FUNCTION cortex.connected_pods() RETURNS SETOF uuid
    -- With the owner's rights, as cortex.backend_start. Every login may take every advisory lock, also the key of a pod
    -- that has just died: so the lock counts only if it is held by the session that the pod has registered.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT p.id
FROM pg_locks l
JOIN cortex.pod p ON p.lock_key = (l.classid::bigint << 32) | l.objid::bigint AND p.backend_pid = l.pid
JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid AND a.usesysid = p.backend_user
    AND coalesce(a.backend_start = p.backend_start, true)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) $$;
COMMENT ON FUNCTION cortex.connected_pods IS
    'Pods whose registered session lives and holds their lock: the same server process, started at the same time, of the '
    'same login.';

CREATE FUNCTION cortex.lost_pods() RETURNS SETOF uuid
    LANGUAGE sql STABLE AS $$
SELECT p.id FROM cortex.pod p
WHERE p.state IN ('READY', 'DRAINING') AND p.liveness = 'lock' AND p.id NOT IN (SELECT cortex.connected_pods())
  -- After a start of the server all pods take their locks again.
  AND p.started_at < cortex.now() - interval '2 s'
  AND cortex.serving_since() < cortex.now() - interval '5 s' $$;
COMMENT ON FUNCTION cortex.lost_pods IS
    'Pods marked alive whose session ended. A pod behind a pooler has no session of its own; only its silence shows that '
    'it died.';

REVOKE EXECUTE ON FUNCTION
    cortex.serving_since(), cortex.holder_of(xid), cortex.backend_start(int), cortex.connected_pods(), cortex.lost_pods()
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.serving_since(), cortex.holder_of(xid), cortex.backend_start(int), cortex.connected_pods(), cortex.lost_pods()
    TO cortex_runtime;

-- ------------------------------------------------------------------ periodic work

CREATE TABLE cortex.turn (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    ran_at timestamptz NOT NULL,
    since timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.turn IS
    'Periodic work that all pods take turns at: a pod that finds it recently done skips it.';
COMMENT ON COLUMN cortex.turn.name IS 'Name of the work.';
COMMENT ON COLUMN cortex.turn.ran_at IS 'When a process last did it.';
COMMENT ON COLUMN cortex.turn.since IS 'Since when it was done without a gap, where that matters.';

GRANT SELECT, INSERT, UPDATE ON cortex.turn TO cortex_runtime;

-- Every login may take every advisory lock, and keep it. A row can be locked only by a role that may update it.
CREATE TABLE cortex.runner_turn (
    name text PRIMARY KEY
);
COMMENT ON TABLE cortex.runner_turn IS
    'Work that one process at a time does for all: while it does, its transaction has locked the row. Never changed.';
COMMENT ON COLUMN cortex.runner_turn.name IS 'Name of the work.';
INSERT INTO cortex.runner_turn (name) VALUES
    ('alarms'), ('batches'), ('budgets.sweep'), ('budgets.wake_next'), ('expire_approvals'), ('housekeeping'), ('limits'),
    ('remind_approvals'), ('retention'), ('retention.set'), ('retries'), ('schedules'), ('schedules.names'), ('specs'),
    ('sweep_zombies'), ('triage');

GRANT SELECT, UPDATE ON cortex.runner_turn TO cortex_runtime;

CREATE FUNCTION cortex.take_turn(work text) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM cortex.runner_turn t WHERE t.name = work FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM cortex.runner_turn t WHERE t.name = work) THEN
        RAISE EXCEPTION 'there is no turn %', work;
    END IF;
    RETURN false;
END $$;
COMMENT ON FUNCTION cortex.take_turn IS
    'Takes the turn of some work to the end of the transaction, without waiting; whether it was free.';
