-- Rules of job types about their submits: one job per key at a time, bursts that become one job, at most one per period.
-- Declared in code, written here by pods, and applied by cortex.submit_jobs, so that every way in obeys them.

CREATE TABLE cortex.submit_rule (
    type text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('singleton', 'debounce', 'throttle')),
    key text NOT NULL CHECK (length(key) <= 200),
    arguments text[] NOT NULL,
    on_conflict text CHECK (on_conflict IN ('return', 'replace', 'queue', 'refuse')),
    period_s float8 CHECK (period_s BETWEEN 1 AND 2592000),
    longest_s float8 CHECK (longest_s BETWEEN period_s AND 2592000),
    CONSTRAINT on_conflict_of_singletons CHECK ((on_conflict IS NOT NULL) = (kind = 'singleton')),
    CONSTRAINT period_of_others CHECK ((period_s IS NULL) = (kind = 'singleton')),
    CONSTRAINT longest_of_debounce CHECK ((longest_s IS NOT NULL) = (kind = 'debounce'))
);
COMMENT ON TABLE cortex.submit_rule IS
    'Job types whose submits obey a rule, as their code declares it: @job(singleton=…, debounce=…, throttle=…).';
COMMENT ON COLUMN cortex.submit_rule.type IS 'The job type.';
COMMENT ON COLUMN cortex.submit_rule.kind IS
    'singleton: one unfinished job per key · debounce: a newer submit moves the waiting job and gives it its arguments · '
    'throttle: one job per key and period.';
COMMENT ON COLUMN cortex.submit_rule.key IS 'Template of the key, such as {customer}; empty: one key per tenant.';
COMMENT ON COLUMN cortex.submit_rule.arguments IS 'The arguments that the template names.';
COMMENT ON COLUMN cortex.submit_rule.on_conflict IS
    'What a submit does while a job with its key has not ended. return: names that job · replace: cancels it if it waits, '
    'lets its attempt end if it runs, and runs after it · queue: runs after it · refuse: raises.';
COMMENT ON COLUMN cortex.submit_rule.period_s IS
    'debounce: seconds from the newest submit to the start · throttle: seconds between two jobs.';
COMMENT ON COLUMN cortex.submit_rule.longest_s IS 'debounce: seconds from the first submit after which the job starts anyway.';

CREATE TABLE cortex.submit_key (
    id bytea PRIMARY KEY CHECK (octet_length(id) = 32),
    type text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    job_id uuid NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL
);
COMMENT ON TABLE cortex.submit_key IS
    'The latest job of each key of types with a rule. Its row is what two submits of one key wait for. Deleted by '
    'housekeeping when the job has ended and the period is over.';
COMMENT ON COLUMN cortex.submit_key.id IS 'SHA-256 of the type, the tenant and the values of the key.';
COMMENT ON COLUMN cortex.submit_key.type IS 'The job type.';
COMMENT ON COLUMN cortex.submit_key.tenant IS 'The tenant: keys of two tenants are never the same.';
COMMENT ON COLUMN cortex.submit_key.key IS 'The key for people, shortened.';
COMMENT ON COLUMN cortex.submit_key.job_id IS 'The latest job. Not a reference: retention may have deleted it.';
COMMENT ON COLUMN cortex.submit_key.since IS 'When that was submitted.';
COMMENT ON COLUMN cortex.submit_key.until IS
    'When housekeeping looks at it next: after the period.';
CREATE INDEX submit_key_until ON cortex.submit_key (until);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.submit_rule, cortex.submit_key TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.submit_rule, cortex.submit_key TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ which job a submit stands for

