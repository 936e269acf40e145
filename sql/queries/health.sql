-- name: errors
-- Counts the errors of the last $1 seconds, the newest $2 at most: of attempts, and of calls that were repeated in their
-- step. Returns with them how many seconds back it read. Locks: none.
WITH error AS MATERIALIZED (
    SELECT f.at, f.step IS NULL AS is_of_attempt, f.step IS NOT NULL AND f.data ? 'max' AS is_repeated
    FROM cortex.fact f
    WHERE f.type = 'error' AND f.at > cortex.now() - $1::float8 * interval '1 second'
    ORDER BY f.at DESC LIMIT $2::int
)
SELECT count(*) FILTER (WHERE is_of_attempt) AS attempt_count, count(*) FILTER (WHERE is_repeated) AS call_count,
       (CASE WHEN count(*) < $2::int THEN $1::float8 ELSE extract(epoch FROM cortex.now() - min(at)) END)::float8 AS span_s
FROM error;
