-- Access: people and what proves them, tokens of the HTTP API, sessions of the web page, and idempotency keys.

-- ------------------------------------------------------------------ people

CREATE TABLE cortex.person (
    id uuid PRIMARY KEY DEFAULT cortex.uuid7(),
    name text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 100 AND name !~ '[()]'),
    skeleton text NOT NULL UNIQUE CHECK (length(skeleton) >= 1),
    created_by text NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    disabled_at timestamptz,
    disabled_by text CHECK (length(disabled_by) BETWEEN 1 AND 200),
    CONSTRAINT disabled_by_only_when_disabled CHECK ((disabled_by IS NULL) = (disabled_at IS NULL))
);
COMMENT ON TABLE cortex.person IS
    'People and programs that act. A decision counts people, whatever their credentials; none is ever deleted.';
COMMENT ON COLUMN cortex.person.id IS 'Its name in votes.';
COMMENT ON COLUMN cortex.person.name IS 'Recorded with everything that the person does.';
COMMENT ON COLUMN cortex.person.skeleton IS
    'The name as an eye reads it: two names that can be confused have the same one.';
COMMENT ON COLUMN cortex.person.created_by IS 'Who made it.';
COMMENT ON COLUMN cortex.person.created_at IS 'When it was made.';
COMMENT ON COLUMN cortex.person.disabled_at IS 'From then on none of its credentials is valid.';
COMMENT ON COLUMN cortex.person.disabled_by IS 'Who disabled it.';

