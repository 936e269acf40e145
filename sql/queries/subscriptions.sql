-- name: list
-- Subscriptions by name, with how many of their messages wait and failed, counted up to a limit. $1 limit of the counts.
SELECT s.name, s.topic, s.filter, s.channel, s.config, s.is_heavy, s.tenant, s.min_risk, s.fallback, s.attempts, s.timeout_s, s.changed_by, s.changed_at, s.created_at,
       cortex.breaker_state(b.state, b.open_until) AS breaker, cortex.waiting_messages(s.name, $1) AS pending,
       CASE WHEN f.since IS NOT NULL THEN (
           SELECT o.available_at FROM cortex.outbox o
           WHERE o.subscription = s.name AND o.status = 'PENDING' AND NOT o.is_parked
           ORDER BY o.available_at, o.seq LIMIT 1) END AS next_attempt_at,
       f.since AS failing_since, coalesce(f.failures, 0) AS failures, f.last_error, cortex.now() AS now
FROM cortex.subscription s LEFT JOIN cortex.breaker b ON b.name = 'notify:' || s.name
LEFT JOIN cortex.failing_subscription f ON f.subscription = s.name
ORDER BY s.name;

-- name: all
-- Subscriptions by name, as pods need them.
SELECT s.name, s.topic, s.filter, s.channel, s.config, s.is_heavy, s.tenant, s.min_risk, s.fallback, s.attempts, s.timeout_s FROM cortex.subscription s ORDER BY s.name;

-- name: failing
-- Subscriptions whose receiver takes no message, the one that has failed longest first. $1 limit of the counts, $2 limit.
SELECT f.subscription AS name, f.since, f.failed_at, f.failures, f.last_error,
       cortex.waiting_messages(f.subscription, $1) AS pending, cortex.now() AS now
FROM cortex.failing_subscription f ORDER BY f.since, f.subscription LIMIT $2;

-- name: one
-- A subscription as a job needs it. $1 name.
SELECT s.name, s.topic, s.filter, s.channel, s.config, s.is_heavy, s.tenant, s.min_risk, s.fallback, s.attempts, s.timeout_s FROM cortex.subscription s
WHERE s.name = $1;

-- name: put
-- Writes a subscription, new or not, records who, and notifies pods. $1 name, $2 topic, $3 filter, $4 channel, $5 config,
-- $6 whether it is heavy, $7 who, $8 why, $9 tenant, $10 least risk, $11 fallback, $12 attempts, $13 time-out, each or
-- null. Returns whether it is new; no row if nothing changed.
WITH put AS (
    INSERT INTO cortex.subscription AS s (
        name, topic, filter, channel, config, is_heavy, changed_by, tenant, min_risk, fallback,
        attempts, timeout_s)
    VALUES ($1, $2, $3::jsonb, $4, $5::jsonb, $6, $7, $9, $10, $11, $12, $13)
    ON CONFLICT (name) DO UPDATE
    SET topic = excluded.topic, filter = excluded.filter, channel = excluded.channel, config = excluded.config,
        is_heavy = excluded.is_heavy, changed_by = excluded.changed_by, changed_at = cortex.now(),
        tenant = excluded.tenant, min_risk = excluded.min_risk, fallback = excluded.fallback,
        attempts = excluded.attempts, timeout_s = excluded.timeout_s
    WHERE (s.topic, s.filter, s.channel, s.config, s.is_heavy, s.tenant, s.min_risk, s.fallback, s.attempts, s.timeout_s)
          IS DISTINCT FROM (excluded.topic, excluded.filter, excluded.channel, excluded.config, excluded.is_heavy,
                            excluded.tenant, excluded.min_risk, excluded.fallback, excluded.attempts,
                            excluded.timeout_s)
    RETURNING s.name, s.created_at = s.changed_at AS is_new
), hinted AS (
    SELECT pg_notify('cortex_outbox', 'subscriptions') FROM put
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'subscription_applied', 'subscription:' || put.name, jsonb_build_object(
        'by', $7::text, 'reason', $8::text, 'topic', $2::text, 'filter', $3::jsonb, 'channel', $4::text)
    FROM put
)
SELECT put.is_new FROM put LEFT JOIN hinted ON true;

-- name: routes
-- Subscriptions by name that get a message like this one, except handlers in the code of pods. $1 topic, $2 tenant,
-- $3 payload.
SELECT s.name FROM cortex.subscription s
WHERE s.channel <> 'handler' AND cortex.subscribes(s, $1, $2, $3::jsonb) ORDER BY s.name;

-- name: remove
-- Removes a subscription, records who and why, and notifies pods. $1 name, $2 who, $3 why. No row if it does not exist.
WITH gone AS (
    DELETE FROM cortex.subscription WHERE name = $1 RETURNING name, topic, channel
), forgotten AS (
    DELETE FROM cortex.failing_subscription WHERE subscription = $1
), hinted AS (
    SELECT pg_notify('cortex_outbox', 'subscriptions') FROM gone
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'subscription_removed', 'subscription:' || gone.name, jsonb_build_object(
        'by', $2::text, 'reason', $3::text, 'topic', topic, 'channel', channel)
    FROM gone
)
SELECT gone.name FROM gone LEFT JOIN hinted ON true;
