-- Schedules: jobs that are submitted by the clock, and the fence that makes it one job per due instant.

CREATE TABLE cortex.schedule (
    name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    cron text NOT NULL CHECK (length(cron) BETWEEN 9 AND 200),
    zone text NOT NULL CHECK (length(zone) BETWEEN 1 AND 100),
    type text NOT NULL CHECK (type ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    arguments jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(arguments) = 'object'),
    agent text,
    tenant text NOT NULL DEFAULT 'default' CHECK (length(tenant) BETWEEN 1 AND 100),
    backfill_s int NOT NULL DEFAULT 0 CHECK (backfill_s BETWEEN 0 AND 31622400),
    overlap text NOT NULL DEFAULT 'skip' CHECK (overlap IN ('skip', 'queue', 'cancel_previous')),
    jitter_s int NOT NULL DEFAULT 0 CHECK (jitter_s BETWEEN 0 AND 3600),
    instant_as text CHECK (length(instant_as) BETWEEN 1 AND 100),
    origin text NOT NULL CHECK (origin IN ('built_in', 'code', 'file')),
    next_at timestamptz,
    due_at timestamptz,
    problem text CHECK (length(problem) <= 500),
    missed_count bigint NOT NULL DEFAULT 0,
    missed_at timestamptz,
    missed_seen_at timestamptz,
    made_up_until timestamptz,
    skip_from timestamptz,
    skip_until timestamptz,
    paused_at timestamptz,
    paused_by text CHECK (length(paused_by) BETWEEN 1 AND 200),
    pause_reason text CHECK (length(pause_reason) <= 500),
    changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
    changed_with text,
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL DEFAULT '' CHECK (length(reason) <= 500),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT next_is_whole CHECK ((next_at IS NULL) = (due_at IS NULL)),
    CONSTRAINT skip_is_whole CHECK ((skip_from IS NULL) = (skip_until IS NULL)),
    CONSTRAINT pause_is_whole CHECK (
        (paused_by IS NULL) = (paused_at IS NULL) AND (pause_reason IS NULL) = (paused_at IS NULL))
);
COMMENT ON TABLE cortex.schedule IS 'Jobs that are submitted by the clock.';
COMMENT ON COLUMN cortex.schedule.name IS 'Its name.';
COMMENT ON COLUMN cortex.schedule.cron IS 'Five fields, by the rules of Debian''s cron; pods evaluate it.';
COMMENT ON COLUMN cortex.schedule.zone IS 'The time zone of the expression.';
COMMENT ON COLUMN cortex.schedule.type IS 'Type of the jobs.';
COMMENT ON COLUMN cortex.schedule.arguments IS 'Their payload.';
COMMENT ON COLUMN cortex.schedule.agent IS 'The name of their agent, of which they get the newest version; or null.';
COMMENT ON COLUMN cortex.schedule.tenant IS 'Their tenant.';
COMMENT ON COLUMN cortex.schedule.backfill_s IS
    'How late an instant may be and still fire, after an outage; 0: a minute of grace, which applies to all.';
COMMENT ON COLUMN cortex.schedule.overlap IS
    'When an instant comes before an earlier job has ended: skip it, queue it, or cancel the earlier job.';
COMMENT ON COLUMN cortex.schedule.jitter_s IS
    'The longest delay after an instant; the delay follows from the name and the instant.';
COMMENT ON COLUMN cortex.schedule.instant_as IS 'The argument that gets the instant; or null.';
COMMENT ON COLUMN cortex.schedule.origin IS 'Declared by the migrations, by code of a pod, or by a file.';
COMMENT ON COLUMN cortex.schedule.next_at IS
    'The first instant that nothing was done about. It only moves forward, whatever the clock does. Null: none is left.';
COMMENT ON COLUMN cortex.schedule.due_at IS
    'When to look at that instant: with its jitter, or later after a problem.';
COMMENT ON COLUMN cortex.schedule.problem IS 'Why the last try to fire it failed; or null.';
COMMENT ON COLUMN cortex.schedule.missed_count IS 'How many instants were missed: older than the backfill period.';
COMMENT ON COLUMN cortex.schedule.missed_at IS 'The last missed instant.';
COMMENT ON COLUMN cortex.schedule.missed_seen_at IS 'When that was noticed.';
COMMENT ON COLUMN cortex.schedule.made_up_until IS
    'What was due up to here belongs to the last outage, and is made up for whatever the overlap says.';
