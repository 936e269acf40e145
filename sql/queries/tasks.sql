-- name: promote
-- Makes due LATER tasks, and the next task of each idle named queue that may move on, ready to be claimed, except in paused
-- queues. In a strict queue, the next task is that of the job that has begun; while that waits without a due task, there
-- is none. A task that the limits of its type have not let through is held instead: they decide when it becomes ready.
-- In another one, tasks that no living pod can take make way; so do those of paused tenants, and paused jobs. $1 limit. Locks: the promoted tasks, skipping locked
-- LATER ones. Returns how many became ready, or $1 if more queues may move on, or one has yet more tasks that must make
-- way. If a queue's head became ready meanwhile, task_queue_head refuses: repeat the statement.
WITH later AS MATERIALIZED (
    SELECT job_id FROM cortex_worker.task
    WHERE state = 'LATER' AND run_at <= cortex.now()
      -- Tasks of a named queue are never LATER.
      AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause WHERE queue = '')
    ORDER BY run_at LIMIT $1 FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT q.ctid AS place, queue FROM cortex_worker.queue_due q WHERE due_at <= cortex.now() ORDER BY due_at LIMIT $1
    FOR UPDATE SKIP LOCKED
), idle AS MATERIALIZED (
    SELECT q.queue AS queue_name, EXISTS (SELECT FROM cortex_worker.strict_queue s WHERE s.queue = q.queue) AS is_strict
    -- In this order, so that two pods lock the same tasks in the same one.
    FROM (SELECT DISTINCT queue FROM due ORDER BY queue) q
    -- Not EXISTS: a plan may read the heads of all queues for that.
    WHERE (SELECT true FROM cortex_worker.task t
           WHERE t.queue_name = q.queue AND t.state IN ('HELD', 'READY', 'LOCKED') LIMIT 1) IS NULL
      AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = q.queue)
), picky AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM cortex_worker.pause WHERE kind IN ('job', 'tenant')) AS is_so
), front AS MATERIALIZED (
    SELECT t.job_id, idle.queue_name, t.nth, p.pause, p.pause IS NOT NULL
               OR NOT idle.is_strict AND EXISTS (SELECT FROM cortex_worker.stranded s WHERE s.task = t.task) AS makes_way
    FROM idle CROSS JOIN LATERAL (
        -- Not SKIP LOCKED: pods that promote at the same time must choose the same task.
        (SELECT job_id, task, is_admitted, row_number() OVER (ORDER BY priority, run_at, id) AS nth FROM cortex_worker.task
        WHERE state = 'QUEUED' AND queue_name = idle.queue_name AND run_at <= cortex.now()
        ORDER BY priority, run_at, id
        -- More than the first one are read only if that must make way.
        LIMIT CASE WHEN NOT idle.is_strict AND EXISTS (
            SELECT FROM cortex_worker.stranded s WHERE s.task = (
                SELECT w.task FROM cortex_worker.task w
                WHERE w.state = 'QUEUED' AND w.queue_name = idle.queue_name AND w.run_at <= cortex.now()
                ORDER BY w.priority, w.run_at, w.id LIMIT 1))
            OR (SELECT is_so FROM picky) AND cortex_worker.pause_of((
                SELECT w.job_id FROM cortex_worker.task w
                WHERE w.state = 'QUEUED' AND w.queue_name = idle.queue_name AND w.run_at <= cortex.now()
                ORDER BY w.priority, w.run_at, w.id LIMIT 1)) IS NOT NULL THEN 100 ELSE 1 END)
        UNION ALL
        -- Within its priority, the earliest deadline comes first.
        SELECT d.job_id, d.task, d.is_admitted, 0 FROM (
            SELECT job_id, task, is_admitted, priority FROM cortex_worker.task
            WHERE state = 'QUEUED' AND queue_name = idle.queue_name AND due_by IS NOT NULL AND run_at <= cortex.now()
            ORDER BY priority, due_by, id LIMIT 1) d
        WHERE d.priority <= (
            SELECT w.priority FROM cortex_worker.task w
            WHERE w.state = 'QUEUED' AND w.queue_name = idle.queue_name AND w.run_at <= cortex.now()
            ORDER BY w.priority, w.run_at, w.id LIMIT 1)) t
    -- One with places in limits gives them back when it is set aside, by the runner `line`.
    CROSS JOIN LATERAL (SELECT CASE WHEN (SELECT is_so FROM picky) AND t.is_admitted IS NOT TRUE
                               THEN cortex_worker.pause_of(t.job_id) END AS pause) p
    -- A running job is READY or LOCKED in its queue. One that has begun has another state than PENDING in its record.
    WHERE NOT idle.is_strict OR NOT EXISTS (
        SELECT FROM cortex.job_record j
        WHERE j.queue_name = idle.queue_name AND j.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL'))
), able AS MATERIALIZED (
    SELECT DISTINCT ON (queue_name) queue_name, nth, job_id FROM front WHERE NOT makes_way ORDER BY queue_name, nth
), head AS MATERIALIZED (
    SELECT queue_name, job_id FROM able
    UNION ALL
    SELECT idle.queue_name, t.job_id FROM idle CROSS JOIN LATERAL (
        SELECT t.job_id FROM cortex.job_record j JOIN cortex_worker.task t ON t.job_id = j.id
        WHERE j.queue_name = idle.queue_name AND j.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')
          AND t.state = 'QUEUED' AND t.run_at <= cortex.now()
        ORDER BY t.priority, t.run_at, t.id LIMIT 1) t
    WHERE idle.is_strict
), ready AS (
    UPDATE cortex_worker.task t
    SET state = (CASE WHEN t.is_admitted IS FALSE THEN 'HELD' ELSE 'READY' END)::cortex_worker.task_state
    FROM (SELECT job_id FROM later UNION ALL SELECT job_id FROM head) d
    WHERE t.job_id = d.job_id AND t.state IN ('LATER', 'QUEUED')
    RETURNING t.job_id, t.state
), hinted AS (
    SELECT pg_notify('cortex_limit', '') FROM (SELECT FROM ready WHERE state = 'HELD' LIMIT 1) r
), made_way AS (
    UPDATE cortex_worker.task t
    SET state = (CASE WHEN f.pause IS NULL THEN 'STRANDED' ELSE 'PAUSED' END)::cortex_worker.task_state, pause = f.pause
    FROM front f LEFT JOIN able a ON a.queue_name = f.queue_name
    -- As text: a plan that was made while no task waited would read all of them by the index of the queues.
    WHERE t.job_id = f.job_id AND t.state::text = 'QUEUED' AND f.makes_way AND f.nth < coalesce(a.nth, f.nth + 1)
    RETURNING f.queue_name
), again AS MATERIALIZED (
    SELECT m.queue_name FROM made_way m WHERE m.queue_name NOT IN (SELECT a.queue_name FROM able a)
), done AS (
    -- Looked at again: a queue with yet more that must make way, or whose next task was ended just now.
    DELETE FROM cortex_worker.queue_due q USING due
    -- By place: a plan for few rows would compare each with each.
    WHERE q.ctid = due.place AND due.queue NOT IN (SELECT a.queue_name FROM again a)
      AND due.queue NOT IN (SELECT h.queue_name FROM head h WHERE h.job_id NOT IN (SELECT r.job_id FROM ready r))
)
SELECT CASE WHEN EXISTS (SELECT FROM again) OR (SELECT count(*) FROM due) >= $1
            THEN greatest($1, (SELECT count(*) FROM ready)) ELSE (SELECT count(*) FROM ready) END AS count,
       (SELECT count(*) FROM hinted) AS hint_count;

-- name: walk_queues
-- Names queues whose next task could begin, and that nothing has named: none, unless a change was lost. Looks at the
-- waiting queues after $1 by name, at most $2. Locks: none. Returns the last one looked at, or null after the last of all,
-- and how many it named.
WITH RECURSIVE queue AS (
    -- Walks the distinct names of the queues by index, one probe per name.
    (SELECT queue_name, 1 AS nth FROM cortex_worker.task WHERE state = 'QUEUED' AND queue_name > $1
     ORDER BY queue_name LIMIT 1)
    UNION ALL
    SELECT n.queue_name, q.nth + 1 FROM queue q CROSS JOIN LATERAL (
        SELECT t.queue_name FROM cortex_worker.task t WHERE t.state = 'QUEUED' AND t.queue_name > q.queue_name
        ORDER BY t.queue_name LIMIT 1) n
    WHERE q.nth < $2
), idle AS MATERIALIZED (
    SELECT q.queue_name FROM queue q
    WHERE (SELECT true FROM cortex_worker.task t
           WHERE t.queue_name = q.queue_name AND t.state IN ('HELD', 'READY', 'LOCKED') LIMIT 1) IS NULL
      AND (SELECT true FROM cortex_worker.task t
           WHERE t.state = 'QUEUED' AND t.queue_name = q.queue_name AND t.run_at <= cortex.now() LIMIT 1)
      AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = q.queue_name)
      -- A job that has begun and waits holds back the others of a strict queue, but not itself.
      AND (NOT EXISTS (SELECT FROM cortex_worker.strict_queue s WHERE s.queue = q.queue_name)
           OR NOT EXISTS (
               SELECT FROM cortex.job_record j
               WHERE j.queue_name = q.queue_name AND j.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL'))
           OR EXISTS (
               SELECT FROM cortex.job_record j JOIN cortex_worker.task t ON t.job_id = j.id
               WHERE j.queue_name = q.queue_name AND j.status IN ('RUNNING', 'RETRY', 'WAITING_FOR_APPROVAL')
                 AND t.state = 'QUEUED' AND t.run_at <= cortex.now()))
), named AS (
    INSERT INTO cortex_worker.queue_due (queue, due_at)
    SELECT i.queue_name, '-infinity' FROM idle i
    WHERE NOT EXISTS (SELECT FROM cortex_worker.queue_due q WHERE q.queue = i.queue_name AND q.due_at <= cortex.now())
    RETURNING queue
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (SELECT FROM named LIMIT 1) n
)
SELECT (SELECT q.queue_name FROM queue q WHERE q.nth = $2) AS latest, (SELECT count(*)::int FROM named) AS count,
       (SELECT count(*) FROM hinted) AS hint_count;

-- name: claim
-- Gives ready tasks of the pod's types to it, under a new attempt: that makes their jobs RUNNING. It takes none that a
-- pause holds back, nor reads those of paused types. Within a priority, tasks with a deadline come first, the earliest
-- before others. Without pauses and deadlines, what they need is not even set up: see due_beside_pauses. $1 pod id,
-- $2 job types, $3 limit, $4 the pod's config, $5 how many of them may run in their own processes: suspects, and all of the
-- types in $7, which are not in $2; $6 the pod's tools: jobs of agents with other tools are left to other pods, and so
-- are those that the pod's code has handed back. Locks:
-- tasks (ordered, skipping locked). A job is read as it was when the statement began. What writes the record of a job
-- that has a task locks the task first, and a task that changed meanwhile is passed over: the next claim takes it.
WITH way AS MATERIALIZED (
    -- Two probes of what is empty without pauses and deadlines.
    SELECT EXISTS (SELECT FROM cortex_worker.pause) AS has_pauses,
           EXISTS (SELECT FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect AND due_by IS NOT NULL) AS has_due
), known AS MATERIALIZED (
    SELECT unnest(cortex.claimable(
        CASE WHEN (SELECT has_pauses FROM way) THEN cortex_worker.open_types($2::text[]) ELSE $2::text[] END,
        $6::text[], cortex.code_of($1))) AS task
), isolated AS MATERIALIZED (
    SELECT unnest(cortex.claimable(cortex_worker.open_types($7::text[]), '{}', cortex.code_of($1))) AS task WHERE $7::text[] <> '{}'
), due AS MATERIALIZED (
    SELECT t.place, t.job_id FROM (
        SELECT t.* FROM known CROSS JOIN LATERAL (
            SELECT t.ctid AS place, job_id, priority, NULL::timestamptz AS due_by, run_at, id FROM cortex_worker.task t
            WHERE task = known.task AND state = 'READY' AND NOT is_suspect AND NOT (SELECT has_pauses OR has_due FROM way)
            ORDER BY priority, run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) t
        UNION ALL
        (SELECT t.* FROM (
            SELECT t.* FROM (SELECT task FROM known UNION ALL SELECT task FROM isolated) known CROSS JOIN LATERAL (
                SELECT t.ctid AS place, job_id, priority, NULL::timestamptz AS due_by, run_at, id FROM cortex_worker.task t
                WHERE task = known.task AND state = 'READY' AND is_suspect AND NOT (SELECT has_pauses OR has_due FROM way)
                ORDER BY priority, run_at, id LIMIT $5 FOR UPDATE SKIP LOCKED) t
            UNION ALL
            SELECT t.* FROM isolated known CROSS JOIN LATERAL (
                SELECT t.ctid AS place, job_id, priority, NULL::timestamptz AS due_by, run_at, id FROM cortex_worker.task t
                WHERE task = known.task AND state = 'READY' AND NOT is_suspect AND NOT (SELECT has_pauses OR has_due FROM way)
                ORDER BY priority, run_at, id LIMIT $5 FOR UPDATE SKIP LOCKED) t) t
         ORDER BY t.priority, t.run_at, t.id LIMIT $5)
        UNION ALL
        SELECT t.* FROM cortex_worker.due_beside_pauses(
            ARRAY(SELECT task FROM known), ARRAY(SELECT task FROM isolated), $3, $5) t
        WHERE (SELECT has_pauses OR has_due FROM way)) t
    ORDER BY t.priority, t.due_by, t.run_at, t.id LIMIT $3
)
{give};

-- name: claim_one
-- Gives the ready task of one job to a pod that runs no other job, under the same conditions as `claim`. $1 pod id, $2
-- job id, $3 job types, $4 the pod's config, $5 the pod's tools. Locks: the task (skipped if it is locked).
WITH due AS MATERIALIZED (
    SELECT t.ctid AS place, t.job_id FROM cortex_worker.task t
    WHERE t.job_id = $2 AND t.state = 'READY'
      AND t.task = ANY (cortex.claimable(cortex_worker.open_types($3::text[]), $5::text[], cortex.code_of($1)))
      AND NOT EXISTS (SELECT FROM cortex_worker.queue_pause p WHERE p.queue = coalesce(t.queue_name, ''))
      AND cortex_worker.pause_of(t.job_id) IS NULL
    FOR UPDATE SKIP LOCKED
)
{give};

-- fragment: give
-- Makes the tasks `due` those of pod $1, under a new attempt; $4 is its config.
UPDATE cortex_worker.task t
SET state = 'LOCKED', locked_by = $1, locked_at = cortex.now(), heartbeat_at = cortex.now(), checkpoint = NULL,
    attempt = t.attempt + 1, attempts_spent = t.attempts_spent + 1, config_id = coalesce(j.config_id, $4)
FROM due JOIN cortex.job_record j ON j.id = due.job_id
WHERE t.ctid = due.place
RETURNING j.id, j.type, t.attempt, t.attempts_spent, t.max_attempts, t.is_suspect, j.process_deaths, j.payload,
          j.agent_id, j.agent_version, t.queue_name IS NOT NULL AS is_queued,
          j.cancel_requested_at IS NOT NULL AS cancel_requested,
          j.checkpoint <> '{}' AS has_steps,
          j.has_open,
          -- Time without a pod does not count towards the timeout.
          greatest(0, j.timeout_s + cortex.waited_s(j.waited_s, j.suspended_at, t.locked_at)
              - coalesce(date_part('epoch', t.locked_at - j.started_at), 0)) AS left_s,
          j.timeout_s, j.tenant, j.retry_count, j.max_retries, j.rate_limit_count, t.config_id, j.lineage_id,
          j.waits_count, date_part('epoch', j.own_failure_at) AS own_failure_unix_s, j.broken_answers,
          greatest(0, date_part('epoch', t.locked_at - j.run_at)) AS due_for_s, j.traceparent

-- name: orphans
-- Jobs that a pod owns but does not run: the claims of a statement whose reply was lost, or jobs that it had to stop
-- when it could not reach the database. $1 pod id, $2 ids of the jobs that it runs. Locks: none.
SELECT id, max(attempt) AS attempt FROM (
    SELECT t.job_id AS id, t.attempt, true AS is_owned FROM cortex_worker.task t
    WHERE t.state = 'LOCKED' AND t.locked_by = $1
    UNION ALL
    -- Not ALL ($2): that would compare each job with each of the others.
    SELECT known.id, NULL, false FROM unnest($2::uuid[]) AS known(id)) j
GROUP BY id HAVING bool_and(is_owned);

-- name: hold
-- Locks the tasks of a pod before a statement that must see what others did to their jobs until then. $1 pod id, $2 job
-- ids. Locks: the tasks (ordered).
SELECT job_id FROM cortex_worker.task WHERE job_id = ANY ($2::uuid[]) AND locked_by = $1
ORDER BY job_id FOR UPDATE;

-- name: locked
-- Which of these jobs cannot be written right now, because another session has locked a row of theirs. $1 job ids.
-- Locks: briefly, the unlocked tasks, jobs and effects, skipping locked.
WITH asked AS MATERIALIZED (
    SELECT DISTINCT a.id FROM unnest($1::uuid[]) AS a(id)
), free_task AS MATERIALIZED (
    SELECT t.job_id FROM asked JOIN cortex_worker.task t ON t.job_id = asked.id FOR UPDATE OF t SKIP LOCKED
), free_job AS MATERIALIZED (
    SELECT j.id FROM asked JOIN cortex.job_record j ON j.id = asked.id FOR NO KEY UPDATE OF j SKIP LOCKED
), free_effect AS MATERIALIZED (
    SELECT e.id FROM asked JOIN cortex.effect e ON e.job_id = asked.id FOR UPDATE OF e SKIP LOCKED
)
SELECT t.job_id AS id FROM asked JOIN cortex_worker.task t ON t.job_id = asked.id
WHERE t.job_id NOT IN (SELECT job_id FROM free_task)
UNION
SELECT j.id FROM asked JOIN cortex.job_record j ON j.id = asked.id WHERE j.id NOT IN (SELECT id FROM free_job)
UNION
SELECT e.job_id FROM asked JOIN cortex.effect e ON e.job_id = asked.id WHERE e.id NOT IN (SELECT id FROM free_effect);

-- name: release
-- Ends attempts without ending their jobs: the tasks wait for another pod. A job whose key another job took is
-- cancelled instead: its successor may have run. The task of a job that has ended is deleted.
-- $1 pod id; per attempt: $2 job ids (ordered), $3 attempts, $4 attempts to give back (0 or 1),
-- $5 delays in seconds, $6 outcomes, $7 errors, $8 their codes, $9 classes, $10 sources, $11 data of their facts.
-- Locks: tasks, then jobs. Returns the jobs released.
WITH ended AS (
    SELECT e.job_id, e.attempt, e.given_back, e.outcome, e.error, e.code, e.class, e.source, e.fact,
           -- A job with a cancellation request does not wait.
           CASE WHEN j.cancel_requested_at IS NULL THEN e.delay_s ELSE 0 END AS delay_s,
           j.replaced_by IS NOT NULL OR j.finished_at IS NOT NULL AS is_over
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::float8[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::jsonb[])
        AS e(job_id, attempt, given_back, delay_s, outcome, error, code, class, source, fact)
    JOIN cortex.job_record j ON j.id = e.job_id
), freed AS (
    UPDATE cortex_worker.task t
    SET locked_by = NULL, attempts_spent = t.attempts_spent - e.given_back,
        -- An attempt that its own handler ended has shown that it kills nothing; a hand-back shows nothing.
        is_suspect = e.outcome = 'process_died' OR e.outcome = 'handed_back' AND t.is_suspect,
        -- Without a delay it keeps its place: a backlog does not go before a job that was started.
        run_at = CASE WHEN e.delay_s > 0 THEN cortex.now() + e.delay_s * interval '1 second' ELSE t.run_at END,
        state = (CASE WHEN t.queue_name IS NOT NULL THEN 'QUEUED'
                      WHEN e.delay_s > 0 THEN 'LATER' ELSE 'READY' END)::cortex_worker.task_state
    FROM ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1 AND NOT e.is_over
    RETURNING e.job_id, e.attempt, e.outcome, e.error, e.code, e.class, e.source, e.fact, t.run_at, t.is_suspect,
              t.locked_at, t.config_id, t.checkpoint, t.checkpoint IS NOT NULL AS has_stepped, e.is_over
), gone AS (
    DELETE FROM cortex_worker.task t USING ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1 AND e.is_over
    RETURNING e.job_id, e.attempt, e.outcome, e.error, e.code, e.class, e.source, e.fact, t.run_at, t.is_suspect,
              t.locked_at, t.config_id, t.checkpoint, t.checkpoint IS NOT NULL AS has_stepped, e.is_over
), released AS (
    UPDATE cortex.job_record j
    SET status = (CASE WHEN f.is_over THEN 'CANCELLED' ELSE 'RUNNING' END)::cortex.job_status,
        attempt = f.attempt, pod_id = CASE WHEN f.is_over THEN $1 END,
        worker_job_id = CASE WHEN NOT f.is_over THEN j.worker_job_id END,
        started_at = coalesce(j.started_at, f.locked_at), config_id = f.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, f.locked_at),
        suspended_at = cortex.now(), checkpoint = coalesce(f.checkpoint, j.checkpoint),
        pod_deaths = CASE WHEN f.is_suspect AND NOT f.has_stepped THEN j.pod_deaths ELSE 0 END,
        process_deaths = CASE WHEN f.is_suspect AND NOT f.has_stepped THEN j.process_deaths ELSE 0 END
                         + CASE WHEN f.outcome = 'process_died' THEN 1 ELSE 0 END,
        waits_count = CASE WHEN f.has_stepped THEN 0 ELSE j.waits_count END,
        own_failure_at = CASE WHEN NOT f.has_stepped THEN j.own_failure_at END,
        next_retry_at = NULL, waiting_on = NULL
    FROM (SELECT * FROM freed UNION ALL SELECT * FROM gone) f
    WHERE j.id = f.job_id AND j.attempt < f.attempt AND j.finished_at IS NULL
    RETURNING j.id, j.tenant, j.agent_id, j.agent_version, j.retry_count,
              f.attempt, f.outcome, f.error, f.code, f.class, f.source, f.fact, f.run_at, j.status
), noted AS (
    INSERT INTO cortex.job_attempt (
        job_id, attempt, pod_id, outcome, due_at, error, error_code, error_class, error_source, retry_count)
    SELECT id, attempt, $1, outcome, greatest(run_at, cortex.now()), error, code, class, source, retry_count
    FROM released WHERE status = 'RUNNING'
), fact AS (
    INSERT INTO cortex.fact (
        type, subtype, source, tenant, job_id, attempt, agent_id, agent_version, pod_id, data)
    SELECT 'error', code, source, tenant, id, attempt, agent_id, agent_version, $1, fact
    FROM released WHERE fact IS NOT NULL
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued')
    FROM (SELECT FROM released WHERE run_at <= cortex.now() OR status = 'CANCELLED' LIMIT 1) r
)
SELECT id FROM released LEFT JOIN hinted ON true;

