-- 0025 due jobs: the list of those in RETRY goes by when they are due, of however many that are due at one instant.
--
-- Locks: ACCESS EXCLUSIVE on job while one of its indexes is built anew: a second or two for a million jobs.
-- Old pods: may keep running.
--
-- Costs a claim and a commit nothing: it takes the place of another, and holds only what is in RETRY.

DROP INDEX cortex.job_retry;
CREATE INDEX job_retry ON cortex.job (next_retry_at, id) WHERE status = 'RETRY';
