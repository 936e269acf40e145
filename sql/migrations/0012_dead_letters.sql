-- Dead letters: one row for each failed job, and people's bulk operations on many of them.

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
    RETURN (
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
            OR asked.count = 0 AND m.output->>'stop_reason' NOT IN ('end_turn', 'stop_sequence')));
COMMENT ON FUNCTION cortex.steps_kept IS
    'The number of steps that a retry of a failed job keeps when the last model response is why it failed: those '
    'before that response. Null: all.';

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
        (resolved_at IS NOT NULL) = (state IN ('RETRIED', 'DISCARDED', 'ARCHIVED'))
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
    'DISCARDED: a person gave it up · ARCHIVED: no retry could read it.';
COMMENT ON COLUMN cortex.dead_letter.created_at IS 'When the job failed.';
COMMENT ON COLUMN cortex.dead_letter.triaged_at IS 'When the triage handled it: if still OPEN, it waits for a person.';
COMMENT ON COLUMN cortex.dead_letter.resolved_at IS 'When it was retried, discarded or archived.';
COMMENT ON COLUMN cortex.dead_letter.resolved_by IS 'By whom.';
COMMENT ON COLUMN cortex.dead_letter.reason IS 'Why it was resolved or escalated.';
COMMENT ON COLUMN cortex.dead_letter.retried_as IS 'The job that continues it.';
COMMENT ON COLUMN cortex.dead_letter.is_automatic IS 'The triage retried it, which happens once per lineage.';
CREATE INDEX dead_letter_newest ON cortex.dead_letter (created_at, job_id);
CREATE INDEX dead_letter_unresolved ON cortex.dead_letter (created_at, job_id) WHERE state IN ('OPEN', 'ESCALATED');
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
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letter_of_failure AFTER UPDATE OF status ON cortex.job
    FOR EACH ROW WHEN (NEW.status = 'FAILED' AND OLD.status <> 'FAILED')
    EXECUTE FUNCTION cortex.dead_letter_of_failure();

REVOKE EXECUTE ON FUNCTION cortex.dead_letter_of_failure() FROM PUBLIC;

CREATE FUNCTION cortex.backoff_s(of_type text, config_id int, agent_id uuid, agent_version int, retry_count int)
    RETURNS float8 LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
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

-- ------------------------------------------------------------------ bulk operations

CREATE TABLE cortex.dead_act (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token uuid NOT NULL UNIQUE,
    verb text NOT NULL CHECK (verb IN ('RETRY', 'DISCARD')),
    state text NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'PAUSED', 'DONE', 'ENDED')),
    which text NOT NULL CHECK (length(which) <= 2000),
    agent_version int,
    from_start boolean NOT NULL DEFAULT false,
    rate_per_s float8 NOT NULL CHECK (rate_per_s > 0 AND rate_per_s <= 1e6),
    asked_by text NOT NULL CHECK (length(asked_by) BETWEEN 1 AND 200),
    reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 500),
    letter_count int NOT NULL CHECK (letter_count > 0),
    done_count int NOT NULL DEFAULT 0 CHECK (done_count >= 0),
    failed_count int NOT NULL DEFAULT 0 CHECK (failed_count >= 0),
    batch_max int NOT NULL CHECK (batch_max > 0),
    due_at timestamptz NOT NULL DEFAULT cortex.now(),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    changed_by text CHECK (length(changed_by) BETWEEN 1 AND 200),
    changed_at timestamptz,
    change_reason text CHECK (length(change_reason) <= 500),
    ended_at timestamptz,
    CONSTRAINT ended_at_only_when_over CHECK ((ended_at IS NOT NULL) = (state IN ('DONE', 'ENDED'))),
    CONSTRAINT changed_by_somebody CHECK (
        (changed_by IS NULL) = (changed_at IS NULL) AND (change_reason IS NULL) = (changed_at IS NULL)),
    CONSTRAINT done_when_all_are CHECK (
        done_count + failed_count <= letter_count AND (state = 'DONE') = (done_count + failed_count = letter_count)),
    CONSTRAINT version_only_of_a_retry CHECK (verb = 'RETRY' OR (agent_version IS NULL AND NOT from_start))
);
COMMENT ON TABLE cortex.dead_act IS
    'A person''s bulk operation on many dead letters. Pods process it; its progress is written together with the dead '
    'letters.';
