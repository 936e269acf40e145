-- Live output: who watches which job, and the output of the last seconds. A notification only says that there is more:
-- any login may listen to any channel.

-- Unlogged: watchers renew their rows every few seconds, and after a crash there are no watchers.
CREATE UNLOGGED TABLE cortex.watch (
    job_id uuid NOT NULL,
    watcher uuid NOT NULL,
    pod_id uuid,
    asked_at timestamptz NOT NULL DEFAULT cortex.now(),
    until timestamptz NOT NULL,
    PRIMARY KEY (job_id, watcher)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000          -- short-lived rows: vacuum by count, not by share
);
COMMENT ON TABLE cortex.watch IS
    'Who watches which job right now: only watched output is sent live. Transient, lost in a crash.';
COMMENT ON COLUMN cortex.watch.job_id IS 'The job. No foreign key: a watch is short-lived.';
COMMENT ON COLUMN cortex.watch.watcher IS 'A pod on behalf of its clients, or a terminal: random, new with each start.';
COMMENT ON COLUMN cortex.watch.pod_id IS 'The pod that ran the job when the watch was last renewed; it has to send.';
COMMENT ON COLUMN cortex.watch.asked_at IS
    'When its newest follower joined: earlier output is sent again, since that follower lacks it.';
COMMENT ON COLUMN cortex.watch.until IS 'When it expires: its watcher renews it while it watches.';
CREATE INDEX watch_pod ON cortex.watch (pod_id) WHERE pod_id IS NOT NULL;
CREATE INDEX watch_until ON cortex.watch (until);

-- Unlogged: a watcher that misses a row only sees a gap.
CREATE UNLOGGED TABLE cortex.said (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    payload text NOT NULL CHECK (octet_length(payload) < 8000)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000          -- short-lived rows: vacuum by count, not by share
);
COMMENT ON TABLE cortex.said IS
    'Output of models in the last seconds, for those who watch. Transient, lost in a crash.';
COMMENT ON COLUMN cortex.said.id IS 'Order of arrival; with two pods, the later output may arrive first.';
COMMENT ON COLUMN cortex.said.at IS 'When it was sent.';
COMMENT ON COLUMN cortex.said.payload IS 'Pieces of answers, as JSON.';
CREATE INDEX said_at ON cortex.said (at);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.watch, cortex.said TO cortex_runtime;
