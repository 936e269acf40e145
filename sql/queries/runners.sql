-- name: record
-- Records runs of one process. $1 who it is; per runner: $2 names, $3 longest seconds between two runs; of the last run,
-- nulls if all were skipped: $4 seconds since it started, $5 how long it took, $6 items, $7 its error; $8 seconds since a
-- run succeeded, or null; in all of them: $9 runs, $10 items, $11 errors, $12 skipped runs, $13 seconds. Records a fact for
-- each runner that has become late, and announces it. Locks: the rows (ordered), then late rows of others (skipping
-- locked ones). Returns the names of those that have become late.
WITH given AS MATERIALIZED (
    SELECT name, interval_s, cortex.now() - ago_s * interval '1 second' AS started_at, duration_s, items, error,
           cortex.now() - succeeded_s * interval '1 second' AS succeeded_at,
           run_count, item_count, error_count, skip_count, busy_s
    FROM unnest($2::text[], $3::float8[], $4::float8[], $5::float8[], $6::bigint[], $7::text[], $8::float8[],
                $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::float8[])
        AS g(name, interval_s, ago_s, duration_s, items, error, succeeded_s, run_count, item_count, error_count,
             skip_count, busy_s)
    ORDER BY name
), kept AS (
    INSERT INTO cortex.runner AS r (
        name, interval_s, started_at, duration_s, items, error, holder, succeeded_at, run_count, item_count,
        error_count, skip_count, skipped_in_a_row, busy_s)
    SELECT name, interval_s, started_at, duration_s, items, error, CASE WHEN started_at IS NOT NULL THEN $1 END,
           succeeded_at, run_count, item_count, error_count, skip_count,
           CASE WHEN run_count = 0 THEN skip_count ELSE 0 END, busy_s
    FROM given
    ON CONFLICT (name) DO UPDATE
    SET interval_s = excluded.interval_s,
        started_at = CASE WHEN excluded.started_at >= r.started_at OR r.started_at IS NULL
                          THEN excluded.started_at ELSE r.started_at END,
        duration_s = CASE WHEN excluded.started_at >= r.started_at OR r.started_at IS NULL
                          THEN excluded.duration_s ELSE r.duration_s END,
        items = CASE WHEN excluded.started_at >= r.started_at OR r.started_at IS NULL
                     THEN excluded.items ELSE r.items END,
        error = CASE WHEN excluded.started_at >= r.started_at OR r.started_at IS NULL
                     THEN excluded.error ELSE r.error END,
        holder = CASE WHEN excluded.started_at >= r.started_at OR r.started_at IS NULL
                      THEN excluded.holder ELSE r.holder END,
        succeeded_at = greatest(excluded.succeeded_at, r.succeeded_at),
        late_at = CASE WHEN excluded.succeeded_at IS NOT NULL THEN NULL
                       WHEN r.late_at IS NULL
                            AND cortex.late_from(r.succeeded_at, r.first_at, excluded.interval_s) < cortex.now()
                       THEN cortex.now() ELSE r.late_at END,
        run_count = r.run_count + excluded.run_count, item_count = r.item_count + excluded.item_count,
        error_count = r.error_count + excluded.error_count, skip_count = r.skip_count + excluded.skip_count,
        skipped_in_a_row = CASE WHEN excluded.run_count = 0 THEN r.skipped_in_a_row + excluded.skip_count ELSE 0 END,
        busy_s = r.busy_s + excluded.busy_s
    RETURNING name, interval_s, coalesce(succeeded_at, first_at) AS since, error, skipped_in_a_row,
              late_at = cortex.now() AS is_newly_late
), others AS MATERIALIZED (
    SELECT name FROM cortex.runner
    WHERE late_at IS NULL AND name <> ALL ($2::text[])
      AND cortex.late_from(succeeded_at, first_at, interval_s) < cortex.now()
    ORDER BY name FOR UPDATE SKIP LOCKED
), late AS (
    UPDATE cortex.runner r SET late_at = cortex.now() FROM others WHERE r.name = others.name
    RETURNING r.name, r.interval_s, coalesce(r.succeeded_at, r.first_at) AS since, r.error, r.skipped_in_a_row
), newly AS MATERIALIZED (
    SELECT name, jsonb_build_object(
        'runner', name, 'interval_s', interval_s, 'since', since, 'error', error,
        'skipped', nullif(skipped_in_a_row, 0), 'tenant', 'default') AS data
    FROM (SELECT name, interval_s, since, error, skipped_in_a_row FROM kept WHERE is_newly_late
          UNION ALL SELECT name, interval_s, since, error, skipped_in_a_row FROM late) either
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'runner_late', 'runner:' || name, data FROM newly
)
SELECT name, cortex.announce('runner.late', name, jsonb_strip_nulls(data)) FROM newly ORDER BY name;

