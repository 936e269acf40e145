-- 0029 silent pods: at the top of every screen a pod that has been silent for three heartbeats is not ready.
--
-- Locks: none that anybody waits for.
-- Old pods: may keep running.

CREATE OR REPLACE FUNCTION cortex.head(counted int)
    RETURNS TABLE (now timestamptz, approvals int, first_expiry timestamptz, breakers int, is_frozen boolean, dead int,
                   ready int, living int, jobs_about bigint)
    LANGUAGE sql STABLE AS $$
SELECT clock.now, waiting.count, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0) AND b.state <> 'CLOSED'
              AND b.name <> 'effects:all' LIMIT counted) open)::int,
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