-- name: misfit
-- Ends attempts that their pod's code cannot take, without any trace in what is counted: the jobs wait for other code,
-- and only pods that have it claim their tasks. $1 pod id; per attempt: $2 job ids (ordered), $3 attempts, $4 what does
-- not fit, $5 that in words; $6 seconds after which a job fails that no code has taken. Locks: tasks, then jobs; briefly
-- the kinds of tasks. Returns the jobs handed back. A job with a cancellation request, or whose key another job took, is
-- cancelled instead. One of a named queue that no living pod can take makes way at once.
WITH ended AS MATERIALIZED (
    SELECT e.job_id, e.attempt, e.kind, e.error,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL OR j.finished_at IS NOT NULL AS is_cancelled,
           coalesce(u.base, t.task) AS base,
           ARRAY(SELECT DISTINCT c.id FROM unnest(j.unfit_codes || cortex.code_of($1)) AS c(id) ORDER BY c.id) AS codes,
           t.queue_name IS NOT NULL
               AND NOT EXISTS (SELECT FROM cortex_worker.strict_queue q WHERE q.queue = t.queue_name) AS may_pass
    FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[]) AS e(job_id, attempt, kind, error)
    JOIN cortex.job_record j ON j.id = e.job_id
    JOIN cortex_worker.task t ON t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1
    LEFT JOIN cortex_worker.unfit u ON u.task = t.task
), named AS (
    INSERT INTO cortex_worker.unfit (task, base, codes)
    SELECT DISTINCT cortex_worker.unfit_task(e.base, e.codes) AS task, e.base, e.codes FROM ended e ORDER BY task
    ON CONFLICT (task) DO UPDATE SET used_at = excluded.used_at
), served AS MATERIALIZED (
    SELECT s.task, s.code FROM cortex.served_tasks() s
), freed AS (
    UPDATE cortex_worker.task t
    SET locked_by = NULL, attempts_spent = t.attempts_spent - 1, task = cortex_worker.unfit_task(e.base, e.codes),
        state = (CASE WHEN t.queue_name IS NULL THEN 'READY'
                      WHEN e.may_pass AND NOT EXISTS (
                          SELECT FROM served s WHERE s.task = e.base AND s.code <> ALL (e.codes)) THEN 'STRANDED'
                      ELSE 'QUEUED' END)::cortex_worker.task_state
    FROM ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1 AND NOT e.is_cancelled
    RETURNING e.*, t.is_suspect, t.locked_at, t.config_id, t.checkpoint, t.checkpoint IS NOT NULL AS has_stepped
), gone AS (
    DELETE FROM cortex_worker.task t USING ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1 AND e.is_cancelled
    RETURNING e.*, t.is_suspect, t.locked_at, t.config_id, t.checkpoint, t.checkpoint IS NOT NULL AS has_stepped
), handed_back AS (
    UPDATE cortex.job_record j
    SET status = (CASE WHEN f.is_cancelled THEN 'CANCELLED' ELSE 'RETRY' END)::cortex.job_status,
        waiting_on = CASE WHEN NOT f.is_cancelled THEN 'code' END,
        -- From the first of several hand-backs, if no code has taken it in between.
        next_retry_at = CASE WHEN f.is_cancelled THEN NULL
                             WHEN j.waiting_on = 'code' AND NOT f.has_stepped THEN j.next_retry_at
                             ELSE cortex.now() + $6::float8 * interval '1 second' END,
        unfit_codes = f.codes,
        attempt = f.attempt, pod_id = CASE WHEN f.is_cancelled THEN $1 END,
        worker_job_id = CASE WHEN NOT f.is_cancelled THEN j.worker_job_id END,
        started_at = coalesce(j.started_at, f.locked_at),
        config_id = CASE WHEN f.has_stepped THEN f.config_id ELSE j.config_id END,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, f.locked_at),
        suspended_at = cortex.now(), checkpoint = coalesce(f.checkpoint, j.checkpoint),
        pod_deaths = CASE WHEN f.has_stepped THEN 0 ELSE j.pod_deaths END,
        process_deaths = CASE WHEN f.has_stepped THEN 0 ELSE j.process_deaths END,
        waits_count = CASE WHEN f.has_stepped THEN 0 ELSE j.waits_count END,
        own_failure_at = CASE WHEN NOT f.has_stepped THEN j.own_failure_at END
    FROM (SELECT * FROM freed UNION ALL SELECT * FROM gone) f
    WHERE j.id = f.job_id AND j.attempt < f.attempt AND j.finished_at IS NULL
    RETURNING j.id, j.status, j.retry_count, f.attempt, f.kind, f.error
), noted AS (
    INSERT INTO cortex.job_attempt (
        job_id, attempt, pod_id, outcome, due_at, error, error_code, error_source, retry_count)
    SELECT id, attempt, $1, 'misfit', cortex.now(), error, 'unfit', kind, retry_count
    FROM handed_back WHERE status = 'RETRY'
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (SELECT FROM handed_back LIMIT 1) h
)
SELECT id FROM handed_back LEFT JOIN hinted ON true;

