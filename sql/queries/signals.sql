-- name: send
-- Sends a signal. $1 name, $2 content, $3 job or null, $4 key or null, $5 tenant or null, $6 idempotency key or null.
-- Locks: none that a job waits for. Returns its id, that of the first one if it was sent before. See cortex.send_signal.
SELECT cortex.send_signal($1, $2::jsonb, $3, $4, $5, $6) AS id;

-- name: take
-- Gives a step of a running job the next signal that no step has. $1 job, $2 attempt, $3 pod, $4 key of the step, $5 name
-- of the signal, $6 key or null. Locks: the task (shared), the signal. Safe to repeat. See cortex.take_signal.
SELECT is_owned, id, payload, sent_at FROM cortex.take_signal($1, $2, $3, $4, $5, $6);

-- name: withdraw
-- Gives back the signal that a step of a running job has taken, unless its output is on record. $1 job, $2 attempt, $3 pod,
-- $4 key of the step. Locks: the task (shared), the signal. Safe to repeat. Returns whether the attempt owns its job.
SELECT cortex.withdraw_signal($1, $2, $3, $4) AS is_owned;

-- name: forget
-- Deletes signals to keys that no job has asked for within a day. $1 limit. Locks: they (skipping locked). Returns how many.
SELECT cortex.forget_signals($1) AS count;
