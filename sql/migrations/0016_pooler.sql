-- 0016 pooler: pods behind a transaction pooler, which hold no session lock and hear no notification.
--
-- Locks: ACCESS EXCLUSIVE on pod and watch, for an instant.
-- Old pods: must not keep running, they would take pods behind a pooler for dead.

ALTER TABLE cortex.pod ADD COLUMN liveness text NOT NULL DEFAULT 'lock' CHECK (liveness IN ('lock', 'heartbeat'));
COMMENT ON COLUMN cortex.pod.liveness IS
    'What tells that it lives: its session lock and its heartbeat; behind a pooler, which can hold no lock, the heartbeat alone.';

ALTER TABLE cortex.watch ADD COLUMN is_polled boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cortex.watch.is_polled IS 'Its watcher hears no notifications: what is sent is to be kept for it, too.';

-- Unlogged: hints, and who misses one sees a gap.
CREATE UNLOGGED TABLE cortex.said (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    payload text NOT NULL CHECK (octet_length(payload) < 8000)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000          -- short-lived rows: vacuum by count, not by share
);
COMMENT ON TABLE cortex.said IS
    'What models said in the last seconds, for watchers that hear no notifications. Transient, lost in a crash.';
COMMENT ON COLUMN cortex.said.id IS 'In the order of coming; of two pods the later one may be there first.';
COMMENT ON COLUMN cortex.said.at IS 'When it was sent.';
COMMENT ON COLUMN cortex.said.payload IS 'As it was notified.';
CREATE INDEX said_at ON cortex.said (at);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.said TO cortex_runtime;