-- name: fail_unfit
-- Fails jobs that waited too long for code: those that were handed back, at their time; and those whose type or tools no
-- living pod or recent tick has, once that has lasted too long. $1 seconds, $2 the same in words, $3
-- limit. Locks: tasks and their jobs (skipping locked). A job with a cancellation request is cancelled. Returns how many
-- were ended.
WITH late AS MATERIALIZED (
    SELECT l.job_id FROM (
        (SELECT j.id AS job_id FROM cortex.job_record j
         WHERE j.status = 'RETRY' AND j.worker_job_id IS NOT NULL AND j.waiting_on = 'code'
           AND j.next_retry_at <= cortex.now()
           AND (SELECT t.task FROM cortex_worker.task t WHERE t.job_id = j.id) IN (
               -- Pods that start together are given a moment.
               SELECT s.task FROM cortex_worker.stranded s
               WHERE s.since < cortex.now() - least($1::float8, 60) * interval '1 second')
         ORDER BY j.next_retry_at LIMIT $3)
        UNION ALL
        (SELECT t.job_id FROM cortex_worker.stranded s CROSS JOIN LATERAL (
             -- One by one: each state has an index of its own.
             (SELECT t.job_id, t.run_at FROM cortex_worker.task t
              WHERE t.task = s.task AND t.state = 'READY' AND NOT t.is_suspect LIMIT $3)
             UNION ALL
             (SELECT t.job_id, t.run_at FROM cortex_worker.task t
              WHERE t.task = s.task AND t.state = 'READY' AND t.is_suspect LIMIT $3)
             UNION ALL
             (SELECT t.job_id, t.run_at FROM cortex_worker.task t
              WHERE t.task = s.task AND t.state = 'STRANDED' LIMIT $3)) t
         WHERE s.since < cortex.now() - $1::float8 * interval '1 second'
           AND t.run_at < cortex.now() - $1::float8 * interval '1 second' LIMIT $3)) l
), held AS MATERIALIZED (
    SELECT DISTINCT t.job_id FROM late JOIN cortex_worker.task t ON t.job_id = late.job_id WHERE t.state <> 'LOCKED'
), taken AS MATERIALIZED (
    SELECT j.id, j.waiting_on IS NOT DISTINCT FROM 'code' AS has_misfit,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL AS is_cancelled
    FROM held JOIN cortex_worker.task t ON t.job_id = held.job_id JOIN cortex.job_record j ON j.id = held.job_id
    WHERE t.state <> 'LOCKED' AND j.finished_at IS NULL
      AND (j.waiting_on IS DISTINCT FROM 'code' OR j.next_retry_at <= cortex.now())
    ORDER BY j.id FOR UPDATE OF t, j SKIP LOCKED
), gone AS (
    DELETE FROM cortex_worker.task t USING taken WHERE t.job_id = taken.id
), ended AS (
    UPDATE cortex.job_record j
    SET status = (CASE WHEN taken.is_cancelled THEN 'CANCELLED' ELSE 'FAILED' END)::cortex.job_status,
        next_retry_at = NULL, waiting_on = NULL, worker_job_id = NULL,
        error_code = CASE WHEN NOT taken.is_cancelled THEN 'unfit' END,
        error_class = CASE WHEN NOT taken.is_cancelled THEN 'PERMANENT' END,
        error_message = CASE WHEN NOT taken.is_cancelled THEN
            CASE WHEN NOT taken.has_misfit THEN format('no pod could take its type %s or its tools for %s', j.type, $2::text)
                 ELSE format('no code has taken it within %s: %s', $2::text, (
                     SELECT a.error FROM cortex.job_attempt a WHERE a.job_id = j.id AND a.outcome = 'misfit'
                     ORDER BY a.attempt DESC LIMIT 1)) END END
    FROM taken WHERE j.id = taken.id
    RETURNING j.*
), fact AS (
    INSERT INTO cortex.fact (type, subtype, tenant, job_id, attempt, agent_id, agent_version, data)
    SELECT 'error', error_code, tenant, id, attempt, agent_id, agent_version,
           jsonb_build_object('class', error_class, 'message', error_message, 'retry_count', retry_count,
                              'max_retries', max_retries)
    FROM ended WHERE status = 'FAILED'
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (SELECT FROM ended LIMIT 1) e
)
SELECT (SELECT count(*) FROM ended) AS count, (SELECT count(*) FROM hinted) AS hint_count;

