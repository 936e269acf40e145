-- 0025 due jobs: the list of those in RETRY goes by when they are due, of however many that are due at one instant.
--
-- Locks: SHARE on job while its new index is built, a second or two for a million jobs, in which they are read and not
-- written; then ACCESS EXCLUSIVE for an instant. Who has many more builds the index before, by the same words with
-- CONCURRENTLY: then nobody waits.
-- Old pods: may keep running.
--
-- Costs a claim and a commit nothing: it takes the place of another, and holds only what is in RETRY.

CREATE INDEX IF NOT EXISTS job_retry_due ON cortex.job (next_retry_at, id) WHERE status = 'RETRY';
DROP INDEX cortex.job_retry;
