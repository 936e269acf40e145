-- name: begin
-- Begins an act on many letters, and hints the pods. $1 token, $2 verb, $3 how they were chosen, for people, $4 agent
-- version, $5 whether without steps, $6 letters a second, $7 who, $8 why, $9 failed jobs in the order of their turns,
-- $10 letters of a batch at most, $11 how many acts may be under way. Locks: none.
-- No row comes back when too many are, or when the token was used before: see `of_token`.
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
-- The act that a token began. $1 token.
SELECT id FROM cortex.dead_act WHERE token = $1;

-- name: due
-- In how many seconds a batch of any act is due; null: none is under way. Always one row.
SELECT extract(epoch FROM (SELECT a.due_at FROM cortex.dead_act a WHERE a.state = 'RUNNING'
                           ORDER BY a.due_at, a.id LIMIT 1) - cortex.now())::float8 AS due_s;

-- name: lock
-- One batch at a time. Locks: an advisory lock to the end of the transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.dead_acts', 0)) AS is_held;

-- name: take
-- Holds the act whose batch is due. Locks: the act (skipping locked ones), before its letters; nobody waits for it who
-- holds one of those.
SELECT id, verb, agent_version, from_start, rate_per_s, asked_by, reason, batch_max, done_count + failed_count AS passed
FROM cortex.dead_act WHERE state = 'RUNNING' AND due_at <= cortex.now()
ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: next
-- The letters of an act whose turn it is. $1 act, $2 how many had theirs, $3 limit.
SELECT nth, job_id FROM cortex.dead_act_letter WHERE act_id = $1 AND nth > $2 ORDER BY nth LIMIT $3;

-- name: progress
-- Writes what became of a batch, in its transaction. $1 act, $2 letters settled; per letter that was not: $3 places,
-- $4 codes, $5 why; $6 letters of the next batch at most, $7 seconds until it. Locks: the act's.
WITH failed AS (
    UPDATE cortex.dead_act_letter l SET error_code = f.code, error = f.why
    FROM unnest($3::int[], $4::text[], $5::text[]) AS f(nth, code, why)
    WHERE l.act_id = $1 AND l.nth = f.nth
), moved AS (
    UPDATE cortex.dead_act a
    SET done_count = a.done_count + $2, failed_count = a.failed_count + cardinality($3::int[]), batch_max = $6,
        -- What it was late is made up for, as far as a second.
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
-- Pauses an act, lets it go on or ends it. $1 act, $2 its new state, $3 the states that it may have, $4 who, $5 why,
-- $6 what is recorded. Locks: the act, which a batch of it holds while it is written. No row comes back if it has none
-- of these states.
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
-- Acts for people: those under way first, then the newest. $1 one act or null, $2 limit.
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
-- The letters that an act could not settle, in their order, and how each stands now. $1 act, $2 limit.
SELECT l.nth, l.job_id, l.error_code, l.error, d.type, d.state, d.fingerprint, a.name AS agent
FROM cortex.dead_act_letter l
LEFT JOIN cortex.dead_letter d ON d.job_id = l.job_id
LEFT JOIN cortex.agent a ON a.id = d.agent_id
WHERE l.act_id = $1 AND l.error IS NOT NULL ORDER BY l.nth LIMIT $2;

-- name: forget
-- Deletes acts that ended long ago, with their letters' places; the letters stay. $1 seconds, $2 limit. Locks: the
-- acts, skipping locked ones. Returns how many.
WITH old AS (
    SELECT id FROM cortex.dead_act WHERE ended_at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM cortex.dead_act a USING old WHERE a.id = old.id RETURNING a.id;