CREATE TABLE cortex.person_credential (
    credential text COLLATE "C" PRIMARY KEY CHECK (credential ~ '^(os:[0-9]{1,10}|db:.{1,63})$'),
    person_id uuid NOT NULL REFERENCES cortex.person (id),
    created_by text NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.person_credential IS
    'Operating-system users and database logins: each belongs to one person. Tokens name their person themselves.';
COMMENT ON COLUMN cortex.person_credential.credential IS
    'os:UID, the same user on every host, or db:LOGIN.';
COMMENT ON COLUMN cortex.person_credential.person_id IS 'The person.';
COMMENT ON COLUMN cortex.person_credential.created_by IS 'Who mapped it; of an operating-system user that acted first, itself.';
COMMENT ON COLUMN cortex.person_credential.created_at IS 'When it was mapped.';
CREATE INDEX person_credential_person ON cortex.person_credential (person_id);

GRANT SELECT ON cortex.person, cortex.person_credential TO cortex_runtime;

-- ------------------------------------------------------------------ tokens and sessions

CREATE TABLE cortex.api_token (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    person_id uuid NOT NULL REFERENCES cortex.person (id),
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    roles text[] NOT NULL CHECK (
        cardinality(roles) BETWEEN 1 AND 6
        AND roles <@ ARRAY['viewer', 'submitter', 'metrics', 'approver', 'operator', 'admin']),
    tenant text CHECK (length(tenant) BETWEEN 1 AND 100),
    created_by text NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text CHECK (length(revoked_by) BETWEEN 1 AND 200),
    last_used_at timestamptz,
    CONSTRAINT revoked_by_only_when_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);
COMMENT ON TABLE cortex.api_token IS 'Access to the HTTP API. The token itself is not stored: only its digest.';
COMMENT ON COLUMN cortex.api_token.id IS 'Its name in lists and facts.';
COMMENT ON COLUMN cortex.api_token.name IS
    'Name of its person, recorded with everything done with it. A person may have several tokens.';
COMMENT ON COLUMN cortex.api_token.person_id IS 'Whose it is.';
COMMENT ON COLUMN cortex.api_token.digest IS 'SHA-256 of the token.';
COMMENT ON COLUMN cortex.api_token.roles IS
    'viewer: reads · submitter: submits jobs and reads those it submitted · metrics: reads /metrics, and no payload · '
    'approver: reads, decides approvals · operator: reads, acts on jobs · admin: everything.';
COMMENT ON COLUMN cortex.api_token.tenant IS 'The only tenant whose records it reads and changes; null: all.';
COMMENT ON COLUMN cortex.api_token.created_by IS 'Who made it.';
COMMENT ON COLUMN cortex.api_token.created_at IS 'When it was made.';
COMMENT ON COLUMN cortex.api_token.expires_at IS 'From then on it is invalid; null: never.';
COMMENT ON COLUMN cortex.api_token.revoked_at IS 'When it was revoked: from then on it is invalid.';
COMMENT ON COLUMN cortex.api_token.revoked_by IS 'Who revoked it.';
COMMENT ON COLUMN cortex.api_token.last_used_at IS 'When it was last used, to the minute.';
CREATE INDEX api_token_name ON cortex.api_token (name, created_at);
CREATE INDEX api_token_newest ON cortex.api_token (created_at, id);

CREATE TABLE cortex.api_session (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    token_id uuid NOT NULL REFERENCES cortex.api_token (id),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE cortex.api_session IS
    'Sign-ins on a page with a token; a session has the token''s rights, and does not outlive it.';
COMMENT ON COLUMN cortex.api_session.digest IS 'SHA-256 of the cookie.';
COMMENT ON COLUMN cortex.api_session.token_id IS
    'The token that was used to sign in: when it is revoked or expires, the session ends.';
COMMENT ON COLUMN cortex.api_session.created_at IS 'When they signed in.';
COMMENT ON COLUMN cortex.api_session.expires_at IS 'From then on the person must sign in again.';
CREATE INDEX api_session_expiry ON cortex.api_session (expires_at);
CREATE INDEX api_session_token ON cortex.api_session (token_id);

CREATE INDEX api_token_person ON cortex.api_token (person_id);

-- Not the digests: whoever could read them could act as their people. Tokens and sessions are written by functions of
-- 0027_people.sql.
GRANT SELECT (
    id, name, person_id, roles, tenant, created_by, created_at, expires_at, revoked_at, revoked_by, last_used_at)
    ON cortex.api_token TO cortex_runtime;

-- ------------------------------------------------------------------ idempotency keys

CREATE TABLE cortex.idempotency_key (
    scope text COLLATE "C" NOT NULL DEFAULT '' CHECK (length(scope) <= 300),
    key text COLLATE "C" NOT NULL CHECK (key ~ '^[!-~]{1,255}$'),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    operation text NOT NULL CHECK (length(operation) BETWEEN 1 AND 100),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed')),
    response jsonb CHECK (octet_length(response::text) <= 2097152),
    error jsonb CHECK (error ?& ARRAY['code', 'message', 'hint']),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (scope, key),
    CONSTRAINT response_only_when_completed CHECK ((response IS NOT NULL) = (status = 'completed')),
    CONSTRAINT error_only_when_failed CHECK ((error IS NOT NULL) = (status = 'failed'))
);
COMMENT ON TABLE cortex.idempotency_key IS
    'Keys that callers gave to their writes, each written in the transaction that it guards; kept for 24 hours.';
COMMENT ON COLUMN cortex.idempotency_key.scope IS
    'Whose keys it is one of: tenant:NAME of a token of one tenant, db:LOGIN:TENANT of a login; empty: of all others.';
COMMENT ON COLUMN cortex.idempotency_key.key IS 'Chosen by the caller: 1 to 255 visible ASCII characters.';
COMMENT ON COLUMN cortex.idempotency_key.digest IS
    'SHA-256 of the operation and the canonical request: the same key must come with the same request.';
COMMENT ON COLUMN cortex.idempotency_key.operation IS 'The requested operation, such as jobs.submit.';
COMMENT ON COLUMN cortex.idempotency_key.status IS
    'pending: its transaction is in progress, invisible to others · completed: the response is stored · failed: the '
    'error is stored.';
COMMENT ON COLUMN cortex.idempotency_key.response IS 'The response, returned again for a repeated request.';
COMMENT ON COLUMN cortex.idempotency_key.error IS 'The permanent error that was returned: code, message and hint.';
COMMENT ON COLUMN cortex.idempotency_key.created_at IS 'When the key was first used.';
COMMENT ON COLUMN cortex.idempotency_key.expires_at IS 'From then on the key counts as free, and is deleted.';
CREATE INDEX idempotency_key_expiry ON cortex.idempotency_key (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.idempotency_key TO cortex_runtime;
