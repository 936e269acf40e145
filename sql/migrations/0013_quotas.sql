-- Quotas: how many effects of a tool may begin in an hour or a day, or up to which sum of an argument.

CREATE TABLE cortex.quota (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text GENERATED ALWAYS AS (tool || ':' || coalesce(argument, 'calls') || ':' || period) STORED UNIQUE,
    tool text NOT NULL CHECK (length(tool) BETWEEN 1 AND 200),
    argument text CHECK (length(argument) BETWEEN 1 AND 200),
    unit text CHECK (length(unit) BETWEEN 1 AND 20),
    period text NOT NULL CHECK (period IN ('hour', 'day')),
    limit_amount numeric(20, 8) NOT NULL CHECK (limit_amount >= 0),
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT calls_have_no_unit CHECK (argument IS NOT NULL OR unit IS NULL),
    CONSTRAINT name_fits_what_a_job_waits_for CHECK (length(name) <= 290)
);
COMMENT ON TABLE cortex.quota IS
    'How many effects of a tool, or up to which sum, all pods together may begin in an hour or a day.';
COMMENT ON COLUMN cortex.quota.id IS 'Order in which quotas of one tool are locked.';
COMMENT ON COLUMN cortex.quota.name IS
    'Its name for people and waiting jobs: tool:argument:period, or tool:calls:period.';
COMMENT ON COLUMN cortex.quota.tool IS 'The tool.';
COMMENT ON COLUMN cortex.quota.argument IS 'The argument that is summed, dotted if nested; null: calls are counted.';
COMMENT ON COLUMN cortex.quota.unit IS 'The unit of the argument, for people.';
COMMENT ON COLUMN cortex.quota.period IS 'hour or day, of UTC.';
COMMENT ON COLUMN cortex.quota.limit_amount IS 'The largest number or sum.';
COMMENT ON COLUMN cortex.quota.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN cortex.quota.changed_at IS 'When.';
COMMENT ON COLUMN cortex.quota.reason IS 'Why.';
COMMENT ON COLUMN cortex.quota.created_at IS 'When it was first set.';
CREATE INDEX quota_tool ON cortex.quota (tool, id);

