-- 0021 read-only: a role for those who only look, such as `cortex tui --read-only`: nothing in the client has to be
-- trusted for that.
--
-- Locks: none that matter. Old pods: may keep running.
-- To make a role takes CREATEROLE. Where the migrating role lacks it and nobody has made cortex_reader before, there
-- is none, and who only looks is held to `default_transaction_read_only` in its sessions instead: that keeps a client
-- from mistakes of its own, but it could switch it off.

CREATE FUNCTION cortex.has_link(of_approval uuid) RETURNS boolean
    -- Whoever only looks may know that there is a link, not the digest of its token.
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT a.token_digest IS NOT NULL FROM cortex.approval a WHERE a.id = of_approval $$;
COMMENT ON FUNCTION cortex.has_link IS 'Whether a link lets somebody decide this request.';
REVOKE EXECUTE ON FUNCTION cortex.has_link(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.has_link(uuid) TO cortex_runtime;

DO $$
BEGIN
    CREATE ROLE cortex_reader NOLOGIN;
EXCEPTION
    -- Roles belong to the whole server: another database, or another pod just now, may have made it.
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role cortex_reader was not made: % may make no roles', current_user;
END $$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        RETURN;
    END IF;
    BEGIN
        -- Since Postgres 16 who makes a role is its member, but may not SET ROLE to it.
        IF NOT pg_has_role(current_user, 'cortex_reader',
                           CASE WHEN current_setting('server_version_num')::int >= 160000
                                THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT cortex_reader TO %I', current_user);
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE '% may not become cortex_reader: an administrator has to grant that', current_user;
    END;
    GRANT USAGE ON SCHEMA cortex, cortex_worker TO cortex_reader;
    -- What screens show. Not tokens, sessions and kept answers: those are nobody's to look at. The token of job is the
    -- digest of a random number that nobody has ever known.
    GRANT SELECT ON
        cortex.migration, cortex.agent, cortex.agent_version, cortex.job_type, cortex.job, cortex.job_history,
        cortex.job_attempt, cortex.job_step, cortex.pod, cortex.config, cortex.breaker, cortex.fact, cortex.budget,
        cortex.budget_use, cortex.reservation, cortex.dead_letter, cortex.timeout_event, cortex.effect, cortex.quota,
        cortex.quota_use, cortex.approval_vote, cortex.runner, cortex.said,
        cortex_worker.task, cortex_worker.queue_pause TO cortex_reader;
    GRANT SELECT (
        id, seq, job_id, lineage_id, attempt, key, tool, tenant, agent_id, agent_version, requested_by, asked,
        asked_digest, arguments, digest, schema, version, risk, effect, reversible, policy, said, people, on_deny,
        on_expiry, status, token_by, created_at, expires_at, edited_by, decided_at, decided_by, channel, address,
        client, reason) ON cortex.approval TO cortex_reader;
    GRANT EXECUTE ON FUNCTION cortex.has_link(uuid), cortex.serving_since(), cortex.holder_of(xid) TO cortex_reader;
END $$;
