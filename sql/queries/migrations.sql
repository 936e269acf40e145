-- name: patience
-- A migration may wait for another pod's, and may take long itself. Between two statements it waits for nothing: a
-- process that is stopped there keeps the usual timeout.
SET LOCAL statement_timeout = '110s'; SET LOCAL lock_timeout = '110s';
SELECT set_config('transaction_timeout', '110s', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL;

-- name: lock
-- Allows one first migration at a time in this database. Locks: an advisory lock to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('cortex.migration', 0));

-- name: lock_table
-- Allows one migration at a time, of those who may change the record: any login may keep an advisory lock. Locks: the
-- table, against writers, to the end of the transaction.
LOCK TABLE cortex.migration IN SHARE ROW EXCLUSIVE MODE;

-- name: is_begun
-- Whether there is a record of applied migrations. Locks: none.
SELECT to_regclass('cortex.migration') IS NOT NULL;

-- name: ensure_table
-- The record of applied migrations; it exists before the first one.
CREATE SCHEMA IF NOT EXISTS cortex;
CREATE TABLE IF NOT EXISTS cortex.migration (
    version int PRIMARY KEY,
    name text NOT NULL,
    digest bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE cortex.migration IS 'Applied migrations; written by `cortex migrate` only.';
COMMENT ON COLUMN cortex.migration.version IS 'Number of the file.';
COMMENT ON COLUMN cortex.migration.name IS 'Name of the file.';
COMMENT ON COLUMN cortex.migration.digest IS 'SHA-256 of the file as it was applied.';
COMMENT ON COLUMN cortex.migration.applied_at IS 'When.';

-- name: applied
-- Every applied migration in order.
SELECT version, name, digest FROM cortex.migration ORDER BY version;

-- name: note
-- Records an applied migration. $1 version, $2 name, $3 SHA-256 of the file.
INSERT INTO cortex.migration (version, name, digest) VALUES ($1, $2, $3);
