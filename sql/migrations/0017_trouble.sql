-- 0017 trouble: a pod tells with its heartbeat what its own calls to the database suffer from.
--
-- Locks: ACCESS EXCLUSIVE on pod, for an instant.
-- Old pods: may keep running; they tell no trouble.

ALTER TABLE cortex.pod
    ADD COLUMN trouble text CHECK (trouble ~ '^[a-z_]{1,40}$'),
    ADD COLUMN trouble_at timestamptz,
    ADD CONSTRAINT trouble_with_its_instant CHECK ((trouble IS NULL) = (trouble_at IS NULL));
COMMENT ON COLUMN cortex.pod.trouble IS
    'What is wrong with the database as this pod finds it, such as disk_full, though its heartbeat comes through; else null.';
COMMENT ON COLUMN cortex.pod.trouble_at IS 'Since when.';
