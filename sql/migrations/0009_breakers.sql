-- Circuit breakers, one row for each failing dependency.

CREATE SEQUENCE cortex.breaker_version;
COMMENT ON SEQUENCE cortex.breaker_version IS
    'Versions of all breakers: a breaker that was deleted and comes back is newer than any pod''s copy of it.';

CREATE TABLE cortex.breaker (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 300),
    state text NOT NULL CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    failures int NOT NULL CHECK (failures >= 0),
    successes int NOT NULL CHECK (successes >= 0),
    requests bigint NOT NULL CHECK (requests >= 0),
    opened_at timestamptz,
    open_until timestamptz,
    probe int NOT NULL CHECK (probe >= 0),
    probe_by uuid,
    probe_until timestamptz,
    forced_by text CHECK (length(forced_by) BETWEEN 1 AND 200),
    forced_reason text CHECK (length(forced_reason) BETWEEN 1 AND 1000),
    forced_at timestamptz,
    last_error text CHECK (length(last_error) <= 1000),
    escalated_at timestamptz,
    version bigint NOT NULL DEFAULT nextval('cortex.breaker_version'),
    updated_at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT opened_at_only_in_an_outage CHECK ((opened_at IS NULL) = (state = 'CLOSED')),
    CONSTRAINT forced_only_open CHECK (forced_by IS NULL OR state = 'OPEN'),
    CONSTRAINT forced_by_somebody_for_a_reason CHECK (
        (forced_by IS NULL) = (forced_reason IS NULL) AND (forced_by IS NULL) = (forced_at IS NULL)),
    CONSTRAINT probe_only_in_half_open CHECK (
        (probe_by IS NULL) = (probe_until IS NULL) AND (probe_by IS NULL OR state = 'HALF_OPEN')),
    CONSTRAINT open_until_unless_forced CHECK (
        CASE WHEN state = 'CLOSED' THEN open_until IS NULL ELSE open_until IS NOT NULL OR forced_by IS NOT NULL END)
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.breaker IS
    'Recent failures of everything that jobs call, and whether it may be called. A row is written only when calls '
    'fail.';
COMMENT ON COLUMN cortex.breaker.name IS 'llm:MODEL, tool:NAME, mcp:AGENT/SERVER, http:HOST or notify:CHANNEL; what job.waiting_on names.';
COMMENT ON COLUMN cortex.breaker.state IS
    'CLOSED: calls pass · OPEN: none until open_until · HALF_OPEN: one probe at a time across all pods.';
COMMENT ON COLUMN cortex.breaker.failures IS 'Consecutive transient failures; failures that would repeat do not count.';
COMMENT ON COLUMN cortex.breaker.successes IS 'Consecutive successful probes.';
COMMENT ON COLUMN cortex.breaker.requests IS 'Calls since it last closed, as far as pods had a reason to report them.';
COMMENT ON COLUMN cortex.breaker.opened_at IS 'Start of the outage, however often it was probed since.';
COMMENT ON COLUMN cortex.breaker.open_until IS 'When it may be probed; null while a person holds it open indefinitely.';
COMMENT ON COLUMN cortex.breaker.probe IS 'Number of the latest probe: a report of an older one decides nothing.';
COMMENT ON COLUMN cortex.breaker.probe_by IS 'The pod whose probe is in flight.';
COMMENT ON COLUMN cortex.breaker.probe_until IS 'When that probe counts as lost: its pod renews this while it lives.';
COMMENT ON COLUMN cortex.breaker.forced_by IS
    'Who holds it open: until open_until if that is set, until a person closes it, or until it is probed.';
COMMENT ON COLUMN cortex.breaker.forced_reason IS 'Why.';
COMMENT ON COLUMN cortex.breaker.forced_at IS 'Since when.';
COMMENT ON COLUMN cortex.breaker.last_error IS 'Code and message of the newest failure that counted.';
COMMENT ON COLUMN cortex.breaker.escalated_at IS 'When a person was asked; once per outage.';
COMMENT ON COLUMN cortex.breaker.version IS
    'Larger with each write, and never reused: distinguishes an old copy from a new one.';
COMMENT ON COLUMN cortex.breaker.updated_at IS 'When it was last written.';
CREATE INDEX breaker_unhealthy ON cortex.breaker (updated_at DESC) WHERE state <> 'CLOSED' OR failures > 0;

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.breaker TO cortex_runtime;
GRANT USAGE ON SEQUENCE cortex.breaker_version TO cortex_runtime;

CREATE FUNCTION cortex.breaker_state(state text, open_until timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN state = 'OPEN' AND open_until <= cortex.now() THEN 'HALF_OPEN' ELSE state END $$;
COMMENT ON FUNCTION cortex.breaker_state IS
    'The current state of a breaker, from its columns of these names: an OPEN breaker whose time is over is '
    'HALF_OPEN.';

-- Pods write that a breaker became half-open within a second or two. Readers do not wait for that: all of them agree on
-- the state from the same instant, even while no pod runs.
CREATE VIEW cortex.breaker_now WITH (security_invoker = true) AS
SELECT b.name, cortex.breaker_state(b.state, b.open_until) AS state, b.failures, b.successes, b.requests, b.opened_at,
       b.open_until, b.probe, b.probe_by, b.probe_until, b.forced_by, b.forced_reason, b.forced_at, b.last_error,
       b.escalated_at, b.version, b.updated_at
FROM cortex.breaker b;
COMMENT ON VIEW cortex.breaker_now IS 'Breakers in their current state: changes due to time alone are visible at once.';
GRANT SELECT ON cortex.breaker_now TO cortex_runtime;

-- The view's columns have the comments of the table's.
DO $$
DECLARE
    col record;
BEGIN
    FOR col IN SELECT a.attname AS name, col_description(a.attrelid, a.attnum) AS text FROM pg_attribute a
               WHERE a.attrelid = 'cortex.breaker'::regclass AND a.attnum > 0 LOOP
        EXECUTE format('COMMENT ON COLUMN cortex.breaker_now.%I IS %L', col.name, col.text);
    END LOOP;
END $$;
