-- 0043 one vote: who agrees under one name with a second credential does not count twice, also after an edit and back.
--
-- Locks: none that anybody waits for.
-- Old pods: may keep running.

CREATE OR REPLACE FUNCTION cortex.decide(
    of_approval uuid, is_approved boolean, person text, seen bytea, why text, by_channel text, by_address text,
    by_client text, edited json, with_credential text
) RETURNS TABLE (outcome text, votes int)
    LANGUAGE plpgsql SET search_path = pg_catalog AS $$
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
    -- In the order of all locks. After these nobody can suspend, resume or end the job beside this.
    SELECT t.id INTO its_task FROM cortex_worker.task t WHERE t.job_id = owner FOR UPDATE;
    PERFORM FROM cortex.job j WHERE j.id = owner AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE;
    IF NOT FOUND THEN
        -- It got its task, or lost it, while the locks were waited for: a suspend under way would not see this.
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
        WHEN held.risk = 'CRITICAL' AND (with_credential = held.requested_with
                                         OR cortex.same_person(person) = cortex.same_person(held.requested_by))
            THEN 'own_request'
        WHEN stands_digest <> held.digest AND held.schema IS NULL THEN 'not_editable'
        WHEN stands_digest = held.digest AND EXISTS (
            SELECT FROM cortex.approval_vote v
            WHERE v.approval_id = of_approval AND v.digest = held.digest
              AND (v.credential = with_credential OR cortex.same_person(v.person) = cortex.same_person($3)))
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
        -- Edited back to what they agreed to before, it is no second vote.
        WHERE NOT EXISTS (
            SELECT FROM cortex.approval_vote v
            WHERE v.approval_id = of_approval AND v.digest = stands_digest
              AND (v.credential = with_credential OR cortex.same_person(v.person) = cortex.same_person($3)))
        ON CONFLICT DO NOTHING;
        agreed := cortex.agreed(of_approval, stands_digest);
        UPDATE cortex.approval a
        SET arguments = stands, digest = stands_digest,
            version = a.version + CASE WHEN stands_digest <> held.digest THEN 1 ELSE 0 END,
            edited_by = CASE WHEN stands_digest <> held.digest THEN person ELSE a.edited_by END,
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
            UPDATE cortex.job j
            SET status = 'FAILED', waiting_on = NULL, approval_token = NULL, error_code = 'denied',
                error_class = 'PERMANENT', error_message = format('%s was denied by %s%s',
                    coalesce(held.tool, held.key), person, coalesce(': ' || why, ''))
            WHERE j.id = held.job_id AND j.status::text = 'WAITING_FOR_APPROVAL' AND j.worker_job_id IS NULL;
        ELSE
            PERFORM cortex.let_go(held.job_id);
        END IF;
    END IF;
    RETURN QUERY SELECT outcome, agreed;
END $$;
