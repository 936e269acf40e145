-- name: head
-- The head of every screen, each count up to a cap. $1 cap. Always one row.
SELECT * FROM cortex.head($1);

-- name: look
-- A list of jobs for its screen, in one snapshot: those of its jobs that exist; how many are newer than a place, up to
-- a cap; and the head of the screen. $1 ids, $2 the place's created_at, $3 its id, or null for neither, $4 cap of the
-- newer ones, $5 cap of each count of the head, $6 types that do not count as newer. Always a row; `head` is in one of
-- them.
WITH head AS MATERIALIZED (
    SELECT to_jsonb(h) AS head, newer.count AS newer_count
    FROM cortex.head($5) h, LATERAL (
        SELECT count(*)::int AS count FROM (
            SELECT FROM unnest(enum_range(NULL::cortex.job_status)) AS state(status) CROSS JOIN LATERAL (
                SELECT FROM cortex.job_state j
                WHERE j.state = state.status AND (j.created_at, j.id) > ($2::timestamptz, $3::uuid)
                  AND j.type <> ALL ($6::text[]) LIMIT $4) found
            LIMIT $4) f) newer
)
SELECT head.newer_count, CASE WHEN row_number() OVER () = 1 THEN head.head END AS head, p.*
FROM head LEFT JOIN LATERAL (
    SELECT j.id, j.type, j.status, j.attempt, j.retry_count, j.max_retries, j.checkpoint, j.created_at, j.started_at,
           j.finished_at, j.next_retry_at, j.heartbeat_at, j.run_at, j.cancel_requested_at, j.cancelled_by,
           j.error_message, j.error_code, j.waiting_on, j.tenant, j.queue_name, j.tags, e.error AS last_error,
           cortex.waits_for(j.waiting_on) AS awaited, a.name AS agent, p.name AS pod, p.silent_after_s, p.zombie_s
    FROM cortex.job j
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    LEFT JOIN LATERAL (
        SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
        ORDER BY attempt DESC LIMIT 1) e ON true
    WHERE j.id = ANY ($1::uuid[])) p ON true;
