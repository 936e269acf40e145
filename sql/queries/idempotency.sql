-- name: begin
-- Takes a key for this transaction, if nobody else is using it; one that has expired begins anew.
-- $1 key, $2 digest of the request, $3 operation, $4 seconds until it expires.
-- Locks: an advisory lock to the end of the transaction, tried and not waited for; then the key's row.
-- Returns whether the lock was got, and whether the key was free: if not, its row stands until the end.
WITH held AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.idempotency', 0) # hashtextextended($1, 0)) AS is_held
), begun AS (
    -- Sees what another one committed just before the lock was got, although the snapshot is older.
    INSERT INTO cortex.idempotency_key AS k (key, digest, operation, expires_at)
    SELECT $1, $2, $3, cortex.now() + $4::float8 * interval '1 second' FROM held WHERE held.is_held
    ON CONFLICT (key) DO UPDATE
    SET digest = excluded.digest, operation = excluded.operation, status = 'pending', response = NULL, error = NULL,
        created_at = cortex.now(), expires_at = excluded.expires_at
    WHERE k.expires_at <= cortex.now()
    RETURNING k.key
)
SELECT held.is_held, EXISTS (SELECT FROM begun) AS is_new FROM held;

-- name: stored
-- What a key that was used before led to. $1 key.
SELECT digest, operation, status, response, error FROM cortex.idempotency_key WHERE key = $1;

-- name: complete
-- Keeps the response of the write that was done in this transaction. $1 key, $2 response.
-- Locks: the key's row, held already. Returns the response as the record has it.
UPDATE cortex.idempotency_key SET status = 'completed', response = $2
WHERE key = $1 AND status = 'pending' RETURNING response;

-- name: fail
-- Keeps the error that the write ended with; all else of it was undone. $1 key, $2 error.
-- Locks: the key's row, held already.
UPDATE cortex.idempotency_key SET status = 'failed', error = $2 WHERE key = $1 AND status = 'pending';

-- name: sweep
-- Deletes keys that have expired, the oldest first. $1 limit. Locks: their rows, skipping locked.
-- Returns how many there were.
WITH expired AS MATERIALIZED (
    SELECT key FROM cortex.idempotency_key
    WHERE expires_at <= cortex.now()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.idempotency_key k USING expired WHERE k.key = expired.key RETURNING k.key
)
SELECT count(*) AS count FROM gone;
