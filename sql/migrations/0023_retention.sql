-- Retention: for how long finished jobs and facts are kept, and the only way to delete them. Off until somebody sets it,
-- except for jobs of built-in schedules and records of pods: see forget_upkeep and forget_pods.
--
-- A lineage, the first job with those that continue it, is deleted as a whole: its jobs share effects and steps, and a
-- job that lost its effects could repeat them. Whatever names a job, by table:
--
--   cortex_worker.task               blocks: the job is not over
--   job_record.origin_id, lineage_id same lineage: each of its jobs must be over, and old enough for its state
--   job_history, job_attempt, timeout_event, job_step, job_file, job_published    deleted with the job
--   log_line.job_id                  deleted with the job, or sooner by age: see forget_lines
--   fact.job_id                      deleted with the job, unless facts have a period of their own
--   reservation.job_id               blocks: a model call is not booked yet
--   effect.job_id, lineage_id        PENDING or UNKNOWN blocks, as a person may have to resolve it; else deleted with it
--   approval.job_id, lineage_id      PENDING blocks, as does a link that still shows the outcome (a week); else deleted
--   approval_vote                    deleted with its approval
--   effect_vote                      deleted with its effect
--   dead_letter.job_id               unresolved blocks: a retry continues the job; else deleted with it
--   dead_letter.retried_as           same lineage
--   budget.subject (scope job)       blocks: the budget counts this lineage; a share of a child is deleted with it
--   budget.share_of                  not a reference: who gave it
--   budget_use.window_key            not a reference: a sum, which housekeeping deletes a week after the lineage ended
--   schedule_instant.job_id          blocks until the schedule has seen that the job ended; then only a trace of it
--   job_record.parent_id             blocks while a job of the parent's lineage is not over, or failed and may be retried
--   job_child.lineage_id             blocks while one of these children is there that is not detached; else deleted with it
--   job_child.job_id                 deleted with the child
--   child_cut.parent_id              blocks: its children are not over
--   watch.job_id                     blocks while somebody watches
--   idempotency_key.response         not a reference, and expired: the shortest period is a day, as a key lives
--   signal.lineage_id, taken_line    deleted with the lineage
--   callback.lineage_id              deleted with the lineage
--   job_wait, job_wake               job_wait ends with the wait; job_wake is handled within a second
--   tasks of bulk operations         name jobs by id, and report deleted ones as "not there"
--   outbox.payload                   not a reference: a message says all that its receiver needs

