-- name: server
-- The server as any user sees it. The existence of other roles' sessions is visible to all users, but for most not
-- their details.
SELECT split_part(current_setting('server_version'), ' ', 1) AS version, clock_timestamp() AS now, pg_is_in_recovery() AS is_standby,
       current_setting('default_transaction_read_only')::bool AS is_read_only,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync')::bool AS fsync,
       (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend'
           OR backend_type IS NULL AND usesysid IS NOT NULL AND datid IS NOT NULL)::int AS connections_used,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections_max;

-- name: snapshots
-- What has prevented dead rows from being vacuumed for longest, in seconds and in transactions. Most users cannot see
-- the start times of other roles' sessions.
WITH s AS MATERIALIZED (
    SELECT CASE backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS kind,
           concat_ws(' ', pid, nullif(application_name, ''), usename) AS name, pid,
           CASE WHEN backend_type = 'client backend'
                THEN extract(epoch FROM clock_timestamp() - xact_start)::float8 END AS held_s,
           age(backend_xmin) AS xids
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
      AND coalesce(backend_type, 'client backend') IN ('client backend', 'walsender')
    UNION ALL
    SELECT 'prepared transaction', gid, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
    FROM pg_prepared_xacts
    UNION ALL
    SELECT 'replication slot', slot_name::text, NULL, NULL, greatest(age(xmin), age(catalog_xmin))
    FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
(SELECT * FROM s WHERE held_s IS NOT NULL ORDER BY held_s DESC LIMIT 1)
UNION ALL
(SELECT * FROM s WHERE held_s IS NULL ORDER BY xids DESC LIMIT 1);

-- name: pods
-- Pods marked alive, whether they hold their locks, and how long they have been silent; of a pod's workers the worst
-- figure of each kind. $1 limit.
SELECT p.name, p.version, CASE WHEN bool_or(p.state = 'READY') THEN 'READY' ELSE 'DRAINING' END AS state, p.liveness,
       sum(p.running)::int AS running, max(p.loop_lag_ms) AS loop_lag_ms,
       CASE WHEN bool_and(p.hint_latency_ms IS NOT NULL) THEN max(p.hint_latency_ms) END AS hint_latency_ms,
       max(p.threads_lost) AS threads_lost, min(p.trouble) AS trouble, p.confinement, p.silent_after_s, p.zombie_s,
       max(extract(epoch FROM cortex.now() - p.heartbeat_at)::float8) AS silent_s,
       bool_and(p.id IN (SELECT cortex.connected_pods())) AS is_locked
FROM cortex.pod p WHERE p.state IN ('READY', 'DRAINING')
GROUP BY p.shown_id, p.name, p.version, p.liveness, p.confinement, p.silent_after_s, p.zombie_s
ORDER BY min(p.started_at) LIMIT $1;

-- name: unknown_effects
-- Effects with an unknown outcome: a person must resolve them. $1 most to count.
SELECT count(*)::int AS count FROM (SELECT FROM cortex.effect WHERE status = 'UNKNOWN' LIMIT $1) e;

-- name: unnoticed_approvals
-- Waiting requests of which no subscription got a message. $1 most to count.
SELECT count(*)::int AS count FROM (
    SELECT FROM cortex.approval a
    WHERE a.status = 'PENDING' AND NOT EXISTS (SELECT FROM cortex.approval_notice n WHERE n.approval_id = a.id)
    LIMIT $1) w;

-- name: access
-- The database, whether every login of the server may connect to it, and who has to keep that: the roles of Cortex and
-- the owner of the schema. Needs no privilege.
SELECT quote_ident(current_database()) AS name, has_database_privilege('public', current_database(), 'CONNECT') AS is_open,
       (SELECT string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) FROM pg_roles r
        WHERE r.rolname IN ('cortex_owner', 'cortex_runtime', 'cortex_operator', 'cortex_submitter', 'cortex_reader',
                            'cortex_tenant_reader')
           OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'cortex')) AS roles;

-- name: intruders
-- Sessions that hold the advisory lock of migrations or of a pod's session, although their users could not be a pod's.
-- They stop no pod, but no pod does that. $1 limit. Sessions of superusers are excluded: a superuser could be a pod's
-- user.
WITH held AS MATERIALIZED (
    SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
), known AS (
    SELECT 'the lock of migrations' AS what, hashtextextended('cortex.migration', 0) AS key
    UNION ALL
    SELECT 'the lock of pod ' || p.name, p.lock_key FROM cortex.pod p WHERE p.state IN ('READY', 'DRAINING')
)
SELECT known.what, a.pid, concat_ws(' ', a.pid, nullif(a.application_name, ''), a.usename) AS name
FROM held JOIN known ON known.key = held.key JOIN pg_stat_activity a ON a.pid = held.pid
WHERE NOT pg_has_role(a.usesysid, 'cortex_runtime', 'MEMBER')
ORDER BY known.what, a.pid LIMIT $1;
