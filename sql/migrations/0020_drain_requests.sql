-- 0020 drain requests: a person asks a pod to take no more jobs and hand back those that it runs, and takes that back.
--
-- Locks: ACCESS EXCLUSIVE on pod, for an instant.
-- Old pods: may keep running; they do not hear of it.

ALTER TABLE cortex.pod
    ADD COLUMN drain_requested_at timestamptz,
    ADD COLUMN drain_requested_by text CHECK (length(drain_requested_by) BETWEEN 1 AND 200),
    ADD COLUMN drain_reason text CHECK (length(drain_reason) <= 500),
    ADD CONSTRAINT drain_request_is_whole CHECK (
        (drain_requested_by IS NULL) = (drain_requested_at IS NULL)
        AND (drain_reason IS NULL) = (drain_requested_at IS NULL));
COMMENT ON COLUMN cortex.pod.drain_requested_at IS
    'When a person asked it to take no more jobs and hand back those that it runs; its process stays. Null: nobody does.';
COMMENT ON COLUMN cortex.pod.drain_requested_by IS 'Who asked.';
COMMENT ON COLUMN cortex.pod.drain_reason IS 'Why; may be empty.';
