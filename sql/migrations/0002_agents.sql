-- Agents, their immutable versions, and the sets of tools that those versions need.
--
-- A pod claims only the jobs of agents whose tools it has. The task of such a job names its set of tools after its
-- type: "run_agent 0123456789abcdef". So a claim finds the tasks that its pod can run by the ordinary index, however
-- many others are queued before them.

CREATE TABLE cortex.agent (
    id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    version int NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.agent IS 'A named agent; its immutable versions define it.';
COMMENT ON COLUMN cortex.agent.id IS 'UUIDv7 made by the application.';
COMMENT ON COLUMN cortex.agent.name IS 'The name that people and jobs use.';
COMMENT ON COLUMN cortex.agent.version IS 'The newest version: the one that newly submitted jobs use.';
COMMENT ON COLUMN cortex.agent.created_at IS 'When the first version was applied.';

CREATE TABLE cortex.agent_version (
    agent_id uuid NOT NULL REFERENCES cortex.agent,
    version int NOT NULL CHECK (version >= 1),
    spec jsonb NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    applied_by text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (agent_id, version)
);
COMMENT ON TABLE cortex.agent_version IS 'One immutable version of an agent''s specification.';
COMMENT ON COLUMN cortex.agent_version.agent_id IS 'The agent.';
COMMENT ON COLUMN cortex.agent_version.version IS '1, 2, 3 … without gaps.';
COMMENT ON COLUMN cortex.agent_version.spec IS 'The specification as canonical JSON.';
COMMENT ON COLUMN cortex.agent_version.digest IS
    'SHA-256 of the canonical JSON: applying the same again creates no version.';
COMMENT ON COLUMN cortex.agent_version.applied_by IS 'Who applied it.';
COMMENT ON COLUMN cortex.agent_version.applied_at IS 'When it was applied.';
CREATE TRIGGER agent_version_is_immutable
    BEFORE UPDATE OR DELETE ON cortex.agent_version
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

GRANT SELECT, INSERT, UPDATE ON cortex.agent TO cortex_runtime;
GRANT SELECT, INSERT ON cortex.agent_version TO cortex_runtime;

-- ------------------------------------------------------------------ sets of tools

CREATE TABLE cortex.tool_set (
    task text PRIMARY KEY,
    tools text[] NOT NULL CHECK (cardinality(tools) >= 1)
);
COMMENT ON TABLE cortex.tool_set IS 'Sets of tools that versions of agents have; few, and never changed.';
COMMENT ON COLUMN cortex.tool_set.task IS 'The value of cortex_worker.task.task for jobs of agents with these tools.';
COMMENT ON COLUMN cortex.tool_set.tools IS 'Their names, sorted.';

GRANT SELECT, INSERT ON cortex.tool_set TO cortex_runtime;

CREATE FUNCTION cortex.tools_of(spec jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ARRAY(SELECT DISTINCT t.name COLLATE "C" FROM jsonb_array_elements_text(
    CASE jsonb_typeof(spec->'tools') WHEN 'array' THEN spec->'tools' ELSE '[]' END) AS t(name) ORDER BY 1) $$;
COMMENT ON FUNCTION cortex.tools_of IS 'The tools that an agent''s specification names, sorted.';

CREATE FUNCTION cortex.task_with(tools text[]) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN tools = '{}' THEN 'run_agent' ELSE
    'run_agent ' || left(encode(sha256(convert_to(array_to_string(tools, ' '), 'UTF8')), 'hex'), 16) END $$;
COMMENT ON FUNCTION cortex.task_with IS 'The task name of jobs whose agent has these tools, sorted.';

CREATE FUNCTION cortex.tool_set_of_version() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text[] := cortex.tools_of(NEW.spec);
BEGIN
    IF found <> '{}' THEN
        INSERT INTO cortex.tool_set (task, tools) VALUES (cortex.task_with(found), found) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER agent_version_has_tools AFTER INSERT ON cortex.agent_version
    FOR EACH ROW EXECUTE FUNCTION cortex.tool_set_of_version();

REVOKE EXECUTE ON FUNCTION cortex.tool_set_of_version() FROM PUBLIC;
