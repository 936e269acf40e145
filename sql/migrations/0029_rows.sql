-- Rows of one tenant, for logins with cortex_tenant_reader: views that hold what belongs to the tenant of the login.
--
-- Not policies on the tables: where a table has any, even one that is true for all, Postgres compares no enum by index
-- before them, and the plans of pods would read all jobs.

CREATE SCHEMA cortex_tenant;
COMMENT ON SCHEMA cortex_tenant IS 'The record of one tenant: that of the login in cortex.login_tenant; without one, nothing.';

CREATE FUNCTION cortex_tenant.own() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT l.tenant FROM cortex.login_tenant l WHERE l.login = session_user AND l.tenant <> 'default' $$;
COMMENT ON FUNCTION cortex_tenant.own IS
    'The tenant of the login; null: it has none. What belongs to the tenant default is not shown: it has the installation''s.';
REVOKE EXECUTE ON FUNCTION cortex_tenant.own FROM PUBLIC;

-- With the owner's rights, and nothing is evaluated before the condition that could reveal other rows.
DO $make$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT * FROM (VALUES
            ('job', 'cortex.job', 'tenant', 'Its jobs.'),
            ('fact', 'cortex.fact', 'tenant', 'Failures, costs and changes of its jobs.'),
            ('effect', 'cortex.effect', 'tenant', 'What its jobs changed outside.'),
            ('dead_letter', 'cortex.dead_letter', 'tenant', 'Its jobs that failed.'),
            ('schedule', 'cortex.schedule', 'tenant', 'Its schedules.'),
            ('job_history', 'cortex.job_history', NULL, 'Transitions of its jobs.'),
            ('job_attempt', 'cortex.job_attempt', NULL, 'Attempts of its jobs.'),
            ('job_step', 'cortex.job_step', NULL, 'Steps of its jobs.'),
            ('job_file', 'cortex.job_file', NULL, 'Images and PDFs of its jobs.'),
            ('job_published', 'cortex.job_published', NULL, 'What its jobs show while they run.'),
            ('log_line', 'cortex.log_line', NULL, 'What its jobs logged.')
        ) AS views (name, source, tenant, comment)
    LOOP
        EXECUTE format('CREATE VIEW cortex_tenant.%I WITH (security_barrier = true) AS SELECT t.* FROM %s t WHERE %s',
            made.name, made.source, CASE WHEN made.tenant IS NOT NULL
                THEN 't.tenant = (SELECT cortex_tenant.own()) AND t.tenant <> ''default'''
                ELSE 'EXISTS (SELECT FROM cortex.job_record j WHERE j.id = t.job_id '
                     'AND j.tenant = (SELECT cortex_tenant.own()))' END);
        EXECUTE format('COMMENT ON VIEW cortex_tenant.%I IS %L', made.name, made.comment);
    END LOOP;
END $make$;

CREATE VIEW cortex_tenant.approval WITH (security_barrier = true) AS
SELECT a.id, a.job_id, a.key, a.tool, a.arguments, a.version, a.risk, a.effect, a.people, a.status, a.requested_by,
       a.created_at, a.expires_at, a.edited_by, a.decided_at, a.decided_by, a.channel, a.reason
FROM cortex.approval a WHERE a.tenant = (SELECT cortex_tenant.own()) AND a.tenant <> 'default';
COMMENT ON VIEW cortex_tenant.approval IS 'Requests of its jobs to people, without the digests of links.';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_tenant_reader') THEN
        GRANT USAGE ON SCHEMA cortex_tenant TO cortex_tenant_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA cortex_tenant TO cortex_tenant_reader;
        -- A condition of a view is evaluated with the caller's rights on functions.
        GRANT EXECUTE ON FUNCTION cortex_tenant.own TO cortex_tenant_reader;
    END IF;
END $$;
