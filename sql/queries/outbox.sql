-- name: claim
-- Gives due messages to a pod. $1 pod id; per subscription: $2 names, $3 the most of its messages; for all: $4 lease in
-- seconds. A message behind an unfinished one of its key is parked instead: the pod that ends that one finds it, since
-- the parked row is written while the other one is held. Locks: messages, skipping locked ones; it waits for nobody.
WITH due AS MATERIALIZED (
    SELECT d.* FROM unnest($2::text[], $3::int[]) AS w(name, most) CROSS JOIN LATERAL (
        SELECT o.seq, o.subscription, o.key FROM cortex.outbox o
        WHERE o.subscription = w.name AND o.status = 'PENDING' AND NOT o.is_parked AND o.available_at <= cortex.now()
        ORDER BY o.available_at, o.seq LIMIT w.most FOR UPDATE SKIP LOCKED) d
), behind AS MATERIALIZED (
    SELECT d.seq, first.seq AS first_seq FROM due d CROSS JOIN LATERAL (
        SELECT o.seq FROM cortex.outbox o
        WHERE o.subscription = d.subscription AND o.key = d.key AND o.status IN ('PENDING', 'PROCESSING')
        ORDER BY o.seq LIMIT 1) first
    WHERE d.key IS NOT NULL AND first.seq < d.seq
), held AS MATERIALIZED (
    SELECT o.seq FROM cortex.outbox o
    WHERE o.seq IN (SELECT first_seq FROM behind) AND o.status IN ('PENDING', 'PROCESSING')
    FOR SHARE SKIP LOCKED
), parked AS (
    UPDATE cortex.outbox o SET is_parked = true
    FROM behind b JOIN held h ON h.seq = b.first_seq WHERE o.seq = b.seq
), claimed AS (
    UPDATE cortex.outbox o
    SET status = 'PROCESSING', attempts = o.attempts + 1, claim = o.claim + 1, locked_by = $1,
        locked_until = cortex.now() + $4::float8 * interval '1 second'
    -- Counted first: what this statement has changed it cannot hold any more.
    FROM due d WHERE (SELECT count(*) FROM held) >= 0 AND o.seq = d.seq
      AND NOT EXISTS (SELECT FROM behind b WHERE b.seq = d.seq)
    RETURNING o.seq, o.id, o.topic, o.key, o.payload, o.headers, o.tenant, o.trace, o.subscription, o.escalated_from,
              o.attempts, o.claim, o.created_at
)
SELECT c.*, (SELECT count(*) FROM due) AS read_count FROM claimed c ORDER BY c.seq;

-- name: renew
-- Renews the leases of a pod's messages. $1 pod id, $2 their seqs, $3 their claims, $4 lease in seconds. Locks: the
-- messages (ordered). Returns those that are still its own.
WITH held AS MATERIALIZED (
    SELECT o.seq FROM unnest($2::bigint[], $3::int[]) AS m(seq, claim) JOIN cortex.outbox o ON o.seq = m.seq
    WHERE o.status = 'PROCESSING' AND o.locked_by = $1 AND o.claim = m.claim
    ORDER BY o.seq FOR UPDATE OF o
)
UPDATE cortex.outbox o SET locked_until = cortex.now() + $4::float8 * interval '1 second'
FROM held WHERE o.seq = held.seq RETURNING o.seq;

