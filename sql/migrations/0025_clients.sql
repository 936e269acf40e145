-- Clients: programs that submit jobs and wait for them, without running a pod; and the role of those that may do nothing
-- else. All that this role can do are the functions granted here, which run with the owner's rights and check by the
-- login whose jobs they are. Roles, settings and a pooler in transaction mode do not change a session's login.

-- ------------------------------------------------------------------ who waits

-- Unlogged: clients renew their rows every few seconds, and after a crash there are no clients.
CREATE UNLOGGED TABLE cortex.waiting_client (
    job_id uuid NOT NULL,
    client uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (job_id, client)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000          -- short-lived rows: vacuum by count, not by share
);
COMMENT ON TABLE cortex.waiting_client IS
    'Which clients wait right now for the end of which jobs: these ends are notified. Transient, lost in a crash.';
COMMENT ON COLUMN cortex.waiting_client.job_id IS 'The job. No foreign key: a wait is short-lived.';
COMMENT ON COLUMN cortex.waiting_client.client IS
    'The client: random, new with each connection. Its channel has this name, which only the client knows.';
COMMENT ON COLUMN cortex.waiting_client.until IS 'When the row expires: its client renews it while it waits.';
CREATE INDEX waiting_client_until ON cortex.waiting_client (until);

GRANT SELECT ON cortex.waiting_client TO cortex_runtime;

