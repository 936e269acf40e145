-- 0013 job pages: lists of jobs are read in the order of their indexes, of however many were submitted at one instant.
--
-- Locks: ACCESS EXCLUSIVE on job while two of its indexes are built anew: about a second for a million jobs.
-- Old pods: may keep running.

DROP INDEX cortex.job_status;
CREATE INDEX job_status ON cortex.job (status, created_at DESC, id DESC);
DROP INDEX cortex.job_agent;
CREATE INDEX job_agent ON cortex.job (agent_id, created_at DESC, id DESC) WHERE agent_id IS NOT NULL;
