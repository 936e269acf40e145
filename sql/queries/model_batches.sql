-- name: find
-- The call of a step that is in a batch or waits for one; notes that its job has seen the outcome. $1 first job of the
-- lineage, $2 job, $3 step, $4 digest of the request. Locks: the call. See cortex.find_batch_call.
SELECT c.id, c.state, c.answer, c.usage, c.cost_usd, c.failure, c.added_at, c.done_at
FROM cortex.find_batch_call($1, $2, $3, $4) c;

-- name: add
-- Has a call wait for a batch. $1 its id, that of its reservation, $2 job, $3 attempt, $4 pod, $5 first job of the
-- lineage, $6 step, $7 digest of the request, $8 endpoint, $9 model, $10 configuration, $11 the request, $12 its bytes.
-- Locks: the reservation. Safe to repeat. Returns false if the attempt is over.
SELECT cortex.add_batch_call($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS is_added;

-- name: outlook
-- Whether anything waits for a batch, and in how many seconds to look at a batch. $1 endpoints. Locks: none.
SELECT EXISTS (SELECT FROM cortex.model_batch_call WHERE state = 'WAITING') AS is_waiting,
       (SELECT extract(epoch FROM b.due_at - cortex.now())::float8 FROM cortex.model_batch b
        WHERE b.ended_at IS NULL AND b.endpoint = ANY ($1) ORDER BY b.due_at LIMIT 1) AS due_in_s;

-- name: gather
-- Puts waiting calls of one endpoint into a new batch. $1 its id, $2 endpoints that the caller can reach, $3 the most
-- calls, $4 the most bytes, $5 seconds that the first one waits, $6 seconds that the caller has for it. Locks: its turn,
-- tried without waiting; the calls. Returns them. See cortex.gather_batch.
SELECT c.id, c.lineage_id, c.endpoint, c.model, c.config_id, c.request FROM cortex.gather_batch($1, $2, $3, $4, $5, $6) c;

-- name: sent
-- Records the provider's id of a batch. $1 batch, $2 that id, $3 seconds until it is looked at. Locks: the batch. Returns
-- nothing if another process has found it first.
UPDATE cortex.model_batch b SET state = 'SENT', remote_id = $2, due_at = cortex.now() + $3::float8 * interval '1 second'
WHERE b.id = $1 AND b.state = 'SENDING' RETURNING b.id;

-- name: put_off
-- Has a batch looked at later. $1 batch, $2 seconds. Locks: the batch.
UPDATE cortex.model_batch b SET due_at = cortex.now() + $2::float8 * interval '1 second'
WHERE b.id = $1 AND b.ended_at IS NULL;

-- name: unsend
-- Ends a batch that certainly was not created. $1 batch, $2 why, $3 seconds until its calls may be put into another one,
-- or null: they are to be made directly. Locks: the batch, its calls, uses of budgets. See cortex.unsend_batch.
SELECT cortex.unsend_batch($1, $2, $3) AS failed;

-- name: claim
-- Takes one batch that is due into the caller's hands. $1 endpoints that it can reach, $2 seconds that it has. Locks: the
-- batch (skipping locked ones).
UPDATE cortex.model_batch b SET due_at = cortex.now() + $2::float8 * interval '1 second'
WHERE b.id = (SELECT d.id FROM cortex.model_batch d WHERE d.ended_at IS NULL AND d.due_at <= cortex.now()
              AND d.endpoint = ANY ($1) ORDER BY d.due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING b.id, b.endpoint, b.state, b.remote_id, b.call_count, b.created_at, cortex.now() AS now;

-- name: calls
-- The calls of a batch without a result, to recognise it by, and to read its results with. $1 batch. Locks: none.
SELECT c.id, c.model, c.config_id FROM cortex.model_batch_call c WHERE c.batch_id = $1 AND c.state = 'SENT';

-- name: others
-- The provider's ids of batches that are known to be other ones. $1 endpoint, $2 these ids. Locks: none.
SELECT b.remote_id FROM cortex.model_batch b WHERE b.endpoint = $1 AND b.remote_id = ANY ($2);

-- name: end_calls
-- Keeps results and books them. $1 batch, $2 calls, $3 answers or nulls, $4 usages, $5 US dollars, $6 failures. Locks: the
-- calls, their reservations, uses of budgets. Returns how many were new. See cortex.end_batch_calls.
SELECT cortex.end_batch_calls($1, $2, $3, $4, $5, $6) AS count;

-- name: end
-- Ends a batch. $1 batch, $2 whether nobody will know what became of it, $3 why calls have no result. Locks: the batch, its
-- calls, uses of budgets. Returns how many had none, which are booked as lost.
SELECT cortex.end_batch($1, $2, $3) AS lost;

-- name: wake
-- Gives tasks to jobs whose call in a batch is over. $1 limit. Locks: the jobs (ordered, skipping locked). Returns how many.
WITH held AS MATERIALIZED (
    SELECT j.id FROM cortex.job_record j
    WHERE j.id IN (SELECT c.job_id FROM cortex.model_batch_call c
                   WHERE c.done_at IS NOT NULL AND c.taken_at IS NULL AND NOT c.is_dropped)
      AND j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on = 'batch'
    ORDER BY j.id LIMIT $1 FOR UPDATE OF j SKIP LOCKED
)
SELECT count(*)::int AS count FROM cortex.give_tasks(ARRAY(SELECT id FROM held));

-- name: forget
-- Deletes calls that are over and of no use: their step is on record, or their job has ended a week ago, or is gone; and
-- batches without calls. $1 limit. Locks: the calls (skipping locked).
WITH useless AS MATERIALIZED (
    SELECT c.id FROM cortex.model_batch_call c LEFT JOIN cortex.job_record j ON j.id = c.job_id
    WHERE c.done_at IS NOT NULL
      AND (c.is_dropped OR j.id IS NULL OR j.finished_at < cortex.now() - interval '7 days'
           OR EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = c.job_id AND s.key = c.step))
    ORDER BY c.done_at LIMIT $1 FOR UPDATE OF c SKIP LOCKED
), gone AS (
    DELETE FROM cortex.model_batch_call c USING useless u WHERE c.id = u.id RETURNING c.batch_id
), empty AS (
    DELETE FROM cortex.model_batch b
    WHERE b.ended_at < cortex.now() - interval '7 days'
      AND NOT EXISTS (SELECT FROM cortex.model_batch_call c WHERE c.batch_id = b.id)
)
SELECT count(*)::int AS count FROM gone;
