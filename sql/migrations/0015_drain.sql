-- 0015 drain: a pod that leaves tells in which phase it is, and by when that and all of it must be over.
--
-- Locks: ACCESS EXCLUSIVE on pod, for an instant.
-- Old pods: may keep running; they tell no phase.

ALTER TABLE cortex.pod
    ADD COLUMN phase text CHECK (phase IN ('intake', 'jobs', 'hand_back', 'flush', 'sign_off')),
    ADD COLUMN phase_at timestamptz,
    ADD COLUMN abort_at timestamptz,
    ADD COLUMN closed_at timestamptz;
COMMENT ON COLUMN cortex.pod.phase IS 'Where it stands while it leaves; of a dead pod, where it died; else null.';
COMMENT ON COLUMN cortex.pod.phase_at IS 'When that phase began.';
COMMENT ON COLUMN cortex.pod.abort_at IS 'When jobs that it still runs are handed back; in later phases, when they were.';
COMMENT ON COLUMN cortex.pod.closed_at IS 'By when it has closed everything and ended.';
