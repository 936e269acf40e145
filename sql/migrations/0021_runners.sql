-- Runners: what background work last did, and whether it is late. Alarms: what lasts, and was announced once.

CREATE TABLE cortex.runner (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    interval_s float8 NOT NULL CHECK (interval_s > 0),
    first_at timestamptz NOT NULL DEFAULT cortex.now(),
    started_at timestamptz,
    duration_s float8,
    items bigint,
    error text CHECK (length(error) <= 2000),
    holder text,
    succeeded_at timestamptz,
    late_at timestamptz,
    run_count bigint NOT NULL DEFAULT 0,
    item_count bigint NOT NULL DEFAULT 0,
    error_count bigint NOT NULL DEFAULT 0,
    skip_count bigint NOT NULL DEFAULT 0,
    skipped_in_a_row bigint NOT NULL DEFAULT 0,
    busy_s float8 NOT NULL DEFAULT 0,
    CONSTRAINT runner_last_run CHECK (
        (started_at IS NULL) = (duration_s IS NULL) AND (started_at IS NULL) = (items IS NULL)
        AND (started_at IS NULL) = (holder IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.runner IS
    'Background work: the last run of each runner in any process, and totals. Written every few seconds by each process.';
COMMENT ON COLUMN cortex.runner.name IS 'Name of the runner.';
COMMENT ON COLUMN cortex.runner.interval_s IS 'The longest time between two of its runs, as it is run now.';
COMMENT ON COLUMN cortex.runner.first_at IS 'When it was recorded first.';
COMMENT ON COLUMN cortex.runner.started_at IS 'When its last run started; a skipped run is none.';
COMMENT ON COLUMN cortex.runner.duration_s IS 'How long that run took.';
COMMENT ON COLUMN cortex.runner.items IS 'How many items that run handled.';
COMMENT ON COLUMN cortex.runner.error IS 'Why that run failed; null: it succeeded.';
COMMENT ON COLUMN cortex.runner.holder IS 'The process that ran it, for people.';
COMMENT ON COLUMN cortex.runner.succeeded_at IS 'When a run last succeeded.';
COMMENT ON COLUMN cortex.runner.late_at IS 'Since when it is recorded as late: it had not succeeded for five intervals.';
COMMENT ON COLUMN cortex.runner.run_count IS 'Runs so far, failed ones too.';
COMMENT ON COLUMN cortex.runner.item_count IS 'Items handled so far.';
COMMENT ON COLUMN cortex.runner.error_count IS 'Failed runs so far.';
COMMENT ON COLUMN cortex.runner.skip_count IS 'Runs skipped so far because another process held its turn.';
COMMENT ON COLUMN cortex.runner.skipped_in_a_row IS 'Those since a run was last recorded, by any process.';
COMMENT ON COLUMN cortex.runner.busy_s IS 'Time that all runs took so far.';

CREATE FUNCTION cortex.late_from(succeeded_at timestamptz, first_at timestamptz, interval_s float8) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(succeeded_at, first_at) + 5 * interval_s * interval '1 second';
COMMENT ON FUNCTION cortex.late_from IS 'When a runner that does not succeed is late: after five of its intervals.';

CREATE FUNCTION cortex.ticked_at() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT started_at FROM cortex.runner
            WHERE name = 'dispatch' AND holder LIKE 'tick %'
              AND cortex.late_from(succeeded_at, first_at, interval_s) >= cortex.now());
COMMENT ON FUNCTION cortex.ticked_at IS
    'When a `cortex tick` last ran jobs, after any pod; null: ticks do not, or are late.';

GRANT SELECT, INSERT, UPDATE ON cortex.runner TO cortex_runtime;

-- ------------------------------------------------------------------ alarms

CREATE TABLE cortex.alarm (
    topic text NOT NULL CHECK (topic IN ('dead_letter.growing', 'auth.failed')),
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 300),
    since timestamptz NOT NULL DEFAULT cortex.now(),
    announced_at timestamptz,
    level bigint,
    PRIMARY KEY (topic, key)
);
COMMENT ON TABLE cortex.alarm IS
    'What lasts and is announced once: a row from its begin to its end. Few rows; the runner alarms deletes them.';
COMMENT ON COLUMN cortex.alarm.topic IS 'The topic of its message.';
COMMENT ON COLUMN cortex.alarm.key IS 'What it is about: dead letters, or what refused credentials.';
COMMENT ON COLUMN cortex.alarm.since IS 'Since when it has been observed.';
COMMENT ON COLUMN cortex.alarm.announced_at IS 'When it was announced; null: it has not lasted long enough yet.';
COMMENT ON COLUMN cortex.alarm.level IS 'Of dead letters: their number; twice as many are announced again.';
GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.alarm TO cortex_runtime;

CREATE FUNCTION cortex.served_tasks() RETURNS TABLE (task text, code int)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT DISTINCT c.task, p.code
FROM (SELECT p.job_types, p.tools, coalesce(p.code_id, 0) AS code FROM cortex.pod p
      WHERE p.state IN ('READY', 'DRAINING')
        AND p.heartbeat_at > cortex.now() - p.silent_after_s * interval '1 second'
      UNION
      -- The next tick has the code of the last ones.
      SELECT p.job_types, p.tools, coalesce(p.code_id, 0) FROM cortex.pod p
      WHERE p.ended_at > coalesce(cortex.ticked_at(), cortex.now()) - interval '5 minutes'
        AND p.name LIKE 'tick %') p
CROSS JOIN LATERAL unnest(cortex.claimable(p.job_types, p.tools, p.code)) AS c(task) $$;
COMMENT ON FUNCTION cortex.served_tasks IS
    'Names of tasks that living pods, and the pods of ticks of the last minutes, can take, each with their code.';

CREATE FUNCTION cortex.unserved_tasks() RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
WHERE EXISTS (SELECT FROM served) AND h.task NOT IN (SELECT s.task FROM served s) $$;
COMMENT ON FUNCTION cortex.unserved_tasks IS
    'Names of due tasks that no living pod can take, by their type, their tools or their code, nor the pod of a tick of '
    'the last minutes; none if there is no such pod.';

DO $$
BEGIN
    -- The role may be missing: see the migration that creates it.
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.runner, cortex.alarm TO cortex_reader;
    END IF;
END $$;