-- name: record
-- Writes what became of a pod's messages, as far as it still has their leases. $1 pod id; per message: $2 seqs,
-- $3 claims, $4 states, $5 seconds until the next attempt, $6 whether this attempt counts, $7 errors, $8 their codes if
-- credentials were refused, which is recorded as a fact. Notes the subscriptions that fail, and forgets those that took
-- a message. Locks: the messages, then the failing subscriptions (ordered). Returns the messages that were written.
WITH result AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::int[], $4::text[], $5::float8[], $6::bool[], $7::text[], $8::text[])
        AS r(seq, claim, status, delay_s, is_counted, error, refusal)
), held AS MATERIALIZED (
    SELECT r.*, o.subscription, o.tenant FROM result r JOIN cortex.outbox o ON o.seq = r.seq
    WHERE o.status = 'PROCESSING' AND o.locked_by = $1 AND o.claim = r.claim
    ORDER BY o.seq FOR UPDATE OF o
), fact AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT DISTINCT ON (subscription) 'error', refusal, 'notify:' || subscription, tenant,
           jsonb_build_object('class', 'PERMANENT', 'message', error)
    FROM held WHERE refusal IS NOT NULL ORDER BY subscription, seq
), tried AS MATERIALIZED (
    SELECT h.subscription, bool_or(h.status = 'SENT') AS has_sent, count(*) AS count,
           (array_agg(left(h.error, 1000) ORDER BY h.seq DESC))[1] AS error
    FROM held h WHERE h.is_counted AND h.error IS NOT NULL OR h.status = 'SENT' GROUP BY h.subscription
), known AS MATERIALIZED (
    SELECT f.subscription FROM cortex.failing_subscription f JOIN tried t USING (subscription)
    ORDER BY f.subscription FOR UPDATE OF f
), recovered AS (
    DELETE FROM cortex.failing_subscription f USING known k, tried t
    WHERE f.subscription = k.subscription AND t.subscription = k.subscription AND t.has_sent
), failing AS (
    INSERT INTO cortex.failing_subscription AS f (subscription, since, failed_at, failures, last_error)
    SELECT t.subscription, cortex.now(), cortex.now(), t.count, t.error FROM tried t
    WHERE NOT t.has_sent AND (SELECT count(*) FROM known) >= 0
      AND EXISTS (SELECT FROM cortex.subscription s WHERE s.name = t.subscription)
    ORDER BY t.subscription
    ON CONFLICT (subscription) DO UPDATE
    SET failed_at = excluded.failed_at, failures = f.failures + excluded.failures, last_error = excluded.last_error
)
UPDATE cortex.outbox o
SET status = h.status, attempts = o.attempts - CASE WHEN h.is_counted THEN 0 ELSE 1 END, locked_by = NULL,
    locked_until = NULL, last_error = CASE WHEN h.is_counted THEN h.error ELSE coalesce(h.error, o.last_error) END,
    available_at = CASE WHEN h.status = 'PENDING' THEN cortex.now() + h.delay_s * interval '1 second'
                        ELSE o.available_at END,
    finished_at = CASE WHEN h.status <> 'PENDING' THEN cortex.now() END
FROM held h WHERE o.seq = h.seq
RETURNING o.seq, o.subscription, o.key, o.status;

-- name: unpark
-- Lets the first unfinished message of each of these lines go. $1 subscriptions, $2 keys. In the transaction that ended
-- the messages before them, as a statement of its own: it must see what was parked meanwhile. Locks: messages (ordered).
WITH next AS MATERIALIZED (
    SELECT DISTINCT first.seq FROM unnest($1::text[], $2::text[]) AS line(subscription, key) CROSS JOIN LATERAL (
        SELECT o.seq, o.is_parked FROM cortex.outbox o
        WHERE o.subscription = line.subscription AND o.key = line.key AND o.status IN ('PENDING', 'PROCESSING')
        ORDER BY o.seq LIMIT 1) first
    WHERE first.is_parked
), held AS MATERIALIZED (
    SELECT o.seq FROM next JOIN cortex.outbox o ON o.seq = next.seq WHERE o.is_parked ORDER BY o.seq FOR UPDATE OF o
)
UPDATE cortex.outbox o SET is_parked = false FROM held WHERE o.seq = held.seq RETURNING o.seq;

