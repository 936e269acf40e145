-- Who acts: the person behind a call, by a credential that the caller cannot invent, and what only people may do.
--
-- A caller is a JSON object: `digest`, of a token or of a session's cookie, in hex; else `uid` and `user` of the
-- operating system's user, and `skeleton` of that name; `as`, a label. A digest proves itself. The operating-system user
-- is only believed if the database login may administer: a session's login cannot be changed by any setting.

CREATE FUNCTION cortex.caller_is_owner() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN (SELECT pg_has_role(session_user, n.nspowner, 'MEMBER') FROM pg_namespace n WHERE n.nspname = 'cortex');
COMMENT ON FUNCTION cortex.caller_is_owner IS
    'Whether the session''s login owns the schema, or is a superuser: commands that several people share use such logins.';

CREATE FUNCTION cortex.caller_is_operator() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN cortex.caller_is_owner() OR EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = 'cortex_operator' AND pg_has_role(session_user, r.oid, 'MEMBER'));
COMMENT ON FUNCTION cortex.caller_is_operator IS
    'Whether the session''s login may act as a person without a token: the owner''s, or a member of cortex_operator.';

CREATE FUNCTION cortex.writes_as_owner() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN (SELECT pg_has_role(current_user, n.nspowner, 'MEMBER') FROM pg_namespace n WHERE n.nspname = 'cortex');
COMMENT ON FUNCTION cortex.writes_as_owner IS
    'Whether a statement runs with the owner''s rights, as in the functions of this file; never with those of pods.';

CREATE FUNCTION cortex.credential_person(of_credential text) RETURNS uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE
    WHEN of_credential ~ '^token:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    THEN (SELECT t.person_id FROM cortex.api_token t WHERE t.id = substr(of_credential, 7)::uuid)
    ELSE (SELECT c.person_id FROM cortex.person_credential c WHERE c.credential = of_credential) END $$;
COMMENT ON FUNCTION cortex.credential_person IS
    'Whose a credential is, valid or not: token:ID, os:UID or db:LOGIN; null: nobody''s.';

CREATE FUNCTION cortex.acting_credential(named text) RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN coalesce(named, '') = ''
                  OR named LIKE 'os:%' AND cortex.credential_person('db:' || session_user) IS NOT NULL
                THEN 'db:' || session_user ELSE named END;
COMMENT ON FUNCTION cortex.acting_credential IS
    'The credential to record for who names this one: that of the login without any, and if the login is a person''s, '
    'whatever operating-system user its command names.';

CREATE FUNCTION cortex.holder_of_digest(of_digest bytea)
    RETURNS TABLE (
        token_id uuid, person_id uuid, name text, roles text[], tenant text, is_revoked boolean, is_expired boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT t.id, p.id, p.name, t.roles, t.tenant, t.revoked_at IS NOT NULL OR p.disabled_at IS NOT NULL,
       coalesce(t.expires_at <= cortex.now(), false)
FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
WHERE t.id = coalesce(
    (SELECT k.id FROM cortex.api_token k WHERE k.digest = of_digest),
    (SELECT s.token_id FROM cortex.api_session s WHERE s.digest = of_digest AND s.expires_at > cortex.now())) $$;
COMMENT ON FUNCTION cortex.holder_of_digest IS 'The token that a token''s or a session''s digest stands for, valid or not.';
REVOKE EXECUTE ON FUNCTION cortex.holder_of_digest(bytea) FROM PUBLIC;

CREATE FUNCTION cortex.person_of_user(caller jsonb) RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own CONSTANT text := 'os:' || (caller->>'uid')::bigint;
    person uuid := cortex.credential_person(own);
    called CONSTANT text := coalesce(caller->>'user', replace(own, ':', '-'));
BEGIN
    IF person IS NOT NULL THEN
        RETURN person;
    END IF;
    -- Somebody who acts for the first time, as this user of whatever host. Two at once wait here for each other.
    INSERT INTO cortex.person AS p (name, skeleton, created_by)
    VALUES (called, coalesce(caller->>'skeleton', called), own) ON CONFLICT DO NOTHING RETURNING p.id INTO person;
    IF person IS NULL THEN
        person := cortex.credential_person(own);
        IF person IS NULL THEN
            RAISE EXCEPTION 'operating-system user % (uid %) belongs to no person, and a person with such a name exists',
                called, caller->>'uid'
                USING ERRCODE = 'insufficient_privilege',
                      HINT = format('say whose it is: cortex people add NAME --os %s', caller->>'uid');
        END IF;
        RETURN person;
    END IF;
    INSERT INTO cortex.person_credential (credential, person_id, created_by) VALUES (own, person, own);
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'person_created', 'person:' || called,
            jsonb_build_object('by', called, 'person_id', person, 'credential', own, 'host', caller->>'host'));
    RETURN person;
END $$;
COMMENT ON FUNCTION cortex.person_of_user IS
    'The person of an operating-system user, who becomes one by acting for the first time. Called by person_of only.';
REVOKE EXECUTE ON FUNCTION cortex.person_of_user(jsonb) FROM PUBLIC;

