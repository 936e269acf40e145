-- name: retry
-- Creates new jobs that continue failed ones, and settles their dead letters: each is retried once. So is a job that
-- people's decision failed, which has none. People's retries count towards the cap of their tenant. Per job: $1 failed jobs, $2 ids of the new ones, $3 delays in seconds, $7
-- why, $9 another payload or null, $10 what is different in that. For all: $4 agent version, null: the same, 0: the
-- newest; $5 whether to leave the steps out, $6 who, $11 by which credential, $8 whether it is the triage. The steps are copied if the agent's
-- specification is the same, up to a model response or a denial that failed the job. Locks: the dead letters (ordered), then
-- the records of those without one (ordered); the new job, its steps and its task belong to no one else yet. Returns the failed jobs that are continued.
WITH capped AS MATERIALIZED (
    SELECT cortex.check_retries($1::uuid[], $2::uuid[], $9::jsonb[]),
           CASE WHEN NOT $8 THEN cortex.refuse_retries_over_cap($1::uuid[], $2::uuid[], $9::jsonb[]) END
), held AS MATERIALIZED (
    SELECT d.job_id, d.fingerprint, d.state, a.new_id, a.delay_s, a.reason, a.payload, a.payload_changes
    FROM unnest($1::uuid[], $2::uuid[], $3::float8[], $7::text[], $9::jsonb[], $10::jsonb[])
        AS a(job_id, new_id, delay_s, reason, payload, payload_changes)
    JOIN cortex.dead_letter d ON d.job_id = a.job_id
    WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED') AND (SELECT count(*) FROM capped) = 1
    ORDER BY d.job_id FOR UPDATE OF d
), decided AS MATERIALIZED (
    SELECT j.id AS job_id, NULL AS fingerprint, NULL AS state, a.new_id, a.delay_s, a.reason, a.payload, a.payload_changes
    FROM unnest($1::uuid[], $2::uuid[], $3::float8[], $7::text[], $9::jsonb[], $10::jsonb[])
        AS a(job_id, new_id, delay_s, reason, payload, payload_changes)
    JOIN cortex.job_record j ON j.id = a.job_id
    WHERE j.status = 'FAILED' AND cortex.is_decision(j.error_code) AND (SELECT count(*) FROM held) >= 0
    -- A parent that takes its children on locks both in this order, before the children's places.
    ORDER BY j.id FOR NO KEY UPDATE OF j
), chosen AS MATERIALIZED (
    SELECT h.*, v.version, NOT $5 AND v.digest IS NOT DISTINCT FROM own.digest AS keeps_steps,
           CASE WHEN v.digest <> own.digest THEN v.spec->'limits' END AS limits,
           cortex.steps_kept(o.id, o.error_class, o.error_code) AS kept
    FROM (SELECT * FROM held UNION ALL SELECT * FROM decided) h
    JOIN cortex.job o ON o.id = h.job_id
    LEFT JOIN cortex.agent a ON a.id = o.agent_id
    LEFT JOIN cortex.agent_version own ON own.agent_id = o.agent_id AND own.version = o.agent_version
    LEFT JOIN cortex.agent_version v ON v.agent_id = o.agent_id
        AND v.version = CASE $4::int WHEN 0 THEN a.version ELSE coalesce($4, o.agent_version) END
    WHERE $4 IS NULL OR v.version IS NOT NULL
), settled AS (
    UPDATE cortex.dead_letter d
    SET state = 'RETRIED', resolved_at = cortex.now(), resolved_by = $6, reason = c.reason, retried_as = c.new_id,
        is_automatic = $8, triaged_at = coalesce(d.triaged_at, cortex.now())
    FROM chosen c WHERE d.job_id = c.job_id
), job AS (
    INSERT INTO cortex.job_record AS j (
        id, origin_id, lineage_id, type, payload, tenant, agent_id, agent_version, config_id, queue_name, priority,
        worker_attempts, max_retries, timeout_s, run_at, checkpoint, worker_job_id, submitted_by, submitted_with, tags,
        parent_id, due_by)
    SELECT c.new_id, o.id, coalesce(o.lineage_id, o.id), o.type, coalesce(c.payload, o.payload), o.tenant, o.agent_id,
           c.version,
           o.config_id, cortex_worker.retry_queue(o.type, o.tenant, o.queue_name, coalesce(c.payload, o.payload)), o.priority,
           coalesce((c.limits->>'worker_attempts')::int, o.worker_attempts),
           coalesce((c.limits->>'max_retries')::int, o.max_retries),
           coalesce((c.limits->>'timeout_seconds')::int, o.timeout_s),
           cortex.now() + c.delay_s * interval '1 second',
           CASE WHEN c.keeps_steps THEN coalesce(cortex.kept_head(o.id, c.kept), '{}') ELSE '{}' END,
           nextval('cortex_worker.task_id_seq'), o.submitted_by, o.submitted_with, o.tags, o.parent_id,
           o.due_by
    FROM chosen c JOIN cortex.job o ON o.id = c.job_id
    ON CONFLICT (origin_id) WHERE origin_id IS NOT NULL DO NOTHING
    RETURNING j.*
), step AS (
    INSERT INTO cortex.job_step (
        job_id, seq, attempt, kind, key, digest, started_at, finished_at, cost_usd, usage, output, input, amid, parent_key)
    SELECT c.new_id, s.seq, 0, s.kind, s.key, s.digest, s.started_at, s.finished_at, s.cost_usd, s.usage, s.output,
           s.input, s.amid, s.parent_key
    FROM chosen c JOIN job j ON j.id = c.new_id JOIN cortex.job_step s ON s.job_id = c.job_id
    WHERE c.keeps_steps AND (c.kept IS NULL OR s.seq <= c.kept)
), task AS (
    INSERT INTO cortex_worker.task (id, task, job_id, state, priority, max_attempts, run_at, queue_name, due_by)
    SELECT j.worker_job_id, j.type, j.id,
           (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                 WHEN j.run_at > cortex.now() THEN 'LATER' ELSE 'READY' END)::cortex_worker.task_state,
           j.priority, j.worker_attempts, j.run_at, j.queue_name, j.due_by
    FROM job j
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, agent_id, agent_version, data)
    SELECT 'lifecycle', CASE WHEN c.state IS NULL THEN 'decision_retried' ELSE 'dead_letter_retried' END,
           'dead:' || c.fingerprint, o.tenant, o.id, o.agent_id, o.agent_version,
           jsonb_build_object('by', $6, 'credential', CASE WHEN $8 THEN $11::text ELSE cortex.acting_credential($11) END,
                              'reason', c.reason, 'before', c.state, 'after', 'RETRIED',
                              'retried_as', c.new_id,
                              'agent_version', c.version, 'keeps_steps', c.keeps_steps,
                              'asks_again_after', CASE WHEN c.keeps_steps THEN c.kept END,
                              'payload_changes', c.payload_changes)
    FROM chosen c JOIN job j ON j.id = c.new_id JOIN cortex.job o ON o.id = c.job_id
)
SELECT origin_id AS job_id, id AS new_id, cortex.continue_child(id, origin_id) FROM job;