-- name: list
-- All runners by name: their last run and totals. Locks: none.
SELECT name, interval_s, first_at, started_at, duration_s, items, error, holder, succeeded_at, run_count, item_count,
       error_count, skip_count, skipped_in_a_row, busy_s, cortex.late_from(succeeded_at, first_at, interval_s) < cortex.now() AS is_late,
       cortex.now() AS now
FROM cortex.runner ORDER BY name;

-- name: alarms_turn
-- One caller at a time watches. Locks: its turn to the end of the transaction, if it is free.
SELECT cortex.take_turn('alarms') AS is_mine;

-- name: stranded
-- Keeps the list of work that no living pod can take, announces each kind of it once it has lasted for a while, and takes
-- it from the head of its named queue, so that others of the queue run; work that a pod can take again goes back to its
-- place there. $1 seconds, $2 most jobs to count of each, and to move. Records a fact of each. Locks: the kinds, the
-- tasks that make way or go back (skipping locked). Returns what was announced, and whether more tasks must move: at
-- least one row.
WITH RECURSIVE observed AS MATERIALIZED (
    SELECT u.task, (
        SELECT count(*) FROM (
            (SELECT FROM cortex_worker.task t WHERE t.task = u.task AND t.state = 'READY' AND NOT t.is_suspect LIMIT $2)
            UNION ALL
            (SELECT FROM cortex_worker.task t WHERE t.task = u.task AND t.state = 'READY' AND t.is_suspect LIMIT $2)
            UNION ALL
            (SELECT FROM cortex_worker.task t WHERE t.task = u.task AND t.state = 'STRANDED' LIMIT $2)
            LIMIT $2) c)::int AS jobs
    FROM cortex.unserved_tasks() AS u(task)
), ended AS (
    DELETE FROM cortex_worker.stranded s WHERE s.task NOT IN (SELECT o.task FROM observed o) RETURNING s.task
), begun AS (
    INSERT INTO cortex_worker.stranded AS s (task, jobs) SELECT o.task, o.jobs FROM observed o
    WHERE NOT EXISTS (SELECT FROM cortex_worker.stranded k WHERE k.task = o.task)
    ON CONFLICT DO NOTHING
), head AS (
    -- The head of a queue is READY: one task of each queue.
    SELECT t.job_id FROM observed o JOIN cortex_worker.stranded s ON s.task = o.task CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = o.task AND t.state = 'READY' AND NOT t.is_suspect AND t.queue_name IS NOT NULL
              AND NOT EXISTS (SELECT FROM cortex_worker.strict_queue q WHERE q.queue = t.queue_name)
            LIMIT $2 FOR UPDATE SKIP LOCKED) fresh
        UNION ALL
        SELECT * FROM (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = o.task AND t.state = 'READY' AND t.is_suspect AND t.queue_name IS NOT NULL
              AND NOT EXISTS (SELECT FROM cortex_worker.strict_queue q WHERE q.queue = t.queue_name)
            LIMIT $2 FOR UPDATE SKIP LOCKED) suspect) t
    LIMIT $2
), made_way AS (
    UPDATE cortex_worker.task t SET state = 'STRANDED' FROM head
    WHERE t.job_id = head.job_id AND t.state = 'READY'
    RETURNING t.job_id
), kind AS (
    -- Walks the distinct kinds of those that have made way by index, one probe per kind.
    (SELECT task FROM cortex_worker.task WHERE state = 'STRANDED' ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (SELECT t.task FROM cortex_worker.task t WHERE t.state = 'STRANDED' AND t.task > k.task
            ORDER BY t.task LIMIT 1)
    FROM kind k WHERE k.task IS NOT NULL
), able AS MATERIALIZED (
    (SELECT t.job_id FROM kind k CROSS JOIN LATERAL (
         SELECT t.job_id FROM cortex_worker.task t WHERE t.state = 'STRANDED' AND t.task = k.task
         ORDER BY t.priority, t.run_at, t.id LIMIT $2 FOR UPDATE SKIP LOCKED) t
     WHERE k.task NOT IN (SELECT o.task FROM observed o)
     LIMIT $2)
    UNION
    -- A queue that became strict while one of its tasks made way: in a strict queue nothing does.
    SELECT job_id FROM (
        SELECT t.job_id FROM cortex_worker.task t
        -- Without such a queue no task is read.
        WHERE EXISTS (SELECT FROM cortex_worker.strict_queue) AND t.state = 'STRANDED'
          AND t.queue_name IN (SELECT q.queue FROM cortex_worker.strict_queue q)
        LIMIT $2 FOR UPDATE OF t SKIP LOCKED) t
), gone_back AS (
    UPDATE cortex_worker.task t SET state = 'QUEUED' FROM able WHERE t.job_id = able.job_id AND t.state = 'STRANDED'
    RETURNING t.job_id
), due AS (
    UPDATE cortex_worker.stranded s
    SET jobs = o.jobs, announced_at = CASE WHEN o.is_due THEN cortex.now() ELSE s.announced_at END
    FROM (SELECT o.*, k.announced_at IS NULL AND k.since <= cortex.now() - $1::float8 * interval '1 second' AS is_due
          FROM observed o JOIN cortex_worker.stranded k ON k.task = o.task) o
    WHERE s.task = o.task AND (s.jobs <> o.jobs OR o.is_due)
    RETURNING s.task, s.since, o.jobs, o.is_due
), newly AS MATERIALIZED (
    SELECT d.task AS key, jsonb_strip_nulls(jsonb_build_object(
               'type', split_part(d.task, ' ', 1), 'tools', s.tools, 'jobs', d.jobs, 'since', d.since,
               'codes', (SELECT jsonb_agg(c.version ORDER BY c.id) FROM cortex.code c WHERE c.id = ANY (u.codes)),
               'tenant', 'default')) AS data
    FROM due d LEFT JOIN cortex_worker.unfit u ON u.task = d.task
    LEFT JOIN cortex.tool_set s ON s.task = coalesce(u.base, d.task)
    WHERE d.is_due
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'work_stranded', left('task:' || key, 300), data FROM newly
), hinted AS (
    SELECT pg_notify('cortex_task', 'queued') FROM (
        SELECT FROM (SELECT task FROM ended UNION ALL SELECT job_id::text FROM made_way
                     UNION ALL SELECT job_id::text FROM gone_back) w LIMIT 1) e
)
SELECT n.key, cortex.announce('work.stranded', n.key, n.data), (SELECT count(*) FROM hinted) AS hint_count,
       (SELECT count(*) FROM gone_back) >= $2 OR (SELECT count(*) FROM made_way) >= $2 AS is_more_due
FROM (SELECT) one LEFT JOIN newly n ON true ORDER BY n.key;

-- name: dead_letters
-- Announces that many dead letters are unresolved, and again each time that their number has doubled. $1 how many are
-- many, $2 most to count. Records a fact of it. Locks: the alarm. Returns how many there are if that was announced.
WITH counted AS MATERIALIZED (
    SELECT count(*) AS n FROM (
        SELECT FROM cortex.dead_letter WHERE state IN ('OPEN', 'ESCALATED', 'ARCHIVED') LIMIT $2::bigint) l
), moved AS MATERIALIZED (
    SELECT c.n, c.n >= 2 * b.level AS is_growth,
           CASE WHEN c.n >= 2 * b.level THEN c.n ELSE least(c.n, b.level) END AS level
    FROM counted c CROSS JOIN (
        SELECT coalesce((SELECT a.level FROM cortex.alarm a WHERE a.topic = 'dead_letter.growing'),
                        $1::bigint / 2) AS level) b
), ended AS (
    DELETE FROM cortex.alarm a USING moved m WHERE a.topic = 'dead_letter.growing' AND m.level <= $1 / 2
), kept AS (
    INSERT INTO cortex.alarm AS a (topic, key, level, announced_at)
    SELECT 'dead_letter.growing', 'dead_letters', level, cortex.now() FROM moved WHERE level > $1 / 2
    ON CONFLICT (topic, key) DO UPDATE
    SET level = excluded.level,
        announced_at = CASE WHEN (SELECT is_growth FROM moved) THEN excluded.announced_at ELSE a.announced_at END
), newly AS MATERIALIZED (
    SELECT n, jsonb_build_object('unresolved', n, 'tenant', 'default') AS data FROM moved WHERE is_growth
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'dead_letters_growing', 'dead_letters', data FROM newly
)
SELECT n, cortex.announce('dead_letter.growing', 'dead_letters', data) FROM newly;

-- name: forget_refusals
-- Forgets whose credentials were refused, once that has not happened for a while: the next time is announced again.
-- $1 seconds. Locks: the alarms.
DELETE FROM cortex.alarm a
WHERE a.topic = 'auth.failed' AND a.since < cortex.now() - $1::float8 * interval '1 second' AND NOT EXISTS (
    SELECT FROM cortex.fact f
    WHERE f.source = a.key AND f.at > cortex.now() - $1::float8 * interval '1 second'
      AND f.type = 'error' AND f.subtype IN ('authentication', 'permission'));