CREATE FUNCTION cortex.person_of(caller jsonb, needed text, must_be_person boolean)
    RETURNS TABLE (person_id uuid, name text, credential text, is_own boolean, tenant text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    held record;
    login CONSTANT text := 'db:' || session_user;
    proof CONSTANT bytea := decode(caller->>'digest', 'hex');
BEGIN
    IF proof IS NOT NULL THEN
        SELECT * INTO held FROM cortex.holder_of_digest(proof);
        IF NOT FOUND OR held.is_revoked OR held.is_expired THEN
            RAISE EXCEPTION 'this token or session is not valid, or no longer'
                USING ERRCODE = 'insufficient_privilege', HINT = 'sign in again, or create another: cortex tokens create';
        ELSIF NOT held.roles && ARRAY[needed, 'admin'] THEN
            RAISE EXCEPTION 'this needs the role %; % has: %', needed, held.name, array_to_string(held.roles, ', ')
                USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin for a token that has it';
        END IF;
        person_id := held.person_id;
        tenant := held.tenant;
        credential := 'token:' || held.token_id;
        is_own := true;
    ELSIF NOT cortex.caller_is_operator() THEN
        RAISE EXCEPTION 'database login % may not act for a person', session_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('set CORTEX_TOKEN, or an administrator runs: GRANT cortex_operator TO %I', session_user);
    ELSE
        person_id := cortex.credential_person(login);
        credential := login;
        is_own := person_id IS NOT NULL;
        IF person_id IS NULL AND cortex.caller_is_owner() AND caller ? 'uid' THEN
            person_id := cortex.person_of_user(caller);
            credential := 'os:' || (caller->>'uid')::bigint;
        END IF;
    END IF;
    SELECT p.name, p.disabled_at INTO held FROM cortex.person p WHERE p.id = person_id;
    IF held.disabled_at IS NOT NULL THEN
        RAISE EXCEPTION 'person % is disabled', held.name
            USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin: cortex people enable';
    ELSIF person_id IS NULL AND must_be_person THEN
        RAISE EXCEPTION 'database login % belongs to no person', session_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('set CORTEX_TOKEN, or say whose it is: cortex people add NAME --login %s', session_user);
    END IF;
    name := coalesce(held.name, session_user);
    name := left(name || coalesce(' (' || nullif(caller->>'as', name) || ')', ''), 200);
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION cortex.person_of IS
    'Who a caller is, with the right that is needed: the person, the name to record with the label beside it, the '
    'credential, whether it is a token or a login of that person alone, and the only tenant that it is for. Raises insufficient_privilege. Without '
    '`must_be_person` an administering login that belongs to nobody is named by itself. Called by the functions that only '
    'people may call; needed: approver, operator or admin.';
REVOKE EXECUTE ON FUNCTION cortex.person_of(jsonb, text, boolean) FROM PUBLIC;

CREATE FUNCTION cortex.person_of_all(caller jsonb, needed text) RETURNS TABLE (person_id uuid, name text, credential text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, needed, false);
    IF who.tenant IS NOT NULL THEN
        RAISE EXCEPTION 'this is about all tenants; the token of % is of tenant %', who.name, who.tenant
            USING ERRCODE = 'insufficient_privilege', HINT = 'ask an admin for a token of all tenants';
    END IF;
    RETURN QUERY SELECT who.person_id, who.name, who.credential;
END $$;
COMMENT ON FUNCTION cortex.person_of_all IS
    'Who a caller is that acts on the whole installation: as person_of says, but no token of one tenant.';
REVOKE EXECUTE ON FUNCTION cortex.person_of_all(jsonb, text) FROM PUBLIC;

CREATE FUNCTION cortex.known_person(caller jsonb) RETURNS TABLE (person_id uuid, credential text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF caller ? 'digest' THEN
        RETURN QUERY SELECT h.person_id, 'token:' || h.token_id FROM cortex.holder_of_digest(decode(caller->>'digest', 'hex')) h;
    ELSIF cortex.credential_person('db:' || session_user) IS NOT NULL THEN
        RETURN QUERY SELECT cortex.credential_person('db:' || session_user), 'db:' || session_user;
    ELSE
        RETURN QUERY SELECT cortex.credential_person('os:' || (caller->>'uid')), 'os:' || (caller->>'uid');
    END IF;
END $$;
COMMENT ON FUNCTION cortex.known_person IS
    'Who a caller would act as, for screens: nothing is checked, and nobody is made. Null: not known yet.';
REVOKE EXECUTE ON FUNCTION cortex.known_person(jsonb) FROM PUBLIC;

-- ------------------------------------------------------------------ people are made

CREATE FUNCTION cortex.found_person(called text, its_skeleton text, by_name text) RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
BEGIN
    INSERT INTO cortex.person AS p (name, skeleton, created_by) VALUES (called, its_skeleton, by_name)
    ON CONFLICT DO NOTHING RETURNING p.id INTO found;
    IF found.id IS NOT NULL THEN
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'person_created', 'person:' || called, jsonb_build_object('by', by_name, 'person_id', found.id));
        RETURN found.id;
    END IF;
    SELECT p.id, p.name, p.disabled_at INTO found FROM cortex.person p WHERE p.name = called OR p.skeleton = its_skeleton
    ORDER BY p.name = called DESC LIMIT 1;
    IF found.name <> called THEN
        RAISE EXCEPTION 'the name "%" can be confused with "%", who exists', called, found.name
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'person_skeleton_key', HINT = 'give another name';
    ELSIF found.disabled_at IS NOT NULL THEN
        RAISE EXCEPTION 'person % is disabled', called
            USING ERRCODE = 'check_violation', HINT = format('enable it first: cortex people enable %s', called);
    END IF;
    RETURN found.id;
END $$;
COMMENT ON FUNCTION cortex.found_person IS
    'The person of a name, who is made if there is none. Raises unique_violation for a name that can be confused with '
    'another one.';
REVOKE EXECUTE ON FUNCTION cortex.found_person(text, text, text) FROM PUBLIC;

CREATE FUNCTION cortex.add_person(called text, its_skeleton text, credentials text[], caller jsonb, why text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    person uuid;
    given text;
    before uuid;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'admin');
    person := cortex.found_person(called, its_skeleton, who.name);
    FOREACH given IN ARRAY credentials LOOP
        before := cortex.credential_person(given);
        CONTINUE WHEN before = person;
        INSERT INTO cortex.person_credential AS c (credential, person_id, created_by) VALUES (given, person, who.name)
        ON CONFLICT ON CONSTRAINT person_credential_pkey
        DO UPDATE SET person_id = excluded.person_id, created_by = excluded.created_by, created_at = cortex.now();
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'person_mapped', 'person:' || called, jsonb_build_object(
            'by', who.name, 'reason', why, 'person_id', person, 'credential', given,
            'before', (SELECT p.name FROM cortex.person p WHERE p.id = before)));
    END LOOP;
    RETURN person;
