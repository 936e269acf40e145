-- Submitting jobs: the single entry for pods, the API, clients and plain SQL.

-- ------------------------------------------------------------------ who calls

CREATE FUNCTION cortex.caller_is_runtime() RETURNS boolean
    LANGUAGE sql STABLE
    -- Inside a function with its owner's rights, too: current_user is the owner there, the setting stays the caller's.
    RETURN pg_has_role(CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END,
                       'cortex_runtime', 'MEMBER');
COMMENT ON FUNCTION cortex.caller_is_runtime IS
    'Whether the caller has the rights of pods. Other callers may submit jobs, and read those that they submitted.';

CREATE FUNCTION cortex.caller_submitted(submitted_with text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN submitted_with = 'db:' || session_user;
COMMENT ON FUNCTION cortex.caller_submitted IS
    'Whether a job with this credential was submitted by the caller''s login, which no setting can change.';

CREATE TABLE cortex.login_tenant (
    login name PRIMARY KEY,
    tenant text NOT NULL CHECK (length(tenant) BETWEEN 1 AND 100)
);
COMMENT ON TABLE cortex.login_tenant IS
    'Logins that submit jobs of one tenant, and see only those. Written by the owner of the schema.';
COMMENT ON COLUMN cortex.login_tenant.login IS 'The login, which Postgres authenticates.';
COMMENT ON COLUMN cortex.login_tenant.tenant IS 'Its tenant.';

CREATE FUNCTION cortex.caller_tenant() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((SELECT l.tenant FROM cortex.login_tenant l WHERE l.login = session_user),
                nullif(current_setting('cortex.tenant', true), '')) $$;
COMMENT ON FUNCTION cortex.caller_tenant IS
    'The only tenant whose jobs the caller submits and sees; null: all. That of the login, which no setting can change; of '
    'other logins the one to which the session keeps itself.';
REVOKE EXECUTE ON FUNCTION cortex.caller_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.caller_tenant TO cortex_runtime;

CREATE FUNCTION cortex.refuse_for_submitter(ids uuid[], types text[], payloads jsonb[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.refuse_for_submitter IS
    'Refuses what a login without the rights of pods may not submit: types that act on the jobs of others, folders of '
    'pods, and the ids of jobs of other logins.';

-- ------------------------------------------------------------------ keys of jobs

-- While this function waits for its lock, a job may start to wait or get its task. So each statement takes a new
-- snapshot, and sees the result of what the previous one waited for. A cancelled job that kept a task would stop every
-- claim.
CREATE FUNCTION cortex_worker.replace_by_key(key text, successor uuid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex_worker.replace_by_key IS
    'Frees a job key of a tenant for its next holder, one at a time; cancels the waiting job, and marks a running one, which is '
    'cancelled when it would wait or be tried again.';

-- Inserts the records and the tasks of a batch that has been checked; returns the ids in their order. Twice, from one
-- text: ON CONFLICT costs a tenth of a batch, to look for each id beforehand and to confirm each row afterwards.
DO $make$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN VALUES ('insert_jobs', ''), ('insert_new_jobs', ' ON CONFLICT (id) DO NOTHING') LOOP
        EXECUTE format($text$
CREATE FUNCTION cortex_worker.%I(
    ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[],
    priorities int[], run_ats timestamptz[], worker_attempts int[], max_retries int[], timeouts_s int[]
) RETURNS uuid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
            OR named LIKE 'os:%%' AND cortex.credential_person('db:' || session_user) IS NOT NULL
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
        ORDER BY s.id, s.task_id%s
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
END $$$text$, wanted.column1, wanted.column2);
    END LOOP;
END $make$;
COMMENT ON FUNCTION cortex_worker.insert_jobs IS
    'Inserts a checked batch of jobs, and fails if one exists. Called by submit_jobs only.';
COMMENT ON FUNCTION cortex_worker.insert_new_jobs IS
    'Inserts those of a checked batch of jobs that do not exist; returns their ids. Called by submit_jobs only.';

CREATE FUNCTION cortex.submit_jobs(
    ids uuid[], types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[],
    priorities int[], run_ats timestamptz[], worker_attempts int[], max_retries int[], timeouts_s int[],
    job_keys text[], tags jsonb[] DEFAULT NULL, traceparents text[] DEFAULT NULL, due_bys timestamptz[] DEFAULT NULL
) RETURNS uuid[]
    -- With the owner's rights: a login that may only submit has none on the tables.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.submit_jobs IS
    'Submits a batch in the caller''s transaction; returns the ids that were new; cortex.submitted_as names the jobs that the '
    'others stand for, where their types have rules. A null element, and every element of a null array, gets its type''s '
    'default, and an empty payload.';
REVOKE EXECUTE ON FUNCTION cortex.submit_jobs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.submit_jobs TO cortex_runtime;

CREATE FUNCTION cortex.first_submit(key text, id uuid, digest bytea, tenant text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.first_submit IS
    'The job that was first submitted under an idempotency key of the caller''s login for a tenant, for 24 hours: the given id if there '
    'is none. Called by submit_job.';
REVOKE EXECUTE ON FUNCTION cortex.first_submit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.first_submit TO cortex_runtime;

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
    id uuid DEFAULT cortex.uuid7(),
    tags text[] DEFAULT NULL,
    traceparent text DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    due_by timestamptz DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.submit_job IS
    'Submits a job from any language, in the caller''s transaction; returns its id: that of an existing job if the rule of '
    'its type makes it stand for that. Submitting the same job again under its id, or within 24 hours under its idempotency '
    'key, does nothing; another one raises.';

CREATE FUNCTION cortex_worker.add_job(
    task text,
    payload jsonb DEFAULT '{}',
    queue_name text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    max_attempts int DEFAULT NULL,
    job_key text DEFAULT NULL,
    priority int DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added uuid := cortex.submit_job(
        type => task, payload => payload, queue_name => queue_name, run_at => run_at,
        worker_attempts => max_attempts, job_key => job_key, priority => priority);
BEGIN
    RETURN (SELECT worker_job_id FROM cortex.job WHERE id = added);
END $$;
COMMENT ON FUNCTION cortex_worker.add_job IS
    'Adds a job by its worker task, in the caller''s transaction; returns the task''s id (job.worker_job_id).';