-- name: settle
-- Settles dead letters without a new job. Per dead letter: $1 failed jobs, $2 states (OPEN: it waits for a person), $3
-- reasons; $4 who. Locks: the dead letters (ordered). Returns those that were not settled before.
WITH held AS MATERIALIZED (
    SELECT d.job_id, d.state AS before, a.state, a.reason
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS a(job_id, state, reason)
    JOIN cortex.dead_letter d ON d.job_id = a.job_id
    WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
    ORDER BY d.job_id FOR UPDATE OF d
), settled AS (
    UPDATE cortex.dead_letter d
    SET state = h.state, reason = h.reason, triaged_at = coalesce(d.triaged_at, cortex.now()),
        resolved_at = CASE WHEN h.state = 'DISCARDED' THEN cortex.now() END,
        resolved_by = CASE WHEN h.state = 'DISCARDED' THEN $4 END
    FROM held h WHERE d.job_id = h.job_id
    RETURNING d.job_id, d.fingerprint, d.tenant, d.agent_id, h.before, d.state, d.reason
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, agent_id, data)
    SELECT 'lifecycle', 'dead_letter_' || lower(state), 'dead:' || fingerprint, tenant, job_id, agent_id,
           jsonb_build_object('by', $4::text, 'reason', reason, 'before', before, 'after', state)
    FROM settled WHERE state <> before
)
SELECT job_id, fingerprint, state FROM settled;