-- name: forget_unfit
-- Forgets kinds of tasks that some code cannot take, a day after the last one got such a name, if none has it. Locks: the
-- kinds. Whoever names a task so holds its kind first: then it is not forgotten.
DELETE FROM cortex_worker.unfit u
WHERE u.used_at < cortex.now() - interval '1 day'
  AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.task = u.task)
RETURNING u.task;

-- name: suspend
-- Ends attempts and their tasks: the jobs are in RETRY until they are due, or wait for a person. $1 pod id; per
-- attempt: $2 job ids (ordered), $3 attempts, $4 seconds until due or null for a person, $5 whether a retry is used, $6
-- what is waited for, $7 whether a rate limit is the reason, $8 errors, $9 their codes, $10 classes, $11 sources, $12
-- data of their facts, $13 whether the job's own call is the cause, $14 what people must decide (new requests for
-- approval, earlier ones, effects of unknown outcome) and what else wakes the job, $15 whether that call failed in the
-- middle of its answer. Locks: tasks, then jobs, effects and approvals. Returns the jobs suspended. A job with a
-- cancellation request, or whose key another job took, is cancelled instead; a job whose decision or resolution arrived
-- meanwhile is due at once.
WITH ended AS (
    SELECT e.job_id, e.attempt, e.counted, e.rate_limit, e.error, e.code, e.class, e.source, e.fact, e.own, e.broken, e.asked,
           CASE WHEN NOT came.already THEN e.waiting_on END AS waiting_on,
           CASE WHEN came.already THEN 0 ELSE e.delay_s END AS delay_s,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL AS is_cancelled
    FROM unnest($2::uuid[], $3::int[], $4::float8[], $5::bool[], $6::text[], $7::bool[], $8::text[], $9::text[],
                $10::text[], $11::text[], $12::jsonb[], $13::bool[], $14::jsonb[], $15::bool[])
        AS e(job_id, attempt, delay_s, counted, waiting_on, rate_limit, error, code, class, source, fact, own, asked,
             broken)
    JOIN cortex.job_record j ON j.id = e.job_id
    CROSS JOIN LATERAL (
        SELECT e.asked IS NOT NULL AND (EXISTS (
            SELECT FROM jsonb_array_elements_text(e.asked->'awaited') AS w(id)
            JOIN cortex.approval a ON a.id = w.id::uuid WHERE a.status <> 'PENDING'
        ) OR EXISTS (
            SELECT FROM jsonb_to_recordset(e.asked->'unknown') AS u(id uuid)
            JOIN cortex.effect f ON f.id = u.id WHERE f.status NOT IN ('PENDING', 'UNKNOWN') OR f.is_sure
        )) AS already) came
), gone AS (
    DELETE FROM cortex_worker.task t USING ended e
    WHERE t.job_id = e.job_id AND t.attempt = e.attempt AND t.locked_by = $1
    RETURNING e.*, t.attempts_spent, t.is_suspect, t.locked_at, t.config_id, t.checkpoint,
              t.checkpoint IS NOT NULL AS has_stepped
), suspended AS (
    UPDATE cortex.job_record j
    SET status = (CASE WHEN g.is_cancelled THEN 'CANCELLED' WHEN g.delay_s IS NULL THEN 'WAITING_FOR_APPROVAL'
                       ELSE 'RETRY' END)::cortex.job_status,
        retry_count = j.retry_count + CASE WHEN g.counted AND NOT g.is_cancelled THEN 1 ELSE 0 END,
        rate_limit_count = j.rate_limit_count + CASE WHEN g.rate_limit AND g.counted THEN 1 ELSE 0 END,
        next_retry_at = CASE WHEN NOT g.is_cancelled THEN cortex.now() + g.delay_s * interval '1 second' END,
        waiting_on = CASE WHEN NOT g.is_cancelled THEN g.waiting_on END,
        attempt = g.attempt, pod_id = CASE WHEN g.is_cancelled THEN $1 END, worker_job_id = NULL,
        started_at = coalesce(j.started_at, g.locked_at), config_id = g.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, g.locked_at),
        suspended_at = cortex.now(), checkpoint = coalesce(g.checkpoint, j.checkpoint),
        -- Waiting is not a try: the next task starts with the tries that this one had used.
        attempts_kept = CASE WHEN g.counted THEN 0 ELSE greatest(0, g.attempts_spent - 1) END,
        pod_deaths = CASE WHEN g.counted OR g.has_stepped THEN 0 ELSE j.pod_deaths END,
        process_deaths = CASE WHEN g.counted OR g.has_stepped THEN 0 ELSE j.process_deaths END,
        was_suspect = g.is_suspect AND NOT g.counted,
        waits_count = CASE WHEN g.counted THEN 0 WHEN g.has_stepped THEN 1 ELSE j.waits_count + 1 END,
        own_failure_at = CASE WHEN g.own THEN cortex.now() WHEN NOT g.has_stepped THEN j.own_failure_at END,
        broken_answers = CASE WHEN g.broken AND (g.has_stepped OR j.own_failure_at IS NULL) THEN 1
                              WHEN g.broken THEN j.broken_answers + 1 WHEN NOT g.own THEN j.broken_answers ELSE 0 END,
        has_open = j.has_open OR coalesce(g.asked - 'waits' <> '{}', false)
    FROM gone g
    WHERE j.id = g.job_id AND j.attempt < g.attempt AND j.finished_at IS NULL
    RETURNING j.id, j.status, j.tenant, j.agent_id, j.agent_version, j.retry_count, j.next_retry_at, g.attempt,
              g.counted, g.error, g.code, g.class, coalesce(g.source, g.waiting_on) AS source, g.fact,
              g.asked
), asked AS MATERIALIZED (
    SELECT * FROM suspended WHERE asked IS NOT NULL AND status <> 'CANCELLED'
), waits AS (
    INSERT INTO cortex.job_wait (job_id, kind, name, key, upto)
    SELECT s.id, w.kind, w.name, coalesce(w.key, ''), max(w.upto)
    FROM asked s CROSS JOIN LATERAL jsonb_to_recordset(s.asked->'waits') AS w(kind text, name text, key text, upto int)
    GROUP BY s.id, w.kind, w.name, w.key
    RETURNING job_id
), checked AS (
    -- Whoever made a wait true just now may not have seen the wait, nor this what made it true: see 0032_waits.sql.
    INSERT INTO cortex.job_wake (job_id) SELECT DISTINCT job_id FROM waits
), requested AS MATERIALIZED (
    SELECT count(cortex.request_approvals(s.id, s.attempt, s.asked->'requests')) AS count
    FROM asked s WHERE jsonb_array_length(s.asked->'requests') > 0
), doubted AS (
    UPDATE cortex.effect e SET status = 'UNKNOWN', is_sure = false, why = u.why
    FROM asked s CROSS JOIN LATERAL jsonb_to_recordset(s.asked->'unknown') AS u(id uuid, why text)
    WHERE e.id = u.id AND e.job_id = s.id AND e.attempt = s.attempt AND e.status IN ('PENDING', 'UNKNOWN')
      AND NOT e.is_sure
), noted AS (
    INSERT INTO cortex.job_attempt (
        job_id, attempt, pod_id, outcome, due_at, error, error_code, error_class, error_source, retry_count)
    SELECT id, attempt, $1, CASE WHEN counted THEN 'retry' ELSE 'suspended' END,
           next_retry_at, error, code, class, source, retry_count
    FROM suspended WHERE status <> 'CANCELLED'
), fact AS (
    INSERT INTO cortex.fact (
        type, subtype, source, tenant, job_id, attempt, agent_id, agent_version, pod_id, data)
    SELECT 'error', code, source, tenant, id, attempt, agent_id, agent_version, $1, fact
    FROM suspended WHERE fact IS NOT NULL
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (SELECT FROM suspended LIMIT 1) s
)
SELECT s.id FROM suspended s CROSS JOIN requested LEFT JOIN hinted ON true;

