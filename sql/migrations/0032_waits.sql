-- Waking jobs that wait for something outside: a signal, their children, a decision beside other things.
--
-- A job that waits and what makes its wait true are two transactions that may not see each other. So each of them
-- writes a row here: whoever handles the later one of the two sees both. Nobody locks anything of a job for that: a
-- signal may be sent in a transaction that stays open for long.

CREATE TABLE cortex.job_wake (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid,
    tenant text,
    name text,
    key text,
    wave smallint NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT wake_of_a_job_or_a_key CHECK (num_nulls(job_id, key) = 1 AND num_nulls(tenant, name, key) IN (0, 3))
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,         -- short-lived rows: vacuum by count, not by share
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE cortex.job_wake IS
    'Jobs that may have what they wait for. Handled by any pod at once, and deleted: see cortex.wake_waiting.';
COMMENT ON COLUMN cortex.job_wake.id IS 'Order of arrival.';
COMMENT ON COLUMN cortex.job_wake.job_id IS 'The job; null: those that wait for a key.';
COMMENT ON COLUMN cortex.job_wake.tenant IS 'Of the jobs that wait for the key.';
COMMENT ON COLUMN cortex.job_wake.name IS 'Of the signal to the key.';
COMMENT ON COLUMN cortex.job_wake.key IS 'The key to which a signal was sent.';
COMMENT ON COLUMN cortex.job_wake.wave IS 'How often jobs that wait for the key have been woken for signals that none has taken yet.';
COMMENT ON COLUMN cortex.job_wake.due_at IS 'Not before: those that were woken have a moment to take them.';

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.job_wake TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.job_wake TO cortex_reader;
    END IF;
END $$;

CREATE FUNCTION cortex.is_wait_met(wait cortex.job_wait) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE wait.kind
        WHEN 'signal' THEN cortex.has_signal(wait.job_id, wait.name, nullif(wait.key, ''))
        WHEN 'child' THEN cortex.have_children_ended(wait.job_id, wait.name, wait.upto)
        WHEN 'approval' THEN EXISTS (
            SELECT FROM cortex.approval a WHERE a.id = wait.name::uuid AND a.status <> 'PENDING')
        ELSE false
    END;
END $$;
COMMENT ON FUNCTION cortex.is_wait_met IS 'Whether what a suspended job waits for is there.';

CREATE FUNCTION cortex.wake_waiting(most int) RETURNS TABLE (handled int, woken int, postponed int)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    between_waves CONSTANT interval := interval '0.5 seconds';
    jobs uuid[];
    keys jsonb;
    met uuid[];
    held uuid[];
BEGIN
    WITH old AS MATERIALIZED (
        SELECT w.id FROM cortex.job_wake w
        -- One that is due later than any is written was written before the clock was set back.
        WHERE w.due_at <= cortex.now() OR w.due_at > cortex.now() + 10 * between_waves
        ORDER BY w.id LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM cortex.job_wake w USING old WHERE w.id = old.id RETURNING w.job_id, w.tenant, w.name, w.key, w.wave
    ), sent AS (
        SELECT g.tenant, g.name, g.key, max(g.wave) AS wave, min(g.wave) = 0 AS is_new FROM gone g WHERE g.key IS NOT NULL
        GROUP BY g.tenant, g.name, g.key
    )
    SELECT count(*), coalesce(array_agg(DISTINCT g.job_id) FILTER (WHERE g.job_id IS NOT NULL), '{}'),
           coalesce((SELECT jsonb_agg(jsonb_build_array(s.tenant, s.name, s.key, s.wave, s.is_new)) FROM sent s), '[]')
    INTO handled, jobs, keys FROM gone g;
    woken := 0;
    postponed := (SELECT count(*) FROM (SELECT FROM cortex.job_wake w WHERE w.due_at > cortex.now() LIMIT 1) w);
    IF handled = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- Each statement from here on sees all that was committed with these rows.
    IF keys <> '[]' THEN
        -- As many jobs of a key as it has signals. A job that was woken may die, end, be paused or wait for code before it
        -- takes one: so each half second in which a signal is left and jobs wait, twice as many more are woken. Younger
        -- signals, for which jobs were woken just now, do not count: else a stream of signals would wake all jobs.
        WITH sent AS MATERIALIZED (
            SELECT k.value->>0 AS tenant, k.value->>1 AS name, k.value->>2 AS key, (k.value->>3)::int AS wave, n.left_count,
                   least(most, n.left_count * (1 << (k.value->>3)::int)
                               + CASE WHEN (k.value->>4)::boolean THEN n.count - n.left_count ELSE 0 END)::int AS number
            FROM jsonb_array_elements(keys) AS k CROSS JOIN LATERAL (
                SELECT count(*) AS count, count(*) FILTER (
                    WHERE s.sent_at <= cortex.now() - between_waves OR s.sent_at > cortex.now() + 10 * between_waves)
                    AS left_count
                FROM (
                    SELECT s.sent_at FROM cortex.signal s WHERE s.key = k.value->>2 AND s.tenant = k.value->>0
                        AND s.name = k.value->>1 AND s.taken_at IS NULL LIMIT most) s) n
            WHERE n.count > 0
        ), asked AS MATERIALIZED (
            SELECT k.*, f.ids FROM sent k CROSS JOIN LATERAL (
                SELECT ARRAY(
                    SELECT w.job_id FROM cortex.job_wait w JOIN cortex.job_record j ON j.id = w.job_id
                    WHERE w.key = k.key AND w.name = k.name AND w.key <> '' AND j.tenant = k.tenant
                      -- The same jobs would be found for ever, and none after them, if they could not take it.
                      AND EXISTS (SELECT FROM cortex.signal s WHERE s.key = k.key AND s.tenant = k.tenant
                                  AND s.name = k.name AND s.taken_at IS NULL
                                  AND (s.only_for IS NULL OR s.only_for = j.submitted_with))
                    ORDER BY w.job_id LIMIT k.number) AS ids) f
        ), more AS (
            -- Those that get a task now are not found again.
            INSERT INTO cortex.job_wake (tenant, name, key, wave, due_at)
            SELECT a.tenant, a.name, a.key, CASE WHEN a.left_count > 0 THEN least(a.wave + 1, 15) ELSE 1 END,
                   cortex.now() + between_waves
            FROM asked a WHERE cardinality(a.ids) = a.number RETURNING id
        )
        SELECT jobs || coalesce(array_agg(w.id), '{}'), postponed + (SELECT count(*) FROM more) INTO jobs, postponed
        FROM asked a CROSS JOIN LATERAL unnest(a.ids) AS w(id);
    END IF;
    -- What a job that has ended left open, the one that continues it waits for: children that are being cancelled.
    WITH RECURSIVE line AS (
        SELECT w.id FROM unnest(jobs) AS w(id)
        UNION
        SELECT c.id FROM line l JOIN cortex.job_record j ON j.id = l.id JOIN cortex.job_record c ON c.origin_id = j.id
        WHERE j.finished_at IS NOT NULL
    )
    SELECT array_agg(l.id) INTO jobs FROM line l;
    met := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id = ANY (jobs) AND j.worker_job_id IS NULL AND j.status::text IN ('RETRY', 'WAITING_FOR_APPROVAL')
          AND EXISTS (SELECT FROM cortex.job_wait w WHERE w.job_id = j.id AND cortex.is_wait_met(w)));
    IF met = '{}' THEN
        RETURN NEXT;
        RETURN;
    END IF;
    held := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id = ANY (met) AND j.worker_job_id IS NULL AND j.status::text IN ('RETRY', 'WAITING_FOR_APPROVAL')
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    woken := (SELECT count(*) FROM cortex.give_tasks(held));
    IF cardinality(held) < cardinality(met) THEN
        INSERT INTO cortex.job_wake (job_id) SELECT m.id FROM unnest(met) AS m(id) WHERE m.id <> ALL (held);
        postponed := postponed + cardinality(met) - cardinality(held);
    END IF;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION cortex.wake_waiting IS
    'Gives tasks to jobs that have what they wait for, for up to so many rows of cortex.job_wake. Returns how many rows were '
    'handled, how many jobs got a task, and how much is to be looked at again: jobs that others hold, keys for which more '
    'jobs wait.';

