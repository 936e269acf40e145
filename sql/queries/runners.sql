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
        error_count, skip_count, busy_s)
    SELECT name, interval_s, started_at, duration_s, items, error, CASE WHEN started_at IS NOT NULL THEN $1 END,
           succeeded_at, run_count, item_count, error_count, skip_count, busy_s
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
        busy_s = r.busy_s + excluded.busy_s
    RETURNING name, interval_s, coalesce(succeeded_at, first_at) AS since, error, late_at = cortex.now() AS is_newly_late
), others AS MATERIALIZED (
    SELECT name FROM cortex.runner
    WHERE late_at IS NULL AND name <> ALL ($2::text[])
      AND cortex.late_from(succeeded_at, first_at, interval_s) < cortex.now()
    ORDER BY name FOR UPDATE SKIP LOCKED
), late AS (
    UPDATE cortex.runner r SET late_at = cortex.now() FROM others WHERE r.name = others.name
    RETURNING r.name, r.interval_s, coalesce(r.succeeded_at, r.first_at) AS since, r.error
), newly AS MATERIALIZED (
    SELECT name, jsonb_build_object(
        'runner', name, 'interval_s', interval_s, 'since', since, 'error', error, 'tenant', 'default') AS data
    FROM (SELECT name, interval_s, since, error FROM kept WHERE is_newly_late
          UNION ALL SELECT name, interval_s, since, error FROM late) either
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'runner_late', 'runner:' || name, data FROM newly
)
SELECT name, cortex.announce('runner.late', name, jsonb_strip_nulls(data)) FROM newly ORDER BY name;

-- name: list
-- All runners by name: their last run and totals. Locks: none.
SELECT name, interval_s, first_at, started_at, duration_s, items, error, holder, succeeded_at, run_count, item_count,
       error_count, skip_count, busy_s, cortex.late_from(succeeded_at, first_at, interval_s) < cortex.now() AS is_late,
       cortex.now() AS now
FROM cortex.runner ORDER BY name;
