-- Facts: errors, costs and changes. Append-only.

CREATE TABLE cortex.fact (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    type text NOT NULL CHECK (type IN ('error', 'cost', 'lifecycle')),
    subtype text NOT NULL CHECK (length(subtype) BETWEEN 1 AND 100),
    source text CHECK (length(source) BETWEEN 1 AND 300),
    tenant text NOT NULL DEFAULT 'default',
    job_id uuid,
    attempt int,
    step text,
    agent_id uuid,
    agent_version int,
    pod_id uuid,
    trace_id text,
    call_id uuid,
    amount numeric(18, 8),
    currency text CHECK (length(currency) = 3),
    resolves bigint,
    data jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(data) <= 131072),
    CONSTRAINT amount_and_currency_together CHECK ((amount IS NULL) = (currency IS NULL))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.fact IS 'Errors, costs, and who changed what. Append-only.';
COMMENT ON COLUMN cortex.fact.id IS 'Order of the rows.';
COMMENT ON COLUMN cortex.fact.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN cortex.fact.type IS
    'error: something failed · cost: one call of a model · lifecycle: something changed state, or a person changed '
    'it.';
COMMENT ON COLUMN cortex.fact.subtype IS
    'Details of the type: an error''s code, "model_call", "budget_raised", "breaker_opened" …';
COMMENT ON COLUMN cortex.fact.source IS 'What failed, cost or changed: llm:NAME, tool:NAME, http:HOST, budget:NAME.';
COMMENT ON COLUMN cortex.fact.tenant IS 'The tenant that it belongs to.';
COMMENT ON COLUMN cortex.fact.job_id IS 'The job, if there is one. No foreign key: a fact may outlive its job.';
COMMENT ON COLUMN cortex.fact.attempt IS 'The job''s attempt.';
COMMENT ON COLUMN cortex.fact.step IS 'Key of the step.';
COMMENT ON COLUMN cortex.fact.agent_id IS 'The job''s agent.';
COMMENT ON COLUMN cortex.fact.agent_version IS 'That agent''s version, whose configuration applied.';
COMMENT ON COLUMN cortex.fact.pod_id IS 'The pod.';
COMMENT ON COLUMN cortex.fact.trace_id IS 'Trace of its job, see cortex.trace_id.';
COMMENT ON COLUMN cortex.fact.call_id IS 'The call that a cost belongs to: each call is booked once.';
COMMENT ON COLUMN cortex.fact.amount IS 'Money; null when zero or when the price is unknown.';
COMMENT ON COLUMN cortex.fact.currency IS 'ISO 4217 code of the amount.';
COMMENT ON COLUMN cortex.fact.resolves IS 'The error fact that this one resolves.';
COMMENT ON COLUMN cortex.fact.data IS
    'Details of the type. error: message, class, attempt, max, stack, call_id (the call_id of the cost of the same model '
    'call). cost: model, outcome, usage, estimated, code, class. lifecycle: by, reason and the values before and after.';
CREATE INDEX fact_job ON cortex.fact (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX fact_type ON cortex.fact (type, at);
-- Facts of the tenant that all have who name none pay nothing for it.
CREATE INDEX fact_tenant ON cortex.fact (tenant, type, at, id) WHERE tenant <> 'default';
CREATE INDEX fact_source ON cortex.fact (source, at) WHERE source IS NOT NULL;
CREATE UNIQUE INDEX fact_call ON cortex.fact (call_id) WHERE call_id IS NOT NULL;
-- Not of costs: a pod that has any has run jobs.
CREATE INDEX fact_pod ON cortex.fact (pod_id) WHERE type IN ('error', 'lifecycle') AND pod_id IS NOT NULL;
-- The latest model calls of one agent; other facts pay nothing for them. As above, by tenant for those that are named.
CREATE INDEX fact_agent_call ON cortex.fact (agent_id, id) WHERE type = 'cost' AND agent_id IS NOT NULL;
CREATE INDEX fact_agent_call_of_tenant ON cortex.fact (agent_id, tenant, id)
    WHERE type = 'cost' AND agent_id IS NOT NULL AND tenant <> 'default';
CREATE INDEX fact_resolves ON cortex.fact (resolves, id) WHERE resolves IS NOT NULL;
-- Changes of one breaker, however much else was recorded. A successful call pays nothing for these two: they hold only
-- changes of breakers, and errors that count for a breaker.
CREATE INDEX fact_breaker_turn ON cortex.fact (source, at, id)
    WHERE type = 'lifecycle' AND subtype LIKE 'breaker\_%' AND source IS NOT NULL;
CREATE INDEX fact_breaker_error ON cortex.fact (source, at, id)
    WHERE type = 'error' AND data->>'class' LIKE 'TRANSIENT\_%' AND source IS NOT NULL;
CREATE TRIGGER fact_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.fact
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- In one place, not in each statement that records something about a job: facts are rare.
CREATE FUNCTION cortex.fact_gets_trace() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT cortex.trace_id(j.id, j.traceparent) INTO NEW.trace_id FROM cortex.job_record j WHERE j.id = NEW.job_id;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION cortex.fact_gets_trace() FROM PUBLIC;
CREATE TRIGGER fact_gets_trace BEFORE INSERT ON cortex.fact
    FOR EACH ROW WHEN (NEW.trace_id IS NULL AND NEW.job_id IS NOT NULL) EXECUTE FUNCTION cortex.fact_gets_trace();

GRANT SELECT, INSERT ON cortex.fact TO cortex_runtime;
