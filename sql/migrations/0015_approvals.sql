-- Approvals: requests for a decision before something dangerous runs, the votes, and the one decision of each.

CREATE TABLE cortex.approval (
    id uuid PRIMARY KEY,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    job_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    attempt int NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
    tool text CHECK (length(tool) BETWEEN 1 AND 200),
    tenant text NOT NULL,
    agent_id uuid,
    agent_version int,
    requested_by text,
    asked json NOT NULL,
    asked_digest bytea NOT NULL CHECK (asked_digest = sha256(convert_to(asked::text, 'UTF8'))),
    arguments json NOT NULL,
    digest bytea NOT NULL CHECK (digest = sha256(convert_to(arguments::text, 'UTF8'))),
    schema jsonb,
    version int NOT NULL DEFAULT 1 CHECK (version >= 1),
    risk text NOT NULL CHECK (risk IN ('LOW', 'MED', 'HIGH', 'CRITICAL')),
    effect text CHECK (length(effect) <= 1000),
    reversible boolean,
    policy text CHECK (length(policy) <= 1000),
    said text CHECK (length(said) <= 4000),
    people int NOT NULL CHECK (people BETWEEN 1 AND 10),
    on_deny text NOT NULL CHECK (on_deny IN ('tell', 'fail')),
    on_expiry text NOT NULL CHECK (on_expiry IN ('tell', 'fail')),
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'APPROVED', 'DENIED', 'EXPIRED', 'CANCELLED')),
    token_digest bytea UNIQUE CHECK (octet_length(token_digest) = 32),
    token_by text,
    spent_digest bytea,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    expires_at timestamptz NOT NULL,
    edited_by text,
    decided_at timestamptz,
    decided_by text CHECK (length(decided_by) BETWEEN 1 AND 200),
    decided_person uuid,
    channel text CHECK (length(channel) <= 50),
    address text CHECK (length(address) <= 200),
    client text CHECK (length(client) <= 500),
    reason text CHECK (length(reason) <= 1000),
    requested_with text,
    decided_with text,
    brief text CHECK (length(brief) BETWEEN 1 AND 500),
    remind_at timestamptz,
    CONSTRAINT critical_needs_two CHECK (risk <> 'CRITICAL' OR people >= 2),
    CONSTRAINT decided_at_unless_pending CHECK ((decided_at IS NULL) = (status = 'PENDING')),
    CONSTRAINT decided_by_people CHECK ((decided_by IS NOT NULL) = (status IN ('APPROVED', 'DENIED'))),
    CONSTRAINT token_only_while_pending CHECK (token_digest IS NULL OR status = 'PENDING')
) WITH (fillfactor = 80, autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.approval IS
    'Requests for a person''s decision; each is decided once. While a request waits, its job holds nothing.';
COMMENT ON COLUMN cortex.approval.id IS 'UUIDv7 made by the requesting pod.';
COMMENT ON COLUMN cortex.approval.seq IS 'Order of the requests, also when the clock went back.';
COMMENT ON COLUMN cortex.approval.job_id IS 'The job that waits, the last one of its lineage.';
COMMENT ON COLUMN cortex.approval.lineage_id IS 'First job of that lineage.';
COMMENT ON COLUMN cortex.approval.attempt IS 'The attempt that requested it.';
COMMENT ON COLUMN cortex.approval.key IS 'The step that waits for it.';
COMMENT ON COLUMN cortex.approval.tool IS 'The tool that will be called; null for a gate in the job''s own code.';
COMMENT ON COLUMN cortex.approval.tenant IS 'The job''s tenant.';
COMMENT ON COLUMN cortex.approval.agent_id IS 'The job''s agent.';
COMMENT ON COLUMN cortex.approval.agent_version IS 'That agent''s version.';
COMMENT ON COLUMN cortex.approval.requested_by IS 'Who submitted the job: not allowed to decide a critical request.';
COMMENT ON COLUMN cortex.approval.asked IS 'The arguments that the job requested, canonical JSON.';
COMMENT ON COLUMN cortex.approval.asked_digest IS 'SHA-256 of those.';
COMMENT ON COLUMN cortex.approval.arguments IS 'The arguments that will run: as requested, or as a person edited them.';
COMMENT ON COLUMN cortex.approval.digest IS 'SHA-256 of those: the only arguments that the decision admits.';
COMMENT ON COLUMN cortex.approval.schema IS 'JSON schema that edited arguments must fit; null: they cannot be edited.';
COMMENT ON COLUMN cortex.approval.version IS 'Raised by each edit: a decision names the version that the person saw.';
COMMENT ON COLUMN cortex.approval.risk IS 'LOW, MED, HIGH or CRITICAL.';
COMMENT ON COLUMN cortex.approval.effect IS 'The outside effect, in words.';
COMMENT ON COLUMN cortex.approval.reversible IS 'Whether it can be undone; null: not declared.';
COMMENT ON COLUMN cortex.approval.policy IS 'The policy that requires the approval, in words.';
COMMENT ON COLUMN cortex.approval.said IS 'The model''s text when it requested the call; decides nothing.';
COMMENT ON COLUMN cortex.approval.people IS 'How many different people must agree.';
COMMENT ON COLUMN cortex.approval.on_deny IS 'tell: the job continues and gets the decision · fail: it fails.';
COMMENT ON COLUMN cortex.approval.on_expiry IS 'The same, for an expiry.';
COMMENT ON COLUMN cortex.approval.status IS
    'PENDING · APPROVED · DENIED · EXPIRED: not decided in time · CANCELLED: its job ended, or requests something '
    'else.';
COMMENT ON COLUMN cortex.approval.token_digest IS 'SHA-256 of the token of its link, which was shown once; gone with the decision.';
COMMENT ON COLUMN cortex.approval.token_by IS 'Who made that link.';
COMMENT ON COLUMN cortex.approval.spent_digest IS
    'SHA-256 of the token of its last link, once decided: for a week the link still shows the outcome.';
COMMENT ON COLUMN cortex.approval.created_at IS 'When it was requested.';
COMMENT ON COLUMN cortex.approval.expires_at IS 'From then on it cannot be decided.';
COMMENT ON COLUMN cortex.approval.edited_by IS 'Who edited the arguments last.';
COMMENT ON COLUMN cortex.approval.decided_at IS 'When it was decided, expired or cancelled.';
COMMENT ON COLUMN cortex.approval.decided_by IS 'Who decided; of several people the last one, see approval_vote.';
COMMENT ON COLUMN cortex.approval.decided_person IS 'That person; null without sign-in.';
COMMENT ON COLUMN cortex.approval.channel IS 'cli, api, page, link (without sign-in), tui or mcp.';
COMMENT ON COLUMN cortex.approval.address IS 'Network address of the person who decided, if known.';
COMMENT ON COLUMN cortex.approval.client IS 'That person''s program, by its own account.';
COMMENT ON COLUMN cortex.approval.reason IS 'Why it was decided so.';
COMMENT ON COLUMN cortex.approval.requested_with IS
    'The credential that submitted the job: it cannot decide a critical request.';
COMMENT ON COLUMN cortex.approval.decided_with IS 'The credential of decided_by; null without sign-in.';
COMMENT ON COLUMN cortex.approval.brief IS
    'The call on one line, for messages: never all of its arguments. Null after an edit.';
COMMENT ON COLUMN cortex.approval.remind_at IS
    'When people are reminded next: after half of its time, then after nine tenths; null: no more.';
-- No index by time alone: the planner would prefer it, and read all of it for a rare risk or state.
CREATE INDEX approval_pending ON cortex.approval (risk, expires_at, id) WHERE status = 'PENDING';
CREATE INDEX approval_status ON cortex.approval (status, created_at DESC, id DESC);
-- Jobs of the tenant that all have who name none pay nothing for it.
CREATE INDEX approval_tenant ON cortex.approval (tenant, status, created_at DESC, id DESC) WHERE tenant <> 'default';
CREATE INDEX approval_remind ON cortex.approval (remind_at) WHERE status = 'PENDING' AND remind_at IS NOT NULL;
CREATE INDEX approval_decided ON cortex.approval (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX approval_job ON cortex.approval (job_id);
CREATE INDEX approval_line ON cortex.approval (lineage_id, key, seq DESC);

CREATE TABLE cortex.approval_vote (
    approval_id uuid NOT NULL,
    person text NOT NULL CHECK (length(person) BETWEEN 1 AND 200),
    person_id uuid,
    digest bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    channel text NOT NULL,
    address text,
    client text,
    reason text,
    old json,
    credential text NOT NULL DEFAULT '',
    PRIMARY KEY (approval_id, digest, credential)
);
COMMENT ON TABLE cortex.approval_vote IS 'Who agreed to what; append-only. Only votes for the current arguments count.';
COMMENT ON COLUMN cortex.approval_vote.approval_id IS 'The request.';
COMMENT ON COLUMN cortex.approval_vote.person IS 'Their name, with the label beside it.';
COMMENT ON COLUMN cortex.approval_vote.person_id IS 'Who: people are counted, not names or credentials. Null without sign-in.';
COMMENT ON COLUMN cortex.approval_vote.digest IS 'SHA-256 of the arguments that were agreed to.';
COMMENT ON COLUMN cortex.approval_vote.at IS 'When.';
COMMENT ON COLUMN cortex.approval_vote.channel IS 'cli, api, page, link (without sign-in), tui or mcp.';
COMMENT ON COLUMN cortex.approval_vote.address IS 'Network address.';
COMMENT ON COLUMN cortex.approval_vote.client IS 'Program.';
COMMENT ON COLUMN cortex.approval_vote.reason IS 'Why.';
COMMENT ON COLUMN cortex.approval_vote.old IS 'The arguments before, if this person edited them.';
COMMENT ON COLUMN cortex.approval_vote.credential IS
    'The credential of the vote: os:UID, token:ID or db:LOGIN; empty without sign-in.';
CREATE INDEX approval_vote_at ON cortex.approval_vote (at);
CREATE TRIGGER approval_vote_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.approval_vote
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

-- Not the digests of links, and no writes: pods request, remind of and close requests by functions; only people decide.
GRANT SELECT (
    id, seq, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, asked, asked_digest,
    arguments, digest, schema, version, risk, effect, reversible, policy, said, people, on_deny, on_expiry, status,
    token_by, created_at, expires_at, edited_by, decided_at, decided_by, decided_person, channel, address, client, reason,
    requested_with, decided_with, brief, remind_at) ON cortex.approval TO cortex_runtime;
GRANT SELECT ON cortex.approval_vote TO cortex_runtime;

CREATE FUNCTION cortex.approval_is_final() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.job_id, NEW.lineage_id, NEW.key, NEW.risk, NEW.people, NEW.asked_digest, NEW.asked::text)
       IS DISTINCT FROM
       (OLD.id, OLD.job_id, OLD.lineage_id, OLD.key, OLD.risk, OLD.people, OLD.asked_digest, OLD.asked::text)
       OR NEW.tool IS DISTINCT FROM OLD.tool THEN
        RAISE EXCEPTION 'what approval % asks for is immutable', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status <> 'PENDING' THEN
        RAISE EXCEPTION 'approval % is % already', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status <> 'PENDING' THEN
        NEW.spent_digest := OLD.token_digest;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approval_is_final BEFORE UPDATE ON cortex.approval
    FOR EACH ROW EXECUTE FUNCTION cortex.approval_is_final();

-- ------------------------------------------------------------------ who is responsible for a job

CREATE FUNCTION cortex.involved(of_lineage uuid) RETURNS TABLE (credential text, name text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH line AS MATERIALIZED (
        SELECT j.id, j.type, j.payload, j.submitted_with, j.submitted_by FROM cortex.job_record j WHERE j.id = of_lineage
        UNION ALL
        SELECT j.id, j.type, j.payload, j.submitted_with, j.submitted_by FROM cortex.job_record j
        WHERE j.lineage_id = of_lineage
    )
    SELECT l.submitted_with, l.submitted_by FROM line l
    UNION
    SELECT f.data->>'credential', f.data->>'by' FROM line l JOIN cortex.fact f ON f.job_id = l.id
    WHERE f.type = 'lifecycle'
      AND f.subtype IN ('dead_letter_retried', 'decision_retried', 'retried_now', 'schedule_triggered')
    UNION
    SELECT v.applied_with, v.applied_by FROM line l
    JOIN cortex.flow_version v ON v.name = l.payload->>'flow' AND to_jsonb(v.version) = l.payload->'version'
    WHERE l.type = 'run_flow';
END $$;
COMMENT ON FUNCTION cortex.involved IS
    'Everybody who is responsible for the jobs of a lineage, by credential and name: who submitted one, applied or '
    'triggered its schedule, applied its flow, retried it or edited its payload. They do not agree to its critical calls.';

-- ------------------------------------------------------------------ requests

CREATE FUNCTION cortex.request_approvals(of_job uuid, in_attempt int, requests jsonb) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requested int;
BEGIN
    -- The same step now requests something else: the earlier request will not run and must not be decided.
    UPDATE cortex.approval a
    SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL,
        reason = 'its job asks for something else now'
    FROM jsonb_to_recordset(requests) AS r(key text)
    WHERE a.job_id = of_job AND a.key = r.key AND a.status = 'PENDING';
    INSERT INTO cortex.approval (
        id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, requested_with,
        asked, asked_digest, arguments, digest, schema, risk, effect, reversible, policy, said, people, on_deny, on_expiry,
        expires_at, brief, remind_at)
    SELECT r.id, j.id, coalesce(j.lineage_id, j.id), j.attempt, r.key, r.tool, j.tenant, j.agent_id, j.agent_version,
           j.submitted_by, j.submitted_with, r.arguments::json, r.digest, r.arguments::json, r.digest, r.schema, r.risk,
           r.effect, r.reversible, r.policy, r.said, r.people, r.on_deny, r.on_expiry,
           cortex.now() + r.expires_s * interval '1 second', r.brief, cortex.now() + r.expires_s / 2 * interval '1 second'
    FROM cortex.job_record j CROSS JOIN LATERAL jsonb_to_recordset(requests) AS r(
        id uuid, key text, tool text, arguments text, digest bytea, schema jsonb, risk text, effect text,
        reversible boolean, policy text, said text, people int, on_deny text, on_expiry text, expires_s float8,
        brief text)
    WHERE j.id = of_job AND j.attempt = in_attempt AND j.finished_at IS NULL;
    GET DIAGNOSTICS requested = ROW_COUNT;
    RETURN requested;
END $$;
COMMENT ON FUNCTION cortex.request_approvals IS
    'Requests people''s decisions for the steps of an attempt, and cancels earlier requests of these steps. The job''s '
    'row, which the caller holds, says whose job it is.';
REVOKE EXECUTE ON FUNCTION cortex.request_approvals(uuid, int, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.request_approvals(uuid, int, jsonb) TO cortex_runtime;

-- ------------------------------------------------------------------ deciding

CREATE FUNCTION cortex.same_person(name text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN lower(btrim(regexp_replace(regexp_replace(normalize(name, NFKC), '\(.*\)', ''), '\s+', ' ', 'g')));
COMMENT ON FUNCTION cortex.same_person IS
    'The common form of one person''s names as they are recorded: ignores labels, case, blanks and variants of letters.';

CREATE FUNCTION cortex.expire_approvals(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due record;
    its_task bigint;
    held cortex.approval;
    expired int := 0;
BEGIN
    -- One process at a time, so that two pods do not wait for each other's jobs.
    IF NOT cortex.take_turn('expire_approvals') THEN
        RETURN NULL;
    END IF;
    FOR due IN
        SELECT a.id, a.job_id FROM (
            SELECT found.* FROM unnest(ARRAY['LOW', 'MED', 'HIGH', 'CRITICAL']) AS level(risk) CROSS JOIN LATERAL (
                SELECT id, job_id, expires_at FROM cortex.approval
                WHERE status = 'PENDING' AND risk = level.risk AND expires_at <= cortex.now()
                ORDER BY expires_at, id LIMIT most) found
            ORDER BY found.expires_at LIMIT most) a
        ORDER BY a.job_id, a.id
    LOOP
        -- Rows locked by others are left for the next time: one job must not delay all others. A task that could not be
        -- locked, or that was created meanwhile, is not the one that the job names.
        SELECT t.id INTO its_task FROM cortex_worker.task t WHERE t.job_id = due.job_id FOR UPDATE SKIP LOCKED;
        PERFORM FROM cortex.job_record j
        WHERE j.id = due.job_id AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        UPDATE cortex.approval a SET status = 'EXPIRED', decided_at = cortex.now(), token_digest = NULL
        WHERE a.id = due.id AND a.job_id = due.job_id AND a.status = 'PENDING'
        RETURNING a.* INTO held;
        CONTINUE WHEN NOT FOUND;
        expired := expired + 1;
        INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
        VALUES ('lifecycle', 'approval_expired', 'approval:' || held.id, held.tenant, held.job_id, held.attempt,
                held.key, held.agent_id, held.agent_version,
                jsonb_build_object('risk', held.risk, 'tool', held.tool, 'expires_at', held.expires_at));
        IF held.on_expiry = 'fail' THEN
            UPDATE cortex.job_record j
            SET status = 'FAILED', waiting_on = NULL, error_code = 'approval_expired',
                error_class = 'PERMANENT', error_message = format(
                    'nobody decided on %s until %s; nothing was executed', coalesce(held.tool, held.key),
                    to_char(held.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END LOOP;
    RETURN expired;
END $$;
COMMENT ON FUNCTION cortex.expire_approvals IS
    'Closes up to this many requests that were not decided in time, with the consequence that each declares. Returns '
    'how many; null while another process does this.';

REVOKE EXECUTE ON FUNCTION cortex.expire_approvals(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.expire_approvals(int) TO cortex_runtime;

-- ------------------------------------------------------------------ links

CREATE FUNCTION cortex.has_link(of_approval uuid) RETURNS boolean
    -- A read-only role may see that there is a link, but not the digest of its token.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT a.token_digest IS NOT NULL FROM cortex.approval a WHERE a.id = of_approval $$;
COMMENT ON FUNCTION cortex.has_link IS 'Whether a link permits deciding this request.';

REVOKE EXECUTE ON FUNCTION cortex.has_link(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.has_link(uuid) TO cortex_runtime;

CREATE FUNCTION cortex.is_link(of_approval uuid, of_digest bytea) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (
    SELECT FROM cortex.approval a WHERE a.id = of_approval AND of_digest = CASE
        WHEN a.status = 'PENDING' THEN a.token_digest
        WHEN a.decided_at > cortex.now() - interval '7 days' THEN a.spent_digest END) $$;
COMMENT ON FUNCTION cortex.is_link IS
    'Whether a digest is that of the token of a request''s link; of a decided request, for a week.';
REVOKE EXECUTE ON FUNCTION cortex.is_link(uuid, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.is_link(uuid, bytea) TO cortex_runtime;
