-- name: now
-- The clock that all pods share. Locks: none.
SELECT cortex.now() AS now;
