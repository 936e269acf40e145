-- 0030 step inputs: what a step was asked with, for people, and in what trouble of its handler.
--
-- Locks: ACCESS EXCLUSIVE on job_step for two columns without a rewrite.
-- Old pods: may keep running; the steps that they commit have neither.

ALTER TABLE cortex.job_step
    ADD COLUMN input text,
    ADD COLUMN amid text CHECK (amid IN ('error', 'failure'));
COMMENT ON COLUMN cortex.job_step.input IS
    'What it was asked with, as JSON: secrets redacted, at most 4 KiB of it. Shows what changed when a replay diverges.';
COMMENT ON COLUMN cortex.job_step.amid IS
    'error: asked for while an exception was being handled · failure: after a step of its attempt had failed. A replay need not come by it.';
