-- Dead letters: one row for each failed job, unless people's decision failed it.

CREATE FUNCTION cortex.fingerprint(type text, code text, message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substr(encode(sha256(convert_to(concat_ws(E'\x1f', type, code,
        -- From the inside out: quoted parts, then paths, identifiers, numbers. A quote starts a word: the apostrophe of
        -- "can't" does not. A short word in quotes is a name, and stays.
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            left(message, 1000),
            '(?<!\w)(?!["''`][a-z_]([a-z_.-]{0,38}[a-z_])?["''`](?!\w))("[^"]*"|''[^'']*''|`[^`]*`)', '""', 'gi'),
            '(?<![\w/.:])~?/[\w.-][^\s"''`:,;)]*', '/', 'g'),
            '\m([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(0x)?[0-9a-f]*[0-9][0-9a-f]*)\M', '#', 'gi'),
            '[0-9#]+([.,:][0-9#]+)*', '#', 'g')), 'UTF8')), 'hex'), 1, 12);
COMMENT ON FUNCTION cortex.fingerprint IS
    'Twelve hex digits that equal errors share: job type, code, and the message without its ids, numbers, paths and '
    'quoted parts other than short names.';

CREATE FUNCTION cortex.steps_kept(job_id uuid, error_class text, error_code text) RETURNS int
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce((
        SELECT s.seq - 1 FROM cortex.job_step s
        WHERE s.job_id = $1 AND s.kind = 'approval' AND $3 = 'denied' AND s.output->>'is_approved' = 'false'
        ORDER BY s.seq DESC LIMIT 1
    ), (
        SELECT s.seq - 1 FROM cortex.job_step s
        WHERE s.job_id = $1 AND s.kind = 'child' AND $3 = 'child_failed' AND s.output->>'has_failed' = 'true'
        ORDER BY s.seq DESC LIMIT 1
    ), (
        SELECT m.seq - 1
        FROM (SELECT s.seq, s.output FROM cortex.job_step s
              WHERE s.job_id = $1 AND s.kind = 'model' AND ($2 = 'INVALID_OUTPUT' OR $3 = 'rejected')
              ORDER BY s.seq DESC LIMIT 1) m
        CROSS JOIN LATERAL (
            SELECT count(*) AS count FROM cortex.job_step s WHERE s.job_id = $1 AND s.seq > m.seq) later
        CROSS JOIN LATERAL (
            SELECT count(*) AS count
            FROM json_array_elements(
                CASE WHEN json_typeof(m.output->'content') = 'array' THEN m.output->'content' END) AS block
            WHERE block->>'type' = 'tool_use') asked
        -- Fewer: a call that the response requested failed. More: the job had continued after it.
        WHERE later.count = asked.count AND ($2 = 'INVALID_OUTPUT'
            OR asked.count = 0 AND m.output->>'stop_reason' NOT IN ('end_turn', 'stop_sequence'))));
COMMENT ON FUNCTION cortex.steps_kept IS
    'The number of steps that a retry of a failed job keeps when the last model response, a denial or a failed child is why '
    'it failed: those before it. Null: all.';

CREATE FUNCTION cortex.kept_head(job_id uuid, kept int) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN $2 IS NULL THEN (SELECT j.checkpoint FROM cortex.job j WHERE j.id = $1) ELSE (
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'seq', max(s.seq), 'kind', (array_agg(s.kind ORDER BY s.seq DESC))[1],
        'key', (array_agg(s.key ORDER BY s.seq DESC))[1],
        'input_tokens', sum(coalesce((s.usage->>'input_tokens')::bigint, 0)
            + coalesce((s.usage->>'cache_read_tokens')::bigint, 0)
            + coalesce((s.usage->>'cache_write_tokens')::bigint, 0)) FILTER (WHERE s.usage IS NOT NULL),
        'output_tokens', sum((s.usage->>'output_tokens')::bigint),
        'cost_usd', CASE WHEN count(s.usage) > 0 THEN coalesce(sum(s.cost_usd), 0)::text END))
    FROM cortex.job_step s WHERE s.job_id = $1 AND s.seq <= $2 HAVING count(*) > 0) END $$;
COMMENT ON FUNCTION cortex.kept_head IS
    'The checkpoint with which a job begins that keeps so many steps of this one; null for kept: all.';