CREATE TABLE cortex.retention (
    is_set boolean PRIMARY KEY DEFAULT true CHECK (is_set),
    completed_s bigint CHECK (completed_s BETWEEN 86400 AND 3153600000),
    failed_s bigint CHECK (failed_s BETWEEN 86400 AND 3153600000),
    facts_s bigint CHECK (facts_s BETWEEN 86400 AND 3153600000),
    archive text CHECK (archive LIKE '/%' AND length(archive) <= 1000),
    changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL CHECK (length(reason) <= 500),
    seen_at timestamptz NOT NULL DEFAULT cortex.now(),
    held_until timestamptz,
    CONSTRAINT something_is_deleted CHECK (num_nonnulls(completed_s, failed_s, facts_s) > 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.retention IS 'For how long finished jobs and facts are kept: one row, or none while all are kept.';
COMMENT ON COLUMN cortex.retention.is_set IS 'Always true: there is at most one row.';
COMMENT ON COLUMN cortex.retention.completed_s IS 'Seconds to keep a job after it was completed; null: for ever.';
COMMENT ON COLUMN cortex.retention.failed_s IS 'Seconds to keep a failed or cancelled job after its end; null: for ever.';
COMMENT ON COLUMN cortex.retention.facts_s IS 'Seconds to keep facts; null: those of a job as long as the job, others for ever.';
COMMENT ON COLUMN cortex.retention.archive IS 'Folder in which a copy is written first; null: no copy.';
COMMENT ON COLUMN cortex.retention.changed_by IS 'Who set it.';
COMMENT ON COLUMN cortex.retention.changed_at IS 'When.';
COMMENT ON COLUMN cortex.retention.reason IS 'Why.';
COMMENT ON COLUMN cortex.retention.seen_at IS 'When the runner last looked, to the minute: shows that the clock was moved.';
COMMENT ON COLUMN cortex.retention.held_until IS
    'Nothing is deleted before this: the clock was moved, or nothing ran for days. Null: nothing is held.';

CREATE TABLE cortex.retention_place (
    kind text PRIMARY KEY CHECK (kind IN ('COMPLETED', 'FAILED', 'CANCELLED', 'FACTS')),
    created_at timestamptz,
    job_id uuid,
    fact_id bigint,
    is_at_end boolean NOT NULL,
    began_at timestamptz NOT NULL,
    CONSTRAINT place_of_a_job_or_a_fact CHECK ((created_at IS NULL) = (job_id IS NULL) AND num_nonnulls(job_id, fact_id) < 2)
) WITH (fillfactor = 50);
COMMENT ON TABLE cortex.retention_place IS
    'How far the runner has read, so that it does not read again what it has deleted, or what must stay.';
COMMENT ON COLUMN cortex.retention_place.kind IS 'The state of the jobs; or FACTS.';
COMMENT ON COLUMN cortex.retention_place.created_at IS 'When the last job that was read was submitted.';
COMMENT ON COLUMN cortex.retention_place.job_id IS 'That job; null: none yet.';
COMMENT ON COLUMN cortex.retention_place.fact_id IS 'The last fact that was read.';
COMMENT ON COLUMN cortex.retention_place.is_at_end IS 'Everything old enough was read: an hour after its begin, a new pass begins.';
COMMENT ON COLUMN cortex.retention_place.began_at IS 'When this pass began.';

GRANT SELECT ON cortex.retention TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE ON cortex.retention_place TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.retention, cortex.retention_place TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ the setting

CREATE FUNCTION cortex.set_retention(
    new_completed_s bigint, new_failed_s bigint, new_facts_s bigint, new_archive text, caller jsonb, why text
) RETURNS jsonb
    -- With the owner's rights: the role of pods cannot change the setting, only people can.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    before jsonb;
    after jsonb;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    PERFORM FROM cortex.runner_turn t WHERE t.name = 'retention.set' FOR NO KEY UPDATE;
    SELECT jsonb_build_object('completed_s', r.completed_s, 'failed_s', r.failed_s, 'facts_s', r.facts_s,
                              'archive', r.archive) INTO before
    FROM cortex.retention r;
    DELETE FROM cortex.retention;
    DELETE FROM cortex.retention_place;
    IF num_nonnulls(new_completed_s, new_failed_s, new_facts_s) > 0 THEN
        INSERT INTO cortex.retention (completed_s, failed_s, facts_s, archive, changed_by, reason)
        VALUES (new_completed_s, new_failed_s, new_facts_s, new_archive, who.name, why);
        after := jsonb_build_object('completed_s', new_completed_s, 'failed_s', new_failed_s, 'facts_s', new_facts_s,
                                    'archive', new_archive);
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', CASE WHEN after IS NULL THEN 'retention_unset' ELSE 'retention_set' END, 'retention',
            jsonb_build_object('by', who.name, 'reason', why, 'before', before, 'after', after));
    RETURN before;
END $$;
COMMENT ON FUNCTION cortex.set_retention IS
    'Sets the retention, or unsets it when all periods are null; records who and why. Returns the setting before; null: '
    'there was none. Needs the role operator: see person_of_all.';

CREATE FUNCTION cortex.retention_turn() RETURNS TABLE (is_mine boolean, held_s float8, archive text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    setting cortex.retention;
    is_moved boolean;
BEGIN
    IF NOT cortex.take_turn('retention') THEN
        RETURN QUERY SELECT false, NULL::float8, NULL;
        RETURN;
    END IF;
    SELECT * INTO setting FROM cortex.retention r;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- From a clock that went forward by mistake nothing tells the time that really passed: an hour for a person to mend
    -- it. Two days, so that a `cortex tick` once a day is no such gap.
    is_moved := moment > setting.seen_at + interval '2 days' OR moment < setting.seen_at - interval '5 minutes';
    IF is_moved THEN
        setting.held_until := moment + interval '1 hour';
    END IF;
    IF is_moved OR moment >= setting.seen_at + interval '1 minute' THEN
        UPDATE cortex.retention r SET seen_at = moment, held_until = setting.held_until;
    END IF;
    RETURN QUERY SELECT true, greatest(0, extract(epoch FROM setting.held_until - moment))::float8, setting.archive;
END $$;
COMMENT ON FUNCTION cortex.retention_turn IS
    'Takes the turn of deleting to the end of the transaction. No row: nothing is ever deleted. is_mine false: another '
    'process has the turn. held_s: how long nothing is deleted, since the clock was moved; null or 0: not at all.';

CREATE FUNCTION cortex.retention_limit(of_kind text) RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT cortex.now() - interval '1 second' * CASE of_kind
           WHEN 'COMPLETED' THEN r.completed_s WHEN 'FAILED' THEN r.failed_s WHEN 'CANCELLED' THEN r.failed_s
           WHEN 'FACTS' THEN r.facts_s END
FROM cortex.retention r WHERE coalesce(r.held_until <= cortex.now(), true) $$;
COMMENT ON FUNCTION cortex.retention_limit IS
    'What ended before this instant may be deleted: jobs by their state, or FACTS. Null: nothing may.';

-- ------------------------------------------------------------------ jobs

CREATE FUNCTION cortex.may_need_children(of_parent uuid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (
    SELECT FROM (SELECT coalesce(p.lineage_id, p.id) AS id FROM cortex.job_record p WHERE p.id = of_parent) line
    CROSS JOIN LATERAL (
        SELECT j.id, j.finished_at FROM cortex.job_record j WHERE j.id = line.id
        UNION ALL
        SELECT j.id, j.finished_at FROM cortex.job_record j WHERE j.lineage_id = line.id) q
    WHERE q.finished_at IS NULL OR EXISTS (
        SELECT FROM cortex.dead_letter d WHERE d.job_id = q.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))) $$;
COMMENT ON FUNCTION cortex.may_need_children IS
    'Whether a job of the lineage of this one is not over, or failed and may be retried: then it may read how its children '
    'ended.';

CREATE FUNCTION cortex.retired(roots uuid[]) RETURNS SETOF uuid
    -- By index for each job, whatever the planner knew about the tables when it made the plan. With the owner's rights:
    -- pods do not read digests of links.
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    done CONSTANT timestamptz := cortex.retention_limit('COMPLETED');
    failed CONSTANT timestamptz := cortex.retention_limit('FAILED');
BEGIN
    RETURN QUERY
    SELECT r.id FROM unnest(roots) AS w(id) JOIN cortex.job_record r ON r.id = w.id AND r.lineage_id IS NULL
    WHERE NOT EXISTS (
        SELECT FROM (SELECT r.id, r.status, r.finished_at, r.parent_id
                     UNION ALL
                     SELECT h.id, h.status, h.finished_at, h.parent_id FROM cortex.job_record h WHERE h.lineage_id = r.id) j
        WHERE NOT coalesce(j.finished_at < CASE WHEN j.status = 'COMPLETED' THEN done ELSE failed END, false)
           OR EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id)
           OR EXISTS (SELECT FROM cortex.reservation c WHERE c.job_id = j.id)
           OR EXISTS (SELECT FROM cortex.dead_letter d
                      WHERE d.job_id = j.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))
           OR EXISTS (SELECT FROM cortex.effect e WHERE e.job_id = j.id AND e.status IN ('PENDING', 'UNKNOWN'))
           OR EXISTS (SELECT FROM cortex.approval a WHERE a.job_id = j.id AND (
                a.status = 'PENDING'
                OR a.spent_digest IS NOT NULL AND a.decided_at > cortex.now() - interval '7 days'))
           OR EXISTS (SELECT FROM cortex.schedule_instant i
                      WHERE i.job_id = j.id AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL)
           OR j.parent_id IS NOT NULL AND cortex.may_need_children(j.parent_id)
           OR EXISTS (SELECT FROM cortex.watch s WHERE s.job_id = j.id AND s.until > cortex.now()))
      AND NOT EXISTS (SELECT FROM cortex.job_child c JOIN cortex.job_record k ON k.id = c.job_id
                      WHERE c.lineage_id = r.id AND NOT c.is_detached)
      AND NOT EXISTS (SELECT FROM cortex.budget b WHERE b.scope = 'job' AND b.subject = r.id::text
                      AND b.share_of IS NULL);
