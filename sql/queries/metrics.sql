-- name: figures
-- What a scrape tells of the whole system: jobs that are not finished, tasks that are due and for how long the oldest
-- has been (in seconds), dead letters that nobody has resolved. $1 how many of each are counted at most. Locks: none.
WITH RECURSIVE head AS (
    -- Walks the job types and priorities of ready tasks by index: the first of each is its oldest.
    (SELECT task, priority, run_at FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect
     ORDER BY task, priority, run_at, id LIMIT 1)
    UNION ALL
    SELECT next.* FROM head h CROSS JOIN LATERAL (
        SELECT t.task, t.priority, t.run_at FROM cortex_worker.task t
        WHERE t.state = 'READY' AND NOT t.is_suspect AND (t.task, t.priority) > (h.task, h.priority)
        ORDER BY t.task, t.priority, t.run_at, t.id LIMIT 1) next
), letter AS MATERIALIZED (
    SELECT state FROM cortex.dead_letter WHERE state IN ('OPEN', 'ESCALATED') LIMIT $1
)
SELECT (SELECT count(*) FROM (SELECT FROM cortex.job WHERE status = 'PENDING' LIMIT $1) j) AS pending,
       (SELECT count(*) FROM (SELECT FROM cortex.job WHERE status = 'RUNNING' LIMIT $1) j) AS running,
       (SELECT count(*) FROM (SELECT FROM cortex.job WHERE status = 'RETRY' LIMIT $1) j) AS retry,
       (SELECT count(*) FROM (SELECT FROM cortex.job WHERE status = 'WAITING_FOR_APPROVAL' LIMIT $1) j)
           AS waiting_for_approval,
       (SELECT count(*) FROM (SELECT FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect LIMIT $1) t) AS due,
       coalesce(extract(epoch FROM cortex.now() - (SELECT min(run_at) FROM (SELECT run_at FROM head LIMIT 1000) h)),
                0)::float8 AS oldest_due_s,
       (SELECT count(*) FROM letter WHERE state = 'OPEN') AS open,
       (SELECT count(*) FROM letter WHERE state = 'ESCALATED') AS escalated;
