-- 0041 unsafe pods: at the top of every screen stands whether a pod lets the programs of agents run unconfined.
--
-- Locks: none that anybody waits for.
-- Old pods: may keep running.

DROP FUNCTION cortex.head(int);
CREATE FUNCTION cortex.head(counted int)
    RETURNS TABLE (now timestamptz, approvals int, first_expiry timestamptz, breakers int, is_frozen boolean, dead int,
                   ready int, living int, jobs_about bigint, effects int, budgets int, persons int, lost int,
                   lacking text, is_unsafe boolean)
    LANGUAGE sql STABLE AS $$
SELECT clock.now, waiting.count, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0)
              AND cortex.breaker_state(b.state, b.open_until) = 'OPEN' AND b.name <> 'effects:all' LIMIT counted) open)::int,
       EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED'),
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d WHERE d.state IN ('OPEN', 'ESCALATED') LIMIT counted) dead)::int,
       pods.ready, pods.living,
       (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'cortex.job'::regclass),
       (SELECT count(*) FROM (SELECT FROM cortex.effect e WHERE e.status = 'UNKNOWN' LIMIT counted) unknown)::int,
       (SELECT count(*) FROM (
            (SELECT FROM cortex.job j
             WHERE j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
               AND j.waiting_on LIKE 'budget:%' LIMIT counted)
            UNION ALL
            (SELECT FROM cortex.job j
             WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'quota:%' LIMIT counted)
            LIMIT counted) spent)::int,
       (SELECT count(*) FROM (
            SELECT FROM cortex.job j
            WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.waiting_on LIKE 'person:%' LIMIT counted) needed)::int,
       pods.lost, cortex.lacking_tool(), pods.is_unsafe
FROM (SELECT cortex.now() AS now) clock,
LATERAL (
    SELECT sum(found.count)::int AS count, min(found.first_expiry) AS first_expiry
    FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(a.expires_at) AS first_expiry FROM (
            SELECT p.expires_at FROM cortex.approval p
            WHERE p.status = 'PENDING' AND p.risk = level.risk AND p.expires_at > clock.now
            ORDER BY p.expires_at, p.id LIMIT counted) a) found) waiting,
LATERAL (
    SELECT count(*) FILTER (WHERE p.state = 'READY' AND p.heartbeat_at >= clock.now - interval '95 s' AND NOT p.is_lost
           )::int AS ready,
           count(*)::int AS living, count(*) FILTER (WHERE p.is_lost)::int AS lost,
           coalesce(bool_or(p.confinement = 'unsafe' AND NOT p.is_lost), false) AS is_unsafe
    FROM (SELECT o.state, o.heartbeat_at, o.confinement, o.id IN (SELECT cortex.lost_pods()) AS is_lost
          FROM cortex.pod o WHERE o.state IN ('READY', 'DRAINING') LIMIT counted) p) pods $$;
COMMENT ON FUNCTION cortex.head IS
    'What stands at the top of every screen, in one row; each count ends at the given one. effects: of unknown outcome; budgets: jobs that wait for a spent budget or quota; persons: jobs that somebody must let go on; lost: pods whose session ended; lacking: a tool that jobs wait for and no ready pod has; is_unsafe: a pod lets the programs of agents run free.';
REVOKE EXECUTE ON FUNCTION cortex.head(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_reader;
    END IF;
END $$;
