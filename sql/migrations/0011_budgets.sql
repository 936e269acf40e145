-- Budgets: their limits, what was used of them, and the calls in flight that hold room in them.

CREATE TABLE cortex.budget (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text GENERATED ALWAYS AS (scope || ':' || subject || ':' || unit || ':' || period) STORED UNIQUE,
    scope text NOT NULL CHECK (scope IN ('job', 'agent', 'tenant')),
    subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 100),
    unit text NOT NULL CHECK (unit IN ('usd', 'tokens')),
    period text NOT NULL CHECK (period IN ('run', 'day')),
    limit_amount numeric(20, 8) NOT NULL CHECK (limit_amount >= 0),
    declared_amount numeric(20, 8),
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL,
    share_of uuid,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT budget_once UNIQUE (scope, subject, unit, period)
);
COMMENT ON TABLE cortex.budget IS
    'How much the calls of a job, an agent or a tenant may use; facts record who changed it.';
COMMENT ON COLUMN cortex.budget.id IS 'Order in which budgets are locked.';
COMMENT ON COLUMN cortex.budget.name IS 'Its name for people and waiting jobs: scope:subject:unit:period.';
COMMENT ON COLUMN cortex.budget.scope IS
    'The calls that it counts: those of one lineage of jobs, of an agent or of a tenant.';
COMMENT ON COLUMN cortex.budget.subject IS
    'Name of the agent or the tenant; for a job, the id of the first job of its lineage.';
COMMENT ON COLUMN cortex.budget.unit IS 'usd: money · tokens: tokens of every kind.';
COMMENT ON COLUMN cortex.budget.period IS
    'run: each lineage of jobs has its own limit · day: all share it, renewed each UTC day.';
COMMENT ON COLUMN cortex.budget.limit_amount IS 'US dollars or tokens. No call begins once this much is spent.';
COMMENT ON COLUMN cortex.budget.declared_amount IS
    'The amount last declared in the agent''s file: declaring it again does not undo a person''s change.';
COMMENT ON COLUMN cortex.budget.changed_by IS 'Who changed it last.';
COMMENT ON COLUMN cortex.budget.changed_at IS 'When.';
COMMENT ON COLUMN cortex.budget.reason IS 'Why.';
COMMENT ON COLUMN cortex.budget.share_of IS
    'The job that gave this much to its child, see cortex.let_children_go; null: people set it. Deleted with the child.';
COMMENT ON COLUMN cortex.budget.created_at IS 'When it was first set.';

