-- Model calls that wait in batches of their providers: what is sent, what was sent as what, and what came back. The intent
-- is committed before anything is sent, so that a killed process leaves nothing that is forgotten or sent again.

CREATE TABLE cortex.model_batch (
    id uuid PRIMARY KEY,
    endpoint text NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 100),
    state text NOT NULL CHECK (state IN ('SENDING', 'SENT', 'ENDED', 'UNSENT', 'LOST')),
    remote_id text CHECK (length(remote_id) BETWEEN 1 AND 200),
    call_count int NOT NULL CHECK (call_count > 0),
    created_at timestamptz NOT NULL DEFAULT cortex.now(),
    due_at timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK ((remote_id IS NULL) = (state IN ('SENDING', 'UNSENT', 'LOST'))),
    CHECK ((ended_at IS NULL) = (state IN ('SENDING', 'SENT')))
);
COMMENT ON TABLE cortex.model_batch IS 'Batches of model calls, each one before it is sent to its provider.';
COMMENT ON COLUMN cortex.model_batch.id IS 'The batch, before it has an id at its provider.';
COMMENT ON COLUMN cortex.model_batch.endpoint IS 'The provider, or the endpoint of the settings, that gets it.';
COMMENT ON COLUMN cortex.model_batch.state IS
    'SENDING: it may have been sent, its id is not known · SENT · ENDED: all results are here · UNSENT: it certainly was '
    'not created, its calls are in others · LOST: nobody will know what became of it.';
COMMENT ON COLUMN cortex.model_batch.remote_id IS 'Its id at the provider.';
COMMENT ON COLUMN cortex.model_batch.call_count IS 'How many calls it has.';
COMMENT ON COLUMN cortex.model_batch.created_at IS 'Since when it may have been sent.';
COMMENT ON COLUMN cortex.model_batch.due_at IS 'When a process may look at it: until then one has it in its hands.';
COMMENT ON COLUMN cortex.model_batch.ended_at IS 'When it was over for Cortex.';
CREATE INDEX model_batch_due ON cortex.model_batch (due_at) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX model_batch_remote ON cortex.model_batch (endpoint, remote_id) WHERE remote_id IS NOT NULL;

CREATE TABLE cortex.model_batch_call (
    id uuid PRIMARY KEY,
    lineage_id uuid NOT NULL,
    job_id uuid NOT NULL,
    step text NOT NULL,
    digest bytea NOT NULL,
    endpoint text NOT NULL,
    model text NOT NULL,
    config_id int,
    request text,
    size bigint NOT NULL CHECK (size > 0),
    state text NOT NULL DEFAULT 'WAITING' CHECK (state IN ('WAITING', 'SENT', 'SUCCEEDED', 'FAILED', 'DROPPED')),
    batch_id uuid REFERENCES cortex.model_batch,
    is_dropped boolean NOT NULL DEFAULT false,
    added_at timestamptz NOT NULL DEFAULT cortex.now(),
    ready_at timestamptz NOT NULL DEFAULT cortex.now(),
    done_at timestamptz,
    taken_at timestamptz,
    answer text,
    usage jsonb,
    cost_usd numeric(18, 8),
    failure text CHECK (length(failure) <= 2000),
    CHECK ((done_at IS NULL) = (state IN ('WAITING', 'SENT'))),
    CHECK ((batch_id IS NULL) = (state = 'WAITING') OR state IN ('FAILED', 'DROPPED')),
    CHECK ((answer IS NULL) = (state <> 'SUCCEEDED') OR is_dropped)
);
COMMENT ON TABLE cortex.model_batch_call IS
    'Model calls in batches, or on their way into one. Its id is also that of its reservation, and its name in the batch.';
COMMENT ON COLUMN cortex.model_batch_call.id IS 'The call: that of its reservation and of its cost, and its custom id.';
COMMENT ON COLUMN cortex.model_batch_call.lineage_id IS 'The first job of the lineage.';
COMMENT ON COLUMN cortex.model_batch_call.job_id IS 'The job that waits.';
COMMENT ON COLUMN cortex.model_batch_call.step IS 'Key of the step.';
COMMENT ON COLUMN cortex.model_batch_call.digest IS 'Of the request: a job whose code asks for another one gets no answer to this.';
COMMENT ON COLUMN cortex.model_batch_call.endpoint IS 'The provider, or the endpoint of the settings.';
COMMENT ON COLUMN cortex.model_batch_call.model IS 'The model, as the job names it.';
COMMENT ON COLUMN cortex.model_batch_call.config_id IS 'Configuration with the prices of the job.';
COMMENT ON COLUMN cortex.model_batch_call.request IS 'The request as JSON, with references to files; null once it is done.';
COMMENT ON COLUMN cortex.model_batch_call.size IS 'Its bytes, with its files in base64.';
COMMENT ON COLUMN cortex.model_batch_call.state IS
    'WAITING: in no batch · SENT: in a batch, which may have been sent · SUCCEEDED · FAILED: to be made directly · DROPPED: '
    'its job wanted it no more before it was sent.';
