-- 0006 idempotency: keys under which a write that is asked for twice happens once.
--
-- Locks: none, the table is new. Old pods: may keep running, they do not know of keys.

CREATE TABLE cortex.idempotency_key (
    key text COLLATE "C" PRIMARY KEY CHECK (key ~ '^[!-~]{1,255}$'),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    operation text NOT NULL CHECK (length(operation) BETWEEN 1 AND 100),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed')),
    response jsonb CHECK (octet_length(response::text) <= 2097152),
    error jsonb CHECK (error ?& ARRAY['code', 'message', 'hint']),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT response_only_when_completed CHECK ((response IS NOT NULL) = (status = 'completed')),
    CONSTRAINT error_only_when_failed CHECK ((error IS NOT NULL) = (status = 'failed'))
);
COMMENT ON TABLE cortex.idempotency_key IS
    'Keys that callers gave to their writes, each written in the transaction that it guards; kept for 24 hours.';
COMMENT ON COLUMN cortex.idempotency_key.key IS 'What the caller chose: 1 to 255 visible ASCII characters.';
COMMENT ON COLUMN cortex.idempotency_key.digest IS 'SHA-256 of the operation and the canonical request: the same key must ask the same.';
COMMENT ON COLUMN cortex.idempotency_key.operation IS 'What was asked for, such as jobs.submit.';
COMMENT ON COLUMN cortex.idempotency_key.status IS
    'pending: its transaction is under way, which nobody else sees · completed: the response stands · failed: the error does.';
COMMENT ON COLUMN cortex.idempotency_key.response IS 'What the caller was told, and is told again.';
COMMENT ON COLUMN cortex.idempotency_key.error IS 'The permanent error that the caller was told: code, message and hint.';
COMMENT ON COLUMN cortex.idempotency_key.created_at IS 'When the key was first used.';
COMMENT ON COLUMN cortex.idempotency_key.expires_at IS 'From then on it counts as free, and is swept.';

CREATE INDEX idempotency_key_expiry ON cortex.idempotency_key (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.idempotency_key TO cortex_runtime;