COMMENT ON COLUMN cortex.dead_act.id IS 'Its number, which people use to name it.';
COMMENT ON COLUMN cortex.dead_act.token IS 'Makes requests repeatable: the same token starts one operation.';
COMMENT ON COLUMN cortex.dead_act.verb IS 'What happens to the dead letters.';
COMMENT ON COLUMN cortex.dead_act.state IS
    'RUNNING: pods process it, or will · PAUSED: by a person · DONE: each dead letter was processed · ENDED: by a '
    'person, before that.';
COMMENT ON COLUMN cortex.dead_act.which IS 'How the dead letters were selected, as typed; for people only.';
COMMENT ON COLUMN cortex.dead_act.agent_version IS 'Of the new jobs'' agents; null: the same, 0: the newest.';
COMMENT ON COLUMN cortex.dead_act.from_start IS 'The new jobs get no steps.';
COMMENT ON COLUMN cortex.dead_act.rate_per_s IS 'At most this many dead letters per second, across all pods.';
COMMENT ON COLUMN cortex.dead_act.asked_by IS 'Who requested it; recorded with the dead letters.';
COMMENT ON COLUMN cortex.dead_act.reason IS 'Why; kept with each dead letter.';
COMMENT ON COLUMN cortex.dead_act.letter_count IS 'Number of dead letters that it was started for; it never changes.';
COMMENT ON COLUMN cortex.dead_act.done_count IS 'Dead letters that it has settled.';
COMMENT ON COLUMN cortex.dead_act.failed_count IS 'Dead letters that it could not settle; their rows say why.';
COMMENT ON COLUMN cortex.dead_act.batch_max IS
    'Most dead letters of the next batch: halved when a batch takes too long or is refused, then increased again.';
COMMENT ON COLUMN cortex.dead_act.due_at IS 'When its next batch is due.';
COMMENT ON COLUMN cortex.dead_act.created_at IS 'When it was started.';
COMMENT ON COLUMN cortex.dead_act.changed_by IS 'Who last paused, resumed or ended it.';
COMMENT ON COLUMN cortex.dead_act.changed_at IS 'When.';
COMMENT ON COLUMN cortex.dead_act.change_reason IS 'Why; may be empty.';
COMMENT ON COLUMN cortex.dead_act.ended_at IS 'When it was done, or ended.';
CREATE INDEX dead_act_due ON cortex.dead_act (due_at, id) WHERE state = 'RUNNING';
CREATE INDEX dead_act_newest ON cortex.dead_act ((ended_at IS NOT NULL), id DESC);
CREATE INDEX dead_act_ended ON cortex.dead_act (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE cortex.dead_act_letter (
    act_id bigint NOT NULL REFERENCES cortex.dead_act (id) ON DELETE CASCADE,
    nth int NOT NULL CHECK (nth > 0),
    job_id uuid NOT NULL,
    error_code text,
    error text CHECK (length(error) <= 1000),
    PRIMARY KEY (act_id, nth),
    CONSTRAINT error_is_whole CHECK ((error IS NULL) = (error_code IS NULL))
);
COMMENT ON TABLE cortex.dead_act_letter IS
    'The dead letters of each operation, in order: those up to the operation''s counters have been processed.';
COMMENT ON COLUMN cortex.dead_act_letter.act_id IS 'The bulk operation.';
COMMENT ON COLUMN cortex.dead_act_letter.nth IS 'Its position, from 1.';
COMMENT ON COLUMN cortex.dead_act_letter.job_id IS 'The failed job.';
COMMENT ON COLUMN cortex.dead_act_letter.error_code IS 'Code of the error.';
COMMENT ON COLUMN cortex.dead_act_letter.error IS 'Why it was not settled; null: it was, or was not processed yet.';
CREATE INDEX dead_act_letter_failed ON cortex.dead_act_letter (act_id, nth) WHERE error IS NOT NULL;

GRANT SELECT, INSERT, DELETE ON cortex.dead_act, cortex.dead_act_letter TO cortex_runtime;
GRANT UPDATE (state, done_count, failed_count, batch_max, due_at, changed_by, changed_at, change_reason, ended_at)
    ON cortex.dead_act TO cortex_runtime;
GRANT UPDATE (error_code, error) ON cortex.dead_act_letter TO cortex_runtime;
