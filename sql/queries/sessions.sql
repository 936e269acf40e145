-- name: is_own
-- Whether this session was begun for this client: then its start-up brought the setting. One row if so.
SELECT FROM (SELECT current_setting('cortex.session', true) AS told) s WHERE told = 'own';

-- name: set
-- Settings of a session of our own, without those that the server does not know. $1 names, $2 values.
SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)
WHERE current_setting(s.name, true) IS NOT NULL;

-- name: set_locally
-- Settings to the end of the transaction, for a session that is not ours, without those that the server does not
-- know. $1 names, $2 values.
SELECT set_config(s.name, s.value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)
WHERE s.name LIKE '%.%' OR current_setting(s.name, true) IS NOT NULL;
