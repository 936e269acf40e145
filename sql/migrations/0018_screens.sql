-- What screens and commands query across subjects: why a job waits, and the head of every
-- screen.

CREATE FUNCTION cortex.waits_for(waiting_on text) RETURNS jsonb
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF waiting_on = 'effects:all' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'freeze', 'by', b.forced_by, 'reason', b.forced_reason,
                                      'frozen_at', b.forced_at)
            FROM cortex.breaker b WHERE b.name = waiting_on AND b.state <> 'CLOSED');
    ELSIF waiting_on LIKE 'quota:%' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'quota', 'tool', q.tool, 'argument', q.argument, 'unit', q.unit,
                                      'period', q.period, 'limit', q.limit_amount::text,
                                      'used', coalesce(u.used, 0)::text, 'resets_at', w.resets_at)
            FROM cortex.quota q
            CROSS JOIN LATERAL (
                SELECT b.began_at, b.began_at + ('1 ' || q.period)::interval AS resets_at
                FROM (SELECT cortex.quota_began(q.period, cortex.now()) AS began_at) b) w
            LEFT JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = w.began_at
            WHERE q.name = substr(waiting_on, length('quota:') + 1));
    ELSIF waiting_on ~ '^approval:[0-9a-f-]{36}$' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'approval', 'id', a.id, 'what', coalesce(a.tool, a.key), 'risk', a.risk,
                                      'people', a.people, 'agreed', cortex.agreed(a.id, a.digest),
                                      'status', a.status, 'requested_by', a.requested_by, 'expires_at', a.expires_at)
            FROM cortex.approval a WHERE a.id = substr(waiting_on, length('approval:') + 1)::uuid);
    ELSIF waiting_on ~ '^effect:[0-9a-f-]{36}$' THEN
        RETURN (
            SELECT jsonb_build_object('kind', 'effect', 'id', e.id, 'tool', e.tool, 'status', e.status, 'why', e.why)
            FROM cortex.effect e WHERE e.id = substr(waiting_on, length('effect:') + 1)::uuid);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION cortex.waits_for IS
    'What blocks a job: an approval, an unknown effect, a quota or the freeze; null for anything else.';

-- Only breakers that admit no call are counted.
CREATE FUNCTION cortex.head(counted int)
    RETURNS TABLE (now timestamptz, approvals int, first_expiry timestamptz, breakers int, is_frozen boolean, dead int,
                   ready int, living int, jobs_about bigint, effects int, budgets int, persons int, lost int,
                   stranded int, is_unsafe boolean, pauses int, is_paused boolean)
    LANGUAGE sql STABLE AS $$
SELECT clock.now, waiting.count, waiting.first_expiry,
       (SELECT count(*) FROM (
            SELECT FROM cortex.breaker b WHERE (b.state <> 'CLOSED' OR b.failures > 0)
              AND cortex.breaker_state(b.state, b.open_until) = 'OPEN' AND b.name <> 'effects:all' LIMIT counted) open)::int,
       EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED'),
       (SELECT count(*) FROM (
            SELECT FROM cortex.dead_letter d
            WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED') LIMIT counted) dead)::int,
       pods.ready, pods.living,
       (SELECT greatest(c.reltuples, 0)::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'cortex.job_record'::regclass),
       (SELECT count(*) FROM (SELECT FROM cortex.effect e WHERE e.status = 'UNKNOWN' LIMIT counted) unknown)::int,
       (SELECT count(*) FROM (
            (SELECT FROM cortex.job_record j
             WHERE j.status IN ('WAITING_FOR_APPROVAL', 'RETRY') AND j.worker_job_id IS NULL
               AND j.waiting_on LIKE 'budget:%' LIMIT counted)
            UNION ALL
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'quota:%' LIMIT counted)
            LIMIT counted) spent)::int,
       (SELECT count(*) FROM (
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'person:%'
             LIMIT counted)
            UNION ALL
            (SELECT FROM cortex.job_record j
             WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'trust:%' LIMIT counted)
            LIMIT counted) needed)::int,
       pods.lost, (SELECT least(coalesce(sum(s.jobs), 0), counted)::int FROM cortex_worker.stranded s), pods.is_unsafe,
       (SELECT count(*) FROM (SELECT FROM cortex_worker.pause LIMIT counted) p)::int,
       EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind = 'all')
FROM (SELECT cortex.now() AS now) clock,
LATERAL (
    SELECT sum(found.count)::int AS count, min(found.first_expiry) AS first_expiry
    FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(a.expires_at) AS first_expiry FROM (
            SELECT p.expires_at FROM cortex.approval p
            WHERE p.status = 'PENDING' AND p.risk = level.risk AND p.expires_at > clock.now
            ORDER BY p.expires_at, p.id LIMIT counted) a) found) waiting,
LATERAL (
    SELECT count(DISTINCT p.shown_id) FILTER (
               WHERE p.state = 'READY' AND NOT p.is_silent AND NOT p.is_lost)::int AS ready,
           count(DISTINCT p.shown_id)::int AS living,
           count(DISTINCT p.shown_id) FILTER (WHERE p.is_lost)::int AS lost,
           coalesce(bool_or(p.confinement = 'unsafe' AND NOT p.is_lost), false) AS is_unsafe
    FROM (SELECT o.shown_id, o.state, o.confinement, o.id IN (SELECT cortex.lost_pods()) AS is_lost,
                 o.heartbeat_at < clock.now - o.silent_after_s * interval '1 second' AS is_silent
          FROM cortex.pod o WHERE o.state IN ('READY', 'DRAINING') LIMIT counted) p) pods $$;
COMMENT ON FUNCTION cortex.head IS
    'The head of every screen, in one row; each count ends at the given limit. effects: of unknown outcome; budgets: '
    'jobs that wait for a spent budget or quota; persons: jobs that a person must resume; lost: pods whose session '
    'ended; stranded: jobs that wait for code that no living pod has; is_unsafe: a pod lets the programs of agents run '
    'unconfined; pauses: how many there are; is_paused: everything is.';

REVOKE EXECUTE ON FUNCTION cortex.head(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.head(int) TO cortex_runtime;
