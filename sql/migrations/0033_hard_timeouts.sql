-- 0033 hard time-outs: no submitter gives a job more time than 1.5 times what its type has.
--
-- Locks: ACCESS EXCLUSIVE on job_type, a small table, to add a column and fill it.
-- Old pods: may keep running; they do not raise the limit of a type that they know longer time-outs of.

ALTER TABLE cortex.job_type ADD COLUMN timeout_max_s int CHECK (timeout_max_s BETWEEN 1 AND 907200);
UPDATE cortex.job_type SET timeout_max_s = timeout_s * 3 / 2;
COMMENT ON COLUMN cortex.job_type.timeout_max_s IS
    'The longest time-out that a job of this type may be given. Null, from an old pod: 1.5 times timeout_s.';

CREATE OR REPLACE FUNCTION cortex.submit_jobs(
    ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[],
    priorities int[], run_ats timestamptz[], worker_attempts int[], max_retries int[], timeouts_s int[],
    job_keys text[]
) RETURNS SETOF uuid
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    wrong text;
    late record;
    new_ids uuid[];
    keyed record;
BEGIN
    SELECT n INTO wrong FROM unnest(agents) AS n
    WHERE n IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.agent a WHERE a.name = n) LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'agent "%" does not exist', wrong
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex agents apply FILE';
    END IF;
    SELECT s.type, s.timeout_s, coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) AS longest_s INTO late
    FROM unnest(types, timeouts_s) AS s(type, timeout_s) LEFT JOIN cortex.job_type t ON t.name = s.type
    WHERE s.timeout_s > coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'timeout_s % is above the hard limit of job type "%": % seconds', late.timeout_s, late.type,
            late.longest_s
            USING ERRCODE = 'check_violation', CONSTRAINT = 'timeout_hard_limit',
                  HINT = 'a job may run at most 1.5 times as long as its type';
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
