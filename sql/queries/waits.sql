-- name: wake
-- Gives tasks to jobs that have what they wait for: a signal, their children, a decision. $1 the most rows of
-- cortex.job_wake. Locks: those rows, then the jobs (ordered), both skipping locked ones. Returns how many rows were
-- handled, how many jobs got a task, and how much is to be looked at again soon. See cortex.wake_waiting.
SELECT handled, woken, postponed FROM cortex.wake_waiting($1);
