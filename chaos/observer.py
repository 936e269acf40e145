"""Records, inside the run's database, what Cortex's own record does not keep.

The record shows how attempts end, not when they began, and only the last heartbeat of each pod.
Triggers note these as they are committed, so that what a statement did can be compared with what it
reported. They work with any runtime, including deliberately broken ones.
"""

import asyncpg

INSTALLED_WITHIN_S = 20.0
CLOSED_WITHIN_S = 5.0

SQL = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.claim (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    statement xid8 NOT NULL, job_id uuid NOT NULL, previous int NOT NULL, attempt int NOT NULL,
    pod_id uuid, run_at timestamptz, spent int, began timestamptz NOT NULL);
COMMENT ON TABLE chaos.claim IS
    'Each time a job got an owner; run_at is that of its task, spent as which try of that, began '
    'when the statement came.';
CREATE TABLE chaos.move (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    job_id uuid NOT NULL, previous text, new text NOT NULL, attempt int NOT NULL);
COMMENT ON TABLE chaos.move IS 'Each change of a job''s state.';
CREATE TABLE chaos.beat (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    statement xid8 NOT NULL, pod_id uuid NOT NULL, state text NOT NULL, lag_s float8 NOT NULL);
COMMENT ON TABLE chaos.beat IS
    'Each heartbeat of a pod, and each change of its state; lag_s: how late its loop was before.';
CREATE TABLE chaos.kept (
    at timestamptz NOT NULL, statement xid8 NOT NULL, job_id uuid NOT NULL, attempt int NOT NULL,
    pod_id uuid);
COMMENT ON TABLE chaos.kept IS 'Jobs whose heartbeat was renewed, with the pod that ran them.';
CREATE INDEX kept_statement ON chaos.kept (statement);

CREATE TABLE chaos.setback (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    job_id uuid NOT NULL, attempt int NOT NULL, previous int NOT NULL, seq int NOT NULL);
COMMENT ON TABLE chaos.setback IS 'Each time a job''s head was set to no more steps than it had.';

CREATE TABLE chaos.wrong_death (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    job_id uuid NOT NULL, attempt int NOT NULL, pod_id uuid NOT NULL);
COMMENT ON TABLE chaos.wrong_death IS
    'Each attempt that was taken from a pod as dead while a session held that pod''s lock.';

CREATE TABLE chaos.reopened (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    seq bigint NOT NULL, message uuid NOT NULL, subscription text, previous text NOT NULL,
    new text NOT NULL);
COMMENT ON TABLE chaos.reopened IS 'Each time a message was written to after its end.';

CREATE TABLE chaos.pause (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    kind text NOT NULL, name text NOT NULL, is_over boolean NOT NULL);
COMMENT ON TABLE chaos.pause IS
    'Each pause, as its transaction commits, and each end of one, before its transaction commits.';

CREATE TABLE chaos.birth (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    job_id uuid NOT NULL);
COMMENT ON TABLE chaos.birth IS
    'When the submit of each job whose type has a rule committed: until then it waits for others.';

CREATE FUNCTION chaos.note_head(of_job uuid, of_attempt int, before jsonb, after jsonb) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog AS $$
INSERT INTO chaos.setback (at, job_id, attempt, previous, seq)
SELECT clock_timestamp(), of_job, of_attempt, (before->>'seq')::int,
       coalesce((after->>'seq')::int, 0)
WHERE after <> before AND before ? 'seq'
  AND coalesce((after->>'seq')::int, 0) <= (before->>'seq')::int $$;
CREATE FUNCTION chaos.job_was_written() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    before cortex.job_status;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO chaos.move (at, job_id, new, attempt)
        VALUES (clock_timestamp(), NEW.id, NEW.status, NEW.attempt);
        RETURN NULL;
    END IF;
    PERFORM chaos.note_head(NEW.id, NEW.attempt, OLD.checkpoint, NEW.checkpoint);
    before := cortex.state_before(OLD.status, OLD.attempt, NEW.attempt);
    IF NEW.status <> before THEN
        INSERT INTO chaos.move (at, job_id, previous, new, attempt)
        VALUES (clock_timestamp(), NEW.id, before, NEW.status, NEW.attempt);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.task_was_written() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    job cortex.job_record;
