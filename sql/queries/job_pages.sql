-- fragment: listed_job
-- Columns of a `ListedJob` that every list reads alike. j: the job; a: its agent; p: its pod.
j.id, j.type, j.status, j.attempt, j.retry_count, j.max_retries, j.checkpoint, j.created_at, j.started_at, j.finished_at,
j.next_retry_at, j.heartbeat_at, j.run_at, j.cancel_requested_at, j.cancelled_by, j.error_message, j.error_code,
j.waiting_on, j.tenant, j.queue_name, j.tags, j.due_by, cortex.waits_for(j.waiting_on) AS awaited, a.name AS agent, p.name AS pod,
p.silent_after_s, p.zombie_s, (
    SELECT jsonb_build_object('done', s.done, 'total', s.total, 'unit', s.unit) FROM cortex.job_published s
    WHERE s.job_id = j.id AND s.done IS NOT NULL) AS progress

-- name: page
-- Jobs that match a filter, newest first, reading a bounded number. Four ways in, each by an index; null ones are not
-- used: $1 states, $2 agents, $3 ids of jobs, $27. Further conditions, null matches all: $4 states; LIKE patterns of $5
-- types, $6 agents, $7 queues, $8 tenants, $9 error codes; submitted $10 at least and $11 at most this many seconds
-- ago, $12 after and $13 before an instant. Where to continue: $14 a job or null, $15 its created_at, or null to look
-- it up. $16 how many to read, $17 limit. $18 LIKE patterns of pod names, or null; $19 of STATUS|waiting_on, or null: with
-- ! in front what is left out. $20 types that are not read at all, by states, or null. $21 LIKE patterns of tags, or null. $22 LIKE patterns of
-- STATE|fingerprint of dead letters, or null; $23 classes of errors, or null; ended $24 more than and $25 at most this
-- many seconds ago, or null. $26 a tenant or null for all. $27 the tenant by whose index to read, or null.
-- Always at least one row: how many were read, and the place of the last of them.
WITH edge AS MATERIALIZED (
    SELECT greatest(cortex.now() - $11::float8 * interval '1 second', $12::timestamptz, '-infinity') AS low,
           least(cortex.now() - $10::float8 * interval '1 second', $13::timestamptz, 'infinity') AS high,
           CASE WHEN $14::uuid IS NULL THEN 'infinity'
                ELSE coalesce($15::timestamptz, (SELECT b.created_at FROM cortex.job_record b WHERE b.id = $14)) END AS at,
           coalesce($14, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS id
), looked AS MATERIALIZED (
    SELECT place.id, place.created_at FROM (
        SELECT found.* FROM edge, unnest($1::cortex.job_status[]) AS wanted(status) CROSS JOIN LATERAL (
            -- Twice by index: the state of a running job is in its task.
            (SELECT j.id, j.created_at FROM cortex.job_record j
             WHERE j.status = wanted.status AND j.created_at > edge.low AND j.created_at < edge.high
               AND (j.created_at, j.id) < (edge.at, edge.id) AND (j.finished_at IS NOT NULL OR (
                   SELECT t.state FROM cortex_worker.task t WHERE t.job_id = j.id) IS DISTINCT FROM 'LOCKED')
               AND ($20::text[] IS NULL OR j.type <> ALL ($20))
             ORDER BY j.created_at DESC, j.id DESC LIMIT $16)
            UNION ALL
            (SELECT j.id, j.created_at FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
             WHERE wanted.status = 'RUNNING' AND t.state = 'LOCKED'
               AND ($20::text[] IS NULL OR j.type <> ALL ($20))
               AND j.created_at > edge.low AND j.created_at < edge.high
               AND (j.created_at, j.id) < (edge.at, edge.id)
             ORDER BY j.created_at DESC, j.id DESC LIMIT $16)) found
        UNION ALL
        SELECT found.* FROM edge, unnest($2::uuid[]) AS wanted(agent_id) CROSS JOIN LATERAL (
            SELECT j.id, j.created_at FROM cortex.job_record j
            WHERE j.agent_id = wanted.agent_id AND j.created_at > edge.low AND j.created_at < edge.high
              AND (j.created_at, j.id) < (edge.at, edge.id)
            ORDER BY j.created_at DESC, j.id DESC LIMIT $16) found
        UNION ALL
        SELECT j.id, j.created_at FROM edge, cortex.job_record j
        WHERE j.id = ANY ($3::uuid[]) AND j.created_at > edge.low AND j.created_at < edge.high
          AND (j.created_at, j.id) < (edge.at, edge.id)
        UNION ALL
        SELECT found.* FROM edge CROSS JOIN LATERAL (
            SELECT j.id, j.created_at FROM cortex.job_record j
            WHERE $27::text IS NOT NULL AND j.tenant = $27 AND j.tenant <> 'default'
              AND j.created_at > edge.low AND j.created_at < edge.high
              AND (j.created_at, j.id) < (edge.at, edge.id)
            ORDER BY j.created_at DESC, j.id DESC LIMIT $16) found
    ) place
    ORDER BY place.created_at DESC, place.id DESC LIMIT $16
), fitting AS MATERIALIZED (
    SELECT j.id FROM looked l JOIN cortex.job j ON j.id = l.id LEFT JOIN cortex.agent a ON a.id = j.agent_id
    WHERE ($4::cortex.job_status[] IS NULL OR j.status = ANY ($4)) AND ($5::text[] IS NULL OR j.type LIKE ANY ($5))
      AND ($6::text[] IS NULL OR a.name LIKE ANY ($6)) AND ($7::text[] IS NULL OR j.queue_name LIKE ANY ($7))
      AND ($8::text[] IS NULL OR j.tenant LIKE ANY ($8)) AND ($9::text[] IS NULL OR j.error_code LIKE ANY ($9))
      AND ($18::text[] IS NULL OR (SELECT p.name FROM cortex.pod p WHERE p.id = j.pod_id) LIKE ANY ($18))
      AND ($19::text[] IS NULL OR j.status::text || '|' || coalesce(j.waiting_on, '') LIKE ANY ($19)
           AND NOT '!' || j.status::text || '|' || coalesce(j.waiting_on, '') LIKE ANY ($19))
      AND ($21::text[] IS NULL OR EXISTS (SELECT FROM unnest(j.tags) AS w(tag) WHERE w.tag LIKE ANY ($21)))
      AND ($22::text[] IS NULL OR (
          SELECT d.state || '|' || d.fingerprint FROM cortex.dead_letter d WHERE d.job_id = j.id) LIKE ANY ($22))
      AND ($23::text[] IS NULL OR j.error_class = ANY ($23))
      AND ($24::float8 IS NULL OR j.finished_at < cortex.now() - $24 * interval '1 second')
      AND ($25::float8 IS NULL OR j.finished_at >= cortex.now() - $25 * interval '1 second')
      AND ($26::text IS NULL OR j.tenant = $26)
    ORDER BY l.created_at DESC, l.id DESC LIMIT $17
)
SELECT seen.looked_count, last.last_at, last.last_id, p.*
FROM (SELECT count(*)::int AS looked_count FROM looked) seen
LEFT JOIN LATERAL (SELECT created_at AS last_at, id AS last_id FROM looked ORDER BY created_at, id LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT {listed_job}, e.error AS last_error, cortex.now() AS now
    FROM fitting
    JOIN cortex.job j ON j.id = fitting.id
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    LEFT JOIN LATERAL (
        SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
        ORDER BY attempt DESC LIMIT 1) e ON true) p ON true
ORDER BY p.created_at DESC, p.id DESC;

-- name: page_up
-- The other direction: jobs that match a filter and are just newer than a place, reading a bounded number; from the
-- oldest on without a place; in this order, too. Four ways in, each by an index; null ones are not used: $1 states, $2
-- agents, $3 ids of jobs. Further conditions, null matches all: $4 states; LIKE patterns of $5 types, $6 agents, $7
-- queues, $8 tenants, $9 error codes; submitted $10 at least and $11 at most this many seconds ago, $12 after and $13
-- before an instant. Where to continue: $14 a job or null, $15 its created_at, or null to look it up. $16 how many to
-- read, $17 limit. $18 LIKE patterns of pod names, or null; $19 of STATUS|waiting_on, or null: with ! in front what
-- is left out. $20 types that are not read at all, by states, or null. $21 LIKE patterns of tags, or null. $22 LIKE patterns of STATE|fingerprint of dead
-- letters, or null; $23 classes of errors, or null; ended $24 more than and $25 at most this many seconds ago, or null.
-- $26 a tenant or null for all; $27 the tenant by whose index to read, or null.
-- Always at least one row: how many were read, and the place of the last of them.
WITH edge AS MATERIALIZED (
    SELECT greatest(cortex.now() - $11::float8 * interval '1 second', $12::timestamptz, '-infinity') AS low,
           least(cortex.now() - $10::float8 * interval '1 second', $13::timestamptz, 'infinity') AS high,
           CASE WHEN $14::uuid IS NULL THEN '-infinity'
                ELSE coalesce($15::timestamptz, (SELECT b.created_at FROM cortex.job_record b WHERE b.id = $14)) END AS at,
           coalesce($14, '00000000-0000-0000-0000-000000000000') AS id
), looked AS MATERIALIZED (
    SELECT place.id, place.created_at FROM (
        SELECT found.* FROM edge, unnest($1::cortex.job_status[]) AS wanted(status) CROSS JOIN LATERAL (
            -- Twice by index: the state of a running job is in its task.
            (SELECT j.id, j.created_at FROM cortex.job_record j
             WHERE j.status = wanted.status AND j.created_at > edge.low AND j.created_at < edge.high
               AND (j.created_at, j.id) > (edge.at, edge.id) AND (j.finished_at IS NOT NULL OR (
                   SELECT t.state FROM cortex_worker.task t WHERE t.job_id = j.id) IS DISTINCT FROM 'LOCKED')
               AND ($20::text[] IS NULL OR j.type <> ALL ($20))
             ORDER BY j.created_at, j.id LIMIT $16)
            UNION ALL
            (SELECT j.id, j.created_at FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
             WHERE wanted.status = 'RUNNING' AND t.state = 'LOCKED'
               AND ($20::text[] IS NULL OR j.type <> ALL ($20))
               AND j.created_at > edge.low AND j.created_at < edge.high
               AND (j.created_at, j.id) > (edge.at, edge.id)
             ORDER BY j.created_at, j.id LIMIT $16)) found
        UNION ALL
        SELECT found.* FROM edge, unnest($2::uuid[]) AS wanted(agent_id) CROSS JOIN LATERAL (
            SELECT j.id, j.created_at FROM cortex.job_record j
            WHERE j.agent_id = wanted.agent_id AND j.created_at > edge.low AND j.created_at < edge.high
              AND (j.created_at, j.id) > (edge.at, edge.id)
            ORDER BY j.created_at, j.id LIMIT $16) found
        UNION ALL
        SELECT j.id, j.created_at FROM edge, cortex.job_record j
        WHERE j.id = ANY ($3::uuid[]) AND j.created_at > edge.low AND j.created_at < edge.high
          AND (j.created_at, j.id) > (edge.at, edge.id)
        UNION ALL
        SELECT found.* FROM edge CROSS JOIN LATERAL (
            SELECT j.id, j.created_at FROM cortex.job_record j
            WHERE $27::text IS NOT NULL AND j.tenant = $27 AND j.tenant <> 'default'
              AND j.created_at > edge.low AND j.created_at < edge.high
              AND (j.created_at, j.id) > (edge.at, edge.id)
            ORDER BY j.created_at, j.id LIMIT $16) found
    ) place
    ORDER BY place.created_at, place.id LIMIT $16
), fitting AS MATERIALIZED (
    SELECT j.id FROM looked l JOIN cortex.job j ON j.id = l.id LEFT JOIN cortex.agent a ON a.id = j.agent_id
    WHERE ($4::cortex.job_status[] IS NULL OR j.status = ANY ($4)) AND ($5::text[] IS NULL OR j.type LIKE ANY ($5))
      AND ($6::text[] IS NULL OR a.name LIKE ANY ($6)) AND ($7::text[] IS NULL OR j.queue_name LIKE ANY ($7))
      AND ($8::text[] IS NULL OR j.tenant LIKE ANY ($8)) AND ($9::text[] IS NULL OR j.error_code LIKE ANY ($9))
      AND ($18::text[] IS NULL OR (SELECT p.name FROM cortex.pod p WHERE p.id = j.pod_id) LIKE ANY ($18))
      AND ($19::text[] IS NULL OR j.status::text || '|' || coalesce(j.waiting_on, '') LIKE ANY ($19)
           AND NOT '!' || j.status::text || '|' || coalesce(j.waiting_on, '') LIKE ANY ($19))
      AND ($21::text[] IS NULL OR EXISTS (SELECT FROM unnest(j.tags) AS w(tag) WHERE w.tag LIKE ANY ($21)))
      AND ($22::text[] IS NULL OR (
          SELECT d.state || '|' || d.fingerprint FROM cortex.dead_letter d WHERE d.job_id = j.id) LIKE ANY ($22))
      AND ($23::text[] IS NULL OR j.error_class = ANY ($23))
      AND ($24::float8 IS NULL OR j.finished_at < cortex.now() - $24 * interval '1 second')
      AND ($25::float8 IS NULL OR j.finished_at >= cortex.now() - $25 * interval '1 second')
      AND ($26::text IS NULL OR j.tenant = $26)
    ORDER BY l.created_at, l.id LIMIT $17
)
SELECT seen.looked_count, last.last_at, last.last_id, p.*
FROM (SELECT count(*)::int AS looked_count FROM looked) seen
LEFT JOIN LATERAL (SELECT created_at AS last_at, id AS last_id FROM looked ORDER BY created_at DESC, id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT {listed_job}, e.error AS last_error, cortex.now() AS now
    FROM fitting
    JOIN cortex.job j ON j.id = fitting.id
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    LEFT JOIN LATERAL (
        SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
        ORDER BY attempt DESC LIMIT 1) e ON true) p ON true
ORDER BY p.created_at, p.id;

-- name: page_due
-- Jobs in RETRY that match a filter, those due next first, reading a bounded number by index; in the other direction
-- those just before a place, in that order, too. Conditions, null matches all: LIKE patterns of $1 types, $2 agents, $3
-- queues, $4 tenants, $5 error codes, $6 pod names; $7 ids of jobs; submitted $8 at least and $9 at most this many
-- seconds ago, $10 after and $11 before an instant. Where to continue: $12 a job or null, $13 when it was due. $14
-- whether in the other direction. $15 how many to read, $16 limit. $17 LIKE patterns of STATUS|waiting_on, or null.
-- $18 LIKE patterns of tags, or null. $19 a tenant or null for all.
-- Always at least one row: how many were read, and the place of the last of them.
WITH looked AS MATERIALIZED (
    -- Only one of the two is read.
    (SELECT j.id, j.next_retry_at, row_number() OVER (ORDER BY j.next_retry_at, j.id) AS nth
     FROM cortex.job_record j
     WHERE NOT $14::bool AND j.status = 'RETRY'
       AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id AND t.state = 'LOCKED')
       AND (j.next_retry_at, j.id) > (coalesce($13::timestamptz, '-infinity'),
                                      coalesce($12::uuid, '00000000-0000-0000-0000-000000000000'))
     ORDER BY j.next_retry_at, j.id LIMIT $15)
    UNION ALL
    (SELECT j.id, j.next_retry_at, row_number() OVER (ORDER BY j.next_retry_at DESC, j.id DESC) AS nth
     FROM cortex.job_record j
     WHERE $14::bool AND j.status = 'RETRY'
       AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.job_id = j.id AND t.state = 'LOCKED')
       AND (j.next_retry_at, j.id) < (coalesce($13::timestamptz, 'infinity'),
                                      coalesce($12::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
     ORDER BY j.next_retry_at DESC, j.id DESC LIMIT $15)
), fitting AS MATERIALIZED (
    -- One by one: the planner does not know how many will be read.
    SELECT l.id, l.nth FROM looked l CROSS JOIN LATERAL (SELECT * FROM cortex.job WHERE id = l.id OFFSET 0) j
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    WHERE ($1::text[] IS NULL OR j.type LIKE ANY ($1)) AND ($2::text[] IS NULL OR a.name LIKE ANY ($2))
      AND ($3::text[] IS NULL OR j.queue_name LIKE ANY ($3)) AND ($4::text[] IS NULL OR j.tenant LIKE ANY ($4))
      AND ($5::text[] IS NULL OR j.error_code LIKE ANY ($5))
      AND ($6::text[] IS NULL OR (SELECT p.name FROM cortex.pod p WHERE p.id = j.pod_id) LIKE ANY ($6))
      AND ($7::uuid[] IS NULL OR j.id = ANY ($7))
      AND ($19::text IS NULL OR j.tenant = $19)
      AND ($17::text[] IS NULL OR 'RETRY|' || coalesce(j.waiting_on, '') LIKE ANY ($17)
           AND NOT '!RETRY|' || coalesce(j.waiting_on, '') LIKE ANY ($17))
      AND ($18::text[] IS NULL OR EXISTS (SELECT FROM unnest(j.tags) AS w(tag) WHERE w.tag LIKE ANY ($18)))
      AND j.created_at < least(cortex.now() - $8::float8 * interval '1 second', $11::timestamptz, 'infinity')
      AND j.created_at > greatest(cortex.now() - $9::float8 * interval '1 second', $10::timestamptz, '-infinity')
    ORDER BY l.nth LIMIT $16
)
SELECT seen.looked_count, last.last_at, last.last_id, p.*
FROM (SELECT count(*)::int AS looked_count FROM looked) seen
LEFT JOIN LATERAL (SELECT next_retry_at AS last_at, id AS last_id FROM looked ORDER BY nth DESC LIMIT 1) last ON true
LEFT JOIN fitting ON true
LEFT JOIN LATERAL (
    SELECT {listed_job}, NULL AS last_error, cortex.now() AS now
    FROM cortex.job j
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    WHERE j.id = fitting.id) p ON true
ORDER BY fitting.nth;

-- name: refresh
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
    SELECT {listed_job}, e.error AS last_error
    FROM cortex.job j
    LEFT JOIN cortex.agent a ON a.id = j.agent_id
    LEFT JOIN cortex.pod p ON p.id = j.pod_id
    LEFT JOIN LATERAL (
        SELECT error FROM cortex.job_attempt WHERE job_id = j.id AND j.status::text = 'WAITING_FOR_APPROVAL'
        ORDER BY attempt DESC LIMIT 1) e ON true
    WHERE j.id = ANY ($1::uuid[])) p ON true;
