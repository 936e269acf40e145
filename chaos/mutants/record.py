"""Mutants of the record: its transactions, locks, claims, retries and keys."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

_CLAIM_OLD: Final = """FROM due JOIN cortex.job_record j ON j.id = due.job_id
WHERE t.ctid = due.place
"""
_CLAIM_NEW: Final = """FROM cortex.job_record j
WHERE j.id = t.job_id AND t.state = 'READY' AND t.task = ANY ($2) AND $5 >= 0
  AND t.job_id IN (
    SELECT d.job_id FROM cortex_worker.task d
    WHERE d.state = 'READY' AND d.task = t.task AND NOT EXISTS (
      SELECT FROM cortex_worker.queue_pause p WHERE p.queue = coalesce(d.queue_name, ''))
    ORDER BY d.priority, d.run_at, d.id LIMIT $3 FOR UPDATE SKIP LOCKED)
"""
_NOTE_ENDS: Final = """-- name: note_ends
-- $1 ids.
INSERT INTO cortex.job_history (job_id, previous, new, attempt, pod_id, at, metadata)
SELECT j.id, 'RUNNING', j.status, j.attempt, j.pod_id, j.updated_at, '{}' FROM cortex.job j
WHERE j.id = ANY ($1::uuid[]) AND j.status = 'COMPLETED'
RETURNING job_id;