END $$;
COMMENT ON FUNCTION cortex.add_person IS
    'Makes a person, or finds the one of this name, and gives them credentials: os:UID, db:LOGIN. Those of another person '
    'pass over; what was voted with them counts for the new one. Needs the role admin.';

CREATE FUNCTION cortex.switch_person(called text, is_enabled boolean, caller jsonb, why text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    held record;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'admin');
    SELECT p.id, p.disabled_at IS NULL AS was_enabled INTO held FROM cortex.person p WHERE p.name = called FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF held.was_enabled = is_enabled THEN
        RETURN 'unchanged';
    END IF;
    UPDATE cortex.person p
    SET disabled_at = CASE WHEN NOT is_enabled THEN cortex.now() END, disabled_by = CASE WHEN NOT is_enabled THEN who.name END
    WHERE p.id = held.id;
    IF NOT is_enabled THEN
        DELETE FROM cortex.api_session s USING cortex.api_token t WHERE s.token_id = t.id AND t.person_id = held.id;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', CASE WHEN is_enabled THEN 'person_enabled' ELSE 'person_disabled' END, 'person:' || called,
            jsonb_build_object('by', who.name, 'reason', why, 'person_id', held.id));
    RETURN 'changed';
END $$;
COMMENT ON FUNCTION cortex.switch_person IS
    'Disables a person, whose credentials are not valid from then on, or enables them again: changed, unchanged or '
    'missing. Needs the role admin.';

-- ------------------------------------------------------------------ tokens

CREATE FUNCTION cortex.create_token(
    new_id uuid, holder text, its_skeleton text, new_digest bytea, with_roles text[], lasts_s float8, caller jsonb, why text,
    of_tenant text
) RETURNS TABLE (
    id uuid, name text, roles text[], tenant text, created_by text, created_at timestamptz, expires_at timestamptz,
    revoked_at timestamptz, revoked_by text, last_used_at timestamptz, now timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who record;
    person uuid;
    made cortex.api_token;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'admin', false);
    IF who.tenant IS DISTINCT FROM of_tenant AND who.tenant IS NOT NULL THEN
        RAISE EXCEPTION 'the token of % is for tenant % only', who.name, who.tenant USING ERRCODE = 'insufficient_privilege';
    END IF;
    person := cortex.found_person(holder, its_skeleton, who.name);
    INSERT INTO cortex.api_token AS t (id, name, person_id, digest, roles, expires_at, created_by, tenant)
    VALUES (
        new_id, holder, person, new_digest, with_roles, cortex.now() + lasts_s * interval '1 second', who.name, of_tenant)
    ON CONFLICT DO NOTHING RETURNING t.* INTO made;
    IF made.id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'token_created', 'token:' || holder, jsonb_build_object(
        'by', who.name, 'reason', why, 'token_id', new_id, 'roles', with_roles, 'expires_at', made.expires_at,
        'tenant', of_tenant));
    RETURN QUERY SELECT made.id, made.name, made.roles, made.tenant, made.created_by, made.created_at, made.expires_at,
                        made.revoked_at, made.revoked_by, made.last_used_at, cortex.now();
END $$;
COMMENT ON FUNCTION cortex.create_token IS
    'Creates a token for the person of a name, who is made if there is none. Needs the role admin. No row if the id or the '
    'digest exists already.';

CREATE FUNCTION cortex.revoke_token(of_token uuid, caller jsonb, why text)
    RETURNS TABLE (id uuid, name text, revoked_by text, revoked_at timestamptz, was_revoked boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who record;
    held cortex.api_token;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'admin', false);
    SELECT t.* INTO held FROM cortex.api_token t
    WHERE t.id = of_token AND (who.tenant IS NULL OR t.tenant = who.tenant) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    was_revoked := held.revoked_at IS NOT NULL;
    IF NOT was_revoked THEN
        UPDATE cortex.api_token t SET revoked_at = cortex.now(), revoked_by = who.name WHERE t.id = of_token
        RETURNING t.* INTO held;
        DELETE FROM cortex.api_session s WHERE s.token_id = of_token;
        INSERT INTO cortex.fact (type, subtype, source, data)
        VALUES ('lifecycle', 'token_revoked', 'token:' || held.name,
                jsonb_build_object('by', who.name, 'reason', why, 'token_id', of_token));
    END IF;
    RETURN QUERY SELECT held.id, held.name, held.revoked_by, held.revoked_at, was_revoked;
