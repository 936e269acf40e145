-- name: of_line
-- The newest request of a lineage of jobs for a step. $1 lineage, $2 key.
SELECT a.id, a.job_id, a.status, a.arguments, a.digest, a.asked_digest, a.risk, a.people, a.decided_by, a.reason,
       a.decided_at, extract(epoch FROM a.decided_at - a.created_at)::float8 AS waited_s
FROM cortex.approval a WHERE a.lineage_id = $1 AND a.key = $2 ORDER BY a.seq DESC LIMIT 1;

-- name: hold
-- Locks the jobs of several requests before they are decided one by one in the same transaction.
-- $1 approvals. Locks: the tasks, then the jobs (both ordered).
WITH owner AS MATERIALIZED (
    SELECT DISTINCT a.job_id AS id FROM unnest($1::uuid[]) AS wanted(id) JOIN cortex.approval a ON a.id = wanted.id
), task AS MATERIALIZED (
    SELECT t.job_id FROM owner JOIN cortex_worker.task t ON t.job_id = owner.id ORDER BY t.job_id FOR UPDATE OF t
)
SELECT j.id FROM owner JOIN cortex.job_record j ON j.id = owner.id
WHERE (SELECT count(*) FROM task) >= 0 ORDER BY j.id FOR UPDATE OF j;

-- name: decide
-- One person's decision. $1 approval, $2 whether to approve, $3 the caller, $4 digest of the arguments that the person
-- saw, $5 why, $6 channel, $7 address, $8 client, $9 edited arguments or null.
-- Locks: the task, the job, the approval. See cortex.decide.
SELECT * FROM cortex.decide($1, $2, $3::jsonb, $4, $5, $6, $7, $8, $9::json);

-- name: expire
-- Closes requests that were not decided in time. $1 limit. Locks: its turn, tried without waiting, so that one
-- process works at a time; per request the task, the job, the approval. Returns how many, whether another process was at
-- it, and in how many seconds the first one expires of those that were open before.
SELECT coalesce(expired, 0) AS count, expired IS NULL AS is_skipped,
       (SELECT extract(epoch FROM min(first.expires_at) - cortex.now())::float8
        FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
            SELECT a.expires_at FROM cortex.approval a WHERE a.status = 'PENDING' AND a.risk = level.risk
            ORDER BY a.expires_at, a.id LIMIT 1) first) AS due_in_s
FROM cortex.expire_approvals($1) AS expired;

-- name: remind
-- Reminds of requests that have waited for half, or for nine tenths, of their time. $1 limit. Locks: its turn,
-- tried without waiting; the requests, skipping locked ones. Returns how many, whether another process was at it, and in
-- how many seconds the next one is due of those that were open before.
SELECT coalesce(reminded, 0) AS count, reminded IS NULL AS is_skipped,
       (SELECT extract(epoch FROM min(a.remind_at) - cortex.now())::float8 FROM cortex.approval a
        WHERE a.status = 'PENDING' AND a.remind_at IS NOT NULL) AS due_in_s
FROM cortex.remind_approvals($1) AS reminded;

-- name: remind_one
-- Reminds of one request, if it still waits. $1 id, $2 the message's id: the same reminds once. Locks: the request.
-- Returns its state and the subscriptions that got the message; no row if it does not exist.
SELECT * FROM cortex.remind_approval($1, $2);

-- name: link
-- Gives a pending request a new link, which replaces the previous one. $1 id, $2 digest of its token, $3 the caller, $4
-- why. Locks: the approval. Records who and why. Null if it can no longer be decided. See cortex.link_approval.
SELECT cortex.link_approval($1, $2, $3::jsonb, $4) AS id;

-- name: is_link
-- Whether a digest is that of the token of a request's link; of a decided request, for a week. $1 id, $2 digest.
SELECT cortex.is_link($1, $2) AS is_link;

