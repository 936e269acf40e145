-- name: create
-- Creates a token. $1 id, $2 name of its person, who is made if there is none, $3 that name's skeleton, $4 digest, $5
-- roles, $6 seconds until it expires or null, $7 the caller, $8 why, $9 its tenant or null for all. Locks: none. Records who and why. Returns its row;
-- nothing if it already exists. See cortex.create_token.
SELECT * FROM cortex.create_token($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9);

-- name: revoke
-- Revokes a token and ends its sessions. $1 id, $2 the caller, $3 why. Locks: the token, its sessions. Records who and
-- why. Returns the token, and whether it was already revoked: then nothing changes.
SELECT * FROM cortex.revoke_token($1, $2::jsonb, $3);

-- name: used
-- The token with a digest; notes its use. $1 digest. Locks: its row, once a minute, to note the use. Returns its
-- holder, the roles, and whether it is still valid; nothing for an unknown digest.
SELECT * FROM cortex.use_token($1);

-- name: valid
-- Those of these tokens that are valid now, as their people are. $1 ids. Locks: none.
SELECT t.id FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
WHERE t.id = ANY ($1::uuid[]) AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
  AND p.disabled_at IS NULL;

-- name: exist
-- Whether there is any valid token. Locks: none.
SELECT EXISTS (
    SELECT FROM cortex.api_token WHERE revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true)) AS exist;

-- name: list
-- Tokens, newest first. $1 only those of this name or null, $2 whether to include invalid ones, $3 limit.
SELECT t.id, t.name, t.roles, t.tenant, t.created_by, t.created_at, t.expires_at, t.revoked_at, t.revoked_by,
       t.last_used_at, CASE WHEN t.revoked_at IS NOT NULL THEN 'REVOKED' WHEN t.expires_at <= cortex.now() THEN 'EXPIRED'
                            WHEN p.disabled_at IS NOT NULL THEN 'DISABLED' ELSE 'ACTIVE' END AS state, cortex.now() AS now
FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
WHERE ($1::text IS NULL OR t.name = $1)
  AND ($2 OR t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true))
ORDER BY t.created_at DESC, t.id DESC LIMIT $3;

-- name: sign_in
-- Starts a session of a token's holder. $1 digest of the cookie, $2 digest of the token, $3 its duration in seconds.
-- Locks: expired sessions, at most 100, which are deleted, skipping locked; the token, against its revocation. Records
-- who. Returns nothing for an invalid token.
SELECT * FROM cortex.sign_in($1, $2, $3);

-- name: of_session
-- The token behind a valid session. $1 digest of the cookie. Locks: as tokens.used. Returns its holder and the roles;
-- nothing when the session or its token is no longer valid.
SELECT * FROM cortex.use_session($1);

-- name: sign_out
-- Ends a session. $1 digest of the cookie. Locks: its row.
SELECT cortex.sign_out($1);
