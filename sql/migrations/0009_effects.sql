-- 0009 effects: the ledger of calls with an outside result, quotas on them, and who submitted a job.
--
-- Locks: ACCESS EXCLUSIVE on job for two columns without a rewrite, and for an index of those that wait for a quota, of
-- which there are none yet; every other object is new.
-- Old pods: must not keep running, their calls would not be in the ledger.

-- ------------------------------------------------------------------ jobs

ALTER TABLE cortex.job
    ADD COLUMN submitted_by text DEFAULT nullif(current_setting('cortex.actor', true), ''),
    ADD COLUMN has_open boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cortex.job.submitted_by IS 'Who submitted it: the session''s setting cortex.actor.';
COMMENT ON COLUMN cortex.job.waiting_on IS
    'What it waits for besides time: a breaker (llm:NAME, tool:NAME …), budget:NAME, quota:NAME, effects:all (the freeze), approval:ID, effect:ID (an unknown outcome) or person:WHAT.';
COMMENT ON COLUMN cortex.job.has_open IS 'It has had effects or approvals: what is open of them is closed when it ends.';

-- ------------------------------------------------------------------ the ledger

CREATE TABLE cortex.effect (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    attempt int NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
    tool text NOT NULL CHECK (length(tool) BETWEEN 1 AND 200),
    tenant text NOT NULL,
    agent_id uuid,
    agent_version int,
    arguments json NOT NULL,
    digest bytea NOT NULL CHECK (digest = sha256(convert_to(arguments::text, 'UTF8'))),
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'UNKNOWN', 'COMPLETED', 'FAILED', 'ABANDONED')),
    is_sure boolean NOT NULL DEFAULT false,
    calls_count int NOT NULL DEFAULT 1 CHECK (calls_count >= 1),
    can_reconcile boolean NOT NULL,
    approval_id uuid UNIQUE,
    why text,
    result json,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    called_at timestamptz NOT NULL DEFAULT cortex.now(),
    finished_at timestamptz,
    resolution text CHECK (resolution IN ('applied', 'not-applied', 'give-up')),
    resolved_by text CHECK (length(resolved_by) BETWEEN 1 AND 200),
    resolved_at timestamptz,
    resolved_reason text,
    CONSTRAINT effect_once UNIQUE (lineage_id, key, digest),
    CONSTRAINT finished_at_only_when_final
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'ABANDONED'))),
    CONSTRAINT result_only_when_completed CHECK (result IS NULL OR status = 'COMPLETED'),
    CONSTRAINT sure_only_when_pending CHECK (status = 'PENDING' OR NOT is_sure),
    CONSTRAINT resolved_by_somebody_for_a_reason CHECK (
        (resolution IS NULL) = (resolved_by IS NULL) AND (resolution IS NULL) = (resolved_at IS NULL)
        AND (resolution IS NULL) = (resolved_reason IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.effect IS
    'Calls with an outside result: intent before, outcome after. A row that is PENDING may have been applied or not.';
COMMENT ON COLUMN cortex.effect.id IS 'The invocation: the idempotency key of the other side, the same on every repetition.';
COMMENT ON COLUMN cortex.effect.job_id IS 'The job that intends it, the last one of its line.';
COMMENT ON COLUMN cortex.effect.lineage_id IS 'First job of that line: a job that goes on from a failed one does not do it again.';
COMMENT ON COLUMN cortex.effect.attempt IS 'The attempt of the job that may call it: the fence.';
COMMENT ON COLUMN cortex.effect.key IS 'The step that it is.';
COMMENT ON COLUMN cortex.effect.tool IS 'The tool, or the function of the job''s own code.';
COMMENT ON COLUMN cortex.effect.tenant IS 'Whose job it is.';
COMMENT ON COLUMN cortex.effect.agent_id IS 'The job''s agent.';
COMMENT ON COLUMN cortex.effect.agent_version IS 'That agent''s version.';
COMMENT ON COLUMN cortex.effect.arguments IS 'What it is called with, as canonical JSON.';
COMMENT ON COLUMN cortex.effect.digest IS 'SHA-256 of the arguments.';
COMMENT ON COLUMN cortex.effect.status IS
    'PENDING: the call may be under way, or was cut off · UNKNOWN: a person decides · COMPLETED: applied · FAILED: certainly not applied · ABANDONED: given up by a person.';
COMMENT ON COLUMN cortex.effect.is_sure IS 'Certainly not applied so far: the next attempt may call at once.';
COMMENT ON COLUMN cortex.effect.calls_count IS 'How many attempts were given leave to call.';
COMMENT ON COLUMN cortex.effect.can_reconcile IS 'Whether the other side can be asked what became of it.';
COMMENT ON COLUMN cortex.effect.approval_id IS 'The decision that it consumed: a decision lets one call through.';
COMMENT ON COLUMN cortex.effect.why IS 'Why it failed, or why nobody knows.';
COMMENT ON COLUMN cortex.effect.result IS 'What a person said that it returned; of others it stands in their step.';
COMMENT ON COLUMN cortex.effect.created_at IS 'When it was first intended.';
COMMENT ON COLUMN cortex.effect.called_at IS 'When an attempt last got leave to call.';
COMMENT ON COLUMN cortex.effect.finished_at IS 'When its outcome was recorded.';
COMMENT ON COLUMN cortex.effect.resolution IS 'What a person said of it.';
COMMENT ON COLUMN cortex.effect.resolved_by IS 'Who.';
COMMENT ON COLUMN cortex.effect.resolved_at IS 'When.';
COMMENT ON COLUMN cortex.effect.resolved_reason IS 'Why.';
CREATE INDEX effect_job ON cortex.effect (job_id);
CREATE INDEX effect_status ON cortex.effect (status, created_at DESC, id DESC);
CREATE INDEX effect_tool ON cortex.effect (tool, status, created_at DESC, id DESC);

-- ------------------------------------------------------------------ quotas

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
COMMENT ON TABLE cortex.quota IS 'How often, or for how much, a tool''s effects may be begun in an hour or a day, by all pods together.';
COMMENT ON COLUMN cortex.quota.id IS 'Order in which quotas of one tool are locked.';
COMMENT ON COLUMN cortex.quota.name IS 'What people and waiting jobs call it: tool:argument:period, or tool:calls:period.';
COMMENT ON COLUMN cortex.quota.tool IS 'The tool.';
COMMENT ON COLUMN cortex.quota.argument IS 'The argument that is added up, dotted where it is nested; null: calls are counted.';
COMMENT ON COLUMN cortex.quota.unit IS 'What the argument is measured in, for people.';
COMMENT ON COLUMN cortex.quota.period IS 'hour or day, of UTC.';
COMMENT ON COLUMN cortex.quota.limit_amount IS 'How much at most.';
COMMENT ON COLUMN cortex.quota.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN cortex.quota.changed_at IS 'When.';
COMMENT ON COLUMN cortex.quota.reason IS 'Why.';
COMMENT ON COLUMN cortex.quota.created_at IS 'When it was first set.';
CREATE INDEX quota_tool ON cortex.quota (tool, id);
CREATE INDEX job_waits_for_quota ON cortex.job (waiting_on, suspended_at)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'quota:%';

CREATE TABLE cortex.quota_use (
    quota_id int NOT NULL,
    began_at timestamptz NOT NULL,
    used numeric(20, 8) NOT NULL DEFAULT 0 CHECK (used >= 0),
    PRIMARY KEY (quota_id, began_at)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE cortex.quota_use IS 'What was taken from a quota in one hour or one day.';
COMMENT ON COLUMN cortex.quota_use.quota_id IS 'The quota. No foreign key: a removed one must not fail a call on its way.';
COMMENT ON COLUMN cortex.quota_use.began_at IS 'When that hour or day began.';
COMMENT ON COLUMN cortex.quota_use.used IS 'Begun effects, or the sum of their argument.';
CREATE INDEX quota_use_began ON cortex.quota_use (began_at);

CREATE FUNCTION cortex.quota_began(period text, at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN date_trunc(period, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
COMMENT ON FUNCTION cortex.quota_began IS 'When the hour or the day of an instant began, in UTC.';

CREATE FUNCTION cortex.take_quota(of_tool text, of_arguments json, taken_at timestamptz)
    RETURNS TABLE (verdict text, quota text, used numeric, limit_amount numeric, amount numeric, wait_s float8)
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
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
            -- Only what is written as a plain number counts: anything else cannot be held to a limit.
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
    'Takes one effect from all quotas of its tool, or from none and tells which one stops it: quota (wait), never, or no_amount. What it took before counts as long as that hour or day lasts.';

-- ------------------------------------------------------------------ leave to call

CREATE FUNCTION cortex.intend(
    of_job uuid, of_attempt int, new_id uuid, of_key text, of_tool text, of_arguments json, of_digest bytea,
    sure boolean, reconciles boolean, of_approval uuid
) RETURNS TABLE (id uuid, verdict text, attempt int, result json, why text, quota text, used numeric,
    limit_amount numeric, amount numeric, wait_s float8)
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE
    owner record;
    known record;
    stop record;
BEGIN
    -- The caller holds the job's row.
    SELECT j.id, coalesce(j.lineage_id, j.id) AS line, j.tenant, j.agent_id, j.agent_version, j.has_open INTO owner
    FROM cortex.job j WHERE j.id = of_job AND j.attempt = of_attempt AND j.status::text = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT new_id, 'lost', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;

    SELECT * INTO known FROM cortex.effect e
    WHERE e.lineage_id = owner.line AND e.key = of_key AND (e.digest = of_digest
        OR e.job_id = of_job AND e.status <> 'FAILED' OR e.status IN ('PENDING', 'UNKNOWN'))
    -- Certainly not applied with these arguments, it may be open with others.
    ORDER BY e.digest = of_digest AND e.status <> 'FAILED' DESC, e.status IN ('PENDING', 'UNKNOWN') DESC,
        e.digest = of_digest DESC LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        verdict := CASE
            WHEN known.digest <> of_digest OR known.tool <> of_tool THEN 'diverged'
            WHEN known.status = 'COMPLETED' THEN 'done'
            WHEN known.status = 'ABANDONED' THEN 'abandoned'
            WHEN known.status = 'PENDING' AND known.id = new_id THEN 'go'  -- this very statement, repeated
            WHEN sure OR known.is_sure OR known.status = 'FAILED' THEN 'go'
            ELSE 'recheck' END;
        IF verdict IN ('go', 'recheck') THEN
            -- From here on no earlier owner can tell its outcome.
            UPDATE cortex.effect e SET job_id = of_job, attempt = of_attempt WHERE e.id = known.id;
            IF NOT owner.has_open THEN
                UPDATE cortex.job j SET has_open = true WHERE j.id = of_job;
            END IF;
        END IF;
        IF verdict <> 'go' OR known.id = new_id THEN
            RETURN QUERY SELECT known.id, verdict, known.attempt,
                -- What it returned stands in its step, unless somebody else said so.
                CASE WHEN verdict = 'done' THEN coalesce(known.result, (
                    SELECT s.output FROM cortex.job_step s WHERE s.job_id = known.job_id AND s.key = known.key)) END,
                known.why, NULL, NULL::numeric,
                NULL::numeric, NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;

    IF EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED') THEN
        RETURN QUERY SELECT coalesce(known.id, new_id), 'frozen', of_attempt, NULL::json,
            (SELECT b.forced_reason FROM cortex.breaker b WHERE b.name = 'effects:all'), NULL, NULL::numeric,
            NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;
    IF known.id IS NULL THEN
        IF of_approval IS NOT NULL AND (NOT EXISTS (
            SELECT FROM cortex.approval a
            WHERE a.id = of_approval AND a.lineage_id = owner.line AND a.tool = of_tool AND a.digest = of_digest
              AND a.status = 'APPROVED')
           OR EXISTS (SELECT FROM cortex.effect used WHERE used.approval_id = of_approval)) THEN
            RETURN QUERY SELECT new_id, 'unapproved', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric,
                NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL OR known.is_sure OR known.status = 'FAILED' THEN
        SELECT * INTO stop FROM cortex.take_quota(of_tool, of_arguments, known.called_at);
        IF FOUND THEN
            RETURN QUERY SELECT coalesce(known.id, new_id), stop.verdict, of_attempt, NULL::json, NULL, stop.quota,
                stop.used, stop.limit_amount, stop.amount, stop.wait_s;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL THEN
        IF NOT owner.has_open THEN
            UPDATE cortex.job j SET has_open = true WHERE j.id = of_job;
        END IF;
        INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version,
                                   arguments, digest, can_reconcile, approval_id)
        VALUES (new_id, of_job, owner.line, of_attempt, of_key, of_tool, owner.tenant, owner.agent_id,
                owner.agent_version, of_arguments, of_digest, reconciles, of_approval);
        RETURN QUERY SELECT new_id, 'go', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    ELSE
        UPDATE cortex.effect e
        SET status = 'PENDING', is_sure = false, why = NULL, finished_at = NULL, called_at = cortex.now(),
            calls_count = e.calls_count + 1
        WHERE e.id = known.id;
        RETURN QUERY SELECT known.id, 'go', known.attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    END IF;
END $$;
COMMENT ON FUNCTION cortex.intend IS
    'Leave for an attempt to call, or why not: go · recheck: called before, nobody recorded the outcome · done · abandoned · diverged · frozen · quota · never · no_amount · unapproved · lost.';

-- What is open when a job ends is closed with it.
CREATE FUNCTION cortex.job_closes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    UPDATE cortex.effect
    SET status = 'UNKNOWN', is_sure = false, why = 'its job was ' || NEW.status || ' while the call was under way'
    WHERE job_id = NEW.id AND status = 'PENDING' AND NOT is_sure;
    UPDATE cortex.effect
    SET status = 'FAILED', is_sure = false, finished_at = cortex.now(), why = 'its job was ' || NEW.status || ' before it was called'
    WHERE job_id = NEW.id AND status = 'PENDING';
    UPDATE cortex.approval
    SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL, reason = 'its job was ' || NEW.status
    WHERE job_id = NEW.id AND status = 'PENDING';
    RETURN NULL;
END $$;
CREATE TRIGGER job_closes AFTER UPDATE OF status ON cortex.job
    FOR EACH ROW WHEN (NEW.has_open AND NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION cortex.job_closes();

GRANT SELECT, INSERT, UPDATE ON cortex.effect TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.quota, cortex.quota_use TO cortex_runtime;
