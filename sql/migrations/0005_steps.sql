-- Steps: the append-only checkpoints that a resumed job replays.

CREATE TABLE cortex.job_step (
    job_id uuid NOT NULL,
    seq int NOT NULL CHECK (seq >= 1),
    attempt int NOT NULL,
    kind text NOT NULL
        CHECK (kind IN ('step', 'model', 'tool', 'effect', 'approval', 'message', 'patch', 'emit', 'child', 'first')),
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
    digest bytea NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    cost_usd numeric(18, 8),
    usage jsonb,
    output json,
    input text,
    amid text CHECK (amid IN ('error', 'failure')),
    parent_key text,
    PRIMARY KEY (job_id, seq),
    CONSTRAINT job_step_key_once UNIQUE (job_id, key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.job_step IS 'Committed steps, append-only: the checkpoints that a resumed job replays.';
COMMENT ON COLUMN cortex.job_step.job_id IS 'The job.';
COMMENT ON COLUMN cortex.job_step.seq IS 'Order of commit within the job: 1, 2, 3 … without gaps.';
COMMENT ON COLUMN cortex.job_step.attempt IS 'The attempt that committed it.';
COMMENT ON COLUMN cortex.job_step.kind IS
    'step: the job''s own function · model: a model response · tool: a tool call · effect: the job''s own call with '
    'an outside result · approval: a decision · message: a message that it published '
    '· patch: which branch of a change to its code it takes · emit: a chunk of output for those who follow the job '
    '· child: jobs that it submitted, or how they ended · first: which of several waits ended first.';
COMMENT ON COLUMN cortex.job_step.key IS 'Its name in the job''s code; unique within the job.';
COMMENT ON COLUMN cortex.job_step.digest IS 'Digest of its input: a replay with another input has diverged.';
COMMENT ON COLUMN cortex.job_step.started_at IS 'When it began.';
COMMENT ON COLUMN cortex.job_step.finished_at IS 'When it was committed.';
COMMENT ON COLUMN cortex.job_step.cost_usd IS 'Its cost in US dollars; null when zero or when the price is unknown.';
COMMENT ON COLUMN cortex.job_step.usage IS 'Tokens: input, output, cache read, cache write.';
COMMENT ON COLUMN cortex.job_step.output IS
    'Its return value; json rather than jsonb, which would change numbers: a replay must see the same.';
COMMENT ON COLUMN cortex.job_step.input IS
    'Its input as JSON: secrets redacted, at most 4 KiB. Shows what changed when a replay diverges.';
COMMENT ON COLUMN cortex.job_step.amid IS
    'error: called while an exception was being handled · failure: called after a step of its attempt had failed. A '
    'replay may skip it.';
COMMENT ON COLUMN cortex.job_step.parent_key IS
    'Key of the step whose function called it; null: the handler did. A replay that finds the parent recorded skips '
    'it.';
-- `cortex patches` looks at the jobs that are not over; other steps have no entry in it.
CREATE INDEX job_step_patch ON cortex.job_step (job_id) WHERE kind = 'patch';
CREATE TRIGGER job_step_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.job_step
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

GRANT SELECT, INSERT ON cortex.job_step TO cortex_runtime;

-- Files of prompts and tool results: steps refer to them by their digest. Once for a lineage of jobs, whose steps its later
-- jobs share; deleted with it. No foreign key: as of steps, and a pod that has lost the job can only add what nothing
-- refers to.
CREATE TABLE cortex.job_file (
    job_id uuid NOT NULL,
    sha256 bytea NOT NULL CHECK (length(sha256) = 32),
    media_type text NOT NULL CHECK (length(media_type) BETWEEN 1 AND 100),
    size int NOT NULL CHECK (size BETWEEN 1 AND 33554432),
    kept_at timestamptz NOT NULL DEFAULT cortex.now(),
    content bytea NOT NULL,
    PRIMARY KEY (job_id, sha256),
    CONSTRAINT size_is_that_of_the_content CHECK (size = length(content))
);
-- Images and PDFs are compressed already.
ALTER TABLE cortex.job_file ALTER content SET STORAGE EXTERNAL;
COMMENT ON TABLE cortex.job_file IS 'Images and PDFs of prompts and tool results, by digest: steps only refer to them.';
COMMENT ON COLUMN cortex.job_file.job_id IS 'The first job of the lineage.';
COMMENT ON COLUMN cortex.job_file.sha256 IS 'Digest of the content, by which steps refer to it.';
COMMENT ON COLUMN cortex.job_file.media_type IS 'Its type, by its content.';
COMMENT ON COLUMN cortex.job_file.size IS 'Its size in bytes.';
COMMENT ON COLUMN cortex.job_file.kept_at IS 'When it was first kept.';
COMMENT ON COLUMN cortex.job_file.content IS 'The file itself.';
CREATE TRIGGER job_file_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cortex.job_file
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.refuse_change('unless retention');

GRANT SELECT, INSERT ON cortex.job_file TO cortex_runtime;

-- What code of jobs shows of them while they run.
-- Its changes come from running jobs several times a second: they stay in the page and leave the index alone.
CREATE TABLE cortex.job_published (
    job_id uuid PRIMARY KEY,
    attempt int NOT NULL,
    number int NOT NULL,
    state jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(state) = 'object'),
    done float8,
    total float8,
    unit text CHECK (length(unit) <= 40),
    counts jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(counts) = 'object'),
    at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT progress_is_whole CHECK (num_nonnulls(done, total, unit) IN (0, 3)),
    CONSTRAINT progress_has_a_total CHECK (done >= 0 AND done <= total AND total < 'Infinity')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cortex.job_published IS 'The state and the progress that code of jobs publishes: a row for each job that has.';
COMMENT ON COLUMN cortex.job_published.job_id IS 'The job. No foreign key: as of steps.';
COMMENT ON COLUMN cortex.job_published.attempt IS 'The attempt that published last; an earlier one changes nothing any more.';
COMMENT ON COLUMN cortex.job_published.number IS 'Its last change: 1, 2, 3 … within the attempt.';
COMMENT ON COLUMN cortex.job_published.state IS 'Values by key.';
COMMENT ON COLUMN cortex.job_published.done IS 'How much of the total is done; null: its code has said nothing about that.';
COMMENT ON COLUMN cortex.job_published.total IS 'How much there is to do.';
COMMENT ON COLUMN cortex.job_published.unit IS 'What is counted, such as pages; may be empty.';
COMMENT ON COLUMN cortex.job_published.counts IS
    'How often its handler had assigned each key, deleted ones too; the empty one stands for the progress. By this a replay '
    'knows what is new.';
COMMENT ON COLUMN cortex.job_published.at IS 'When it was last changed.';

GRANT SELECT, INSERT, UPDATE ON cortex.job_published TO cortex_runtime;

CREATE FUNCTION cortex.progress_of(of_job uuid) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_build_object('done', p.done, 'total', p.total, 'unit', p.unit)
FROM cortex.job_published p WHERE p.job_id = of_job AND p.done IS NOT NULL $$;
COMMENT ON FUNCTION cortex.progress_of IS 'How far a job has come; null: its code has said nothing about that.';
