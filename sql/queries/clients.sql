-- name: rights
-- What the login of this session may do for clients: the roles that it may take, and those whose rights it has. Needs no
-- privilege. Locks: none.
WITH role AS (
    SELECT r.oid, r.rolname::text AS name FROM pg_roles r, pg_namespace n
    WHERE r.rolname IN ('cortex_runtime', 'cortex_submitter') AND n.nspname = 'cortex'
      AND has_schema_privilege(r.oid, n.oid, 'USAGE')
)
SELECT session_user::text AS login, current_database()::text AS database,
       to_regnamespace('cortex') IS NOT NULL AS has_schema,
       -- Since Postgres 16 the creator of a role is its member, but may not SET ROLE to it.
       ARRAY(SELECT name FROM role WHERE pg_has_role(session_user, oid,
             CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)) AS takes,
       ARRAY(SELECT name FROM role WHERE pg_has_role(session_user, oid, 'USAGE')) AS has;

-- name: submit_once
-- Submits a job under an idempotency key; returns the id of the first job that was submitted under it. $1 id, $2 type,
-- $3 payload, $4 agent, $5 tenant, $6 queue, $7 priority, $8 seconds of delay, $9 instant, $10 worker attempts, $11
-- retries, $12 time-out, $13 job key, $14 tags, $15 traceparent, $16 idempotency key, $17 who submits, $18 deadline.
-- Locks: the key's row, to the end of the transaction.
SELECT cortex.submit_job(
    id => $1, type => $2, payload => $3::jsonb, agent => $4, tenant => $5, queue_name => $6, priority => $7,
    run_at => coalesce($9, cortex.now() + $8::float8 * interval '1 second'), worker_attempts => $10,
    max_retries => $11, timeout_s => $12, job_key => $13, tags => $14, traceparent => $15, idempotency_key => $16,
    due_by => $18) AS id
FROM (SELECT set_config('cortex.actor', coalesce($17, ''), true),
             set_config('cortex.credential', '', true) OFFSET 0) actor;

-- name: wait
-- Notifies a client of the ends of jobs. $1 client, $2 job ids, $3 seconds until that lapses. Locks: its rows, and
-- unlocked expired ones.
SELECT cortex.wait_for_jobs($1, $2, $3);
