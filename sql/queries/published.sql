-- name: publish
-- Publishes what jobs have assigned, for attempts that still own them: once, however often it is sent. $1 pod id; per job
-- (each once): $2 job ids, $3 attempts, $4 numbers, $5 changes, $6 defaults: objects by key, $7 removed keys, as arrays
-- of JSON; $8 done, $9 total, $10 unit or null, $11 whether these are defaults. Returns the jobs of the owners. Locks: the
-- rows that it writes, in order; no task: an earlier attempt cannot replace what a later one has published.
WITH given AS MATERIALIZED (
    SELECT g.* FROM unnest($2::uuid[], $3::int[], $4::int[], $5::jsonb[], $6::jsonb[], $7::jsonb[], $8::float8[],
                           $9::float8[], $10::text[], $11::bool[])
        AS g(job_id, attempt, number, changes, defaults, removed, done, total, unit, is_default)
    JOIN cortex_worker.task t ON t.job_id = g.job_id AND t.attempt = g.attempt AND t.locked_by = $1
), written AS (
    INSERT INTO cortex.job_published AS p (job_id, attempt, number, state, done, total, unit)
    SELECT g.job_id, g.attempt, g.number, g.defaults || g.changes, g.done, g.total, g.unit FROM given g ORDER BY g.job_id
    ON CONFLICT (job_id) DO UPDATE SET
        attempt = excluded.attempt, number = excluded.number, at = cortex.now(),
        (state, done, total, unit) = (
            SELECT (g.defaults || p.state || g.changes) - ARRAY(SELECT jsonb_array_elements_text(g.removed)),
                   CASE WHEN k.is_kept THEN p.done ELSE g.done END, CASE WHEN k.is_kept THEN p.total ELSE g.total END,
                   CASE WHEN k.is_kept THEN p.unit ELSE g.unit END
            FROM given g CROSS JOIN LATERAL (
                SELECT g.done IS NULL OR g.is_default AND p.done IS NOT NULL AS is_kept) k
            WHERE g.job_id = p.job_id)
    WHERE (p.attempt, p.number) < (excluded.attempt, excluded.number)
)
SELECT g.job_id FROM given g;

-- name: of_job
-- What a job has published; no row: it does not exist for the caller. $1 job id. Locks: none.
SELECT state, done, total, unit, at FROM cortex.job_shows($1);