BEGIN
    SELECT * INTO job FROM cortex.job_record WHERE id = NEW.job_id;
    IF NEW.attempt <> OLD.attempt OR NEW.locked_by <> OLD.locked_by
       OR OLD.locked_by IS NULL AND NEW.locked_by IS NOT NULL THEN
        INSERT INTO chaos.claim (
            at, statement, job_id, previous, attempt, pod_id, run_at, spent, began)
        VALUES (clock_timestamp(), pg_current_xact_id(), NEW.job_id, job.attempt, NEW.attempt,
                NEW.locked_by, NEW.run_at, NEW.attempts_spent, cortex.now());
        IF job.status <> 'RUNNING' THEN
            INSERT INTO chaos.move (at, job_id, previous, new, attempt)
            VALUES (clock_timestamp(), NEW.job_id, job.status, 'RUNNING', NEW.attempt);
        END IF;
    ELSIF NEW.heartbeat_at <> OLD.heartbeat_at AND NEW.state = 'LOCKED' THEN
        INSERT INTO chaos.kept (at, statement, job_id, attempt, pod_id)
        VALUES (clock_timestamp(), pg_current_xact_id(), NEW.job_id, NEW.attempt, NEW.locked_by);
    END IF;
    IF NEW.checkpoint IS NOT NULL THEN
        PERFORM chaos.note_head(
            NEW.job_id, NEW.attempt, coalesce(OLD.checkpoint, job.checkpoint), NEW.checkpoint);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.pod_was_written() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO chaos.beat (at, statement, pod_id, state, lag_s)
    VALUES (clock_timestamp(), pg_current_xact_id(), NEW.id, NEW.state,
            coalesce(NEW.loop_lag_ms, 0) / 1000);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.pod_counts_as_dead() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    -- The session that takes the attempt may hold the lock itself.
    INSERT INTO chaos.wrong_death (at, job_id, attempt, pod_id)
    SELECT clock_timestamp(), NEW.job_id, NEW.attempt, NEW.pod_id
    FROM cortex.pod p WHERE p.id = NEW.pod_id AND EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.pid <> pg_backend_pid()
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid::bigint = (p.lock_key >> 32) & 4294967295
          AND l.objid::bigint = p.lock_key & 4294967295);
    RETURN NULL;
END $$;

CREATE FUNCTION chaos.message_was_reopened() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO chaos.reopened (at, seq, message, subscription, previous, new)
    VALUES (clock_timestamp(), OLD.seq, OLD.id, OLD.subscription, OLD.status, NEW.status);
    RETURN NULL;
END $$;

CREATE FUNCTION chaos.pause_was_written() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    pause cortex_worker.pause := coalesce(NEW, OLD);
BEGIN
    INSERT INTO chaos.pause (at, kind, name, is_over)
    VALUES (clock_timestamp(), pause.kind, pause.name, TG_OP = 'DELETE');
    RETURN NULL;
END $$;

CREATE FUNCTION chaos.job_was_born() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO chaos.birth (at, job_id) VALUES (clock_timestamp(), NEW.id);
    RETURN NULL;
END $$;

-- Deferred: at commit, when no lock of another transaction is waited for any more.
CREATE CONSTRAINT TRIGGER chaos_pause_begins AFTER INSERT ON cortex_worker.pause
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION chaos.pause_was_written();
CREATE TRIGGER chaos_pause_ends AFTER DELETE ON cortex_worker.pause
    FOR EACH ROW EXECUTE FUNCTION chaos.pause_was_written();
CREATE CONSTRAINT TRIGGER chaos_job_is_born AFTER INSERT ON cortex.job_record
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (starts_with(NEW.type, 'ruled_'))
    EXECUTE FUNCTION chaos.job_was_born();
CREATE TRIGGER chaos_message_is_reopened AFTER UPDATE ON cortex.outbox FOR EACH ROW
    WHEN (OLD.status IN ('SENT', 'FAILED'))
    EXECUTE FUNCTION chaos.message_was_reopened();
CREATE TRIGGER chaos_attempt_is_taken AFTER INSERT ON cortex.job_attempt FOR EACH ROW
    WHEN (NEW.outcome = 'pod_died') EXECUTE FUNCTION chaos.pod_counts_as_dead();
CREATE TRIGGER chaos_job_begins AFTER INSERT ON cortex.job_record
    FOR EACH ROW EXECUTE FUNCTION chaos.job_was_written();
CREATE TRIGGER chaos_job_changes AFTER UPDATE ON cortex.job_record FOR EACH ROW
    WHEN (NEW.status <> OLD.status OR NEW.attempt <> OLD.attempt
          OR NEW.checkpoint <> OLD.checkpoint)
    EXECUTE FUNCTION chaos.job_was_written();
CREATE TRIGGER chaos_task_changes AFTER UPDATE ON cortex_worker.task FOR EACH ROW
    WHEN (NEW.attempt <> OLD.attempt OR NEW.locked_by IS NOT NULL)
    EXECUTE FUNCTION chaos.task_was_written();
CREATE TRIGGER chaos_pod_begins AFTER INSERT ON cortex.pod
    FOR EACH ROW EXECUTE FUNCTION chaos.pod_was_written();
CREATE TRIGGER chaos_pod_beats AFTER UPDATE ON cortex.pod FOR EACH ROW
    WHEN (NEW.heartbeat_at <> OLD.heartbeat_at OR NEW.state <> OLD.state)
    EXECUTE FUNCTION chaos.pod_was_written();
"""


async def install(dsn: str) -> None:
    """Install the triggers in a database that has the current schema; as superuser, once."""
    connection = await asyncpg.connect(dsn, timeout=INSTALLED_WITHIN_S)
    try:
        async with connection.transaction():
            await connection.execute(SQL, timeout=INSTALLED_WITHIN_S)
    finally:
        await connection.close(timeout=CLOSED_WITHIN_S)  # noqa: ASYNC102 -- bounded