-- name: take_over
-- Takes the jobs from a dead pod: releases them for others, and ends those with a cancellation request or whose key
-- another job took. The task of a job that has ended, if one is left, is deleted. $1 dead pod id, $2 consecutive deaths
-- that fail a job, $3 limit, $4 its last heartbeat when it was seen without its lock, or null: if it has sent one since,
-- it lives, even if its session has ended again. Locks: the dead pod (skipped if locked), so that it can neither come back
-- nor be taken over twice meanwhile; tasks and their jobs (skipping locked), the breakers that it probed. The pod is
-- finished, and marked dead, when everything that it owned could be taken; its probes are free at once. Its death condemns none of
-- its jobs. A job that was running in $2 - 1 consecutive pod deaths without a step in between becomes a suspect: it
-- runs in its own process, whose death identifies the culprit. If the pod had stopped its jobs, or ended before it
-- learned of them, its death is not counted.
WITH dead AS MATERIALIZED (
    SELECT p.id, p.state NOT IN ('READY', 'DRAINING')
           OR coalesce(p.phase IN ('hand_back', 'flush', 'sign_off'), false) AS has_left
    FROM cortex.pod p
    -- A pod behind a pooler holds no lock: it may have come back to life.
    WHERE p.id = $1 AND (p.liveness = 'lock' OR p.state NOT IN ('READY', 'DRAINING'))
      AND ($4::timestamptz IS NULL OR p.heartbeat_at = $4) AND p.id NOT IN (SELECT cortex.connected_pods())
    FOR NO KEY UPDATE SKIP LOCKED
), owned AS MATERIALIZED (
    SELECT t.job_id, t.attempt, dead.has_left
    FROM dead JOIN cortex_worker.task t ON t.state = 'LOCKED' AND t.locked_by = dead.id
    ORDER BY t.job_id LIMIT $3 + 1
), held AS MATERIALIZED (
    SELECT t.job_id, t.attempt, t.locked_at, t.heartbeat_at, t.config_id, t.checkpoint,
           t.checkpoint IS NOT NULL AS has_stepped,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL AS is_cancelled,
           j.finished_at IS NOT NULL AS is_finished,
           CASE WHEN t.checkpoint IS NULL THEN j.process_deaths ELSE 0 END AS process_deaths,
           CASE WHEN t.checkpoint IS NULL THEN j.pod_deaths ELSE 0 END
               + CASE WHEN owned.has_left THEN 0 ELSE 1 END AS deaths
    FROM owned
    JOIN cortex_worker.task t ON t.job_id = owned.job_id AND t.attempt = owned.attempt AND t.locked_by = $1
    JOIN cortex.job_record j ON j.id = owned.job_id
    ORDER BY owned.job_id LIMIT $3
    FOR UPDATE OF t, j SKIP LOCKED
), freed AS (
    UPDATE cortex_worker.task t
    SET locked_by = NULL, is_suspect = held.deaths + 1 >= $2 OR held.process_deaths > 0,
        attempts_spent = greatest(0, t.attempts_spent - 1),
        state = (CASE WHEN t.queue_name IS NULL THEN 'READY' ELSE 'QUEUED' END)::cortex_worker.task_state
    FROM held WHERE t.job_id = held.job_id AND NOT held.is_cancelled AND NOT held.is_finished
), gone AS (
    DELETE FROM cortex_worker.task t USING held WHERE t.job_id = held.job_id AND (held.is_cancelled OR held.is_finished)
    RETURNING t.job_id
), moved AS (
    UPDATE cortex.job_record j
    SET pod_deaths = held.deaths, process_deaths = held.process_deaths,
        status = (CASE WHEN held.is_cancelled THEN 'CANCELLED' ELSE 'RUNNING' END)::cortex.job_status,
        attempt = held.attempt, pod_id = CASE WHEN held.is_cancelled THEN $1 END,
        worker_job_id = CASE WHEN NOT held.is_cancelled THEN j.worker_job_id END,
        started_at = coalesce(j.started_at, held.locked_at), config_id = held.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, held.locked_at),
        suspended_at = coalesce(held.heartbeat_at, cortex.now()),  -- since then it may not have run
        checkpoint = coalesce(held.checkpoint, j.checkpoint),
        waits_count = CASE WHEN held.has_stepped THEN 0 ELSE j.waits_count END,
        own_failure_at = CASE WHEN NOT held.has_stepped THEN j.own_failure_at END,
        next_retry_at = NULL, waiting_on = NULL
    FROM held WHERE j.id = held.job_id AND NOT held.is_finished
    RETURNING j.id, held.attempt, j.status
), noted AS (
    INSERT INTO cortex.job_attempt (job_id, attempt, pod_id, outcome, due_at)
    SELECT id, attempt, $1, 'pod_died', cortex.now() FROM moved WHERE status = 'RUNNING'
), found AS (
    SELECT dead.id, (SELECT count(*) FROM held) = (SELECT count(*) FROM owned) AS is_done FROM dead
), buried AS (
    UPDATE cortex.pod SET state = 'DEAD', ended_at = coalesce(pod.ended_at, cortex.now()), running = 0,
                          has_run = pod.has_run OR EXISTS (SELECT FROM held)
    FROM found WHERE pod.id = found.id AND found.is_done
    RETURNING pod.id
), given_back AS (
    UPDATE cortex.breaker b
    SET probe_by = NULL, probe_until = NULL, version = nextval('cortex.breaker_version'), updated_at = cortex.now()
    FROM dead WHERE b.probe_by = dead.id
    RETURNING b.name
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued')
    FROM (SELECT FROM (SELECT id FROM moved UNION ALL SELECT job_id FROM gone) m LIMIT 1) m
    UNION ALL SELECT pg_notify('cortex_breaker', '') FROM given_back
)
SELECT (SELECT count(*) FROM dead) = 1 AS is_dead,
       (SELECT count(*) FROM buried) = 1 AS is_done,
       (SELECT count(*) FROM moved WHERE status = 'RUNNING') AS freed_count,
       (SELECT count(*) FROM moved WHERE status = 'CANCELLED') AS cancelled_count,
       (SELECT count(*) FROM hinted) AS hint_count;

