-- 0032 confinement: how each pod keeps the programs of agents in their place.
--
-- Locks: cortex.pod for a moment.
-- Old pods: may keep running; what they do is not known (null).

ALTER TABLE cortex.pod ADD COLUMN confinement text
    CHECK (confinement IN ('bubblewrap', 'landlock', 'user', 'none', 'unsafe'));
COMMENT ON COLUMN cortex.pod.confinement IS 'What confines the programs that agents start; unsafe: the operator lets them run free.';
