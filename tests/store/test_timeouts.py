"""Receipts of time-outs: kept once, whatever they hold, and never changed."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import RejectedError
from cortex.domain.job import Claim, Lease
from cortex.domain.timeouts import FinalAction, Phase, Scope, TimeoutReceipt
from cortex.postgres.session import Session
from cortex.store import timeouts
from tests.support.records.receipts import (
    a_change,
    a_receipt,
    a_work_tree,
    an_artefact,
    an_interruption,
)
from tests.support.records.rows import as_runtime, new_id
from tests.support.servers.postgres import sql


@pytest.fixture
def lease(submit: Callable[..., UUID], claim: Callable[..., list[Claim]]) -> Lease:
    submit()
    return claim(new_id())[0].lease


def of(lease: Lease, **fields: Any) -> TimeoutReceipt:
    return a_receipt(interruption=an_interruption(lease=lease, **fields))


def test_timeout_receipt_round_trips(store: Session, lease: Lease) -> None:
    full = a_receipt(
        interruption=an_interruption(
            lease=lease, phase=Phase.MODEL, partial_text="It was a dark and\nstormy \x1b[31m"
        ),
        artefacts=(an_artefact("out/näme\n\x1b[2J"), an_artefact()),
        work_trees=(
            a_work_tree(a_change(), a_change(size_bytes=None, changed_at=None), diff="+a\n-b"),
            a_work_tree(branch=None, head=None, problem="git took longer than 5 seconds"),
        ),
        problem="the workspace holds more than 50000 files",
    )
    empty = of(
        lease, scope=Scope.JOB, phase=Phase.HANDLER, step_key=None, checkpoint_key=None, nth=2
    )
    assert store(timeouts.record, [full, empty]) == {lease.job_id}
    assert [each.receipt for each in store(timeouts.of_job, lease.job_id)] == [full, empty]


def test_a_receipt_is_kept_once(store: Session, lease: Lease) -> None:
    one = of(lease)
    others = [of(lease, scope=Scope.IDLE), of(lease, nth=2), of(lease, step_key="3 read_file")]
    between = of(lease, step_key=None)
    assert store(timeouts.record, [one, one, *others, between])
    assert store(timeouts.record, [of(lease, elapsed_s=99.0), between]) == set()
    kept = store(timeouts.of_job, lease.job_id)
    assert [each.receipt.interruption.elapsed_s for each in kept] == [30.25] * 5


def test_an_attempt_that_never_was_leaves_no_receipt(store: Session, lease: Lease) -> None:
    later, stranger = Lease(lease.job_id, lease.attempt + 1), Lease(new_id(), 1)
    assert store(timeouts.record, [of(later), of(stranger)]) == set()


def test_lost_attempt_records_its_timeout(store: Session, lease: Lease, database: str) -> None:
    sql(database, "UPDATE cortex_worker.task SET attempt = 7 WHERE job_id = $1", lease.job_id)
    assert store(timeouts.record, [of(lease)]) == {lease.job_id}


def test_the_time_out_that_ended_the_last_attempt_is_found(
    store: Session, lease: Lease, database: str
) -> None:
    assert store(timeouts.that_ended, lease.job_id) is None
    output = of(lease, nth=9, final_action=FinalAction.TOLD_MODEL)
    store(timeouts.record, [of(lease), of(lease, nth=2, step_key="x"), output])
    found = store(timeouts.that_ended, lease.job_id)
    assert found is not None
    assert found.receipt.interruption.step_key == "x"
    sql(database, "UPDATE cortex_worker.task SET attempt = 7 WHERE job_id = $1", lease.job_id)
    assert store(timeouts.that_ended, lease.job_id) is None


def test_many_receipts_are_read_page_by_page(store: Session, lease: Lease) -> None:
    count = timeouts.PAGE_MAX + 3
    store(timeouts.record, [of(lease, nth=n + 1) for n in range(count)])
    first = store(timeouts.of_job, lease.job_id)
    rest = store(timeouts.of_job, lease.job_id, after=first[-1].id)
    nths = [each.receipt.interruption.nth for each in (*first, *rest)]
    assert nths == list(range(1, count + 1))


def test_contradictory_receipt_is_refused(store: Session, lease: Lease) -> None:
    for wrong in ({"nth": 0}, {"limit_s": -1.0}, {"step_key": ""}, {"partial_text": "x" * 65_537}):
        with pytest.raises(RejectedError, match="timeout_event_"):
            store(timeouts.record, [of(lease, **wrong)])


@pytest.mark.parametrize("statement", ["UPDATE {0} SET nth = 2", "DELETE FROM {0}", "TRUNCATE {0}"])
def test_receipts_are_only_appended(
    store: Session, lease: Lease, database: str, statement: str
) -> None:
    store(timeouts.record, [of(lease)])
    query = statement.format("cortex.timeout_event")
    with pytest.raises(asyncpg.CheckViolationError, match="is append-only"):
        sql(database, query)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="timeout_event"):
        sql(as_runtime(database), query)