-- name: sweep
-- Takes jobs whose pod has been silent for too long, oldest first: retries them later, fails them when their retries
-- are spent, or ends them if a person requested it or another job took their key. Also takes a job that runs without a
-- heartbeat, and has not changed for this long, or whose task is gone: if no pod had claimed that one, the job gets
-- another task. The task of a job that has ended, if one is left, is deleted. Between two worker attempts a job's task
-- is not locked: that is not such a job. $1 seconds of silence, $2 seconds since the last sweep of any pod, $3 a number
-- from 0 to 1 for each of at most this many jobs: where between zero and the longest its pause lies. No job is swept
-- until the server has served for $1 seconds: before that, no pod could send a heartbeat. Locks: its turn,
-- tried without waiting, so that one process works at a time; the sweep's turn, tasks and their jobs (skipping locked).
WITH alone AS MATERIALIZED (
    SELECT cortex.take_turn('sweep_zombies') AS is_alone
), turn AS (
    INSERT INTO cortex.turn AS r (name, ran_at)
    SELECT 'sweep', cortex.now() FROM alone
    WHERE is_alone AND cortex.serving_since() < cortex.now() - $1::float8 * interval '1 second'
    ON CONFLICT (name) DO UPDATE SET ran_at = excluded.ran_at
    WHERE r.ran_at NOT BETWEEN excluded.ran_at - $2::float8 * interval '1 second' AND excluded.ran_at
    RETURNING ran_at
), edge AS MATERIALIZED (
    SELECT ran_at - $1::float8 * interval '1 second' AS at FROM turn
), stale AS MATERIALIZED (
    -- More than are taken: some of the oldest may be locked.
    SELECT t.job_id, coalesce(t.heartbeat_at, t.locked_at) AS since
    FROM edge JOIN cortex_worker.task t ON t.state = 'LOCKED' AND coalesce(t.heartbeat_at, t.locked_at) < edge.at
    ORDER BY since LIMIT 5 * cardinality($3::float8[])
), silent AS MATERIALIZED (
    SELECT t.job_id, s.since, t.attempts_spent, t.max_attempts, t.attempt, t.locked_by AS pod_id, t.locked_at,
           t.config_id, t.checkpoint, t.heartbeat_at AS beat_at,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL AS is_cancelled,
           j.retry_count < j.max_retries AS has_retry, t.is_suspect, true AS has_begun,
           j.finished_at IS NOT NULL AS is_finished
    FROM edge, stale s
    JOIN cortex.job_record j ON j.id = s.job_id
    JOIN cortex_worker.task t ON t.job_id = s.job_id
    WHERE t.state = 'LOCKED' AND coalesce(t.heartbeat_at, t.locked_at) < edge.at
    ORDER BY s.since LIMIT cardinality($3::float8[])
    FOR UPDATE OF t, j SKIP LOCKED
), lost AS MATERIALIZED (
    -- Jobs whose task is gone. Between attempts the record shows RUNNING, in the first attempt PENDING, and in the first
    -- one after a wait what that was. Sooner or later such a job is among the oldest of its state.
    SELECT j.id, j.updated_at AS since FROM edge CROSS JOIN LATERAL (
        (SELECT r.id, r.updated_at, true AS needs_task FROM cortex.job_record r
         WHERE r.status = 'RUNNING' ORDER BY r.created_at LIMIT 1000)
        UNION ALL
        (SELECT r.id, r.updated_at, true FROM cortex.job_record r
         WHERE r.status = 'PENDING' ORDER BY r.created_at LIMIT 100)
        UNION ALL
        (SELECT r.id, r.updated_at, r.worker_job_id IS NOT NULL FROM cortex.job_record r
         WHERE r.status = 'RETRY' ORDER BY r.next_retry_at, r.id LIMIT 1000)
        UNION ALL
        (SELECT r.id, r.updated_at, r.worker_job_id IS NOT NULL FROM cortex.job_record r
         WHERE r.status = 'WAITING_FOR_APPROVAL' ORDER BY r.created_at LIMIT 1000)) j
    WHERE j.needs_task AND j.updated_at < edge.at
      AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id)
), taskless AS MATERIALIZED (
    SELECT j.id AS job_id, l.since, NULL::int AS attempts_spent, NULL::int AS max_attempts,
           j.attempt + 1 AS attempt,  -- one may have begun: it must not be able to write
           j.pod_id, NULL::timestamptz AS locked_at, j.config_id,
           -- What its last attempt committed: the head of that was in the task.
           (SELECT jsonb_build_object('seq', s.seq, 'kind', s.kind, 'key', s.key) FROM cortex.job_step s
            WHERE s.job_id = j.id AND s.seq > coalesce((j.checkpoint ->> 'seq')::int, 0)
            ORDER BY s.seq DESC LIMIT 1) AS checkpoint,
           NULL::timestamptz AS beat_at,
           j.cancel_requested_at IS NOT NULL OR j.replaced_by IS NOT NULL AS is_cancelled,
           j.retry_count < j.max_retries AS has_retry, false AS is_suspect,
           (SELECT h.new FROM cortex.job_history h WHERE h.job_id = j.id ORDER BY h.id DESC LIMIT 1) = 'RUNNING' AS has_begun,
           false AS is_finished
    FROM edge, lost l JOIN cortex.job_record j ON j.id = l.id
    WHERE (j.status::text IN ('PENDING', 'RUNNING') OR j.finished_at IS NULL AND j.worker_job_id IS NOT NULL)
      AND j.updated_at < edge.at
      AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = l.id)
    ORDER BY l.since LIMIT cardinality($3::float8[])
    FOR UPDATE OF j SKIP LOCKED
), taken AS MATERIALIZED (
    SELECT *, $3[row_number() OVER (ORDER BY since)] AS chance,
           (CASE WHEN is_cancelled THEN 'CANCELLED' WHEN has_retry THEN 'RETRY' ELSE 'FAILED' END)::cortex.job_status
               AS status
    FROM (SELECT * FROM silent UNION ALL SELECT * FROM taskless) f
    WHERE has_begun OR is_cancelled
    ORDER BY since LIMIT cardinality($3::float8[])
), renewed AS (
    SELECT count(*) FROM cortex.give_tasks(ARRAY(
        SELECT job_id FROM taskless WHERE NOT has_begun AND NOT is_cancelled ORDER BY job_id), are_lost => true)
), gone AS (
    DELETE FROM cortex_worker.task t USING taken WHERE t.job_id = taken.job_id
    RETURNING t.job_id
), moved AS (
    UPDATE cortex.job_record j
    SET status = t.status, retry_count = j.retry_count + CASE WHEN t.status = 'RETRY' THEN 1 ELSE 0 END,
        next_retry_at = CASE WHEN t.status = 'RETRY' THEN cortex.now() + interval '1 second' * t.chance
            * cortex.backoff_s(j.type, t.config_id, j.agent_id, j.agent_version, j.retry_count) END,
        waiting_on = NULL, attempt = t.attempt,
        pod_id = CASE WHEN t.status <> 'RETRY' THEN t.pod_id END, worker_job_id = NULL,
        started_at = coalesce(j.started_at, t.locked_at), config_id = t.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, t.locked_at),
        suspended_at = t.since,  -- since then it may not have run
        checkpoint = coalesce(t.checkpoint, j.checkpoint),
        -- A silence may have been a death: it neither counts as one nor ends a run of deaths.
        pod_deaths = CASE WHEN t.checkpoint IS NULL THEN j.pod_deaths ELSE 0 END,
        process_deaths = CASE WHEN t.checkpoint IS NULL THEN j.process_deaths ELSE 0 END,
        own_failure_at = CASE WHEN t.checkpoint IS NULL THEN j.own_failure_at END,
        attempts_kept = 0, was_suspect = t.is_suspect, waits_count = 0,
        error_code = CASE WHEN t.status = 'FAILED' THEN 'lease_expired' END,
        error_class = CASE WHEN t.status = 'FAILED' THEN 'TRANSIENT_INFRA' END,
        error_message = CASE WHEN t.status = 'FAILED' THEN format(
            'its pod fell silent in attempt %s, after %s of %s retries; last heartbeat %s', t.attempt, j.retry_count,
            j.max_retries, coalesce(to_char(t.beat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'never')) END
    FROM taken t WHERE j.id = t.job_id AND NOT t.is_finished
    RETURNING j.id, j.status, j.attempt, j.tenant, j.agent_id, j.agent_version, j.retry_count, j.max_retries,
              j.next_retry_at, t.pod_id, t.attempts_spent, t.max_attempts,
              coalesce(j.error_message, 'its pod fell silent') AS error
), noted AS (
    INSERT INTO cortex.job_attempt (
        job_id, attempt, pod_id, outcome, due_at, error, error_code, error_class, retry_count)
    SELECT id, attempt, pod_id, 'lease_expired', next_retry_at, error, 'lease_expired', 'TRANSIENT_INFRA', retry_count
    FROM moved WHERE status = 'RETRY'
), fact AS (
    INSERT INTO cortex.fact (type, subtype, tenant, job_id, attempt, agent_id, agent_version, pod_id, data)
    SELECT 'error', 'lease_expired', tenant, id, attempt, agent_id, agent_version, pod_id,
           jsonb_build_object('class', 'TRANSIENT_INFRA', 'message', error, 'attempt', attempts_spent,
                              'max', max_attempts, 'retry_count', retry_count, 'max_retries', max_retries)
    FROM moved WHERE status <> 'CANCELLED'
), hinted AS (
    -- The next job of a named queue need not wait for a job that waits or has ended.
    SELECT pg_notify('cortex_task', 'queued')
    FROM (SELECT FROM (SELECT id FROM moved UNION ALL SELECT job_id FROM gone) m LIMIT 1) m
)
SELECT (SELECT count(*) FROM moved WHERE status = 'RETRY') + (SELECT count FROM renewed) AS retried_count,
       (SELECT count(*) FROM moved WHERE status = 'FAILED') AS failed_count,
       (SELECT count(*) FROM moved WHERE status = 'CANCELLED') AS cancelled_count,
       (SELECT count(*) FROM hinted) AS hint_count, NOT is_alone AS is_skipped
