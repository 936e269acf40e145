-- name: spawn
-- Submits children of a running job, from one ordinal of a step on. $1 job, $2 attempt, $3 pod, $4 key of the step, $5
-- the first ordinal, $6 their ids, $7 their payloads, $8 their terms, $9 how many of the step may run at once (null: they
-- are held), $10 the most ancestors that they may have. Locks: the job's task, its record. Returns a verdict, see
-- cortex.spawn_children, and which ordinal it is about.
SELECT s.verdict, s.ordinal FROM cortex.spawn_children(
    $1, $2, $3, $4, $5, $6::uuid[], $7::text[]::jsonb[], $8::jsonb, $9, $10) AS s;

-- name: adopt
-- Takes on what an earlier job of the lineage left at a step. $1 job, $2 attempt, $3 pod, $4 key of the step, $5 the first
-- ordinal, $6 ids for jobs that continue others, $7 how many may run at once. Locks: the job's task, dead letters of children,
-- the children that nobody else has locked.
SELECT cortex.adopt_children($1, $2, $3, $4, $5, $6::uuid[], $7) AS verdict;

-- name: ids
-- The children of a step. $1 first job of the lineage, $2 key of the step, $3 the first ordinal, $4 limit. Locks: none.
SELECT c.ordinal, c.job_id FROM cortex.job_child c
WHERE c.lineage_id = $1 AND c.step = $2 AND c.ordinal >= $3 ORDER BY c.ordinal LIMIT $4;

-- name: outcomes
-- How the children of a step ended, from an ordinal on, as far as all before them have ended. $1 first job of the lineage,
-- $2 key of the step, $3 the first ordinal, $4 limit, $5 bytes of results after which no other is returned, $6 the parent.
-- Locks: none. One that an earlier job of the lineage left failed or cancelled, or cancelled just when this one took it on,
-- counts as not ended.
WITH ended AS (
    SELECT c.ordinal, c.job_id, c.parent_id, j.status::text AS status, j.result::text AS result, j.error_message,
           j.error_code, j.error_class, j.cancelled_by, j.cancel_reason, c.is_held,
           (SELECT 'job:' || p.origin_id FROM cortex.job_record p WHERE p.id = $6) AS earlier
    FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
    WHERE c.lineage_id = $1 AND c.step = $2 AND c.ordinal >= $3 AND c.ordinal < least(
        coalesce((SELECT o.ordinal FROM cortex.job_child o
                  WHERE o.lineage_id = $1 AND o.step = $2 AND NOT o.is_held AND o.ended_at IS NULL AND o.ordinal >= $3
                  ORDER BY o.ordinal LIMIT 1), 2147483647),
        coalesce((SELECT o.ordinal FROM cortex.job_child o
                  WHERE o.lineage_id = $1 AND o.step = $2 AND o.is_held AND o.ended_at IS NULL AND o.ordinal >= $3
                  ORDER BY o.ordinal LIMIT 1), 2147483647))
    ORDER BY c.ordinal LIMIT $4
), whole AS (
    SELECT e.*,
           e.parent_id <> $6 AND (e.is_held OR e.status IS DISTINCT FROM 'COMPLETED')
           OR e.status IS NOT DISTINCT FROM 'CANCELLED' AND e.cancelled_by IS NOT DISTINCT FROM e.earlier AS is_left,
           coalesce(sum(octet_length(e.result)) OVER (ORDER BY e.ordinal), 0) AS bytes
    FROM ended e
)
SELECT w.ordinal, w.job_id, w.status, w.result, w.error_message, w.error_code, w.error_class, w.cancelled_by,
       w.cancel_reason, w.is_left
FROM whole w WHERE w.bytes <= $5 OR w.ordinal = $3 ORDER BY w.ordinal;

-- name: withdraw
-- Gives up children that ended jobs still held. $1 how many. Locks: the children, by lineage, step and ordinal. Repeat it
-- until it returns none.
SELECT cortex.withdraw_children($1) AS count;

