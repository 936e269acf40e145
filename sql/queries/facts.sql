-- name: append
-- Records facts in one statement; skips those of a call that is already booked. Per fact: $1 types, $2 subtypes,
-- $3 sources, $4 tenants, $5 job ids, $6 attempts, $7 steps, $8 agent ids, $9 agent versions, $10 pod ids,
-- $11 trace ids, $12 call ids, $13 US dollars, $14 resolved facts, $15 data. Locks: none. Returns the new ids, in order.
INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, pod_id,
                         trace_id, call_id, amount, currency, resolves, data)
SELECT f.type, f.subtype, f.source, f.tenant, f.job_id, f.attempt, f.step, f.agent_id, f.agent_version, f.pod_id,
       f.trace_id, f.call_id, f.amount, CASE WHEN f.amount IS NOT NULL THEN 'USD' END, f.resolves, f.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::int[], $7::text[], $8::uuid[], $9::int[],
            $10::uuid[], $11::text[], $12::uuid[], $13::numeric[], $14::bigint[], $15::jsonb[]) WITH ORDINALITY
    AS f(type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, pod_id, trace_id, call_id,
         amount, resolves, data, n)
ORDER BY f.n
ON CONFLICT (call_id) WHERE call_id IS NOT NULL DO NOTHING
RETURNING id;

-- name: of_job
-- Facts of one job in order, each error with what resolved it: a fact or the job's completion.
-- $1 job id, $2 after this id, $3 limit.
SELECT f.*, r.id AS resolved_by,
       CASE WHEN f.type = 'error' THEN r.id IS NOT NULL OR coalesce(j.status = 'COMPLETED', false) END AS is_resolved
FROM cortex.fact f
LEFT JOIN cortex.job j ON j.id = f.job_id
LEFT JOIN LATERAL (
    SELECT s.id FROM cortex.fact s WHERE s.resolves = f.id AND f.type = 'error' ORDER BY s.id LIMIT 1) r ON true
WHERE f.job_id = $1 AND f.id > $2
ORDER BY f.id LIMIT $3;

-- name: page
-- Newest facts first. $1 types, $2 seconds back, $3 only those before this id or null, $4 limit, $5 a source or null,
-- $6 a job id or null, $7 a tenant or null for all. Each combination has its index; the others are not read.
WITH edge AS MATERIALIZED (
    SELECT CASE WHEN $3::bigint IS NULL THEN 'infinity' ELSE (
               SELECT at FROM cortex.fact WHERE id = $3 AND ($7::text IS NULL OR tenant = $7)) END AS at,
           coalesce($3::bigint, 0) AS id, cortex.now() - $2::float8 * interval '1 second' AS since
), page AS (
    SELECT found.* FROM (
        SELECT each.* FROM unnest($1::text[]) AS wanted(type) CROSS JOIN LATERAL (
            SELECT * FROM cortex.fact f
            WHERE f.type = wanted.type AND f.at >= (SELECT since FROM edge)
              AND (f.at, f.id) < ((SELECT at FROM edge), (SELECT id FROM edge)) AND ($7::text IS NULL OR f.tenant = $7)
            ORDER BY f.at DESC, f.id DESC LIMIT $4) each
        WHERE $5::text IS NULL AND $6::uuid IS NULL AND coalesce($7, 'default') = 'default'
        UNION ALL
        SELECT each.* FROM unnest($1::text[]) AS wanted(type) CROSS JOIN LATERAL (
            SELECT * FROM cortex.fact f
            WHERE $7::text IS NOT NULL AND f.tenant = $7 AND f.tenant <> 'default' AND f.type = wanted.type AND f.at >= (SELECT since FROM edge)
              AND ($5::text IS NULL OR f.source = $5)
              AND (f.at, f.id) < ((SELECT at FROM edge), (SELECT id FROM edge))
            ORDER BY f.at DESC, f.id DESC LIMIT $4) each
        WHERE $6::uuid IS NULL
        UNION ALL (
            SELECT * FROM cortex.fact f
            WHERE f.source = $5 AND f.type = ANY ($1) AND $6::uuid IS NULL AND coalesce($7, 'default') = 'default'
              AND ($7 IS NULL OR f.tenant = $7) AND f.at >= (SELECT since FROM edge)
              AND (f.at, f.id) < ((SELECT at FROM edge), (SELECT id FROM edge))
            ORDER BY f.at DESC, f.id DESC LIMIT $4)
        UNION ALL (
            SELECT * FROM cortex.fact f
            -- The type in a form that has no index: a job's facts are few, those of a type are not.
            WHERE f.job_id = $6 AND ($5::text IS NULL OR f.source = $5) AND f.type || '' = ANY ($1)
              AND ($7 IS NULL OR f.tenant = $7) AND f.at >= (SELECT since FROM edge)
              AND (f.at, f.id) < ((SELECT at FROM edge), (SELECT id FROM edge))
            ORDER BY f.at DESC, f.id DESC LIMIT $4)) found
    ORDER BY found.at DESC, found.id DESC LIMIT $4
)
SELECT f.*, r.id AS resolved_by, p.name AS pod, a.name AS agent, cortex.now() AS now,
       CASE WHEN f.type = 'error' THEN r.id IS NOT NULL OR coalesce(j.status = 'COMPLETED', false) END AS is_resolved