COMMENT ON COLUMN cortex.schedule.skip_from IS
    'Instants due after this and up to the next column fell into a pause, and earlier ones are still to be dealt with.';
COMMENT ON COLUMN cortex.schedule.skip_until IS 'When that pause ended.';
COMMENT ON COLUMN cortex.schedule.paused_at IS 'When it was paused; or null. What falls into a pause never fires, and queued instants wait for its end.';
COMMENT ON COLUMN cortex.schedule.paused_by IS 'Who paused it.';
COMMENT ON COLUMN cortex.schedule.pause_reason IS 'Why.';
COMMENT ON COLUMN cortex.schedule.changed_by IS 'Who declared it last, or the name of a pod.';
COMMENT ON COLUMN cortex.schedule.changed_with IS
    'The credential of whoever applied it last, which its jobs are submitted with; null: declared by code, or built in.';
COMMENT ON COLUMN cortex.schedule.changed_at IS 'When.';
COMMENT ON COLUMN cortex.schedule.reason IS 'Why; may be empty.';
COMMENT ON COLUMN cortex.schedule.created_at IS 'When it was first declared.';
CREATE INDEX schedule_due ON cortex.schedule (due_at) WHERE paused_at IS NULL;

CREATE TABLE cortex.schedule_instant (
    schedule text NOT NULL REFERENCES cortex.schedule (name) ON DELETE CASCADE,
    instant timestamptz NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('SUBMITTED', 'QUEUED', 'SKIPPED', 'MISSED', 'FAILED')),
    job_id uuid,
    is_manual boolean NOT NULL DEFAULT false,
    is_made_up boolean NOT NULL DEFAULT false,
    behind_count int,
    error text CHECK (length(error) <= 500),
    reason text CHECK (length(reason) <= 1000),
    at timestamptz NOT NULL DEFAULT cortex.now(),
    ended_at timestamptz,
    PRIMARY KEY (schedule, instant),
    CONSTRAINT job_when_submitted CHECK ((job_id IS NOT NULL) = (outcome = 'SUBMITTED')),
    CONSTRAINT error_when_failed CHECK ((error IS NOT NULL) = (outcome = 'FAILED')),
    CONSTRAINT never_left_out_silently CHECK (reason IS NOT NULL OR outcome NOT IN ('SKIPPED', 'MISSED')),
    CONSTRAINT behind_when_made_up CHECK (behind_count IS NULL OR is_made_up),
    CONSTRAINT ended_when_submitted CHECK (ended_at IS NULL OR outcome = 'SUBMITTED')
);
COMMENT ON TABLE cortex.schedule_instant IS
    'What became of each instant of a schedule. The key is the fence: an instant is dealt with once, by whichever pod.';
COMMENT ON COLUMN cortex.schedule_instant.schedule IS 'The schedule.';
COMMENT ON COLUMN cortex.schedule_instant.instant IS 'When it should fire, without jitter.';
COMMENT ON COLUMN cortex.schedule_instant.outcome IS
    'SUBMITTED; QUEUED: waits for an earlier job; SKIPPED: an earlier job had not ended; MISSED: with those after it, '
    'too late or in a pause; FAILED: could not be submitted.';
COMMENT ON COLUMN cortex.schedule_instant.job_id IS
    'Its job, inserted in the same transaction. No foreign key: retention may delete the job.';
COMMENT ON COLUMN cortex.schedule_instant.is_manual IS 'A person triggered it; it is no instant of the expression.';
COMMENT ON COLUMN cortex.schedule_instant.is_made_up IS
    'It was due in an outage, or came while such instants were made up for: it runs after the one before, whatever the '
    'overlap says.';
COMMENT ON COLUMN cortex.schedule_instant.behind_count IS
    'Of one that came meanwhile: how many earlier ones were open then. The next one follows only if there are fewer.';
COMMENT ON COLUMN cortex.schedule_instant.error IS 'Why it could not be submitted.';
COMMENT ON COLUMN cortex.schedule_instant.reason IS 'Why it was skipped, missed or made up for; null: it came on time.';
COMMENT ON COLUMN cortex.schedule_instant.at IS 'When this was decided.';
COMMENT ON COLUMN cortex.schedule_instant.ended_at IS
    'When its job ended, as the schedules'' runner saw it; null: it has not, or nobody looked yet.';
