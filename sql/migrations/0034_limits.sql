-- Limits of job types: how many of their jobs run at once, and how many begin in a span of time, for each key.
--
-- A task of a limited type is HELD until there is room for its keys in every limit of its type. Then it takes its places,
-- and keeps them until it is deleted: over attempts and deaths of pods, but not while its job sleeps, waits or has ended.
-- In a limit per time, a place lasts until the job begins; then that is counted, by the claim. So jobs that were let
-- through while no pod was free do not all begin at once, beyond the limit.
-- Whoever deletes a task frees its places in the same transaction, by the trigger below; nobody else does. So places are
-- neither freed early nor left behind. Only cortex_worker.admit takes places, in one process at a time.
-- Agents may have limits, too. All of them run as jobs of one type: their limits are declared for `agent:NAME`, and a job is
-- counted by those of its agent instead of its type, see cortex_worker.limited_as.

-- ------------------------------------------------------------------ what is declared

CREATE TABLE cortex.limited_type (
    type text PRIMARY KEY CHECK (length(type) BETWEEN 1 AND 100),
    spec jsonb NOT NULL,
    holds boolean NOT NULL,
    shape int NOT NULL DEFAULT 1,
    changed_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex.limited_type IS
    'Job types and agents with limits. The pod that registered last declares those of its types, and whoever applies an '
    'agent those of the agent. Few.';
COMMENT ON COLUMN cortex.limited_type.type IS 'The job type, or agent:NAME.';
COMMENT ON COLUMN cortex.limited_type.spec IS 'Its limits, in their order.';
COMMENT ON COLUMN cortex.limited_type.holds IS
    'Whether a limit decides when jobs begin; otherwise all of them concern the tokens of their calls.';
COMMENT ON COLUMN cortex.limited_type.shape IS 'Raised when the keys of its tasks have to be made anew.';
COMMENT ON COLUMN cortex.limited_type.changed_at IS 'When they were declared differently from before.';

CREATE TABLE cortex.job_limit (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type text NOT NULL REFERENCES cortex.limited_type ON DELETE CASCADE,
    place smallint NOT NULL CHECK (place BETWEEN 1 AND 10),
    unit text NOT NULL CHECK (unit IN ('running', 'jobs', 'tokens')),
    per text CHECK (per IN ('second', 'minute', 'hour', 'day')),
    key text CHECK (length(key) BETWEEN 1 AND 100),
    amount bigint NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000),
    name text GENERATED ALWAYS AS (
        type || ':' || unit || coalesce('/' || per, '') || coalesce(':' || key, '')) STORED UNIQUE,
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    CONSTRAINT rates_are_per_time CHECK ((unit = 'running') = (per IS NULL))
);
COMMENT ON TABLE cortex.job_limit IS 'Each limit of the job types and agents with limits.';
COMMENT ON COLUMN cortex.job_limit.id IS 'Its number.';
COMMENT ON COLUMN cortex.job_limit.type IS 'The job type, or agent:NAME.';
COMMENT ON COLUMN cortex.job_limit.place IS 'Its place among the limits of its type, from 1.';
COMMENT ON COLUMN cortex.job_limit.unit IS
    'running: jobs that have begun and not ended or begun to wait · jobs: jobs that begin · tokens: of calls of models.';
COMMENT ON COLUMN cortex.job_limit.per IS 'In which span of time, at any moment; null: at once.';
COMMENT ON COLUMN cortex.job_limit.key IS
    'What it is counted for: tenant, agent or queue of the job, or a path into its payload. Null: all jobs of the type together.';
COMMENT ON COLUMN cortex.job_limit.amount IS 'At most so many for one key.';
COMMENT ON COLUMN cortex.job_limit.name IS 'Its name for people and waiting jobs: digest:running:tenant, digest:jobs/minute:customer.';
COMMENT ON COLUMN cortex.job_limit.created_at IS 'When it was first declared.';
CREATE INDEX job_limit_type ON cortex.job_limit (type, place);

-- ------------------------------------------------------------------ what is taken