-- ------------------------------------------------------------------ the first of several waits

CREATE FUNCTION cortex.first_withdraws() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    line uuid;
BEGIN
    -- Its pod holds the task: nobody decides a request of the job, and no other attempt takes a signal, meanwhile.
    IF NEW.output->'approvals' IS NOT NULL THEN
        UPDATE cortex.approval a
        SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL, reason = 'its job goes on without it'
        WHERE a.job_id = NEW.job_id AND a.status = 'PENDING'
          AND a.key IN (SELECT json_array_elements_text(NEW.output->'approvals'));
    END IF;
    IF NEW.output->'signals' IS NOT NULL THEN
        line := (SELECT coalesce(j.lineage_id, j.id) FROM cortex.job_record j WHERE j.id = NEW.job_id);
        WITH back AS (
            UPDATE cortex.signal s SET taken_by = NULL, taken_line = NULL, taken_step = NULL, taken_at = NULL
            FROM json_array_elements_text(NEW.output->'signals') AS loser(step)
            WHERE s.taken_line = line AND s.taken_step = loser.step AND s.taken_at IS NOT NULL
            RETURNING s.tenant, s.name, s.key
        )
        -- Another job may wait for one of a key; this one runs.
        INSERT INTO cortex.job_wake (tenant, name, key)
        SELECT DISTINCT b.tenant, b.name, b.key FROM back b WHERE b.key IS NOT NULL;
        IF FOUND THEN
            PERFORM pg_notify('cortex_wake', '');
        END IF;
    END IF;
    IF NEW.output->'children' IS NOT NULL THEN
        INSERT INTO cortex.child_cut (parent_id, step)
        SELECT DISTINCT NEW.job_id, loser.step FROM json_array_elements_text(NEW.output->'children') AS loser(step)
        WHERE loser.step <> ''
        ON CONFLICT DO NOTHING;
        PERFORM pg_notify('cortex_wake', '');
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION cortex.first_withdraws IS
    'Withdraws what has lost against the first of several waits: requests to people are cancelled, signals are the first of '
    'their queues again, children that are not detached are to be cancelled.';
CREATE TRIGGER first_withdraws AFTER INSERT ON cortex.job_step
    FOR EACH ROW WHEN (NEW.kind = 'first' AND NEW.attempt > 0) EXECUTE FUNCTION cortex.first_withdraws();
REVOKE EXECUTE ON FUNCTION cortex.first_withdraws() FROM PUBLIC;
