-- name: keep
-- Stores lines of jobs; skips those that are stored already. Per line: $1 job ids, $2 attempts, $3 numbers, $4 ages in
-- seconds, $5 levels, $6 steps, $7 sources, $8 messages, $9 fields, $10 counts of dropped lines. Locks: none.
INSERT INTO cortex.log_line (job_id, attempt, number, at, level, step, source, message, fields, dropped)
SELECT l.job_id, l.attempt, l.number, cortex.now() - l.age_s * interval '1 second', l.level, l.step, l.source, l.message,
       l.fields::jsonb, l.dropped
FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::float8[], $5::smallint[], $6::text[], $7::text[], $8::text[],
                  $9::text[], $10::bigint[]) WITH ORDINALITY
    AS l(job_id, attempt, number, age_s, level, step, source, message, fields, dropped, n)
ORDER BY l.n
ON CONFLICT (job_id, attempt, number) DO NOTHING;

-- name: newest_of_job
-- The newest lines of one job, newest first. $1 job id, $2 least level, $3 an attempt or null, $4 a step or null,
-- $5 attempt and $6 number of the line before which they are, or null, $7 limit.
SELECT l.id, l.job_id, l.attempt, l.number, l.at, l.level, l.step, l.source, l.message, l.fields, l.dropped,
       cortex.now() AS now
FROM cortex.log_line l
WHERE l.job_id = $1 AND l.level >= $2::int AND ($3::int IS NULL OR l.attempt = $3)
  AND ($4::text IS NULL OR l.step = $4)
  AND (l.attempt, l.number) < (coalesce($5::int, 2147483647), coalesce($6::bigint, 9223372036854775807))
ORDER BY l.attempt DESC, l.number DESC LIMIT $7;

-- name: of_job_after
-- The next lines of one job, in order, after what was read. $1 job id, $2 attempts that were read from, the last one
-- last, $3 the number read last of each, $4 limit. Lines that older attempts write late come, too.
SELECT l.id, l.job_id, l.attempt, l.number, l.at, l.level, l.step, l.source, l.message, l.fields, l.dropped,
       cortex.now() AS now
FROM (
    SELECT late.* FROM unnest($2::int[], $3::bigint[]) AS place(attempt, number)
    CROSS JOIN LATERAL (
        SELECT o.* FROM cortex.log_line o
        WHERE o.job_id = $1 AND o.attempt = place.attempt AND o.number > place.number
        ORDER BY o.number LIMIT $4) late
    UNION ALL (
        SELECT o.* FROM cortex.log_line o
        WHERE o.job_id = $1 AND o.attempt > coalesce(($2::int[])[cardinality($2::int[])], 0)
        ORDER BY o.attempt, o.number LIMIT $4)) l
ORDER BY l.attempt, l.number LIMIT $4;

-- name: page
-- The newest lines of all jobs, newest first. $1 least level, $2 seconds back, $3 only before this id or null, $4 limit.
-- From warnings on they have an index of their own.
SELECT l.id, l.job_id, j.type AS job_type, l.attempt, l.number, l.at, l.level, l.step, l.source, l.message, l.fields,
       l.dropped, cortex.now() AS now
FROM (
    (SELECT o.* FROM cortex.log_line o
     WHERE $1::int < 30 AND o.level >= $1::int AND o.id < coalesce($3::bigint, 9223372036854775807)
     ORDER BY o.id DESC LIMIT $4)
    UNION ALL (
     SELECT o.* FROM cortex.log_line o
     WHERE o.level >= 30 AND $1::int >= 30 AND o.level >= $1::int
       AND o.id < coalesce($3::bigint, 9223372036854775807)
     ORDER BY o.id DESC LIMIT $4)) l
LEFT JOIN cortex.job_record j ON j.id = l.job_id
WHERE l.at >= cortex.now() - $2::float8 * interval '1 second'
ORDER BY l.id DESC LIMIT $4;

-- name: page_of_tenant
-- The same of one tenant, reading a bounded number. $1 least level, $2 seconds back, $3 only before this id or null, $4
-- limit, $5 tenant, $6 how many lines of all tenants to read. Always at least one row: how many were read, and the id of
-- the last of them.
WITH looked AS MATERIALIZED (
    -- Only one of the two is read.
    (SELECT o.id, o.job_id FROM cortex.log_line o
     WHERE $1::int < 30 AND o.level >= $1::int AND o.id < coalesce($3::bigint, 9223372036854775807)
     ORDER BY o.id DESC LIMIT $6)
    UNION ALL
    (SELECT o.id, o.job_id FROM cortex.log_line o
     WHERE o.level >= 30 AND $1::int >= 30 AND o.level >= $1::int
       AND o.id < coalesce($3::bigint, 9223372036854775807)
     ORDER BY o.id DESC LIMIT $6)
)
SELECT seen.looked_count, seen.last_id, last.at < cortex.now() - $2::float8 * interval '1 second' AS is_past, p.*
FROM (SELECT count(*)::int AS looked_count, min(id) AS last_id FROM looked) seen
LEFT JOIN cortex.log_line last ON last.id = seen.last_id
LEFT JOIN LATERAL (
    SELECT l.id, l.job_id, j.type AS job_type, l.attempt, l.number, l.at, l.level, l.step, l.source, l.message, l.fields,
           l.dropped, cortex.now() AS now
    FROM looked k JOIN cortex.job_record j ON j.id = k.job_id AND j.tenant = $5 JOIN cortex.log_line l ON l.id = k.id
    WHERE l.at >= cortex.now() - $2::float8 * interval '1 second'
    ORDER BY k.id DESC LIMIT $4) p ON true
ORDER BY p.id DESC;

-- name: newest_id
-- The id of the newest line of all jobs; 0: there is none.
SELECT coalesce(max(l.id), 0) AS id FROM cortex.log_line l;

-- name: after
-- The next lines of all jobs, in order of arrival. $1 least level, $2 after this id, $3 ids that were read already,
-- $4 limit.
SELECT l.id, l.job_id, j.type AS job_type, l.attempt, l.number, l.at, l.level, l.step, l.source, l.message, l.fields,
       l.dropped, cortex.now() AS now
FROM (
    SELECT o.* FROM cortex.log_line o
    WHERE o.id > $2 AND o.level >= $1::int AND o.id <> ALL ($3::bigint[])
    ORDER BY o.id LIMIT $4) l
LEFT JOIN cortex.job_record j ON j.id = l.job_id
ORDER BY l.id;

-- name: forget
-- Deletes old lines, the oldest first. $1 seconds to keep them, $2 limit. Locks: the lines. Returns how many.
SELECT cortex.forget_lines($1::float8, $2::int) AS count;