END $$;
COMMENT ON FUNCTION cortex.revoke_token IS
    'Revokes a token and ends its sessions. Needs the role admin. No row if there is none.';

CREATE FUNCTION cortex.use_token(of_digest bytea)
    RETURNS TABLE (id uuid, name text, roles text[], tenant text, is_revoked boolean, is_expired boolean)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH noted AS (
    UPDATE cortex.api_token SET last_used_at = cortex.now()
    WHERE digest = of_digest AND revoked_at IS NULL AND coalesce(expires_at > cortex.now(), true)
      AND coalesce(last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT t.id, t.name, t.roles, t.tenant, t.revoked_at IS NOT NULL OR p.disabled_at IS NOT NULL,
       coalesce(t.expires_at <= cortex.now(), false)
FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id WHERE t.digest = of_digest $$;
COMMENT ON FUNCTION cortex.use_token IS
    'The token with a digest, and whether it is still valid; notes its use, once a minute. No row for an unknown digest.';

CREATE FUNCTION cortex.sign_in(cookie bytea, of_digest bytea, lasts_s float8) RETURNS TABLE (token_id uuid)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH expired AS MATERIALIZED (
    SELECT digest FROM cortex.api_session WHERE expires_at <= cortex.now()
    ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cortex.api_session s USING expired WHERE s.digest = expired.digest
), holder AS MATERIALIZED (
    SELECT t.id, t.name FROM cortex.api_token t JOIN cortex.person p ON p.id = t.person_id
    WHERE t.digest = of_digest AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
      AND p.disabled_at IS NULL
    FOR SHARE
), begun AS (
    INSERT INTO cortex.api_session (digest, token_id, expires_at)
    SELECT cookie, id, cortex.now() + lasts_s * interval '1 second' FROM holder
    RETURNING token_id
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'signed_in', 'token:' || name, jsonb_build_object('by', name, 'token_id', id) FROM holder
)
SELECT token_id FROM begun $$;
COMMENT ON FUNCTION cortex.sign_in IS
    'Starts a session of a token''s holder, by the digests of the cookie and of the token. No row for an invalid token.';

CREATE FUNCTION cortex.use_session(cookie bytea) RETURNS TABLE (id uuid, name text, roles text[], tenant text)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH found AS MATERIALIZED (
    SELECT t.id, t.name, t.roles, t.tenant FROM cortex.api_session s JOIN cortex.api_token t ON t.id = s.token_id
    JOIN cortex.person p ON p.id = t.person_id
    WHERE s.digest = cookie AND s.expires_at > cortex.now() AND p.disabled_at IS NULL
      AND t.revoked_at IS NULL AND coalesce(t.expires_at > cortex.now(), true)
), noted AS (
    UPDATE cortex.api_token t SET last_used_at = cortex.now()
    FROM found WHERE t.id = found.id AND coalesce(t.last_used_at <= cortex.now() - interval '1 minute', true)
)
SELECT found.id, found.name, found.roles, found.tenant FROM found $$;
COMMENT ON FUNCTION cortex.use_session IS
    'The token behind a valid session, by the digest of its cookie; notes its use. No row when either is not valid.';

CREATE FUNCTION cortex.sign_out(cookie bytea) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM cortex.api_session WHERE digest = cookie $$;
COMMENT ON FUNCTION cortex.sign_out IS 'Ends a session, by the digest of its cookie.';

CREATE FUNCTION cortex.effect_agreed_by(of_effect uuid, of_call int) RETURNS text[]
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(array_agg(w.person ORDER BY w.at, w.person), '{}') FROM (
    SELECT DISTINCT ON (p.id) v.person, v.at FROM cortex.effect_vote v
    JOIN cortex.person p ON p.id = coalesce(cortex.credential_person(v.credential), v.person_id)
    WHERE v.effect_id = of_effect AND v.call = of_call AND p.disabled_at IS NULL
    ORDER BY p.id, v.at) w $$;
COMMENT ON FUNCTION cortex.effect_agreed_by IS
    'The people who have said that this call of an effect was not applied, and whose word counts: each once, without those '
    'who are disabled.';

REVOKE EXECUTE ON FUNCTION
    cortex.effect_agreed_by(uuid, int), cortex.credential_person(text), cortex.add_person(text, text, text[], jsonb, text),
    cortex.switch_person(text, boolean, jsonb, text),
    cortex.create_token(uuid, text, text, bytea, text[], float8, jsonb, text, text), cortex.revoke_token(uuid, jsonb, text),
    cortex.use_token(bytea), cortex.sign_in(bytea, bytea, float8), cortex.use_session(bytea), cortex.sign_out(bytea)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.effect_agreed_by(uuid, int), cortex.credential_person(text), cortex.known_person(jsonb), cortex.add_person(text, text, text[], jsonb, text),
    cortex.switch_person(text, boolean, jsonb, text),
    cortex.create_token(uuid, text, text, bytea, text[], float8, jsonb, text, text), cortex.revoke_token(uuid, jsonb, text),
    cortex.use_token(bytea), cortex.sign_in(bytea, bytea, float8), cortex.use_session(bytea), cortex.sign_out(bytea)
    TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.person TO cortex_reader;
        GRANT EXECUTE ON FUNCTION
            cortex.effect_agreed_by(uuid, int), cortex.credential_person(text), cortex.known_person(jsonb) TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ approvals

CREATE FUNCTION cortex.agreed(of_approval uuid, to_digest bytea) RETURNS int
    LANGUAGE sql STABLE
    -- Whose a credential is now, not when it voted: one that passed to another person counts for that one.
    -- Nor, while it waits, for somebody who was disabled since: nothing of theirs decides any more.
    RETURN (SELECT count(DISTINCT w.person)::int FROM (
                SELECT coalesce(cortex.credential_person(v.credential), v.person_id, of_approval) AS person
                FROM cortex.approval_vote v WHERE v.approval_id = of_approval AND v.digest = to_digest) w
            WHERE NOT EXISTS (SELECT FROM cortex.person p JOIN cortex.approval a ON a.id = of_approval
                              WHERE p.id = w.person AND p.disabled_at IS NOT NULL AND a.status = 'PENDING'));
COMMENT ON FUNCTION cortex.agreed IS
    'How many different people agreed to these arguments: of a request that waits without those who are disabled.';

CREATE FUNCTION cortex.has_agreed(of_approval uuid, to_digest bytea, of_person uuid, with_credential text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM cortex.approval_vote v WHERE v.approval_id = of_approval AND v.digest = to_digest
          AND (v.credential = with_credential OR v.person_id = of_person
               OR cortex.credential_person(v.credential) = of_person));
COMMENT ON FUNCTION cortex.has_agreed IS 'Whether this person, by any credential, agreed to these arguments.';

CREATE FUNCTION cortex.is_own_request(
    of_risk text, of_lineage uuid, requested_by text, requested_with text, of_person uuid, of_name text, with_credential text
) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN CASE WHEN of_risk = 'CRITICAL' THEN EXISTS (
        SELECT FROM (SELECT requested_with AS credential, requested_by AS name
                     UNION ALL SELECT i.credential, i.name FROM cortex.involved(of_lineage) i) own
        WHERE own.credential = with_credential OR cortex.credential_person(own.credential) = of_person
           OR cortex.same_person(own.name) = cortex.same_person(of_name)) ELSE false END;
COMMENT ON FUNCTION cortex.is_own_request IS
    'Whether a request is critical and this person is responsible for a job of its lineage, see involved: they do not '
    'agree to it.';

CREATE FUNCTION cortex.decide(
    of_approval uuid, is_approved boolean, caller jsonb, seen bytea, why text, by_channel text, by_address text,
    by_client text, edited json
) RETURNS TABLE (outcome text, votes int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner uuid;
    its_task bigint;
    held cortex.approval;
    agreed int;
    stands json;
    stands_digest bytea;
    who record;
BEGIN
    SELECT a.job_id INTO owner FROM cortex.approval a WHERE a.id = of_approval;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', 0;
        RETURN;
    END IF;
    IF caller ? 'link' THEN
        SELECT NULL::uuid AS person_id, caller->>'name' AS name, NULL::text AS credential, false AS is_own,
               NULL::text AS tenant INTO who;
    ELSE
        SELECT * INTO who FROM cortex.person_of(caller, 'approver', true);
    END IF;
    -- In the order of all locks. After these, nothing can suspend, resume or end the job concurrently.
    SELECT t.id INTO its_task FROM cortex_worker.task t WHERE t.job_id = owner FOR UPDATE;
    PERFORM FROM cortex.job_record j WHERE j.id = owner AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE;
    IF NOT FOUND THEN
        -- It got its task, or lost it, during the wait for the locks: a concurrent suspend would not see this.
        RETURN QUERY SELECT 'again', 0;
        RETURN;
    END IF;
    SELECT * INTO held FROM cortex.approval a WHERE a.id = of_approval FOR UPDATE;
    stands := coalesce(edited, held.arguments);
    stands_digest := sha256(convert_to(stands::text, 'UTF8'));
    agreed := cortex.agreed(of_approval, held.digest);

    outcome := CASE
        WHEN who.tenant <> held.tenant THEN 'missing'
        WHEN held.status <> 'PENDING' THEN 'already'
        WHEN held.expires_at <= cortex.now() THEN 'expired'
        WHEN seen IS DISTINCT FROM held.digest THEN 'changed'
        WHEN who.credential IS NULL AND (
            held.people > 1 OR held.risk IN ('HIGH', 'CRITICAL') OR edited IS NOT NULL
            OR held.token_digest IS DISTINCT FROM decode(caller->>'link', 'hex')) THEN 'no_credential'
        WHEN NOT is_approved THEN NULL
        WHEN held.risk = 'CRITICAL' AND NOT who.is_own THEN 'shared_credential'
        WHEN cortex.is_own_request(
                held.risk, held.lineage_id, held.requested_by, held.requested_with, who.person_id, who.name, who.credential)
            THEN 'own_request'
        WHEN stands_digest <> held.digest AND held.schema IS NULL THEN 'not_editable'
        WHEN stands_digest = held.digest AND cortex.has_agreed(of_approval, held.digest, who.person_id, who.credential)
            THEN 'agreed_before'
        END;
    IF outcome IS NOT NULL THEN
        RETURN QUERY SELECT outcome, agreed;
        RETURN;
    END IF;

    IF NOT is_approved THEN
        UPDATE cortex.approval a
        SET status = 'DENIED', decided_at = cortex.now(), decided_by = who.name, decided_person = who.person_id,
            reason = why, channel = by_channel, address = by_address, client = by_client, token_digest = NULL,
            decided_with = who.credential
        WHERE a.id = of_approval;
        outcome := 'denied';
    ELSE
        INSERT INTO cortex.approval_vote (
            approval_id, person, person_id, digest, credential, channel, address, client, reason, old)
        SELECT of_approval, who.name, who.person_id, stands_digest, coalesce(who.credential, ''), by_channel, by_address,
               by_client, why, CASE WHEN stands_digest <> held.digest THEN held.arguments END
        -- Edited back to what this person agreed to before, it is no second vote.
        WHERE NOT cortex.has_agreed(of_approval, stands_digest, who.person_id, who.credential)
        ON CONFLICT DO NOTHING;
        agreed := cortex.agreed(of_approval, stands_digest);
        UPDATE cortex.approval a
        SET arguments = stands, digest = stands_digest,
            version = a.version + CASE WHEN stands_digest <> held.digest THEN 1 ELSE 0 END,
            edited_by = CASE WHEN stands_digest <> held.digest THEN who.name ELSE a.edited_by END,
            brief = CASE WHEN stands_digest <> held.digest THEN NULL ELSE a.brief END,
            status = CASE WHEN agreed >= a.people THEN 'APPROVED' ELSE 'PENDING' END,
            decided_at = CASE WHEN agreed >= a.people THEN cortex.now() END,
            decided_by = CASE WHEN agreed >= a.people THEN who.name END,
            decided_person = CASE WHEN agreed >= a.people THEN who.person_id END,
            decided_with = CASE WHEN agreed >= a.people THEN who.credential END,
            reason = CASE WHEN agreed >= a.people THEN why END,
            channel = CASE WHEN agreed >= a.people THEN by_channel END,
            address = CASE WHEN agreed >= a.people THEN by_address END,
            client = CASE WHEN agreed >= a.people THEN by_client END,
            token_digest = CASE WHEN agreed >= a.people THEN NULL ELSE a.token_digest END
        WHERE a.id = of_approval;
        outcome := CASE WHEN agreed >= held.people THEN 'approved' ELSE 'agreed' END;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'approval_' || outcome, 'approval:' || of_approval, held.tenant, held.job_id, held.attempt,
            held.key, held.agent_id, held.agent_version,
            jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'channel', by_channel,
                               'address', by_address, 'risk', held.risk, 'tool', held.tool, 'people', held.people, 'agreed', agreed,
                               'was_edited', stands_digest <> held.asked_digest));
    IF outcome <> 'agreed' THEN
        IF outcome = 'denied' AND held.on_deny = 'fail' THEN
            UPDATE cortex.job_record j
            SET status = 'FAILED', waiting_on = NULL, error_code = 'denied',
                error_class = 'PERMANENT', error_message = format('%s was denied by %s%s',
                    coalesce(held.tool, held.key), who.name, coalesce(': ' || why, ''))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END IF;
    RETURN QUERY SELECT outcome, agreed;
END $$;
COMMENT ON FUNCTION cortex.decide IS
    'The single way to decide, for people only: see person_of; `link` in the caller is the digest of the token of the '
    'request''s link. approved · agreed (more people are needed) · denied, or why not: already · expired · changed · '
    'no_credential · shared_credential · own_request · not_editable · agreed_before · missing; again: to be repeated.';

CREATE FUNCTION cortex.link_approval(of_approval uuid, of_digest bytea, caller jsonb, why text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    held cortex.approval;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'approver', false);
    UPDATE cortex.approval a SET token_digest = of_digest, token_by = who.name
    WHERE a.id = of_approval AND a.status = 'PENDING' AND a.expires_at > cortex.now()
      AND (who.tenant IS NULL OR a.tenant = who.tenant) RETURNING a.* INTO held;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'approval_linked', 'approval:' || of_approval, held.tenant, held.job_id, held.attempt, held.key,
            held.agent_id, held.agent_version, jsonb_build_object('by', who.name, 'reason', why));
    RETURN of_approval;