FROM page f
LEFT JOIN cortex.job j ON j.id = f.job_id
LEFT JOIN cortex.pod p ON p.id = f.pod_id
LEFT JOIN cortex.agent a ON a.id = f.agent_id
LEFT JOIN LATERAL (
    SELECT s.id FROM cortex.fact s WHERE s.resolves = f.id AND f.type = 'error' ORDER BY s.id LIMIT 1) r ON true
ORDER BY f.at DESC, f.id DESC;

-- name: changes_of_job
-- Changes concerning a job, mostly by people, in order: its own facts, and those of budgets that it waited for during
-- its life. $1 job id, $2 limit: the newest.
SELECT * FROM (
    SELECT f.id, f.at, f.subtype, f.source, f.data FROM (
        SELECT f.* FROM cortex.fact f WHERE f.job_id = $1 AND f.type || '' = 'lifecycle'
        UNION ALL
        SELECT f.* FROM cortex.job j
        CROSS JOIN LATERAL (
            SELECT DISTINCT a.error_source AS source FROM cortex.job_attempt a
            WHERE a.job_id = j.id AND a.error_source LIKE 'budget:%') waited
        JOIN cortex.fact f ON f.source = waited.source
        WHERE j.id = $1 AND f.type || '' = 'lifecycle' AND f.job_id IS DISTINCT FROM j.id
          AND f.at >= j.created_at AND (j.finished_at IS NULL OR f.at <= j.finished_at)) f
    ORDER BY f.at DESC, f.id DESC LIMIT $2) f
ORDER BY f.at, f.id;

-- name: costs
-- The usage of model calls, by group. $1 agent, model, tenant, job or day; $2 seconds back, $3 limit of groups, $4 a
-- tenant or null for all.
-- "again": calls whose response was not kept, or whose step a later call of the job repeated. Returns the total over
-- all groups first, then the most expensive groups, or the newest days.
WITH call AS (
    SELECT f.tenant, f.job_id, f.agent_id, f.at, f.amount, f.data->>'model' AS model,
           coalesce(f.data->>'estimated' = 'true', false) AS is_estimated,
           f.data->'usage' IS NOT NULL AS has_usage,
           coalesce((f.data->'usage'->>'input_tokens')::bigint, 0) AS input,
           coalesce((f.data->'usage'->>'output_tokens')::bigint, 0) AS output,
           coalesce((f.data->'usage'->>'cache_read_tokens')::bigint, 0) AS cache_read,
           coalesce((f.data->'usage'->>'cache_write_tokens')::bigint, 0) AS cache_write,
           (f.data->>'saved_usd')::numeric AS saved,
           f.data->>'outcome' <> 'kept'
               OR lead(f.id) OVER (PARTITION BY f.job_id, f.step ORDER BY f.id) IS NOT NULL AS is_again
    FROM cortex.fact f
    WHERE f.type = 'cost' AND f.at >= cortex.now() - $2::float8 * interval '1 second'
      AND ($4::text IS NULL OR f.tenant = $4)
), counted AS (
    -- Zero usage costs nothing, whatever the model's price.
    SELECT c.*, input + output + cache_read + cache_write AS tokens,
           CASE WHEN has_usage AND input + output + cache_read + cache_write = 0 THEN coalesce(amount, 0)
                ELSE amount END AS usd
    FROM call c
), named AS (
    SELECT c.*,
           CASE $1::text WHEN 'model' THEN c.model WHEN 'tenant' THEN c.tenant WHEN 'job' THEN c.job_id::text
                         WHEN 'day' THEN (c.at AT TIME ZONE 'UTC')::date::text ELSE coalesce(a.name, '') END AS name
    FROM counted c LEFT JOIN cortex.agent a ON a.id = c.agent_id
)
SELECT name, grouping(name) = 1 AS is_total, count(*) AS calls,
       coalesce(sum(input), 0)::bigint AS input_tokens, coalesce(sum(output), 0)::bigint AS output_tokens,
       coalesce(sum(cache_read), 0)::bigint AS cache_read_tokens,
       coalesce(sum(cache_write), 0)::bigint AS cache_write_tokens,
       sum(saved) AS cache_saved_usd, sum(usd) AS cost_usd, count(*) - count(usd) AS unpriced_calls,
       count(*) FILTER (WHERE is_again) AS again_calls,
       coalesce(sum(tokens) FILTER (WHERE is_again), 0)::bigint AS again_tokens,
       sum(usd) FILTER (WHERE is_again) AS again_usd,
       count(*) FILTER (WHERE is_again) - count(usd) FILTER (WHERE is_again) AS again_unpriced_calls,
       count(*) FILTER (WHERE is_estimated) AS estimated_calls
FROM named
GROUP BY GROUPING SETS ((name), ())
ORDER BY is_total DESC, CASE WHEN $1::text = 'day' THEN name END DESC, sum(usd) DESC NULLS LAST, name
LIMIT $3 + 1;
