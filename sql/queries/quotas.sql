-- name: put
-- Sets a quota, new or existing; its usage stays counted. $1 tool, $2 argument or null, $3 unit or null, $4 hour or
-- day, $5 limit, $6 who, $7 why. Locks: the quota. Records who set it and why. Returns its name, and the limit before
-- (null: it is new) and after.
WITH before AS MATERIALIZED (
    SELECT limit_amount FROM cortex.quota
    WHERE name = $1::text || ':' || coalesce($2::text, 'calls') || ':' || $4::text FOR UPDATE
), put AS (
    INSERT INTO cortex.quota (tool, argument, unit, period, limit_amount, changed_by, reason)
    SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM before) >= 0
    ON CONFLICT (name) DO UPDATE
    SET unit = excluded.unit, limit_amount = excluded.limit_amount, changed_by = excluded.changed_by,
        changed_at = cortex.now(), reason = excluded.reason
    RETURNING name, limit_amount
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'quota_set', 'quota:' || put.name,
           jsonb_build_object('by', $6::text, 'reason', $7::text, 'after', put.limit_amount,
                              'before', (SELECT limit_amount FROM before))
    FROM put
), hinted AS (
    SELECT pg_notify('cortex_breaker', '') FROM put  -- who waits for it is looked at at once
)
SELECT put.name, put.limit_amount AS after, (SELECT limit_amount FROM before) AS before
FROM put LEFT JOIN hinted ON true;

-- name: remove
-- Removes a quota and its usage. $1 name, $2 who, $3 why. Locks: the quota, then its uses. Records who removed it and
-- why. Returns the limit that it had.
WITH gone AS (
    DELETE FROM cortex.quota WHERE name = $1 RETURNING id, name, limit_amount
), uses AS (
    DELETE FROM cortex.quota_use u USING gone WHERE u.quota_id = gone.id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'quota_removed', 'quota:' || name,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'before', limit_amount)
    FROM gone
), hinted AS (
    SELECT pg_notify('cortex_breaker', '') FROM gone
)
SELECT gone.name, gone.limit_amount AS before FROM gone LEFT JOIN hinted ON true;

-- name: list
-- Quotas by name with their current usage, when it resets, and how many jobs wait. $1 after this name, $2 limit.
SELECT q.name, q.tool, q.argument, q.unit, q.period, q.limit_amount, q.changed_by, q.changed_at, q.reason, q.created_at,
       coalesce(u.used, 0) AS used, w.began_at + ('1 ' || q.period)::interval AS resets_at,
       (SELECT count(*) FROM cortex.job_record j
        WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'quota:%'
          AND j.waiting_on = 'quota:' || q.name) AS waiting_jobs,
       cortex.now() AS now
FROM (SELECT * FROM cortex.quota WHERE name > $1 ORDER BY name LIMIT $2) q
CROSS JOIN LATERAL (SELECT cortex.quota_began(q.period, cortex.now()) AS began_at) w
LEFT JOIN cortex.quota_use u ON u.quota_id = q.id AND u.began_at = w.began_at
ORDER BY q.name;

-- name: forget
-- Deletes usage of hours and days long past. $1 seconds to keep it, $2 limit. Locks: those uses, skipping locked ones.
-- Returns how many.
WITH old AS MATERIALIZED (
    SELECT quota_id, began_at FROM cortex.quota_use
    WHERE began_at < cortex.now() - $1::float8 * interval '1 second'
    ORDER BY began_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.quota_use u USING old
    WHERE u.quota_id = old.quota_id AND u.began_at = old.began_at RETURNING u.quota_id
)
SELECT count(*) AS count FROM gone;

-- name: cap
-- Sets the cap of a tenant, new or existing. $1 tenant, $2 most jobs, $3 most bytes or null, $4 who, $5 why. Locks: the
-- cap. Records who set it and why. Returns it.
WITH put AS (
    INSERT INTO cortex.tenant_cap (tenant, jobs_max, bytes_max, changed_by, reason) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant) DO UPDATE
    SET jobs_max = excluded.jobs_max, bytes_max = excluded.bytes_max, changed_by = excluded.changed_by,
        changed_at = cortex.now(), reason = excluded.reason
    RETURNING *
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'cap_set', 'tenant:' || tenant,
           jsonb_build_object('by', $4::text, 'reason', $5::text, 'jobs', jobs_max, 'bytes', bytes_max)
    FROM put
)
SELECT tenant, jobs_max, bytes_max FROM put;

-- name: uncap
-- Removes the cap of a tenant. $1 tenant, $2 who, $3 why. Locks: the cap. Records who removed it and why. Returns it.
WITH gone AS (
    DELETE FROM cortex.tenant_cap WHERE tenant = $1 RETURNING *
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'cap_removed', 'tenant:' || tenant, jsonb_build_object('by', $2::text, 'reason', $3::text)
    FROM gone
)
SELECT tenant, jobs_max, bytes_max FROM gone;

-- name: caps
-- Caps of tenants by name, and how many jobs count towards each. $1 after this tenant, $2 limit, $3 a tenant or null for
-- all.
SELECT c.tenant AS name, c.jobs_max, c.bytes_max, c.changed_by, c.changed_at, c.reason, u.jobs, u.bytes, cortex.now() AS now
FROM (SELECT * FROM cortex.tenant_cap WHERE tenant > $1 AND ($3::text IS NULL OR tenant = $3) ORDER BY tenant LIMIT $2) c
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, coalesce(sum(w.size), 0)::bigint AS bytes FROM (
        SELECT pg_column_size(j.payload) AS size FROM cortex.job_record j
        WHERE j.tenant = c.tenant AND j.tenant <> 'default'
          AND j.status IN ('PENDING', 'RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL') LIMIT c.jobs_max) w) u
ORDER BY c.tenant;
