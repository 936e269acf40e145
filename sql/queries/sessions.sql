-- name: is_own
-- Whether this session was started for this client: then its startup brought the setting. One row if so.
SELECT FROM (SELECT current_setting('cortex.session', true) AS marker) s WHERE marker = 'own';

-- name: set
-- Sets settings of our own session, except those that the server does not know. $1 names, $2 values.
SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)
WHERE current_setting(s.name, true) IS NOT NULL;

-- name: set_locally
-- Sets settings to the end of the transaction, for a session that is not ours, except those that the server does not
-- know. $1 names, $2 values.
SELECT set_config(s.name, s.value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)
WHERE s.name LIKE '%.%' OR current_setting(s.name, true) IS NOT NULL;

-- name: may_look_as
-- One row if the logged-in user may take role $1, and that role has privileges in this database. Needs no privilege.
SELECT FROM pg_roles r, pg_namespace n
WHERE r.rolname = $1 AND n.nspname = 'cortex' AND has_schema_privilege(r.oid, n.oid, 'USAGE')
  -- Since Postgres 16 the creator of a role is its member, but may not SET ROLE to it.
  AND pg_has_role(session_user, r.oid,
                  CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END);

-- name: has_written
-- Whether the present transaction has written, or locked rows; no lock.
SELECT pg_current_xact_id_if_assigned() IS NOT NULL;

-- name: make_pod_login
-- Creates the login of the embedded server's pods, a member of cortex_runtime only, unless it exists. Locks: an advisory
-- lock to the end of the statement, so that two pods do not create it at once.
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('cortex.pod_login', 0));
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_pod') THEN
        CREATE ROLE cortex_pod LOGIN;
        GRANT cortex_runtime TO cortex_pod;
    END IF;
END $$;
