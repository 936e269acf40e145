-- name: waiting
-- Waiting requests without their arguments, which may be large: the most dangerous first, then the first to expire; and
-- others by their ids, in any state. $1 limit of the first, $2 the viewer as a caller, $3 ids of the others, $4 the
-- viewer's name, $5 a tenant or null for all.
WITH page AS (
    SELECT found.id FROM unnest(ARRAY['CRITICAL', 'HIGH', 'MED', 'LOW']) WITH ORDINALITY AS level(risk, place)
    CROSS JOIN LATERAL (
        SELECT id, expires_at FROM cortex.approval WHERE status = 'PENDING' AND risk = level.risk AND ($5::text IS NULL OR tenant = $5)
        ORDER BY expires_at, id LIMIT $1) found
    ORDER BY level.place, found.expires_at, found.id LIMIT $1
), wanted AS (SELECT id FROM page UNION SELECT unnest($3::uuid[]))
SELECT a.id, a.job_id, a.key, a.tool, a.digest, a.version, a.risk, a.effect, a.policy, a.people, a.status,
       a.created_at, a.expires_at, a.decided_at, a.decided_by, a.channel, a.reason, a.edited_by,
       g.name AS agent, j.type AS job_type,
       CASE WHEN a.people > 1 THEN cortex.agreed(a.id, a.digest) ELSE 0 END AS agreed,
       cortex.is_own_request(
           a.risk, a.lineage_id, a.requested_by, a.requested_with, me.person_id, $4, me.credential) AS is_own,
       a.people > 1 AND coalesce(cortex.has_agreed(a.id, a.digest, me.person_id, me.credential), false) AS has_agreed
FROM wanted JOIN cortex.approval a ON a.id = wanted.id CROSS JOIN cortex.known_person($2::jsonb) me
LEFT JOIN cortex.agent g ON g.id = a.agent_id LEFT JOIN cortex.job j ON j.id = a.job_id;

-- name: decided
-- Requests that no longer wait, latest first, without their arguments. $1 limit, $2 a tenant or null for all.
SELECT a.id, a.job_id, a.key, a.tool, a.digest, a.version, a.risk, a.effect, a.policy, a.people, a.status,
       a.created_at, a.expires_at, a.decided_at, a.decided_by, a.channel, a.reason, a.edited_by,
       g.name AS agent, j.type AS job_type, a.people AS agreed, false AS is_own, false AS has_agreed
FROM (SELECT id FROM cortex.approval WHERE decided_at IS NOT NULL AND ($2::text IS NULL OR tenant = $2)
      ORDER BY decided_at DESC LIMIT $1) page
JOIN cortex.approval a ON a.id = page.id
LEFT JOIN cortex.agent g ON g.id = a.agent_id LEFT JOIN cortex.job j ON j.id = a.job_id
ORDER BY a.decided_at DESC, a.id;

-- name: arguments
-- The arguments of requests, canonical JSON: in the order of the ids, as many as fit into a number of characters, and
-- the first in any case. $1 ids, $2 characters.
SELECT id, digest, text FROM (
    SELECT a.id, a.digest, a.arguments::text AS text,
           sum(length(a.arguments::text)) OVER (ORDER BY asked.place) - length(a.arguments::text) AS before
    FROM unnest($1::uuid[]) WITH ORDINALITY AS asked(id, place) JOIN cortex.approval a ON a.id = asked.id) counted
WHERE before < $2;
