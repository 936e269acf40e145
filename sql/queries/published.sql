-- name: publish
-- Publishes what jobs have assigned, for attempts that still own them: once, however often it is sent. $1 pod id; per job
-- (each once): $2 job ids, $3 attempts, $4 numbers, $5 changes, $6 what a replay has assigned: objects by key, $7 removed
-- keys, as arrays of JSON; $8 done, $9 total, $10 unit or null, $11 whether these are of a replay, $12 keys that a replay has
-- removed, $13 how often the handler has assigned each key: what a replay assigns is new beyond the count on record. $14 how
-- many keys are counted. Returns the jobs of the owners. Locks: the rows that it writes, in order; no task: an earlier
-- attempt cannot replace what a later one has published.
WITH given AS MATERIALIZED (
    SELECT g.* FROM unnest($2::uuid[], $3::int[], $4::int[], $5::jsonb[], $6::jsonb[], $7::jsonb[], $8::float8[],
                           $9::float8[], $10::text[], $11::bool[], $12::jsonb[], $13::jsonb[])
        AS g(job_id, attempt, number, changes, defaults, removed, done, total, unit, is_default, removed_again, counts)
    JOIN cortex_worker.task t ON t.job_id = g.job_id AND t.attempt = g.attempt AND t.locked_by = $1
), written AS (
    INSERT INTO cortex.job_published AS p (job_id, attempt, number, state, done, total, unit, counts)
    SELECT g.job_id, g.attempt, g.number, g.defaults || g.changes, g.done, g.total, g.unit, g.counts FROM given g
    ORDER BY g.job_id
    ON CONFLICT (job_id) DO UPDATE SET
        attempt = excluded.attempt, number = excluded.number, at = cortex.now(),
        (state, done, total, unit, counts) = (
            SELECT s.state, CASE WHEN k.is_kept THEN p.done ELSE g.done END, CASE WHEN k.is_kept THEN p.total ELSE g.total END,
                   CASE WHEN k.is_kept THEN p.unit ELSE g.unit END,
                   CASE WHEN (SELECT count(*) FROM jsonb_object_keys(c.counts)) <= $14 THEN c.counts
                        ELSE (SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}') FROM jsonb_each(c.counts) o
                              WHERE s.state ? o.key OR o.key = '') END
            FROM given g CROSS JOIN LATERAL (
                SELECT ARRAY(SELECT n.key FROM jsonb_each(g.counts) n
                             WHERE n.value::int > coalesce((p.counts->n.key)::int, 0)) AS keys) newer
            CROSS JOIN LATERAL (
                SELECT g.done IS NULL OR g.is_default AND '' <> ALL (newer.keys) AS is_kept) k
            CROSS JOIN LATERAL (
                SELECT (p.state
                        || (SELECT coalesce(jsonb_object_agg(d.key, d.value), '{}') FROM jsonb_each(g.defaults) d
                            WHERE d.key = ANY (newer.keys))
                        || g.changes)
                       - ARRAY(SELECT jsonb_array_elements_text(g.removed))
                       - ARRAY(SELECT r.key FROM jsonb_array_elements_text(g.removed_again) AS r(key)
                               WHERE r.key = ANY (newer.keys)) AS state) s
            CROSS JOIN LATERAL (
                SELECT p.counts || (
                    SELECT coalesce(jsonb_object_agg(n.key, n.value), '{}') FROM jsonb_each(g.counts) n
                    WHERE n.key = ANY (newer.keys) OR g.changes ? n.key OR g.removed ? n.key
                       OR n.key = '' AND NOT g.is_default) AS counts) c
            WHERE g.job_id = p.job_id)
    WHERE (p.attempt, p.number) < (excluded.attempt, excluded.number)
)
SELECT g.job_id FROM given g;

-- name: of_job
-- What a job has published; no row: it does not exist for the caller. $1 job id. Locks: none.
SELECT state, done, total, unit, at FROM cortex.job_shows($1);
