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
COMMENT ON COLUMN cortex.approval.channel IS 'cli, api, page, link (without sign-in) or tui.';
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
    digest bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    channel text NOT NULL,
    address text,
    client text,
    reason text,
    old json,
    credential text NOT NULL DEFAULT '',
    PRIMARY KEY (approval_id, person, digest, credential)
);
COMMENT ON TABLE cortex.approval_vote IS 'Who agreed to what; append-only. Only votes for the current arguments count.';
COMMENT ON COLUMN cortex.approval_vote.approval_id IS 'The request.';
COMMENT ON COLUMN cortex.approval_vote.person IS 'Who.';
COMMENT ON COLUMN cortex.approval_vote.digest IS 'SHA-256 of the arguments that were agreed to.';
COMMENT ON COLUMN cortex.approval_vote.at IS 'When.';
COMMENT ON COLUMN cortex.approval_vote.channel IS 'cli, api, page, link (without sign-in) or tui.';
COMMENT ON COLUMN cortex.approval_vote.address IS 'Network address.';
COMMENT ON COLUMN cortex.approval_vote.client IS 'Program.';
COMMENT ON COLUMN cortex.approval_vote.reason IS 'Why.';
COMMENT ON COLUMN cortex.approval_vote.old IS 'The arguments before, if this person edited them.';
COMMENT ON COLUMN cortex.approval_vote.credential IS
    'The credential of the vote: os:UID@HOST, token:ID or db:LOGIN; empty without sign-in, and for votes older than '
    'credentials.';
CREATE INDEX approval_vote_at ON cortex.approval_vote (at);
CREATE TRIGGER approval_vote_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.approval_vote
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

GRANT SELECT, INSERT, UPDATE ON cortex.approval TO cortex_runtime;
GRANT SELECT, INSERT ON cortex.approval_vote TO cortex_runtime;

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

-- ------------------------------------------------------------------ deciding

