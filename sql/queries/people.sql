-- name: list
-- People by name, with what proves them. $1 after this name, $2 limit.
SELECT p.id, p.name, ARRAY(SELECT c.credential FROM cortex.person_credential c WHERE c.person_id = p.id ORDER BY 1) AS credentials,
       (SELECT count(*) FROM cortex.api_token t WHERE t.person_id = p.id AND t.revoked_at IS NULL
        AND coalesce(t.expires_at > cortex.now(), true))::int AS tokens,
       p.created_by, p.created_at, p.disabled_at, p.disabled_by, cortex.now() AS now
FROM cortex.person p WHERE p.name > $1 ORDER BY p.name LIMIT $2;

-- name: show
-- One person, as in the list. $1 name.
SELECT p.id, p.name, ARRAY(SELECT c.credential FROM cortex.person_credential c WHERE c.person_id = p.id ORDER BY 1) AS credentials,
       (SELECT count(*) FROM cortex.api_token t WHERE t.person_id = p.id AND t.revoked_at IS NULL
        AND coalesce(t.expires_at > cortex.now(), true))::int AS tokens,
       p.created_by, p.created_at, p.disabled_at, p.disabled_by, cortex.now() AS now
FROM cortex.person p WHERE p.name = $1;

-- name: add
-- Makes a person, or finds the one of a name, and gives them credentials. $1 name, $2 its skeleton, $3 credentials, $4
-- the caller, $5 why. Locks: the credentials. Records who and why. See cortex.add_person.
SELECT cortex.add_person($1, $2, $3, $4::jsonb, $5);

-- name: switch
-- Disables a person, or enables them again. $1 name, $2 whether to enable, $3 the caller, $4 why. Locks: the person.
-- Records who and why. See cortex.switch_person.
SELECT cortex.switch_person($1, $2, $3::jsonb, $4) AS outcome;

-- name: has_submitted
-- Whether the person with a credential submitted a job. $1 credential, $2 job. Locks: none.
SELECT EXISTS (
    SELECT FROM cortex.job_record j WHERE j.id = $2
      AND (j.submitted_with = $1 OR cortex.credential_person(j.submitted_with) = cortex.credential_person($1))) AS has_submitted;

-- name: login
-- The login of this session, and whether it may act as a person without a token. Locks: none.
SELECT session_user::text AS login, cortex.caller_is_operator() AS may_decide;

-- name: deciding_pods
-- The logins of running pods that may act as people. Locks: none.
SELECT DISTINCT a.usename::text AS login
FROM cortex.pod p JOIN pg_stat_activity a ON a.application_name = left('cortex ' || p.name, 63)
    AND a.datname = current_database()
JOIN pg_namespace n ON n.nspname = 'cortex'
LEFT JOIN pg_roles o ON o.rolname = 'cortex_operator'
WHERE p.state IN ('READY', 'DRAINING')
  AND (pg_has_role(a.usesysid, n.nspowner, 'MEMBER') OR coalesce(pg_has_role(a.usesysid, o.oid, 'MEMBER'), false))
ORDER BY 1;