-- name: settled
"""

MUTANTS: Final = (
    Mutant(
        name="async-commit",
        what="commits are acknowledged before they are on the disk",
        scene="power-cut",
        invariant="I1",
        patches=(
            Patch(
                "cortex/postgres/database.py",
                '    "jit": "off",\n}\n',
                '    "jit": "off",\n    "synchronous_commit": "off",\n}\n',
            ),
        ),
    ),
    Mutant(
        name="late-cancel",
        what="a job can be cancelled after its end",
        scene="trickle",
        invariant="I2",
        patches=(
            Patch(
                "sql/queries/jobs.sql",
                "    WHERE j.id = f.id AND f.status NOT IN"
                " ('COMPLETED', 'FAILED', 'CANCELLED') AND NOT f.is_outdated\n",
                "    WHERE j.id = f.id AND NOT f.is_outdated\n",
            ),
            Patch(
                "sql/queries/jobs.sql",
                "        status = CASE WHEN f.is_locked THEN j.status ELSE 'CANCELLED' END,\n",
                "        status = CASE WHEN f.is_locked THEN j.status ELSE 'CANCELLED' END,"
                " result = NULL, error_message = NULL,\n",
            ),
            Patch(
                "sql/migrations/0003_jobs.sql",
                "        ELSE false\n    END;\nCOMMENT ON FUNCTION cortex.is_legal_transition",
                "        ELSE new = 'CANCELLED'\n    END;\n"
                "COMMENT ON FUNCTION cortex.is_legal_transition",
            ),
        ),
    ),
    Mutant(
        name="hole",
        what="one step number of a job is skipped",
        scene="trickle",
        invariant="I5",
        patches=(
            Patch(
                "cortex/durable/tally.py",
                "        self._seq += 1\n",
                "        self._seq += 1 + (self._seq == 1)\n",
            ),
        ),
    ),
    Mutant(
        name="back-to-start",
        what="a job that is handed back is PENDING as if it had never started",
        scene="drained",
        invariant="I20",
        patches=(
            Patch(
                "sql/queries/tasks.sql",
                "    SET status = (CASE WHEN f.is_over THEN 'CANCELLED' ELSE 'RUNNING' END)",
                "    SET status = (CASE WHEN f.is_over THEN 'CANCELLED' ELSE 'PENDING' END)",
            ),
            Patch(
                "sql/migrations/0003_jobs.sql",
                "        WHEN 'RUNNING' THEN new IN ('COMPLETED',",
                "        WHEN 'RUNNING' THEN new IN ('PENDING', 'COMPLETED',",
            ),
        ),
    ),
    Mutant(
        name="no-second-look",
        what="a job that pauses before a retry is never polled again",
        scene="calm",
        invariant="I24",
        patches=(
            Patch(
                "sql/queries/retries.sql",
                "'^(approval|budget|child|signal):') AND next_retry_at <= cortex.now()\n",
                "'^(approval|budget|child|signal):') AND next_retry_at IS NULL\n",
            ),
        ),
    ),
    Mutant(
        name="history-apart",
        what="the end of a job and its history are written in two transactions",
        scene="killed",
        invariant="I10",
        patches=(
            Patch(
                "sql/migrations/0004_history.sql",
                "n.finished_at IS NOT NULL)\n        RETURNING",
                "n.finished_at IS NOT NULL) AND n.status <> 'COMPLETED'\n        RETURNING",
            ),
            Patch(
                "sql/migrations/0004_history.sql",
                "GRANT SELECT ON cortex.job_history TO cortex_runtime;\n",
                "GRANT SELECT, INSERT ON cortex.job_history TO cortex_runtime;\n",
            ),
            Patch("sql/queries/jobs.sql", "-- name: settled\n", _NOTE_ENDS),
            Patch(
                "cortex/store/jobs.py",
                "async def settled(",
                "async def note_ends(db: Database, ids: set[UUID]) -> None:\n"
                '    await db.fetch("jobs.note_ends", list(ids))\n\n\n'
                "async def settled(",
            ),
            Patch(
                "cortex/runtime/commit/committer.py",
                '        crash_point("after_finish")\n',
                '        crash_point("after_finish")\n'
                "        await self._port(jobs.note_ends, ended)\n",
            ),
        ),
    ),
    Mutant(
        name="lost-dead-letter",
        what="a job fails without a dead letter",
        scene="calm",
        invariant="I10",
        patches=(
            Patch(
                "sql/migrations/0012_dead_letters.sql",
                "CREATE TRIGGER dead_letter_of_failure AFTER UPDATE OF status ON",
                "CREATE TRIGGER dead_letter_of_failure AFTER UPDATE OF payload ON",
            ),
        ),
    ),
    Mutant(
        name="unordered-locks",
        what="heartbeats lock jobs in another order than commits, and wait for them",
        scene="busy",
        invariant="I9",
        patches=(
            Patch(
                "sql/queries/pods.sql",
                "    ORDER BY t.job_id FOR NO KEY UPDATE OF t SKIP LOCKED\n",
                "    ORDER BY t.job_id DESC FOR NO KEY UPDATE OF t\n",
            ),
        ),
    ),
    Mutant(
        name="claim-by-subquery",
        what="a claim's limit is in a subquery that runs again for each row",
        scene="calm",
        invariant="I4",
        patches=(Patch("sql/queries/tasks.sql", _CLAIM_OLD, _CLAIM_NEW),),
    ),
    Mutant(
        name="no-jitter",
        what="all jobs pause equally long before a retry",
        scene="calm",
        invariant="I6",
        patches=(
            Patch(
                "cortex/domain/retry.py",
                "    jittered_s = backoff.pause_s(retry_count + 1, rng=rng)\n",
                "    jittered_s = backoff.longest_s(retry_count + 1)\n",
            ),
        ),
    ),
    Mutant(
        name="forgotten-key",
        what="a repeated request with the same key is executed again",
        scene="calm",
        invariant="I21",
        patches=(
            Patch(
                "sql/queries/idempotency.sql",
                "    WHERE k.expires_at <= cortex.now()\n    RETURNING k.key\n",
                "    RETURNING k.key\n",
            ),
        ),
    ),
    Mutant(
        name="signal-again",
        what="a signal that a step has taken is given to the next step, too",
        scene="signalled",
        invariant="I38",
        patches=(
            Patch(
                "sql/migrations/0033_signals.sql",
                "n.tenant = own.tenant AND n.name = of_name AND n.taken_at IS NULL\n",
                "n.tenant = own.tenant AND n.name = of_name\n",
            ),
        ),
    ),
    Mutant(
        name="loser-keeps-signal",
        what="a wait that loses against another one keeps the signal that it has taken",
        scene="raced",
        invariant="I38",
        patches=(
            Patch(
                "sql/migrations/0032_waits.sql",
                "s.taken_step = loser.step AND s.taken_at IS NOT NULL\n",
                "s.taken_step = loser.step AND false\n",
            ),
        ),
    ),
    Mutant(
        name="lost-reply",
        what="a transaction whose reply is lost is reported as failed",
        scene="cut-off",
        invariant="I10",
        patches=(
            Patch(
                "cortex/postgres/errors.py",
                "        return OutcomeUnknownError(\n"
                '            f"the connection to the database broke:',
                "        return UnavailableError(\n"
                '            f"the connection to the database broke:',
            ),
            Patch(
                "cortex/postgres/errors.py",
                '        return OutcomeUnknownError(\n            f"the database went away:',
                '        return UnavailableError(\n            f"the database went away:',
            ),
        ),
    ),
)
