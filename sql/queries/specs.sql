-- name: lock
-- Allows one change of agents and flows at a time. Locks: its turn, to the end of the transaction.
SELECT FROM cortex.runner_turn WHERE name = 'specs' FOR NO KEY UPDATE;

-- name: apply_agent
-- Adds a version of an agent unless its newest is the same. $1 id for a new agent, $2 name, $3 specification,
-- $4 SHA-256 of it, $5 who, $6 why, $7 by which credential. Locks: the agent's row. Records who and why. Returns version and whether it is new.
WITH agent AS (
    INSERT INTO cortex.agent AS a (id, name, version) VALUES ($1, $2, 1)
    ON CONFLICT (name) DO UPDATE SET version = a.version + CASE WHEN EXISTS (
        SELECT FROM cortex.agent_version v
        WHERE v.agent_id = a.id AND v.version = a.version AND v.digest = $4) THEN 0 ELSE 1 END
    RETURNING a.id, a.version
), added AS (
    INSERT INTO cortex.agent_version (agent_id, version, spec, digest, applied_by)
    SELECT id, version, $3::jsonb, $4, $5 FROM agent
    ON CONFLICT (agent_id, version) DO NOTHING
    RETURNING version
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, agent_id, agent_version, data)
    SELECT 'lifecycle', 'agent_applied', 'agent:' || left($2, 290), agent.id, added.version,
           jsonb_build_object('by', $5::text, 'credential', $7::text, 'reason', $6::text)
    FROM agent, added
)
SELECT agent.version, EXISTS (SELECT FROM added) AS is_new FROM agent;

-- name: apply_flow
-- Adds a version of a flow unless its newest is the same. $1 name, $2 specification, $3 SHA-256 of it, $4 who, $5 why, $6 by
-- which credential.
-- Locks: the flow's row. Records who and why. Returns version and whether it is new.
WITH flow AS (
    INSERT INTO cortex.flow AS f (name, version) VALUES ($1, 1)
    ON CONFLICT (name) DO UPDATE SET version = f.version + CASE WHEN EXISTS (
        SELECT FROM cortex.flow_version v
        WHERE v.name = f.name AND v.version = f.version AND v.digest = $3) THEN 0 ELSE 1 END
    RETURNING f.name, f.version
), added AS (
    INSERT INTO cortex.flow_version (name, version, spec, digest, applied_by, applied_with)
    SELECT name, version, $2::jsonb, $3, $4, CASE WHEN $6::text IS NOT NULL THEN cortex.acting_credential($6) END FROM flow
    ON CONFLICT (name, version) DO NOTHING
    RETURNING version
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'flow_applied', 'flow:' || left($1, 290),
           jsonb_build_object('version', added.version, 'by', $4::text, 'credential', $6::text, 'reason', $5::text)
    FROM added
)
SELECT flow.version, EXISTS (SELECT FROM added) AS is_new FROM flow;

-- name: agent_version
-- One version of an agent. $1 agent id, $2 version.
SELECT a.name, v.spec FROM cortex.agent_version v JOIN cortex.agent a ON a.id = v.agent_id
WHERE v.agent_id = $1 AND v.version = $2;

-- name: flow_version
-- One version of a flow. $1 name, $2 version.
SELECT spec FROM cortex.flow_version WHERE name = $1 AND version = $2;

-- name: newest_agent
-- An agent's newest version. $1 name.
SELECT id, version FROM cortex.agent WHERE name = $1;

-- name: agents
-- Agents with their newest versions, by name. $1 after name, $2 limit.
SELECT a.name, a.version, v.spec, v.applied_by, v.applied_at, cortex.now() AS now
FROM cortex.agent a JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version
WHERE a.name > $1 ORDER BY a.name LIMIT $2;

-- name: flows
-- Flows with their newest versions, by name. $1 after name, $2 limit.
SELECT f.name, f.version, v.spec, v.applied_by, v.applied_at, cortex.now() AS now
FROM cortex.flow f JOIN cortex.flow_version v ON v.name = f.name AND v.version = f.version
WHERE f.name > $1 ORDER BY f.name LIMIT $2;

