-- Flows and their immutable versions; a job of type run_flow keeps the version that it was submitted with.

CREATE TABLE cortex.flow (
    name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    version int NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.flow IS 'A named flow; its immutable versions define it.';
COMMENT ON COLUMN cortex.flow.name IS 'The name that people and jobs use.';
COMMENT ON COLUMN cortex.flow.version IS 'The newest version: the one that newly submitted jobs use.';
COMMENT ON COLUMN cortex.flow.created_at IS 'When the first version was applied.';

CREATE TABLE cortex.flow_version (
    name text NOT NULL REFERENCES cortex.flow,
    version int NOT NULL CHECK (version >= 1),
    spec jsonb NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    applied_by text NOT NULL,
    applied_with text,
    applied_at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (name, version)
);
COMMENT ON TABLE cortex.flow_version IS 'One immutable version of a flow.';
COMMENT ON COLUMN cortex.flow_version.name IS 'The flow.';
COMMENT ON COLUMN cortex.flow_version.version IS '1, 2, 3 … without gaps.';
COMMENT ON COLUMN cortex.flow_version.spec IS 'The specification as canonical JSON.';
COMMENT ON COLUMN cortex.flow_version.digest IS
    'SHA-256 of the canonical JSON: applying the same again creates no version.';
COMMENT ON COLUMN cortex.flow_version.applied_by IS 'Who applied it.';
COMMENT ON COLUMN cortex.flow_version.applied_with IS
    'Their credential: that person cannot agree to critical calls of its jobs.';
COMMENT ON COLUMN cortex.flow_version.applied_at IS 'When it was applied.';
CREATE TRIGGER flow_version_is_immutable
    BEFORE UPDATE OR DELETE ON cortex.flow_version
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change();

GRANT SELECT, INSERT, UPDATE ON cortex.flow TO cortex_runtime;
GRANT SELECT, INSERT ON cortex.flow_version TO cortex_runtime;

-- ------------------------------------------------------------------ jobs of flows

CREATE FUNCTION cortex.flow_of(payload jsonb, OUT kept int, OUT kept_spec jsonb)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted CONSTANT text := payload->>'flow';
    inputs CONSTANT jsonb := coalesce(nullif(payload->'inputs', 'null'), '{}');
    wrong text;
BEGIN
    IF wanted IS NULL THEN
        RAISE EXCEPTION 'a job of type "run_flow" needs a flow'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'flow_named',
                  HINT = 'name it in the payload: {"flow": NAME, "inputs": {}}';
    END IF;
    SELECT v.version, v.spec INTO kept, kept_spec
    FROM cortex.flow f JOIN cortex.flow_version v ON v.name = f.name
    WHERE f.name = wanted AND to_jsonb(v.version) = coalesce(nullif(payload->'version', 'null'), to_jsonb(f.version));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'flow "%"% does not exist', left(wanted, 100),
            coalesce(' version ' || left(payload->>'version', 20), '')
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex flows apply FILE';
    END IF;
    IF jsonb_typeof(inputs) <> 'object' THEN
        wrong := format('must be an object by their names, got %s', left(inputs::text, 80));
    ELSE
        SELECT nullif(concat_ws('; ',
            (SELECT 'lack ' || string_agg(k, ', ' ORDER BY k) FROM jsonb_each(kept_spec->'inputs') AS i(k, declared)
             WHERE (declared->>'required')::boolean AND NOT inputs ? k),
            (SELECT format('have the unknown name%s %s; known: %s', CASE WHEN count(*) > 1 THEN 's' END,
                           left(string_agg(format('"%s"', left(given, 100)), ', ' ORDER BY given), 500), coalesce(
                 (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(kept_spec->'inputs') AS k), 'none'))
             FROM jsonb_object_keys(inputs) AS given WHERE NOT coalesce(kept_spec->'inputs' ? given, false)
             HAVING count(*) > 0)), '') INTO wrong;
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'inputs of flow "%" %', wanted, wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_fits', HINT = 'see its inputs: cortex flows show ' || wanted;
    END IF;
END $$;
COMMENT ON FUNCTION cortex.flow_of IS
    'The version of the flow that a job of type run_flow with this payload runs: the newest, unless it names one. Refuses an '
    'unknown flow, and inputs that it does not take.';

CREATE FUNCTION cortex.flow_of_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept int;
    kept_spec jsonb;
    limit_ms int;
BEGIN
    SELECT o.kept, o.kept_spec INTO kept, kept_spec FROM cortex.flow_of(NEW.payload) AS o;
    limit_ms := kept_spec->'limits'->>'timeout_ms';
    NEW.payload := NEW.payload || jsonb_build_object('version', kept);
    -- The flow's own limit replaces its type's, but not one that this job was given.
    IF limit_ms IS NOT NULL AND NEW.timeout_s = (SELECT t.timeout_s FROM cortex.job_type t WHERE t.name = 'run_flow') THEN
        NEW.timeout_s := ceil(limit_ms / 1000.0);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER flow_of_job BEFORE INSERT ON cortex.job_record
    FOR EACH ROW WHEN (NEW.type = 'run_flow')
    EXECUTE FUNCTION cortex.flow_of_job();
COMMENT ON FUNCTION cortex.flow_of_job IS
    'Writes the version and the limit of its flow into a new job of type run_flow; refuses an unknown flow.';

REVOKE EXECUTE ON FUNCTION cortex.flow_of_job() FROM PUBLIC;

-- ------------------------------------------------------------------ read-only sessions

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.flow, cortex.flow_version TO cortex_reader;
    END IF;
END $$;
