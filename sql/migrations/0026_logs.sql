-- Log lines of jobs: what their code logs and prints. Many, small, and written beside the commits.
--
-- No foreign key: a line may come after its job was deleted, from a thread that outlives it, and a check for each line
-- would cost more than the line. A line of an attempt that has lost its job is kept: it is true of that attempt.

CREATE TABLE cortex.log_line (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL,
    attempt int NOT NULL CHECK (attempt >= 1),
    number bigint NOT NULL CHECK (number >= 1),
    at timestamptz NOT NULL,
    level smallint NOT NULL CHECK (level IN (10, 20, 30, 40, 50)),
    step text,
    source text,
    message text NOT NULL CHECK (length(message) <= 9000),
    fields jsonb CHECK (pg_column_size(fields) <= 65536),
    dropped bigint CHECK (dropped >= 1),
    CONSTRAINT log_line_once UNIQUE (job_id, attempt, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,      -- the oldest go first, and a scan of their index begins there
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 1
);
COMMENT ON TABLE cortex.log_line IS 'What code of jobs logged and printed, line by line. Deleted with the job, and by age.';
COMMENT ON COLUMN cortex.log_line.id IS 'Order of arrival; with two pods, the later line may have the lower one.';
COMMENT ON COLUMN cortex.log_line.job_id IS 'The job. No foreign key: see above.';
COMMENT ON COLUMN cortex.log_line.attempt IS 'The attempt that wrote it.';
COMMENT ON COLUMN cortex.log_line.number IS 'Order within the attempt: a batch that is sent twice is stored once.';
COMMENT ON COLUMN cortex.log_line.at IS 'When it was written, by the database''s clock.';
COMMENT ON COLUMN cortex.log_line.level IS '10 debug, 20 info, 30 warning, 40 error, 50 critical.';
COMMENT ON COLUMN cortex.log_line.step IS 'Key of the step that wrote it; null: the handler itself.';
COMMENT ON COLUMN cortex.log_line.source IS 'The logger''s name, stdout or stderr; null: ctx.log.';
COMMENT ON COLUMN cortex.log_line.message IS 'The text, without secrets, cut if it was long.';
COMMENT ON COLUMN cortex.log_line.fields IS 'What was logged beside the text, by name.';
COMMENT ON COLUMN cortex.log_line.dropped IS 'Lines that are missing at this place; the message says why.';
-- Few lines are warnings: those of all jobs are found without reading the others.
CREATE INDEX log_line_trouble ON cortex.log_line (id) WHERE level >= 30;

GRANT SELECT, INSERT ON cortex.log_line TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.log_line TO cortex_reader;
    END IF;
END $$;

CREATE FUNCTION cortex.forget_lines(kept_s float8, most int) RETURNS int
    -- With the owner's rights: the role of pods cannot delete lines otherwise.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    old CONSTANT timestamptz := cortex.now() - greatest(kept_s, 60) * interval '1 second';
    deleted int;
BEGIN
    -- Mostly there is nothing to do: one line says so.
    IF NOT coalesce((SELECT l.at < old FROM cortex.log_line l ORDER BY l.id LIMIT 1), false) THEN
        RETURN 0;
    END IF;
    DELETE FROM cortex.log_line o USING (
        SELECT l.id, l.at FROM cortex.log_line l ORDER BY l.id LIMIT most) oldest
    WHERE o.id = oldest.id AND oldest.at < old;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;
COMMENT ON FUNCTION cortex.forget_lines IS
    'Deletes the oldest lines as far as they were written this long ago, at least a minute. Returns how many.';
REVOKE EXECUTE ON FUNCTION cortex.forget_lines(float8, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex.forget_lines(float8, int) TO cortex_runtime;