CREATE FUNCTION cortex.is_decision(error_code text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(error_code IN ('denied', 'approval_expired'), false);
COMMENT ON FUNCTION cortex.is_decision IS
    'Whether people decided that a job fails, or let a question expire: it is no dead letter.';

CREATE TABLE cortex.dead_letter (
    job_id uuid PRIMARY KEY,
    lineage_id uuid NOT NULL,
    fingerprint text NOT NULL,
    type text NOT NULL,
    tenant text NOT NULL,
    agent_id uuid,
    error_class text,
    error_code text,
    error_source text,
    awaits text GENERATED ALWAYS AS (
        CASE WHEN error_class IN ('TRANSIENT_INFRA', 'TRANSIENT_APP') THEN error_source END) STORED,
    state text NOT NULL DEFAULT 'OPEN'
        CHECK (state IN ('OPEN', 'ESCALATED', 'RETRIED', 'DISCARDED', 'ARCHIVED')),
    created_at timestamptz NOT NULL,
    triaged_at timestamptz,
    resolved_at timestamptz,
    resolved_by text CHECK (length(resolved_by) BETWEEN 1 AND 200),
    reason text,
    retried_as uuid,
    is_automatic boolean NOT NULL DEFAULT false,
    CONSTRAINT resolved_when_done_with CHECK (
        (resolved_at IS NOT NULL) = (state IN ('RETRIED', 'DISCARDED'))
        AND (resolved_by IS NOT NULL) = (resolved_at IS NOT NULL)),
    CONSTRAINT retried_as_only_in_retried CHECK ((retried_as IS NOT NULL) = (state = 'RETRIED')),
    CONSTRAINT automatic_only_in_retried CHECK (state = 'RETRIED' OR NOT is_automatic)
);
COMMENT ON TABLE cortex.dead_letter IS 'The outcome of each failed job; payload, attempts and times are in its job.';
COMMENT ON COLUMN cortex.dead_letter.job_id IS 'The failed job. No foreign key: rows come from the job''s own trigger.';
COMMENT ON COLUMN cortex.dead_letter.lineage_id IS
    'First job of its lineage; its own id when it continues no other job.';
COMMENT ON COLUMN cortex.dead_letter.fingerprint IS 'Shared by equal errors: see cortex.fingerprint.';
COMMENT ON COLUMN cortex.dead_letter.type IS 'Job type.';
COMMENT ON COLUMN cortex.dead_letter.tenant IS 'The job''s tenant.';
COMMENT ON COLUMN cortex.dead_letter.agent_id IS 'The agent that it ran, if it ran one.';
COMMENT ON COLUMN cortex.dead_letter.error_class IS 'Class of the error.';
COMMENT ON COLUMN cortex.dead_letter.error_code IS 'Stable code of the error.';
COMMENT ON COLUMN cortex.dead_letter.error_source IS
    'What failed, by the name of its breaker; null for the job''s own code.';
COMMENT ON COLUMN cortex.dead_letter.awaits IS
    'The breaker whose closing triggers an automatic retry: the source of a transient error.';
COMMENT ON COLUMN cortex.dead_letter.state IS
    'OPEN: undecided · ESCALATED: an operator must change something first · RETRIED: another job continues it · '
    'DISCARDED: a person gave it up · ARCHIVED: no handler could read its payload.';
COMMENT ON COLUMN cortex.dead_letter.created_at IS 'When the job failed.';
COMMENT ON COLUMN cortex.dead_letter.triaged_at IS 'When the triage handled it: if still OPEN, it waits for a person.';
COMMENT ON COLUMN cortex.dead_letter.resolved_at IS 'When it was retried or discarded.';
COMMENT ON COLUMN cortex.dead_letter.resolved_by IS 'By whom.';
COMMENT ON COLUMN cortex.dead_letter.reason IS 'Why it was resolved, escalated or archived.';
COMMENT ON COLUMN cortex.dead_letter.retried_as IS 'The job that continues it.';
COMMENT ON COLUMN cortex.dead_letter.is_automatic IS 'The triage retried it, which happens once per lineage.';
CREATE INDEX dead_letter_newest ON cortex.dead_letter (created_at, job_id);
CREATE INDEX dead_letter_unresolved ON cortex.dead_letter (created_at, job_id)
    WHERE state IN ('OPEN', 'ESCALATED', 'ARCHIVED');
-- Lists of one tenant's. Jobs of the tenant that all have who name none pay nothing for it.
CREATE INDEX dead_letter_tenant ON cortex.dead_letter (tenant, created_at, job_id) WHERE tenant <> 'default';
CREATE INDEX dead_letter_fingerprint ON cortex.dead_letter (fingerprint text_pattern_ops, created_at);
CREATE INDEX dead_letter_untriaged ON cortex.dead_letter (coalesce(awaits, ''), created_at)
    WHERE state = 'OPEN' AND triaged_at IS NULL;
CREATE UNIQUE INDEX dead_letter_automatic ON cortex.dead_letter (lineage_id) WHERE is_automatic;
COMMENT ON INDEX cortex.dead_letter_automatic IS
    'A lineage of jobs is retried automatically once; then a person decides.';

GRANT SELECT ON cortex.dead_letter TO cortex_runtime;
GRANT UPDATE (state, triaged_at, resolved_at, resolved_by, reason, retried_as, is_automatic)
    ON cortex.dead_letter TO cortex_runtime;

-- Written with the owner's rights: the role of pods can neither invent a dead letter nor lose one.
CREATE FUNCTION cortex.dead_letter_of_failure() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO cortex.dead_letter (
        job_id, lineage_id, fingerprint, type, tenant, agent_id, error_class, error_code, error_source, created_at)
    VALUES (NEW.id, coalesce(NEW.lineage_id, NEW.id),
            cortex.fingerprint(NEW.type, NEW.error_code, NEW.error_message), NEW.type, NEW.tenant,
            NEW.agent_id, NEW.error_class, NEW.error_code, NEW.error_source, NEW.finished_at);
    IF EXISTS (SELECT FROM cortex.subscription) THEN
        PERFORM cortex.announce('dead_letter.created', NEW.id::text, jsonb_strip_nulls(jsonb_build_object(
            'job', NEW.id, 'type', NEW.type, 'agent', cortex.agent_name(NEW.agent_id), 'tenant', NEW.tenant,
            'fingerprint', cortex.fingerprint(NEW.type, NEW.error_code, NEW.error_message),
            'retries', NEW.retry_count, 'error', jsonb_build_object(
                'code', NEW.error_code, 'class', NEW.error_class, 'source', NEW.error_source,
                'message', left(NEW.error_message, 500)))), NEW.tenant, cortex.traceparent(NEW.id, NEW.traceparent));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letter_of_failure AFTER UPDATE OF status ON cortex.job_record
    FOR EACH ROW WHEN (NEW.status = 'FAILED' AND OLD.status <> 'FAILED' AND NOT cortex.is_decision(NEW.error_code))
    EXECUTE FUNCTION cortex.dead_letter_of_failure();

REVOKE EXECUTE ON FUNCTION cortex.dead_letter_of_failure() FROM PUBLIC;

CREATE FUNCTION cortex.backoff_s(of_type text, config_id int, agent_id uuid, agent_version int, retry_count int)
    RETURNS float8 LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH given AS (
    SELECT c.spec->'policies'->of_type->'backoff' AS policy, v.spec->'limits'->'backoff' AS agent
    FROM (SELECT $2 AS config_id, $3 AS agent_id, $4 AS agent_version) j
    LEFT JOIN cortex.config c ON c.id = j.config_id
    LEFT JOIN cortex.agent_version v ON v.agent_id = j.agent_id AND v.version = j.agent_version
), figure AS (
    -- A setting that another version wrote and this one cannot read must not stop the sweep.
    SELECT n.name, (coalesce(nullif(g.agent->n.agent_name, 'null'), g.policy->n.name)) AS value
    FROM given g, (VALUES ('base_s', 'base_seconds'), ('cap_s', 'cap_seconds'), ('multiplier', 'multiplier'))
        AS n(name, agent_name)
), known AS (
    SELECT name, CASE WHEN jsonb_typeof(value) = 'number' THEN value::float8 END AS value FROM figure
)
SELECT least(coalesce((SELECT value FROM known WHERE name = 'cap_s'), 300),
             coalesce((SELECT value FROM known WHERE name = 'base_s'), 1)
             * power(coalesce((SELECT value FROM known WHERE name = 'multiplier'), 2), retry_count)) $$;
COMMENT ON FUNCTION cortex.backoff_s IS
    'The longest pause, in seconds, before an application retry of a job after this many: by the policy that it '
    'started with, or that of its agent.';
