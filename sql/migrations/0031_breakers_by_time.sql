-- 0031 breakers by time: an open breaker is half-open from the instant at which it may be probed, for every reader.
--
-- Locks: none that anybody waits for.
-- Old pods: may keep running; they write HALF_OPEN when they take a probe, as before.
--
-- Pods write the change within a second or two. Readers do not wait for that, so that all of them agree, also while no
-- pod runs.

CREATE FUNCTION cortex.breaker_state(state text, open_until timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN state = 'OPEN' AND open_until <= cortex.now() THEN 'HALF_OPEN' ELSE state END $$;
COMMENT ON FUNCTION cortex.breaker_state IS
    'How a breaker stands now, from its columns of these names: an OPEN one whose time is over is HALF_OPEN.';

CREATE VIEW cortex.breaker_now WITH (security_invoker = true) AS
SELECT b.name, cortex.breaker_state(b.state, b.open_until) AS state, b.failures, b.successes, b.requests, b.opened_at,
       b.open_until, b.probe, b.probe_by, b.probe_until, b.forced_by, b.forced_reason, b.forced_at, b.last_error,
       b.escalated_at, b.version, b.updated_at
FROM cortex.breaker b;
COMMENT ON VIEW cortex.breaker_now IS 'Breakers as they stand now: what time alone has changed is seen at once.';
GRANT SELECT ON cortex.breaker_now TO cortex_runtime;

DO $$
DECLARE
    col record;
BEGIN
    FOR col IN SELECT a.attname AS name, col_description(a.attrelid, a.attnum) AS told FROM pg_attribute a
               WHERE a.attrelid = 'cortex.breaker'::regclass AND a.attnum > 0 AND NOT a.attisdropped LOOP
        EXECUTE format('COMMENT ON COLUMN cortex.breaker_now.%I IS %L', col.name, col.told);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.breaker_now TO cortex_reader;
    END IF;
END $$;

-- At the top of every screen only breakers that let no call through count.
CREATE OR REPLACE FUNCTION cortex.head(counted int)
    RETURNS TABLE (now timestamptz, approvals int, first_expiry timestamptz, breakers int, is_frozen boolean, dead int,
                   ready int, living int, jobs_about bigint)
    LANGUAGE sql STABLE AS $$
SELECT clock.now, waiting.count, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0)
              AND cortex.breaker_state(b.state, b.open_until) = 'OPEN' AND b.name <> 'effects:all' LIMIT counted) open)::int,
       EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED'),
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d WHERE d.state IN ('OPEN', 'ESCALATED') LIMIT counted) dead)::int,
       pods.ready, pods.living,
       (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'cortex.job'::regclass)
FROM (SELECT cortex.now() AS now) clock,
LATERAL (
    SELECT sum(found.count)::int AS count, min(found.first_expiry) AS first_expiry
    FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(a.expires_at) AS first_expiry FROM (
            SELECT p.expires_at FROM cortex.approval p
            WHERE p.status = 'PENDING' AND p.risk = level.risk AND p.expires_at > clock.now
            ORDER BY p.expires_at, p.id LIMIT counted) a) found) waiting,
LATERAL (
    SELECT count(*) FILTER (WHERE p.state = 'READY' AND p.heartbeat_at >= clock.now - interval '95 s')::int AS ready,
           count(*)::int AS living
    FROM (SELECT state, heartbeat_at FROM cortex.pod WHERE state IN ('READY', 'DRAINING') LIMIT counted) p) pods $$;
