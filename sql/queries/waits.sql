-- name: wake
-- Gives tasks to jobs that have what they wait for: a signal, their children, a decision. $1 the most rows of
-- cortex.job_wake. Locks: those rows, then the jobs (ordered), both skipping locked ones. Returns how many rows were
-- handled, how many jobs got a task, and how much is to be looked at again soon. See cortex.wake_waiting.
SELECT handled, woken, postponed FROM cortex.wake_waiting($1);

-- name: met
-- Which waits of jobs that run are met. $1 jobs, $2 kinds, $3 names, $4 keys or empty, $5 ordinals of children or null, all
-- in parallel. Locks: none. Returns their places, from 1.
SELECT w.place::int AS place FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[]) WITH ORDINALITY
    AS w(job_id, kind, name, key, upto, place)
WHERE cortex.is_wait_met(ROW(w.job_id, w.kind, w.name, w.key, w.upto)::cortex.job_wait);