COMMENT ON COLUMN cortex.model_batch_call.batch_id IS 'The batch.';
COMMENT ON COLUMN cortex.model_batch_call.is_dropped IS 'Its job wants it no more: its cost is booked, its answer is not kept.';
COMMENT ON COLUMN cortex.model_batch_call.added_at IS 'When the job asked for it.';
COMMENT ON COLUMN cortex.model_batch_call.ready_at IS 'When it may be put into a batch: later if its provider refused for now.';
COMMENT ON COLUMN cortex.model_batch_call.done_at IS 'When it was over.';
COMMENT ON COLUMN cortex.model_batch_call.taken_at IS 'When its job last took the outcome.';
COMMENT ON COLUMN cortex.model_batch_call.answer IS 'The response as plain JSON.';
COMMENT ON COLUMN cortex.model_batch_call.usage IS 'Its tokens.';
COMMENT ON COLUMN cortex.model_batch_call.cost_usd IS 'US dollars; null if the price is unknown.';
COMMENT ON COLUMN cortex.model_batch_call.failure IS 'Why it has to be made directly.';
CREATE UNIQUE INDEX model_batch_call_step ON cortex.model_batch_call (lineage_id, step) WHERE NOT is_dropped;
CREATE INDEX model_batch_call_waiting ON cortex.model_batch_call (endpoint, ready_at, id) WHERE state = 'WAITING';
CREATE INDEX model_batch_call_sent ON cortex.model_batch_call (batch_id, id) WHERE state = 'SENT';
CREATE INDEX model_batch_call_done ON cortex.model_batch_call (job_id) WHERE done_at IS NOT NULL AND taken_at IS NULL;
CREATE INDEX model_batch_call_old ON cortex.model_batch_call (done_at) WHERE done_at IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON cortex.model_batch, cortex.model_batch_call TO cortex_runtime;

CREATE FUNCTION cortex.find_batch_call(of_lineage uuid, of_job uuid, of_step text, of_digest bytea)
    RETURNS SETOF cortex.model_batch_call
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known cortex.model_batch_call;
BEGIN
    SELECT * INTO known FROM cortex.model_batch_call c
    WHERE c.lineage_id = of_lineage AND c.step = of_step AND NOT c.is_dropped FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF known.digest <> of_digest THEN
        PERFORM cortex.drop_batch_calls(ARRAY[known.id]);
        RETURN;
    END IF;
    RETURN QUERY UPDATE cortex.model_batch_call c
        SET job_id = of_job, taken_at = CASE WHEN c.done_at IS NOT NULL THEN cortex.now() END
        WHERE c.id = known.id RETURNING c.*;
END $$;
COMMENT ON FUNCTION cortex.find_batch_call IS
    'The call of a step, and notes that its job has seen the outcome, if there is one. A call with another request is '
    'dropped.';