-- name: reclaim
-- Takes messages from pods that died, or whose lease has expired: each gets its attempt back, and after the second time
-- a growing pause; it fails when this many pods have died of it, or with it. $1 limit, $2 how many. Locks: messages,
-- skipping locked ones. Returns them.
WITH late AS MATERIALIZED (
    SELECT o.seq FROM cortex.outbox o
    WHERE o.status = 'PROCESSING' AND (o.locked_until < cortex.now()
        OR EXISTS (SELECT FROM cortex.pod p WHERE p.id = o.locked_by AND p.state = 'DEAD'))
    ORDER BY o.locked_until LIMIT $1 FOR UPDATE OF o SKIP LOCKED
)
UPDATE cortex.outbox o
SET status = CASE WHEN o.lost_count + 1 < $2 THEN 'PENDING' ELSE 'FAILED' END, locked_by = NULL, locked_until = NULL,
    attempts = o.attempts - 1, lost_count = o.lost_count + 1,
    last_error = CASE WHEN o.lost_count + 1 < $2
        THEN 'its pod died or lost its lease while it sent this: it may have been sent'
        ELSE $2 || ' pods died or lost their lease while they sent this: it may have been sent' END,
    available_at = cortex.now()
        + CASE WHEN o.lost_count < 2 THEN 0 ELSE least(120, 5 * 2 ^ (o.lost_count - 2)) END * interval '1 second',
    finished_at = CASE WHEN o.lost_count + 1 >= $2 THEN cortex.now() END
FROM late WHERE o.seq = late.seq
RETURNING o.seq, o.subscription, o.key, o.status;

-- name: next_due
-- Seconds until the first of these subscriptions' messages is due; null: none waits. $1 subscriptions.
SELECT extract(epoch FROM min(first.available_at) - cortex.now())::float8 AS due_s
FROM unnest($1::text[]) AS w(name) CROSS JOIN LATERAL (
    SELECT o.available_at FROM cortex.outbox o
    WHERE o.subscription = w.name AND o.status = 'PENDING' AND NOT o.is_parked
    ORDER BY o.available_at, o.seq LIMIT 1) first;

-- name: orphan
-- Gives up messages whose subscription was removed. $1 limit of each subscription. Locks: messages, skipping locked
-- ones. Returns them.
WITH RECURSIVE named AS (
    (SELECT subscription FROM cortex.outbox WHERE status = 'PENDING' AND NOT is_parked
     ORDER BY subscription LIMIT 1)
    UNION ALL
    SELECT next.* FROM named n CROSS JOIN LATERAL (
        SELECT o.subscription FROM cortex.outbox o
        WHERE o.status = 'PENDING' AND NOT o.is_parked AND o.subscription > n.subscription
        ORDER BY o.subscription LIMIT 1) next
), gone AS MATERIALIZED (
    SELECT g.seq FROM named n CROSS JOIN LATERAL (
        SELECT o.seq FROM cortex.outbox o
        WHERE o.subscription = n.subscription AND o.status = 'PENDING' AND NOT o.is_parked
        ORDER BY o.available_at, o.seq LIMIT $1 FOR UPDATE SKIP LOCKED) g
    WHERE NOT EXISTS (SELECT FROM cortex.subscription s WHERE s.name = n.subscription)
)
UPDATE cortex.outbox o
SET status = 'FAILED', finished_at = cortex.now(), last_error = 'its subscription was removed'
FROM gone WHERE o.seq = gone.seq
RETURNING o.seq, o.subscription, o.key, o.status;

-- name: escalate
-- Gives up messages that have waited too long for a channel whose breaker is not closed, and that has a fallback: that
-- one gets them. $1 seconds, $2 limit of each subscription. Locks: messages, skipping locked ones. Returns them.
WITH late AS MATERIALIZED (
    SELECT w.seq FROM cortex.subscription s JOIN cortex.breaker b ON b.name = 'notify:' || s.name AND b.state <> 'CLOSED'
    CROSS JOIN LATERAL (
        SELECT o.seq FROM cortex.outbox o
        WHERE o.subscription = s.name AND o.status = 'PENDING' AND NOT o.is_parked
          AND o.available_at < cortex.now() - $1::float8 * interval '1 second'
        ORDER BY o.available_at, o.seq LIMIT $2 FOR UPDATE SKIP LOCKED) w
    WHERE s.fallback IS NOT NULL
)
UPDATE cortex.outbox o
SET status = 'FAILED', finished_at = cortex.now(), last_error = 'its channel did not answer for too long'
FROM late WHERE o.seq = late.seq
RETURNING o.seq, o.subscription, o.key, o.status;

