-- Schemas, the role of pods, the clock, identifiers, and the guard of append-only tables.
--
-- 0001 to 0029 are the baseline: the whole schema, by subject, each object written once. From the first release on, a
-- landed file is never edited: the migrator records its digest and refuses a database that has another text.

CREATE SCHEMA IF NOT EXISTS cortex;  -- the migrator has created it for its own table
CREATE SCHEMA cortex_worker;
COMMENT ON SCHEMA cortex IS 'The permanent record: jobs, history, steps, agents, pods.';
COMMENT ON SCHEMA cortex_worker IS 'The transient queue: a task lives until its job no longer needs a pod.';

-- ------------------------------------------------------------------ roles

-- All roles of Cortex; what each may do is granted with each object, and listed in docs/threat-model.md. Logins are the
-- administrator's: each is a member of one of these. The migrating login may lack the right to create roles: then those
-- that are not required are skipped, and only what needs them is missing.
DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('cortex_owner', false, false),      -- owns the schemas; its members administer
            ('cortex_runtime', true, true),      -- pods
            ('cortex_operator', false, false),   -- logins of people: what pods may, and what only people may
            ('cortex_submitter', false, false),  -- programs that submit jobs and read their own
            ('cortex_reader', false, true),      -- looks, and changes nothing
            ('cortex_tenant_reader', false, false) -- looks at one tenant, see 0029
        ) AS roles (name, is_required, is_taken)
    LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted.name);
        EXCEPTION
            -- Roles belong to the whole server: another database or another pod may have created it.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                IF wanted.is_required THEN
                    RAISE;
                END IF;
                RAISE NOTICE 'role % was not created: % may not create roles', wanted.name, current_user;
                CONTINUE;
        END;
        BEGIN
            -- Since Postgres 16 the creator of a role is its member, but may not SET ROLE to it.
            IF wanted.is_taken AND NOT pg_has_role(current_user, wanted.name::name,
                    CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
                EXECUTE format('GRANT %I TO %I', wanted.name, current_user);
            END IF;
        EXCEPTION
            WHEN insufficient_privilege THEN
                IF wanted.is_required THEN
                    RAISE;
                END IF;
                RAISE NOTICE '% may not become %: an administrator has to grant that', current_user, wanted.name;
        END;
    END LOOP;
    BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_operator')
           AND NOT pg_has_role('cortex_operator', 'cortex_runtime', 'MEMBER') THEN
            GRANT cortex_runtime TO cortex_operator;
        END IF;
    EXCEPTION
        WHEN unique_violation THEN NULL;  -- granted at the same time
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'cortex_operator is no member of cortex_runtime: an administrator has to grant that';
    END;
END $$;

GRANT USAGE ON SCHEMA cortex, cortex_worker TO cortex_runtime;
GRANT SELECT ON cortex.migration TO cortex_runtime;

-- ------------------------------------------------------------------ clock and identifiers

CREATE FUNCTION cortex.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN statement_timestamp();
COMMENT ON FUNCTION cortex.now() IS
    'The only clock of leases, due times and timestamps. A test moves time by replacing it.';

CREATE FUNCTION cortex.uuid7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(
        -- 48 bits of Unix milliseconds, then random bits with version 7 and the variant of a v4.
        substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        || set_bit(set_bit(substring(uuid_send(gen_random_uuid()) FROM 7), 4, 1), 5, 1),
        'hex')::uuid;
COMMENT ON FUNCTION cortex.uuid7() IS 'A time-ordered identifier (RFC 9562, version 7) for callers in plain SQL.';

-- ------------------------------------------------------------------ append-only tables

CREATE FUNCTION cortex.refuse_change() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    -- The deletions of 0023_retention.sql, from the tables whose trigger names them. The role of pods has no right to
    -- delete, whatever it sets.
    IF TG_OP = 'DELETE' AND TG_ARGV[0] = 'unless retention' AND current_setting('cortex.retention', true) = 'deletes' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '%.% is append-only: % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation';
END $$;
