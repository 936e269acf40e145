"""The database enforces the table of legal transitions for every writer."""

from itertools import permutations
from uuid import UUID

import asyncpg
import pytest

from tests.support.records.rows import as_runtime, history, job_row, submit
from tests.support.servers.postgres import sql

STATES = (
    *("PENDING", "RUNNING", "WAITING_FOR_APPROVAL", "RETRY"),
    *("COMPLETED", "FAILED", "CANCELLED"),
)
LEGAL = {
    "PENDING": {"RUNNING", "FAILED", "CANCELLED"},
    "RUNNING": {"COMPLETED", "FAILED", "WAITING_FOR_APPROVAL", "RETRY", "CANCELLED"},
    "RETRY": {"RUNNING", "FAILED", "CANCELLED"},
    "WAITING_FOR_APPROVAL": {"RUNNING", "FAILED", "CANCELLED"},
    "COMPLETED": set(),
    "FAILED": set(),
    "CANCELLED": set(),
}
WAYS = {  # how a new job gets there by legal steps
    "PENDING": (),
    "RUNNING": ("RUNNING",),
    "WAITING_FOR_APPROVAL": ("RUNNING", "WAITING_FOR_APPROVAL"),
    "RETRY": ("RUNNING", "RETRY"),
    "COMPLETED": ("RUNNING", "COMPLETED"),
    "FAILED": ("RUNNING", "FAILED"),
    "CANCELLED": ("CANCELLED",),
}
ROLES = ("cortex_runtime", "postgres")


def go(dsn: str, job_id: UUID, state: str) -> None:
    """Write a state with all that belongs to it, so that only the transition can be refused."""
    sql(
        dsn,
        """
        UPDATE cortex.job_record SET status = $2::text::cortex.job_status,
            next_retry_at = CASE WHEN $2 = 'RETRY' THEN cortex.now() END,
            waiting_on = CASE WHEN $2 = 'WAITING_FOR_APPROVAL' THEN 'person:mend it' END,
            error_message = CASE WHEN $2 = 'FAILED' THEN 'broken' END
        WHERE id = $1
        """,
        job_id,
        state,
    )


@pytest.mark.parametrize("role", ROLES)
def test_exactly_the_legal_transitions_are_possible(database: str, role: str) -> None:
    dsn = f"{database}&role={role}"
    for before, after in permutations(STATES, 2):
        job_id = submit(dsn, "work")
        for state in WAYS[before]:
            go(dsn, job_id, state)
        if after in LEGAL[before]:
            go(dsn, job_id, after)
            assert history(dsn, job_id)[-1][:2] == (before, after)
        else:
            with pytest.raises(asyncpg.CheckViolationError) as refused:
                go(dsn, job_id, after)
            assert f"{job_id} cannot go from {before} to {after}" in str(refused.value)
            assert job_row(dsn, job_id)["status"] == before
            assert len(history(dsn, job_id)) == 1 + len(WAYS[before])


@pytest.mark.parametrize("role", ROLES)
def test_a_job_begins_as_pending(database: str, role: str) -> None:
    for state in STATES[1:]:
        with pytest.raises(asyncpg.CheckViolationError, match=f"begin as PENDING, not {state}"):
            sql(
                f"{database}&role={role}",
                "INSERT INTO cortex.job_record (id, type, status, payload) "
                "VALUES (cortex.uuid7(), 'x', $1, '{}')",
                state,
            )


@pytest.mark.parametrize("waiting_on", [None, "approval:00000000-0000-0000-0000-000000000000"])
def test_a_wait_for_approval_needs_a_request(database: str, waiting_on: str | None) -> None:
    job_id = submit(database, "work")
    go(database, job_id, "RUNNING")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        sql(
            database,
            "UPDATE cortex.job_record SET status = 'WAITING_FOR_APPROVAL', waiting_on = $2 "
            "WHERE id = $1",
            job_id,
            waiting_on,
        )
    assert job_row(database, job_id)["status"] == "RUNNING"


def test_the_same_state_again_is_no_transition(database: str) -> None:
    job_id = submit(database, "work")
    go(database, job_id, "RUNNING")
    go(database, job_id, "RUNNING")
    assert history(database, job_id) == [(None, "PENDING", 0), ("PENDING", "RUNNING", 0)]


def test_ends_and_changes_are_stamped_by_the_database(database: str) -> None:
    job_id = submit(database, "work")
    begun = job_row(database, job_id)
    go(database, job_id, "RUNNING")
    go(database, job_id, "COMPLETED")
    ended = job_row(database, job_id)
    assert begun["finished_at"] is None
    assert ended["finished_at"] == ended["updated_at"] > begun["updated_at"]


