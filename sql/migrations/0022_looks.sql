-- 0022 looks: what several statements of those who watch have in common, in one place; and the newest effects of a job
-- by index, however many it has.
--
-- Locks: ACCESS EXCLUSIVE on effect while one of its indexes is built anew: about a second for a million effects.
-- Old pods: may keep running.

CREATE FUNCTION cortex.head(counted int)
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
    SELECT count(*) FILTER (WHERE p.state = 'READY')::int AS ready, count(*)::int AS living
    FROM (SELECT state FROM cortex.pod WHERE state IN ('READY', 'DRAINING') LIMIT counted) p) pods $$;
COMMENT ON FUNCTION cortex.head IS
    'What stands at the top of every screen, in one row; each count ends at the given one.';
REVOKE EXECUTE ON FUNCTION cortex.head(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_runtime;

CREATE VIEW cortex_worker.ready_head WITH (security_invoker = true) AS
-- Walks them by index, one probe each: as many rows are read as are asked for.
WITH RECURSIVE head AS (
    (SELECT task, priority FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect
     ORDER BY task, priority, run_at, id LIMIT 1)
    UNION ALL
    SELECT next.* FROM head h CROSS JOIN LATERAL (
        SELECT t.task, t.priority FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND (t.task, t.priority) > (h.task, h.priority)
        ORDER BY t.task, t.priority, t.run_at, t.id LIMIT 1) next
)
SELECT task, priority FROM head;
COMMENT ON VIEW cortex_worker.ready_head IS
    'The job types and priorities of ready tasks: of each, the first one that a claim looks at is its oldest.';
COMMENT ON COLUMN cortex_worker.ready_head.task IS 'Type of the jobs.';
COMMENT ON COLUMN cortex_worker.ready_head.priority IS 'Their priority: the smaller, the sooner.';
GRANT SELECT ON cortex_worker.ready_head TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_reader;
        GRANT SELECT ON cortex_worker.ready_head TO cortex_reader;
    END IF;
END $$;

DROP INDEX cortex.effect_job;
CREATE INDEX effect_job ON cortex.effect (job_id, created_at DESC, id DESC);