FROM alone;

-- name: has_work
-- Whether a pod may have something to do: ready, due or queued tasks, or running ones, whose pod may have died. Locks:
-- none.
SELECT EXISTS (SELECT FROM cortex_worker.task WHERE state = 'READY' AND NOT is_suspect)
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'READY' AND is_suspect)
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'LATER' AND run_at <= cortex.now())
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'QUEUED')
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'HELD' AND limit_keys IS NOT NULL)
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'STRANDED')
    OR EXISTS (SELECT FROM cortex_worker.task WHERE state = 'LOCKED') AS has_work;

-- name: is_watched
-- Notes that a process without a pod looks for silent pods. $1 seconds. Locks: the row of these looks. Returns whether
-- they have come for $1 seconds, none later than $1 seconds after the one before.
INSERT INTO cortex.turn AS t (name, ran_at, since) VALUES ('watch', cortex.now(), cortex.now())
ON CONFLICT (name) DO UPDATE
SET ran_at = excluded.ran_at,
    since = CASE WHEN t.ran_at BETWEEN excluded.ran_at - $1::float8 * interval '1 second' AND excluded.ran_at
                 THEN t.since ELSE excluded.since END
RETURNING since <= ran_at - $1::float8 * interval '1 second' AS is_steady;

-- name: expire
-- Ends jobs that still ran this long after their timeout at their last heartbeat: their pods live and do not enforce
-- it. Time without a pod does not count, nor the time since the heartbeat: the pod may be dead. $1 seconds after the
-- timeout, $2 seconds since the last turn of any pod, $3 limit. Leaves a receipt without files: only their pod could
-- inspect them. A job with a cancellation request is cancelled. Locks: the turn, tasks and their jobs (skipping
-- locked). Returns how many were ended.
WITH turn AS (
    INSERT INTO cortex.turn AS r (name, ran_at) VALUES ('expire', cortex.now())
    ON CONFLICT (name) DO UPDATE SET ran_at = excluded.ran_at
    WHERE r.ran_at NOT BETWEEN excluded.ran_at - $2::float8 * interval '1 second' AND excluded.ran_at
    RETURNING ran_at
), late AS MATERIALIZED (
    SELECT j.id, t.attempt FROM turn, cortex_worker.task t JOIN cortex.job j ON j.id = t.job_id
    WHERE t.state = 'LOCKED' AND t.heartbeat_at IS NOT NULL
      AND j.started_at + (j.timeout_s + j.waited_s + $1::float8) * interval '1 second' < least(t.heartbeat_at, turn.ran_at)
    LIMIT $3
), taken AS MATERIALIZED (
    SELECT j.id, t.attempts_spent, t.max_attempts, t.attempt, t.locked_by, t.locked_at, t.config_id, t.checkpoint,
           (CASE WHEN j.cancel_requested_at IS NULL THEN 'FAILED' ELSE 'CANCELLED' END)::cortex.job_status AS status
    FROM late JOIN cortex_worker.task t ON t.job_id = late.id AND t.attempt = late.attempt
    JOIN cortex.job_record j ON j.id = late.id AND j.finished_at IS NULL
    WHERE t.state = 'LOCKED'
    ORDER BY j.id FOR UPDATE OF t, j SKIP LOCKED
), gone AS (
    DELETE FROM cortex_worker.task t USING taken WHERE t.job_id = taken.id
), ended AS (
    UPDATE cortex.job_record j
    SET status = taken.status, worker_job_id = NULL, attempt = taken.attempt, pod_id = taken.locked_by,
        started_at = coalesce(j.started_at, taken.locked_at), config_id = taken.config_id,
        waited_s = cortex.waited_s(j.waited_s, j.suspended_at, taken.locked_at), suspended_at = NULL,
        checkpoint = coalesce(taken.checkpoint, j.checkpoint),
        pod_deaths = CASE WHEN taken.checkpoint IS NULL THEN j.pod_deaths ELSE 0 END,
        process_deaths = CASE WHEN taken.checkpoint IS NULL THEN j.process_deaths ELSE 0 END,
        waits_count = CASE WHEN taken.checkpoint IS NULL THEN j.waits_count ELSE 0 END,
        own_failure_at = CASE WHEN taken.checkpoint IS NULL THEN j.own_failure_at END,
        next_retry_at = NULL, waiting_on = NULL,
        error_code = CASE WHEN taken.status = 'FAILED' THEN 'job_timed_out' END,
        error_class = CASE WHEN taken.status = 'FAILED' THEN 'TRANSIENT_APP' END,
        error_message = CASE WHEN taken.status = 'FAILED' THEN
            format('Job timed out after %s seconds', j.timeout_s) END
    FROM taken WHERE j.id = taken.id
    RETURNING j.*, taken.attempts_spent, taken.max_attempts
), receipt AS (
    INSERT INTO cortex.timeout_event (
        job_id, attempt, nth, scope, limit_s, elapsed_s, phase, step_elapsed_s, step_started_at, checkpoint_seq,
        checkpoint_key, retry_count, final_action, artefacts, work_trees, problem)
    SELECT e.id, e.attempt, 1, 'job', e.timeout_s,
           extract(epoch FROM cortex.now() - e.started_at) - e.waited_s, 'handler',
           greatest(0, extract(epoch FROM cortex.now() - since.at)), since.at,  -- the clock may have been set back
           coalesce((e.checkpoint->>'seq')::int, 0),
           e.checkpoint->>'key', e.retry_count, 'failed', '[]', '[]',
           'another pod ended it: nobody looked at its files'
    FROM ended e CROSS JOIN LATERAL (
        SELECT coalesce((SELECT s.finished_at FROM cortex.job_step s WHERE s.job_id = e.id AND s.attempt = e.attempt
                         ORDER BY s.seq DESC LIMIT 1), e.started_at) AS at) since
    WHERE e.status = 'FAILED'
    ON CONFLICT DO NOTHING
), fact AS (
    INSERT INTO cortex.fact (type, subtype, tenant, job_id, attempt, agent_id, agent_version, pod_id, data)
    SELECT 'error', error_code, tenant, id, attempt, agent_id, agent_version, pod_id,
           jsonb_build_object('class', error_class, 'message', error_message, 'scope', 'job', 'limit_s', timeout_s,
                              'attempt', attempts_spent, 'max', max_attempts, 'retry_count', retry_count,
                              'max_retries', max_retries)
    FROM ended WHERE status = 'FAILED'
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (SELECT FROM ended LIMIT 1) e
)
SELECT (SELECT count(*) FROM ended) AS count, (SELECT count(*) FROM hinted) AS hint_count;

