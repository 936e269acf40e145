-- 0035 waits: at the top of every screen stands all that waits for a person, and a pod whose session ended is not ready.
--
-- Locks: SHARE on cortex.job while an index is built, which blocks writes: less than a second for a million jobs.
-- Old pods: may keep running.

CREATE INDEX job_waits_for_person ON cortex.job (suspended_at)
    WHERE status = 'WAITING_FOR_APPROVAL' AND waiting_on LIKE 'person:%';

CREATE FUNCTION cortex.lost_pods() RETURNS SETOF uuid
    LANGUAGE sql STABLE AS $$
WITH held AS MATERIALIZED (
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
)
SELECT p.id FROM cortex.pod p
WHERE p.state IN ('READY', 'DRAINING') AND p.liveness = 'lock' AND p.lock_key NOT IN (SELECT key FROM held)
  -- Who has just registered takes its lock next; after a start of the server all of them take theirs anew.
  AND p.started_at < cortex.now() - interval '2 s'
  AND cortex.serving_since() < cortex.now() - interval '5 s' $$;
COMMENT ON FUNCTION cortex.lost_pods IS
    'Pods said to be alive whose session ended: nobody holds their lock. Behind a pooler there is none; only silence tells.';
REVOKE EXECUTE ON FUNCTION cortex.lost_pods() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.lost_pods() TO cortex_runtime;

DROP FUNCTION cortex.head(int);
CREATE FUNCTION cortex.head(counted int)
    RETURNS TABLE (now timestamptz, approvals int, first_expiry timestamptz, breakers int, is_frozen boolean, dead int,
                   ready int, living int, jobs_about bigint, effects int, budgets int, persons int, lost int)
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
       pods.lost
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
           count(*)::int AS living, count(*) FILTER (WHERE p.is_lost)::int AS lost
    FROM (SELECT o.state, o.heartbeat_at, o.id IN (SELECT cortex.lost_pods()) AS is_lost
          FROM cortex.pod o WHERE o.state IN ('READY', 'DRAINING') LIMIT counted) p) pods $$;
COMMENT ON FUNCTION cortex.head IS
    'What stands at the top of every screen, in one row; each count ends at the given one. effects: of unknown outcome; budgets: jobs that wait for a spent budget or quota; persons: jobs that somebody must let go on; lost: pods whose session ended.';
REVOKE EXECUTE ON FUNCTION cortex.head(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT EXECUTE ON FUNCTION cortex.lost_pods(), cortex.head(int) TO cortex_reader;
    END IF;
END $$;
