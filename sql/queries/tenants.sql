-- name: jobs
-- Those of these jobs that are a tenant's. $1 ids, $2 tenant.
SELECT j.id AS name FROM cortex.job_record j WHERE j.id = ANY ($1::uuid[]) AND j.tenant = $2;

-- name: approvals
-- Those of these requests that are a tenant's. $1 ids, $2 tenant.
SELECT a.id AS name FROM cortex.approval a WHERE a.id = ANY ($1::uuid[]) AND a.tenant = $2;

-- name: effects
-- Those of these effects that are a tenant's. $1 ids, $2 tenant.
SELECT e.id AS name FROM cortex.effect e WHERE e.id = ANY ($1::uuid[]) AND e.tenant = $2;

-- name: messages
-- Those of these messages that are a tenant's. $1 ids, $2 tenant.
SELECT DISTINCT o.id AS name FROM cortex.outbox o WHERE o.id = ANY ($1::uuid[]) AND o.tenant = $2;

-- name: schedules
-- Those of these schedules that are a tenant's. $1 names, $2 tenant.
SELECT s.name FROM cortex.schedule s WHERE s.name = ANY ($1::text[]) AND s.tenant = $2;
