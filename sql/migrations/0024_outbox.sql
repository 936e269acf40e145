-- The outbox: messages about what happened, for people and other systems. Each is written in the transaction of what it
-- announces, and is sent at least once, under one id.

-- ------------------------------------------------------------------ subscriptions

CREATE TABLE cortex.subscription (
    name text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9._-]*$' AND length(name) <= 100),
    topic text NOT NULL CHECK (topic ~ '^[a-z0-9_*-]+(\.[a-z0-9_*-]+)*$' AND length(topic) <= 100),
    topic_like text GENERATED ALWAYS AS (replace(replace(topic, '_', '\_'), '*', '%')) STORED,
    filter jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(filter) = 'object' AND pg_column_size(filter) <= 8192),
    channel text NOT NULL CHECK (channel IN ('log', 'webhook', 'slack', 'email', 'handler')),
    config jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config) = 'object' AND pg_column_size(config) <= 32768),
    is_heavy boolean NOT NULL DEFAULT false,
    tenant text CHECK (length(tenant) BETWEEN 1 AND 100),
    min_risk text CHECK (min_risk IN ('LOW', 'MED', 'HIGH', 'CRITICAL')),
    fallback text REFERENCES cortex.subscription CHECK (fallback <> name),
    attempts int CHECK (attempts BETWEEN 1 AND 16),
    timeout_s int CHECK (timeout_s BETWEEN 1 AND 300),
    changed_by text NOT NULL CHECK (length(changed_by) BETWEEN 1 AND 200),
    changed_at timestamptz NOT NULL DEFAULT cortex.now(),
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.subscription IS
    'Who gets which messages: a message is written once for each subscription that matches it.';
COMMENT ON COLUMN cortex.subscription.name IS
    'Its name for people. Its circuit breaker is notify:NAME.';
COMMENT ON COLUMN cortex.subscription.topic IS 'Pattern of the topics that it gets; * stands for any characters.';
COMMENT ON COLUMN cortex.subscription.topic_like IS 'The same as a LIKE pattern.';
COMMENT ON COLUMN cortex.subscription.filter IS 'It gets only messages whose payload contains this object.';
COMMENT ON COLUMN cortex.subscription.channel IS
    'How they are sent: to the log, to a webhook, to Slack, by e-mail, or to a handler in the code of pods.';
COMMENT ON COLUMN cortex.subscription.config IS
    'Details of the channel: address, template, and the names of its secrets, never the secrets.';
COMMENT ON COLUMN cortex.subscription.is_heavy IS 'A pod sends at most two of its messages at a time.';
COMMENT ON COLUMN cortex.subscription.tenant IS 'It gets only messages of this tenant; null: of all.';
COMMENT ON COLUMN cortex.subscription.min_risk IS
    'It gets only messages whose payload names a risk, at least this one; null: all.';
COMMENT ON COLUMN cortex.subscription.fallback IS
    'The subscription that gets those of its messages that could not be sent; null: nobody does.';
COMMENT ON COLUMN cortex.subscription.attempts IS
    'How often a message is tried before it fails; null: the default of the channel.';
COMMENT ON COLUMN cortex.subscription.timeout_s IS 'How long one attempt may take; null: the default of the channel.';
COMMENT ON COLUMN cortex.subscription.changed_by IS 'Who changed it last: a person, or the pod whose code has it.';
COMMENT ON COLUMN cortex.subscription.changed_at IS 'When.';
COMMENT ON COLUMN cortex.subscription.created_at IS 'When it was first applied.';

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.subscription TO cortex_runtime;

CREATE TABLE cortex.failing_subscription (
    subscription text PRIMARY KEY,
    since timestamptz NOT NULL,
    failed_at timestamptz NOT NULL,
    failures int NOT NULL CHECK (failures > 0),
    last_error text NOT NULL CHECK (length(last_error) <= 1000)
);
COMMENT ON TABLE cortex.failing_subscription IS
    'Subscriptions whose receiver has taken no message since an attempt failed; a message that is sent deletes the row.';
COMMENT ON COLUMN cortex.failing_subscription.subscription IS
    'Its name. No foreign key: whoever records an outcome must not wait for whoever removes it.';