END $$;
COMMENT ON FUNCTION cortex.link_approval IS
    'Gives a pending request a new link, by the digest of its token, which replaces the previous one. Needs the role '
    'approver. Null if the request can no longer be decided.';

REVOKE EXECUTE ON FUNCTION
    cortex.decide(uuid, boolean, jsonb, bytea, text, text, text, text, json), cortex.link_approval(uuid, bytea, jsonb, text)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.decide(uuid, boolean, jsonb, bytea, text, text, text, text, json), cortex.link_approval(uuid, bytea, jsonb, text)
    TO cortex_runtime;

-- ------------------------------------------------------------------ the freeze of effects

CREATE FUNCTION cortex.freeze_is_lifted() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'only a person lifts the freeze of effects'
        USING ERRCODE = 'insufficient_privilege', HINT = 'run: cortex freeze off';
END $$;
-- Everybody may freeze, or freeze anew with another reason; what ends a freeze goes through lift_freeze.
CREATE TRIGGER freeze_is_kept BEFORE UPDATE ON cortex.breaker
    FOR EACH ROW WHEN (
        OLD.name = 'effects:all' AND OLD.state <> 'CLOSED' AND (
            NEW.name <> OLD.name OR NEW.state <> 'OPEN' OR NEW.open_until IS NOT NULL OR NEW.forced_by IS NULL)
        AND NOT cortex.writes_as_owner())
    EXECUTE FUNCTION cortex.freeze_is_lifted();