CREATE FUNCTION cortex.drop_batch_calls(calls uuid[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unsent uuid[];
BEGIN
    WITH dropped AS (
        UPDATE cortex.model_batch_call c
        SET is_dropped = true, answer = NULL,
            state = CASE c.state WHEN 'WAITING' THEN 'DROPPED' ELSE c.state END,
            done_at = CASE c.state WHEN 'WAITING' THEN cortex.now() ELSE c.done_at END,
            request = CASE c.state WHEN 'WAITING' THEN NULL ELSE c.request END
        WHERE c.id = ANY (calls) AND NOT c.is_dropped
        RETURNING c.id, c.state
    )
    SELECT array_agg(d.id) INTO unsent FROM dropped d WHERE d.state = 'DROPPED';
    PERFORM cortex.settle_batch_calls(unsent, NULL, NULL, 'cancelled');
    RETURN coalesce(cardinality(unsent), 0);
END $$;
COMMENT ON FUNCTION cortex.drop_batch_calls IS
    'Gives up calls whose jobs want them no more: unsent ones at once, others when their results come, which are booked. '
    'Returns how many were unsent.';

CREATE FUNCTION cortex.settle_batch_calls(calls uuid[], usages jsonb[], costs numeric[], outcome text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
SELECT cortex.settle(
    array_agg(e.id ORDER BY e.id),
    array_agg((SELECT coalesce(sum(v.value::bigint), 0) FROM jsonb_each_text(coalesce(e.usage, '{}')) v
               WHERE v.key IN ('input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens'))::bigint
              ORDER BY e.id),
    array_agg(CASE WHEN e.usage IS NULL THEN 0 ELSE e.cost END ORDER BY e.id),
    array_agg(jsonb_build_object('outcome', outcome, 'estimated', false, 'batch', true,
                                 'usage', coalesce(e.usage, '{}')) ORDER BY e.id))
FROM unnest(calls, usages, costs) AS e(id, usage, cost) HAVING count(*) > 0 $$;
COMMENT ON FUNCTION cortex.settle_batch_calls IS 'Books calls of batches; one without a usage has cost nothing. See cortex.settle.';

CREATE FUNCTION cortex.add_batch_call(
    new_call uuid, of_job uuid, of_attempt int, of_pod uuid, of_lineage uuid, of_step text, of_digest bytea,
    to_endpoint text, of_model text, of_config int, given text, of_size bigint) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM cortex.model_batch_call c WHERE c.id = new_call) THEN
        RETURN true;
    END IF;
    UPDATE cortex.reservation r SET is_batched = true WHERE r.id = new_call AND EXISTS (
        SELECT FROM cortex.job j WHERE j.id = of_job AND j.attempt = of_attempt AND j.pod_id = of_pod
        AND j.status::text = 'RUNNING');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO cortex.model_batch_call (id, lineage_id, job_id, step, digest, endpoint, model, config_id, request, size)
    VALUES (new_call, of_lineage, of_job, of_step, of_digest, to_endpoint, of_model, of_config, given, of_size);
    RETURN true;
END $$;
COMMENT ON FUNCTION cortex.add_batch_call IS
    'Has a call wait for a batch, with the room that was reserved for it; false: the attempt is over.';

CREATE FUNCTION cortex.gather_batch(
    new_batch uuid, endpoints text[], count_max int, bytes_max bigint, wait_s float8, lease_s float8
) RETURNS SETOF cortex.model_batch_call
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text;
    late uuid[];
    ids uuid[];
BEGIN
    IF NOT cortex.take_turn('batches') THEN
        RETURN;
    END IF;
    PERFORM cortex.drop_batch_calls(ARRAY(
        SELECT c.id FROM cortex.model_batch_call c LEFT JOIN cortex.job_record j ON j.id = c.job_id
        WHERE c.state = 'WAITING' AND (j.id IS NULL OR j.finished_at IS NOT NULL) ORDER BY c.id LIMIT 1000));
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), request = NULL, failure = 'no pod could send it within a day'
        WHERE c.id IN (SELECT w.id FROM cortex.model_batch_call w
                       WHERE w.state = 'WAITING' AND w.added_at < cortex.now() - interval '1 day' LIMIT 1000)
        RETURNING c.id
    )
    SELECT array_agg(f.id) INTO late FROM failed f;
    PERFORM cortex.settle_batch_calls(late, NULL, NULL, 'failed');
    SELECT e.name INTO chosen FROM unnest(endpoints) AS e(name)
    CROSS JOIN LATERAL (
        SELECT min(n.ready_at) AS first_at, count(*) AS waiting, sum(n.size) AS bytes
        FROM (SELECT c.ready_at, c.size FROM cortex.model_batch_call c
              WHERE c.state = 'WAITING' AND c.endpoint = e.name AND c.ready_at <= cortex.now()
              ORDER BY c.ready_at, c.id LIMIT count_max) n) w
    WHERE w.first_at <= cortex.now() - wait_s * interval '1 second' OR w.waiting >= count_max OR w.bytes >= bytes_max
    ORDER BY w.first_at LIMIT 1;
    IF chosen IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(s.id) INTO ids FROM (
        SELECT n.id, sum(n.size) OVER (ORDER BY n.ready_at, n.id) AS upto, row_number() OVER (ORDER BY n.ready_at, n.id)
        FROM (SELECT c.id, c.ready_at, c.size FROM cortex.model_batch_call c
              WHERE c.state = 'WAITING' AND c.endpoint = chosen AND c.ready_at <= cortex.now()
              ORDER BY c.ready_at, c.id LIMIT count_max) n) s
    WHERE s.upto <= bytes_max OR s.row_number = 1;
    INSERT INTO cortex.model_batch (id, endpoint, state, call_count, due_at)
    VALUES (new_batch, chosen, 'SENDING', cardinality(ids), cortex.now() + lease_s * interval '1 second');
    RETURN QUERY UPDATE cortex.model_batch_call c SET state = 'SENT', batch_id = new_batch
        WHERE c.id = ANY (ids) AND c.state = 'WAITING' RETURNING c.*;