CREATE FUNCTION cortex.same_person(name text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN lower(btrim(regexp_replace(normalize(name, NFKC), '\s+', ' ', 'g')));
COMMENT ON FUNCTION cortex.same_person IS
    'The common form of one person''s names: ignores case, blanks and variants of letters.';

CREATE FUNCTION cortex.agreed(of_approval uuid, to_digest bytea) RETURNS int
    LANGUAGE sql STABLE
    RETURN (SELECT count(DISTINCT CASE v.credential WHEN '' THEN 'name:' || cortex.same_person(v.person)
                                                    ELSE v.credential END)::int
            FROM cortex.approval_vote v WHERE v.approval_id = of_approval AND v.digest = to_digest);
COMMENT ON FUNCTION cortex.agreed IS 'How many different credentials agreed to these arguments.';

CREATE FUNCTION cortex.has_agreed(of_approval uuid, to_digest bytea, by_person text, with_credential text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (
        SELECT FROM cortex.approval_vote v WHERE v.approval_id = of_approval AND v.digest = to_digest
          AND (v.credential = with_credential OR cortex.same_person(v.person) = cortex.same_person(by_person)));
COMMENT ON FUNCTION cortex.has_agreed IS 'Whether this person, by credential or by name, agreed to these arguments.';

CREATE FUNCTION cortex.is_own_request(
    risk text, requested_by text, requested_with text, person text, with_credential text
) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(risk = 'CRITICAL' AND (
        with_credential = requested_with OR cortex.same_person(person) = cortex.same_person(requested_by)), false);
COMMENT ON FUNCTION cortex.is_own_request IS 'Whether a request is critical and this person submitted its job: they do not decide it.';

CREATE FUNCTION cortex.decide(
    of_approval uuid, is_approved boolean, person text, seen bytea, why text, by_channel text, by_address text,
    by_client text, edited json, with_credential text
) RETURNS TABLE (outcome text, votes int)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner uuid;
    its_task bigint;
    held cortex.approval;
    agreed int;
    stands json;
    stands_digest bytea;
BEGIN
    SELECT a.job_id INTO owner FROM cortex.approval a WHERE a.id = of_approval;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', 0;
        RETURN;
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
        WHEN held.status <> 'PENDING' THEN 'already'
        WHEN held.expires_at <= cortex.now() THEN 'expired'
        WHEN seen <> held.digest THEN 'changed'
        WHEN NOT is_approved THEN NULL
        WHEN held.people > 1 AND with_credential IS NULL THEN 'no_credential'
        WHEN cortex.is_own_request(held.risk, held.requested_by, held.requested_with, person, with_credential)
            THEN 'own_request'
        WHEN stands_digest <> held.digest AND held.schema IS NULL THEN 'not_editable'
        WHEN stands_digest = held.digest AND cortex.has_agreed(of_approval, held.digest, person, with_credential)
            THEN 'agreed_before'
        END;
    IF outcome IS NOT NULL THEN
        RETURN QUERY SELECT outcome, agreed;
        RETURN;
    END IF;

    IF NOT is_approved THEN
        UPDATE cortex.approval a
        SET status = 'DENIED', decided_at = cortex.now(), decided_by = person, reason = why, channel = by_channel,
            address = by_address, client = by_client, token_digest = NULL, decided_with = with_credential
        WHERE a.id = of_approval;
        outcome := 'denied';
    ELSE
        INSERT INTO cortex.approval_vote (approval_id, person, digest, credential, channel, address, client, reason, old)
        SELECT of_approval, person, stands_digest, coalesce(with_credential, ''), by_channel, by_address, by_client, why,
               CASE WHEN stands_digest <> held.digest THEN held.arguments END
        -- Edited back to what this person agreed to before, it is no second vote.
        WHERE NOT cortex.has_agreed(of_approval, stands_digest, person, with_credential)
        ON CONFLICT DO NOTHING;
        agreed := cortex.agreed(of_approval, stands_digest);
        UPDATE cortex.approval a
        SET arguments = stands, digest = stands_digest,
            version = a.version + CASE WHEN stands_digest <> held.digest THEN 1 ELSE 0 END,
            edited_by = CASE WHEN stands_digest <> held.digest THEN person ELSE a.edited_by END,
            brief = CASE WHEN stands_digest <> held.digest THEN NULL ELSE a.brief END,
            status = CASE WHEN agreed >= a.people THEN 'APPROVED' ELSE 'PENDING' END,
            decided_at = CASE WHEN agreed >= a.people THEN cortex.now() END,
            decided_by = CASE WHEN agreed >= a.people THEN person END,
            decided_with = CASE WHEN agreed >= a.people THEN with_credential END,
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
            jsonb_build_object('by', person, 'credential', with_credential, 'reason', why, 'channel', by_channel,
                               'address', by_address, 'risk', held.risk, 'tool', held.tool, 'people', held.people, 'agreed', agreed,
                               'was_edited', stands_digest <> held.asked_digest));
    IF outcome <> 'agreed' THEN
        IF outcome = 'denied' AND held.on_deny = 'fail' THEN
            UPDATE cortex.job_record j
            SET status = 'FAILED', waiting_on = NULL, error_code = 'denied',
                error_class = 'PERMANENT', error_message = format('%s was denied by %s%s',
                    coalesce(held.tool, held.key), person, coalesce(': ' || why, ''))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END IF;
    RETURN QUERY SELECT outcome, agreed;
END $$;
COMMENT ON FUNCTION cortex.decide IS
    'The single way to decide: approved · agreed (more people are needed) · denied, or why not: already · expired · '
    'changed · no_credential · own_request · not_editable · agreed_before · missing; again: to be repeated.';

CREATE FUNCTION cortex.expire_approvals(most int) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- ------------------------------------------------------------------ links

CREATE FUNCTION cortex.has_link(of_approval uuid) RETURNS boolean
    -- A read-only role may see that there is a link, but not the digest of its token.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT a.token_digest IS NOT NULL FROM cortex.approval a WHERE a.id = of_approval $$;
COMMENT ON FUNCTION cortex.has_link IS 'Whether a link permits deciding this request.';

REVOKE EXECUTE ON FUNCTION cortex.has_link(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.has_link(uuid) TO cortex_runtime;