CREATE TRIGGER freeze_is_not_deleted BEFORE DELETE ON cortex.breaker
    FOR EACH ROW WHEN (OLD.name = 'effects:all' AND OLD.state <> 'CLOSED' AND NOT cortex.writes_as_owner())
    EXECUTE FUNCTION cortex.freeze_is_lifted();

CREATE FUNCTION cortex.lift_freeze(caller jsonb, why text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    held cortex.breaker;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.* INTO held FROM cortex.breaker b WHERE b.name = 'effects:all' FOR UPDATE;
    IF NOT FOUND OR held.state = 'CLOSED' THEN
        RETURN false;
    END IF;
    UPDATE cortex.breaker b
    SET state = 'CLOSED', failures = 0, successes = 0, requests = 0, opened_at = NULL, open_until = NULL, probe_by = NULL,
        probe_until = NULL, forced_by = NULL, forced_reason = NULL, forced_at = NULL, escalated_at = NULL,
        version = nextval('cortex.breaker_version'), updated_at = cortex.now()
    WHERE b.name = 'effects:all';
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'breaker_forced_closed', 'effects:all', jsonb_strip_nulls(jsonb_build_object(
        'before', held.state, 'after', 'CLOSED', 'failures', held.failures, 'opened_at', held.opened_at, 'by', who.name,
        'reason', why)));
    PERFORM pg_notify('cortex_breaker', 'effects:all');
    RETURN true;
