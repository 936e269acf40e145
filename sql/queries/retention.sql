-- name: current
-- The setting, and what is left to delete now. Locks: none.
SELECT r.completed_s, r.failed_s, r.facts_s, r.archive, r.changed_by, r.changed_at, r.reason,
       CASE WHEN r.held_until > cortex.now() THEN r.held_until END AS held_until, cortex.now() AS now
FROM cortex.retention r;

-- name: set
-- Sets or unsets it. $1 seconds to keep completed jobs, $2 failed and cancelled ones, $3 facts, $4 folder of copies, $5
-- the caller, $6 why; all periods null: unset. Locks: the setting. Records it. Returns the setting before.
SELECT cortex.set_retention($1::bigint, $2::bigint, $3::bigint, $4::text, $5::jsonb, $6::text)::text AS before;

-- name: turn
-- Takes the turn of deleting to the end of the transaction. Locks: that turn, if it is free; the setting, once a minute.
SELECT is_mine, held_s, archive FROM cortex.retention_turn();

-- name: jobs
-- Reads the next finished jobs of a state. $1 state, $2 limit. Locks: none. Returns how many were read, the last of
-- them, and the first jobs of those lineages that may be deleted; null while nothing of that state may.
WITH place AS MATERIALIZED (
    SELECT p.created_at, p.job_id FROM cortex.retention_place p
    WHERE p.kind = $1::text AND p.began_at <= cortex.now()
      AND NOT (p.is_at_end AND p.began_at < cortex.now() - interval '1 hour')
), looked AS MATERIALIZED (
    SELECT j.id, j.created_at, j.lineage_id FROM cortex.job_record j
    WHERE j.status = $1::text::cortex.job_status AND j.created_at < cortex.retention_limit($1::text)
      AND (j.created_at, j.id) > (coalesce((SELECT created_at FROM place), '-infinity'),
                                  coalesce((SELECT job_id FROM place), '00000000-0000-0000-0000-000000000000'))
    ORDER BY j.created_at, j.id LIMIT $2
)
SELECT (SELECT count(*) FROM looked) AS looked_count, last.created_at, last.id AS job_id,
       ARRAY(SELECT r.id FROM cortex.retired(ARRAY(
           SELECT l.id FROM looked l WHERE l.lineage_id IS NULL ORDER BY l.created_at, l.id)) AS r(id)) AS roots,
       NOT EXISTS (SELECT FROM place) AS is_new_pass
FROM (SELECT cortex.retention_limit($1::text) AS old) l
LEFT JOIN LATERAL (SELECT created_at, id FROM looked ORDER BY created_at DESC, id DESC LIMIT 1) last ON true
WHERE l.old IS NOT NULL;

-- name: facts
-- Reads the next facts. $1 limit. Locks: none. Returns how many were read that are old enough, the last that was read,
-- and those that may be deleted; null while no fact may.
WITH place AS MATERIALIZED (
    SELECT p.fact_id FROM cortex.retention_place p
    WHERE p.kind = 'FACTS' AND p.began_at <= cortex.now()
      AND NOT (p.is_at_end AND p.began_at < cortex.now() - interval '1 hour')
), looked AS MATERIALIZED (
    SELECT f.id, f.at FROM cortex.fact f
    WHERE f.id > coalesce((SELECT fact_id FROM place), 0) ORDER BY f.id LIMIT $1
), old AS MATERIALIZED (
    SELECT k.id FROM looked k WHERE k.at < cortex.retention_limit('FACTS')
)
SELECT (SELECT count(*) FROM old) AS looked_count, (SELECT max(id) FROM old) AS fact_id,
       ARRAY(SELECT r.id FROM cortex.retired_facts(ARRAY(SELECT o.id FROM old o ORDER BY o.id)) AS r(id)) AS facts,
       NOT EXISTS (SELECT FROM place) AS is_new_pass
FROM (SELECT cortex.retention_limit('FACTS') AS old) l
WHERE l.old IS NOT NULL;

-- name: place
-- Records how far was read. $1 kind, $2 when the last job was submitted, $3 that job, $4 the last fact, $5 whether that
-- was all, $6 whether a pass began. Locks: the place.
INSERT INTO cortex.retention_place AS p (kind, created_at, job_id, fact_id, is_at_end, began_at)
VALUES ($1, $2, $3, $4, $5, cortex.now())
ON CONFLICT (kind) DO UPDATE
SET created_at = CASE WHEN $6::boolean THEN excluded.created_at ELSE coalesce(excluded.created_at, p.created_at) END,
    job_id = CASE WHEN $6 THEN excluded.job_id ELSE coalesce(excluded.job_id, p.job_id) END,
    fact_id = CASE WHEN $6 THEN excluded.fact_id ELSE coalesce(excluded.fact_id, p.fact_id) END,
    is_at_end = excluded.is_at_end,
    began_at = CASE WHEN $6 THEN excluded.began_at ELSE p.began_at END;

-- name: newest_fact
-- The newest fact, so that a copy of jobs can be compared with what is deleted; and the time.
SELECT coalesce(max(id), 0) AS id, cortex.now() AS now FROM cortex.fact;