-- name: agent_versions
-- Versions of an agent, newest first. $1 name, $2 version or null for all.
SELECT a.name, v.version, v.spec, v.applied_by, v.applied_at, cortex.now() AS now
FROM cortex.agent a JOIN cortex.agent_version v ON v.agent_id = a.id
WHERE a.name = $1 AND ($2::int IS NULL OR v.version = $2)
ORDER BY v.version DESC LIMIT 100;

-- name: flow_versions
-- Versions of a flow, newest first. $1 name, $2 version or null for all.
SELECT name, version, spec, applied_by, applied_at, cortex.now() AS now
FROM cortex.flow_version
WHERE name = $1 AND ($2::int IS NULL OR version = $2)
ORDER BY version DESC LIMIT 100;

-- name: cache_uses
-- What the latest calls of agents read from the provider's cache: the share of their prompts, and what that saved.
-- $1 names, $2 calls of an agent at most, $3 a tenant or null for all. Each branch has its index: so many calls are read.
SELECT a.name, CASE WHEN sum(c.read + c.written) > 0
                    THEN sum(c.read)::float8 / sum(c.input + c.read + c.written) END AS hit, sum(c.saved) AS saved_usd
FROM cortex.agent a
CROSS JOIN LATERAL (
    SELECT (f.data->>'saved_usd')::numeric AS saved,
           coalesce((f.data->'usage'->>'input_tokens')::bigint, 0) AS input,
           coalesce((f.data->'usage'->>'cache_read_tokens')::bigint, 0) AS read,
           coalesce((f.data->'usage'->>'cache_write_tokens')::bigint, 0) AS written
    FROM (
        (SELECT f.id, f.data FROM cortex.fact f
         WHERE f.type = 'cost' AND f.agent_id = a.id AND coalesce($3, 'default') = 'default'
           AND ($3::text IS NULL OR f.tenant = $3)
         ORDER BY f.id DESC LIMIT $2)
        UNION ALL
        (SELECT f.id, f.data FROM cortex.fact f
         WHERE f.type = 'cost' AND f.agent_id = a.id AND f.tenant = $3 AND f.tenant <> 'default'
         ORDER BY f.id DESC LIMIT $2)) f) c
WHERE a.name = ANY ($1::text[])
GROUP BY a.name;

-- name: cache_misses
-- Agents whose calls write prompts to the cache and hardly read them: their later calls, the share of their prompts that
-- is read. Of the newest 10,000 calls of agents within seven days; "later" are those that are not the first one of their
-- job: they can read what an earlier one wrote. $1 calls at least, $2 share at most, $3 a tenant or null.
SELECT a.name, c.calls, c.read::float8 / c.prompt AS share
FROM (SELECT n.agent_id, count(*)::int AS calls, sum(n.input + n.read + n.written)::bigint AS prompt,
             sum(n.read)::bigint AS read, sum(n.written)::bigint AS written
      FROM (SELECT r.*, row_number() OVER (PARTITION BY r.job_id ORDER BY r.id) AS n
            FROM (SELECT f.id, f.agent_id, f.job_id,
                         coalesce((f.data->'usage'->>'input_tokens')::bigint, 0) AS input,
                         coalesce((f.data->'usage'->>'cache_read_tokens')::bigint, 0) AS read,
                         coalesce((f.data->'usage'->>'cache_write_tokens')::bigint, 0) AS written
                  FROM cortex.fact f
                  WHERE f.type = 'cost' AND f.at >= cortex.now() - interval '7 days' AND f.agent_id IS NOT NULL
                    AND ($3::text IS NULL OR f.tenant = $3)
                  ORDER BY f.at DESC LIMIT 10000) r) n
      WHERE n.n > 1 GROUP BY n.agent_id) c
JOIN cortex.agent a ON a.id = c.agent_id
WHERE c.calls >= $1 AND c.prompt > 0 AND c.written > c.read AND c.read::float8 / c.prompt <= $2
ORDER BY share, a.name LIMIT 100;

-- name: agent_ids_like
-- Agents whose names match. $1 LIKE patterns, $2 limit.
SELECT id FROM cortex.agent WHERE name LIKE ANY ($1::text[]) ORDER BY name LIMIT $2;