def test_history_keeps_the_details_of_each_state(database: str) -> None:
    failed, retried, cancelled = (submit(database, "work") for _ in range(3))
    for job_id, state in ((failed, "FAILED"), (retried, "RETRY")):
        go(database, job_id, "RUNNING")
        go(database, job_id, state)
    sql(
        database,
        "UPDATE cortex.job_record SET status = 'CANCELLED', cancelled_by = 'ana', "
        "cancel_reason = 'why' WHERE id = $1",
        cancelled,
    )
    output = {
        row["job_id"]: (row["error"], row["retry_count"], row["by"], row["reason"])
        for row in sql(
            database,
            "SELECT DISTINCT ON (job_id) job_id, metadata->>'error' AS error, "
            "metadata->>'retry_count' AS retry_count, metadata->>'by' AS by, "
            "metadata->>'reason' AS reason FROM cortex.job_history ORDER BY job_id, id DESC",
        )
    }
    assert output[failed] == ("broken", None, None, None)
    assert output[retried] == (None, "0", None, None)
    assert output[cancelled] == (None, None, "ana", "why")


def test_a_pod_runs_jobs_with_the_rights_of_the_runtime(database: str) -> None:
    job_id = submit(as_runtime(database), "work")
    go(as_runtime(database), job_id, "RUNNING")
    assert len(history(database, job_id)) == 2


# --- The state before is that of history: the role of pods cannot write another one.

CLAIM = """
    UPDATE cortex_worker.task SET state = 'LOCKED', locked_by = cortex.uuid7(),
        attempt = attempt + 1, locked_at = cortex.now(), heartbeat_at = cortex.now()
    WHERE job_id = $1
"""
END = """
    UPDATE cortex.job_record SET status = $2::text::cortex.job_status, attempt = attempt + $3,
        error_message = CASE WHEN $2 = 'FAILED' THEN 'broken' END,
        next_retry_at = CASE WHEN $2 = 'RETRY' THEN cortex.now() END
    WHERE id = $1
"""


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "RETRY"])
@pytest.mark.parametrize("raised", [1, 7])
def test_a_job_that_no_pod_has_claimed_does_not_end_as_if_it_had_run(
    database: str, state: str, raised: int
) -> None:
    pod = as_runtime(database)
    job_id = submit(pod, "work")
    with pytest.raises(asyncpg.CheckViolationError, match="legal_transition"):
        sql(pod, END, job_id, state, raised)
    assert history(database, job_id) == [(None, "PENDING", 0)]
    assert job_row(database, job_id)["status"] == "PENDING"


def test_a_task_that_is_inserted_as_claimed_is_no_claim(database: str) -> None:
    pod = as_runtime(database)
    job_id = submit(pod, "work")
    sql(pod, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
    sql(
        pod,
        "INSERT INTO cortex_worker.task (job_id, task, state, attempt, max_attempts, locked_by) "
        "VALUES ($1, 'work', 'LOCKED', 1, 3, cortex.uuid7())",
        job_id,
    )
    with pytest.raises(asyncpg.CheckViolationError, match="legal_transition"):
        sql(pod, END, job_id, "COMPLETED", 1)
    assert history(database, job_id) == [(None, "PENDING", 0)]


def test_a_task_that_is_claimed_twice_is_one_transition(database: str) -> None:
    """Deleting or freeing the task of a running job does not begin its history again."""
    pod = as_runtime(database)
    job_id = submit(pod, "work")
    sql(pod, CLAIM, job_id)
    sql(
        pod,
        "UPDATE cortex_worker.task SET state = 'READY', locked_by = NULL WHERE job_id = $1",
        job_id,
    )
    sql(pod, CLAIM, job_id)
    assert history(database, job_id) == [(None, "PENDING", 0), ("PENDING", "RUNNING", 1)]


@pytest.mark.parametrize("raised", [0, 1])
def test_a_running_job_is_cancelled_as_running(database: str, raised: int) -> None:
    """Its record still shows what was before the claim."""
    pod = as_runtime(database)
    job_id = submit(pod, "work")
    sql(pod, CLAIM, job_id)
    sql(pod, END, job_id, "CANCELLED", raised)
    assert history(database, job_id)[1:] == [
        ("PENDING", "RUNNING", 1),
        ("RUNNING", "CANCELLED", raised),
    ]


def test_update_of_a_running_record_is_no_transition(database: str) -> None:
    pod = as_runtime(database)
    job_id = submit(pod, "work")
    sql(pod, CLAIM, job_id)
    sql(pod, "UPDATE cortex.job_record SET has_open = true WHERE id = $1", job_id)
    assert history(database, job_id) == [(None, "PENDING", 0), ("PENDING", "RUNNING", 1)]
