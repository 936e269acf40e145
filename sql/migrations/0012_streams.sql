-- 0012 streams: who watches what a model says while it says it.
--
-- Locks: none that matter, every object is new. Old pods: may keep running, what their jobs' models say is not
-- streamed; the committed steps show it.

-- Unlogged: it is written anew every few seconds, and after a crash nobody watches any more.
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
    'Who watches which job just now: only what is watched is sent as it is said. Transient, lost in a crash.';
COMMENT ON COLUMN cortex.watch.job_id IS 'The job. No foreign key: a watch outlives nothing.';
COMMENT ON COLUMN cortex.watch.watcher IS 'A pod on behalf of its clients, or a terminal: random, new with each start.';
COMMENT ON COLUMN cortex.watch.pod_id IS 'The pod that ran the job when the watch was last renewed: who has to send.';
COMMENT ON COLUMN cortex.watch.asked_at IS
    'When the newest of its followers came: all is sent again that was said before, since that one lacks it.';
COMMENT ON COLUMN cortex.watch.until IS 'When it lapses: its watcher renews it while it watches.';
CREATE INDEX watch_pod ON cortex.watch (pod_id) WHERE pod_id IS NOT NULL;
CREATE INDEX watch_until ON cortex.watch (until);

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.watch TO cortex_runtime;
