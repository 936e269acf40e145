-- name: declare
-- Sets the limits of job types as a pod declares them. $1 types, $2 limits of each, as JSON arrays. Locks: if any differ,
-- the turn of limits, to the end of the transaction; the tasks of these types (ordered). Returns how many types changed.
SELECT cortex.declare_limits($1, $2) AS changed;

-- name: admit
-- Lets tasks of limited types through as far as all their limits have room, in turns between keys. $1 how many at most.
-- Locks: its turn to the end of the statement, the tasks (skipping locked). One process works at a time; any other is
-- skipped. Returns how many, and in how many seconds to look again: null, when a place is freed.
SELECT count, is_skipped, due_in_s FROM cortex_worker.admit($1);