CREATE FUNCTION cortex.notify_clients(jobs uuid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Only reads: a lock here would hold up the ends of jobs.
    PERFORM pg_notify('cortex_client_' || replace(w.client::text, '-', ''), string_agg(w.job_id::text, ','))
    FROM (
        SELECT c.client, c.job_id, row_number() OVER (PARTITION BY c.client) / 200 AS part
        FROM cortex.waiting_client c WHERE c.job_id = ANY (jobs) AND c.until > cortex.now()) w
    GROUP BY w.client, w.part;
END $$;
COMMENT ON FUNCTION cortex.notify_clients IS
    'Notifies the clients that wait for these jobs, which end in this transaction. Called by the history of jobs.';

CREATE FUNCTION cortex.wait_for_jobs(client uuid, jobs uuid[], lapse_s float8) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM cortex.waiting_client c USING (
        SELECT o.job_id, o.client FROM cortex.waiting_client o
        WHERE o.until < cortex.now() ORDER BY o.until LIMIT 1000 FOR UPDATE SKIP LOCKED) lapsed
    WHERE c.job_id = lapsed.job_id AND c.client = lapsed.client;
    INSERT INTO cortex.waiting_client AS c (job_id, client, until)
    SELECT j.id, wait_for_jobs.client, cortex.now() + least(lapse_s, 60) * interval '1 second'
    FROM (SELECT DISTINCT unnest(jobs) AS id) asked JOIN cortex.job_record j ON j.id = asked.id
    WHERE j.finished_at IS NULL AND (cortex.caller_is_runtime() OR cortex.caller_submitted(j.submitted_with))
      AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
    ORDER BY j.id
    ON CONFLICT ON CONSTRAINT waiting_client_pkey DO UPDATE SET until = excluded.until;
END $$;
COMMENT ON FUNCTION cortex.wait_for_jobs IS
    'Notifies a client of the ends of these jobs from now on, for at most 60 seconds: those that the caller may read. The '
    'channel is cortex_client_ and the hex digits of the client''s id. A job may have ended just before: look afterwards.';

-- ------------------------------------------------------------------ what clients read

CREATE FUNCTION cortex.job_results(jobs uuid[], bytes_max bigint) RETURNS TABLE (
    id uuid, status text, error_code text, error_class text, error_message text, cancelled_by text, cancel_reason text,
    finished_at timestamptz, misfit text, is_whole boolean, result text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
SELECT e.id, e.status, e.error_code, e.error_class, e.error_message, e.cancelled_by, e.cancel_reason, e.finished_at,
       e.misfit, e.before < $2 AS is_whole, CASE WHEN e.before < $2 THEN e.result::text END AS result
FROM (
    SELECT asked.id, j.status::text, j.error_code, j.error_class, j.error_message, j.cancelled_by, j.cancel_reason,
           j.finished_at, j.result, CASE WHEN j.finished_at IS NULL THEN (
               SELECT a.error FROM cortex.job_attempt a WHERE a.job_id = j.id AND a.outcome = 'misfit'
               ORDER BY a.attempt DESC LIMIT 1) END AS misfit,
           coalesce(sum(pg_column_size(j.result)) OVER (
               ORDER BY asked.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM unnest($1) WITH ORDINALITY AS asked(id, n)
    LEFT JOIN cortex.job j ON j.id = asked.id
        AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
        AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
    WHERE j.id IS NULL OR j.finished_at IS NOT NULL
       OR j.waiting_on = 'code'
) e;
END $$;
COMMENT ON FUNCTION cortex.job_results IS
    'Of the given jobs, those that have ended, those that wait for code, and those that do not exist for the caller '
    '(without a status). Beyond this size, as stored, further results are left out; the first is complete, whatever its size.';

CREATE FUNCTION cortex.job_events(
    jobs uuid[], history_ids bigint[], ended_attempts int[], seqs int[], claimed_attempts int[], rows_max int
) RETURNS TABLE (
    n int, status text, is_ended boolean, history jsonb, attempts jsonb, steps jsonb, claim jsonb, is_cut boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
SELECT asked.n::int AS n, j.status::text AS status, j.finished_at IS NOT NULL AS is_ended, h.rows AS history,
       e.rows AS attempts, s.rows AS steps, CASE WHEN t.locked_by IS NOT NULL THEN
           jsonb_build_object('attempt', j.attempt, 'at', t.locked_at, 'pod', p.name, 'code_version', c.version)
       END AS claim, coalesce(s.is_cut, false) AS is_cut
FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS asked(job_id, history_id, ended_attempt, seq, claimed_attempt, n)
LEFT JOIN cortex.job j ON j.id = asked.job_id
    AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
    AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant)
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.id) AS rows FROM (
        SELECT h.id, h.previous, h.new, h.attempt, h.at, h.metadata, hp.name AS pod, hc.version AS code_version
        FROM cortex.job_history h LEFT JOIN cortex.pod hp ON hp.id = h.pod_id
        LEFT JOIN cortex.code hc ON hc.id = hp.code_id
        WHERE h.job_id = j.id AND h.id > asked.history_id ORDER BY h.id LIMIT $6) r) h ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(r ORDER BY r.attempt) AS rows FROM (
        SELECT a.attempt, a.outcome, a.ended_at, a.due_at, a.error, a.error_class, a.error_code, a.error_source,
               a.retry_count, ap.name AS pod, ac.version AS code_version
        FROM cortex.job_attempt a LEFT JOIN cortex.pod ap ON ap.id = a.pod_id
        LEFT JOIN cortex.code ac ON ac.id = ap.code_id
        WHERE a.job_id = j.id AND a.attempt > asked.ended_attempt ORDER BY a.attempt LIMIT $6) r) e ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(to_jsonb(r) - 'bytes' - CASE WHEN r.kind = 'emit' THEN '' ELSE 'chunk' END ORDER BY r.seq)
               FILTER (WHERE r.bytes <= 1048576) AS rows,
           bool_or(r.bytes > 1048576) AS is_cut FROM (
        SELECT s.*, sum(coalesce(octet_length(s.chunk::text), 0)) OVER (ORDER BY s.seq) AS bytes FROM (
            SELECT s.seq, s.attempt, s.kind, s.key, s.started_at, s.finished_at, s.cost_usd, s.usage,
                   CASE WHEN s.kind = 'emit' THEN s.output END AS chunk
            FROM cortex.job_step s
            WHERE s.job_id = j.id AND s.seq > asked.seq ORDER BY s.seq LIMIT $6) s) r) s ON true