-- name: copy_of_lineage
-- One lineage as lines of JSON, a record each: its jobs, then what belongs to each table. $1 its first job. Locks: none.
-- A line break can only stand between the tokens of a json column. The digests of links to approvals are left out.
WITH job AS MATERIALIZED (
    SELECT id FROM cortex.job_record WHERE id = $1::uuid
    UNION ALL
    SELECT id FROM cortex.job_record WHERE lineage_id = $1::uuid
)
SELECT replace(json_build_object('table', line.of, 'row', line.row)::text, E'\n', ' ') AS line
FROM (
    SELECT 1 AS nth, 'job_record' AS of, to_json(r) AS row, r.id AS job_id, 0::bigint AS seq
    FROM job JOIN cortex.job_record r ON r.id = job.id
    UNION ALL
    SELECT 2, 'job_history', to_json(h), h.job_id, h.id FROM job JOIN cortex.job_history h ON h.job_id = job.id
    UNION ALL
    SELECT 3, 'job_attempt', to_json(a), a.job_id, a.attempt FROM job JOIN cortex.job_attempt a ON a.job_id = job.id
    UNION ALL
    SELECT 4, 'job_step', to_json(s), s.job_id, s.seq FROM job JOIN cortex.job_step s ON s.job_id = job.id
    UNION ALL
    SELECT 5, 'timeout_event', to_json(t), t.job_id, t.id FROM job JOIN cortex.timeout_event t ON t.job_id = job.id
    UNION ALL
    SELECT 6, 'effect', to_json(e), e.job_id, 0 FROM job JOIN cortex.effect e ON e.job_id = job.id
    UNION ALL
    -- Every column that pods may read: not the digests of links.
    SELECT 7, 'approval', (SELECT to_json(c) FROM (SELECT
               a.id, a.seq, a.job_id, a.lineage_id, a.attempt, a.key, a.tool, a.tenant, a.agent_id, a.agent_version,
               a.requested_by, a.asked, a.asked_digest, a.arguments, a.digest, a.schema, a.version, a.risk, a.effect,
               a.reversible, a.policy, a.said, a.people, a.on_deny, a.on_expiry, a.status, a.token_by, a.created_at,
               a.expires_at, a.edited_by, a.decided_at, a.decided_by, a.decided_person, a.channel, a.address, a.client,
               a.reason, a.requested_with, a.decided_with, a.brief, a.remind_at) c), a.job_id, a.seq
    FROM job JOIN cortex.approval a ON a.job_id = job.id
    UNION ALL
    SELECT 8, 'approval_vote', to_json(v), a.job_id, a.seq
    FROM job JOIN cortex.approval a ON a.job_id = job.id JOIN cortex.approval_vote v ON v.approval_id = a.id
    UNION ALL
    SELECT 9, 'dead_letter', to_json(d), d.job_id, 0 FROM job JOIN cortex.dead_letter d ON d.job_id = job.id
    UNION ALL
    SELECT 10, 'fact', to_json(f), f.job_id, f.id FROM job JOIN cortex.fact f ON f.job_id = job.id
    UNION ALL
    SELECT 11, 'log_line', to_json(l), l.job_id, l.id FROM job JOIN cortex.log_line l ON l.job_id = job.id
    UNION ALL
    SELECT 13, 'job_file', json_build_object('job_id', f.job_id, 'sha256', encode(f.sha256, 'hex'),
               'media_type', f.media_type, 'size', f.size, 'kept_at', f.kept_at,
               'base64', translate(encode(f.content, 'base64'), E'\n', '')), f.job_id, 0
    FROM job JOIN cortex.job_file f ON f.job_id = job.id
    UNION ALL
    SELECT 14, 'job_published', to_json(p), p.job_id, 0 FROM job JOIN cortex.job_published p ON p.job_id = job.id
    UNION ALL
    SELECT 15, 'job_child', to_json(c), c.lineage_id, 0 FROM job JOIN cortex.job_child c ON c.lineage_id = job.id
    UNION ALL
    SELECT 12, 'effect_vote', to_json(v), e.job_id, v.call
    FROM job JOIN cortex.effect e ON e.job_id = job.id JOIN cortex.effect_vote v ON v.effect_id = e.id
) line
ORDER BY line.nth > 1, line.job_id, line.nth, line.seq;

-- name: copy_of_facts
-- Facts as lines of JSON. $1 ids. Locks: none.
SELECT json_build_object('table', 'fact', 'row', to_json(f))::text AS line
FROM cortex.fact f WHERE f.id = ANY ($1::bigint[]) ORDER BY f.id;

-- name: delete_jobs
-- Deletes the lineages of these first jobs that may still be deleted. $1 ids, $2 the newest fact of their copy, or null.
-- Locks: the jobs and their dead letters (ordered, skipping locked). Returns how many lineages and jobs.
SELECT lineages, jobs FROM cortex.delete_retired($1::uuid[], $2::bigint);

-- name: delete_facts
-- Deletes those of these facts that may still be deleted. $1 ids. Returns how many.
SELECT cortex.delete_retired_facts($1::bigint[]) AS count;

-- name: forget_upkeep
-- Deletes jobs of built-in schedules that ended well long ago. $1 seconds since, $2 limit of each. Returns how many.
SELECT cortex.forget_upkeep($1, $2) AS count;