CREATE TABLE cortex_worker.limit_hold (
    job_id uuid NOT NULL,
    limit_id int NOT NULL REFERENCES cortex.job_limit ON DELETE CASCADE,
    key text NOT NULL COLLATE "C",
    taken_at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (job_id, limit_id)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
COMMENT ON TABLE cortex_worker.limit_hold IS
    'The places that jobs hold in limits of how many run at once, and until they begin, in limits per time. Each is deleted '
    'with the task of its job at the latest.';
COMMENT ON COLUMN cortex_worker.limit_hold.job_id IS 'The job.';
COMMENT ON COLUMN cortex_worker.limit_hold.limit_id IS 'The limit.';
COMMENT ON COLUMN cortex_worker.limit_hold.key IS 'Its key in that limit; empty: the limit has none, or the payload does not name it.';
COMMENT ON COLUMN cortex_worker.limit_hold.taken_at IS 'When it was let through.';
CREATE INDEX limit_hold_key ON cortex_worker.limit_hold (limit_id, key);

CREATE TABLE cortex_worker.limit_use (
    limit_id int NOT NULL REFERENCES cortex.job_limit ON DELETE CASCADE,
    key text NOT NULL COLLATE "C",
    began_at timestamptz NOT NULL,
    used bigint NOT NULL CHECK (used >= 0),
    PRIMARY KEY (limit_id, key, began_at)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE cortex_worker.limit_use IS
    'What was used of limits per time, in slices of a sixtieth of that time. A slice counts until all of it is older than that.';
COMMENT ON COLUMN cortex_worker.limit_use.limit_id IS 'The limit.';
COMMENT ON COLUMN cortex_worker.limit_use.key IS 'The key.';
COMMENT ON COLUMN cortex_worker.limit_use.began_at IS 'When the slice began.';
COMMENT ON COLUMN cortex_worker.limit_use.used IS 'Jobs that began in it, or tokens.';
CREATE INDEX limit_use_began ON cortex_worker.limit_use (began_at);

CREATE TABLE cortex_worker.limit_cursor (
    turn text[] COLLATE "C" PRIMARY KEY,
    served text[] COLLATE "C" NOT NULL,
    served_at timestamptz NOT NULL DEFAULT cortex.now()
);
COMMENT ON TABLE cortex_worker.limit_cursor IS
    'Whose turn it was last. Few rows: one for all keys, and one for each key with tasks that other keys tell apart.';
COMMENT ON COLUMN cortex_worker.limit_cursor.turn IS 'Type, shape and key that take turns; empty: which of these was last.';
COMMENT ON COLUMN cortex_worker.limit_cursor.served IS 'The one that was let through last.';
COMMENT ON COLUMN cortex_worker.limit_cursor.served_at IS 'When.';

-- Jobs that have begun go before the others of their keys.
CREATE INDEX task_held ON cortex_worker.task (
    limit_keys, (1 - least(attempt, 1)), priority, (coalesce(due_by, timestamptz 'infinity')), run_at, id)
    -- The trigger gives a new task its keys: until then it is in no index.
    WHERE state = 'HELD' AND limit_keys IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE
    ON cortex.limited_type, cortex.job_limit, cortex_worker.limit_hold, cortex_worker.limit_use, cortex_worker.limit_cursor
    TO cortex_runtime;

CREATE FUNCTION cortex_worker.span_of(per text) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE per WHEN 'second' THEN interval '1 second' WHEN 'minute' THEN interval '60 seconds'
                    WHEN 'hour' THEN interval '3600 seconds' ELSE interval '86400 seconds' END;
COMMENT ON FUNCTION cortex_worker.span_of IS 'The length of a span of time, without regard to time zones.';

CREATE FUNCTION cortex_worker.slice_at(per text, at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN date_bin(cortex_worker.span_of(per) / 60, at, timestamptz '2000-01-01 00:00:00Z');
COMMENT ON FUNCTION cortex_worker.slice_at IS 'When the slice of a limit per time began that contains an instant.';

CREATE FUNCTION cortex_worker.used_of(of_limit int, of_key text, per text) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT coalesce(sum(u.used), 0)::bigint FROM cortex_worker.limit_use u
            WHERE u.limit_id = of_limit AND u.key = of_key
              AND u.began_at > cortex.now() - cortex_worker.span_of(per) - cortex_worker.span_of(per) / 60);
COMMENT ON FUNCTION cortex_worker.used_of IS
    'What counts at this moment of a key of a limit per time: at least what was used in the span that ends now.';

CREATE FUNCTION cortex_worker.room_at(of_limit int, of_key text, per text) RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT min(u.began_at) + cortex_worker.span_of(per) + cortex_worker.span_of(per) / 60
            FROM cortex_worker.limit_use u
            WHERE u.limit_id = of_limit AND u.key = of_key AND u.used > 0
              AND u.began_at > cortex.now() - cortex_worker.span_of(per) - cortex_worker.span_of(per) / 60);
COMMENT ON FUNCTION cortex_worker.room_at IS 'When the oldest use of a key of a limit per time stops counting; null: there is none.';

-- ------------------------------------------------------------------ keys

CREATE FUNCTION cortex_worker.scalar_at(payload jsonb, path text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN jsonb_typeof(payload #> string_to_array(path, '.')) IN ('string', 'number', 'boolean')
                     AND length(payload #>> string_to_array(path, '.')) BETWEEN 1 AND 200
                THEN payload #>> string_to_array(path, '.') END;
COMMENT ON FUNCTION cortex_worker.scalar_at IS
    'A text, number or boolean of 1 to 200 characters at a dotted path; null: there is none.';

CREATE FUNCTION cortex_worker.limited_as(type text, agent text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN type = 'run_agent' AND agent IS NOT NULL THEN 'agent:' || agent ELSE type END;
COMMENT ON FUNCTION cortex_worker.limited_as IS
    'Whose limits count a job: its agent''s, if it runs an agent, else its type''s.';

-- Expressions without settings of their own: they become part of the statements that use them.
CREATE FUNCTION cortex_worker.limit_key(path text, payload jsonb, tenant text, agent text, queue text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE path
        WHEN 'tenant' THEN coalesce(tenant, 'default') WHEN 'agent' THEN agent WHEN 'queue' THEN queue
        ELSE cortex_worker.scalar_at(payload, CASE WHEN starts_with(path, 'payload.') THEN substr(path, 9) ELSE path END) END;
COMMENT ON FUNCTION cortex_worker.limit_key IS 'The key of a job in a limit; null: the job does not have it.';

CREATE FUNCTION cortex_worker.limit_keys(
    of_type text, shape int, payload jsonb, tenant text, agent text, queue text
) RETURNS text[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
-- Turns are taken by the first limit that has a key; a job without a key that was asked for later shares the empty one.
SELECT ARRAY[of_type, shape::text, coalesce((array_agg(k.key ORDER BY k.place) FILTER (WHERE k.path IS NOT NULL))[1], '')]
    || array_agg(k.key ORDER BY k.place)
FROM (SELECT l.place, l.key AS path,
             CASE WHEN l.key IS NULL THEN ''
                  ELSE coalesce(cortex_worker.limit_key(l.key, payload, tenant, agent, queue), '') END AS key
      FROM cortex.job_limit l WHERE l.type = of_type AND l.unit <> 'tokens') k $$;
COMMENT ON FUNCTION cortex_worker.limit_keys IS
    'What a task of a limited type has as its keys: the type and its shape, the key by which turns are taken, and the key in '
    'each of its limits that decide when jobs begin.';

CREATE FUNCTION cortex.refuse_without_limit_key(
    types text[], payloads jsonb[], agents text[], tenants text[], queue_names text[]
) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lacking record;
BEGIN
    SELECT s.type, l.key, l.name INTO lacking
    FROM (SELECT unnest(types) AS type, unnest(payloads) AS payload, unnest(agents) AS agent, unnest(tenants) AS tenant,
                 unnest(queue_names) AS queue_name) s
    JOIN cortex.job_limit l ON l.type = cortex_worker.limited_as(s.type, s.agent)
    -- The model of a call is known when it is made.
    WHERE l.key IS NOT NULL AND NOT (l.unit = 'tokens' AND l.key = 'model')
      AND cortex_worker.limit_key(l.key, s.payload, s.tenant, s.agent, s.queue_name) IS NULL
    LIMIT 1;
    IF FOUND AND lacking.key IN ('agent', 'queue') THEN
        RAISE EXCEPTION 'a job of type "%" must have % %: limit % counts by it', lacking.type,
            CASE lacking.key WHEN 'agent' THEN 'an' ELSE 'a' END, lacking.key, lacking.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_key', HINT = format('name its %s', lacking.key);
    ELSIF FOUND THEN
        RAISE EXCEPTION 'payload.% of job type "%" must be a text, number or boolean of 1 to 200 characters: limit % counts by it',
            CASE WHEN starts_with(lacking.key, 'payload.') THEN substr(lacking.key, 9) ELSE lacking.key END,
            lacking.type, lacking.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_key', HINT = 'add it to the payload';
    END IF;
END $$;
COMMENT ON FUNCTION cortex.refuse_without_limit_key IS
    'Refuses a batch with a job that lacks the key of a limit of its type.';

CREATE FUNCTION cortex_worker.hold_tasks(jobs uuid[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number int;
BEGIN
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM unnest(jobs) AS w(id) JOIN cortex_worker.task t ON t.job_id = w.id
        WHERE t.state <> 'LOCKED' AND t.is_admitted IS NOT TRUE
        ORDER BY t.job_id FOR UPDATE OF t
    ), keyed AS MATERIALIZED (
        SELECT k.job_id, ARRAY[k.type, k.shape::text, coalesce((array_agg(k.key ORDER BY k.place) FILTER (WHERE k.has_key))[1], '')]
               || array_agg(k.key ORDER BY k.place) AS keys
        FROM (SELECT task.job_id, l.type, l.shape, g.place, g.key IS NOT NULL AS has_key, CASE WHEN g.key IS NULL THEN '' ELSE
                     coalesce(cortex_worker.limit_key(g.key, j.payload, j.tenant, a.name, j.queue_name), '') END AS key
              FROM task JOIN cortex.job_record j ON j.id = task.job_id
              LEFT JOIN cortex.agent a ON a.id = j.agent_id
              JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
              JOIN cortex.job_limit g ON g.type = l.type AND g.unit <> 'tokens') k
        GROUP BY k.job_id, k.type, k.shape
    )
    UPDATE cortex_worker.task t
    SET is_admitted = false,
        state = CASE t.state WHEN 'READY' THEN 'HELD' WHEN 'STRANDED' THEN 'QUEUED' ELSE t.state END,
        limit_keys = k.keys
    FROM keyed k WHERE t.job_id = k.job_id AND t.state <> 'LOCKED';
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $$;
COMMENT ON FUNCTION cortex_worker.hold_tasks IS
    'Makes tasks of limited types wait for their limits, under their keys as they are now; those that have been let through '
    'are left alone. Returns how many.';

CREATE FUNCTION cortex_worker.hold_new_tasks() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    jobs uuid[];
    number int;
BEGIN
    IF NOT EXISTS (SELECT FROM cortex.limited_type WHERE holds) AND NOT EXISTS (SELECT FROM inserted WHERE NOT is_admitted)
    THEN
        RETURN NULL;
    END IF;
    -- The type is the first word of what a task is called.
    jobs := ARRAY(SELECT i.job_id FROM inserted i
                  WHERE NOT i.is_admitted OR EXISTS (
                      SELECT FROM cortex.limited_type l WHERE l.type = split_part(i.task, ' ', 1) AND l.holds)
                  OR split_part(i.task, ' ', 1) = 'run_agent' AND EXISTS (
                      SELECT FROM cortex.job_record j JOIN cortex.agent a ON a.id = j.agent_id
                      JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
                      WHERE j.id = i.job_id));
    IF jobs = '{}' THEN
        RETURN NULL;
    END IF;
    number := cortex_worker.hold_tasks(jobs);
    IF number > 0 THEN
        PERFORM pg_notify('cortex_limit', '');
    END IF;
    IF number < cardinality(jobs) THEN
        -- The limits were removed since the submit read them: nothing would let these through.
        UPDATE cortex_worker.task t
        SET is_admitted = NULL, state = CASE t.state WHEN 'HELD' THEN 'READY' ELSE t.state END
        WHERE t.job_id = ANY (jobs) AND NOT t.is_admitted AND t.limit_keys IS NULL;
        PERFORM pg_notify('cortex_task', 'ready');
    END IF;
    RETURN NULL;
END $$;
-- Whatever inserts tasks: submits, resumptions, retries of dead letters.
CREATE TRIGGER task_waits_for_limits AFTER INSERT ON cortex_worker.task
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION cortex_worker.hold_new_tasks();

CREATE FUNCTION cortex_worker.free_places() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM cortex_worker.limit_hold WHERE job_id = OLD.job_id;
    PERFORM pg_notify('cortex_limit', '');
    RETURN NULL;
END $$;
CREATE FUNCTION cortex_worker.count_begun(jobs uuid[]) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
WITH begun AS (
    DELETE FROM cortex_worker.limit_hold h USING cortex.job_limit l
    WHERE h.job_id = ANY (jobs) AND l.id = h.limit_id AND l.unit = 'jobs'
    RETURNING l.id, h.key, l.per
)
INSERT INTO cortex_worker.limit_use AS u (limit_id, key, began_at, used)
SELECT b.id, b.key, cortex_worker.slice_at(b.per, cortex.now()), count(*)
FROM begun b GROUP BY b.id, b.key, b.per
-- In this order, so that two claims do not deadlock.
ORDER BY b.id, b.key
ON CONFLICT ON CONSTRAINT limit_use_pkey DO UPDATE SET used = u.used + excluded.used $$;
COMMENT ON FUNCTION cortex_worker.count_begun IS
    'Counts jobs that begin in the limits per time that let them through. Called by the trigger of claims only.';

CREATE TRIGGER task_frees_places AFTER DELETE ON cortex_worker.task
    FOR EACH ROW WHEN (OLD.is_admitted) EXECUTE FUNCTION cortex_worker.free_places();

-- Another task may have become the head of the queue by then, and wait for the places of one behind it for ever.
CREATE FUNCTION cortex_worker.give_places_back() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_limited CONSTANT boolean := EXISTS (SELECT FROM cortex.limited_type l WHERE l.type = NEW.limit_keys[1] AND l.holds);
BEGIN
    UPDATE cortex_worker.task t
    SET is_admitted = CASE WHEN is_limited THEN false END, limit_keys = CASE WHEN is_limited THEN t.limit_keys END
    WHERE t.job_id = NEW.job_id AND t.is_admitted AND t.state IN ('QUEUED', 'STRANDED');
    DELETE FROM cortex_worker.limit_hold WHERE job_id = NEW.job_id;
    PERFORM pg_notify('cortex_limit', '');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION cortex_worker.give_places_back IS
    'A task that waits in its named queue again asks for its places again when it is at the head.';
CREATE TRIGGER task_gives_places_back AFTER UPDATE ON cortex_worker.task
    FOR EACH ROW WHEN (
        OLD.is_admitted AND NEW.is_admitted AND OLD.state IN ('READY', 'LOCKED') AND NEW.state IN ('QUEUED', 'STRANDED'))
    EXECUTE FUNCTION cortex_worker.give_places_back();

REVOKE EXECUTE ON FUNCTION cortex_worker.hold_new_tasks(), cortex_worker.free_places(), cortex_worker.give_places_back(),
    cortex_worker.count_begun FROM PUBLIC;

-- ------------------------------------------------------------------ letting through

CREATE FUNCTION cortex_worker.held_turns(after text[], upto text[], most int) RETURNS TABLE (turn text[])
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
-- Walks the keys by which turns are taken by index, one probe each. No text lies between K and K || chr(1).
WITH RECURSIVE walk AS (
    (SELECT t.limit_keys[1:3] AS turn FROM cortex_worker.task t
     WHERE t.state = 'HELD' AND t.limit_keys >= after COLLATE "C" ORDER BY t.limit_keys LIMIT 1)
    UNION ALL
    SELECT (SELECT t.limit_keys[1:3] FROM cortex_worker.task t
            WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[w.turn[1], w.turn[2], w.turn[3] || chr(1)] COLLATE "C"
            ORDER BY t.limit_keys LIMIT 1)
    FROM walk w WHERE w.turn IS NOT NULL AND (upto IS NULL OR w.turn <= upto COLLATE "C")
)
SELECT w.turn FROM walk w WHERE w.turn IS NOT NULL AND (upto IS NULL OR w.turn <= upto COLLATE "C") LIMIT most $$;
COMMENT ON FUNCTION cortex_worker.held_turns IS
    'The keys by which turns are taken that have waiting tasks, in their order, in a range.';

CREATE FUNCTION cortex_worker.held_lanes(turn text[], after text[], most int) RETURNS TABLE (keys text[], fresh int)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH RECURSIVE walk AS (
    (SELECT t.limit_keys AS keys, 1 - least(t.attempt, 1) AS fresh FROM cortex_worker.task t
     WHERE t.state = 'HELD' AND t.limit_keys >= coalesce(after, turn) COLLATE "C"
       AND t.limit_keys < ARRAY[turn[1], turn[2], turn[3] || chr(1)] COLLATE "C"
     ORDER BY t.limit_keys, 1 - least(t.attempt, 1) LIMIT 1)
    UNION ALL
    SELECT next.* FROM walk w CROSS JOIN LATERAL (
        SELECT t.limit_keys, 1 - least(t.attempt, 1) FROM cortex_worker.task t
        WHERE t.state = 'HELD' AND (t.limit_keys, 1 - least(t.attempt, 1)) > (w.keys COLLATE "C", w.fresh)
          AND t.limit_keys < ARRAY[turn[1], turn[2], turn[3] || chr(1)] COLLATE "C"
        ORDER BY t.limit_keys, 1 - least(t.attempt, 1) LIMIT 1) next
)
SELECT w.keys, w.fresh FROM walk w LIMIT most $$;
COMMENT ON FUNCTION cortex_worker.held_lanes IS
    'The different keys of the waiting tasks of one turn, in their order, after some keys: of jobs that have begun (0), and '
    'of the others (1).';

-- How a pass shares the room among the keys: round by round, one job for each key that takes turns and has room. In
-- memory, so that a round costs no statement. Entries are numbered; those of one turn are adjacent, and begin with the
-- jobs that have begun.
CREATE FUNCTION cortex_worker.share_room(
    turns int[], fresh int[], waiting int[], gates text[], INOUT rooms bigint[], budget int, is_cut boolean,
    OUT grants int[], OUT last_served int, OUT was_full boolean
)
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number CONSTANT int := cardinality(turns);
    at_start CONSTANT bigint[] := rooms;
    granted int := 0;
    before_round int;
    -- Where the others of a turn continue: those that were served in this pass wait for the rest.
    served int[] := array_fill(0, ARRAY[number]);
    round int := 0;
    entry int;
    best int;
    gate int;
    is_free boolean;
BEGIN
    grants := array_fill(0, ARRAY[number]);
    was_full := false;
    LOOP
        before_round := granted;
        round := round + 1;
        entry := 1;
        WHILE entry <= number AND granted < budget LOOP
            best := NULL;
            LOOP
                IF grants[entry] < waiting[entry] AND (best IS NULL OR fresh[best] = 1 AND served[entry] < served[best]) THEN
                    is_free := true;
                    FOREACH gate IN ARRAY gates[entry]::int[] LOOP
                        IF rooms[gate] <= 0 THEN
                            is_free := false;
                            was_full := was_full OR round = 1 AND at_start[gate] > 0;
                            EXIT;
                        END IF;
                    END LOOP;
                    IF is_free THEN
                        best := entry;
                    END IF;
                END IF;
                entry := entry + 1;
                EXIT WHEN entry > number OR turns[entry] <> turns[entry - 1];
            END LOOP;
            IF best IS NOT NULL THEN
                FOREACH gate IN ARRAY gates[best]::int[] LOOP
                    rooms[gate] := rooms[gate] - 1;
                END LOOP;
                grants[best] := grants[best] + 1;
                granted := granted + 1;
                served[best] := round;
                last_served := best;
            END IF;
        END LOOP;
        -- Where more keys wait than one pass looks at, each gets one before any gets two.
        EXIT WHEN granted = before_round OR granted >= budget OR is_cut;
    END LOOP;
END $$;
COMMENT ON FUNCTION cortex_worker.share_room IS
    'Shares the rooms of gates among entries, in turns: how many of each are let through, the room left, the entry that was '
    'served last, and whether an entry of the first round found a gate full that had room when the pass began.';

CREATE FUNCTION cortex_worker.admit(budget int) RETURNS TABLE (count int, is_skipped boolean, due_in_s float8)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    -- What one pass looks at: keys that take turns, and of each the keys by which its tasks differ.
    turns_max CONSTANT int := 500;
    lanes_max CONSTANT int := 200;
    paused_max CONSTANT int := 200;
    aside_max CONSTANT int := 5000;
    is_picky CONSTANT boolean := EXISTS (SELECT FROM cortex_worker.pause p WHERE p.kind IN ('tenant', 'job', 'queue'));
    latest text[] COLLATE "C" := (SELECT c.served FROM cortex_worker.limit_cursor c WHERE c.turn = '{}');
    seen record;
    shared record;
    stale uuid[];
    done int := 0;
    room_in_s float8;
    has_more boolean := false;
BEGIN
    IF NOT cortex.take_turn('limits') THEN
        RETURN QUERY SELECT 0, true, NULL::float8;
        RETURN;
    END IF;
    -- Without limits, a session does not even plan what follows: that takes 20 ms.
    IF NOT EXISTS (SELECT FROM cortex.limited_type l WHERE l.holds)
       AND NOT EXISTS (SELECT FROM cortex_worker.task t WHERE t.state = 'HELD' AND t.limit_keys IS NOT NULL) THEN
        RETURN QUERY SELECT 0, false, NULL::float8;
        RETURN;
    END IF;
    -- Tasks whose transaction had not seen yet that their type has limits, or other ones.
    stale := ARRAY(
        SELECT t.job_id FROM cortex.limited_type l CROSS JOIN LATERAL (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = l.type AND t.state = 'READY' AND NOT t.is_suspect AND t.is_admitted IS NULL LIMIT budget) t
        WHERE l.holds AND l.changed_at > cortex.now() - interval '1 hour'
        UNION ALL
        -- Those of agents among the first ones of all agents with the same tools: whatever comes later is seen before it begins.
        SELECT t.job_id FROM (
            SELECT 'run_agent' AS task UNION ALL SELECT s.task FROM cortex.tool_set s) kind CROSS JOIN LATERAL (
            SELECT t.job_id FROM cortex_worker.task t
            WHERE t.task = kind.task AND t.state = 'READY' AND NOT t.is_suspect AND t.is_admitted IS NULL
              AND EXISTS (SELECT FROM cortex.limited_type l WHERE starts_with(l.type, 'agent:') AND l.holds
                          AND l.changed_at > cortex.now() - interval '1 hour')
            ORDER BY t.priority, t.run_at, t.id LIMIT 1000) t
        JOIN cortex.job_record j ON j.id = t.job_id JOIN cortex.agent a ON a.id = j.agent_id
        JOIN cortex.limited_type l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.holds
        UNION ALL
        SELECT t.job_id FROM cortex.limited_type l CROSS JOIN LATERAL (
            (SELECT t.job_id FROM cortex_worker.task t
             WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[l.type] COLLATE "C"
               AND t.limit_keys < ARRAY[l.type, l.shape::text] COLLATE "C" LIMIT budget)
            UNION ALL
            (SELECT t.job_id FROM cortex_worker.task t
             WHERE t.state = 'HELD' AND t.limit_keys >= ARRAY[l.type, l.shape::text || chr(1)] COLLATE "C"
               AND t.limit_keys < ARRAY[l.type || chr(1)] COLLATE "C" LIMIT budget)) t
        WHERE l.holds
        LIMIT budget);
    IF stale <> '{}' THEN
        RETURN QUERY SELECT cortex_worker.hold_tasks(stale), false, 0::float8;
        RETURN;
    END IF;
    WITH turn AS MATERIALIZED (
        SELECT w.turn, row_number() OVER (ORDER BY w.part, w.turn)::int AS n FROM (
            SELECT 0 AS part, h.turn FROM cortex_worker.held_turns(
                CASE WHEN latest IS NULL THEN '{}' ELSE ARRAY[latest[1], latest[2], latest[3] || chr(1)] END, NULL, turns_max + 1) h
            UNION ALL
            SELECT 1, h.turn FROM cortex_worker.held_turns('{}', latest, turns_max + 1) h WHERE latest IS NOT NULL) w
        ORDER BY w.part, w.turn LIMIT turns_max + 1
    ), lane AS MATERIALIZED (
        SELECT t.n AS turn_no, t.turn, w.keys, w.fresh,
               row_number() OVER (ORDER BY t.n, w.fresh, w.part, w.keys)::int AS n,
               w.number > lanes_max AS is_cut, w.is_last
        FROM turn t LEFT JOIN cortex_worker.limit_cursor c ON c.turn = t.turn
        CROSS JOIN LATERAL (
            SELECT l.*, pg_catalog.count(*) OVER () AS number,
                   row_number() OVER (ORDER BY l.part DESC, l.keys DESC, l.fresh DESC) = 1 AS is_last
            FROM (SELECT 0 AS part, f.keys, f.fresh FROM cortex_worker.held_lanes(
                      t.turn, CASE WHEN c.served IS NOT NULL THEN array_append(c.served, '') END, lanes_max + 1) f
                  UNION ALL
                  SELECT 1, f.keys, f.fresh FROM cortex_worker.held_lanes(t.turn, NULL, lanes_max + 1) f
                  WHERE c.served IS NOT NULL AND f.keys <= c.served COLLATE "C"
                  LIMIT lanes_max + 1) l) w
        WHERE t.n <= turns_max
    ), link AS MATERIALIZED (
        -- Gates are numbered, so that no join compares each with each.
        SELECT l.*, g.id, g.unit, g.per, g.amount, l.keys[3 + g.place] AS key,
               CASE WHEN g.id IS NOT NULL THEN dense_rank() OVER (ORDER BY g.id, l.keys[3 + g.place]) END AS gate
        FROM lane l LEFT JOIN cortex.job_limit g
            ON g.type = l.turn[1] AND g.unit <> 'tokens' AND (g.unit = 'running' OR l.fresh = 1)
    ), gate AS MATERIALIZED (
        SELECT g.gate AS n, g.id, g.key, g.per,
               g.amount - CASE g.unit WHEN 'running' THEN 0 ELSE cortex_worker.used_of(g.id, g.key, g.per) END - (
                   SELECT pg_catalog.count(*) FROM (
                       SELECT FROM cortex_worker.limit_hold h WHERE h.limit_id = g.id AND h.key = g.key LIMIT g.amount) h) AS room
        FROM (SELECT DISTINCT k.gate, k.id, k.key, k.unit, k.per, k.amount FROM link k WHERE k.gate IS NOT NULL) g
    ), room AS MATERIALIZED (
        SELECT coalesce(array_agg(g.room ORDER BY g.n), '{}') AS rooms, array_agg(g.id ORDER BY g.n) AS limit_ids,
               array_agg(g.key ORDER BY g.n) AS gate_keys, array_agg(g.per ORDER BY g.n) AS pers
        FROM gate g
    ), entry AS MATERIALIZED (
        SELECT l.n, l.turn_no, l.keys, l.fresh, l.is_cut, l.is_last, l.gates, l.room, CASE WHEN is_picky THEN (
                   -- What is paused takes no place: of the first ones of a key, so that a pass stays short.
                   SELECT pg_catalog.count(*) FROM (
                       SELECT t.job_id, t.queue_name FROM cortex_worker.task t
                       WHERE t.state = 'HELD' AND t.limit_keys = l.keys COLLATE "C" AND 1 - least(t.attempt, 1) = l.fresh
                         AND coalesce(l.room, 1) > 0
                       ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id LIMIT paused_max) t
                   WHERE cortex_worker.pause_of_task(t.job_id, t.queue_name) IS NULL) ELSE (
                   SELECT pg_catalog.count(*) FROM (
                       SELECT FROM cortex_worker.task t
                       WHERE t.state = 'HELD' AND t.limit_keys = l.keys COLLATE "C" AND 1 - least(t.attempt, 1) = l.fresh
                       LIMIT greatest(0, least(budget, l.room))) t) END::int AS waiting
        FROM (SELECT k.n, k.turn_no, k.keys, k.fresh, k.is_cut, k.is_last, array_remove(array_agg(k.gate), NULL) AS gates,
                     min(r.rooms[k.gate]) AS room
              FROM room r CROSS JOIN link k GROUP BY k.n, k.turn_no, k.keys, k.fresh, k.is_cut, k.is_last) l
    )
    SELECT array_agg(e.turn_no ORDER BY e.n) AS turns, array_agg(e.keys::text ORDER BY e.n) AS keys,
           array_agg(e.fresh ORDER BY e.n) AS fresh, array_agg(e.waiting ORDER BY e.n) AS waiting,
           array_agg(e.gates::text ORDER BY e.n) AS gates,
           array_agg(CASE WHEN e.is_cut AND e.is_last THEN e.n END) AS cut,
           array_agg(e.waiting = 0 AND coalesce(e.room, 1) > 0 ORDER BY e.n) AS blocked,
           (SELECT r.rooms FROM room r) AS rooms, (SELECT r.limit_ids FROM room r) AS limit_ids,
           (SELECT r.gate_keys FROM room r) AS gate_keys, (SELECT r.pers FROM room r) AS pers,
           (SELECT pg_catalog.count(*) > turns_max FROM turn) AS is_cut
    INTO seen FROM entry e;
    IF seen.keys IS NULL THEN
        RETURN QUERY SELECT 0, false, NULL::float8;
        RETURN;
    END IF;
    IF is_picky AND true = ANY (seen.blocked) THEN
        -- The others of their keys do not wait behind the many of a paused tenant or queue.
        WITH paused AS MATERIALIZED (
            SELECT t.job_id, cortex_worker.pause_of_task(t.job_id, t.queue_name) AS pause
            FROM unnest(seen.keys, seen.fresh, seen.blocked) AS b(keys, fresh, is_blocked) CROSS JOIN LATERAL (
                SELECT t.job_id, t.queue_name FROM cortex_worker.task t
                WHERE t.state = 'HELD' AND t.limit_keys = b.keys::text[] COLLATE "C" AND 1 - least(t.attempt, 1) = b.fresh
                ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id
                LIMIT aside_max FOR UPDATE SKIP LOCKED) t
            WHERE b.is_blocked LIMIT aside_max
        )
        UPDATE cortex_worker.task t SET state = 'PAUSED', pause = p.pause
        FROM paused p WHERE t.job_id = p.job_id AND t.state = 'HELD' AND p.pause IS NOT NULL;
        has_more := FOUND;
    END IF;
    SELECT * INTO shared FROM cortex_worker.share_room(
        seen.turns, seen.fresh, seen.waiting, seen.gates, seen.rooms, budget, seen.is_cut);
    IF shared.last_served IS NOT NULL THEN
        WITH chosen AS MATERIALIZED (
            SELECT t.job_id, g.keys::text[] AS keys, g.fresh
            FROM unnest(seen.keys, seen.fresh, shared.grants) AS g(keys, fresh, number) CROSS JOIN LATERAL (
                SELECT t.job_id FROM cortex_worker.task t
                WHERE t.state = 'HELD' AND t.limit_keys = g.keys::text[] COLLATE "C" AND 1 - least(t.attempt, 1) = g.fresh
                  AND (NOT is_picky OR cortex_worker.pause_of_task(t.job_id, t.queue_name) IS NULL)
                ORDER BY t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id
                LIMIT g.number FOR UPDATE SKIP LOCKED) t
            WHERE g.number > 0
        ), let_through AS (
            UPDATE cortex_worker.task t SET is_admitted = true, state = 'READY'
            FROM chosen c WHERE t.job_id = c.job_id AND t.state = 'HELD'
            RETURNING t.job_id, c.keys, c.fresh
        ), taken AS MATERIALIZED (
            SELECT a.job_id, a.fresh, l.id, l.unit, a.keys[3 + l.place] AS key
            FROM let_through a JOIN cortex.job_limit l ON l.type = a.keys[1] AND l.unit <> 'tokens'
        ), held AS (
            INSERT INTO cortex_worker.limit_hold (job_id, limit_id, key)
            -- In limits per time once for each job: one that has begun has been counted.
            SELECT k.job_id, k.id, k.key FROM taken k WHERE k.unit = 'running' OR k.fresh = 1
        ), hinted AS (
            SELECT pg_notify('cortex_task', 'ready') FROM (SELECT FROM let_through LIMIT 1) a
        )
        SELECT (SELECT pg_catalog.count(*)::int FROM let_through) FROM (SELECT pg_catalog.count(*) FROM hinted) h INTO done;
    END IF;
    PERFORM cortex_worker.note_turns(
        seen.turns, seen.keys, shared.grants, array_remove(seen.cut, NULL),
        CASE WHEN seen.is_cut AND NOT shared.was_full THEN cardinality(seen.turns) ELSE shared.last_served END);
    -- What has a place and has not begun may begin now, and counts from then on.
    SELECT extract(epoch FROM min(least(
        cortex_worker.room_at(g.id, g.key, g.per),
        cortex.now() + cortex_worker.span_of(g.per) + cortex_worker.span_of(g.per) / 60)) - cortex.now()) INTO room_in_s
    FROM unnest(seen.limit_ids, seen.gate_keys, seen.pers, shared.rooms) AS g(id, key, per, room)
    WHERE g.per IS NOT NULL AND g.room <= 0;
    RETURN QUERY SELECT done, false, CASE WHEN seen.is_cut OR has_more THEN 0 ELSE room_in_s END;
END $$;
COMMENT ON FUNCTION cortex_worker.admit IS
    'Lets waiting tasks of limited types through, up to a number, as far as all their limits have room, in turns between '
    'keys. Returns how many, whether another process does it just now, and in how many seconds to look again. Locks: its '
    'turn, the tasks (skipping locked).';

CREATE FUNCTION cortex_worker.note_turns(turns int[], keys text[], grants int[], cut int[], latest int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF latest IS NOT NULL THEN
        INSERT INTO cortex_worker.limit_cursor AS c (turn, served) VALUES ('{}', (keys[latest]::text[])[1:3])
        ON CONFLICT (turn) DO UPDATE SET served = excluded.served, served_at = cortex.now();
    END IF;
    -- Within a turn: of those with several keys, the last one served, or looked at where there are more.
    INSERT INTO cortex_worker.limit_cursor AS c (turn, served)
    SELECT DISTINCT ON (w.turn_no) w.keys[1:3], w.keys
    FROM (SELECT e.turn_no, e.keys::text[] AS keys, e.n, e.n = ANY (cut) AS is_cut, e.granted,
                 count(*) OVER (PARTITION BY e.turn_no) AS number
          FROM unnest(turns, keys, grants) WITH ORDINALITY AS e(turn_no, keys, granted, n)) w
    WHERE w.number > 1 AND (w.granted > 0 OR w.is_cut)
    ORDER BY w.turn_no, w.granted > 0 DESC, w.n DESC
    ON CONFLICT (turn) DO UPDATE SET served = excluded.served, served_at = cortex.now();
END $$;
COMMENT ON FUNCTION cortex_worker.note_turns IS 'Notes whose turn it was last, of entries as they are in share_room.';

-- ------------------------------------------------------------------ explaining

CREATE FUNCTION cortex.line_of(task cortex_worker.task, most bigint) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
SELECT jsonb_build_object(
    'ahead', (SELECT count(*) FROM (
        SELECT FROM cortex_worker.task t
        WHERE t.state = 'HELD' AND t.limit_keys = task.limit_keys
          AND (1 - least(t.attempt, 1), t.priority, coalesce(t.due_by, timestamptz 'infinity'), t.run_at, t.id)
              < (1 - least(task.attempt, 1), task.priority, coalesce(task.due_by, timestamptz 'infinity'), task.run_at,
                 task.id) LIMIT most) t),
    'waiting', (SELECT count(*) FROM (
        SELECT FROM cortex_worker.task t WHERE t.state = 'HELD' AND t.limit_keys = task.limit_keys LIMIT most) t),
    'limits', (SELECT jsonb_agg(jsonb_build_object(
            'name', l.name, 'key', l.key, 'value', l.value, 'unit', l.unit, 'per', l.per, 'amount', l.amount,
            'used', CASE l.unit WHEN 'running' THEN 0 ELSE cortex_worker.used_of(l.id, l.value, l.per) END
                    + (SELECT count(*) FROM cortex_worker.limit_hold h WHERE h.limit_id = l.id AND h.key = l.value),
            'room_at', CASE WHEN l.unit <> 'running' THEN cortex_worker.room_at(l.id, l.value, l.per) END) ORDER BY l.place)
        FROM (SELECT l.*, task.limit_keys[3 + l.place] AS value FROM cortex.job_limit l
              WHERE l.type = task.limit_keys[1] AND l.unit <> 'tokens' AND (l.unit = 'running' OR task.attempt = 0)) l))
WHERE task.state = 'HELD' $$;
COMMENT ON FUNCTION cortex.line_of IS
    'Where a task stands among those of its keys, counted up to a bound, and the limits that it waits for. Null: it does not.';

-- ------------------------------------------------------------------ tokens

CREATE FUNCTION cortex_worker.ask_for_tokens(
    of_job uuid, of_model text, tokens bigint,
    OUT refused text, OUT key text, OUT used bigint, OUT amount bigint, OUT wait_s float8, OUT ids int[], OUT keys text[]
)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked record;
BEGIN
    FOR asked IN
        SELECT l.id, l.name, l.per, l.amount,
               CASE WHEN l.key = 'model' THEN of_model
                    ELSE coalesce(cortex_worker.limit_key(l.key, j.payload, j.tenant, a.name, j.queue_name), '') END AS key
        FROM cortex.job_record j LEFT JOIN cortex.agent a ON a.id = j.agent_id
        JOIN cortex.job_limit l ON l.type = cortex_worker.limited_as(j.type, a.name) AND l.unit = 'tokens'
        WHERE j.id = of_job ORDER BY l.id
    LOOP
        -- One call at a time asks for a key, to the end of its transaction: those at once would not see each other's room.
        PERFORM pg_advisory_xact_lock(hashtextextended(format('cortex.job_limit %s %s', asked.id, asked.key), 0));
        used := cortex_worker.used_of(asked.id, asked.key, asked.per);
        -- If nothing counts, a call may begin that is larger than the limit: it could never begin otherwise.
        IF used > 0 AND used + tokens > asked.amount THEN
            refused := asked.name;
            key := asked.key;
            amount := asked.amount;
            wait_s := extract(epoch FROM cortex_worker.room_at(asked.id, asked.key, asked.per) - cortex.now());
            RETURN;
        END IF;
        ids := ids || asked.id;
        keys := keys || asked.key;
    END LOOP;
    -- What settling returns goes back into this slice.
    INSERT INTO cortex_worker.limit_use AS u (limit_id, key, began_at, used)
    SELECT l.id, n.key, cortex_worker.slice_at(l.per, cortex.now()), tokens
    FROM unnest(ids, keys) AS n(id, key) JOIN cortex.job_limit l ON l.id = n.id ORDER BY l.id
    ON CONFLICT ON CONSTRAINT limit_use_pkey DO UPDATE SET used = u.used + excluded.used;
END $$;
COMMENT ON FUNCTION cortex_worker.ask_for_tokens IS
    'Takes room for the tokens of a call from all limits of its job''s type, or from none and returns the limit without room, '
    'and in how many seconds the oldest of what counts there stops counting.';

-- ------------------------------------------------------------------ declaring

CREATE FUNCTION cortex.declare_limits(types text[], specs jsonb[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared record;
    number int := 0;
BEGIN
    FOR declared IN
        SELECT w.type, w.spec, w.spec <> '[]' AS has_any, l.type IS NOT NULL AS is_known
        FROM unnest(types, specs) AS w(type, spec) LEFT JOIN cortex.limited_type l ON l.type = w.type
        WHERE coalesce(l.spec, '[]') <> w.spec ORDER BY w.type
    LOOP
        -- Nothing is let through meanwhile. Two pods that declare at the same time do it one after the other.
        PERFORM FROM cortex.runner_turn t WHERE t.name = 'limits' FOR NO KEY UPDATE;
        PERFORM cortex_worker.set_limits(declared.type, declared.spec);
        number := number + 1;
    END LOOP;
    IF number > 0 THEN
        PERFORM pg_notify('cortex_limit', ''), pg_notify('cortex_task', 'ready');
    END IF;
    RETURN number;
END $$;
COMMENT ON FUNCTION cortex.declare_limits IS
    'Sets the limits of job types as a pod declares them, or of agents (agent:NAME): an array of objects with unit, per, key and amount for each type. '
    'What was declared last holds, for waiting jobs, too. Returns how many types changed.';

CREATE FUNCTION cortex_worker.set_limits(of_type text, wanted jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    are_held CONSTANT boolean := EXISTS (SELECT FROM jsonb_array_elements(wanted) AS w(l) WHERE w.l->>'unit' <> 'tokens');
    before_keys text[];
    after_keys text[];
BEGIN
    SELECT array_agg(l.name ORDER BY l.place) FILTER (WHERE l.unit <> 'tokens') INTO before_keys
    FROM cortex.job_limit l WHERE l.type = of_type;
    IF EXISTS (
        SELECT FROM cortex.job_limit l WHERE l.type = of_type AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(wanted) AS w(l)
            WHERE w.l->>'unit' = l.unit AND w.l->>'per' IS NOT DISTINCT FROM l.per AND w.l->>'key' IS NOT DISTINCT FROM l.key))
    THEN
        -- Whoever ends or begins a job has its task, and then writes its places: those go with their limit.
        PERFORM FROM cortex_worker.task t
        WHERE t.is_admitted AND t.limit_keys[1] = of_type ORDER BY t.job_id FOR UPDATE;
    END IF;
    INSERT INTO cortex.limited_type AS t (type, spec, holds) VALUES (of_type, wanted, are_held)
    ON CONFLICT (type) DO UPDATE SET spec = excluded.spec, holds = excluded.holds, changed_at = cortex.now();
    WITH declared AS MATERIALIZED (
        SELECT w.l->>'unit' AS unit, w.l->>'per' AS per, w.l->>'key' AS key, (w.l->>'amount')::bigint AS amount,
               row_number() OVER (ORDER BY w.l->>'unit' = 'tokens', w.n) AS place
        FROM jsonb_array_elements(wanted) WITH ORDINALITY AS w(l, n)
    ), gone AS (
        -- With its places and its usage.
        DELETE FROM cortex.job_limit l
        WHERE l.type = of_type AND NOT EXISTS (
            SELECT FROM declared d
            WHERE d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per AND d.key IS NOT DISTINCT FROM l.key)
    ), kept AS (
        UPDATE cortex.job_limit l SET amount = d.amount, place = d.place FROM declared d
        WHERE l.type = of_type AND d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per
          AND d.key IS NOT DISTINCT FROM l.key
        RETURNING l.name
    )
    INSERT INTO cortex.job_limit (type, place, unit, per, key, amount)
    SELECT of_type, d.place, d.unit, d.per, d.key, d.amount FROM declared d
    WHERE NOT EXISTS (SELECT FROM cortex.job_limit l
                      WHERE l.type = of_type AND d.unit = l.unit AND d.per IS NOT DISTINCT FROM l.per
                        AND d.key IS NOT DISTINCT FROM l.key)
    ORDER BY d.place;
    SELECT array_agg(l.name ORDER BY l.place) FILTER (WHERE l.unit <> 'tokens') INTO after_keys
    FROM cortex.job_limit l WHERE l.type = of_type;
    IF after_keys IS DISTINCT FROM before_keys THEN
        UPDATE cortex.limited_type t SET shape = t.shape + 1 WHERE t.type = of_type;
        IF are_held THEN
            PERFORM cortex_worker.take_in(of_type);
        ELSE
            PERFORM cortex_worker.let_all_go(of_type);
        END IF;
    END IF;
    DELETE FROM cortex.limited_type t WHERE t.type = of_type AND t.spec = '[]';
END $$;
COMMENT ON FUNCTION cortex_worker.set_limits IS
    'Sets the limits of one job type or agent; the caller has the turn of limits. A limit whose amount alone changes keeps its places '
    'and its usage.';

CREATE FUNCTION cortex_worker.take_in(of_type text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Reads all tasks, and only when a type gets its first limits, or other ones. Those that wait for other keys get
    -- theirs in the next passes.
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM cortex_worker.task t JOIN cortex.job_record j ON j.id = t.job_id
        LEFT JOIN cortex.agent a ON a.id = j.agent_id
        WHERE t.is_admitted IS NULL AND split_part(t.task, ' ', 1) = CASE WHEN starts_with(of_type, 'agent:') THEN 'run_agent'
                                                                     ELSE of_type END
          AND cortex_worker.limited_as(j.type, a.name) = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    )
    UPDATE cortex_worker.task t
    SET is_admitted = t.state = 'LOCKED' OR t.attempt > 0 AND t.state IN ('LATER', 'READY')
                      AND j.status = 'RUNNING',
        state = CASE WHEN t.state = 'READY' AND NOT (t.attempt > 0 AND j.status = 'RUNNING') THEN 'HELD'
                     WHEN t.state = 'STRANDED' AND NOT (t.attempt > 0 AND j.status = 'RUNNING') THEN 'QUEUED'
                     ELSE t.state END,
        limit_keys = cortex_worker.limit_keys(of_type, l.shape, j.payload, j.tenant, a.name, j.queue_name)
    FROM task JOIN cortex.job_record j ON j.id = task.job_id
    JOIN cortex.limited_type l ON l.type = of_type LEFT JOIN cortex.agent a ON a.id = j.agent_id
    WHERE t.job_id = task.job_id;
    -- Jobs that run count from now on, even if there are more than the limit permits; what is yet to begin, per time, too.
    WITH task AS MATERIALIZED (
        SELECT t.job_id, t.attempt = 0 AS is_fresh FROM cortex_worker.task t
        WHERE t.is_admitted AND t.limit_keys[1] = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    ), keyed AS MATERIALIZED (
        SELECT j.id AS job_id, task.is_fresh,
               cortex_worker.limit_keys(of_type, l.shape, j.payload, j.tenant, a.name, j.queue_name) AS keys
        FROM task JOIN cortex.job_record j ON j.id = task.job_id
        JOIN cortex.limited_type l ON l.type = of_type LEFT JOIN cortex.agent a ON a.id = j.agent_id
    )
    INSERT INTO cortex_worker.limit_hold (job_id, limit_id, key)
    SELECT k.job_id, l.id, k.keys[3 + l.place]
    FROM keyed k JOIN cortex.job_limit l ON l.type = of_type AND (l.unit = 'running' OR l.unit = 'jobs' AND k.is_fresh)
    ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION cortex_worker.take_in IS
    'Makes all tasks of a type or agent subject to limits that it did not have before: those of jobs that run take their places.';

CREATE FUNCTION cortex_worker.let_all_go(of_type text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH task AS MATERIALIZED (
        SELECT t.job_id FROM cortex_worker.task t
        WHERE t.is_admitted IS FALSE AND t.limit_keys[1] = of_type
        ORDER BY t.job_id FOR UPDATE OF t
    )
    UPDATE cortex_worker.task t
    SET is_admitted = NULL, limit_keys = NULL, state = CASE t.state WHEN 'HELD' THEN 'READY' ELSE t.state END
    FROM task WHERE t.job_id = task.job_id AND t.is_admitted IS FALSE;
END $$;
COMMENT ON FUNCTION cortex_worker.let_all_go IS 'Lets all tasks go that waited for limits which their type or agent no longer has.';

REVOKE EXECUTE ON FUNCTION cortex_worker.share_room, cortex_worker.note_turns, cortex_worker.set_limits, cortex_worker.take_in,
    cortex_worker.let_all_go FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cortex_worker.share_room, cortex_worker.note_turns, cortex_worker.set_limits, cortex_worker.take_in,
    cortex_worker.let_all_go TO cortex_runtime;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.limited_type, cortex.job_limit, cortex_worker.limit_hold, cortex_worker.limit_use,
            cortex_worker.limit_cursor TO cortex_reader;
    END IF;
END $$;
