-- name: lock
-- Allows one change of a flow at a time. $1 name. Locks: an advisory lock to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('cortex.flow', 0) # hashtextextended($1, 0));

-- name: apply
-- Adds a version of a flow unless its newest is the same. $1 name, $2 specification, $3 SHA-256 of it, $4 who, $5 why.
-- Locks: the flow's row. Records who and why. Returns version and whether it is new.
WITH flow AS (
    INSERT INTO cortex.flow AS f (name, version) VALUES ($1, 1)
    ON CONFLICT (name) DO UPDATE SET version = f.version + CASE WHEN EXISTS (
        SELECT FROM cortex.flow_version v
        WHERE v.name = f.name AND v.version = f.version AND v.digest = $3) THEN 0 ELSE 1 END
    RETURNING f.name, f.version
), added AS (
    INSERT INTO cortex.flow_version (name, version, spec, digest, applied_by)
    SELECT name, version, $2::jsonb, $3, $4 FROM flow
    ON CONFLICT (name, version) DO NOTHING
    RETURNING version
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'flow_applied', 'flow:' || left($1, 290),
           jsonb_build_object('version', added.version, 'by', $4::text, 'reason', $5::text)
    FROM added
)
SELECT flow.version, EXISTS (SELECT FROM added) AS is_new FROM flow;

-- name: version
-- One version of a flow. $1 name, $2 version.
SELECT spec FROM cortex.flow_version WHERE name = $1 AND version = $2;

-- name: list
-- Flows with their newest versions, by name. $1 after name, $2 limit.
SELECT f.name, f.version, v.spec, v.applied_by, v.applied_at, cortex.now() AS now
FROM cortex.flow f JOIN cortex.flow_version v ON v.name = f.name AND v.version = f.version
WHERE f.name > $1 ORDER BY f.name LIMIT $2;

-- name: show
-- Versions of a flow, newest first. $1 name, $2 version or null for all.
SELECT name, version, spec, applied_by, applied_at, cortex.now() AS now
FROM cortex.flow_version
WHERE name = $1 AND ($2::int IS NULL OR version = $2)
ORDER BY version DESC LIMIT 100;
