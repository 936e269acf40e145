-- name: turn
-- One caller at a time watches. Locks: an advisory lock to the end of the transaction, if it is free.
SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.alarms', 0)) AS is_mine;

-- name: stranded
-- Announces each kind of work that no pod has served for a while, once, and forgets those that are served again.
-- $1 seconds, $2 most jobs to count of each. Records a fact of each. Locks: the alarms. Returns what was announced.
WITH observed AS MATERIALIZED (
    SELECT u.task, (
        SELECT count(*) FROM (
            SELECT FROM cortex_worker.task t WHERE t.task = u.task AND t.state = 'READY' AND NOT t.is_suspect LIMIT $2) c
        ) AS jobs
    FROM cortex.unserved_tasks() AS u(task)
), ended AS (
    DELETE FROM cortex.alarm a WHERE a.topic = 'work.stranded' AND a.key NOT IN (SELECT o.task FROM observed o)
), begun AS (
    INSERT INTO cortex.alarm (topic, key) SELECT 'work.stranded', o.task FROM observed o
    ON CONFLICT DO NOTHING
), due AS (
    UPDATE cortex.alarm a SET announced_at = cortex.now() FROM observed o
    WHERE a.topic = 'work.stranded' AND a.key = o.task AND a.announced_at IS NULL
      AND a.since < cortex.now() - $1::float8 * interval '1 second'
    RETURNING a.key, a.since, o.jobs
), newly AS MATERIALIZED (
    SELECT d.key, jsonb_strip_nulls(jsonb_build_object(
               'type', CASE WHEN s.task IS NULL THEN d.key ELSE 'run_agent' END, 'tools', s.tools, 'jobs', d.jobs,
               'since', d.since, 'tenant', 'default')) AS data
    FROM due d LEFT JOIN cortex.tool_set s ON s.task = d.key
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'work_stranded', left('task:' || key, 300), data FROM newly
)
SELECT key, cortex.announce('work.stranded', key, data) FROM newly ORDER BY key;

-- name: dead_letters
-- Announces that many dead letters are unresolved, and again each time that their number has doubled. $1 how many are
-- many, $2 most to count. Records a fact of it. Locks: the alarm. Returns how many there are if that was announced.
WITH counted AS MATERIALIZED (
    SELECT count(*) AS n FROM (
        SELECT FROM cortex.dead_letter WHERE state IN ('OPEN', 'ESCALATED') LIMIT $2::bigint) l
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
