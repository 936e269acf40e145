-- 0014 liveness: turns of the sweep, suspects of pods' deaths, and one way to give a waiting job its task.
--
-- Locks: ACCESS EXCLUSIVE on task for a column without a rewrite and while its index of ready tasks is built anew: the
-- queue stands still for less than a second per million tasks.
-- Old pods: must not keep running, they would claim suspects like any others, and without an index.

-- ------------------------------------------------------------------ since when the server serves

CREATE FUNCTION cortex.serving_since() RETURNS timestamptz
    -- Of the server's own processes only their owner, or a monitor, is told.
    -- pg_temp is named, last: else a caller's temporary view would come before the catalogue's.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT greatest(pg_postmaster_start_time(), (
    SELECT max(backend_start) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walwriter')) $$;
COMMENT ON FUNCTION cortex.serving_since IS
    'When the server began to take writes: it was started, or promoted, or it recovered from a crash. Before, nobody could hold a lock or write a heartbeat.';

CREATE FUNCTION cortex.holder_of(held xid) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('pid', l.pid, 'application', a.application_name, 'user', a.usename, 'client', a.client_addr,
                          'state', a.state, 'since', a.xact_start)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = held LIMIT 1 $$;
COMMENT ON FUNCTION cortex.holder_of IS
    'The session whose transaction this is, as far as anybody can tell; null if it is over. A locked row names its transaction in xmax.';

REVOKE EXECUTE ON FUNCTION cortex.serving_since(), cortex.holder_of(xid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.serving_since(), cortex.holder_of(xid) TO cortex_runtime;

-- ------------------------------------------------------------------ turns of periodic work

CREATE TABLE cortex.runner (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    ran_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.runner IS 'Periodic work that all pods do by turns: who finds it done a moment ago leaves it.';
COMMENT ON COLUMN cortex.runner.name IS 'Which.';
COMMENT ON COLUMN cortex.runner.ran_at IS 'When some pod did it last.';
GRANT SELECT, INSERT, UPDATE ON cortex.runner TO cortex_runtime;

CREATE FUNCTION cortex.backoff_s(of_type text, config_id int, agent_id uuid, agent_version int, retry_count int)
    RETURNS float8 LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
WITH given AS (
    SELECT c.spec->'policies'->of_type->'backoff' AS policy, v.spec->'limits'->'backoff' AS agent
    FROM (SELECT $2 AS config_id, $3 AS agent_id, $4 AS agent_version) j
    LEFT JOIN cortex.config c ON c.id = j.config_id
    LEFT JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
), figure AS (
    -- What another version wrote, and this one cannot read, must not stop the sweep.
    SELECT n.name, (coalesce(nullif(g.agent->n.agent_name, 'null'), g.policy->n.name)) AS value
    FROM given g, (VALUES ('base_s', 'base_seconds'), ('cap_s', 'cap_seconds'), ('multiplier', 'multiplier'))
        AS n(name, agent_name)
), known AS (
    SELECT name, CASE WHEN jsonb_typeof(value) = 'number' THEN value::float8 END AS value FROM figure
)
SELECT least(coalesce((SELECT value FROM known WHERE name = 'cap_s'), 300),
             coalesce((SELECT value FROM known WHERE name = 'base_s'), 1)
             * power(coalesce((SELECT value FROM known WHERE name = 'multiplier'), 2), retry_count)) $$;
COMMENT ON FUNCTION cortex.backoff_s IS
    'The longest pause, in seconds, before an application retry of a job after so many: by what it began with, or as its agent has it.';

-- ------------------------------------------------------------------ suspects

ALTER TABLE cortex_worker.task ADD COLUMN is_suspect boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cortex_worker.task.is_suspect IS
    'The next death of a pod fails its job: a pod runs one of these at a time, so that the death tells which of them it was.';
COMMENT ON COLUMN cortex.job.pod_deaths IS
    'Pods that died while running it, in a row and without a step in between, but for those that died of a suspect: the poison guard.';
DROP INDEX cortex_worker.task_ready;
CREATE INDEX task_ready ON cortex_worker.task (task, priority, run_at, id) WHERE state = 'READY' AND NOT is_suspect;
CREATE INDEX task_suspect ON cortex_worker.task (task, priority, run_at, id) WHERE state = 'READY' AND is_suspect;

-- ------------------------------------------------------------------ the task of a job that waited

CREATE FUNCTION cortex.give_tasks(jobs uuid[]) RETURNS SETOF uuid
    LANGUAGE sql SET search_path = pg_catalog AS $$
WITH made AS (
    INSERT INTO cortex_worker.task (
        task, job_id, state, priority, attempt, attempts_spent, max_attempts, queue_name, job_key)
    SELECT j.type, j.id, (CASE WHEN j.queue_name IS NULL THEN 'READY' ELSE 'QUEUED' END)::cortex_worker.task_state,
           j.priority, j.attempt, j.attempts_kept, j.worker_attempts, j.queue_name,
           -- Whoever wanted its key has cancelled it, but for one who took the key before it came to wait.
           CASE WHEN NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_key = j.job_key) THEN j.job_key END
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
COMMENT ON FUNCTION cortex.give_tasks IS
    'Gives each of these jobs its task, with the key that it was submitted with, if it waits without one; returns those that got it. The caller holds the jobs.';

CREATE OR REPLACE FUNCTION cortex.let_go(of_job uuid) RETURNS boolean
    LANGUAGE sql SET search_path = pg_catalog AS $$
-- The caller holds the job's row. A job that runs, or that has a task, looks by itself.
SELECT EXISTS (SELECT FROM cortex.give_tasks(ARRAY(
    SELECT j.id FROM cortex.job j WHERE j.id = of_job AND j.status::text = 'WAITING_FOR_APPROVAL'))) $$;

CREATE OR REPLACE FUNCTION cortex.wake(jobs uuid[]) RETURNS int
    LANGUAGE sql SET search_path = pg_catalog AS $$
WITH held AS MATERIALIZED (
    SELECT j.id FROM unnest(jobs) AS w(id) JOIN cortex.job j ON j.id = w.id
    WHERE j.status::text IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.waiting_on LIKE 'budget:%' AND j.worker_job_id IS NULL
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
SELECT count(*)::int FROM cortex.give_tasks(ARRAY(SELECT id FROM held)) $$;
