-- name: declare
-- Sets the limits of job types as a pod declares them. $1 types, $2 limits of each, as JSON arrays. Locks: if any differ,
-- the turn of limits, to the end of the transaction; the tasks of these types (ordered). Returns how many types changed.
SELECT cortex.declare_limits($1, $2) AS changed;

-- name: admit
-- Lets tasks of limited types through as far as all their limits have room, in turns between keys. $1 how many at most.
-- Locks: its turn to the end of the statement, the tasks (skipping locked). One process works at a time; any other is
-- skipped. Returns how many, and in how many seconds to look again: null, when a place is freed.
SELECT count, is_skipped, due_in_s FROM cortex_worker.admit($1);

-- name: list
-- Limits of job types by name, with what counts now: how many keys have any of it and how many have no room, the key with
-- most, and how many jobs wait. $1 after this name, $2 limit, $3 how many places, slices and waiting jobs to read of each.
-- Locks: none.
SELECT l.name, l.type, l.unit, l.per, l.key, l.amount AS limit_amount, t.changed_at, u.keys, u.full_keys, u.busiest_key,
       u.busiest_used, w.waiting_jobs, cortex.now() AS now
FROM (SELECT * FROM cortex.job_limit o WHERE o.name > $1 ORDER BY o.name LIMIT $2) l
JOIN cortex.limited_type t ON t.type = l.type
CROSS JOIN LATERAL (
    SELECT count(*)::int AS keys, count(*) FILTER (WHERE k.used >= l.amount)::int AS full_keys,
           (array_agg(k.key ORDER BY k.used DESC, k.key))[1] AS busiest_key, coalesce(max(k.used), 0)::bigint AS busiest_used
    FROM (SELECT r.key, sum(r.used)::bigint AS used FROM (
              (SELECT h.key, 1 AS used FROM cortex_worker.limit_hold h WHERE h.limit_id = l.id LIMIT $3)
              UNION ALL
              (SELECT s.key, s.used FROM cortex_worker.limit_use s
               WHERE l.unit <> 'running' AND s.limit_id = l.id AND s.used > 0
                 AND s.began_at > cortex.now() - cortex_worker.span_of(l.per) - cortex_worker.span_of(l.per) / 60 LIMIT $3)) r
          GROUP BY r.key) k) u
CROSS JOIN LATERAL (
    SELECT CASE WHEN l.unit = 'tokens' THEN (
        SELECT count(*) FROM (
            SELECT FROM cortex.job_record j
            WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on NOT LIKE 'budget:%'
              AND j.waiting_on = 'limit:' || l.name LIMIT $3) j)
        ELSE (
        SELECT count(*) FROM (
            SELECT FROM cortex_worker.task h
            WHERE h.state = 'HELD' AND h.limit_keys >= ARRAY[l.type] COLLATE "C"
              AND h.limit_keys < ARRAY[l.type || chr(1)] COLLATE "C" LIMIT $3) h) END::int AS waiting_jobs) w
ORDER BY l.name;

-- name: stuck
-- Keys of limits that have let no job through for long, while all their places are held and a job has waited as long; the
-- longest first. $1 seconds, $2 limit, $3 how many places, and waiting jobs of each, to read. Locks: none.
WITH taken AS MATERIALIZED (
    SELECT l.id, l.name, l.type, l.place, l.key AS counted_for, h.key, h.held, h.latest_at, h.holder
    FROM (SELECT p.limit_id, p.key, count(*) AS held, max(p.taken_at) AS latest_at,
                 (array_agg(p.job_id ORDER BY p.taken_at, p.job_id))[1] AS holder
          FROM (SELECT * FROM cortex_worker.limit_hold LIMIT $3) p GROUP BY p.limit_id, p.key) h
    JOIN cortex.job_limit l ON l.id = h.limit_id AND h.held >= l.amount
    WHERE h.latest_at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY h.latest_at LIMIT $2
)
SELECT f.name, f.counted_for, f.key, f.held::int AS held, f.holder,
       extract(epoch FROM cortex.now() - f.latest_at)::float8 AS still_s, w.waiting_jobs,
       extract(epoch FROM cortex.now() - w.oldest_at)::float8 AS oldest_s
FROM taken f CROSS JOIN LATERAL (
    SELECT count(*)::int AS waiting_jobs, min(t.run_at) AS oldest_at FROM (
        SELECT run_at FROM cortex_worker.task
        WHERE state = 'HELD' AND limit_keys >= ARRAY[f.type] COLLATE "C"
          AND limit_keys < ARRAY[f.type || chr(1)] COLLATE "C" AND limit_keys[3 + f.place] = f.key LIMIT $3) t) w
WHERE w.oldest_at < cortex.now() - $1::float8 * interval '1 second'
ORDER BY f.latest_at, f.name, f.key;

-- name: forget
-- Deletes slices that no longer count, and turns of keys for which nothing waits. $1 limit of each. Locks: the slices
-- (skipping locked), the turns. Returns how many.
WITH old AS MATERIALIZED (
    SELECT u.limit_id, u.key, u.began_at FROM cortex_worker.limit_use u JOIN cortex.job_limit l ON l.id = u.limit_id
    WHERE u.began_at < cortex.now() - cortex_worker.span_of(l.per) - cortex_worker.span_of(l.per) / 30
    ORDER BY u.began_at LIMIT $1 FOR UPDATE OF u SKIP LOCKED
), gone AS (
    DELETE FROM cortex_worker.limit_use u USING old
    WHERE u.limit_id = old.limit_id AND u.key = old.key AND u.began_at = old.began_at RETURNING u.limit_id
), idle AS (
    DELETE FROM cortex_worker.limit_cursor c USING (
        SELECT o.turn FROM cortex_worker.limit_cursor o
        WHERE o.turn <> '{}' AND o.served_at < cortex.now() - interval '1 hour' AND NOT EXISTS (
            SELECT FROM cortex_worker.task t
            WHERE t.state = 'HELD' AND t.limit_keys >= o.turn
              AND t.limit_keys < ARRAY[o.turn[1], o.turn[2], o.turn[3] || chr(1)] COLLATE "C")
        LIMIT $1) o
    WHERE c.turn = o.turn RETURNING c.turn
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM idle) AS count;