-- name: standing
-- The state of these jobs' dead letters. $1 job ids. Also jobs without a dead letter; no row for unknown ids.
SELECT j.id AS job_id, j.status, j.agent_version, a.name AS agent, d.state, d.resolved_at, d.resolved_by, d.reason,
       coalesce(d.retried_as, h.id) AS retried_as, cortex.is_decision(j.error_code) AS is_decision, j.error_code
FROM cortex.job j
LEFT JOIN cortex.dead_letter d ON d.job_id = j.id
LEFT JOIN cortex.job_record h ON h.origin_id = j.id
LEFT JOIN cortex.agent a ON a.id = j.agent_id
WHERE j.id = ANY ($1::uuid[]);

-- name: lock_triage
-- Allows one triage at a time. Locks: its turn, to the end of the transaction.
SELECT cortex.take_turn('triage') AS is_held;

-- name: unjudged
-- Dead letters with a permanent cause that the triage has not handled, oldest first. $1 limit. Locks: none.
SELECT d.job_id, d.error_class, d.error_code, d.error_source, j.error_message,
       coalesce(e.is_escalated, false) AS is_escalated
FROM cortex.dead_letter d
JOIN cortex.job j ON j.id = d.job_id
LEFT JOIN LATERAL (
    SELECT f.data->'escalated' = 'true' AS is_escalated FROM cortex.fact f
    WHERE f.job_id = d.job_id AND f.type = 'error' ORDER BY f.id DESC LIMIT 1) e ON true
WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') = ''
ORDER BY d.created_at LIMIT $1;