COMMENT ON COLUMN cortex.failing_subscription.since IS 'When the first of these attempts failed.';
COMMENT ON COLUMN cortex.failing_subscription.failed_at IS 'When the last one failed.';
COMMENT ON COLUMN cortex.failing_subscription.failures IS 'How many failed.';
COMMENT ON COLUMN cortex.failing_subscription.last_error IS 'Why the last one failed.';

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.failing_subscription TO cortex_runtime;

-- ------------------------------------------------------------------ messages

CREATE TABLE cortex.outbox (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    topic text NOT NULL CHECK (topic ~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' AND length(topic) <= 100),
    key text CHECK (length(key) BETWEEN 1 AND 300),
    payload jsonb NOT NULL CHECK (jsonb_typeof(payload) = 'object'),
    headers jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object' AND pg_column_size(headers) <= 8192),
    tenant text NOT NULL CHECK (length(tenant) BETWEEN 1 AND 100),
    trace text CHECK (length(trace) BETWEEN 1 AND 100),
    subscription text,
    escalated_from text,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED')),
    attempts int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    claim int NOT NULL DEFAULT 0 CHECK (claim >= attempts),
    lost_count int NOT NULL DEFAULT 0 CHECK (lost_count >= 0),
    available_at timestamptz NOT NULL DEFAULT cortex.now(),
    is_parked boolean NOT NULL DEFAULT false,
    locked_by uuid,
    locked_until timestamptz,
    last_error text CHECK (length(last_error) <= 1000),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    finished_at timestamptz,
    CONSTRAINT locked_while_processing CHECK (
        (locked_by IS NOT NULL) = (status = 'PROCESSING') AND (locked_until IS NOT NULL) = (status = 'PROCESSING')),
    CONSTRAINT finished_at_only_when_final CHECK ((finished_at IS NOT NULL) = (status IN ('SENT', 'FAILED'))),
    CONSTRAINT parked_only_while_pending CHECK (status = 'PENDING' OR NOT is_parked)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);
COMMENT ON TABLE cortex.outbox IS
    'Messages to send, one row for each subscription that gets one. Sent rows are deleted after a while.';
COMMENT ON COLUMN cortex.outbox.seq IS 'Order of the rows: messages of one key are sent in it.';
COMMENT ON COLUMN cortex.outbox.id IS
    'The message, shared by its rows: receivers discard a second message with the same id.';
COMMENT ON COLUMN cortex.outbox.topic IS 'What it is about: words with dots, such as job.failed.';
COMMENT ON COLUMN cortex.outbox.key IS
    'Messages of one key go to a subscription one after another, in order; null: in no order.';
COMMENT ON COLUMN cortex.outbox.payload IS 'Its content.';
COMMENT ON COLUMN cortex.outbox.headers IS 'Further details of its publisher, for its receivers.';
COMMENT ON COLUMN cortex.outbox.tenant IS 'The tenant that it belongs to.';
COMMENT ON COLUMN cortex.outbox.trace IS 'The traceparent of the job that it is about or that published it; null: of none.';
COMMENT ON COLUMN cortex.outbox.subscription IS
    'The subscription that gets it. Null: nobody had subscribed to its topic when it was published.';
COMMENT ON COLUMN cortex.outbox.escalated_from IS
    'The subscription by which it could not be sent before; null: this one is the first.';
COMMENT ON COLUMN cortex.outbox.status IS
    'PENDING: waits for its time · PROCESSING: a pod is sending it · SENT · FAILED: given up, until a person retries it.';
COMMENT ON COLUMN cortex.outbox.attempts IS
    'How often a pod began to send it, except where it handed it back unsent, died or lost its lease.';
COMMENT ON COLUMN cortex.outbox.claim IS
    'How often a pod claimed it: the fence. It only grows, so that what an earlier claim reports is refused.';
COMMENT ON COLUMN cortex.outbox.lost_count IS 'How many pods died, or lost their lease, while they had it.';
COMMENT ON COLUMN cortex.outbox.available_at IS 'Not before this instant.';
COMMENT ON COLUMN cortex.outbox.is_parked IS 'Waits behind an earlier message of its key; whoever ends that unparks it.';
COMMENT ON COLUMN cortex.outbox.locked_by IS 'The pod that is sending it.';
COMMENT ON COLUMN cortex.outbox.locked_until IS 'When other pods may take it from that pod, unless that renews its lease.';
COMMENT ON COLUMN cortex.outbox.last_error IS 'Why the last attempt failed.';
COMMENT ON COLUMN cortex.outbox.created_at IS 'When it was published.';
COMMENT ON COLUMN cortex.outbox.finished_at IS 'When it was sent or given up.';
-- A claim reads only rows that it takes: those that wait for their time or behind another come after them, or are not in
-- this index.
CREATE INDEX outbox_due ON cortex.outbox (subscription, available_at, seq) WHERE status = 'PENDING' AND NOT is_parked;
CREATE INDEX outbox_line ON cortex.outbox (subscription, key, seq)
    WHERE key IS NOT NULL AND status IN ('PENDING', 'PROCESSING');
CREATE INDEX outbox_leased ON cortex.outbox (locked_until) WHERE status = 'PROCESSING';
CREATE INDEX outbox_status ON cortex.outbox (status, seq);
-- A message once by each subscription, also if several that cannot send it give it to the same fallback at once.
CREATE UNIQUE INDEX outbox_id ON cortex.outbox (id, subscription);

CREATE FUNCTION cortex.waiting_messages(of_subscription text, most int) RETURNS int
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT least(most, count(*))::int FROM (
    (SELECT FROM cortex.outbox o
     WHERE o.subscription = of_subscription AND o.status = 'PENDING' AND NOT o.is_parked LIMIT most)
    UNION ALL
    (SELECT FROM cortex.outbox o
     WHERE o.subscription = of_subscription AND o.key IS NOT NULL AND o.status IN ('PENDING', 'PROCESSING')
       AND o.is_parked LIMIT most)) w $$;
COMMENT ON FUNCTION cortex.waiting_messages IS
    'How many messages of a subscription wait for their time or behind another of their key, counted up to a limit.';

-- Rows are added by functions alone, with the owner's rights: nobody forges a message of the runtime.
GRANT SELECT, DELETE ON cortex.outbox TO cortex_runtime;
GRANT UPDATE (status, attempts, claim, lost_count, available_at, is_parked, locked_by, locked_until, last_error,
              finished_at)
    ON cortex.outbox TO cortex_runtime;

CREATE FUNCTION cortex.is_runtime_topic(topic text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN split_part(topic, '.', 1) IN ('job', 'approval', 'breaker', 'budget', 'dead_letter', 'schedule', 'pod', 'work',
                                         'recovery', 'effect', 'runner', 'auth', 'cortex');
COMMENT ON FUNCTION cortex.is_runtime_topic IS 'Whether only the runtime itself may publish under this topic.';

CREATE FUNCTION cortex.risk_rank(risk text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_position(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL'], risk);
COMMENT ON FUNCTION cortex.risk_rank IS 'The place of a risk, from 1 for the least; null: no risk.';

CREATE FUNCTION cortex.subscribes(s cortex.subscription, of_topic text, of_tenant text, content jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN of_topic LIKE s.topic_like AND content @> s.filter AND (s.tenant IS NULL OR s.tenant = of_tenant)
        AND (s.min_risk IS NULL OR cortex.risk_rank(content->>'risk') >= cortex.risk_rank(s.min_risk));
COMMENT ON FUNCTION cortex.subscribes IS 'Whether a subscription gets messages like this one.';

CREATE FUNCTION cortex.announce_all(topics text[], keys text[], payloads jsonb[], tenants text[], traces text[])
    RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    written int;
BEGIN
    IF EXISTS (SELECT FROM unnest(topics) AS t WHERE t LIKE 'approval.%') THEN
        RAISE EXCEPTION 'a message about a request is published by the request itself'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, tenant, trace, subscription)
    SELECT m.id, m.topic, left(m.key, 300), m.payload, m.tenant, m.trace, s.name
    FROM (SELECT cortex.uuid7() AS id, a.*
          FROM unnest(topics, keys, payloads, tenants, traces)
              WITH ORDINALITY AS a(topic, key, payload, tenant, trace, n)) m
    JOIN cortex.subscription s ON cortex.subscribes(s, m.topic, m.tenant, m.payload)
    ORDER BY m.n, s.name;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written > 0 THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    END IF;
    RETURN written;
END $$;
COMMENT ON FUNCTION cortex.announce_all IS
    'Publishes messages of the runtime, in the caller''s transaction; those that nobody subscribes to are not written. '
    'Returns how many rows were written.';

CREATE FUNCTION cortex.announce(topic text, key text, payload jsonb, tenant text DEFAULT 'default', trace text DEFAULT NULL)
    RETURNS int LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN EXISTS (SELECT FROM cortex.subscription s WHERE $1 LIKE s.topic_like)
            THEN cortex.announce_all(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4], ARRAY[$5]) ELSE 0 END $$;
COMMENT ON FUNCTION cortex.announce IS 'The same for one message.';

CREATE FUNCTION cortex.publish_as(
    message uuid, topic text, payload jsonb, key text, tenant text, headers jsonb, trace text
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    written int;
BEGIN
    IF topic !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' OR length(topic) > 100 THEN
        RAISE EXCEPTION 'topic "%" is not valid', left(topic, 120)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'topic',
                  HINT = 'words of lower-case letters, digits, _ and -, with dots between them, such as order.paid';
    ELSIF cortex.is_runtime_topic(topic) THEN
        RAISE EXCEPTION 'topic "%" is one of the runtime''s own', topic
            USING ERRCODE = 'check_violation', CONSTRAINT = 'topic', HINT = 'begin it with another word';
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, subscription)
    SELECT message, topic, key, payload, headers, tenant, trace, s.name FROM cortex.subscription s
    WHERE cortex.subscribes(s, topic, tenant, payload) ORDER BY s.name;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written > 0 THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    ELSE
        INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, status, finished_at)
        VALUES (message, topic, key, payload, headers, tenant, trace, 'SENT', cortex.now());
    END IF;
    RETURN message;
END $$;
COMMENT ON FUNCTION cortex.publish_as IS 'See publish; with the id of the message.';

CREATE FUNCTION cortex.publish(
    topic text, payload jsonb DEFAULT '{}', key text DEFAULT NULL, tenant text DEFAULT 'default',
    headers jsonb DEFAULT '{}', trace text DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length($2::text) > 262144 THEN
        RAISE EXCEPTION 'payload of % bytes is larger than 262144', octet_length($2::text)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size',
                  HINT = 'keep large data elsewhere and publish its address';
    ELSIF coalesce(jsonb_typeof($2), 'null') <> 'object' THEN
        RAISE EXCEPTION 'payload is of type %, not a JSON object', coalesce(jsonb_typeof($2), 'null')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'such as {"order": 1}';
    ELSIF length($3) NOT BETWEEN 1 AND 300 THEN
        RAISE EXCEPTION 'key of % characters is not within 1 to 300', length($3)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'messages of one key are sent in order';
    END IF;
    RETURN cortex.publish_as(cortex.uuid7(), $1, $2, $3, $4, $5, $6);
END $$;
COMMENT ON FUNCTION cortex.publish IS
    'Publishes a message from any language, in the caller''s transaction; returns its id. Messages of one key are sent '
    'in the order in which they are published, unless their transactions overlap.';

REVOKE EXECUTE ON FUNCTION
    cortex.announce_all(text[], text[], jsonb[], text[], text[]), cortex.announce(text, text, jsonb, text, text),
    cortex.publish_as(uuid, text, jsonb, text, text, jsonb, text),
    cortex.publish(text, jsonb, text, text, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.announce_all(text[], text[], jsonb[], text[], text[]), cortex.announce(text, text, jsonb, text, text),
    cortex.publish(text, jsonb, text, text, jsonb, text) TO cortex_runtime;

-- ------------------------------------------------------------------ what the runtime announces

-- Of jobs, see cortex.job_history_of_update; of dead letters, cortex.dead_letter_of_failure; of budgets, cortex.settle; of
-- schedules, schedules.advance; of runners, runners.record; of recovery, tasks.record_blocked; of what lasts, runners.sql.

CREATE FUNCTION cortex.agent_name(of_agent uuid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT a.name FROM cortex.agent a WHERE a.id = $1 $$;
COMMENT ON FUNCTION cortex.agent_name IS 'The name of an agent by its id.';

CREATE FUNCTION cortex.traceparent_of(job uuid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT cortex.traceparent(j.id, j.traceparent) FROM cortex.job_record j WHERE j.id = $1 $$;
COMMENT ON FUNCTION cortex.traceparent_of IS 'What a job hands on: its trace, and its own span as the parent.';

-- ------------------------------------------------------------------ approvals

CREATE TABLE cortex.approval_notice (
    approval_id uuid REFERENCES cortex.approval ON DELETE CASCADE,
    subscription text,
    PRIMARY KEY (approval_id, subscription)
);
COMMENT ON TABLE cortex.approval_notice IS
    'Who got a request that still waits: the same subscriptions get its reminders, and once how it ended.';
COMMENT ON COLUMN cortex.approval_notice.approval_id IS 'The request.';
COMMENT ON COLUMN cortex.approval_notice.subscription IS 'The subscription.';

GRANT SELECT ON cortex.approval_notice TO cortex_runtime;

CREATE FUNCTION cortex.announce_approval(of_approval cortex.approval, topic text, message uuid, stage text) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    content CONSTANT jsonb := jsonb_strip_nulls(jsonb_build_object(
        'approval', of_approval.id, 'job', of_approval.job_id, 'agent', cortex.agent_name(of_approval.agent_id),
        'tenant', of_approval.tenant, 'tool', of_approval.tool, 'step', of_approval.key, 'call', of_approval.brief,
        'risk', of_approval.risk, 'people', of_approval.people, 'effect', left(of_approval.effect, 300),
        'reversible', of_approval.reversible, 'policy', left(of_approval.policy, 300),
        'requested_by', of_approval.requested_by, 'status', of_approval.status, 'stage', stage,
        'created_at', of_approval.created_at, 'expires_at', of_approval.expires_at,
        'decided_at', of_approval.decided_at, 'decided_by', of_approval.decided_by, 'channel', of_approval.channel,
        'reason', left(of_approval.reason, 500)));
    receivers text[];
BEGIN
    WITH written AS (
        INSERT INTO cortex.outbox (id, topic, key, payload, tenant, trace, subscription)
        SELECT message, $2, of_approval.id::text, content, of_approval.tenant,
               cortex.traceparent_of(of_approval.job_id), s.name
        FROM cortex.subscription s
        WHERE (cortex.subscribes(s, $2, of_approval.tenant, content)
               OR EXISTS (SELECT FROM cortex.approval_notice n
                          WHERE n.approval_id = of_approval.id AND n.subscription = s.name))
          -- A repeated reminder by the same job is the same message.
          AND NOT EXISTS (SELECT FROM cortex.outbox o WHERE o.id = message AND o.subscription = s.name)
        ORDER BY s.name RETURNING subscription
    ), noticed AS (
        INSERT INTO cortex.approval_notice (approval_id, subscription)
        SELECT of_approval.id, subscription FROM written WHERE of_approval.status = 'PENDING' ON CONFLICT DO NOTHING
    )
    SELECT array_agg(subscription) INTO receivers FROM written;
    IF of_approval.status <> 'PENDING' THEN
        DELETE FROM cortex.approval_notice WHERE approval_id = of_approval.id;
    END IF;
    IF receivers IS NOT NULL THEN
        PERFORM pg_notify('cortex_outbox', 'message');
    END IF;
    RETURN coalesce(receivers, '{}');
END $$;
COMMENT ON FUNCTION cortex.announce_approval IS
    'Publishes a message about a request, in the caller''s transaction, to whoever subscribes to the topic or got the '
    'request. Returns the subscriptions that get it.';

CREATE FUNCTION cortex.approval_announces() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM cortex.subscription) THEN
        PERFORM cortex.announce_approval(
            NEW, CASE NEW.status WHEN 'PENDING' THEN 'approval.requested' WHEN 'EXPIRED' THEN 'approval.expired'
                                 ELSE 'approval.decided' END, cortex.uuid7(), NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER approval_requested AFTER INSERT ON cortex.approval
    FOR EACH ROW EXECUTE FUNCTION cortex.approval_announces();
CREATE TRIGGER approval_decided AFTER UPDATE OF status ON cortex.approval
    FOR EACH ROW WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION cortex.approval_announces();

CREATE FUNCTION cortex.remind_approvals(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held cortex.approval;
    second timestamptz;
    is_second boolean;
    passed int := 0;
BEGIN
    IF NOT cortex.take_turn('remind_approvals') THEN
        RETURN NULL;
    END IF;
    FOR held IN
        SELECT a.* FROM cortex.approval a WHERE a.status = 'PENDING' AND a.remind_at <= cortex.now()
        ORDER BY a.remind_at LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        second := held.created_at + 0.9 * (held.expires_at - held.created_at);
        is_second := held.remind_at >= second OR cortex.now() >= second;
        -- With the message: no process can remind of the same stage again, and none after the decision.
        UPDATE cortex.approval a SET remind_at = CASE WHEN NOT is_second THEN second END WHERE a.id = held.id;
        passed := passed + 1;
        IF held.expires_at > cortex.now() THEN
            PERFORM cortex.announce_approval(
                held, 'approval.reminder', cortex.uuid7(), CASE WHEN is_second THEN '90 %' ELSE '50 %' END);
        END IF;
    END LOOP;
    RETURN passed;
END $$;
COMMENT ON FUNCTION cortex.remind_approvals IS
    'Reminds of up to this many requests that have waited for half, or for nine tenths, of their time. Returns how many; '
    'null while another process does this.';

CREATE FUNCTION cortex.remind_approval(of_approval uuid, message uuid) RETURNS TABLE (status text, receivers text[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held cortex.approval;
BEGIN
    SELECT a.* INTO held FROM cortex.approval a WHERE a.id = of_approval FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    ELSIF held.status = 'PENDING' AND held.expires_at > cortex.now() THEN
        PERFORM cortex.announce_approval(held, 'approval.reminder', message, 'requested');
    END IF;
    RETURN QUERY SELECT CASE WHEN held.status = 'PENDING' AND held.expires_at <= cortex.now() THEN 'EXPIRED'
                             ELSE held.status END,
                        ARRAY(SELECT o.subscription FROM cortex.outbox o WHERE o.id = message ORDER BY o.subscription);
END $$;
COMMENT ON FUNCTION cortex.remind_approval IS
    'Reminds of one request, if it still waits, by a message of this id; the same id reminds once. Returns its state '
    'and the subscriptions that got the message; no row if there is no such request.';

-- ------------------------------------------------------------------ the next channel

CREATE FUNCTION cortex.message_escalates() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    next_one text;
BEGIN
    SELECT s.fallback INTO next_one FROM cortex.subscription s
    WHERE s.name = NEW.subscription AND s.fallback IS NOT NULL
      -- Subscribed itself, or the head of the chain: it has this message.
      AND NOT EXISTS (SELECT FROM cortex.outbox o WHERE o.id = NEW.id AND o.subscription = s.fallback);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.topic IN ('approval.requested', 'approval.reminder') THEN
        -- Decided meanwhile: nobody is needed any more. Whoever decides concurrently waits, and sees this receiver.
        PERFORM FROM cortex.approval a
        WHERE a.id = (NEW.payload->>'approval')::uuid AND a.status = 'PENDING' FOR SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        INSERT INTO cortex.approval_notice (approval_id, subscription)
        VALUES ((NEW.payload->>'approval')::uuid, next_one) ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO cortex.outbox (id, topic, key, payload, headers, tenant, trace, subscription, escalated_from)
    VALUES (NEW.id, NEW.topic, NEW.key, NEW.payload, NEW.headers, NEW.tenant, NEW.trace, next_one, NEW.subscription)
    ON CONFLICT DO NOTHING;
    PERFORM pg_notify('cortex_outbox', 'message');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION cortex.message_escalates IS
    'Gives a message that could not be sent to the fallback of its subscription, in the transaction that gives it up.';
CREATE TRIGGER message_escalates AFTER UPDATE OF status ON cortex.outbox
    FOR EACH ROW WHEN (NEW.status = 'FAILED' AND OLD.status <> 'FAILED') EXECUTE FUNCTION cortex.message_escalates();

-- ------------------------------------------------------------------ breakers, pods, effects

CREATE FUNCTION cortex.breaker_announces() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    content CONSTANT jsonb := jsonb_strip_nulls(jsonb_build_object(
        'breaker', NEW.name, 'state', NEW.state, 'failures', greatest(NEW.failures, OLD.failures),
        'opened_at', coalesce(NEW.opened_at, OLD.opened_at), 'open_until', NEW.open_until, 'by', NEW.forced_by,
        'reason', left(NEW.forced_reason, 500), 'error', left(coalesce(NEW.last_error, OLD.last_error), 500),
        'tenant', 'default'));
BEGIN
    IF OLD.state = 'CLOSED' AND NEW.state <> 'CLOSED' THEN
        PERFORM cortex.announce('breaker.opened', NEW.name, content);
    ELSIF OLD.state <> 'CLOSED' AND NEW.state = 'CLOSED' THEN
        PERFORM cortex.announce('breaker.closed', NEW.name, content);
    END IF;
    IF OLD.escalated_at IS NULL AND NEW.escalated_at IS NOT NULL THEN
        PERFORM cortex.announce('breaker.escalated', NEW.name, content);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER breaker_announces AFTER UPDATE ON cortex.breaker
    FOR EACH ROW WHEN ((OLD.state = 'CLOSED') <> (NEW.state = 'CLOSED')
                       OR OLD.escalated_at IS NULL AND NEW.escalated_at IS NOT NULL)
    EXECUTE FUNCTION cortex.breaker_announces();

CREATE FUNCTION cortex.pod_died() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM cortex.announce('pod.died', NEW.id::text, jsonb_strip_nulls(jsonb_build_object(
        'pod', NEW.id, 'name', NEW.name, 'version', NEW.version, 'heartbeat_at', NEW.heartbeat_at, 'phase', NEW.phase,
        'tenant', 'default')));
    RETURN NULL;
END $$;
CREATE TRIGGER pod_died AFTER UPDATE OF state ON cortex.pod
    FOR EACH ROW WHEN (NEW.state = 'DEAD' AND OLD.state <> 'DEAD') EXECUTE FUNCTION cortex.pod_died();

CREATE FUNCTION cortex.effect_is_unknown() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM cortex.announce('effect.unknown', NEW.job_id::text, jsonb_strip_nulls(jsonb_build_object(
        'effect', NEW.id, 'job', NEW.job_id, 'agent', cortex.agent_name(NEW.agent_id), 'tenant', NEW.tenant,
        'tool', NEW.tool, 'step', NEW.key, 'why', left(NEW.why, 500))), NEW.tenant, cortex.traceparent_of(NEW.job_id));
    RETURN NULL;
END $$;
CREATE TRIGGER effect_is_unknown AFTER UPDATE OF status ON cortex.effect
    FOR EACH ROW WHEN (NEW.status = 'UNKNOWN' AND OLD.status <> 'UNKNOWN') EXECUTE FUNCTION cortex.effect_is_unknown();

CREATE FUNCTION cortex.credentials_refused() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Once until they work again: the runner alarms notices that.
    INSERT INTO cortex.alarm (topic, key, announced_at) VALUES ('auth.failed', NEW.source, cortex.now())
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM cortex.announce('auth.failed', NEW.source, jsonb_strip_nulls(jsonb_build_object(
            'source', NEW.source, 'code', NEW.subtype, 'job', NEW.job_id, 'agent', cortex.agent_name(NEW.agent_id),
            'tenant', NEW.tenant, 'error', left(NEW.data->>'message', 500))), NEW.tenant,
            cortex.traceparent_of(NEW.job_id));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER credentials_refused AFTER INSERT ON cortex.fact
    FOR EACH ROW WHEN (NEW.type = 'error' AND NEW.subtype IN ('authentication', 'permission')
                       AND (NEW.source LIKE 'llm:%' OR NEW.source LIKE 'notify:%'))
    EXECUTE FUNCTION cortex.credentials_refused();

-- ------------------------------------------------------------------ what jobs publish

CREATE FUNCTION cortex.step_publishes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- What it may refuse was checked before the step: here it would refuse the steps of other jobs, too.
    PERFORM cortex.publish_as(
        cortex.uuid7(), NEW.output->>'topic', (NEW.output->'payload')::jsonb, NEW.output->>'key', j.tenant, '{}',
        cortex.traceparent(j.id, j.traceparent))
    FROM cortex.job_record j WHERE j.id = NEW.job_id;
    RETURN NULL;
END $$;
-- Attempt 0: the job continues another one, which has published it.
CREATE TRIGGER step_publishes AFTER INSERT ON cortex.job_step
    FOR EACH ROW WHEN (NEW.kind = 'message' AND NEW.attempt > 0) EXECUTE FUNCTION cortex.step_publishes();

REVOKE EXECUTE ON FUNCTION
    cortex.announce_approval(cortex.approval, text, uuid, text), cortex.remind_approvals(int),
    cortex.remind_approval(uuid, uuid), cortex.message_escalates(),
    cortex.approval_announces(), cortex.breaker_announces(), cortex.pod_died(), cortex.effect_is_unknown(),
    cortex.credentials_refused(), cortex.step_publishes() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.remind_approvals(int), cortex.remind_approval(uuid, uuid) TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.subscription, cortex.failing_subscription, cortex.outbox, cortex.approval_notice
            TO cortex_reader;
    END IF;
END $$;
