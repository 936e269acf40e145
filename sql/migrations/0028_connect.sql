-- Who may connect. Postgres lets every login of a server connect to each of its databases, make temporary tables there,
-- take advisory locks and send notifications. Only the roles of Cortex need that, and the login that migrates.

DO $$
DECLARE
    given text;
BEGIN
    IF NOT pg_has_role(current_user, (SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE') THEN
        RAISE NOTICE 'every login may still connect to %: % does not own it', current_database(), current_user;
        RETURN;
    END IF;
    FOR given IN
        SELECT rolname FROM pg_roles
        WHERE rolname = current_user OR rolname IN (
            'cortex_owner', 'cortex_runtime', 'cortex_operator', 'cortex_submitter', 'cortex_reader',
            'cortex_tenant_reader')
    LOOP
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), given);
    END LOOP;
    EXECUTE format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    -- Databases that were made before Postgres 15 let everybody create tables there.
    IF to_regnamespace('public') IS NOT NULL AND pg_has_role(
        current_user, (SELECT nspowner FROM pg_namespace WHERE nspname = 'public'), 'USAGE')
    THEN
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    END IF;
END $$;
