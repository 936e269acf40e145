-- Children: the jobs that the code of a job submits, how many of them run at once, and what follows when either ends.

CREATE TABLE cortex.job_child (
    lineage_id uuid NOT NULL,
    step text NOT NULL CHECK (length(step) BETWEEN 1 AND 500),
    ordinal int NOT NULL CHECK (ordinal >= 0),
    job_id uuid NOT NULL,
    parent_id uuid NOT NULL,
    is_detached boolean NOT NULL,
    is_held boolean NOT NULL,
    terms jsonb,
    ended_at timestamptz,
    PRIMARY KEY (lineage_id, step, ordinal),
    CONSTRAINT held_with_terms CHECK (NOT is_held OR terms IS NOT NULL)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,      -- the index of those that have not ended is walked from its begin
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE cortex.job_child IS
    'The children of jobs: submitted once by a step of a lineage, however often its attempts, or a job that continues it, '
    'come to that step.';
COMMENT ON COLUMN cortex.job_child.lineage_id IS 'The first job of the parent''s lineage.';
COMMENT ON COLUMN cortex.job_child.step IS 'Key of the parent''s step.';
COMMENT ON COLUMN cortex.job_child.ordinal IS 'Which of the children of that step, from 0.';
COMMENT ON COLUMN cortex.job_child.job_id IS 'The child; once it was retried, the job that continues it.';
COMMENT ON COLUMN cortex.job_child.parent_id IS 'The job of the lineage that submitted it, or that took it on when it was retried.';
COMMENT ON COLUMN cortex.job_child.is_detached IS 'It goes on when its parent ends.';
COMMENT ON COLUMN cortex.job_child.is_held IS
    'It is not submitted yet: as many of its step run as may at once. With ended_at: it never was, as its parent ended.';
COMMENT ON COLUMN cortex.job_child.terms IS
    'What it is submitted with; null once it is. Empty: a person retried it, it runs beside those that may run at once.';
COMMENT ON COLUMN cortex.job_child.ended_at IS 'When it ended.';
CREATE UNIQUE INDEX job_child_job ON cortex.job_child (job_id);
CREATE INDEX job_child_open ON cortex.job_child (lineage_id, step, is_held, ordinal) WHERE ended_at IS NULL;

CREATE TABLE cortex.child_cut (
    parent_id uuid NOT NULL,
    step text NOT NULL DEFAULT '',
    at timestamptz NOT NULL DEFAULT cortex.now(),
    PRIMARY KEY (parent_id, step)
);
COMMENT ON TABLE cortex.child_cut IS
    'Jobs whose children are to be cancelled: all, as they have ended, or those of a step that they wait for no more. A row '
    'until all are.';
COMMENT ON COLUMN cortex.child_cut.parent_id IS 'The job.';
COMMENT ON COLUMN cortex.child_cut.step IS 'Key of the step that has begun them; empty: all, the job has ended.';
COMMENT ON COLUMN cortex.child_cut.at IS 'When.';

-- Written by functions with the owner's rights: a pod cannot make a job the child of another one.
GRANT SELECT ON cortex.job_child, cortex.child_cut TO cortex_runtime;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.job_child, cortex.child_cut TO cortex_reader;
    END IF;
END $$;

-- ------------------------------------------------------------------ submission

CREATE FUNCTION cortex.let_children_go(of_lineage uuid, of_step text, most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment CONSTANT timestamptz := cortex.now();
    gone int;
    others jsonb;
BEGIN
    WITH next AS MATERIALIZED (
        SELECT c.ctid AS place, c.terms FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.is_held AND c.ended_at IS NULL
        ORDER BY c.ordinal LIMIT most FOR UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE cortex.job_child c SET is_held = false, terms = NULL FROM next n
        WHERE c.ctid = n.place
        RETURNING c.job_id, c.parent_id, n.terms
    ), origin AS MATERIALIZED (
        SELECT f.job_id, o.id, coalesce(o.lineage_id, o.id) AS lineage_id, o.config_id,
               cortex.steps_kept(o.id, o.error_class, o.error_code) AS kept
        FROM freed f JOIN cortex.job_record o ON o.id = (f.terms->>'continues')::uuid
    ), job AS (
        INSERT INTO cortex.job_record AS j (
            id, parent_id, type, payload, tenant, agent_id, agent_version, queue_name, priority, run_at, worker_attempts,
            max_retries, timeout_s, worker_job_id, created_at, updated_at, submitted_by, submitted_with, tags,
            traceparent, due_by, origin_id, lineage_id, config_id, checkpoint)
        SELECT f.job_id, p.id, t.type, f.terms->'payload', p.tenant, t.agent_id, t.agent_version, t.queue_name, t.priority,
               coalesce(t.run_at, moment + t.delay_s * interval '1 second', moment), t.worker_attempts, t.max_retries,
               t.timeout_s, nextval('cortex_worker.task_id_seq'), moment, moment, p.submitted_by, p.submitted_with,
               t.tags, t.traceparent, p.due_by, o.id, o.lineage_id, o.config_id, CASE WHEN o.id IS NULL THEN '{}' ELSE coalesce(cortex.kept_head(o.id, o.kept), '{}') END
        FROM freed f JOIN cortex.job_record p ON p.id = f.parent_id
        CROSS JOIN LATERAL jsonb_to_record(f.terms) AS t(
            type text, agent_id uuid, agent_version int, queue_name text, priority int, run_at timestamptz,
            delay_s float8, worker_attempts int, max_retries int, timeout_s int, tags text[], traceparent text)
        LEFT JOIN origin o ON o.job_id = f.job_id
        ORDER BY f.job_id
        -- A person has just retried the job that it was to continue.
        ON CONFLICT (origin_id) WHERE origin_id IS NOT NULL DO NOTHING
        RETURNING j.id, j.type, j.queue_name, j.priority, j.run_at, j.worker_attempts, j.worker_job_id, j.due_by
    ), step AS (
        INSERT INTO cortex.job_step (
            job_id, seq, attempt, kind, key, digest, started_at, finished_at, cost_usd, usage, output, input, amid,
            parent_key)
        SELECT o.job_id, s.seq, 0, s.kind, s.key, s.digest, s.started_at, s.finished_at, s.cost_usd, s.usage, s.output,
               s.input, s.amid, s.parent_key
        FROM job j JOIN origin o ON o.job_id = j.id JOIN cortex.job_step s ON s.job_id = o.id
        WHERE o.kept IS NULL OR s.seq <= o.kept
    ), letter AS (
        UPDATE cortex.dead_letter d
        SET state = 'RETRIED', resolved_at = moment, resolved_by = 'job:' || f.parent_id,
            reason = 'the job that submitted it was retried', retried_as = f.job_id,
            triaged_at = coalesce(d.triaged_at, moment)
        FROM freed f JOIN job j ON j.id = f.job_id JOIN origin o ON o.job_id = f.job_id
        WHERE d.job_id = o.id AND d.state IN ('OPEN', 'ESCALATED', 'ARCHIVED')
    ), share AS (
        -- Its lineage begins with it: a job that continues it has the same share.
        INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason, share_of)
        SELECT 'job', f.job_id::text, s.unit, 'run', s.amount::numeric, 'job:' || f.parent_id,
               'its share, as step ' || of_step || ' says', f.parent_id
        FROM freed f JOIN job j ON j.id = f.job_id CROSS JOIN LATERAL jsonb_each_text(f.terms->'budget') AS s(unit, amount)
        ON CONFLICT ON CONSTRAINT budget_once DO NOTHING
    ), task AS (
        INSERT INTO cortex_worker.task (id, task, job_id, state, priority, max_attempts, run_at, queue_name, due_by)
        SELECT j.worker_job_id, j.type, j.id,
               (CASE WHEN j.queue_name IS NOT NULL THEN 'QUEUED'
                     WHEN j.run_at > moment THEN 'LATER' ELSE 'READY' END)::cortex_worker.task_state,
               j.priority, j.worker_attempts, j.run_at, j.queue_name, j.due_by
        FROM job j
    )
    SELECT (SELECT count(*) FROM job),
           (SELECT jsonb_object_agg(o.job_id, o.id) FROM origin o WHERE o.job_id NOT IN (SELECT j.id FROM job j))
    INTO gone, others;
    IF others IS NOT NULL THEN
        PERFORM cortex.continue_child(h.id, c.job_id) FROM jsonb_each_text(others) AS o(child, origin)
        JOIN cortex.job_child c ON c.job_id = o.child::uuid JOIN cortex.job_record h ON h.origin_id = o.origin::uuid;
        -- Those run beside the others: their places are for the next ones.
        gone := gone + cortex.let_children_go(of_lineage, of_step, (SELECT count(*)::int FROM jsonb_object_keys(others)));
    END IF;
    RETURN gone;
END $$;
COMMENT ON FUNCTION cortex.let_children_go IS
    'Submits up to so many of the children that a step holds, in their order; returns how many. A child that continues an '
    'earlier job keeps its steps, as a retry does, and settles its dead letter.';

CREATE FUNCTION cortex.continue_child(new_job uuid, of_child uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
UPDATE cortex.job_child c
SET job_id = new_job, terms = '{}', ended_at = (SELECT j.finished_at FROM cortex.job_record j WHERE j.id = new_job)
WHERE c.job_id = of_child $$;
COMMENT ON FUNCTION cortex.continue_child IS
    'Has a new job take the place of a child that it continues. It gives its place to no other when it ends: the child has.';

CREATE FUNCTION cortex.ancestors(of_job uuid) RETURNS SETOF uuid
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH RECURSIVE line AS (
    SELECT j.parent_id AS id, 1 AS nth FROM cortex.job_record j
    WHERE j.id = of_job AND j.parent_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM cortex.job_child c WHERE c.job_id = j.id AND c.is_detached)
    UNION ALL
    SELECT j.parent_id, l.nth + 1 FROM line l JOIN cortex.job_record j ON j.id = l.id
    WHERE j.parent_id IS NOT NULL AND l.nth < 100
      AND NOT EXISTS (SELECT FROM cortex.job_child c WHERE c.job_id = j.id AND c.is_detached)
)
SELECT l.id FROM line l ORDER BY l.nth $$;
COMMENT ON FUNCTION cortex.ancestors IS 'The job whose child this one is, the one whose child that is, and so on, up to one that is detached; at most 100.';

CREATE FUNCTION cortex.check_children(given jsonb, payloads jsonb[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    SELECT t.field INTO wrong
    FROM (VALUES
        ('type', coalesce(given->>'type' ~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' AND length(given->>'type') <= 100, false)),
        ('queue_name', length(given->>'queue_name') BETWEEN 1 AND 100),
        ('priority', (given->>'priority')::int BETWEEN -32767 AND 32767),
        ('delay_s', (given->>'delay_s')::float8 BETWEEN 0 AND 315360000),
        ('max_retries', (given->>'max_retries')::int BETWEEN 0 AND 100),
        ('timeout_s', (given->>'timeout_s')::int BETWEEN 1 AND 604800),
        ('tags', CASE WHEN jsonb_typeof(given->'tags') = 'array' THEN jsonb_array_length(given->'tags') BETWEEN 1 AND 20
                 ELSE given->'tags' IS NULL END),
        ('traceparent', cortex.is_traceparent(given->>'traceparent')),
        ('budget', CASE jsonb_typeof(given->'budget') WHEN 'object' THEN NOT EXISTS (
            SELECT FROM jsonb_each_text(given->'budget') AS b(unit, amount)
            WHERE NOT CASE b.unit WHEN 'usd' THEN b.amount::numeric BETWEEN 0.000001 AND 1000000
                      WHEN 'tokens' THEN b.amount::numeric BETWEEN 1 AND 1000000000000 ELSE false END)
            ELSE given->'budget' IS NULL END)) AS t(field, is_valid)
    WHERE NOT t.is_valid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% % of children is out of bounds', wrong, left((given->wrong)::text, 80)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'children_terms';
    END IF;
    IF given->>'type' IN ('approval_notify', 'bulk', 'expire_approvals', 'sweep_zombies') OR given->>'queue_name' = 'bulk' THEN
        RAISE EXCEPTION 'a job may not submit a job of type "%"', given->>'type'
            USING ERRCODE = 'insufficient_privilege', HINT = 'it acts on other jobs: people submit it';
    END IF;
    -- A child is its parent's own: it cannot stand for another job.
    SELECT r.kind INTO wrong FROM cortex.submit_rule r WHERE r.type = given->>'type';
    IF FOUND THEN
        RAISE EXCEPTION 'job type "%" has a %: its jobs cannot be children', given->>'type', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'children_terms', HINT = 'submit it with a client, or drop the rule';
    END IF;
    SELECT octet_length(p::text)::text INTO wrong FROM unnest(payloads) AS p
    WHERE octet_length(p::text) > 262144 OR jsonb_typeof(p) <> 'object' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'payload of % bytes is larger than 262144, or no object', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payload_size';
    END IF;
END $$;
COMMENT ON FUNCTION cortex.check_children IS
    'Refuses terms and payloads with which children could not be submitted: held ones are, when others end, and must not fail '
    'then.';

CREATE FUNCTION cortex.spawn_children(
    of_job uuid, of_attempt int, of_pod uuid, of_step text, first int, ids uuid[], payloads jsonb[], given jsonb,
    let_go int, depth_max int
) RETURNS TABLE (verdict text, ordinal int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    parent cortex.job_record;
    line uuid[];
    kind record;
    of_lineage uuid;
    detached CONSTANT boolean := coalesce((given->>'is_detached')::boolean, false);
    full_terms jsonb;
    kept_payloads jsonb[];
    other int;
    added int;
    above record;
BEGIN
    PERFORM FROM cortex_worker.task t
    WHERE t.job_id = of_job AND t.attempt = of_attempt AND t.locked_by = of_pod FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'lease_lost', NULL::int;
        RETURN;
    END IF;
    SELECT * INTO parent FROM cortex.job_record j WHERE j.id = of_job;
    of_lineage := coalesce(parent.lineage_id, parent.id);
    line := ARRAY(SELECT a FROM cortex.ancestors(of_job) AS a);
    IF cardinality(line) >= depth_max THEN
        RETURN QUERY SELECT 'too_deep', cardinality(line);
        RETURN;
    END IF;
    IF of_job = ANY (ids) OR line && ids THEN
        RETURN QUERY SELECT 'ancestor', NULL::int;
        RETURN;
    END IF;
    PERFORM cortex.check_children(given, payloads);
    IF given->>'type' = 'run_flow' THEN
        -- As a submit does: what is held runs the version that takes its inputs. What is on record has one.
        kept_payloads := ARRAY(
            SELECT CASE WHEN EXISTS (SELECT FROM cortex.job_child c WHERE c.lineage_id = of_lineage AND c.step = of_step
                                       AND c.ordinal = first + p.n::int - 1) THEN p.payload
                   ELSE p.payload || jsonb_build_object('version', (cortex.flow_of(p.payload)).kept) END
            FROM unnest(payloads) WITH ORDINALITY AS p(payload, n) ORDER BY p.n);
    END IF;
    IF EXISTS (SELECT FROM cortex.limited_type l WHERE l.type = cortex_worker.limited_as(given->>'type', given->>'agent')) THEN
        PERFORM cortex.refuse_without_limit_key(
            array_fill(given->>'type', ARRAY[cardinality(ids)]), payloads,
            array_fill(given->>'agent', ARRAY[cardinality(ids)]), array_fill(parent.tenant, ARRAY[cardinality(ids)]),
            array_fill(given->>'queue_name', ARRAY[cardinality(ids)]));
    END IF;
    SELECT a.id AS agent_id, a.version AS agent_version,
           coalesce((v.spec->'limits'->>'worker_attempts')::int, t.worker_attempts, 3) AS worker_attempts,
           coalesce((v.spec->'limits'->>'max_retries')::int, t.max_retries, 3) AS max_retries,
           coalesce((v.spec->'limits'->>'timeout_seconds')::int, t.timeout_s, 3600) AS timeout_s,
           coalesce(t.timeout_max_s, t.timeout_s * 3 / 2, 5400) AS longest_s
    INTO kind
    FROM (SELECT given->>'type' AS type, given->>'agent' AS agent) k
    LEFT JOIN cortex.agent a ON a.name = k.agent
    LEFT JOIN cortex.agent_version v ON v.agent_id = a.id AND v.version = a.version
    LEFT JOIN cortex.job_type t ON t.name = k.type;
    IF given->>'agent' IS NOT NULL AND kind.agent_id IS NULL THEN
        RAISE EXCEPTION 'agent "%" does not exist', given->>'agent'
            USING ERRCODE = 'no_data_found', HINT = 'apply it first: cortex agents apply FILE';
    END IF;
    IF (given->>'timeout_s')::int > kind.longest_s THEN
        RAISE EXCEPTION 'timeout_s % is above the hard limit of job type "%": % seconds', given->>'timeout_s', given->>'type',
            kind.longest_s
            USING ERRCODE = 'check_violation', CONSTRAINT = 'timeout_hard_limit',
                  HINT = 'a job may run at most 1.5 times as long as its type';
    END IF;
    full_terms := jsonb_build_object(
        'agent_id', kind.agent_id, 'agent_version', kind.agent_version, 'worker_attempts', kind.worker_attempts,
        'max_retries', kind.max_retries, 'timeout_s', kind.timeout_s, 'priority', parent.priority)
        || jsonb_strip_nulls(given) - 'is_detached' - 'agent';
    INSERT INTO cortex.job_child AS c (lineage_id, step, ordinal, job_id, parent_id, is_detached, is_held, terms)
    SELECT of_lineage, of_step, first + s.nth::int - 1, s.id, of_job, detached, true,
           full_terms || jsonb_build_object('payload', s.payload)
    FROM unnest(ids, coalesce(kept_payloads, payloads)) WITH ORDINALITY AS s(id, payload, nth)
    ORDER BY s.nth
    ON CONFLICT (lineage_id, step, ordinal) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added > 0 AND given ? 'budget' AND NOT detached THEN
        -- Not what is left of it at this moment: that changes, and a call of the child that finds too little waits.
        SELECT b.name, b.unit, b.limit_amount, s.amount::numeric AS share INTO above
        FROM jsonb_each_text(given->'budget') AS s(unit, amount)
        JOIN cortex.budget b ON b.scope = 'job' AND b.unit = s.unit AND b.subject = ANY (ARRAY(
            SELECT coalesce(j.lineage_id, j.id)::text FROM cortex.job_record j WHERE j.id = of_job OR j.id = ANY (line)))
        WHERE s.amount::numeric > b.limit_amount ORDER BY b.limit_amount LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'step "%" gives a child % %, more than the % % that its parent may spend', of_step,
                trim_scale(above.share), above.unit, trim_scale(above.limit_amount), above.unit
                USING ERRCODE = 'check_violation', CONSTRAINT = 'child_share',
                      HINT = format('give it less, or raise the budget above it: cortex budgets raise %s --to %s --reason TEXT',
                                    above.name, trim_scale(above.share));
        END IF;
    END IF;
    -- What an earlier attempt has submitted in their places must be the same.
    SELECT c.ordinal INTO other
    FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
    WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal BETWEEN first AND first + cardinality(ids) - 1
      AND c.job_id <> ids[c.ordinal - first + 1]
      AND (CASE WHEN given->>'type' = 'run_flow' AND NOT payloads[c.ordinal - first + 1] ? 'version'
                THEN coalesce(j.payload, c.terms->'payload') - 'version' ELSE coalesce(j.payload, c.terms->'payload') END
               IS DISTINCT FROM payloads[c.ordinal - first + 1]
           OR coalesce(j.type, c.terms->>'type') IS DISTINCT FROM given->>'type')
    ORDER BY c.ordinal LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'other', other;
        RETURN;
    END IF;
    IF NOT parent.has_children IS TRUE THEN
        UPDATE cortex.job_record j SET has_children = true WHERE j.id = of_job;
    END IF;
    IF let_go IS NOT NULL THEN
        RETURN QUERY SELECT o.verdict, NULL::int
            FROM cortex.open_children(of_lineage, of_step, parent.tenant, let_go) AS o(verdict);
        RETURN;
    END IF;
    RETURN QUERY SELECT 'done', NULL::int;
END $$;
COMMENT ON FUNCTION cortex.spawn_children IS
    'Submits children of a running job, those of one step from a position on, unless they were; holds them, or lets so many '
    'of the step run at once. Verdicts: done, lease_lost, too_deep, ancestor, busy (repeat it), other: an earlier attempt '
    'has submitted another job in the place of this ordinal.';

CREATE FUNCTION cortex.open_children(of_lineage uuid, of_step text, of_tenant text, let_go int) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    running int;
    locked int;
    room int;
BEGIN
    -- Whoever ends one that runs now, and did not see those that are held, cannot have locked it: it waits for this.
    -- One that a person has retried has no place that it could give to another.
    SELECT count(*) INTO running FROM (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_held AND c.ended_at IS NULL AND c.terms IS NULL
        LIMIT let_go) r;
    SELECT count(*) INTO locked FROM (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_held AND c.ended_at IS NULL AND c.terms IS NULL
        LIMIT let_go FOR UPDATE SKIP LOCKED) r;
    IF locked < running THEN
        RETURN 'busy';
    END IF;
    room := let_go - locked;
    IF room > 0 AND of_tenant <> 'default' AND EXISTS (SELECT FROM cortex.tenant_cap) THEN
        PERFORM cortex.refuse_over_cap(array_agg(n.job_id), array_agg(n.type), array_agg(of_tenant), array_agg(n.payload))
        FROM (SELECT c.job_id, c.terms->>'type' AS type, c.terms->'payload' AS payload FROM cortex.job_child c
              WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.is_held AND c.ended_at IS NULL
              ORDER BY c.ordinal LIMIT room) n
        HAVING count(*) > 0;
    END IF;
    PERFORM cortex.let_children_go(of_lineage, of_step, room);
    RETURN 'done';
END $$;
COMMENT ON FUNCTION cortex.open_children IS
    'Lets as many children of a step run at once; busy: one of them is just ending, repeat it. The cap of the tenant counts '
    'them; those that follow take the places of others.';

CREATE FUNCTION cortex.adopt_children(
    of_job uuid, of_attempt int, of_pod uuid, of_step text, first int, new_ids uuid[], let_go int
) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    parent cortex.job_record;
    of_lineage uuid;
    opened text;
BEGIN
    PERFORM FROM cortex_worker.task t
    WHERE t.job_id = of_job AND t.attempt = of_attempt AND t.locked_by = of_pod FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'lease_lost';
    END IF;
    SELECT * INTO parent FROM cortex.job_record j WHERE j.id = of_job;
    of_lineage := coalesce(parent.lineage_id, parent.id);
    IF NOT parent.has_children IS TRUE THEN
        UPDATE cortex.job_record j SET has_children = true WHERE j.id = of_job;
    END IF;
    -- Whoever retries one of them by hand locks these, too, before the child: then it finds them settled.
    PERFORM FROM cortex.dead_letter d
    WHERE d.job_id = ANY (ARRAY(
        SELECT c.job_id FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND j.status = 'FAILED'
        ORDER BY c.ordinal LIMIT cardinality(new_ids)))
    ORDER BY d.job_id FOR UPDATE;
    -- One that a person's decision failed has none: such a retry locks its record instead.
    PERFORM FROM cortex.job_record r
    WHERE r.id = ANY (ARRAY(
        SELECT c.job_id FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND j.status = 'FAILED' AND cortex.is_decision(j.error_code)
        ORDER BY c.ordinal LIMIT cardinality(new_ids)))
    ORDER BY r.id FOR NO KEY UPDATE;
    -- A batch locks the children that it ends in an order of its own: this waits for none of them.
    WITH running AS MATERIALIZED (
        SELECT c.ctid AS place FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
          AND NOT c.is_held AND c.ended_at IS NULL AND j.cancel_requested_at IS NULL
        ORDER BY c.ordinal FOR UPDATE OF c SKIP LOCKED
    )
    UPDATE cortex.job_child c SET parent_id = of_job FROM running r WHERE c.ctid = r.place;
    IF EXISTS (SELECT FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
                 AND NOT c.is_held AND c.ended_at IS NULL AND j.cancel_requested_at IS NULL) THEN
        RETURN 'busy';
    END IF;
    -- Those that are being cancelled with the earlier job end first.
    IF EXISTS (SELECT FROM cortex.job_child c
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first AND c.parent_id <> of_job
                 AND NOT c.is_held AND c.ended_at IS NULL) THEN
        RETURN 'wait';
    END IF;
    WITH left_over AS MATERIALIZED (
        SELECT c.ctid AS place, c.ordinal, c.is_held, c.terms, c.job_id
        FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first
          AND (c.parent_id <> of_job AND (c.is_held OR j.status IN ('FAILED', 'CANCELLED'))
               OR j.status = 'CANCELLED' AND j.cancelled_by = 'job:' || parent.origin_id)
        ORDER BY c.ordinal LIMIT cardinality(new_ids) FOR UPDATE OF c SKIP LOCKED
    ), again AS MATERIALIZED (
        SELECT l.*, row_number() OVER (ORDER BY l.ordinal) AS nth FROM left_over l
    )
    UPDATE cortex.job_child c
    SET parent_id = of_job, ended_at = NULL, is_held = true,
        job_id = CASE WHEN a.is_held THEN c.job_id ELSE new_ids[a.nth] END,
        terms = CASE WHEN a.is_held THEN a.terms ELSE (
            SELECT jsonb_strip_nulls(jsonb_build_object(
                'type', j.type, 'agent_id', j.agent_id, 'agent_version', j.agent_version, 'queue_name', j.queue_name,
                'priority', j.priority, 'worker_attempts', j.worker_attempts, 'max_retries', j.max_retries,
                'timeout_s', j.timeout_s, 'tags', to_jsonb(j.tags), 'traceparent', j.traceparent, 'continues', j.id))
                || jsonb_build_object('payload', j.payload)
            FROM cortex.job_record j WHERE j.id = a.job_id) END
    FROM again a WHERE c.ctid = a.place;
    IF EXISTS (SELECT FROM cortex.job_child c LEFT JOIN cortex.job_record j ON j.id = c.job_id
               WHERE c.lineage_id = of_lineage AND c.step = of_step AND c.ordinal >= first
                 AND (c.parent_id <> of_job AND (c.is_held OR j.status IN ('FAILED', 'CANCELLED'))
                      OR j.status = 'CANCELLED' AND j.cancelled_by = 'job:' || parent.origin_id)) THEN
        RETURN 'more';
    END IF;
    SELECT cortex.open_children(of_lineage, of_step, parent.tenant, let_go) INTO opened;
    RETURN opened;
END $$;
COMMENT ON FUNCTION cortex.adopt_children IS
    'Takes on the children that an earlier job of the lineage left at a step, from an ordinal on: those that run go on, '
    'those that failed, were cancelled or never began run again, as many as given at once. Verdicts: done, lease_lost, '
    'wait: some are still being cancelled, busy or more: repeat it.';

CREATE FUNCTION cortex.is_share_used(of_child uuid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = of_child AND j.finished_at IS NULL)
    OR EXISTS (SELECT FROM cortex.job_record j WHERE j.lineage_id = of_child AND j.finished_at IS NULL) $$;
COMMENT ON FUNCTION cortex.is_share_used IS 'Whether the child that has a share, or a job that continues it, has not ended.';

-- ------------------------------------------------------------------ when jobs end

CREATE FUNCTION cortex.have_children_ended(of_job uuid, of_step text, upto int) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT NOT EXISTS (
    SELECT FROM cortex.job_record j CROSS JOIN (VALUES (false), (true)) AS w(is_held)
    CROSS JOIN LATERAL (
        SELECT c.ordinal FROM cortex.job_child c
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.step = of_step AND c.is_held = w.is_held
          AND c.ended_at IS NULL
        ORDER BY c.ordinal LIMIT 1) open
    WHERE j.id = of_job AND open.ordinal < upto) $$;
COMMENT ON FUNCTION cortex.have_children_ended IS
    'Whether all children of a step below this ordinal have ended, also those that are held until others end.';

CREATE FUNCTION cortex.open_counts(of_job uuid, of_step text) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT jsonb_object_agg(s.state, s.number) FROM (
    SELECT CASE WHEN c.is_held THEN 'held'
                WHEN j.status::text = 'PENDING' AND EXISTS (SELECT FROM cortex_worker.stranded x WHERE x.task = j.type)
                THEN 'unserved' ELSE j.status::text END AS state, count(*) AS number
    FROM cortex.job_record p
    JOIN cortex.job_child c ON c.lineage_id = coalesce(p.lineage_id, p.id) AND c.step = of_step AND c.ended_at IS NULL
    LEFT JOIN cortex.job j ON j.id = c.job_id AND NOT c.is_held
    WHERE p.id = of_job GROUP BY 1) s $$;
COMMENT ON FUNCTION cortex.open_counts IS
    'How many children of a step have not ended, by state; held: not submitted yet, unserved: of a type that no pod runs.';

CREATE FUNCTION cortex.families_end(jobs uuid[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    kin record;
BEGIN
    FOR kin IN
        WITH ended AS (
            UPDATE cortex.job_child c SET ended_at = cortex.now()
            WHERE c.job_id = ANY (jobs) AND c.ended_at IS NULL
            RETURNING c.lineage_id, c.step, c.parent_id, c.terms
        )
        SELECT e.lineage_id, e.step, array_agg(DISTINCT e.parent_id) AS parents, (count(*) FILTER (WHERE e.terms IS NULL))::int AS count FROM ended e GROUP BY e.lineage_id, e.step
        ORDER BY e.lineage_id, e.step
    LOOP
        PERFORM cortex.let_children_go(kin.lineage_id, kin.step, kin.count);
        INSERT INTO cortex.job_wake (job_id) SELECT p.id FROM unnest(kin.parents) AS p(id);
    END LOOP;
    INSERT INTO cortex.child_cut (parent_id)
    SELECT j.id FROM unnest(jobs) AS e(id) JOIN cortex.job_record j ON j.id = e.id
    WHERE j.has_children AND EXISTS (
        SELECT FROM cortex.job_child c
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.parent_id = j.id AND c.ended_at IS NULL
          AND NOT c.is_detached)
    ON CONFLICT DO NOTHING;
    PERFORM pg_notify('cortex_wake', '');
END $$;
COMMENT ON FUNCTION cortex.families_end IS
    'Called for jobs that have just ended, some of which are children or have some. Each child gives its place to the next '
    'one that its step holds; the children of a job that has ended are to be cancelled.';
REVOKE EXECUTE ON FUNCTION cortex.families_end(uuid[]), cortex.let_children_go(uuid, text, int),
    cortex.open_children(uuid, text, text, int) FROM PUBLIC;

CREATE FUNCTION cortex.withdraw_children(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    withdrawn int;
BEGIN
    -- Waits for whoever is just submitting one of them: what begins then is seen by the next statement.
    WITH own AS MATERIALIZED (
        SELECT k.lineage_id, k.step, k.ordinal
        FROM cortex.child_cut p JOIN cortex.job_record j ON j.id = p.parent_id
        JOIN cortex.job_child k ON k.lineage_id = coalesce(j.lineage_id, j.id) AND k.parent_id = p.parent_id
        WHERE k.is_held AND k.ended_at IS NULL AND NOT k.is_detached AND (p.step = '' OR k.step = p.step)
        LIMIT most
    ), held AS MATERIALIZED (
        SELECT c.ctid AS place FROM own JOIN cortex.job_child c USING (lineage_id, step, ordinal)
        WHERE c.is_held AND c.ended_at IS NULL
        ORDER BY c.lineage_id, c.step, c.ordinal FOR UPDATE OF c
    )
    UPDATE cortex.job_child c SET ended_at = cortex.now() FROM held h WHERE c.ctid = h.place;
    GET DIAGNOSTICS withdrawn = ROW_COUNT;
    RETURN withdrawn;
END $$;
COMMENT ON FUNCTION cortex.withdraw_children IS
    'Gives up up to so many children that jobs held when they ended. Returns how many: repeat it until that is none.';

CREATE FUNCTION cortex.forget_cuts(parents uuid[]) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    forgotten int;
BEGIN
    DELETE FROM cortex.child_cut p USING cortex.job_record j
    WHERE p.parent_id = ANY (parents) AND j.id = p.parent_id AND NOT EXISTS (
        SELECT FROM cortex.job_child c JOIN cortex.job_record k ON k.id = c.job_id
        WHERE c.lineage_id = coalesce(j.lineage_id, j.id) AND c.parent_id = j.id AND c.ended_at IS NULL
          AND NOT c.is_detached AND k.cancel_requested_at IS NULL AND (p.step = '' OR c.step = p.step));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
COMMENT ON FUNCTION cortex.forget_cuts IS
    'Forgets which of these jobs have children to be cancelled, once that was requested for all. Returns how many.';

REVOKE EXECUTE ON FUNCTION
    cortex.spawn_children(uuid, int, uuid, text, int, uuid[], jsonb[], jsonb, int, int),
    cortex.adopt_children(uuid, int, uuid, text, int, uuid[], int), cortex.withdraw_children(int),
    cortex.forget_cuts(uuid[]), cortex.continue_child(uuid, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    cortex.spawn_children(uuid, int, uuid, text, int, uuid[], jsonb[], jsonb, int, int),
    cortex.adopt_children(uuid, int, uuid, text, int, uuid[], int), cortex.withdraw_children(int),
    cortex.forget_cuts(uuid[]), cortex.continue_child(uuid, uuid) TO cortex_runtime;
