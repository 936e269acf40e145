-- The role of read-only sessions: it sees what screens show, but no secrets, and it cannot change anything.
--
-- The migrating role may lack the right to create roles. Then this role is missing, and with it read-only sessions.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA cortex, cortex_worker TO cortex_reader;
    -- Everything that screens show, but no API tokens, sessions or stored responses.
    GRANT SELECT ON
        cortex.migration, cortex.agent, cortex.agent_version, cortex.tool_set, cortex.config, cortex.job_type,
        cortex.job, cortex.job_record, cortex.job_state,
        cortex.job_history, cortex.job_attempt, cortex.timeout_event, cortex.job_step, cortex.job_file, cortex.job_published, cortex.code, cortex.code_arguments, cortex.pod, cortex.turn,
        cortex.breaker, cortex.breaker_now, cortex.fact, cortex.budget, cortex.budget_use, cortex.reservation,
        cortex.dead_letter, cortex.quota, cortex.quota_use, cortex.tenant_cap, cortex.effect,
        cortex.approval_vote, cortex.effect_vote, cortex.said, cortex_worker.task, cortex_worker.ready_head, cortex_worker.pause, cortex_worker.queue_pause,
        cortex_worker.strict_queue, cortex_worker.queue_due, cortex_worker.unfit, cortex_worker.stranded
        TO cortex_reader;
    -- Every column of an approval except the digests of its links.
    GRANT SELECT (
        id, seq, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, asked,
        asked_digest, arguments, digest, schema, version, risk, effect, reversible, policy, said, people, on_deny,
        on_expiry, status, token_by, created_at, expires_at, edited_by, decided_at, decided_by, channel, address,
        client, reason, requested_with, decided_with, decided_person) ON cortex.approval TO cortex_reader;
    GRANT EXECUTE ON FUNCTION
        cortex.has_link(uuid), cortex.serving_since(), cortex.holder_of(xid), cortex.connected_pods(), cortex.lost_pods(),
        cortex.head(int), cortex.progress_of TO cortex_reader;
END $$;