END $$;
COMMENT ON FUNCTION cortex.gather_batch IS
    'Puts waiting calls of one endpoint into a new batch, once enough of them wait or the first one long enough, and gives '
    'it to the caller for some seconds. Before, drops those of ended jobs, and gives up those that wait for a day. One process at a time.';

CREATE FUNCTION cortex.unsend_batch(of_batch uuid, why text, again_s float8) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    over uuid[];
BEGIN
    UPDATE cortex.model_batch b SET state = 'UNSENT', ended_at = cortex.now()
    WHERE b.id = of_batch AND b.state = 'SENDING';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF again_s IS NOT NULL THEN
        UPDATE cortex.model_batch_call c
        SET state = 'WAITING', batch_id = NULL, ready_at = cortex.now() + again_s * interval '1 second'
        WHERE c.batch_id = of_batch AND c.state = 'SENT' AND NOT c.is_dropped
          AND c.added_at > cortex.now() - interval '1 day';
    END IF;
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), failure = left(why, 2000), request = NULL
        WHERE c.batch_id = of_batch AND c.state = 'SENT' RETURNING c.id
    )
    SELECT array_agg(f.id) INTO over FROM failed f;
    PERFORM cortex.settle_batch_calls(over, NULL, NULL, 'failed');
    RETURN coalesce(cardinality(over), 0);
END $$;
COMMENT ON FUNCTION cortex.unsend_batch IS
    'Ends a batch that certainly was not created: its calls wait for another one, or, without a pause or after a day, are '
    'to be made directly. Returns how many those are.';

CREATE FUNCTION cortex.end_batch_calls(
    of_batch uuid, calls uuid[], answers text[], usages jsonb[], costs numeric[], failures text[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept record;
    number int := 0;
BEGIN
    FOR kept IN
        WITH ended AS (
            UPDATE cortex.model_batch_call c
            SET state = CASE WHEN e.answer IS NULL THEN 'FAILED' ELSE 'SUCCEEDED' END, done_at = cortex.now(),
                answer = CASE WHEN NOT c.is_dropped THEN e.answer END, usage = e.usage, cost_usd = e.cost,
                failure = left(e.failure, 2000), request = NULL
            FROM unnest(calls, answers, usages, costs, failures) AS e(id, answer, usage, cost, failure)
            WHERE c.id = e.id AND c.batch_id = of_batch AND c.state = 'SENT'
            RETURNING c.id, c.state, e.usage, e.cost
        )
        SELECT CASE d.state WHEN 'SUCCEEDED' THEN 'kept' ELSE 'failed' END AS outcome,
               array_agg(d.id) AS ids, array_agg(d.usage) AS usages, array_agg(d.cost) AS costs
        FROM ended d GROUP BY 1
    LOOP
        PERFORM cortex.settle_batch_calls(kept.ids, kept.usages, kept.costs, kept.outcome);
        number := number + cardinality(kept.ids);
    END LOOP;
    RETURN number;
END $$;
COMMENT ON FUNCTION cortex.end_batch_calls IS
    'Keeps results of a batch and books them; a call that has a result already is skipped. Returns how many were new.';

CREATE FUNCTION cortex.end_batch(of_batch uuid, are_lost boolean, why text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    over uuid[];
BEGIN
    UPDATE cortex.model_batch b SET state = CASE WHEN are_lost THEN 'LOST' ELSE 'ENDED' END, ended_at = cortex.now()
    WHERE b.id = of_batch AND b.state = CASE WHEN are_lost THEN 'SENDING' ELSE 'SENT' END;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    WITH failed AS (
        UPDATE cortex.model_batch_call c
        SET state = 'FAILED', done_at = cortex.now(), failure = left(why, 2000), request = NULL
        WHERE c.batch_id = of_batch AND c.state = 'SENT' RETURNING c.id
    )
    SELECT array_agg(f.id) INTO over FROM failed f;
    PERFORM cortex.settle_lost(over);
    RETURN coalesce(cardinality(over), 0);
END $$;
COMMENT ON FUNCTION cortex.end_batch IS
    'Ends a batch; calls that it has no result of are booked as lost, and are to be made directly. Returns how many.';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader') THEN
        GRANT SELECT ON cortex.model_batch, cortex.model_batch_call TO cortex_reader;
    END IF;
END $$;
