"""The key that a job was submitted with: it keeps it while it waits to be tried again."""

from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Suspend
from cortex.postgres.session import Session
from cortex.store import retries, tasks
from tests.support.records.rows import assert_one_truth, history, new_id
from tests.support.servers.postgres import sql

POD = UUID(int=7)


def let_go_by_time(store: Session, job_id: UUID) -> None:
    assert store(retries.due).count == 1, job_id


def let_go_by_person(store: Session, job_id: UUID) -> None:
    store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)


@pytest.mark.parametrize("let_go", [let_go_by_time, let_go_by_person])
def test_a_job_that_goes_on_keeps_its_key_and_is_replaced_by_the_next(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    let_go: Callable[[Session, UUID], None],
) -> None:
    job_id = submit(job_key="k")
    (claimed,) = claim(POD)
    suspend(store, claimed)
    assert keys(database) == {}
    let_go(store, job_id)
    assert keys(database) == {job_id: "k"}
    successor = submit(job_key="k")
    assert keys(database) == {successor: "k"}
    assert history(database, job_id)[-1][:2] == ("RETRY", "CANCELLED")
    assert_one_truth(database)


def test_a_job_whose_key_was_taken_while_it_ran_goes_on_without(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    job_id = submit(job_key="k")
    (claimed,) = claim(POD)
    successor = submit(job_key="k")
    suspend(store, claimed)
    sql(
        database, "UPDATE cortex.job_record SET job_key = 'k' WHERE id = $1", job_id
    )  # as it once stayed
    assert store(retries.due).count == 1
    assert keys(database) == {job_id: None, successor: "k"}
    assert_one_truth(database)


def suspend(store: Session, claimed: Claim) -> None:
    ending = Suspend(lease=claimed.lease, delay_s=0.0, is_counted=True, error="overloaded")
    assert store(tasks.suspend, pod_id=POD, operations=[ending]) == {claimed.lease.job_id}


def keys(dsn: str) -> dict[UUID, str | None]:
    return {row["job_id"]: row["job_key"] for row in sql(dsn, "SELECT * FROM cortex_worker.task")}