-- name: recovered
-- Dead letters that await a breaker which admits calls again, oldest first, and whether a person must decide on them:
-- their lineage was retried automatically before, another job took the key, or a timeout left something half done. For
-- a half-open breaker one dead letter is a candidate to probe it, unless waiting jobs will, or one already does. $1
-- seconds that a dead letter must be old, $2 limit. Locks: none.
WITH RECURSIVE source AS (
    -- Walks the distinct breakers by index, one probe per name.
    (SELECT coalesce(d.awaits, '') AS name FROM cortex.dead_letter d
     WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') > ''
     ORDER BY coalesce(d.awaits, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce(d.awaits, '') FROM cortex.dead_letter d
            WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') > s.name
            ORDER BY coalesce(d.awaits, '') LIMIT 1)
    FROM source s WHERE s.name IS NOT NULL
)
SELECT d.job_id, d.lineage_id, s.name AS source, coalesce(b.state = 'HALF_OPEN', false) AS is_probe,
       EXISTS (SELECT FROM cortex.dead_letter o WHERE o.lineage_id = d.lineage_id AND o.is_automatic)
       OR EXISTS (SELECT FROM cortex.job_record r WHERE r.id = d.job_id AND r.replaced_by IS NOT NULL)
       OR EXISTS (
           SELECT FROM cortex.timeout_event e
           WHERE e.job_id = d.job_id AND e.final_action = 'failed'
             AND (e.problem IS NOT NULL OR e.artefacts <> '[]' OR EXISTS (
                 SELECT FROM jsonb_array_elements(e.work_trees) AS w
                 WHERE (w->>'change_count')::int > 0 OR w->>'problem' IS NOT NULL))) AS is_for_a_person
FROM source s
LEFT JOIN cortex.breaker_now b ON b.name = s.name
CROSS JOIN LATERAL (
    SELECT l.job_id, l.lineage_id, l.created_at FROM cortex.dead_letter l
    WHERE l.state = 'OPEN' AND l.triaged_at IS NULL AND coalesce(l.awaits, '') = s.name
      AND l.created_at <= cortex.now() - $1::float8 * interval '1 second'
    ORDER BY l.created_at LIMIT CASE b.state WHEN 'HALF_OPEN' THEN 1 ELSE $2 END) d
WHERE s.name IS NOT NULL AND (
    coalesce(b.state, 'CLOSED') = 'CLOSED'
    OR b.state = 'HALF_OPEN' AND coalesce(b.probe_until <= cortex.now(), true) AND NOT EXISTS (
        SELECT FROM cortex.job_record w
        WHERE w.status = 'RETRY' AND w.worker_job_id IS NULL AND w.waiting_on !~ '^(approval|budget|child|signal):'
          AND w.waiting_on = s.name))
ORDER BY d.created_at LIMIT $2;

-- name: next_recovery
-- Seconds until `recovered` may return more by the passing of time alone; null: no such letter. $1 seconds that a dead
-- letter must be old. Locks: none.
WITH RECURSIVE source AS (
    (SELECT coalesce(d.awaits, '') AS name FROM cortex.dead_letter d
     WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') > ''
     ORDER BY coalesce(d.awaits, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce(d.awaits, '') FROM cortex.dead_letter d
            WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') > s.name
            ORDER BY coalesce(d.awaits, '') LIMIT 1)
    FROM source s WHERE s.name IS NOT NULL
), due AS (
    -- An open breaker admits a probe from open_until on; that it closes is notified.
    SELECT greatest(l.created_at + $1::float8 * interval '1 second', b.open_until) AS at
    FROM source s LEFT JOIN cortex.breaker_now b ON b.name = s.name AND b.state = 'OPEN'
    CROSS JOIN LATERAL (
        SELECT d.created_at FROM cortex.dead_letter d
        WHERE d.state = 'OPEN' AND d.triaged_at IS NULL AND coalesce(d.awaits, '') = s.name
        ORDER BY d.created_at LIMIT 1) l
    WHERE s.name IS NOT NULL AND (b.name IS NULL OR b.open_until IS NOT NULL)
)
SELECT extract(epoch FROM min(at) - cortex.now())::float8 AS next_s FROM due WHERE at > cortex.now();

-- name: hold_unseen
-- Holds those of these dead letters that the triage has still not handled. $1 job ids. Locks: the dead letters
-- (ordered, skipping locked ones).
SELECT job_id FROM cortex.dead_letter
WHERE job_id = ANY ($1::uuid[]) AND state = 'OPEN' AND triaged_at IS NULL
ORDER BY job_id FOR UPDATE SKIP LOCKED;

-- fragment: matching
-- Conditions of a filter for jobs on their dead letters d; null leaves one out. LIKE patterns of $1 STATE|fingerprint, $2
-- types, $3 agents, $4 queues, $5 tenants, $6 error codes; $7 error classes; LIKE patterns of $8 tags, $9 pod names, $10
-- ids. Submitted $11 at least and $12 at most this many seconds ago, $13 after and $14 before an instant. Failed $15 more
-- than and $16 at most this many seconds ago.
($1::text[] IS NULL OR d.state || '|' || d.fingerprint LIKE ANY ($1)) AND ($2::text[] IS NULL OR d.type LIKE ANY ($2))
AND ($3::text[] IS NULL OR d.agent_id IN (SELECT a.id FROM cortex.agent a WHERE a.name LIKE ANY ($3)))
AND ($5::text[] IS NULL OR d.tenant LIKE ANY ($5)) AND ($6::text[] IS NULL OR d.error_code LIKE ANY ($6))
AND ($7::text[] IS NULL OR d.error_class = ANY ($7))
AND ($10::text[] IS NULL OR replace(d.job_id::text, '-', '') LIKE ANY ($10))
AND ($15::float8 IS NULL OR d.created_at < cortex.now() - $15 * interval '1 second')
AND ($16::float8 IS NULL OR d.created_at >= cortex.now() - $16 * interval '1 second')
AND (coalesce($4::text[], $8::text[], $9::text[]) IS NULL AND coalesce($11::float8, $12::float8) IS NULL
     AND coalesce($13::timestamptz, $14::timestamptz) IS NULL OR (
    SELECT ($4 IS NULL OR j.queue_name LIKE ANY ($4))
       AND ($8 IS NULL OR EXISTS (SELECT FROM unnest(j.tags) AS w(tag) WHERE w.tag LIKE ANY ($8)))
       AND ($9 IS NULL OR (SELECT p.name FROM cortex.pod p WHERE p.id = j.pod_id) LIKE ANY ($9))
       AND j.created_at < least(cortex.now() - $11 * interval '1 second', $14, 'infinity')
       AND j.created_at > greatest(cortex.now() - $12 * interval '1 second', $13, '-infinity')
    FROM cortex.job_record j WHERE j.id = d.job_id))

-- fragment: letter
-- Columns of a `DeadLetter`. d: the dead letter; j: its job; a: its agent; b: the breaker of its source.
d.*, j.error_message, a.name AS agent, b.state AS breaker,
nullif(concat_ws(' ', j.checkpoint->>'seq', j.checkpoint->>'key'), '') AS step,
cortex.steps_kept(j.id, d.error_class, d.error_code) AS asks_again_after, cortex.now() AS now

-- fragment: its_job
-- What `letter` takes its columns from.
JOIN cortex.job j ON j.id = d.job_id
LEFT JOIN cortex.agent a ON a.id = d.agent_id
LEFT JOIN cortex.breaker_now b ON b.name = d.error_source

-- name: groups
-- Dead letters by their error, the latest first, each with its newest dead letter. $1 to $16 as in `matching`; $17
-- whether only unresolved ones match; $18 limit, $19 most dead letters to count, the newest: `is_all` says whether these
-- were all. $20 a tenant or null for all.
WITH looked AS MATERIALIZED (
    -- Only one of the three is read.
    (SELECT d.job_id, d.fingerprint, d.created_at, d.state
     FROM cortex.dead_letter d
     WHERE {matching} AND $17::bool AND coalesce($20::text, 'default') = 'default' AND ($20 IS NULL OR d.tenant = $20)
       AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
    UNION ALL
    (SELECT d.job_id, d.fingerprint, d.created_at, d.state
     FROM cortex.dead_letter d
     WHERE {matching} AND NOT $17::bool AND coalesce($20::text, 'default') = 'default' AND ($20 IS NULL OR d.tenant = $20)
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
    UNION ALL
    (SELECT d.job_id, d.fingerprint, d.created_at, d.state
     FROM cortex.dead_letter d
     WHERE {matching} AND $20::text IS NOT NULL AND d.tenant = $20 AND d.tenant <> 'default'
       AND (NOT $17::bool OR d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
), found AS (
    SELECT l.fingerprint, count(*) AS count, count(*) FILTER (WHERE l.state = 'ESCALATED') AS escalated_count,
           min(l.created_at) AS first_at, max(l.created_at) AS last_at,
           (array_agg(l.job_id ORDER BY l.created_at DESC, l.job_id DESC))[1] AS job_id
    FROM looked l GROUP BY l.fingerprint
    ORDER BY max(l.created_at) DESC, l.fingerprint LIMIT $18
)
SELECT f.*, d.type, d.error_class, d.error_code, d.error_source, j.error_message, a.name AS agent,
       b.state AS breaker, nullif(concat_ws(' ', j.checkpoint->>'seq', j.checkpoint->>'key'), '') AS step,
       cortex.steps_kept(j.id, d.error_class, d.error_code) AS asks_again_after,
       (SELECT count(*) FROM looked) < $19 AS is_all, cortex.now() AS now
FROM found f
JOIN cortex.dead_letter d ON d.job_id = f.job_id
JOIN cortex.job j ON j.id = f.job_id
LEFT JOIN cortex.agent a ON a.id = d.agent_id
LEFT JOIN cortex.breaker_now b ON b.name = d.error_source
ORDER BY f.last_at DESC, f.fingerprint;

-- name: newest_of
-- Dead letters of one error among the newest undecided ones, newest first. $1 fingerprint, $2 most dead letters to
-- read, $3 limit, $4 a tenant or null for all. `is_all`: there is no unread dead letter.
WITH looked AS MATERIALIZED (
    -- Only one of the two is read.
    (SELECT d.job_id, d.fingerprint FROM cortex.dead_letter d
     WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED') AND $4::text IS NULL
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $2)
    UNION ALL
    (SELECT d.job_id, d.fingerprint FROM cortex.dead_letter d
     WHERE d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
       AND $4::text IS NOT NULL AND d.tenant = $4
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $2)
)
SELECT {letter}, (SELECT count(*) FROM looked) < $2 AS is_all
FROM (SELECT l.job_id FROM looked l WHERE l.fingerprint = $1 LIMIT $3) found
JOIN cortex.dead_letter d ON d.job_id = found.job_id
{its_job}
ORDER BY d.created_at DESC, d.job_id DESC;

-- name: page
-- Dead letters, newest first. $1 to $16 as in `matching`, $17 whether only unresolved ones match, $18 before this
-- job's dead letter or null, $19 limit, $20 a tenant or null for all.
WITH edge AS MATERIALIZED (
    SELECT d.created_at, d.job_id FROM cortex.dead_letter d WHERE d.job_id = $18
), looked AS MATERIALIZED (
    -- Only one of the three is read.
    (SELECT d.* FROM cortex.dead_letter d
     WHERE {matching} AND $17::bool AND coalesce($20::text, 'default') = 'default' AND ($20 IS NULL OR d.tenant = $20)
       AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
       AND ($18::uuid IS NULL OR (d.created_at, d.job_id) < (SELECT e.created_at, e.job_id FROM edge e))
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
    UNION ALL
    (SELECT d.* FROM cortex.dead_letter d
     WHERE {matching} AND NOT $17::bool AND coalesce($20::text, 'default') = 'default' AND ($20 IS NULL OR d.tenant = $20)
       AND ($18::uuid IS NULL OR (d.created_at, d.job_id) < (SELECT e.created_at, e.job_id FROM edge e))
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
    UNION ALL
    (SELECT d.* FROM cortex.dead_letter d
     WHERE {matching} AND $20::text IS NOT NULL AND d.tenant = $20 AND d.tenant <> 'default'
       AND (NOT $17::bool OR d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED'))
       AND ($18::uuid IS NULL OR (d.created_at, d.job_id) < (SELECT e.created_at, e.job_id FROM edge e))
     ORDER BY d.created_at DESC, d.job_id DESC LIMIT $19)
)
SELECT {letter}
FROM looked d
{its_job}
ORDER BY d.created_at DESC, d.job_id DESC;

-- name: choose
-- Unresolved dead letters to operate on, oldest first. $1 to $16 as in `matching`, $17 limit, $18 the last of those
-- that were counted, or null: none after it; $19 a tenant or null for all.
SELECT d.job_id
FROM cortex.dead_letter d
WHERE {matching} AND ($19::text IS NULL OR d.tenant = $19)
  AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED') AND ($18::uuid IS NULL OR (d.created_at, d.job_id) <= (
    SELECT l.created_at, l.job_id FROM cortex.dead_letter l WHERE l.job_id = $18))
ORDER BY d.created_at, d.job_id LIMIT $17;

-- name: known
-- Values of these kinds in dead letters of any state, as suggestions. $1 limit of each; most $2 errors and $3 dead
-- letters (for their tenants) to read, the newest: `is_all` says whether these were all.
WITH RECURSIVE error AS (
    -- Walks the distinct fingerprints by index: dead letters that share one have the same type and code.
    (SELECT d.fingerprint, d.type, d.error_code FROM cortex.dead_letter d ORDER BY d.fingerprint USING ~<~ LIMIT 1)
    UNION ALL
    SELECT n.* FROM error e CROSS JOIN LATERAL (
        SELECT d.fingerprint, d.type, d.error_code FROM cortex.dead_letter d
        WHERE d.fingerprint ~>~ e.fingerprint ORDER BY d.fingerprint USING ~<~ LIMIT 1) n
), walked AS MATERIALIZED (
    SELECT type, error_code FROM error LIMIT $2
), looked AS MATERIALIZED (
    SELECT d.tenant FROM cortex.dead_letter d ORDER BY d.created_at DESC, d.job_id DESC LIMIT $2
), known AS (
    SELECT 'type' AS kind, array(SELECT DISTINCT type FROM walked ORDER BY type LIMIT $1) AS names,
           (SELECT count(*) FROM walked) AS count
    UNION ALL
    SELECT 'code', array(SELECT DISTINCT error_code FROM walked WHERE error_code IS NOT NULL ORDER BY error_code
                         LIMIT $1), (SELECT count(*) FROM walked)
    UNION ALL
    SELECT 'tenant', array(SELECT DISTINCT tenant FROM looked ORDER BY tenant LIMIT $1), (SELECT count(*) FROM looked)
)
SELECT kind, names, count < $2 AND cardinality(names) < $1 AS is_all FROM known;

-- name: of_jobs
-- Dead letters of these jobs, in any state. $1 job ids.
SELECT {letter}
FROM cortex.dead_letter d
{its_job}
WHERE d.job_id = ANY ($1::uuid[]);

-- name: show
-- One dead letter with data of its job. $1 job id. Spent is the cost of the job's own calls: steps that it got from its
-- origin have attempt 0.
SELECT d.*, j.error_message, j.payload, j.attempt, j.worker_attempts, j.retry_count, j.max_retries, j.timeout_s,
       j.agent_version, j.created_at AS submitted_at, j.started_at, j.finished_at, j.waited_s, j.origin_id,
       a.name AS agent, p.name AS pod, b.state AS breaker,
       nullif(concat_ws(' ', s.seq, s.key), '') AS step, s.finished_at AS step_at,
       coalesce(cost.spent, own.spent) AS spent_usd, e.stack, e.raw, e.trace_id, r.status AS retried_status,
       edit.changes AS payload_changes,
       cortex.steps_kept(j.id, d.error_class, d.error_code) AS asks_again_after, cortex.now() AS now
FROM cortex.dead_letter d
JOIN cortex.job j ON j.id = d.job_id
LEFT JOIN cortex.agent a ON a.id = d.agent_id
LEFT JOIN cortex.pod p ON p.id = j.pod_id
LEFT JOIN cortex.job r ON r.id = d.retried_as
LEFT JOIN cortex.breaker_now b ON b.name = d.error_source
LEFT JOIN LATERAL (
    SELECT t.seq, t.key, t.finished_at FROM cortex.job_step t
    WHERE t.job_id = d.job_id ORDER BY t.seq DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
    SELECT sum(f.amount) AS spent FROM cortex.fact f WHERE f.job_id = d.job_id AND f.type = 'cost') cost ON true
LEFT JOIN LATERAL (
    SELECT sum(t.cost_usd) AS spent FROM cortex.job_step t WHERE t.job_id = d.job_id AND t.attempt > 0) own ON true
LEFT JOIN LATERAL (
    SELECT f.data->>'stack' AS stack, f.data->>'raw' AS raw, f.trace_id FROM cortex.fact f
    WHERE f.job_id = d.job_id AND f.type = 'error' ORDER BY f.id DESC LIMIT 1) e ON true
LEFT JOIN LATERAL (
    SELECT nullif(f.data->'payload_changes', 'null') AS changes FROM cortex.fact f
    WHERE f.job_id = d.job_id AND f.type = 'lifecycle' AND f.subtype = 'dead_letter_retried'
    ORDER BY f.id DESC LIMIT 1) edit ON true
WHERE d.job_id = $1;
