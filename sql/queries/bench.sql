-- name: agents
-- Agents for the jobs of a measurement. $1 how many. Locks: none that matter.
WITH made AS (
    INSERT INTO cortex.agent (id, name, version)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'agent-' || n, 1 FROM generate_series(1, $1::int) n RETURNING id
)
INSERT INTO cortex.agent_version (agent_id, version, spec, digest, applied_by)
SELECT id, 1, '{}', sha256(''), 'bench' FROM made;

-- name: without_rules
-- Permits jobs in any state, in the database of a measurement, and turns off vacuum: its transactions would be counted.
-- Locks: ACCESS EXCLUSIVE on job_record.
ALTER TABLE cortex.job_record DISABLE TRIGGER USER, SET (autovacuum_enabled = false, toast.autovacuum_enabled = false);

-- name: with_rules
-- Permits only legal transitions again. Locks: ACCESS EXCLUSIVE on job_record.
ALTER TABLE cortex.job_record ENABLE TRIGGER USER;

-- name: jobs
-- Jobs of a measurement whose ids are numbers: the larger, the newer, a second apart, the newest ten minutes old. The
-- newest run, the others have ended, one in a thousand each FAILED, CANCELLED and in RETRY. $1 from and $2 to which
-- number, $3 the newest of all, $4 how many run, $5 how many agents there are. Locks: none that matter.
INSERT INTO cortex.job_record (id, type, agent_id, agent_version, status, attempt, payload, created_at, started_at,
                        finished_at, next_retry_at, error_message)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', lpad(to_hex(1 + n % $5::int), 32, '0')::uuid, 1, state.status,
       1, '{}', made.at, made.at,
       CASE WHEN state.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN made.at END,
       CASE WHEN state.status = 'RETRY' THEN made.at END,
       CASE WHEN state.status = 'FAILED' THEN 'the invoice has no number' END
FROM generate_series($1::int, $2::int) n
CROSS JOIN LATERAL (SELECT cortex.now() - (600 + $3::int - n) * interval '1 second' AS at) made
CROSS JOIN LATERAL (
    SELECT (CASE WHEN n > $3 - $4::int THEN 'RUNNING'
                 ELSE CASE n % 1000 WHEN 0 THEN 'FAILED' WHEN 1 THEN 'CANCELLED' WHEN 2 THEN 'RETRY'
                      ELSE 'COMPLETED' END END)::cortex.job_status AS status) state;

-- name: advance
-- Advances running jobs, as commits of their steps do. $1 ids, $2 the number that each will show, $3 whether to notify
-- listeners of each. Locks: the jobs.
WITH moved AS (
    UPDATE cortex.job_record j SET checkpoint = jsonb_build_object('seq', asked.number, 'key', asked.number || ' mark')
    FROM unnest($1::uuid[], $2::int[]) AS asked(id, number)
    WHERE j.id = asked.id
    RETURNING asked.number
)
SELECT count(pg_notify('cortex_task', number::text)) AS count FROM moved WHERE $3::bool;

-- name: transactions
-- How many transactions this database has counted, as far as its sessions have reported them.
SELECT (d.xact_commit + d.xact_rollback)::bigint AS count, pg_stat_force_next_flush()
FROM pg_stat_database d WHERE d.datname = current_database();

-- name: finished
-- Finished jobs of a measurement with their history: ids are numbers, the larger, the newer, a second apart, the newest
-- a day old; one in a hundred FAILED without a dead letter. $1 from and $2 to which number, $3 the newest of all. Locks:
-- none that matter.
WITH made AS (
    INSERT INTO cortex.job_record (id, type, status, attempt, payload, created_at, updated_at, started_at, finished_at,
                                   error_message, result)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', state.status, 1, '{}', t.at, t.at, t.at, t.at,
           CASE WHEN state.status = 'FAILED' THEN 'the invoice has no number' END,
           CASE WHEN state.status = 'COMPLETED' THEN '1'::jsonb END
    FROM generate_series($1::int, $2::int) n
    CROSS JOIN LATERAL (SELECT cortex.now() - (86400 + $3::int - n) * interval '1 second' AS at) t
    CROSS JOIN LATERAL (
        SELECT (CASE WHEN n % 100 = 0 THEN 'FAILED' ELSE 'COMPLETED' END)::cortex.job_status AS status) state
    RETURNING id, status, created_at
)
INSERT INTO cortex.job_history (job_id, previous, new, attempt, at, metadata)
SELECT m.id, h.previous::cortex.job_status, coalesce(h.new::cortex.job_status, m.status), h.attempt, m.created_at, '{}'
FROM made m CROSS JOIN (VALUES (1, NULL, 'PENDING', 0), (2, 'PENDING', 'RUNNING', 1), (3, 'RUNNING', NULL, 1))
    AS h(nth, previous, new, attempt)
ORDER BY m.id, h.nth;

-- name: publish
-- Publishes messages of a few hundred bytes. $1 how many.
SELECT count(cortex.publish('bench.sent', jsonb_build_object('n', n, 'text', repeat('x', 200)))) AS count
FROM generate_series(1, $1::int) n;

-- name: is_sent
-- Whether the first messages were sent. $1 how many.
SELECT NOT EXISTS (SELECT FROM cortex.outbox WHERE status = 'PENDING' AND seq <= $1)
   AND NOT EXISTS (SELECT FROM cortex.outbox WHERE status = 'PROCESSING' AND seq <= $1) AS is_sent;

-- name: submit_one
-- Submits a job as any program does, for comparison. $1 type, $2 payload.
SELECT cortex.submit_job($1, $2::jsonb) AS id;

-- name: submit_many
-- Submits many jobs as any program does, for comparison. $1 ids, $2 types, $3 payloads.
SELECT cortex.submit_jobs($1, $2, $3::jsonb[], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS ids;

-- name: lines
-- How many log lines are stored after an id, how many were dropped, and in how many seconds they were written. $1 the
-- id. Locks: none.
SELECT count(*) FILTER (WHERE l.dropped IS NULL) AS lines, coalesce(sum(l.dropped), 0)::bigint AS dropped,
       coalesce(extract(epoch FROM max(l.at) - min(l.at)), 0)::float8 AS wrote_s
FROM cortex.log_line l WHERE l.id > $1;