CREATE FUNCTION cortex.submitted_as(ids uuid[]) RETURNS TABLE (id uuid, job_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT asked.id, (k.response #>> '{}')::uuid FROM unnest(ids) AS asked(id)
JOIN cortex.idempotency_key k ON k.scope = 'submit' AND k.key = asked.id::text $$;
COMMENT ON FUNCTION cortex.submitted_as IS
    'The jobs that submits of the last 24 hours under these ids got in place of new ones, because of the rule of their type.';
REVOKE EXECUTE ON FUNCTION cortex.submitted_as FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.submitted_as TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_submitter') THEN
        GRANT EXECUTE ON FUNCTION cortex.submitted_as TO cortex_submitter;
    END IF;
END $$;

CREATE FUNCTION cortex_worker.note_submit(id uuid, job_id uuid) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
-- Kept as long as an idempotency key: a submit whose reply was lost is repeated under its id.
INSERT INTO cortex.idempotency_key AS k (scope, key, digest, operation, status, response, expires_at)
VALUES ('submit', note_submit.id::text, sha256(convert_to(note_submit.id::text, 'UTF8')), 'jobs.submit', 'completed',
        to_jsonb(note_submit.job_id), cortex.now() + interval '1 day')
ON CONFLICT ON CONSTRAINT idempotency_key_pkey DO UPDATE SET response = excluded.response, expires_at = excluded.expires_at $$;
COMMENT ON FUNCTION cortex_worker.note_submit IS 'Records the job that a submit got in place of a new one.';

-- ------------------------------------------------------------------ the rules

CREATE FUNCTION cortex_worker.move_debounced(of_job uuid, to_payload jsonb, due timestamptz) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex_worker.move_debounced IS
    'Gives a job that has never started the arguments and the start of a newer submit; false: it has started or ended.';

CREATE FUNCTION cortex_worker.shown_key(key text, arguments text[], payload jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shown text := key;
    argument text;
BEGIN
    FOREACH argument IN ARRAY arguments LOOP
        shown := replace(shown, '{' || argument || '}', coalesce(left(payload->>argument, 100), ''));
    END LOOP;
    RETURN left(shown, 200);
END $$;
COMMENT ON FUNCTION cortex_worker.shown_key IS 'A key for people; keys are compared by the values themselves.';

CREATE FUNCTION cortex_worker.rule_key(type text, tenant text, arguments text[], payload jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(convert_to(jsonb_build_array(type, tenant, (
        SELECT jsonb_agg(payload->a.name ORDER BY a.i) FROM unnest(arguments) WITH ORDINALITY AS a(name, i)))::text, 'UTF8'));
COMMENT ON FUNCTION cortex_worker.rule_key IS 'The key of a job of a type with a rule.';

CREATE FUNCTION cortex_worker.queue_of_key(key bytea) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'singleton:' || left(encode(key, 'hex'), 32);
COMMENT ON FUNCTION cortex_worker.queue_of_key IS 'The strict queue in which the jobs of a singleton take turns.';

CREATE FUNCTION cortex_worker.replaced_reason(successor uuid, key text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((
    SELECT format('replaced by job %s with the same singleton key', successor) || coalesce(' ' || quote_literal(nullif(k.shown, '')), '')
    FROM cortex.job_record j JOIN cortex.submit_rule r ON r.type = j.type AND r.on_conflict = 'replace'
    CROSS JOIN LATERAL (SELECT cortex_worker.shown_key(r.key, r.arguments, j.payload) AS shown) k
    WHERE j.id = successor), format('replaced by job %s with the same key %L', successor, key)) $$;
COMMENT ON FUNCTION cortex_worker.replaced_reason IS
    'Why a job was cancelled for its successor: a singleton is named by its key for people.';

CREATE FUNCTION cortex_worker.at_places(list anyarray, places int[]) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
SELECT ARRAY(SELECT list[k.place] FROM unnest(places) WITH ORDINALITY AS k(place, n) ORDER BY k.n) $$;
COMMENT ON FUNCTION cortex_worker.at_places IS 'The elements of an array at these places; null where it has none.';

CREATE FUNCTION cortex_worker.apply_rules(
    INOUT ids uuid[], types text[], INOUT payloads jsonb[], tenants text[], INOUT queue_names text[],
    INOUT run_ats timestamptz[], INOUT job_keys text[], OUT kept int[]
)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex_worker.apply_rules IS
    'Applies the rules of their types to a batch: changes its arrays, and returns the places of those that become jobs; '
    'null: all. Called by submit_jobs only.';

-- ------------------------------------------------------------------ retries by people

CREATE FUNCTION cortex_worker.retry_queue(of_type text, tenant text, queue_name text, payload jsonb) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((
    SELECT cortex_worker.queue_of_key(cortex_worker.rule_key(r.type, retry_queue.tenant, r.arguments, retry_queue.payload))
    FROM cortex.submit_rule r
    WHERE r.type = of_type AND r.kind = 'singleton' AND retry_queue.payload ?& r.arguments), queue_name) $$;
COMMENT ON FUNCTION cortex_worker.retry_queue IS
    'The queue of a job that continues another one: that of its key, if its type is a singleton.';

CREATE FUNCTION cortex.check_retries(of_jobs uuid[], new_ids uuid[], others jsonb[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.check_retries IS
    'Refuses other payloads of retries that lack the key of a limit or of a singleton, and keeps the strict queues in which '
    'retried singletons take turns.';

REVOKE EXECUTE ON FUNCTION
    cortex_worker.apply_rules, cortex_worker.move_debounced, cortex_worker.note_submit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex_worker.apply_rules, cortex_worker.move_debounced, cortex_worker.note_submit TO cortex_runtime;