LEFT JOIN cortex_worker.task t ON t.job_id = j.id AND j.attempt > asked.claimed_attempt
LEFT JOIN cortex.pod p ON p.id = t.locked_by
LEFT JOIN cortex.code c ON c.id = p.code_id
WHERE j.id IS NULL OR j.finished_at IS NOT NULL OR h.rows IS NOT NULL OR e.rows IS NOT NULL OR s.rows IS NOT NULL
   OR t.locked_by IS NOT NULL
ORDER BY asked.n;
END $$;
COMMENT ON FUNCTION cortex.job_events IS
    'What happened to each of several jobs after a position, in one snapshot: transitions, ended attempts, committed steps, '
    'and the claim of a new attempt. Returns the positions, from 1, of those to which something happened, of those that '
    'have ended, and of those that do not exist for the caller (without a status). is_cut: there are more steps, whose chunks '
    'would make it too large.';

CREATE FUNCTION cortex.job_shows(job uuid) RETURNS TABLE (
    state jsonb, done float8, total float8, unit text, at timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT coalesce(p.state, '{}'), p.done, p.total, p.unit, p.at
    FROM cortex.job_record j LEFT JOIN cortex.job_published p ON p.job_id = j.id
    WHERE j.id = job AND ((SELECT cortex.caller_is_runtime()) OR cortex.caller_submitted(j.submitted_with))
      AND j.tenant = coalesce((SELECT cortex.caller_tenant()), j.tenant);
END $$;
COMMENT ON FUNCTION cortex.job_shows IS
    'What a job has published: its state, and how far it has come. No row: it does not exist for the caller.';
CREATE FUNCTION cortex.served_type(type text, is_exact boolean) RETURNS TABLE (
    is_served boolean, timeout_s int, others text[], codes json)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
WITH living AS MATERIALIZED (
    SELECT p.code_id FROM cortex.pod p
    WHERE p.state = 'READY' AND $1 = ANY (p.job_types) AND p.drain_requested_at IS NULL
      AND p.heartbeat_at >= cortex.now() - p.silent_after_s * interval '1 second'
      AND (NOT $2 OR p.liveness = 'heartbeat' OR p.id IN (SELECT cortex.connected_pods()))
)
SELECT EXISTS (SELECT FROM living) AS is_served, t.timeout_s,
       CASE WHEN t.name IS NULL THEN ARRAY(SELECT o.name FROM cortex.job_type o ORDER BY o.name) ELSE '{}' END AS others,
       (SELECT coalesce(json_agg(json_build_object('version', c.version, 'schema', a.schema) ORDER BY c.id DESC), '[]')
        FROM cortex.code_arguments a JOIN cortex.code c ON c.id = a.code_id
        WHERE a.type = $1 AND a.code_id IN (SELECT code_id FROM living)) AS codes
FROM (VALUES ($1)) AS asked(name) LEFT JOIN cortex.job_type t ON t.name = asked.name;
END $$;
COMMENT ON FUNCTION cortex.served_type IS
    'A job type, and the arguments that the codes of the pods take that serve it. is_exact leaves out pods whose session has '
    'ended, which others have not marked dead yet. Ready pods that a person drains, or that are silent, do not serve it.';

REVOKE EXECUTE ON FUNCTION
    cortex.wait_for_jobs, cortex.job_results, cortex.job_events, cortex.job_shows, cortex.served_type FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.wait_for_jobs, cortex.job_results, cortex.job_events, cortex.job_shows, cortex.served_type TO cortex_runtime;

-- ------------------------------------------------------------------ the role of clients

-- Without this role, clients need cortex_runtime.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_submitter') THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA cortex TO cortex_submitter;
    GRANT SELECT ON cortex.migration TO cortex_submitter;
    GRANT EXECUTE ON FUNCTION
        cortex.caller_tenant, cortex.submit_jobs, cortex.first_submit, cortex.wait_for_jobs, cortex.job_results, cortex.job_events,
        cortex.job_shows, cortex.served_type TO cortex_submitter;
END $$;