-- name: blocked
-- Jobs that a sweep or a takeover should have taken but cannot, because another session has locked their rows; and that
-- session, as far as it can be determined. $1 seconds of silence that make a job stale, $2 seconds of silence after
-- which a dead pod's job is overdue, $3 limit. Locks: briefly, the unlocked rows of such jobs.
WITH dead AS MATERIALIZED (
    SELECT p.id FROM cortex.pod p
    WHERE p.id IN (SELECT t.locked_by FROM cortex_worker.task t WHERE t.state = 'LOCKED')
      AND (p.state NOT IN ('READY', 'DRAINING') OR p.liveness = 'lock' AND p.id NOT IN (SELECT cortex.connected_pods()))
), overdue AS MATERIALIZED (
    SELECT j.id, t.locked_by AS pod_id, t.heartbeat_at, j.xmax AS job_xmax, t.xmax AS task_xmax
    FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
    WHERE t.state = 'LOCKED' AND (
        t.heartbeat_at < cortex.now() - $1::float8 * interval '1 second'
        OR t.heartbeat_at < cortex.now() - $2::float8 * interval '1 second' AND t.locked_by IN (SELECT id FROM dead))
    ORDER BY t.heartbeat_at LIMIT $3
), free AS MATERIALIZED (
    SELECT j.id FROM overdue o JOIN cortex.job_record j ON j.id = o.id JOIN cortex_worker.task t ON t.job_id = o.id
    FOR UPDATE OF t, j SKIP LOCKED
)
SELECT o.id AS job_id, p.name AS pod, o.heartbeat_at,
       extract(epoch FROM cortex.now() - o.heartbeat_at)::float8 AS silent_s,
       coalesce(cortex.holder_of(o.task_xmax), cortex.holder_of(o.job_xmax)) AS holder
FROM overdue o LEFT JOIN cortex.pod p ON p.id = o.pod_id
WHERE NOT EXISTS (SELECT FROM free WHERE free.id = o.id)
ORDER BY o.heartbeat_at;

-- name: record_blocked
-- Records that jobs of lost pods have been out of reach for too long, unless this was recorded recently. $1 pod id, $2
-- the session that holds them, $3 data, $4 seconds without a repetition.
WITH recorded AS (
    INSERT INTO cortex.fact (type, subtype, source, pod_id, data)
    SELECT 'lifecycle', 'recovery_blocked', $2, $1, $3::jsonb
    WHERE NOT EXISTS (
        SELECT FROM cortex.fact f
        WHERE f.source = $2 AND f.at > cortex.now() - $4::float8 * interval '1 second'
          AND f.type = 'lifecycle' AND f.subtype = 'recovery_blocked')
    RETURNING id, source, data
)
SELECT id, cortex.announce('recovery.blocked', source, data || jsonb_build_object('held_by', source, 'tenant', 'default'))
FROM recorded;
