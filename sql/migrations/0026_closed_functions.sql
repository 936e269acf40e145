-- 0026 closed functions: nobody but their owner may make triggers of those that write the record.
--
-- Locks: none that matter. Old pods: may keep running: a trigger that is there fires for whoever writes.
--
-- CREATE TRIGGER asks for EXECUTE, which everybody has of a new function. Who only looks could make such a trigger on
-- a temporary table of his own, and through it write history, dead letters and ends of effects with the owner's rights.

REVOKE EXECUTE ON FUNCTION
    cortex.job_history_of_insert(), cortex.job_history_of_update(), cortex.dead_letter_of_failure(),
    cortex.job_closes() FROM PUBLIC;

-- pg_temp is named, last: else a caller's temporary types would come before the catalogue's.
ALTER FUNCTION cortex.job_history_of_insert() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.job_history_of_update() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.dead_letter_of_failure() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION cortex.job_closes() SET search_path = pg_catalog, pg_temp;