END $$;
COMMENT ON FUNCTION cortex.lift_freeze IS
    'Lets effects begin again; false if they were not frozen. Needs the role operator.';

-- ------------------------------------------------------------------ budgets

CREATE FUNCTION cortex.put_budget(
    of_scope text, of_subject text, of_unit text, of_period text, new_limit numeric, caller jsonb, why text,
    is_declared boolean
) RETURNS TABLE (name text, after numeric, before numeric)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who record;
    old_limit numeric;
    put record;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.limit_amount INTO old_limit FROM cortex.budget b
    WHERE b.scope = of_scope AND b.subject = of_subject AND b.unit = of_unit AND b.period = of_period FOR UPDATE;
    INSERT INTO cortex.budget AS b (scope, subject, unit, period, limit_amount, declared_amount, changed_by, reason)
    VALUES (of_scope, of_subject, of_unit, of_period, new_limit, CASE WHEN is_declared THEN new_limit END, who.name, why)
    ON CONFLICT ON CONSTRAINT budget_once DO UPDATE
    SET limit_amount = excluded.limit_amount, changed_by = excluded.changed_by, changed_at = cortex.now(),
        reason = excluded.reason, declared_amount = coalesce(excluded.declared_amount, b.declared_amount)
    WHERE NOT is_declared OR b.declared_amount IS DISTINCT FROM excluded.declared_amount
    RETURNING b.name, b.limit_amount INTO put;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_set', 'budget:' || put.name,
            CASE WHEN of_scope = 'tenant' THEN of_subject ELSE 'default' END,
            CASE WHEN of_scope = 'job' THEN of_subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'after', put.limit_amount, 'before', old_limit));
    RETURN QUERY SELECT put.name, put.limit_amount, old_limit;
END $$;
COMMENT ON FUNCTION cortex.put_budget IS
    'Sets a limit, new or not. `is_declared`: a file declares it, and the same declaration again changes nothing. Returns '
    'its name, and the limit after and before; no row when nothing changed. Needs the role operator.';

CREATE FUNCTION cortex.raise_budget(of_name text, new_limit numeric, caller jsonb, why text)
    RETURNS TABLE (name text, before numeric, after numeric)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who record;
    held cortex.budget;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    SELECT b.* INTO held FROM cortex.budget b WHERE b.name = of_name AND b.limit_amount < new_limit FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE cortex.budget b SET limit_amount = new_limit, changed_by = who.name, changed_at = cortex.now(), reason = why
    WHERE b.id = held.id;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_raised', 'budget:' || held.name,
            CASE WHEN held.scope = 'tenant' THEN held.subject ELSE 'default' END,
            CASE WHEN held.scope = 'job' THEN held.subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'before', held.limit_amount, 'after', new_limit));
    RETURN QUERY SELECT held.name, held.limit_amount, new_limit;
END $$;
COMMENT ON FUNCTION cortex.raise_budget IS
    'Raises a limit; no row unless it grows. Returns it before and after. Needs the role operator.';

