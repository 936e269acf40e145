-- 0023 dead acts: what a person does to many dead letters at once goes on without them, in batches, by the pods.
--
-- Locks: none that matter. Old pods: may keep running; they work none of these acts off.

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
    'What a person asked for of many dead letters at once. Pods work it off; its progress is written with the letters.';
COMMENT ON COLUMN cortex.dead_act.id IS 'Its number, by which people name it.';
COMMENT ON COLUMN cortex.dead_act.token IS 'By which asking twice begins one act.';
COMMENT ON COLUMN cortex.dead_act.verb IS 'What becomes of the letters.';
COMMENT ON COLUMN cortex.dead_act.state IS
    'RUNNING: pods are at it, or will be · PAUSED: by a person · DONE: each letter had its turn · ENDED: by a person, before that.';
COMMENT ON COLUMN cortex.dead_act.which IS 'How the letters were chosen, as one types it; for people only.';
COMMENT ON COLUMN cortex.dead_act.agent_version IS 'Of the new jobs'' agents; null: the same, 0: the newest.';
COMMENT ON COLUMN cortex.dead_act.from_start IS 'The new jobs are given no steps.';
COMMENT ON COLUMN cortex.dead_act.rate_per_s IS 'So many letters a second at most, across all pods.';
COMMENT ON COLUMN cortex.dead_act.asked_by IS 'Who asked; the letters are settled in this name.';
COMMENT ON COLUMN cortex.dead_act.reason IS 'Why; kept with each letter.';
COMMENT ON COLUMN cortex.dead_act.letter_count IS 'Letters that it was begun for: they are fixed.';
COMMENT ON COLUMN cortex.dead_act.done_count IS 'Letters that it has settled.';
COMMENT ON COLUMN cortex.dead_act.failed_count IS 'Letters that it could not settle; they say why.';
COMMENT ON COLUMN cortex.dead_act.batch_max IS
    'Letters of the next batch at most: halved when a batch takes too long or is refused, then grown again.';
COMMENT ON COLUMN cortex.dead_act.due_at IS 'When its next batch is due.';
COMMENT ON COLUMN cortex.dead_act.created_at IS 'When it was begun.';
COMMENT ON COLUMN cortex.dead_act.changed_by IS 'Who paused it, let it go on or ended it last.';
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
    'The letters of each act, in their order: as many of the first ones had their turn as the act has counted.';
COMMENT ON COLUMN cortex.dead_act_letter.act_id IS 'The act.';
COMMENT ON COLUMN cortex.dead_act_letter.nth IS 'Its place, from 1.';
COMMENT ON COLUMN cortex.dead_act_letter.job_id IS 'The failed job.';
COMMENT ON COLUMN cortex.dead_act_letter.error_code IS 'Code of the error.';
COMMENT ON COLUMN cortex.dead_act_letter.error IS 'Why it was not settled; null: it was, or had no turn yet.';

CREATE INDEX dead_act_letter_failed ON cortex.dead_act_letter (act_id, nth) WHERE error IS NOT NULL;

GRANT SELECT, INSERT, DELETE ON cortex.dead_act, cortex.dead_act_letter TO cortex_runtime;
GRANT UPDATE (state, done_count, failed_count, batch_max, due_at, changed_by, changed_at, change_reason, ended_at)
    ON cortex.dead_act TO cortex_runtime;
GRANT UPDATE (error_code, error) ON cortex.dead_act_letter TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.dead_act, cortex.dead_act_letter TO cortex_reader;
    END IF;
END $$;
