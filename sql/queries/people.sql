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
