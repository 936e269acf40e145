-- name: ensure
-- Stores a pod's configuration, once. $1 SHA-256 of the spec, $2 spec. Locks: only the row. Returns its id.
WITH made AS (
    INSERT INTO cortex.config (digest, spec) VALUES ($1, $2::jsonb) ON CONFLICT (digest) DO NOTHING RETURNING id
)
SELECT id FROM made UNION ALL SELECT id FROM cortex.config WHERE digest = $1 LIMIT 1;

-- name: spec
-- The configuration that a job started with. $1 id.
SELECT spec FROM cortex.config WHERE id = $1;
