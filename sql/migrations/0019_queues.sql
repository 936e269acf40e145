-- 0019 queues: a person pauses a queue: its tasks are neither made ready nor claimed until it is resumed.
--
-- Locks: SHARE on task while an index of the heads of named queues is built: less than a second per million tasks.
-- Old pods: may keep running; they go on to claim from paused queues.

CREATE TABLE cortex_worker.queue_pause (
    queue text PRIMARY KEY CHECK (length(queue) <= 100),
    paused_by text NOT NULL CHECK (length(paused_by) BETWEEN 1 AND 200),
    paused_at timestamptz NOT NULL DEFAULT cortex.now(),
    reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 500)
);
COMMENT ON TABLE cortex_worker.queue_pause IS
    'Queues from which nothing is claimed now; a queue that is not here is open. Who paused and resumed what stands in the facts.';
COMMENT ON COLUMN cortex_worker.queue_pause.queue IS 'Name of the queue; empty: the default one, of tasks without a queue.';
COMMENT ON COLUMN cortex_worker.queue_pause.paused_by IS 'Who paused it.';
COMMENT ON COLUMN cortex_worker.queue_pause.paused_at IS 'Since when.';
COMMENT ON COLUMN cortex_worker.queue_pause.reason IS 'Why.';

-- While the default queue is paused the heads of named ones are found past all of its ready tasks.
CREATE INDEX task_ready_named ON cortex_worker.task (task, priority, run_at, id)
    WHERE state = 'READY' AND NOT is_suspect AND queue_name IS NOT NULL;

GRANT SELECT, INSERT, DELETE ON cortex_worker.queue_pause TO cortex_runtime;
