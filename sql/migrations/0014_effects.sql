-- Effects: the intent before a call with an outside result, and the outcome after it.

CREATE TABLE cortex.effect (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    attempt int NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
    tool text NOT NULL CHECK (length(tool) BETWEEN 1 AND 200),
    tenant text NOT NULL,
    agent_id uuid,
    agent_version int,
    arguments json NOT NULL,
    digest bytea NOT NULL CHECK (digest = sha256(convert_to(arguments::text, 'UTF8'))),
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'UNKNOWN', 'COMPLETED', 'FAILED', 'ABANDONED')),
    is_sure boolean NOT NULL DEFAULT false,
    calls_count int NOT NULL DEFAULT 1 CHECK (calls_count >= 1),
    can_reconcile boolean NOT NULL,
    approval_id uuid UNIQUE,
    why text,
    result json,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    called_at timestamptz NOT NULL DEFAULT cortex.now(),
    finished_at timestamptz,
    resolution text CHECK (resolution IN ('applied', 'not-applied', 'give-up')),
    resolved_by text CHECK (length(resolved_by) BETWEEN 1 AND 200),
    resolved_at timestamptz,
    resolved_reason text,
    CONSTRAINT effect_once UNIQUE (lineage_id, key, digest),
    CONSTRAINT finished_at_only_when_final
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'ABANDONED'))),
    CONSTRAINT result_only_when_completed CHECK (result IS NULL OR status = 'COMPLETED'),
    CONSTRAINT sure_only_when_pending CHECK (status = 'PENDING' OR NOT is_sure),
    CONSTRAINT resolved_by_somebody_for_a_reason CHECK (
        (resolution IS NULL) = (resolved_by IS NULL) AND (resolution IS NULL) = (resolved_at IS NULL)
        AND (resolution IS NULL) = (resolved_reason IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.effect IS
    'Calls with an outside result: intent before, outcome after. A PENDING effect may or may not have been applied.';
COMMENT ON COLUMN cortex.effect.id IS
    'The invocation: the idempotency key for the other side, the same on every repetition.';
COMMENT ON COLUMN cortex.effect.job_id IS 'The job that intends it, the last one of its lineage.';
COMMENT ON COLUMN cortex.effect.lineage_id IS
    'First job of that lineage: a job that continues a failed one does not repeat the effect.';
COMMENT ON COLUMN cortex.effect.attempt IS 'The attempt of the job that may call it: the fence.';
COMMENT ON COLUMN cortex.effect.key IS 'The step that calls it.';
COMMENT ON COLUMN cortex.effect.tool IS 'The tool, or the function of the job''s own code.';
COMMENT ON COLUMN cortex.effect.tenant IS 'The job''s tenant.';
COMMENT ON COLUMN cortex.effect.agent_id IS 'The job''s agent.';
COMMENT ON COLUMN cortex.effect.agent_version IS 'That agent''s version.';
COMMENT ON COLUMN cortex.effect.arguments IS 'The arguments of the call, as canonical JSON.';
COMMENT ON COLUMN cortex.effect.digest IS 'SHA-256 of the arguments.';
COMMENT ON COLUMN cortex.effect.status IS
    'PENDING: the call may be in flight, or was cut off · UNKNOWN: a person decides · COMPLETED: applied · FAILED: '
    'certainly not applied · ABANDONED: a person gave it up.';
COMMENT ON COLUMN cortex.effect.is_sure IS 'Certainly not applied so far: the next attempt may call at once.';
COMMENT ON COLUMN cortex.effect.calls_count IS 'How many attempts were allowed to call.';
COMMENT ON COLUMN cortex.effect.can_reconcile IS 'Whether the other side can look up the outcome.';
COMMENT ON COLUMN cortex.effect.approval_id IS 'The decision that it consumed: one decision admits one call.';
COMMENT ON COLUMN cortex.effect.why IS 'Why it failed, or why its outcome is unknown.';
COMMENT ON COLUMN cortex.effect.result IS 'The result that a person entered; otherwise the result is in the step.';
COMMENT ON COLUMN cortex.effect.created_at IS 'When it was first intended.';
COMMENT ON COLUMN cortex.effect.called_at IS 'When an attempt was last allowed to call.';
COMMENT ON COLUMN cortex.effect.finished_at IS 'When its outcome was recorded.';
COMMENT ON COLUMN cortex.effect.resolution IS 'A person''s resolution.';
COMMENT ON COLUMN cortex.effect.resolved_by IS 'Who.';
COMMENT ON COLUMN cortex.effect.resolved_at IS 'When.';
COMMENT ON COLUMN cortex.effect.resolved_reason IS 'Why.';
CREATE INDEX effect_status ON cortex.effect (status, created_at DESC, id DESC);
CREATE INDEX effect_tool ON cortex.effect (tool, status, created_at DESC, id DESC);
-- Jobs of the tenant that all have who name none pay nothing for it.
CREATE INDEX effect_tenant ON cortex.effect (tenant, status, created_at DESC, id DESC) WHERE tenant <> 'default';
CREATE INDEX effect_job ON cortex.effect (job_id, created_at DESC, id DESC);

-- Not what a person resolves.
GRANT SELECT, INSERT (
    id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, arguments, digest, can_reconcile,
    approval_id) ON cortex.effect TO cortex_runtime;
GRANT UPDATE (job_id, attempt, status, is_sure, calls_count, why, result, called_at, finished_at)
    ON cortex.effect TO cortex_runtime;

CREATE FUNCTION cortex.intend(
    of_job uuid, of_attempt int, new_id uuid, of_key text, of_tool text, of_arguments json, of_digest bytea,
    sure boolean, reconciles boolean, of_approval uuid, by_name boolean
) RETURNS TABLE (id uuid, verdict text, attempt int, result json, why text, quota text, used numeric,
    limit_amount numeric, amount numeric, wait_s float8)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner record;
    known record;
    stop record;
BEGIN
    -- The caller holds the job's row.
    SELECT j.id, coalesce(j.lineage_id, j.id) AS line, j.tenant, j.agent_id, j.agent_version, j.has_open INTO owner
    FROM cortex.job j WHERE j.id = of_job AND j.attempt = of_attempt AND j.status::text = 'RUNNING';
    IF NOT FOUND THEN
        RETURN QUERY SELECT new_id, 'lost', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;

    SELECT * INTO known FROM cortex.effect e
    WHERE e.lineage_id = owner.line AND e.key = of_key AND (e.digest = of_digest
        OR e.job_id = of_job AND e.status <> 'FAILED' OR e.status IN ('PENDING', 'UNKNOWN'))
    -- Certainly not applied with these arguments, it may be open with others.
    ORDER BY e.digest = of_digest AND e.status <> 'FAILED' DESC, e.status IN ('PENDING', 'UNKNOWN') DESC,
        e.digest = of_digest DESC LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        verdict := CASE
            WHEN known.digest <> of_digest OR by_name AND known.tool <> of_tool THEN 'diverged'
            WHEN known.status = 'COMPLETED' THEN 'done'
            WHEN known.status = 'ABANDONED' THEN 'abandoned'
            WHEN known.status = 'PENDING' AND known.id = new_id THEN 'go'  -- this very statement, repeated
            WHEN sure OR known.is_sure OR known.status = 'FAILED' THEN 'go'
            ELSE 'recheck' END;
        IF verdict IN ('go', 'recheck') THEN
            -- From here on no earlier owner can record its outcome.
            UPDATE cortex.effect e SET job_id = of_job, attempt = of_attempt WHERE e.id = known.id;
            IF NOT owner.has_open THEN
                UPDATE cortex.job_record j SET has_open = true WHERE j.id = of_job;
            END IF;
        END IF;
        IF verdict <> 'go' OR known.id = new_id THEN
            RETURN QUERY SELECT known.id, verdict, known.attempt,
                -- Its result is in its step, unless a person entered one.
                CASE WHEN verdict = 'diverged' THEN known.arguments WHEN verdict = 'done' THEN coalesce(known.result, (
                    SELECT s.output FROM cortex.job_step s WHERE s.job_id = known.job_id AND s.key = known.key)) END,
                CASE WHEN verdict = 'diverged' THEN known.tool ELSE known.why END, NULL, NULL::numeric,
                NULL::numeric, NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;

    IF EXISTS (SELECT FROM cortex.breaker b WHERE b.name = 'effects:all' AND b.state <> 'CLOSED') THEN
        RETURN QUERY SELECT coalesce(known.id, new_id), 'frozen', of_attempt, NULL::json,
            (SELECT b.forced_reason FROM cortex.breaker b WHERE b.name = 'effects:all'), NULL, NULL::numeric,
            NULL::numeric, NULL::numeric, NULL::float8;
        RETURN;
    END IF;
    IF known.id IS NULL THEN
        IF of_approval IS NOT NULL AND (NOT EXISTS (
            SELECT FROM cortex.approval a
            WHERE a.id = of_approval AND a.lineage_id = owner.line AND a.tool = of_tool AND a.digest = of_digest
              AND a.status = 'APPROVED')
           OR EXISTS (SELECT FROM cortex.effect used WHERE used.approval_id = of_approval)) THEN
            RETURN QUERY SELECT new_id, 'unapproved', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric,
                NULL::numeric, NULL::float8;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL OR known.is_sure OR known.status = 'FAILED' THEN
        SELECT * INTO stop FROM cortex.take_quota(of_tool, of_arguments, known.called_at);
        IF FOUND THEN
            RETURN QUERY SELECT coalesce(known.id, new_id), stop.verdict, of_attempt, NULL::json, NULL, stop.quota,
                stop.used, stop.limit_amount, stop.amount, stop.wait_s;
            RETURN;
        END IF;
    END IF;
    IF known.id IS NULL THEN
        IF NOT owner.has_open THEN
            UPDATE cortex.job_record j SET has_open = true WHERE j.id = of_job;
        END IF;
        INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version,
                                   arguments, digest, can_reconcile, approval_id)
        VALUES (new_id, of_job, owner.line, of_attempt, of_key, of_tool, owner.tenant, owner.agent_id,
                owner.agent_version, of_arguments, of_digest, reconciles, of_approval);
        RETURN QUERY SELECT new_id, 'go', of_attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    ELSE
        UPDATE cortex.effect e
        SET status = 'PENDING', is_sure = false, why = NULL, finished_at = NULL, called_at = cortex.now(),
            calls_count = e.calls_count + 1
        WHERE e.id = known.id;
        RETURN QUERY SELECT known.id, 'go', known.attempt, NULL::json, NULL, NULL, NULL::numeric, NULL::numeric, NULL::numeric, NULL::float8;
    END IF;
END $$;
COMMENT ON FUNCTION cortex.intend IS
    'Permission for an attempt to call, or the reason against it: go · recheck: called before, with no recorded '
    'outcome · done · abandoned · diverged (with the arguments and the tool of the open call) · frozen · quota · never · no_amount · unapproved · lost.';

-- ------------------------------------------------------------------ people's resolutions

CREATE TABLE cortex.effect_vote (
    effect_id uuid NOT NULL,
    call int NOT NULL,
    person_id uuid NOT NULL,
    person text NOT NULL CHECK (length(person) BETWEEN 1 AND 200),
    credential text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (effect_id, call, person_id)
);
COMMENT ON TABLE cortex.effect_vote IS
    'Who has said that an approved call was not applied, so that it may be made again; append-only. It takes as many '
    'people as the approval.';
COMMENT ON COLUMN cortex.effect_vote.effect_id IS 'The effect.';
COMMENT ON COLUMN cortex.effect_vote.call IS 'Which of its calls: calls_count at that time.';
COMMENT ON COLUMN cortex.effect_vote.person_id IS 'Who.';
COMMENT ON COLUMN cortex.effect_vote.person IS 'Their name, with the label beside it.';
COMMENT ON COLUMN cortex.effect_vote.credential IS 'What proved it.';
COMMENT ON COLUMN cortex.effect_vote.reason IS 'Their evidence.';
COMMENT ON COLUMN cortex.effect_vote.at IS 'When.';
CREATE TRIGGER effect_vote_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.effect_vote
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');
GRANT SELECT ON cortex.effect_vote TO cortex_runtime;

CREATE FUNCTION cortex.resolve_effect(of_effect uuid, said text, caller jsonb, why text, returned json)
    RETURNS TABLE (outcome text, is_let_go boolean, votes int, people int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner uuid;
    held cortex.effect;
    lives boolean;
    who record;
    approved record;
BEGIN
    SELECT * INTO who FROM cortex.person_of(caller, 'operator', false);
    SELECT e.job_id INTO owner FROM cortex.effect e WHERE e.id = of_effect;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'missing', false, 0, 0;
        RETURN;
    END IF;
    PERFORM FROM cortex_worker.task t WHERE t.job_id = owner FOR UPDATE;
    SELECT j.finished_at IS NULL INTO lives FROM cortex.job_record j WHERE j.id = owner FOR UPDATE;
    SELECT * INTO held FROM cortex.effect e WHERE e.id = of_effect FOR UPDATE;
    IF held.job_id <> owner THEN
        RETURN QUERY SELECT 'again', false, 0, 0;
        RETURN;
    ELSIF held.tenant <> who.tenant THEN
        RETURN QUERY SELECT 'missing', false, 0, 0;
        RETURN;
    ELSIF held.status <> 'UNKNOWN' THEN
        RETURN QUERY SELECT 'not_unknown', false, 0, 0;
        RETURN;
    END IF;
    SELECT * INTO approved FROM cortex.approval a WHERE a.id = held.approval_id;
    IF FOUND AND said = 'not-applied' THEN
        -- Then the call is made again: that needs the people whom the call itself needed.
        SELECT * INTO who FROM cortex.person_of(caller, 'approver', true);
        people := approved.people;
        outcome := CASE
            WHEN approved.risk = 'CRITICAL' AND NOT who.is_own THEN 'shared_credential'
            WHEN cortex.is_own_request(approved.risk, held.lineage_id, approved.requested_by, approved.requested_with,
                                       who.person_id, who.name, who.credential) THEN 'own_request' END;
        -- Whose a credential is now counts, not when it voted, as in cortex.agreed.
        IF outcome IS NULL THEN
            INSERT INTO cortex.effect_vote (effect_id, call, person_id, person, credential, reason)
            SELECT of_effect, held.calls_count, who.person_id, who.name, who.credential, why
            WHERE NOT EXISTS (
                SELECT FROM cortex.effect_vote v WHERE v.effect_id = of_effect AND v.call = held.calls_count
                  AND (v.credential = who.credential OR cortex.credential_person(v.credential) = who.person_id))
            ON CONFLICT DO NOTHING;
            outcome := CASE WHEN NOT FOUND THEN 'agreed_before' END;
        END IF;
        votes := cardinality(cortex.effect_agreed_by(of_effect, held.calls_count));
        IF outcome IS NULL AND votes < people THEN
            INSERT INTO cortex.fact (
                type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
            VALUES ('lifecycle', 'effect_agreed', 'effect:' || of_effect, held.tenant, held.job_id, held.attempt,
                    held.key, held.agent_id, held.agent_version,
                    jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'resolution', said,
                                       'tool', held.tool, 'people', people, 'agreed', votes));
        END IF;
        IF outcome IS NOT NULL OR votes < people THEN
            RETURN QUERY SELECT coalesce(outcome, 'agreed'), false, votes, people;
            RETURN;
        END IF;
    END IF;
    UPDATE cortex.effect e
    SET status = CASE WHEN said = 'applied' THEN 'COMPLETED' WHEN said = 'give-up' THEN 'ABANDONED'
                      WHEN lives THEN 'PENDING' ELSE 'FAILED' END,
        is_sure = said = 'not-applied' AND lives,
        finished_at = CASE WHEN said <> 'not-applied' OR NOT lives THEN cortex.now() END,
        result = CASE WHEN said = 'applied' THEN coalesce(returned, 'null') END,
        resolution = said, resolved_by = who.name, resolved_at = cortex.now(),
        resolved_reason = $4  -- not the column `why`
    WHERE e.id = of_effect;
    INSERT INTO cortex.fact (type, subtype, source, tenant, job_id, attempt, step, agent_id, agent_version, data)
    VALUES ('lifecycle', 'effect_resolved', 'effect:' || of_effect, held.tenant, held.job_id, held.attempt, held.key,
            held.agent_id, held.agent_version,
            jsonb_build_object('by', who.name, 'credential', who.credential, 'reason', why, 'resolution', said,
                               'tool', held.tool));
    RETURN QUERY SELECT 'resolved', lives AND cortex.let_go(held.job_id), votes, people;
END $$;
COMMENT ON FUNCTION cortex.resolve_effect IS
    'Records a person''s resolution of an effect: resolved · agreed (more people are needed), or why not: missing · '
    'not_unknown · again · shared_credential · own_request · agreed_before. Needs the role operator; that an approved call '
    'was not applied also needs the role approver, and as many people as the approval.';
REVOKE EXECUTE ON FUNCTION cortex.resolve_effect(uuid, text, jsonb, text, json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.resolve_effect(uuid, text, jsonb, text, json) TO cortex_runtime;

-- Effects and approvals that are open when their job ends are closed with it.
CREATE FUNCTION cortex.job_closes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM cortex.job_wait w WHERE w.job_id = NEW.id;
    IF NOT NEW.has_open THEN
        RETURN NULL;
    END IF;
    UPDATE cortex.effect
    SET status = 'UNKNOWN', is_sure = false, why = 'its job was ' || NEW.status || ' while the call was under way'
    WHERE job_id = NEW.id AND status = 'PENDING' AND NOT is_sure;
    UPDATE cortex.effect
    SET status = 'FAILED', is_sure = false, finished_at = cortex.now(), why = 'its job was ' || NEW.status || ' before it was called'
    WHERE job_id = NEW.id AND status = 'PENDING';
    UPDATE cortex.approval
    SET status = 'CANCELLED', decided_at = cortex.now(), token_digest = NULL, reason = 'its job was ' || NEW.status
    WHERE job_id = NEW.id AND status = 'PENDING';
    RETURN NULL;
END $$;
CREATE TRIGGER job_closes AFTER UPDATE OF status ON cortex.job_record
    FOR EACH ROW WHEN (
        (NEW.has_open OR OLD.waiting_on IS NOT NULL AND OLD.worker_job_id IS NULL)
        AND NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION cortex.job_closes();

REVOKE EXECUTE ON FUNCTION cortex.job_closes() FROM PUBLIC;
