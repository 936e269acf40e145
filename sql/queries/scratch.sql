-- name: patience
-- Creating, dropping and vacuuming databases may take long.
SET statement_timeout = 0;
SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) IS NOT NULL;

-- name: create
-- The statement that creates a database. $1 name.
SELECT format('CREATE DATABASE %I', $1::text) AS statement;

-- name: drop
-- The statement that drops a database and its sessions. $1 name.
SELECT format('DROP DATABASE IF EXISTS %I WITH (FORCE)', $1::text) AS statement;

-- name: settle
-- Settles a freshly filled database, so that autovacuum does not disturb a measurement.
VACUUM (ANALYZE);

-- name: settle_queue
-- Removes the dead rows of the queue, the one table that is so small that autovacuum passes within a measurement.
VACUUM cortex_worker.task;

-- name: backend
-- The process that serves this session, and its database.
SELECT pg_backend_pid() AS pid, current_database()::text AS database;

-- name: wal_position
-- How many bytes the server has written to its log since it was made.
SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS bytes;

-- name: done
-- How many jobs have completed, and when the first began and the last ended. From their records: such jobs have no task,
-- and the join of the view would cost the server as much as the work that is measured.
SELECT count(*) AS count, min(started_at) AS began, max(finished_at) AS ended
FROM cortex.job_record WHERE status = 'COMPLETED' AND type = $1;

-- name: step_spans
-- Mean seconds from one committed step of a job to the next, for two ranges of steps.
-- $1 job id, $2 how many steps each range has.
WITH s AS (SELECT seq, finished_at, max(seq) OVER () AS last FROM cortex.job_step WHERE job_id = $1)
SELECT extract(epoch FROM max(finished_at) FILTER (WHERE seq <= $2)
                          - min(finished_at) FILTER (WHERE seq <= $2))::float8 / ($2 - 1) AS first_s,
       extract(epoch FROM max(finished_at) FILTER (WHERE seq > last - $2)
                          - min(finished_at) FILTER (WHERE seq > last - $2))::float8 / ($2 - 1) AS last_s
FROM s;

-- name: running_elsewhere
-- Jobs that run on another pod than the given one, after it lost them. $1 the lost pod's name.
SELECT count(*) AS count FROM cortex.job j JOIN cortex.pod p ON p.id = j.pod_id
WHERE j.status = 'RUNNING' AND p.name <> $1;

-- name: running_by_pod
-- Running jobs of each pod.
SELECT p.name, count(*) AS count FROM cortex.job j JOIN cortex.pod p ON p.id = j.pod_id
WHERE j.status = 'RUNNING' GROUP BY p.name ORDER BY p.name;

-- name: job_durations
-- Seconds from the submission to the end of every job that has completed. $1 job ids.
SELECT extract(epoch FROM finished_at - created_at)::float8 AS seconds
FROM cortex.job WHERE status = 'COMPLETED' AND id = ANY ($1::uuid[]);

-- name: model_durations
-- Seconds of every recorded model call. $1 job ids.
SELECT extract(epoch FROM finished_at - started_at)::float8 AS seconds
FROM cortex.job_step WHERE kind = 'model' AND job_id = ANY ($1::uuid[]);
