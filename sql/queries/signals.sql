-- name: send
-- Sends a signal. $1 name, $2 content, $3 job or null, $4 key or null, $5 tenant or null, $6 idempotency key or null,
-- $7 who sends it or null, $8 credential or null.
-- Locks: none that a job waits for. Returns its id, that of the first one if it was sent before. See cortex.send_signal.
SELECT cortex.send_signal($1, $2::jsonb, $3, $4, $5, $6) AS id
FROM (SELECT set_config('cortex.actor', coalesce($7, ''), true),
             set_config('cortex.credential', coalesce($8, ''), true) OFFSET 0) actor;

-- name: note_sent
-- Records why a person sent a signal. $1 signal, $2 who, $3 why. Locks: none.
INSERT INTO cortex.fact (type, subtype, tenant, job_id, data)
SELECT 'lifecycle', 'signal_sent', s.tenant, s.job_id,
       jsonb_build_object('by', $2::text, 'reason', $3::text, 'name', s.name, 'key', s.key)
FROM cortex.signal s WHERE s.id = $1::uuid;

-- name: take
-- Gives a step of a running job the next signal that no step has. $1 job, $2 attempt, $3 pod, $4 key of the step, $5 name
-- of the signal, $6 key or null. Locks: the task (shared), the signal. Safe to repeat. See cortex.take_signal.
SELECT is_owned, id, payload, sent_at FROM cortex.take_signal($1, $2, $3, $4, $5, $6);

-- name: awaited
-- The names of signals for which jobs wait, of the first so many waits. $1 limit. Locks: none.
SELECT DISTINCT w.name FROM (
    SELECT o.name FROM cortex.job_wait o WHERE o.kind = 'signal' LIMIT $1::int) w
ORDER BY w.name;

-- name: forget
-- Deletes signals to keys that no job has asked for within a day. $1 limit. Locks: they (skipping locked). Returns how many.
SELECT cortex.forget_signals($1) AS count;

-- name: of_job
-- Lists what was sent to a job's lineage, and what its jobs received from keys, in order of arrival. $1 job, $2 seq of the
-- last signal before, $3 only those that wait, $4 limit. Locks: none.
WITH own AS MATERIALIZED (
    SELECT coalesce(j.lineage_id, j.id) AS line FROM cortex.job_record j WHERE j.id = $1::uuid
), chosen AS MATERIALIZED (
    (SELECT s.id FROM own JOIN cortex.signal s ON s.lineage_id = own.line
     WHERE s.seq > $2::bigint AND (NOT $3::bool OR s.taken_at IS NULL) ORDER BY s.seq LIMIT $4::int)
    UNION ALL
    (SELECT s.id FROM own JOIN cortex.signal s ON s.taken_line = own.line
     WHERE s.seq > $2 AND s.key IS NOT NULL AND s.taken_at IS NOT NULL AND NOT $3 ORDER BY s.seq LIMIT $4)
)
SELECT s.id, s.seq, s.name, s.key, s.sent_at, s.sent_by, t.size AS size_bytes,
       CASE WHEN t.size <= 4096 THEN s.payload END AS payload, s.taken_at, s.taken_step, s.taken_by
FROM chosen c JOIN cortex.signal s ON s.id = c.id
CROSS JOIN LATERAL (SELECT octet_length(s.payload::text) AS size) t
ORDER BY s.seq LIMIT $4;
