-- name: create
-- Creates a token. $1 id, $2 name of the person, $3 digest, $4 roles, $5 seconds until it expires or null, $6 who
-- creates it, $7 why, $8 its tenant or null for all. Locks: none. Records who and why. Returns its row; nothing if it already exists.
WITH made AS (
    INSERT INTO cortex.api_token (id, name, digest, roles, expires_at, created_by, tenant)
    SELECT $1, $2, $3, $4, cortex.now() + $5::float8 * interval '1 second', $6, $8
    ON CONFLICT DO NOTHING
    RETURNING *
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'token_created', 'token:' || name,
           jsonb_build_object('by', created_by, 'reason', $7::text, 'token_id', id, 'roles', roles,
                              'expires_at', expires_at, 'tenant', tenant)
    FROM made
)
SELECT id, name, roles, tenant, created_by, created_at, expires_at, revoked_at, revoked_by, last_used_at,
       cortex.now() AS now
FROM made;

-- name: revoke
-- Revokes a token and ends its sessions. $1 id, $2 who, $3 why. Locks: the token, its sessions. Records who and why.
-- Returns the token, and whether it was already revoked: then nothing changes.
WITH held AS MATERIALIZED (
    SELECT id, revoked_at IS NOT NULL AS was_revoked FROM cortex.api_token WHERE id = $1 FOR UPDATE
), revoked AS (
    UPDATE cortex.api_token t SET revoked_at = cortex.now(), revoked_by = $2
    FROM held WHERE t.id = held.id AND NOT held.was_revoked
    RETURNING t.*
), ended AS (
    DELETE FROM cortex.api_session s USING revoked WHERE s.token_id = revoked.id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'token_revoked', 'token:' || name,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'token_id', id)
    FROM revoked
)
SELECT t.id, t.name, coalesce(r.revoked_by, t.revoked_by) AS revoked_by,
       coalesce(r.revoked_at, t.revoked_at) AS revoked_at, held.was_revoked
FROM held JOIN cortex.api_token t ON t.id = held.id LEFT JOIN revoked r ON r.id = held.id;

-- name: used
-- The token with a digest; notes its use. $1 digest. Locks: its row, once a minute, to note the use. Returns its
-- holder, the roles, and whether it is still valid; nothing for an unknown digest.
WITH noted AS (
    UPDATE cortex.api_token SET last_used_at = cortex.now()
    WHERE digest = $1 AND revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true)
      AND coalesce(last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT id, name, digest, roles, tenant, revoked_at IS NOT NULL AS is_revoked,
       coalesce(expires_at <= cortex.now(), false) AS is_expired
FROM cortex.api_token WHERE digest = $1;

-- name: valid
-- Those of these tokens that are valid now. $1 ids. Locks: none.
SELECT id FROM cortex.api_token
WHERE id = ANY ($1::uuid[]) AND revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true);

-- name: exist
-- Whether there is any valid token. Locks: none.
SELECT EXISTS (
    SELECT FROM cortex.api_token WHERE revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true)) AS exist;

-- name: list
-- Tokens, newest first. $1 only those of this name or null, $2 whether to include invalid ones, $3 limit.
SELECT id, name, roles, tenant, created_by, created_at, expires_at, revoked_at, revoked_by, last_used_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'REVOKED' WHEN expires_at <= cortex.now() THEN 'EXPIRED' ELSE 'ACTIVE' END
           AS state, cortex.now() AS now
FROM cortex.api_token
WHERE ($1::text IS NULL OR name = $1)
  AND ($2 OR revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true))
ORDER BY created_at DESC, id DESC LIMIT $3;

-- name: sign_in
-- Starts a session of a token's holder. $1 digest of the cookie, $2 digest of the token, $3 its duration in seconds.
-- Locks: expired sessions, at most 100, which are deleted, skipping locked; the token, against its revocation. Records
-- who. Returns nothing for an invalid token.
WITH expired AS MATERIALIZED (
    SELECT digest FROM cortex.api_session WHERE expires_at <= cortex.now()
    ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.api_session s USING expired WHERE s.digest = expired.digest
), holder AS MATERIALIZED (
    SELECT id, name FROM cortex.api_token
    WHERE digest = $2 AND revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true) FOR SHARE
), begun AS (
    INSERT INTO cortex.api_session (digest, token_id, expires_at)
    SELECT $1, id, cortex.now() + $3::float8 * interval '1 second' FROM holder
    RETURNING token_id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'signed_in', 'token:' || name, jsonb_build_object('by', name, 'token_id', id) FROM holder
)
SELECT token_id FROM begun;

-- name: of_session
-- The token behind a valid session. $1 digest of the cookie. Locks: as tokens.used. Returns its holder and the roles;
-- nothing when the session or its token is no longer valid.
WITH found AS MATERIALIZED (
    SELECT s.digest, t.id, t.name, t.roles, t.tenant FROM cortex.api_session s JOIN cortex.api_token t ON t.id = s.token_id
    WHERE s.digest = $1 AND s.expires_at > cortex.now()
      AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
), noted AS (
    UPDATE cortex.api_token t SET last_used_at = cortex.now()
    FROM found WHERE t.id = found.id AND coalesce(t.last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT digest, id, name, roles, tenant FROM found;

-- name: sign_out
-- Ends a session. $1 digest of the cookie. Locks: its row.
DELETE FROM cortex.api_session WHERE digest = $1;
