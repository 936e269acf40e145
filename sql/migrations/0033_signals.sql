-- Signals: events from outside for jobs that wait for them, or will. A signal waits in the queue of its job and name, also
-- before the job asks for it, and is consumed by assignment: it names the step that takes it, and belongs to no other.

CREATE TABLE cortex.signal (
    id uuid PRIMARY KEY,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    job_id uuid,
    lineage_id uuid,
    key text CHECK (length(key) BETWEEN 1 AND 500),
    payload jsonb NOT NULL CHECK (pg_column_size(payload) <= 2097152),
    sent_at timestamptz NOT NULL DEFAULT cortex.now(),
    sent_by text,
    sent_with text NOT NULL,
    only_for text,
    idempotency_key text,
    taken_by uuid,
    taken_line uuid,
    taken_step text,
    taken_at timestamptz,
    CONSTRAINT signal_to_a_job_or_a_key CHECK (num_nulls(lineage_id, key) = 1 AND (job_id IS NULL) = (lineage_id IS NULL)),
    CONSTRAINT taken_as_a_whole CHECK (num_nulls(taken_by, taken_line, taken_step, taken_at) IN (0, 4))
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);
COMMENT ON TABLE cortex.signal IS 'Events from outside for jobs: those that wait to be received, and those that were.';
COMMENT ON COLUMN cortex.signal.id IS 'The signal.';
COMMENT ON COLUMN cortex.signal.seq IS 'Order of arrival.';
COMMENT ON COLUMN cortex.signal.tenant IS 'Of its job, or of the jobs that may take it.';
COMMENT ON COLUMN cortex.signal.name IS 'A step receives signals of one name.';
COMMENT ON COLUMN cortex.signal.job_id IS 'The job that it was sent to; null: it was sent to a key.';
COMMENT ON COLUMN cortex.signal.lineage_id IS
    'The first job of that job''s lineage: a job that continues a failed one takes what that has left.';
COMMENT ON COLUMN cortex.signal.key IS 'The key that it was sent to, for whichever job asks for it first; kept for 24 hours.';
COMMENT ON COLUMN cortex.signal.payload IS 'Its content.';
COMMENT ON COLUMN cortex.signal.sent_at IS 'When it was sent.';
COMMENT ON COLUMN cortex.signal.sent_by IS 'Who sent it, as the sender says: its setting cortex.actor.';
COMMENT ON COLUMN cortex.signal.sent_with IS 'The credential that sent it: os:UID, token:ID or db:LOGIN.';
COMMENT ON COLUMN cortex.signal.only_for IS
    'Only jobs that were submitted with this credential take it: that of a login that may only submit. Null: any job of the '
    'tenant.';
COMMENT ON COLUMN cortex.signal.idempotency_key IS 'Sending it again under the same key does nothing.';
COMMENT ON COLUMN cortex.signal.taken_by IS 'The job that has received it.';
COMMENT ON COLUMN cortex.signal.taken_line IS 'The first job of that job''s lineage.';
COMMENT ON COLUMN cortex.signal.taken_step IS 'The step that has received it: asking again returns the same signal.';
COMMENT ON COLUMN cortex.signal.taken_at IS 'When it was received.';
CREATE INDEX signal_of_job ON cortex.signal (lineage_id, name, seq) WHERE taken_at IS NULL AND lineage_id IS NOT NULL;
CREATE INDEX signal_of_key ON cortex.signal (key, tenant, name, seq) WHERE taken_at IS NULL AND key IS NOT NULL;
CREATE INDEX signal_old ON cortex.signal (sent_at) WHERE taken_at IS NULL AND key IS NOT NULL;
CREATE INDEX signal_list ON cortex.signal (lineage_id, seq) WHERE lineage_id IS NOT NULL;
CREATE UNIQUE INDEX signal_taken ON cortex.signal (taken_line, taken_step) WHERE taken_at IS NOT NULL;
CREATE UNIQUE INDEX signal_once_for_job ON cortex.signal (lineage_id, idempotency_key)
    WHERE lineage_id IS NOT NULL AND idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX signal_once_for_key ON cortex.signal (key, tenant, coalesce(only_for, ''), idempotency_key)
    WHERE key IS NOT NULL AND idempotency_key IS NOT NULL;

GRANT SELECT ON cortex.signal TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.signal TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ sending