-- name: show
-- Requests in full, with their votes and what their jobs cost so far. $1 ids.
SELECT a.id, a.seq, a.job_id, a.lineage_id, a.attempt, a.key, a.tool, a.tenant, a.agent_id, a.agent_version,
       a.requested_by, a.asked, a.asked_digest, a.arguments, a.digest, a.schema, a.version, a.risk, a.effect,
       a.reversible, a.policy, a.said, a.people, a.on_deny, a.on_expiry, a.status, a.token_by, a.created_at,
       a.expires_at, a.edited_by, a.decided_at, a.decided_by, a.decided_with, a.requested_with, a.channel, a.address,
       a.client, a.reason, cortex.has_link(a.id) AS has_link, g.name AS agent, j.status AS job_status, j.type AS job_type, j.checkpoint AS job_head,
       j.worker_job_id IS NOT NULL AS is_job_due,
       e.id AS effect_id, e.status AS effect_status, cortex.agreed(a.id, a.digest) AS agreed, cortex.now() AS now,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'person', v.person, 'credential', nullif(v.credential, ''), 'at', v.at, 'channel', v.channel, 'reason', v.reason,
            'digest', encode(v.digest, 'hex'), 'edited', v.old IS NOT NULL, 'is_disabled', p.disabled_at IS NOT NULL)
            ORDER BY v.at), '[]')
        FROM cortex.approval_vote v LEFT JOIN cortex.person p ON p.id = v.person_id WHERE v.approval_id = a.id) AS votes
FROM cortex.approval a
LEFT JOIN cortex.agent g ON g.id = a.agent_id
LEFT JOIN cortex.job j ON j.id = a.job_id
LEFT JOIN cortex.effect e ON e.approval_id = a.id
WHERE a.id = ANY ($1::uuid[]);

-- name: ids_by_suffix
-- Requests whose id ends with a suffix, newest first, among the newest 100,000. $1 suffix, lower case, no dashes.
SELECT id FROM (SELECT id FROM cortex.approval ORDER BY id DESC LIMIT 100000) recent
WHERE replace(id::text, '-', '') LIKE '%' || $1 LIMIT 10;