CREATE FUNCTION cortex.remove_budget(of_name text, caller jsonb, why text) RETURNS TABLE (name text, before numeric)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who record;
    gone cortex.budget;
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    DELETE FROM cortex.budget b WHERE b.name = of_name RETURNING b.* INTO gone;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM cortex.budget_use u WHERE u.budget_id = gone.id;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, data)
    VALUES ('lifecycle', 'budget_removed', 'budget:' || gone.name,
            CASE WHEN gone.scope = 'tenant' THEN gone.subject ELSE 'default' END,
            CASE WHEN gone.scope = 'job' THEN gone.subject::uuid END,
            jsonb_build_object('by', who.name, 'reason', why, 'before', gone.limit_amount));
    RETURN QUERY SELECT gone.name, gone.limit_amount;
END $$;
COMMENT ON FUNCTION cortex.remove_budget IS
    'Removes a limit and what was counted for it; returns the limit that it had. Needs the role operator.';

REVOKE EXECUTE ON FUNCTION
    cortex.lift_freeze(jsonb, text), cortex.put_budget(text, text, text, text, numeric, jsonb, text, boolean),
    cortex.raise_budget(text, numeric, jsonb, text), cortex.remove_budget(text, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.lift_freeze(jsonb, text), cortex.put_budget(text, text, text, text, numeric, jsonb, text, boolean),
    cortex.raise_budget(text, numeric, jsonb, text), cortex.remove_budget(text, jsonb, text) TO cortex_runtime;

-- ------------------------------------------------------------------ what is on record about people

CREATE FUNCTION cortex.fact_is_of_people() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a fact % is recorded by the act itself only', NEW.subtype USING ERRCODE = 'insufficient_privilege';
END $$;
-- Of what happened, not of errors: one of these has the code of an expired request.
CREATE TRIGGER fact_is_of_people BEFORE INSERT ON cortex.fact
    FOR EACH ROW WHEN (
        NEW.type = 'lifecycle' AND NEW.subtype IN (
            'approval_approved', 'approval_agreed', 'approval_denied', 'approval_linked', 'effect_resolved',
            'effect_agreed', 'token_created', 'token_revoked', 'signed_in', 'person_created', 'person_mapped',
            'person_disabled', 'person_enabled', 'approval_expired', 'budget_set', 'budget_raised', 'budget_removed',
            'retention_set', 'retention_unset', 'mcp_trusted')
        AND NOT cortex.writes_as_owner())
    EXECUTE FUNCTION cortex.fact_is_of_people();

CREATE FUNCTION cortex.step_was_decided() RETURNS trigger
    -- Not with the operators that its caller may have put before others.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM cortex.approval a JOIN cortex.job_record j ON j.id = NEW.job_id
        WHERE a.id::text = NEW.output->>'approval_id' AND a.lineage_id = coalesce(j.lineage_id, j.id) AND a.key = NEW.key
          AND a.status = CASE NEW.output->>'is_approved' WHEN 'true' THEN 'APPROVED' ELSE 'DENIED' END
          -- Those that people edited are in the step, others are not.
          AND CASE WHEN NEW.output->'arguments' IS NULL THEN a.digest = a.asked_digest
                   WHEN (NEW.output->'arguments')::text = a.arguments::text THEN true
                   ELSE (NEW.output->'arguments')::jsonb = a.arguments::jsonb END)
    THEN
        RAISE EXCEPTION 'step % of job % is a decision that nobody has made', NEW.key, NEW.job_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
-- A replay believes a recorded step. Other steps pay nothing for it.
CREATE TRIGGER job_step_was_decided BEFORE INSERT ON cortex.job_step
    FOR EACH ROW WHEN (NEW.kind = 'approval') EXECUTE FUNCTION cortex.step_was_decided();

-- ------------------------------------------------------------------ what people said of an effect

CREATE FUNCTION cortex.effect_was_resolved() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what people said of effect % stands, and so does how often it was called', OLD.id
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- A vote counts for one call, by its number.
CREATE TRIGGER effect_was_resolved BEFORE UPDATE OF status, result, calls_count ON cortex.effect
    FOR EACH ROW WHEN (
        (NEW.calls_count < OLD.calls_count
         OR OLD.resolution IN ('applied', 'give-up') AND (
            NEW.status <> OLD.status OR NEW.result::text IS DISTINCT FROM OLD.result::text))
        AND NOT cortex.writes_as_owner())
    EXECUTE FUNCTION cortex.effect_was_resolved();

-- ------------------------------------------------------------------ who is responsible for a job

CREATE FUNCTION cortex.responsibility_is_immutable() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'who submitted job %, and which job it continues, is immutable', OLD.id
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- Who is responsible for a job of a lineage does not agree to its critical calls. No statement of pods names these
-- columns.
CREATE TRIGGER job_keeps_who_is_responsible
    BEFORE UPDATE OF id, tenant, submitted_by, submitted_with, origin_id, lineage_id, parent_id ON cortex.job_record
    FOR EACH ROW WHEN (
        (NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.submitted_by IS DISTINCT FROM OLD.submitted_by
         OR NEW.submitted_with IS DISTINCT FROM OLD.submitted_with OR NEW.origin_id IS DISTINCT FROM OLD.origin_id
         OR NEW.lineage_id IS DISTINCT FROM OLD.lineage_id OR NEW.parent_id IS DISTINCT FROM OLD.parent_id)
        AND NOT cortex.writes_as_owner())
    EXECUTE FUNCTION cortex.responsibility_is_immutable();