-- name: forget
-- Deletes messages that were sent, or given up, long ago, the oldest first. $1 seconds after which sent ones go,
-- $2 failed ones, $3 limit of each. Locks: messages, skipping locked ones. Returns how many.
WITH old AS MATERIALIZED (
    SELECT o.seq FROM (VALUES ('SENT', $1::float8), ('FAILED', $2::float8)) AS kept(status, kept_s) CROSS JOIN LATERAL (
        SELECT found.seq FROM (
            SELECT f.seq, f.finished_at FROM cortex.outbox f WHERE f.status = kept.status ORDER BY f.seq LIMIT $3
            FOR UPDATE SKIP LOCKED) found
        WHERE found.finished_at < cortex.now() - kept.kept_s * interval '1 second') o
), gone AS (
    DELETE FROM cortex.outbox o USING old WHERE o.seq = old.seq RETURNING o.seq
)
SELECT count(*)::int AS count FROM gone;

-- name: list
-- Messages of these states, the newest first. $1 states, $2 before this seq or null, $3 a subscription or null,
-- $4 a LIKE pattern of topics or null, $5 a message id or null, $6 how many to read of each state, $7 limit, $8 a tenant
-- or null for all.
WITH read AS MATERIALIZED (
    SELECT found.seq FROM unnest($1::text[]) AS wanted(status) CROSS JOIN LATERAL (
        SELECT o.seq FROM cortex.outbox o
        WHERE o.status = wanted.status AND o.seq < coalesce($2::bigint, 9223372036854775807)
        ORDER BY o.seq DESC LIMIT $6) found
    WHERE $5::uuid IS NULL
    UNION ALL
    SELECT o.seq FROM cortex.outbox o WHERE o.id = $5::uuid
)
SELECT o.seq, o.id, o.topic, o.key, o.payload, o.headers, o.tenant, o.trace, o.subscription, o.escalated_from, o.status, o.attempts,
       o.lost_count, o.available_at, o.is_parked, o.locked_until, o.last_error, o.created_at, o.finished_at, p.name AS pod, s.channel,
       cortex.now() AS now
FROM read JOIN cortex.outbox o ON o.seq = read.seq
LEFT JOIN cortex.pod p ON p.id = o.locked_by LEFT JOIN cortex.subscription s ON s.name = o.subscription
WHERE o.status = ANY ($1::text[]) AND ($3::text IS NULL OR o.subscription = $3)
  AND ($4::text IS NULL OR o.topic LIKE $4) AND ($8::text IS NULL OR o.tenant = $8)
ORDER BY o.seq DESC LIMIT $7;

-- name: unsent
-- Messages that failed, the newest first, then those under way or waiting, the oldest first; without their contents.
-- $1 most of each, $2 a tenant or null for all.
(SELECT o.seq, o.id, o.topic, o.key, o.tenant, o.subscription, o.escalated_from, o.status, o.attempts,
        o.lost_count, o.available_at, o.is_parked, o.locked_until, o.last_error, o.created_at, o.finished_at, p.name AS pod, s.channel, cortex.now() AS now
 FROM (SELECT * FROM cortex.outbox WHERE status = 'FAILED' AND ($2::text IS NULL OR tenant = $2)
       ORDER BY seq DESC LIMIT $1) o
 LEFT JOIN cortex.pod p ON p.id = o.locked_by LEFT JOIN cortex.subscription s ON s.name = o.subscription
 ORDER BY o.seq DESC)
UNION ALL
(SELECT o.seq, o.id, o.topic, o.key, o.tenant, o.subscription, o.escalated_from, o.status, o.attempts,
        o.lost_count, o.available_at, o.is_parked, o.locked_until, o.last_error, o.created_at, o.finished_at, p.name AS pod, s.channel, cortex.now() AS now
 FROM (SELECT waiting.* FROM unnest(ARRAY['PROCESSING', 'PENDING']) AS wanted(status) CROSS JOIN LATERAL (
           SELECT * FROM cortex.outbox u WHERE u.status = wanted.status AND ($2::text IS NULL OR u.tenant = $2)
           ORDER BY u.seq LIMIT $1) waiting
       ORDER BY waiting.seq LIMIT $1) o
 LEFT JOIN cortex.pod p ON p.id = o.locked_by LEFT JOIN cortex.subscription s ON s.name = o.subscription
 ORDER BY o.seq);