CREATE INDEX schedule_instant_job ON cortex.schedule_instant (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX schedule_instant_open ON cortex.schedule_instant (schedule)
    WHERE outcome = 'SUBMITTED' AND ended_at IS NULL;
CREATE INDEX schedule_instant_queued ON cortex.schedule_instant (schedule, instant) WHERE outcome = 'QUEUED';
CREATE INDEX schedule_instant_at ON cortex.schedule_instant (at);

CREATE TABLE cortex.schedule_pod (
    schedule text NOT NULL REFERENCES cortex.schedule (name) ON DELETE CASCADE,
    pod_id uuid NOT NULL REFERENCES cortex.pod (id) ON DELETE CASCADE,
    PRIMARY KEY (schedule, pod_id)
);
COMMENT ON TABLE cortex.schedule_pod IS 'Which pods run code that declares a schedule.';
COMMENT ON COLUMN cortex.schedule_pod.schedule IS 'The schedule.';
COMMENT ON COLUMN cortex.schedule_pod.pod_id IS 'The pod, living or ended.';
CREATE INDEX schedule_pod_pod ON cortex.schedule_pod (pod_id);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.schedule TO cortex_runtime;
GRANT SELECT, INSERT, UPDATE ON cortex.schedule_instant TO cortex_runtime;
GRANT SELECT, INSERT, DELETE ON cortex.schedule_pod TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.schedule, cortex.schedule_instant, cortex.schedule_pod TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ firing

CREATE FUNCTION cortex.utc_text(at timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
SELECT to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') $$;
COMMENT ON FUNCTION cortex.utc_text IS 'An instant for sentences that programs may read.';

CREATE FUNCTION cortex.submit_instant(held cortex.schedule, of_instant timestamptz, OUT job_id uuid, OUT error text)
    -- The caller holds the schedule's row. A job that cannot be submitted must not stop the instants after it.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('cortex.actor', 'schedule:' || held.name, true);
    -- Who applied the schedule is responsible for its jobs: the same person cannot agree to their critical calls.
    PERFORM set_config('cortex.credential', coalesce(held.changed_with, ''), true);
    job_id := cortex.submit_job(
        type => held.type, agent => held.agent, tenant => held.tenant,
        payload => held.arguments || CASE WHEN held.instant_as IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(
            held.instant_as, to_char(of_instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')) END);
EXCEPTION
    WHEN no_data_found OR check_violation THEN
        job_id := NULL;
        error := left(SQLERRM, 500);
END $$;
COMMENT ON FUNCTION cortex.submit_instant IS 'Submits the job of one instant, in the caller''s transaction; or says why not.';

CREATE FUNCTION cortex.open_instants(of_schedule text, is_made_up boolean) RETURNS SETOF cortex.schedule_instant
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM cortex.schedule_instant i
WHERE i.schedule = of_schedule AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL AND (NOT $2 OR i.is_made_up)
UNION ALL
(SELECT * FROM cortex.schedule_instant i
 WHERE i.schedule = of_schedule AND i.outcome = 'QUEUED' AND (NOT $2 OR i.is_made_up)
 ORDER BY i.instant DESC LIMIT 1) $$;
COMMENT ON FUNCTION cortex.open_instants IS
    'The instants of a schedule whose jobs are open, and the last queued one; of those made up for alone, or of all.';

CREATE FUNCTION cortex.fire_instant(held cortex.schedule, of_instant timestamptz, was_due_in_outage boolean) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_job uuid;
    problem text;
    why text := CASE WHEN was_due_in_outage THEN 'made up for: no pod ran when it was due' END;
    is_made_up boolean := was_due_in_outage;
    behind int;
    earlier cortex.schedule_instant;
    made_up cortex.schedule_instant;
    outcome text := 'SUBMITTED';
BEGIN
    IF EXISTS (SELECT FROM cortex.schedule_instant i WHERE i.schedule = held.name AND i.instant = of_instant) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO earlier FROM cortex.open_instants(held.name, false) ORDER BY instant DESC LIMIT 1;
    IF earlier.instant IS NOT NULL AND held.overlap = 'queue' THEN
        outcome := 'QUEUED';
    ELSIF earlier.instant IS NOT NULL THEN
        SELECT * INTO made_up FROM cortex.open_instants(held.name, true) ORDER BY instant DESC LIMIT 1;
        IF NOT is_made_up AND made_up.instant IS NOT NULL THEN
            -- It runs after those, so nothing that an outage delays is lost; but only while they become fewer: jobs
            -- that last longer than their interval would pile up for ever.
            behind := (SELECT count(*) FROM cortex.schedule_instant i
                       WHERE i.schedule = held.name AND i.outcome = 'QUEUED')
                    + (SELECT count(*) FROM cortex.schedule_instant i
                       WHERE i.schedule = held.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL);
            is_made_up := made_up.behind_count IS NULL OR behind < made_up.behind_count;
            behind := CASE WHEN is_made_up THEN behind END;
            why := CASE WHEN is_made_up THEN 'made up for: it came while earlier instants were' END;
        END IF;
        outcome := CASE
            -- What is made up for runs one after another. The first one finds a job from before the outage.
            WHEN is_made_up AND (held.overlap = 'skip' OR made_up.instant IS NOT NULL) THEN 'QUEUED'
            WHEN held.overlap = 'skip' THEN 'SKIPPED'
            ELSE 'SUBMITTED' END;
    END IF;
    IF outcome = 'SKIPPED' THEN
        why := 'the job of the instant ' || cortex.utc_text(earlier.instant) || ' had not ended';
    ELSIF outcome = 'SUBMITTED' THEN
        UPDATE cortex.schedule_instant i
        SET outcome = 'SKIPPED', at = cortex.now(),
            reason = 'the instant ' || cortex.utc_text(of_instant) || ' came before this one could run'
        WHERE i.schedule = held.name AND i.outcome = 'QUEUED' AND i.instant < of_instant;
        SELECT s.job_id, s.error INTO new_job, problem FROM cortex.submit_instant(held, of_instant) s;
        outcome := CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END;
    END IF;
    -- No ON CONFLICT: of two that fire the same instant at once, the second fails, and its job with it.
    INSERT INTO cortex.schedule_instant (schedule, instant, outcome, job_id, error, is_made_up, behind_count, reason)
    VALUES (held.name, of_instant, outcome, new_job, problem, is_made_up, behind, why);
    RETURN outcome;
END $$;
COMMENT ON FUNCTION cortex.fire_instant IS
    'Decides what becomes of one instant, and submits its job, in the caller''s transaction. Null: it was dealt with '
    'before.';

CREATE FUNCTION cortex.release_queued(held cortex.schedule) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    oldest timestamptz;
    new_job uuid;
    problem text;
BEGIN
    SELECT i.instant INTO oldest FROM cortex.schedule_instant i
    WHERE i.schedule = held.name AND i.outcome = 'QUEUED' ORDER BY i.instant LIMIT 1;
    IF NOT FOUND OR held.paused_at IS NOT NULL OR EXISTS (
        SELECT FROM cortex.schedule_instant i
        WHERE i.schedule = held.name AND i.outcome = 'SUBMITTED' AND i.ended_at IS NULL) THEN
        RETURN NULL;
    END IF;
    SELECT s.job_id, s.error INTO new_job, problem FROM cortex.submit_instant(held, oldest) s;
    UPDATE cortex.schedule_instant i
    SET outcome = CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END, job_id = new_job, error = problem
    WHERE i.schedule = held.name AND i.instant = oldest;
    RETURN CASE WHEN problem IS NULL THEN 'SUBMITTED' ELSE 'FAILED' END;
END $$;
COMMENT ON FUNCTION cortex.release_queued IS
    'Submits the oldest queued instant of a schedule once no earlier job is open. Null: nothing to do.';

CREATE FUNCTION cortex.trigger_schedule(held cortex.schedule, OUT job_id uuid, OUT error text, OUT instant timestamptz)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Never at a whole second, as the instants of an expression are.
    instant := cortex.now() + CASE WHEN extract(microseconds FROM cortex.now())::bigint % 1000000 = 0
                                   THEN interval '1 microsecond' ELSE interval '0' END;
    SELECT s.job_id, s.error INTO job_id, error FROM cortex.submit_instant(held, instant) s;
    IF error IS NULL THEN
        INSERT INTO cortex.schedule_instant (schedule, instant, outcome, job_id, is_manual)
        VALUES (held.name, instant, 'SUBMITTED', job_id, true);
    END IF;
END $$;
COMMENT ON FUNCTION cortex.trigger_schedule IS 'Submits a job of a schedule now, whatever its overlap says; or says why not.';

CREATE FUNCTION cortex.forget_instants(kept_s float8, most int) RETURNS int
    -- With the owner's rights: pods may not delete from the fence otherwise.
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH old AS MATERIALIZED (
    SELECT i.schedule, i.instant FROM cortex.schedule_instant i JOIN cortex.schedule s ON s.name = i.schedule
    WHERE i.at < cortex.now() - greatest(kept_s, 86400) * interval '1 second' AND i.outcome <> 'QUEUED'
      AND (i.ended_at IS NOT NULL OR i.outcome <> 'SUBMITTED')
      -- No tick can come to it again: the schedule has gone past it.
      AND (s.next_at IS NULL OR i.instant < s.next_at)
    ORDER BY i.at LIMIT most FOR UPDATE OF i SKIP LOCKED
), gone AS (
    DELETE FROM cortex.schedule_instant i USING old WHERE i.schedule = old.schedule AND i.instant = old.instant
    RETURNING i.instant
)
SELECT count(*)::int FROM gone $$;
COMMENT ON FUNCTION cortex.forget_instants IS
    'Deletes instants that were dealt with this long ago, at least a day; returns how many.';
REVOKE EXECUTE ON FUNCTION cortex.forget_instants(float8, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_instants(float8, int) TO cortex_runtime;

-- ------------------------------------------------------------------ who serves it

CREATE FUNCTION cortex.is_at_work(p cortex.pod) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN p.state IN ('READY', 'DRAINING') THEN
        p.heartbeat_at > cortex.now() - p.silent_after_s * interval '1 second'
        -- The last pod of a cluster has nobody who marks it dead: its session says so at once.
        AND (p.liveness <> 'lock' OR p.id IN (SELECT cortex.connected_pods()))
    -- The pod of a tick, which the next tick follows.
    ELSE p.state = 'STOPPED' AND p.name LIKE 'tick %' AND p.ended_at > cortex.now() - interval '5 minutes' END $$;
COMMENT ON FUNCTION cortex.is_at_work IS
    'Whether a pod lives, or was that of a `cortex tick` a few minutes ago: a cluster may do without other pods.';

CREATE FUNCTION cortex.is_served(of_type text, of_agent text) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (
    SELECT FROM cortex.pod p
    WHERE (p.state = 'READY' AND p.drain_requested_at IS NULL OR p.ended_at > cortex.now() - interval '5 minutes')
      AND of_type = ANY (p.job_types)
      AND (of_agent IS NULL OR p.tools @> ARRAY(
          SELECT jsonb_array_elements_text(v.spec->'tools') FROM cortex.agent a
          JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version WHERE a.name = of_agent))
      AND cortex.is_at_work(p)) $$;
COMMENT ON FUNCTION cortex.is_served IS
    'Whether a pod that is at work takes jobs of this type with the tools of this agent; one that drains takes none.';

CREATE FUNCTION cortex.is_declared(of_schedule text) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (
    SELECT FROM cortex.schedule_pod d JOIN cortex.pod p ON p.id = d.pod_id
    WHERE d.schedule = of_schedule AND cortex.is_at_work(p)) $$;
COMMENT ON FUNCTION cortex.is_declared IS 'Whether the code of a pod that is at work declares a schedule.';

CREATE FUNCTION cortex.has_missed(s cortex.schedule) RETURNS boolean
    -- Without a setting of its own it is inlined: each scrape asks for all schedules.
    LANGUAGE sql STABLE AS $$
SELECT s.origin <> 'built_in' AND s.paused_at IS NULL
   AND coalesce(s.missed_seen_at > cortex.now() - interval '1 hour', false) $$;
COMMENT ON FUNCTION cortex.has_missed IS
    'Whether a schedule missed an instant, as was noticed within the last hour. Not of built-in ones, '
    'whose work the loops of pods do, too.';

-- ------------------------------------------------------------------ built-in schedules

INSERT INTO cortex.schedule (name, cron, zone, type, origin, next_at, due_at, changed_by)
SELECT n.name, '* * * * *', 'UTC', n.name, 'built_in', m.next_at, m.next_at, 'migration'
FROM unnest(ARRAY['sweep_zombies', 'expire_approvals']) AS n(name)
CROSS JOIN (SELECT date_trunc('minute', cortex.now()) + interval '1 minute' AS next_at) m;
