-- name: server
-- The server as any user sees it, and what has kept dead rows from being cleared away for longest, if anything does.
SELECT split_part(current_setting('server_version'), ' ', 1) AS version, clock_timestamp() AS now, pg_is_in_recovery() AS is_standby,
       current_setting('default_transaction_read_only')::bool AS is_read_only,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync')::bool AS fsync,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS connections_used,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections_max,
       oldest.*
FROM (SELECT) one LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT 'session' AS kind, concat_ws(' ', pid, nullif(application_name, ''), usename) AS name, pid,
               extract(epoch FROM clock_timestamp() - xact_start)::float8 AS held_s, age(backend_xmin) AS xids
        FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        UNION ALL
        SELECT 'prepared transaction', gid, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
        FROM pg_prepared_xacts
        UNION ALL
        SELECT 'replication slot', slot_name::text, NULL, NULL, greatest(age(xmin), age(catalog_xmin))
        FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL) s
    ORDER BY s.held_s DESC NULLS LAST, s.xids DESC LIMIT 1) oldest ON true;

-- name: pods
-- Pods that are said to be alive, whether they hold their locks, and how long they have been silent. $1 limit.
SELECT p.name, p.version, p.state, p.liveness, p.running, p.loop_lag_ms, p.hint_latency_ms, p.trouble,
       extract(epoch FROM cortex.now() - p.heartbeat_at)::float8 AS silent_s,
       EXISTS (
           SELECT FROM pg_locks l
           WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND l.classid::bigint = (p.lock_key >> 32) & 4294967295
             AND l.objid::bigint = p.lock_key & 4294967295) AS is_locked
FROM cortex.pod p WHERE p.state IN ('READY', 'DRAINING') ORDER BY p.started_at LIMIT $1;

-- name: unknown_effects
-- Effects of which nobody knows whether they were applied: a person must say. $1 how many are counted at most.
SELECT count(*)::int AS count FROM (SELECT FROM cortex.effect WHERE status = 'UNKNOWN' LIMIT $1) e;
