-- 0040 parent steps: inside which step another one was asked for.
--
-- Locks: ACCESS EXCLUSIVE on job_step for a column without a rewrite.
-- Old pods: may keep running; the steps that they commit have none.

ALTER TABLE cortex.job_step ADD COLUMN parent_key text;
COMMENT ON COLUMN cortex.job_step.parent_key IS
    'Key of the step whose function asked for it; null: the handler did. A replay that finds the parent on record does not come by it.';