-- name: cuts
-- Children to be cancelled, with their job, which has ended or waits for those of a step no more. $1 limit. Locks: none.
SELECT p.parent_id, p.step, j.status::text AS status, j.cancel_reason, k.job_id
FROM cortex.child_cut p JOIN cortex.job_record j ON j.id = p.parent_id
LEFT JOIN LATERAL (
    SELECT c.job_id FROM cortex.job_child c JOIN cortex.job_record r ON r.id = c.job_id
    WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.parent_id = j.id AND c.ended_at IS NULL AND NOT c.is_held
      AND NOT c.is_detached AND r.cancel_requested_at IS NULL AND (p.step = '' OR c.step = p.step)
    LIMIT $1) k ON true
ORDER BY p.at, p.parent_id, p.step LIMIT $1;

-- name: forget_cuts
-- Forgets jobs whose children are all cancelled, or asked to end. $1 the jobs. Locks: their rows.
SELECT cortex.forget_cuts($1::uuid[]) AS count;

-- name: tree_jobs
-- Children of some jobs, those that people must see first: failed, then those that have not ended. $1 the jobs, $2 most of
-- each. Locks: none.
SELECT t.*, cortex.budgets_of(t.lineage_id) AS budgets FROM (
    SELECT p.id AS parent_id, c.step, c.ordinal, c.job_id AS id, c.is_detached, c.is_held AND c.ended_at IS NOT NULL AS is_withdrawn,
           coalesce(j.type, c.terms->>'type') AS type, j.status::text AS status, j.waiting_on, j.created_at, j.started_at,
           j.finished_at, j.error_message, coalesce(j.has_children, false) AS has_children, cortex.now() AS now,
           coalesce(j.lineage_id, j.id) AS lineage_id, row_number() OVER (
               PARTITION BY p.id ORDER BY
               CASE WHEN j.status::text = 'FAILED' THEN 0 WHEN c.ended_at IS NULL AND NOT c.is_held THEN 1
                    WHEN j.status::text = 'CANCELLED' THEN 2 WHEN j.status::text = 'COMPLETED' THEN 3 ELSE 4 END,
               c.step, c.ordinal) AS place
    FROM (SELECT r.id, coalesce(r.lineage_id, r.id) AS lineage_id
          FROM unnest($1::uuid[]) AS w(id) JOIN cortex.job_record r ON r.id = w.id) p
    JOIN cortex.job_child c ON c.lineage_id = p.lineage_id LEFT JOIN cortex.job j ON j.id = c.job_id) t
WHERE t.place <= $2 ORDER BY t.parent_id, t.step, t.ordinal;

-- name: tree_counts
-- How many children of some jobs are in which state, by step. $1 the jobs. Locks: none. Null: not submitted yet, or never.
SELECT p.id AS parent_id, c.step, j.status::text AS status,
       count(*) AS count, c.is_held AND c.ended_at IS NOT NULL AS is_withdrawn
FROM (SELECT r.id, coalesce(r.lineage_id, r.id) AS lineage_id
      FROM unnest($1::uuid[]) AS w(id) JOIN cortex.job_record r ON r.id = w.id) p
JOIN cortex.job_child c ON c.lineage_id = p.lineage_id LEFT JOIN cortex.job j ON j.id = c.job_id
GROUP BY 1, 2, 3, 5 ORDER BY 1, 2, 3;

-- name: tree_root
-- One job, as the root of its tree. $1 id. Locks: none.
SELECT j.id, j.type, j.status::text AS status, j.waiting_on, j.created_at, j.started_at, j.finished_at, j.error_message,
       j.parent_id, p.type AS parent_type, coalesce(j.has_children, false) AS has_children, cortex.now() AS now,
       c.step, c.ordinal, coalesce(c.is_detached, false) AS is_detached, false AS is_withdrawn,
       cortex.budgets_of(coalesce(j.lineage_id, j.id)) AS budgets
FROM cortex.job j LEFT JOIN cortex.job_record p ON p.id = j.parent_id LEFT JOIN cortex.job_child c ON c.job_id = j.id
WHERE j.id = $1;
