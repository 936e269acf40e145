-- name: intend
-- Permission for attempts to call something outside: intents of a batch, each fenced by its attempt. $1 pod id; per
-- call: $2 job ids, $3 attempts, $4 ids for new intents, $5 keys, $6 tools, $7 arguments, $8 their digests, $9 whether
-- it is certain that no call was applied so far, $10 whether the other side can look up the outcome, $11 approvals or
-- null, $12 whether the call is a tool's, whose name counts: that of a job's own function may change. Locks: tasks
-- (ordered), then effects and quotas (by tool). One row per call: see cortex.intend.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::int[], $4::uuid[], $5::text[], $6::text[], $7::json[], $8::bytea[],
                         $9::bool[], $10::bool[], $11::uuid[], $12::bool[])
        WITH ORDINALITY AS a(job_id, attempt, id, key, tool, arguments, digest, sure, reconciles, approval_id, by_name, n)
), held AS MATERIALIZED (
    SELECT t.job_id AS id FROM (SELECT DISTINCT job_id FROM asked) a JOIN cortex_worker.task t ON t.job_id = a.job_id
    WHERE t.locked_by = $1 ORDER BY t.job_id FOR UPDATE OF t
), owned AS MATERIALIZED (
    SELECT a.* FROM asked a JOIN held ON held.id = a.job_id ORDER BY a.tool, a.n
)
SELECT o.n, i.* FROM owned o CROSS JOIN LATERAL cortex.intend(
    o.job_id, o.attempt, o.id, o.key, o.tool, o.arguments, o.digest, o.sure, o.reconciles, o.approval_id,
    o.by_name) i;

-- name: record_outcomes
-- Records outcomes of effects whose steps are not done. $1 pod id; per effect: $2 ids, $3 jobs, $4 attempts, $5 whether
-- it was applied, or certainly not, $6 why, $7 its result. Locks: effects. Returns those recorded: the others lost
-- their lease, or a person has said what became of them.
UPDATE cortex.effect e
SET status = CASE WHEN f.applied THEN 'COMPLETED' ELSE 'FAILED' END, is_sure = false, why = f.why,
    result = CASE WHEN f.applied THEN coalesce(f.result, 'null') END, finished_at = cortex.now()
FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::bool[], $6::text[], $7::json[])
    AS f(id, job_id, attempt, applied, why, result)
JOIN cortex_worker.task t ON t.job_id = f.job_id AND t.attempt = f.attempt AND t.locked_by = $1
WHERE e.id = f.id AND e.job_id = f.job_id AND e.attempt = f.attempt
  AND coalesce(e.resolution, '') NOT IN ('applied', 'give-up')
RETURNING e.id;

-- name: unrecorded
-- Effects of a lineage that may have been applied and whose step is not recorded. $1 job, $2 first job of its lineage,
-- $3 whether it continues an earlier job's steps: then that job's effects count, too.
SELECT e.key, e.status FROM cortex.effect e
WHERE e.lineage_id = $2 AND e.status <> 'FAILED' AND ($3 OR e.job_id = $1)
  AND NOT EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = e.job_id AND s.key = e.key)
ORDER BY e.created_at, e.id;

-- name: show
-- One effect in full, with the output of its step: its result, or what the model received. $1 id.
SELECT e.*, a.name AS agent, j.status AS job_status, j.type AS job_type, s.seq AS step, s.output,
       cortex.effect_agreed_by(e.id, e.calls_count) AS agreed_by,
       (SELECT p.people FROM cortex.approval p WHERE p.id = e.approval_id) AS people, cortex.now() AS now
FROM cortex.effect e LEFT JOIN cortex.agent a ON a.id = e.agent_id LEFT JOIN cortex.job j ON j.id = e.job_id
LEFT JOIN cortex.job_step s ON s.job_id = e.job_id AND s.key = e.key
WHERE e.id = $1;

-- name: ids_by_suffix
-- Effects whose id ends with a suffix, newest first, among the newest 100,000. $1 suffix, lower case, no dashes.
SELECT id FROM (SELECT id FROM cortex.effect ORDER BY id DESC LIMIT 100000) recent
WHERE replace(id::text, '-', '') LIKE '%' || $1 LIMIT 10;

