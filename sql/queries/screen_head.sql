-- name: head
-- The head of every screen, each count up to a cap. $1 cap. Always one row.
SELECT * FROM cortex.head($1);