CREATE TABLE cortex.quota_use (
    quota_id int NOT NULL,
    began_at timestamptz NOT NULL,
    used numeric(20, 8) NOT NULL DEFAULT 0 CHECK (used >= 0),
    PRIMARY KEY (quota_id, began_at)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE cortex.quota_use IS 'The usage of a quota in one hour or on one day.';
COMMENT ON COLUMN cortex.quota_use.quota_id IS 'The quota. No foreign key: removing it must not fail a call in flight.';
COMMENT ON COLUMN cortex.quota_use.began_at IS 'When that hour or day began.';
COMMENT ON COLUMN cortex.quota_use.used IS 'Begun effects, or the sum of their argument.';
CREATE INDEX quota_use_began ON cortex.quota_use (began_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.quota, cortex.quota_use TO cortex_runtime;

CREATE FUNCTION cortex.quota_began(period text, at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_trunc(period, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
COMMENT ON FUNCTION cortex.quota_began IS 'The start of the UTC hour or day that contains an instant.';

CREATE FUNCTION cortex.take_quota(of_tool text, of_arguments json, taken_at timestamptz)
    RETURNS TABLE (verdict text, quota text, used numeric, limit_amount numeric, amount numeric, wait_s float8)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    held record;
    asked text;
    takes numeric;
    ids int[] := '{}';
    began timestamptz[] := '{}';
    amounts numeric[] := '{}';
BEGIN
    INSERT INTO cortex.quota_use (quota_id, began_at)
    SELECT q.id, cortex.quota_began(q.period, cortex.now()) FROM cortex.quota q WHERE q.tool = of_tool ORDER BY q.id
    ON CONFLICT DO NOTHING;
    FOR held IN
        SELECT q.id, q.name, q.argument, q.period, trim_scale(q.limit_amount) AS limit_amount, u.began_at,
               trim_scale(u.used) AS used
        FROM cortex.quota q
        JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = cortex.quota_began(q.period, cortex.now())
        WHERE q.tool = of_tool AND (taken_at IS NULL OR taken_at < u.began_at) ORDER BY q.id FOR UPDATE OF u
    LOOP
        takes := 1;
        IF held.argument IS NOT NULL THEN
            asked := of_arguments #>> string_to_array(held.argument, '.');
            -- Only a plain number counts: anything else cannot be held to a limit.
            IF asked IS NULL OR json_typeof(of_arguments #> string_to_array(held.argument, '.')) <> 'number'
               OR asked::numeric < 0 THEN
                RETURN QUERY SELECT 'no_amount', held.name, held.used, held.limit_amount, NULL::numeric, NULL::float8;
                RETURN;
            END IF;
            takes := round(asked::numeric, 8);
        END IF;
        IF takes > held.limit_amount THEN
            RETURN QUERY SELECT 'never', held.name, held.used, held.limit_amount, takes, NULL::float8;
            RETURN;
        ELSIF held.used + takes > held.limit_amount THEN
            RETURN QUERY SELECT 'quota', held.name, held.used, held.limit_amount, takes,
                extract(epoch FROM held.began_at + ('1 ' || held.period)::interval - cortex.now())::float8;
            RETURN;
        END IF;
        ids := ids || held.id;
        began := began || held.began_at;
        amounts := amounts || takes;
    END LOOP;
    UPDATE cortex.quota_use u SET used = u.used + n.amount
    FROM unnest(ids, began, amounts) AS n(id, began_at, amount) WHERE u.quota_id = n.id AND u.began_at = n.began_at;
END $$;
COMMENT ON FUNCTION cortex.take_quota IS
    'Takes one effect from all quotas of its tool, or from none and returns the quota that stops it: quota (wait), '
    'never, or no_amount. What it took before counts for the rest of that hour or day.';

-- ------------------------------------------------------------------ caps of tenants

CREATE TABLE cortex.tenant_cap (
    tenant text PRIMARY KEY CHECK (length(tenant) BETWEEN 1 AND 100),
    jobs_max int NOT NULL CHECK (jobs_max BETWEEN 1 AND 100000),
    bytes_max bigint CHECK (bytes_max >= 1),
    changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL,
    CONSTRAINT default_has_no_cap CHECK (tenant <> 'default')
);
COMMENT ON TABLE cortex.tenant_cap IS
    'How many jobs a tenant may have that have not ended, and how many bytes their payloads: a submit beyond it is refused.';
COMMENT ON COLUMN cortex.tenant_cap.tenant IS 'The tenant.';
COMMENT ON COLUMN cortex.tenant_cap.jobs_max IS 'Most jobs that have not ended: each submit counts that far.';
COMMENT ON COLUMN cortex.tenant_cap.bytes_max IS 'Most bytes of their payloads, as stored; null: any number.';
COMMENT ON COLUMN cortex.tenant_cap.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN cortex.tenant_cap.changed_at IS 'When.';
COMMENT ON COLUMN cortex.tenant_cap.reason IS 'Why.';

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.tenant_cap TO cortex_runtime;

CREATE FUNCTION cortex.refuse_over_cap(ids uuid[], types text[], tenants text[], payloads jsonb[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    capped record;
    jobs bigint;
    bytes bigint;
BEGIN
    FOR capped IN
        SELECT c.tenant, c.jobs_max, c.bytes_max, n.jobs, n.bytes FROM cortex.tenant_cap c JOIN (
            SELECT s.tenant, count(*) AS jobs, sum(pg_column_size(coalesce(s.payload, '{}'))) AS bytes
            FROM (SELECT unnest(ids) AS id, unnest(types) AS type, unnest(tenants) AS tenant,
                         unnest(payloads) AS payload) s
            -- People must be asked and notified, by jobs that the runtime submits without a person. A job that was
            -- submitted before adds none.
            WHERE s.type NOT IN ('approval_notify', 'bulk')
              AND (s.type <> 'send_notification' OR NOT cortex.caller_is_runtime()
                   OR coalesce(current_setting('cortex.credential', true), '') <> '')
              AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = s.id)
            GROUP BY s.tenant) n ON n.tenant = c.tenant
        ORDER BY c.tenant
    LOOP
        -- One at a time, to the end of the transaction: those at once would not see each other's jobs.
        PERFORM pg_advisory_xact_lock(hashtextextended('cortex.tenant_cap ' || capped.tenant, 0));
        IF capped.bytes_max IS NULL THEN
            SELECT count(*), 0 INTO jobs, bytes FROM (
                SELECT FROM cortex.job_record j WHERE j.tenant = capped.tenant AND j.tenant <> 'default'
                  AND j.status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL') LIMIT capped.jobs_max) w;
        ELSE
            SELECT count(*), coalesce(sum(w.size), 0) INTO jobs, bytes FROM (
                SELECT pg_column_size(j.payload) AS size FROM cortex.job_record j
                WHERE j.tenant = capped.tenant AND j.tenant <> 'default'
                  AND j.status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL') LIMIT capped.jobs_max) w;
        END IF;
        IF jobs + capped.jobs > capped.jobs_max OR bytes + capped.bytes > capped.bytes_max THEN
            RAISE EXCEPTION 'tenant "%" has % of at most % jobs that have not ended%', capped.tenant, jobs, capped.jobs_max,
                coalesce(format(', with %s of at most %s bytes', bytes, capped.bytes_max), '')
                USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_cap',
                      HINT = 'submit again when some have ended, or raise it: cortex quotas cap';
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION cortex.refuse_over_cap IS
    'Refuses a batch with which a tenant would have more jobs that have not ended, or more bytes of payloads, than its cap.';

CREATE FUNCTION cortex.refuse_retries_over_cap(of_jobs uuid[], new_ids uuid[], others jsonb[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM cortex.tenant_cap) THEN
        PERFORM cortex.refuse_over_cap(array_agg(r.new_id), array_agg(j.type), array_agg(j.tenant),
                                       array_agg(coalesce(r.payload, j.payload)))
        FROM unnest(of_jobs, new_ids, others) AS r(job_id, new_id, payload)
        JOIN cortex.job_record j ON j.id = r.job_id AND j.status = 'FAILED'
        WHERE NOT EXISTS (SELECT FROM cortex.job_record n WHERE n.origin_id = j.id);
    END IF;
END $$;
COMMENT ON FUNCTION cortex.refuse_retries_over_cap IS
    'The same of new jobs that continue failed ones: their ids, and their payloads if they are others.';