END $$;
COMMENT ON FUNCTION cortex.retired IS
    'Those of these first jobs whose whole lineage may be deleted now: old enough, and nothing refers to it.';
REVOKE EXECUTE ON FUNCTION cortex.retired(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.retired(uuid[]) TO cortex_runtime;

CREATE FUNCTION cortex.delete_jobs(gone uuid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.job_history o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_attempt o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.timeout_event o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_step o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_file o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.job_published o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.log_line o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.signal o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.signal o USING unnest(gone) AS g(id) WHERE o.taken_line = g.id;
    DELETE FROM cortex.callback o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.effect_vote o USING unnest(gone) AS g(id), cortex.effect e
    WHERE e.job_id = g.id AND o.effect_id = e.id;
    DELETE FROM cortex.effect o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.approval_vote o USING unnest(gone) AS g(id), cortex.approval a
    WHERE a.job_id = g.id AND o.approval_id = a.id;
    DELETE FROM cortex.approval o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.dead_letter o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    DELETE FROM cortex.budget o USING unnest(gone) AS g(id)
    WHERE o.scope = 'job' AND o.subject = g.id::text AND o.share_of IS NOT NULL;
    DELETE FROM cortex.job_child o USING unnest(gone) AS g(id) WHERE o.lineage_id = g.id;
    DELETE FROM cortex.job_child o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    IF NOT EXISTS (SELECT FROM cortex.retention r WHERE r.facts_s IS NOT NULL) THEN
        DELETE FROM cortex.fact o USING unnest(gone) AS g(id) WHERE o.job_id = g.id;
    END IF;
    DELETE FROM cortex.job_record o USING unnest(gone) AS g(id) WHERE o.id = g.id;
    PERFORM set_config('cortex.retention', '', true);
END $$;
COMMENT ON FUNCTION cortex.delete_jobs IS
    'Deletes jobs with all that belongs to them, and their facts unless those have a period of their own. The caller has '
    'locked them and checked that nothing refers to them.';

CREATE FUNCTION cortex.delete_retired(roots uuid[], facts_through bigint) RETURNS TABLE (lineages int, jobs int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    held uuid[];
    letters uuid[];
    chosen uuid[];
    gone uuid[];
BEGIN
    held := ARRAY(
        SELECT j.id FROM cortex.job_record j
        WHERE j.id IN (SELECT r.id FROM unnest(roots) AS r(id)
                       UNION ALL
                       SELECT h.id FROM unnest(roots) AS r(id) JOIN cortex.job_record h ON h.lineage_id = r.id)
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    -- A retry holds the dead letter, not the job.
    letters := ARRAY(
        SELECT d.job_id FROM unnest(held) AS h(id) JOIN cortex.dead_letter d ON d.job_id = h.id
        ORDER BY d.job_id FOR UPDATE OF d SKIP LOCKED);
    -- A new statement sees what those wrote that held the rows before. Whatever could not be locked stays.
    chosen := ARRAY(
        SELECT r.id FROM cortex.retired(roots) AS r(id)
        WHERE NOT EXISTS (
            SELECT FROM (SELECT r.id UNION ALL SELECT h.id FROM cortex.job_record h WHERE h.lineage_id = r.id) j
            WHERE j.id <> ALL (held)
               OR EXISTS (SELECT FROM cortex.dead_letter d WHERE d.job_id = j.id AND d.job_id <> ALL (letters))
               -- Recorded after the copy was made.
               OR EXISTS (SELECT FROM cortex.fact f WHERE f.job_id = j.id AND f.id > facts_through)));
    gone := ARRAY(SELECT r.id FROM unnest(chosen) AS r(id)
                  UNION ALL
                  SELECT h.id FROM unnest(chosen) AS r(id) JOIN cortex.job_record h ON h.lineage_id = r.id);
    PERFORM cortex.delete_jobs(gone);
    RETURN QUERY SELECT cardinality(chosen), cardinality(gone);
END $$;
COMMENT ON FUNCTION cortex.delete_retired IS
    'Deletes the lineages of these first jobs that may be deleted, as far as nobody holds them and no fact is newer than '
    'the given one (null: any). Returns how many lineages and jobs.';

-- ------------------------------------------------------------------ without a setting: upkeep and pods

CREATE FUNCTION cortex.forget_upkeep(kept_s float8, most int) RETURNS int
    -- With the owner's rights, as delete_retired.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 86400) * interval '1 second';
    held uuid[];
BEGIN
    held := ARRAY(
        SELECT run.job_id FROM cortex.schedule s CROSS JOIN LATERAL (
            SELECT i.job_id FROM cortex.schedule_instant i JOIN cortex.job_record j ON j.id = i.job_id
            WHERE i.schedule = s.name AND i.ended_at < old AND (s.next_at IS NULL OR i.instant < s.next_at)
              -- A failed one stays with its dead letter, and one that continues it with the failed one.
              AND j.status IN ('COMPLETED', 'CANCELLED') AND j.lineage_id IS NULL
              AND NOT EXISTS (SELECT FROM cortex.job_record h WHERE h.lineage_id = j.id)
              AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id)
              AND NOT EXISTS (SELECT FROM cortex.watch w WHERE w.job_id = j.id AND w.until > cortex.now())
            ORDER BY i.instant LIMIT most FOR UPDATE OF i, j SKIP LOCKED) run
        WHERE s.origin = 'built_in');
    DELETE FROM cortex.schedule_instant i USING unnest(held) AS h(id) WHERE i.job_id = h.id;
    PERFORM cortex.delete_jobs(held);
    RETURN cardinality(held);
END $$;
COMMENT ON FUNCTION cortex.forget_upkeep IS
    'Deletes jobs of built-in schedules that ended well this long ago, at least a day, with their instants, whatever the '
    'retention: their record is kept small. Returns how many.';

CREATE FUNCTION cortex.forget_pods(kept_s float8, most int) RETURNS int
    -- With the owner's rights: the role of pods cannot delete pods otherwise. One that was marked dead may be asleep:
    -- when it wakes up, it registers again.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 86400) * interval '1 second';
    oldest timestamptz;
    named uuid[];
    gone uuid[];
    deleted int;
BEGIN
    gone := ARRAY(
        SELECT p.id FROM cortex.pod p WHERE NOT p.has_run AND p.state IN ('STOPPED', 'DEAD') AND p.ended_at < old
        ORDER BY p.ended_at LIMIT most FOR UPDATE SKIP LOCKED);
    named := ARRAY(
        SELECT p.id FROM cortex.pod p WHERE p.id = ANY (gone) AND EXISTS (
            SELECT FROM cortex.fact f WHERE f.type IN ('error', 'lifecycle') AND f.pod_id = p.id));
    UPDATE cortex.pod p SET has_run = true WHERE p.id = ANY (named);
    -- What ran jobs goes once retention has deleted all that is as old.
    SELECT min(m.at) INTO oldest FROM (
        SELECT (SELECT min(j.created_at) FROM cortex.job_record j WHERE j.status = w.status) AS at
        FROM unnest(enum_range(NULL::cortex.job_status)) AS w(status)
        UNION ALL
        SELECT (SELECT min(f.at) FROM cortex.fact f WHERE f.type = k.type)
        FROM unnest(ARRAY['error', 'cost', 'lifecycle']) AS k(type)) m;
    gone := gone || ARRAY(
        SELECT p.id FROM cortex.pod p WHERE p.state IN ('STOPPED', 'DEAD') AND p.ended_at < least(oldest, old)
        ORDER BY p.ended_at LIMIT most FOR UPDATE SKIP LOCKED);
    DELETE FROM cortex.pod p WHERE p.id = ANY (gone) AND p.id <> ALL (named);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    -- A pod that has just stored its code registers within the day that it is kept.
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.code c WHERE c.id IN (
        SELECT k.id FROM cortex.code k
        WHERE k.used_at < old AND NOT EXISTS (SELECT FROM cortex.pod p WHERE p.code_id = k.id)
        ORDER BY k.used_at LIMIT most FOR UPDATE SKIP LOCKED);
    PERFORM set_config('cortex.retention', '', true);
    RETURN deleted;
END $$;
COMMENT ON FUNCTION cortex.forget_pods IS
    'Deletes pods that ended this long ago, at least a day, and that no job and no fact names, then the codes that only '
    'they ran. Returns how many pods.';

REVOKE EXECUTE ON FUNCTION
    cortex.delete_jobs(uuid[]), cortex.forget_upkeep(float8, int), cortex.forget_pods(float8, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_upkeep(float8, int), cortex.forget_pods(float8, int) TO cortex_runtime;

-- ------------------------------------------------------------------ facts

CREATE FUNCTION cortex.retired_facts(facts bigint[]) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    old CONSTANT timestamptz := cortex.retention_limit('FACTS');
BEGIN
    RETURN QUERY
    SELECT f.id FROM unnest(facts) AS w(id) JOIN cortex.fact f ON f.id = w.id
    WHERE f.at < old
      AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = f.job_id AND j.finished_at IS NULL)
      -- Nor who is responsible for a job that continues this one.
      AND NOT (f.subtype IN ('dead_letter_retried', 'decision_retried', 'retried_now', 'schedule_triggered') AND EXISTS (
          SELECT FROM cortex.job_record j JOIN cortex.job_record h ON h.lineage_id = coalesce(j.lineage_id, j.id)
          WHERE j.id = f.job_id AND h.finished_at IS NULL))
      AND NOT EXISTS (SELECT FROM cortex.fact r WHERE r.resolves = f.id AND r.at >= old);
END $$;
COMMENT ON FUNCTION cortex.retired_facts IS
    'Those of these facts that may be deleted now: old enough, not of a job that is not over, not about who is responsible '
    'for one, not resolved by a younger one.';

CREATE FUNCTION cortex.delete_retired_facts(facts bigint[]) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    deleted int;
BEGIN
    PERFORM set_config('cortex.retention', 'deletes', true);
    DELETE FROM cortex.fact f USING cortex.retired_facts(facts) AS r(id) WHERE f.id = r.id;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('cortex.retention', '', true);
    RETURN deleted;
END $$;
COMMENT ON FUNCTION cortex.delete_retired_facts IS
    'Deletes those of these facts that may be deleted: the only way to delete a fact. Returns how many.';

REVOKE EXECUTE ON FUNCTION
    cortex.set_retention(bigint, bigint, bigint, text, jsonb, text), cortex.retention_turn(),
    cortex.delete_retired(uuid[], bigint), cortex.delete_retired_facts(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.set_retention(bigint, bigint, bigint, text, jsonb, text), cortex.retention_turn(),
    cortex.delete_retired(uuid[], bigint), cortex.delete_retired_facts(bigint[]) TO cortex_runtime;
