-- 0034 tools: a pod claims only those jobs of agents whose tools it has.
--
-- Locks: ACCESS EXCLUSIVE on pod and task for an instant; the waiting tasks of run_agent are written once.
-- Old pods: may keep running; they claim no more jobs of agents that have tools, which wait for a new pod.
--
-- The task of such a job names its set of tools beside its type: "run_agent 0123456789abcdef". So a claim finds the tasks
-- that a pod can serve by the index that it has, however many others stand before them.

CREATE TABLE cortex.tool_set (
    task text PRIMARY KEY,
    tools text[] NOT NULL CHECK (cardinality(tools) >= 1)
);
COMMENT ON TABLE cortex.tool_set IS 'Sets of tools that versions of agents have; few, and never changed.';
COMMENT ON COLUMN cortex.tool_set.task IS 'What cortex_worker.task.task is for the jobs of agents with these tools.';
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
COMMENT ON FUNCTION cortex.task_with IS 'The task of jobs whose agent has these tools, sorted.';

CREATE FUNCTION cortex.claimable(types text[], tools text[]) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT types || ARRAY(SELECT s.task FROM cortex.tool_set s
                      WHERE 'run_agent' = ANY (claimable.types) AND s.tools <@ claimable.tools) $$;
COMMENT ON FUNCTION cortex.claimable IS 'The tasks that a pod with these job types and tools can serve.';

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
INSERT INTO cortex.tool_set (task, tools)
SELECT DISTINCT cortex.task_with(cortex.tools_of(v.spec)), cortex.tools_of(v.spec) FROM cortex.agent_version v
WHERE cortex.tools_of(v.spec) <> '{}';

CREATE FUNCTION cortex_worker.task_with_tools() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.task := coalesce((
        SELECT cortex.task_with(cortex.tools_of(v.spec)) FROM cortex.job j
        JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
        WHERE j.id = NEW.job_id), NEW.task);
    RETURN NEW;
END $$;
-- Whoever makes the task, it is named right. Costs nothing for other types.
CREATE TRIGGER task_with_tools BEFORE INSERT ON cortex_worker.task
    FOR EACH ROW WHEN (NEW.task = 'run_agent') EXECUTE FUNCTION cortex_worker.task_with_tools();
UPDATE cortex_worker.task t SET task = cortex.task_with(cortex.tools_of(v.spec))
FROM cortex.job j JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
WHERE t.task = 'run_agent' AND j.id = t.job_id;

REVOKE EXECUTE ON FUNCTION cortex.tool_set_of_version(), cortex_worker.task_with_tools() FROM PUBLIC;
COMMENT ON COLUMN cortex_worker.task.task IS
    'Job type; for run_agent of an agent with tools followed by their set, see cortex.tool_set.';
COMMENT ON COLUMN cortex_worker.ready_head.task IS 'What their tasks are called: the type, and the set of tools.';

ALTER TABLE cortex.pod ADD COLUMN tools text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cortex.pod.tools IS 'The tools that it has for agents.';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.tool_set TO cortex_reader;
    END IF;
END $$;
