-- Tools of MCP servers: what an agent's servers said about them when a person, or the first use, accepted them, and what
-- they say now if that differs. A server is known by the agent's name for it and by a digest of what the agent declares:
-- another command or address is another server.

CREATE TABLE cortex.mcp_tool (
    agent text NOT NULL CHECK (char_length(agent) BETWEEN 1 AND 200),
    server text NOT NULL CHECK (char_length(server) BETWEEN 1 AND 64),
    identity text NOT NULL CHECK (identity ~ '^[0-9a-f]{64}$'),
    tool text NOT NULL CHECK (char_length(tool) BETWEEN 1 AND 128),
    accepted text,
    accepted_at timestamptz,
    accepted_by text,
    offered text,
    offered_at timestamptz,
    PRIMARY KEY (agent, server, identity, tool),
    CHECK ((accepted IS NULL) = (accepted_at IS NULL) AND (offered IS NULL) = (offered_at IS NULL)),
    CHECK (accepted IS NOT NULL OR offered IS NOT NULL)
);
COMMENT ON TABLE cortex.mcp_tool IS 'Tools of the MCP servers of agents.';
COMMENT ON COLUMN cortex.mcp_tool.agent IS 'The agent''s name, or job: and the name of a job type.';
COMMENT ON COLUMN cortex.mcp_tool.server IS 'The name that the agent gives to the server.';
COMMENT ON COLUMN cortex.mcp_tool.identity IS 'SHA-256 of what the agent declares about the server, in hex.';
COMMENT ON COLUMN cortex.mcp_tool.tool IS 'The tool''s name at its server.';
COMMENT ON COLUMN cortex.mcp_tool.accepted IS
    'What models are told: description, schemas and hints as canonical JSON; null: the tool is new, and not offered to them.';
COMMENT ON COLUMN cortex.mcp_tool.accepted_at IS 'Since when.';
COMMENT ON COLUMN cortex.mcp_tool.accepted_by IS 'Who accepted it; null: the first use of the server.';
COMMENT ON COLUMN cortex.mcp_tool.offered IS 'What the server says now, if that differs; empty: it has the tool no more.';
COMMENT ON COLUMN cortex.mcp_tool.offered_at IS 'When that was noticed.';

GRANT SELECT ON cortex.mcp_tool TO cortex_runtime;

CREATE FUNCTION cortex.note_mcp_tools(of_agent text, of_server text, of_identity text, texts jsonb, named text[])
    RETURNS SETOF cortex.mcp_tool
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_first boolean;
BEGIN
    -- Pods that meet a server at once agree on its first use.
    PERFORM FROM cortex.runner_turn r WHERE r.name = 'specs' FOR NO KEY UPDATE;
    is_first := NOT EXISTS (SELECT FROM cortex.mcp_tool t
                            WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity);
    INSERT INTO cortex.mcp_tool (agent, server, identity, tool, accepted, accepted_at, offered, offered_at)
    SELECT of_agent, of_server, of_identity, f.key,
           CASE WHEN f.is_taken THEN f.value END, CASE WHEN f.is_taken THEN cortex.now() END,
           CASE WHEN NOT f.is_taken THEN f.value END, CASE WHEN NOT f.is_taken THEN cortex.now() END
    FROM (SELECT e.key, e.value, is_first OR e.key = ANY (named) AS is_taken FROM jsonb_each_text(texts) e) f
    ON CONFLICT DO NOTHING;
    DELETE FROM cortex.mcp_tool t
    WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.accepted IS NULL
      AND NOT texts ? t.tool;
    WITH now_offered AS (
        SELECT o.tool, nullif(coalesce(e.value, ''), o.accepted) AS offered
        FROM cortex.mcp_tool o LEFT JOIN jsonb_each_text(texts) e ON e.key = o.tool
        WHERE o.agent = of_agent AND o.server = of_server AND o.identity = of_identity
    ), changed AS (
        UPDATE cortex.mcp_tool t
        SET offered = n.offered, offered_at = CASE WHEN n.offered IS NOT NULL THEN cortex.now() END
        FROM now_offered n
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = n.tool
          AND t.offered IS DISTINCT FROM n.offered
        RETURNING t.tool, t.offered
    )
    INSERT INTO cortex.fact (type, subtype, source, data)
    SELECT 'lifecycle', 'mcp_changed', 'agent:' || left(of_agent, 290),
           jsonb_build_object('server', of_server, 'tools', jsonb_agg(c.tool ORDER BY c.tool))
    FROM changed c WHERE c.offered IS NOT NULL HAVING count(*) > 0;
    RETURN QUERY SELECT t.* FROM cortex.mcp_tool t
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity ORDER BY t.tool COLLATE "C";
END $$;
COMMENT ON FUNCTION cortex.note_mcp_tools IS
    'Records what a server of an agent says about its tools: an object of texts by name. On its first use all are accepted, '
    'later only new ones that the agent''s specification names; a difference is kept for a person to see. Returns all of '
    'that server. Called by pods.';

CREATE FUNCTION cortex.trust_mcp_tools(of_agent text, of_server text, of_identity text, shown jsonb, caller jsonb, why text)
    RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who record;
    waited CONSTANT text := 'trust:' || of_agent || '/' || of_server || '.';
    taken text[];
BEGIN
    SELECT * INTO who FROM cortex.person_of_all(caller, 'operator');
    -- Exactly what the person has seen: what a server says meanwhile is another change.
    WITH changed AS (
        UPDATE cortex.mcp_tool t
        SET accepted = t.offered, accepted_at = cortex.now(), accepted_by = who.name, offered = NULL, offered_at = NULL
        FROM jsonb_each_text(shown) s
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = s.key
          AND t.offered = s.value AND t.offered <> ''
        RETURNING t.tool
    ), gone AS (
        DELETE FROM cortex.mcp_tool t USING jsonb_each_text(shown) s
        WHERE t.agent = of_agent AND t.server = of_server AND t.identity = of_identity AND t.tool = s.key
          AND t.offered = '' AND s.value = ''
        RETURNING t.tool
    )
    SELECT array_agg(c.tool ORDER BY c.tool) INTO taken
    FROM (SELECT tool FROM changed UNION ALL SELECT tool FROM gone) c;
    IF taken IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('lifecycle', 'mcp_trusted', 'agent:' || left(of_agent, 290), jsonb_build_object(
        'by', who.name, 'credential', who.credential, 'reason', why, 'server', of_server, 'tools', taken));
    UPDATE cortex.job_record j SET next_retry_at = cortex.now()
    WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on !~ '^(approval|budget|child|signal):'
      AND j.waiting_on = ANY (SELECT waited || tool FROM unnest(taken) tool) AND j.next_retry_at > cortex.now();
    RETURN QUERY SELECT unnest(taken);
END $$;
COMMENT ON FUNCTION cortex.trust_mcp_tools IS
    'Accepts what a server says now about some of its tools, an object of the texts by name as the person has seen them; '
    'returns the names of those that were accepted. Jobs that wait for it are due at once. Needs the role operator.';

REVOKE EXECUTE ON FUNCTION
    cortex.note_mcp_tools(text, text, text, jsonb, text[]), cortex.trust_mcp_tools(text, text, text, jsonb, jsonb, text)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.note_mcp_tools(text, text, text, jsonb, text[]), cortex.trust_mcp_tools(text, text, text, jsonb, jsonb, text)
    TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.mcp_tool TO cortex_reader;
    END IF;
END $$;