CREATE TABLE cortex.budget_use (
    budget_id bigint NOT NULL,
    window_key text NOT NULL,
    spent numeric(20, 8) NOT NULL DEFAULT 0,
    reserved numeric(20, 8) NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    at timestamptz NOT NULL DEFAULT cortex.now(),
    run_spent numeric(20, 8) GENERATED ALWAYS AS (CASE WHEN length(window_key) = 36 THEN spent END) STORED,
    PRIMARY KEY (budget_id, window_key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE cortex.budget_use IS 'The usage of a budget in one run or on one day.';
COMMENT ON COLUMN cortex.budget_use.budget_id IS
    'The budget. No foreign key: removing it must not fail a call in flight.';
COMMENT ON COLUMN cortex.budget_use.window_key IS 'Per run the first job of the lineage, per day the UTC date.';
COMMENT ON COLUMN cortex.budget_use.spent IS 'Booked by calls that have ended.';
COMMENT ON COLUMN cortex.budget_use.reserved IS 'Estimates of the calls in flight.';
COMMENT ON COLUMN cortex.budget_use.at IS 'When the run or the day began to use it.';
COMMENT ON COLUMN cortex.budget_use.run_spent IS
    'Spending of a run, to find the most expensive one; null for a day, whose row changes with each call and stays '
    'out of indexes.';
CREATE INDEX budget_use_run ON cortex.budget_use (budget_id, run_spent) WHERE run_spent IS NOT NULL;
CREATE INDEX budget_use_at ON cortex.budget_use (at, budget_id, window_key);

CREATE TABLE cortex.reservation (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    attempt int NOT NULL,
    pod_id uuid NOT NULL,
    tenant text NOT NULL,
    agent_id uuid,
    agent_version int,
    step text NOT NULL,
    model text NOT NULL,
    input_tokens bigint NOT NULL,
    input_usd numeric(18, 8),
    budget_ids bigint[] NOT NULL,
    window_keys text[] NOT NULL,
    amounts numeric[] NOT NULL,
    limit_ids int[],
    limit_keys text[],
    limit_tokens bigint,
    is_batched boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT cortex.now()
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,         -- short-lived rows: vacuum by count, not by share
    autovacuum_analyze_scale_factor = 0.1
);
COMMENT ON TABLE cortex.reservation IS
    'A call in flight, with or without budgets: if its pod dies, the row left here is booked as lost.';
COMMENT ON COLUMN cortex.reservation.id IS 'The call; its cost is booked under the same id.';
COMMENT ON COLUMN cortex.reservation.job_id IS 'The job.';
COMMENT ON COLUMN cortex.reservation.attempt IS 'The attempt that makes it.';
COMMENT ON COLUMN cortex.reservation.pod_id IS 'The pod that makes it.';
COMMENT ON COLUMN cortex.reservation.tenant IS 'Whose job it is.';
COMMENT ON COLUMN cortex.reservation.agent_id IS 'The job''s agent.';
COMMENT ON COLUMN cortex.reservation.agent_version IS 'That agent''s version.';
COMMENT ON COLUMN cortex.reservation.step IS 'Key of the step.';
COMMENT ON COLUMN cortex.reservation.model IS 'The model.';
COMMENT ON COLUMN cortex.reservation.input_tokens IS 'Likely tokens of the prompt: booked for a lost call.';
COMMENT ON COLUMN cortex.reservation.input_usd IS 'Their likely price in US dollars; null when the model''s price is unknown.';
COMMENT ON COLUMN cortex.reservation.budget_ids IS 'Budgets in which it holds room, in the order of their ids.';
COMMENT ON COLUMN cortex.reservation.window_keys IS 'The run or the day of each.';
COMMENT ON COLUMN cortex.reservation.amounts IS 'The room in each, in its unit.';
COMMENT ON COLUMN cortex.reservation.limit_ids IS 'Limits of its job type in which it holds room. Null: none.';
COMMENT ON COLUMN cortex.reservation.limit_keys IS 'The key in each.';
COMMENT ON COLUMN cortex.reservation.limit_tokens IS 'The room in each, in tokens.';
COMMENT ON COLUMN cortex.reservation.is_batched IS
    'It is that of a call in a batch, which outlives its attempt: see cortex.model_batch_call.';
COMMENT ON COLUMN cortex.reservation.at IS 'When the call was admitted.';
CREATE INDEX reservation_job ON cortex.reservation (job_id, attempt);

-- Limits are people's: see 0027_people.sql.
GRANT SELECT ON cortex.budget TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.budget_use, cortex.reservation TO cortex_runtime;

-- Without settings of its own: it becomes part of the statements that use it.
CREATE FUNCTION cortex.budget_window(of_budget cortex.budget, of_lineage uuid) RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN of_budget.period <> 'run' THEN (cortex.now() AT TIME ZONE 'UTC')::date::text
           WHEN of_budget.scope = 'job' THEN of_budget.subject ELSE of_lineage::text END;
COMMENT ON FUNCTION cortex.budget_window IS
    'The run or the day of a budget in which the calls of a lineage count: that of a job counts those of its children, too.';

CREATE FUNCTION cortex.budgets_of(of_lineage uuid) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(jsonb_agg(jsonb_build_object(
    'name', b.name, 'unit', b.unit, 'limit_amount', b.limit_amount, 'spent', coalesce(u.spent, 0),
    'share_of', b.share_of) ORDER BY b.name), '[]')
FROM cortex.budget b
LEFT JOIN cortex.budget_use u ON u.budget_id = b.id AND u.window_key = cortex.budget_window(b, of_lineage)
WHERE b.scope = 'job' AND b.subject = of_lineage::text $$;
COMMENT ON FUNCTION cortex.budgets_of IS 'The budgets of the job with which a lineage began, its share among them.';

-- ------------------------------------------------------------------ begin and end of a call

CREATE FUNCTION cortex.settle(calls uuid[], tokens bigint[], costs numeric[], notes jsonb[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    booked int;
    exhausted jsonb[];
    is_limited boolean;
BEGIN
    WITH ended AS (
        SELECT * FROM unnest(calls, tokens, costs, notes) AS e(id, used_tokens, cost, note)
    ), gone AS (
        DELETE FROM cortex.reservation r USING ended e WHERE r.id = e.id
        RETURNING r.*, e.used_tokens, e.cost, e.note
    ), part AS (
        SELECT p.budget_id, p.window_key, sum(p.amount) AS held,
               sum(CASE b.unit WHEN 'usd' THEN coalesce(g.cost, 0) ELSE g.used_tokens END) AS used
        FROM gone g
        CROSS JOIN LATERAL unnest(g.budget_ids, g.window_keys, g.amounts) AS p(budget_id, window_key, amount)
        JOIN cortex.budget b ON b.id = p.budget_id
        GROUP BY p.budget_id, p.window_key
    ), locked AS MATERIALIZED (
        SELECT part.* FROM part
        JOIN cortex.budget_use u ON u.budget_id = part.budget_id AND u.window_key = part.window_key
        ORDER BY part.budget_id, part.window_key FOR UPDATE OF u
    ), spent AS (
        UPDATE cortex.budget_use u SET reserved = u.reserved - l.held, spent = u.spent + l.used
        FROM locked l WHERE u.budget_id = l.budget_id AND u.window_key = l.window_key
        RETURNING u.budget_id, u.window_key, u.spent, u.spent - l.used AS before
    ), token AS (
        -- In the slice in which the room was taken.
        SELECT p.id, p.key, cortex_worker.slice_at(l.per, g.at) AS began_at, sum(g.used_tokens - g.limit_tokens) AS more
        FROM gone g CROSS JOIN LATERAL unnest(g.limit_ids, g.limit_keys) AS p(id, key)
        JOIN cortex.job_limit l ON l.id = p.id
        GROUP BY 1, 2, 3
    ), slice AS MATERIALIZED (
        SELECT t.* FROM token t
        JOIN cortex_worker.limit_use u ON u.limit_id = t.id AND u.key = t.key AND u.began_at = t.began_at
        WHERE (SELECT count(*) FROM locked) >= 0  -- after the budgets, as in cortex.reserve
        ORDER BY t.id, t.key, t.began_at FOR UPDATE OF u
    ), returned AS (
        UPDATE cortex_worker.limit_use u SET used = greatest(0, u.used + s.more)
        FROM slice s WHERE u.limit_id = s.id AND u.key = s.key AND u.began_at = s.began_at
        RETURNING u.limit_id
    ), fact AS (
        INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version,
                                 pod_id, call_id, amount, currency, data)
        SELECT 'cost', 'model_call', left('llm:' || g.model, 300), g.tenant, g.job_id, g.attempt, g.step, g.agent_id,
               g.agent_version, g.pod_id, g.id, g.cost, CASE WHEN g.cost IS NOT NULL THEN 'USD' END,
               g.note || jsonb_build_object('model', g.model)
        FROM gone g
    )
    SELECT (SELECT count(*) FROM gone), (
        SELECT array_agg(jsonb_build_object(
            'budget', b.name, 'scope', b.scope, 'subject', b.subject, 'unit', b.unit, 'period', b.period,
            'window', s.window_key, 'spent', s.spent, 'limit', b.limit_amount,
            'tenant', CASE b.scope WHEN 'tenant' THEN b.subject ELSE 'default' END) ORDER BY b.id)
        FROM spent s JOIN cortex.budget b ON b.id = s.budget_id
        WHERE s.before < b.limit_amount AND s.spent >= b.limit_amount), (
        SELECT true FROM returned LIMIT 1)
    INTO booked, exhausted, is_limited;
    IF is_limited THEN
        PERFORM pg_notify('cortex_limit', '');
    END IF;
    IF exhausted IS NOT NULL THEN
        PERFORM cortex.announce('budget.spent', e->>'budget', e, e->>'tenant') FROM unnest(exhausted) AS e;
    END IF;
    RETURN booked;
END $$;
COMMENT ON FUNCTION cortex.settle IS
    'Ends calls: returns their room, books what they used, records the cost. A call that has already ended is '
    'skipped.';

CREATE FUNCTION cortex.settle_lost(calls uuid[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT cortex.settle(array_agg(r.id), array_agg(r.input_tokens), array_agg(r.input_usd),
                             array_agg(jsonb_build_object(
                                 'outcome', 'lost', 'estimated', true,
                                 'usage', jsonb_build_object('input_tokens', r.input_tokens))))
        FROM cortex.reservation r WHERE r.id = ANY (calls));
END $$;
COMMENT ON FUNCTION cortex.settle_lost IS 'Ends calls whose outcome will stay unknown: the prompt was likely paid.';

CREATE FUNCTION cortex.is_lost(call cortex.reservation) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT NOT call.is_batched AND (
    NOT EXISTS (SELECT FROM cortex.pod p WHERE p.id = call.pod_id AND p.state IN ('READY', 'DRAINING'))
    -- A living pod books the real cost of its call as soon as it reaches the database again.
    OR coalesce((SELECT a.ended_at FROM cortex.job_attempt a WHERE a.job_id = call.job_id AND a.attempt = call.attempt),
                (SELECT j.finished_at FROM cortex.job j WHERE j.id = call.job_id),
                '-infinity') < cortex.now() - interval '1 minute') $$;
COMMENT ON FUNCTION cortex.is_lost IS
    'Whether the cost of a call will stay unknown: its attempt is over, and its pod is gone or had a minute to book '
    'it.';

CREATE FUNCTION cortex.reserve(
    new_call uuid, of_job uuid, of_attempt int, of_pod uuid, of_lineage uuid, of_tenant text, of_agent uuid,
    of_version int, of_step text, of_model text, most_tokens bigint, most_usd numeric,
    likely_tokens bigint, likely_usd numeric
) RETURNS TABLE (verdict text, budget text, unit text, spent numeric, limit_amount numeric, wait_s float8, is_own boolean,
    limit_key text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    today date := (cortex.now() AT TIME ZONE 'UTC')::date;
    known bigint[];
    windows text[];
    ids bigint[] := '{}';
    keys text[] := '{}';
    room numeric[] := '{}';
    left_over uuid[];
    parent uuid;
    lines text[] := ARRAY[of_lineage::text];
    rank int;
    worst int := 0;
    held record;
    refused record;
    asked record;
BEGIN
    SELECT NULL::int[] AS ids, NULL::text[] AS keys INTO asked;
    IF EXISTS (SELECT FROM cortex.reservation r WHERE r.id = new_call) THEN
        RETURN QUERY SELECT 'granted', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
        RETURN;
    END IF;
    SELECT j.parent_id INTO parent FROM cortex.job j
    WHERE j.id = of_job AND j.attempt = of_attempt AND j.pod_id = of_pod AND j.status::text = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'lease_lost', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
        RETURN;
    END IF;
    left_over := ARRAY(SELECT r.id FROM cortex.reservation r WHERE r.job_id = of_job AND r.attempt < of_attempt
                       AND NOT r.is_batched AND (r.pod_id = of_pod OR cortex.is_lost(r)));
    IF cardinality(left_over) > 0 THEN
        PERFORM cortex.settle_lost(left_over);
    END IF;

    -- The calls of children count towards the budgets of the jobs above them.
    IF parent IS NOT NULL THEN
        lines := lines || ARRAY(
            SELECT DISTINCT coalesce(j.lineage_id, j.id)::text FROM cortex.ancestors(of_job) AS a(id)
            JOIN cortex.job_record j ON j.id = a.id);
    END IF;
    SELECT array_agg(b.id ORDER BY b.id), array_agg(cortex.budget_window(b, of_lineage) ORDER BY b.id) INTO known, windows
    FROM (SELECT 'job' AS scope, l.id AS subject FROM unnest(lines) AS l(id)
          UNION ALL
          VALUES ('tenant', of_tenant), ('agent', (SELECT a.name FROM cortex.agent a WHERE a.id = of_agent))) mine
    JOIN cortex.budget b ON b.scope = mine.scope AND b.subject = mine.subject;

    IF known IS NOT NULL THEN
        INSERT INTO cortex.budget_use (budget_id, window_key)
        SELECT n.id, n.key FROM unnest(known, windows) AS n(id, key) ORDER BY n.id
        ON CONFLICT DO NOTHING;
        FOR held IN
            SELECT b.id, u.window_key, b.name, b.unit, b.period, b.limit_amount, u.spent, u.reserved,
                   round(CASE b.unit WHEN 'usd' THEN most_usd ELSE most_tokens END, 8) AS amount
            FROM unnest(known, windows) AS n(id, key)
            JOIN cortex.budget b ON b.id = n.id
            JOIN cortex.budget_use u ON u.budget_id = n.id AND u.window_key = n.key
            ORDER BY n.id FOR UPDATE OF u
        LOOP
            -- If no other call is in flight, a call may begin with whatever is left, so that it can be spent.
            rank := CASE WHEN held.amount IS NULL THEN 3
                         WHEN held.spent >= held.limit_amount THEN 2
                         WHEN held.reserved > 0 AND held.spent + held.reserved + held.amount > held.limit_amount THEN 1
                         ELSE 0 END;
            IF rank > worst THEN
                worst := rank;
                refused := held;
            END IF;
            ids := ids || held.id;
            keys := keys || held.window_key;
            room := room || held.amount;
        END LOOP;
        IF worst > 0 THEN
            RETURN QUERY SELECT (ARRAY['busy', 'spent', 'unpriced'])[worst], refused.name, refused.unit, refused.spent,
                refused.limit_amount, CASE refused.period WHEN 'day' THEN
                    extract(epoch FROM (today + 1)::timestamp AT TIME ZONE 'UTC' - cortex.now())::float8 END,
                EXISTS (SELECT FROM cortex.reservation r WHERE r.job_id = of_job AND r.attempt = of_attempt
                        AND NOT r.is_batched AND refused.id = ANY (r.budget_ids)), NULL;
            RETURN;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM cortex.job_limit l WHERE l.unit = 'tokens') THEN
        -- Whoever returns room locks the uses of budgets first, too.
        SELECT * INTO asked FROM cortex_worker.ask_for_tokens(of_job, of_model, most_tokens);
        IF asked.refused IS NOT NULL THEN
            RETURN QUERY SELECT 'limit', asked.refused, 'tokens', asked.used::numeric, asked.amount::numeric, asked.wait_s, false,
                asked.key;
            RETURN;
        END IF;
    END IF;
    IF known IS NOT NULL THEN
        UPDATE cortex.budget_use u SET reserved = u.reserved + n.amount
        FROM unnest(ids, keys, room) AS n(id, key, amount) WHERE u.budget_id = n.id AND u.window_key = n.key;
    END IF;

    INSERT INTO cortex.reservation (id, job_id, attempt, pod_id, tenant, agent_id, agent_version, step, model,
                                    input_tokens, input_usd, budget_ids, window_keys, amounts,
                                    limit_ids, limit_keys, limit_tokens)
    VALUES (new_call, of_job, of_attempt, of_pod, of_tenant, of_agent, of_version, of_step, of_model,
            likely_tokens, likely_usd, ids, keys, room,
            asked.ids, asked.keys, CASE WHEN asked.ids IS NOT NULL THEN most_tokens END);
    RETURN QUERY SELECT 'granted', NULL, NULL, NULL::numeric, NULL::numeric, NULL::float8, false, NULL;
END $$;
COMMENT ON FUNCTION cortex.reserve IS
    'Admits a call, or returns the budget that stops it: busy (other calls hold the room), spent, or unpriced; or the limit '
    'of its job type that has no room for its tokens; or that the lease is lost.';