-- name: list
-- Newest effects first, each state by its own index. $1 states, $2 before this effect or null, $3 limit, $4 a tenant
-- or null for all: only one of the two is read.
WITH edge AS MATERIALIZED (
    SELECT CASE WHEN $2::uuid IS NULL THEN 'infinity'
                ELSE (SELECT b.created_at FROM cortex.effect b WHERE b.id = $2) END AS at,
           coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS id
), page AS (
    SELECT found.id FROM edge, unnest($1::text[]) AS wanted(status) CROSS JOIN LATERAL (
        (SELECT e.id, e.created_at FROM cortex.effect e
         WHERE e.status = wanted.status AND (e.created_at, e.id) < (edge.at, edge.id)
           AND coalesce($4::text, 'default') = 'default' AND ($4 IS NULL OR e.tenant = $4)
         ORDER BY e.created_at DESC, e.id DESC LIMIT $3)
        UNION ALL
        (SELECT e.id, e.created_at FROM cortex.effect e
         WHERE $4::text IS NOT NULL AND e.tenant = $4 AND e.tenant <> 'default' AND e.status = wanted.status
           AND (e.created_at, e.id) < (edge.at, edge.id)
         ORDER BY e.created_at DESC, e.id DESC LIMIT $3)) found
    ORDER BY found.created_at DESC, found.id DESC LIMIT $3
)
SELECT e.id, e.job_id, e.key, e.tool, e.status, e.arguments, e.why, e.created_at, e.finished_at, e.calls_count,
       e.can_reconcile, e.resolution, e.resolved_by, e.approval_id, a.name AS agent, cortex.now() AS now
FROM page JOIN cortex.effect e ON e.id = page.id LEFT JOIN cortex.agent a ON a.id = e.agent_id
ORDER BY e.created_at DESC, e.id DESC;

-- name: list_of_tool
-- The same of one tool. $1 tool, $2 states, $3 before this effect or null, $4 limit, $5 a tenant or null for all.
WITH edge AS MATERIALIZED (
    SELECT CASE WHEN $3::uuid IS NULL THEN 'infinity'
                ELSE (SELECT b.created_at FROM cortex.effect b WHERE b.id = $3) END AS at,
           coalesce($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS id
), page AS (
    SELECT found.id FROM edge, unnest($2::text[]) AS wanted(status) CROSS JOIN LATERAL (
        (SELECT e.id, e.created_at FROM cortex.effect e
         WHERE e.tool = $1 AND e.status = wanted.status AND (e.created_at, e.id) < (edge.at, edge.id)
           AND coalesce($5::text, 'default') = 'default' AND ($5 IS NULL OR e.tenant = $5)
         ORDER BY e.created_at DESC, e.id DESC LIMIT $4)
        UNION ALL
        (SELECT e.id, e.created_at FROM cortex.effect e
         WHERE $5::text IS NOT NULL AND e.tenant = $5 AND e.tenant <> 'default' AND e.tool || '' = $1 AND e.status = wanted.status
           AND (e.created_at, e.id) < (edge.at, edge.id)
         ORDER BY e.created_at DESC, e.id DESC LIMIT $4)) found
    ORDER BY found.created_at DESC, found.id DESC LIMIT $4
)
SELECT e.id, e.job_id, e.key, e.tool, e.status, e.arguments, e.why, e.created_at, e.finished_at, e.calls_count,
       e.can_reconcile, e.resolution, e.resolved_by, e.approval_id, a.name AS agent, cortex.now() AS now
FROM page JOIN cortex.effect e ON e.id = page.id LEFT JOIN cortex.agent a ON a.id = e.agent_id
ORDER BY e.created_at DESC, e.id DESC;

-- name: list_of_job
-- The same of one job. $1 job, $2 states, $3 tool or null, $4 before this effect or null, $5 limit, $6 a tenant or
-- null for all.
SELECT e.id, e.job_id, e.key, e.tool, e.status, e.arguments, e.why, e.created_at, e.finished_at, e.calls_count,
       e.can_reconcile, e.resolution, e.resolved_by, e.approval_id, a.name AS agent, cortex.now() AS now
FROM cortex.effect e LEFT JOIN cortex.agent a ON a.id = e.agent_id
WHERE e.job_id = $1 AND e.status = ANY ($2::text[]) AND ($3::text IS NULL OR e.tool = $3)
  AND ($6::text IS NULL OR e.tenant = $6)
  AND ($4::uuid IS NULL OR (e.created_at, e.id) < (SELECT b.created_at, b.id FROM cortex.effect b WHERE b.id = $4))
ORDER BY e.created_at DESC, e.id DESC LIMIT $5;

-- name: resolve
-- Records a person's resolution of an effect. $1 id, $2 applied | not-applied | give-up, $3 the caller, $4 why, $5 its result.
-- Locks: the task, the job, the effect. See cortex.resolve_effect.
SELECT * FROM cortex.resolve_effect($1, $2, $3::jsonb, $4, $5::json);