-- name: pending
-- Waiting requests, the most dangerous first, then the first to expire. $1 after this request or null, $2 limit, $3 a
-- tenant or null for all. Each risk uses its own part of an index, from where the previous page ended.
WITH page AS (
    SELECT found.id, level.rank FROM (
        SELECT r.risk, r.rank, CASE WHEN b.id IS NULL OR r.rank < b.rank THEN '-infinity'
                                    WHEN r.rank = b.rank THEN b.expires_at ELSE 'infinity' END AS from_at, b.id AS from_id
        FROM (VALUES ('LOW', 0), ('MED', 1), ('HIGH', 2), ('CRITICAL', 3)) AS r(risk, rank)
        LEFT JOIN (
            SELECT id, expires_at, array_position(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL'], risk) - 1 AS rank
            FROM cortex.approval WHERE id = $1) b ON true
    ) level CROSS JOIN LATERAL (
        SELECT id, expires_at FROM cortex.approval
        WHERE status = 'PENDING' AND risk = level.risk AND ($3::text IS NULL OR tenant = $3)
          AND (expires_at, id) > (level.from_at, coalesce(level.from_id, '00000000-0000-0000-0000-000000000000'))
        ORDER BY expires_at, id LIMIT $2) found
    ORDER BY level.rank DESC, found.expires_at, found.id LIMIT $2
)
SELECT a.id, a.job_id, a.key, a.tool, a.arguments, a.digest, a.schema, a.version, a.risk, a.effect, a.reversible,
       a.policy, a.people, a.status, a.requested_by, a.created_at, a.expires_at, a.edited_by, a.decided_at,
       a.decided_by, a.channel, a.reason, g.name AS agent, j.type AS job_type, cortex.now() AS now,
       cortex.agreed(a.id, a.digest) AS agreed
FROM page JOIN cortex.approval a ON a.id = page.id
LEFT JOIN cortex.agent g ON g.id = a.agent_id LEFT JOIN cortex.job j ON j.id = a.job_id
ORDER BY page.rank DESC, a.expires_at, a.id;

-- name: list
-- Newest requests first, each state by its own index. $1 states, $2 before this request or null, $3 limit, $4 a tenant
-- or null for all: only one of the two is read.
WITH page AS (
    SELECT found.id FROM unnest($1::text[]) AS wanted(status)
    LEFT JOIN cortex.approval b ON b.id = $2
    CROSS JOIN LATERAL (
        (SELECT id, created_at FROM cortex.approval
         WHERE status = wanted.status AND coalesce($4::text, 'default') = 'default' AND ($4 IS NULL OR tenant = $4)
           AND (created_at, id) < (coalesce(b.created_at, 'infinity'), coalesce(b.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
         ORDER BY created_at DESC, id DESC LIMIT $3)
        UNION ALL
        (SELECT id, created_at FROM cortex.approval
         WHERE $4::text IS NOT NULL AND tenant = $4 AND tenant <> 'default' AND status = wanted.status
           AND (created_at, id) < (coalesce(b.created_at, 'infinity'), coalesce(b.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
         ORDER BY created_at DESC, id DESC LIMIT $3)) found
    ORDER BY found.created_at DESC, found.id DESC LIMIT $3
)
SELECT a.id, a.job_id, a.key, a.tool, a.arguments, a.digest, a.schema, a.version, a.risk, a.effect, a.reversible,
       a.policy, a.people, a.status, a.requested_by, a.created_at, a.expires_at, a.edited_by, a.decided_at,
       a.decided_by, a.channel, a.reason, g.name AS agent, j.type AS job_type, cortex.now() AS now,
       cortex.agreed(a.id, a.digest) AS agreed
FROM page JOIN cortex.approval a ON a.id = page.id
LEFT JOIN cortex.agent g ON g.id = a.agent_id LEFT JOIN cortex.job j ON j.id = a.job_id
ORDER BY a.created_at DESC, a.id DESC;

-- name: of_job
-- Requests of a job, the oldest first. $1 job id, $2 limit.
SELECT a.id, a.job_id, a.key, a.tool, a.arguments, a.digest, a.schema, a.version, a.risk, a.effect, a.reversible,
       a.policy, a.people, a.status, a.requested_by, a.created_at, a.expires_at, a.edited_by, a.decided_at,
       a.decided_by, a.channel, a.reason, NULL AS agent, NULL AS job_type, cortex.now() AS now,
       cortex.agreed(a.id, a.digest) AS agreed
FROM cortex.approval a WHERE a.job_id = $1 ORDER BY a.created_at, a.id LIMIT $2;

-- name: changes
-- Changes of requests, in order: requested, agreed (more people were needed), decided. $1 since this instant, or null
-- for now, $2 limit, $3 a tenant or null for all.
WITH edge AS MATERIALIZED (SELECT coalesce($1::timestamptz, cortex.now()) AS since), event AS (
    SELECT * FROM (
        (SELECT a.created_at AS at, 'asked' AS event, a.id, a.requested_by AS person, NULL AS reason
         FROM unnest(ARRAY['PENDING', 'APPROVED', 'DENIED', 'EXPIRED', 'CANCELLED']) AS wanted(status)
         CROSS JOIN LATERAL (
            SELECT id, created_at, requested_by FROM cortex.approval
            WHERE status = wanted.status AND created_at >= (SELECT since FROM edge)
              AND ($3::text IS NULL OR tenant = $3)
            ORDER BY created_at, id LIMIT $2) a
         ORDER BY a.created_at LIMIT $2)
        UNION ALL
        (SELECT v.at, 'agreed', v.approval_id, v.person, v.reason
         FROM cortex.approval_vote v WHERE v.at >= (SELECT since FROM edge)
           AND NOT EXISTS (SELECT FROM cortex.approval a WHERE a.id = v.approval_id AND a.decided_at = v.at)
           AND ($3 IS NULL OR EXISTS (SELECT FROM cortex.approval o WHERE o.id = v.approval_id AND o.tenant = $3))
         ORDER BY v.at LIMIT $2)
        UNION ALL
        (SELECT a.decided_at, lower(a.status), a.id, a.decided_by, a.reason
         FROM cortex.approval a WHERE a.decided_at >= (SELECT since FROM edge) AND ($3 IS NULL OR a.tenant = $3)
         ORDER BY a.decided_at LIMIT $2)) found
    ORDER BY at, event, id LIMIT $2
)
SELECT e.at, e.event, e.id, e.person, e.reason, a.job_id, a.tool, a.key, a.risk, a.people, a.arguments, a.channel,
       a.expires_at, g.name AS agent, cortex.agreed(a.id, a.digest) AS agreed, cortex.now() AS now
FROM event e JOIN cortex.approval a ON a.id = e.id LEFT JOIN cortex.agent g ON g.id = a.agent_id
ORDER BY e.at, e.event, e.id;

-- name: inbox
-- How many requests wait, counted up to a limit of each risk, and when the first of them expires. $1 limit.
WITH each AS MATERIALIZED (
    SELECT found.count, found.expires_at FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk)
    CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(expires_at) AS expires_at FROM (
            SELECT expires_at FROM cortex.approval WHERE status = 'PENDING' AND risk = level.risk
            ORDER BY expires_at, id LIMIT $1) waits) found
)
SELECT (SELECT sum(count) FROM each)::int AS count, (SELECT min(expires_at) FROM each) AS expires_at, cortex.now() AS now;
