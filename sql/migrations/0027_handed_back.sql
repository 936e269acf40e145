-- 0027 handed back: what a drained pod handed back is found by its pod, however many attempts others have ended since.
--
-- Locks: SHARE on job_attempt while its index is built, a second or two for a million rows, in which it is read and not
-- written. Who has many more builds the index before, by the same words with CONCURRENTLY: then nobody waits.
-- Old pods: may keep running.
--
-- Costs a claim and a commit nothing: it holds only attempts that were handed back.

CREATE INDEX IF NOT EXISTS job_attempt_handed_back ON cortex.job_attempt (pod_id, ended_at)
    WHERE outcome = 'handed_back';
