-- name: begin
-- Takes a key for this transaction, if it is not in use; an expired key starts again. $1 key, $2 digest of the request,
-- $3 operation, $4 seconds until it expires, $5 its scope. Locks: an advisory lock to the end of the transaction, tried without
-- waiting; then the key's row. Returns whether it got the lock, and whether the key was free: if not, its row stays to
-- the end.
WITH held AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.idempotency ' || $5, 0) # hashtextextended($1, 0)) AS is_held
), begun AS (
    -- Sees what another transaction committed just before this one got the lock, although the snapshot is older.
    INSERT INTO cortex.idempotency_key AS k (key, digest, operation, expires_at, scope)
    SELECT $1, $2, $3, cortex.now() + $4::float8 * interval '1 second', $5 FROM held WHERE held.is_held
    ON CONFLICT (scope, key) DO UPDATE
    SET digest = excluded.digest, operation = excluded.operation, status = 'pending', response = NULL, error = NULL,
        created_at = cortex.now(), expires_at = excluded.expires_at
    WHERE k.expires_at <= cortex.now()
    RETURNING k.key
)
SELECT held.is_held, EXISTS (SELECT FROM begun) AS is_new FROM held;

-- name: stored
-- The result of a key that was used before. $1 key, $2 its scope.
SELECT digest, operation, status, response, error FROM cortex.idempotency_key WHERE scope = $2 AND key = $1;

-- name: complete
-- Stores the response of the write that this transaction did. $1 key, $2 response, $3 its scope. Locks: the key's row, already held.
-- Returns the response as stored.
UPDATE cortex.idempotency_key SET status = 'completed', response = $2
WHERE scope = $3 AND key = $1 AND status = 'pending' RETURNING response;

-- name: fail
-- Stores the error of the write, which was rolled back otherwise. $1 key, $2 error, $3 its scope. Locks: the key's row, already held.
UPDATE cortex.idempotency_key SET status = 'failed', error = $2
WHERE scope = $3 AND key = $1 AND status = 'pending';

-- name: lock_housekeeping
-- Allows one pass of housekeeping at a time. Locks: its turn, to the end of the transaction.
SELECT cortex.take_turn('housekeeping') AS is_held;

-- name: sweep_rules
-- Deletes what rules about submits keep, oldest first, where the period is over and the job has ended; looks again in an
-- hour at the others. $1 limit. Locks: the keys, skipping locked. Returns how many were looked at.
WITH over AS MATERIALIZED (
    SELECT k.id, k.job_id FROM cortex.submit_key k WHERE k.until <= cortex.now()
    ORDER BY k.until LIMIT $1 FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT o.id, EXISTS (SELECT FROM cortex.job_record j WHERE j.id = o.job_id AND j.finished_at IS NULL)
               OR EXISTS (SELECT FROM cortex_worker.task t WHERE t.queue_name = q.name AND t.state = 'QUEUED')
               OR EXISTS (SELECT FROM cortex_worker.task t WHERE t.queue_name = q.name AND t.state IN ('HELD', 'READY', 'LOCKED'))
               OR EXISTS (SELECT FROM cortex.job_record j
                          WHERE j.queue_name = q.name AND j.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')) AS is_live,
           q.name AS queue
    FROM over o CROSS JOIN LATERAL (SELECT cortex_worker.queue_of_key(o.id) AS name) q
), gone AS (
    DELETE FROM cortex.submit_key k USING found f WHERE k.id = f.id AND NOT f.is_live
), relaxed AS (
    DELETE FROM cortex_worker.strict_queue s USING found f
    WHERE s.queue = f.queue AND s.set_by = 'singleton' AND NOT f.is_live
), kept AS (
    UPDATE cortex.submit_key k SET until = cortex.now() + interval '1 hour' FROM found f WHERE k.id = f.id AND f.is_live
)
SELECT count(*) AS count FROM found;

-- name: sweep
-- Deletes expired keys, oldest first. $1 limit. Locks: their rows, skipping locked. Returns how many.
WITH expired AS MATERIALIZED (
    SELECT scope, key FROM cortex.idempotency_key
    WHERE expires_at <= cortex.now()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.idempotency_key k USING expired WHERE k.scope = expired.scope AND k.key = expired.key RETURNING k.key
)
SELECT count(*) AS count FROM gone;