-- name: ids_by_suffix
-- Messages whose id ends with a suffix, newest first, among the newest 100,000 rows. $1 suffix, lower case, no dashes.
SELECT DISTINCT id FROM (SELECT id FROM cortex.outbox ORDER BY seq DESC LIMIT 100000) recent
WHERE replace(id::text, '-', '') LIKE '%' || $1 LIMIT 10;

-- name: choose
-- Messages of these states, oldest first. $1 states, $2 a subscription or null, $3 a LIKE pattern of topics or null,
-- $4 a message id or null for all; published within $5 seconds and longer than $6 seconds ago, each or null; $7 limit,
-- $8 a tenant or null for all.
-- Locks: the messages (ordered), skipping locked ones.
SELECT o.seq, o.subscription, o.key, o.tenant, o.id, o.topic, o.status FROM cortex.outbox o
WHERE o.status = ANY ($1::text[]) AND ($2::text IS NULL OR o.subscription = $2)
  AND ($3::text IS NULL OR o.topic LIKE $3) AND ($4::uuid IS NULL OR o.id = $4) AND ($8::text IS NULL OR o.tenant = $8)
  AND ($5::float8 IS NULL OR o.created_at >= cortex.now() - $5 * interval '1 second')
  AND ($6::float8 IS NULL OR o.created_at <= cortex.now() - $6 * interval '1 second')
ORDER BY o.seq LIMIT $7 FOR UPDATE SKIP LOCKED;

-- name: count_chosen
-- How many messages of each state `choose` would return now. $1 to $8 as there.
SELECT found.status, count(*)::int AS count
FROM (
    SELECT o.status FROM cortex.outbox o
    WHERE o.status = ANY ($1::text[]) AND ($2::text IS NULL OR o.subscription = $2)
      AND ($3::text IS NULL OR o.topic LIKE $3) AND ($4::uuid IS NULL OR o.id = $4) AND ($8::text IS NULL OR o.tenant = $8)
      AND ($5::float8 IS NULL OR o.created_at >= cortex.now() - $5 * interval '1 second')
      AND ($6::float8 IS NULL OR o.created_at <= cortex.now() - $6 * interval '1 second')
    ORDER BY o.seq LIMIT $7) found
GROUP BY found.status ORDER BY found.status;

-- name: retry
-- Sends failed messages again, and waiting ones now, with all their attempts. $1 seqs, which the caller holds, $2 who,
-- $3 why.
WITH again AS (
    UPDATE cortex.outbox o SET status = 'PENDING', attempts = 0, lost_count = 0, available_at = cortex.now(),
        finished_at = NULL
    WHERE o.seq = ANY ($1::bigint[]) RETURNING o.seq, o.id, o.topic, o.subscription, o.tenant
), hinted AS (
    SELECT pg_notify('cortex_outbox', 'message') FROM (SELECT FROM again LIMIT 1) a
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'message_retried', left('outbox:' || coalesce(subscription, topic), 300), tenant,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'message', id, 'topic', topic)
    FROM again
)
SELECT again.seq FROM again LEFT JOIN hinted ON true;

-- name: discard
-- Deletes messages, recording who and why. $1 seqs, which the caller holds, $2 who, $3 why.
WITH gone AS (
    DELETE FROM cortex.outbox o WHERE o.seq = ANY ($1::bigint[])
    RETURNING o.seq, o.id, o.topic, o.subscription, o.tenant, o.key
), noted AS (
    INSERT INTO cortex.fact (type, subtype, source, tenant, data)
    SELECT 'lifecycle', 'message_discarded', left('outbox:' || coalesce(subscription, topic), 300), tenant,
           jsonb_build_object('by', $2::text, 'reason', $3::text, 'message', id, 'topic', topic)
    FROM gone
)
SELECT seq, subscription, key FROM gone;

-- name: publish
-- Publishes a message of an application. $1 topic, $2 payload, $3 key or null, $4 tenant, $5 headers, $6 trace or null.
SELECT cortex.publish($1, $2::jsonb, $3, $4, $5::jsonb, $6) AS id;