CREATE FUNCTION cortex.refuse_signal(name text, payload jsonb, job uuid, key text, idempotency_key text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.refuse_signal IS 'Refuses a signal that cannot be sent to any job.';

CREATE FUNCTION cortex.signal_target(job uuid, of_tenant text, idempotency_key text) RETURNS cortex.job_record
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.signal_target IS
    'The job that receives what is sent to this one: itself, or the one that continues it. Raises if there is none, unless '
    'this key shows that it was sent before, and for a job that the caller may not know of.';

CREATE FUNCTION cortex.send_signal(
    name text,
    payload jsonb DEFAULT 'null',
    job uuid DEFAULT NULL,
    key text DEFAULT NULL,
    tenant text DEFAULT NULL,
    idempotency_key text DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.send_signal IS
    'Sends a signal from any language, in the caller''s transaction: to a job, or to a key, for the job that asks for it; '
    'returns its id. Sending the same again to the same job or key under an idempotency key does nothing; another one '
    'raises. Raises for a job that has ended.';

REVOKE EXECUTE ON FUNCTION cortex.send_signal, cortex.signal_target FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.send_signal TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_submitter') THEN
        GRANT EXECUTE ON FUNCTION cortex.send_signal TO cortex_submitter;
    END IF;
END $$;

-- ------------------------------------------------------------------ receiving

CREATE FUNCTION cortex.has_signal(of_job uuid, of_name text, of_key text) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (
    SELECT FROM cortex.job_record j JOIN cortex.signal s ON s.lineage_id = coalesce(j.lineage_id, j.id)
    WHERE j.id = of_job AND of_key IS NULL AND s.name = of_name AND s.taken_at IS NULL
    UNION ALL
    SELECT FROM cortex.job_record j JOIN cortex.signal s ON s.key = of_key AND s.tenant = j.tenant
    WHERE j.id = of_job AND s.name = of_name AND s.taken_at IS NULL
      AND (s.only_for IS NULL OR s.only_for = j.submitted_with)) $$;
COMMENT ON FUNCTION cortex.has_signal IS 'Whether a signal of that name waits for a job, or for one that asks for the key.';

CREATE FUNCTION cortex.take_signal(
    of_job uuid, of_attempt int, of_pod uuid, of_step text, of_name text, of_key text
) RETURNS TABLE (is_owned boolean, id uuid, payload text, sent_at timestamptz)
    -- With the owner's rights: what was sent, and by whom, pods cannot write.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
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
END $$;
COMMENT ON FUNCTION cortex.take_signal IS
    'Gives a step of a running job the first signal in its queue that no step has, or the one that the step has already. '
    'Without an id: there is none yet. is_owned false: the attempt is over.';

CREATE FUNCTION cortex.forget_signals(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
COMMENT ON FUNCTION cortex.forget_signals IS
    'Deletes signals to keys that no job has asked for within 24 hours; returns how many.';

REVOKE EXECUTE ON FUNCTION cortex.take_signal, cortex.forget_signals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.take_signal, cortex.forget_signals TO cortex_runtime;

-- ------------------------------------------------------------------ signals of one tenant

CREATE VIEW cortex_tenant.signal WITH (security_barrier = true) AS
SELECT s.* FROM cortex.signal s WHERE s.tenant = (SELECT cortex_tenant.own()) AND s.tenant <> 'default';
COMMENT ON VIEW cortex_tenant.signal IS 'Signals to its jobs.';
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_tenant_reader') THEN
        GRANT SELECT ON cortex_tenant.signal TO cortex_tenant_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ callback URLs

CREATE TABLE cortex.callback (
    id uuid PRIMARY KEY,
    lineage_id uuid NOT NULL,
    token_digest bytea NOT NULL CHECK (octet_length(token_digest) = 32),
    step text NOT NULL CHECK (length(step) BETWEEN 1 AND 500),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    schema jsonb,
    opened_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE cortex.callback IS 'URLs to which anybody may POST signals of one name to one job: see ctx.callback_url.';
COMMENT ON COLUMN cortex.callback.id IS 'Its id in the URL, which is no secret: derived from the lineage and the step.';
COMMENT ON COLUMN cortex.callback.lineage_id IS 'The first job of the lineage that receives what is posted.';
COMMENT ON COLUMN cortex.callback.token_digest IS 'SHA-256 of the token in the URL, which is stored nowhere.';
COMMENT ON COLUMN cortex.callback.step IS 'Key of the step that opened it.';
COMMENT ON COLUMN cortex.callback.name IS 'The name of its signals.';
COMMENT ON COLUMN cortex.callback.schema IS 'JSON schema of the bodies that it takes; null: any JSON.';
COMMENT ON COLUMN cortex.callback.opened_at IS 'When it was opened.';
COMMENT ON COLUMN cortex.callback.expires_at IS 'From then on it takes nothing.';
CREATE INDEX callback_of_job ON cortex.callback (lineage_id);

GRANT SELECT, INSERT, UPDATE ON cortex.callback TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        -- Every column except the digest of the token.
        GRANT SELECT (id, lineage_id, step, name, schema, opened_at, expires_at) ON cortex.callback TO cortex_reader;
    END IF;
END $$;
