-- name: begin
-- Starts a bulk operation on dead letters, and notifies the pods. $1 token, $2 verb, $3 how they were selected, for
-- people, $4 agent version, $5 whether without steps, $6 dead letters per second, $7 who, $8 why, $9 failed jobs in
-- order, $10 most dead letters of a batch, $11 how many operations may be active. Locks: none. No row if too many are
-- active, or if the token was used before: see `of_token`.
WITH act AS (
    INSERT INTO cortex.dead_act (
        token, verb, which, agent_version, from_start, rate_per_s, asked_by, reason, letter_count, batch_max)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, cardinality($9::uuid[]), $10
    WHERE (SELECT count(*) FROM (SELECT FROM cortex.dead_act WHERE ended_at IS NULL LIMIT $11) a) < $11
    ON CONFLICT (token) DO NOTHING
    RETURNING id, verb, which, rate_per_s, asked_by, reason, letter_count
), letter AS (
    INSERT INTO cortex.dead_act_letter (act_id, nth, job_id)
    SELECT act.id, l.nth, l.job_id FROM act, unnest($9::uuid[]) WITH ORDINALITY AS l(job_id, nth)
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'dead_act_began', 'dead_act:' || id,
           jsonb_build_object('by', asked_by, 'reason', reason, 'verb', verb, 'which', which,
                              'letters', letter_count, 'rate_per_s', rate_per_s)
    FROM act
), hinted AS (
    SELECT pg_notify('cortex_control', p.id::text) FROM act, cortex.pod p WHERE p.state IN ('READY', 'DRAINING')
)
SELECT act.id FROM act LEFT JOIN (SELECT count(*) FROM hinted) h ON true;

-- name: of_token
-- The bulk operation that a token started. $1 token.
SELECT id FROM cortex.dead_act WHERE token = $1;

-- name: due
-- Seconds until a batch of any bulk operation is due; null: none is active. Always one row.
SELECT extract(epoch FROM (SELECT a.due_at FROM cortex.dead_act a WHERE a.state = 'RUNNING'
                           ORDER BY a.due_at, a.id LIMIT 1) - cortex.now())::float8 AS due_s;

-- name: lock
-- Allows one batch at a time. Locks: an advisory lock to the end of the transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.dead_acts', 0)) AS is_held;

-- name: take
-- Holds the bulk operation whose batch is due. Locks: the operation (skipping locked ones), before its dead letters; no
-- session that holds one of those waits for it.
SELECT id, verb, agent_version, from_start, rate_per_s, asked_by, reason, batch_max, done_count + failed_count AS passed
FROM cortex.dead_act WHERE state = 'RUNNING' AND due_at <= cortex.now()
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: next
-- The next dead letters of a bulk operation. $1 operation, $2 how many were processed, $3 limit.
SELECT nth, job_id FROM cortex.dead_act_letter WHERE act_id = $1 AND nth > $2 ORDER BY nth LIMIT $3;

-- name: progress
-- Writes the results of a batch, in its transaction. $1 operation, $2 dead letters settled; for each that was not: $3
-- positions, $4 codes, $5 why; $6 most dead letters of the next batch, $7 seconds until it. Locks: the operation's.
WITH failed AS (
    UPDATE cortex.dead_act_letter l SET error_code = f.code, error = f.why
    FROM unnest($3::int[], $4::text[], $5::text[]) AS f(nth, code, why)
    WHERE l.act_id = $1 AND l.nth = f.nth
), moved AS (
    UPDATE cortex.dead_act a
    SET done_count = a.done_count + $2, failed_count = a.failed_count + cardinality($3::int[]), batch_max = $6,
        -- Makes up for a delay of up to a second.
        due_at = greatest(a.due_at, cortex.now() - interval '1 second') + $7::float8 * interval '1 second',
        state = CASE WHEN is_over THEN 'DONE' ELSE a.state END, ended_at = CASE WHEN is_over THEN cortex.now() END
    FROM (SELECT id, done_count + failed_count + $2 + cardinality($3::int[]) = letter_count AS is_over
          FROM cortex.dead_act WHERE id = $1) o
    WHERE a.id = o.id
    RETURNING a.id, a.state, a.done_count, a.failed_count
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'dead_act_done', 'dead_act:' || id,
           jsonb_build_object('done', done_count, 'failed', failed_count)
    FROM moved WHERE state = 'DONE'
)
SELECT id, state, done_count, failed_count FROM moved;

-- name: change
-- Pauses, resumes or ends a bulk operation. $1 operation, $2 its new state, $3 the states that it may have, $4 who, $5
-- why, $6 the recorded event. Locks: the operation, which its batch holds while it writes. No row if it has none of
-- these states.
WITH changed AS (
    UPDATE cortex.dead_act
    SET state = $2, changed_by = $4, changed_at = cortex.now(), change_reason = $5,
        due_at = greatest(due_at, cortex.now()), ended_at = CASE WHEN $2::text = 'ENDED' THEN cortex.now() END
    WHERE id = $1 AND state = ANY ($3::text[])
    RETURNING id, state, letter_count - done_count - failed_count AS left_count
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', $6, 'dead_act:' || id,
           jsonb_build_object('by', $4::text, 'reason', $5::text, 'letters_left', left_count)
    FROM changed
), hinted AS (
    SELECT pg_notify('cortex_control', p.id::text) FROM changed, cortex.pod p
    WHERE changed.state = 'RUNNING' AND p.state IN ('READY', 'DRAINING')
)
SELECT changed.id FROM changed LEFT JOIN (SELECT count(*) FROM hinted) h ON true;

-- name: list
-- Bulk operations for people: active ones first, then the newest. $1 one operation or null, $2 limit.
SELECT a.id, a.verb, a.state, a.which, a.agent_version, a.from_start, a.rate_per_s, a.asked_by, a.reason,
       a.letter_count, a.done_count, a.failed_count, a.batch_max, a.due_at, a.created_at, a.changed_by, a.changed_at,
       a.change_reason, a.ended_at, fleet.has_pod, cortex.now() AS now
FROM cortex.dead_act a,
     (SELECT EXISTS (
          SELECT FROM cortex.pod p WHERE p.state IN ('READY', 'DRAINING')
            AND p.heartbeat_at >= cortex.now() - p.silent_after_s * interval '1 second') AS has_pod) fleet
WHERE $1::bigint IS NULL OR a.id = $1
ORDER BY a.ended_at IS NOT NULL, a.id DESC LIMIT $2;

-- name: failures
-- The dead letters that a bulk operation could not settle, in order, and the current state of each. $1 operation, $2
-- limit.
SELECT l.nth, l.job_id, l.error_code, l.error, d.type, d.state, d.fingerprint, a.name AS agent
FROM cortex.dead_act_letter l
LEFT JOIN cortex.dead_letter d ON d.job_id = l.job_id
LEFT JOIN cortex.agent a ON a.id = d.agent_id
WHERE l.act_id = $1 AND l.error IS NOT NULL ORDER BY l.nth LIMIT $2;

-- name: forget
-- Deletes bulk operations that ended long ago, with their lists of dead letters; the dead letters stay. $1 seconds, $2
-- limit. Locks: the operations, skipping locked ones. Returns how many.
WITH old AS (
    SELECT id FROM cortex.dead_act WHERE ended_at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM cortex.dead_act a USING old WHERE a.id = old.id RETURNING a.id;
