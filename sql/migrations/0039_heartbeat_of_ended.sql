-- 0039 heartbeat of ended jobs: a job that has ended has no heartbeat; jobs that ended before keep theirs.
--
-- Locks: none that anybody waits for.
-- Old pods: may keep running.

CREATE OR REPLACE FUNCTION cortex.job_before_update() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := cortex.now();
    IF NEW.status <> OLD.status THEN
        IF NOT cortex.is_legal_transition(OLD.status, NEW.status) THEN
            RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
        END IF;
        IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN
            NEW.finished_at := cortex.now();
            NEW.heartbeat_at := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;
