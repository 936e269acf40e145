"""Children that two sessions change at once: neither waits for the other, and no wait is missed."""

import pytest

from cortex.domain.waits import ChildrenWait
from cortex.postgres.queries import sql as query_text
from cortex.store import children, jobs
from tests.children.conftest import Parents
from tests.signals.conftest import open_transaction
from tests.support.records.factories import JOB_TYPE
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

END = (
    "UPDATE cortex.job_record SET status = 'CANCELLED', cancelled_by = 'me', "
    "cancel_requested_at = cortex.now(), worker_job_id = NULL WHERE id = $1"
)
BY_HAND = (
    "INSERT INTO cortex.job_record (id, type, payload, origin_id, lineage_id, parent_id, "
    "max_retries) SELECT $1, type, payload, id, id, parent_id, 3 FROM cortex.job_record "
    "WHERE id = $2"
)
DENIED = (
    "WITH gone AS (DELETE FROM cortex_worker.task WHERE job_id = $1) "
    "UPDATE cortex.job_record SET status = 'FAILED', attempt = 1, error_message = 'x', "
    "error_code = 'denied', worker_job_id = NULL WHERE id = $1"
)
FREE = "SELECT id FROM cortex.job_record WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED"


def test_parent_that_adopts_children_waits_for_no_batch_that_ends_them(parents: Parents) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 3, let_go=3)
    again = parents.retried(claim)
    with open_transaction(parents.stage.dsn, END, ids[2]):
        assert parents.adopt(again, let_go=3) == "busy"
        query = "SELECT parent_id FROM cortex.job_child WHERE lineage_id = $1 ORDER BY ordinal"
        rows = sql(parents.stage.dsn, query, claim.lease.job_id)
        new, old = again.lease.job_id, claim.lease.job_id
        assert [row["parent_id"] for row in rows] == [new, new, old]
    assert parents.adopt(again, let_go=3) == "done"


def test_parent_that_adopts_held_children_waits_for_none_that_just_begins(parents: Parents) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 3, let_go=1)
    again = parents.retried(claim)
    assert parents.adopt(again, let_go=1) == "done"
    third = parents.retried(again)
    with open_transaction(parents.stage.dsn, END, ids[0]):  # it lets the next one go
        assert parents.adopt(third, let_go=1) == "busy"
    assert parents.adopt(third, let_go=1) == "done"
    running = (
        "SELECT c.ordinal FROM cortex.job_child c JOIN cortex.job_record j ON j.id = c.job_id "
        "WHERE c.parent_id = $1 AND j.finished_at IS NULL"
    )
    rows = sql(parents.stage.dsn, running, third.lease.job_id)
    assert [row["ordinal"] for row in rows] == [1]


def test_children_being_cancelled_wake_the_job_that_continues_their_parent(
    parents: Parents,
) -> None:
    claim = parents.running()
    (child,) = parents.spawn(claim, 1, kind="work")
    parents.stage.claim(child)
    again = parents.retried(claim)
    parents.store(children.cut)
    assert parents.adopt(again) == "wait"
    job_id = again.lease.job_id
    parents.stage.suspend(again.lease, ChildrenWait(step="pages", upto=1), on="child:pages")
    parents.stage.wake()
    assert not parents.stage.has_task(job_id)
    sql(parents.stage.dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", child)
    sql(parents.stage.dsn, END, child)
    parents.stage.wake()
    assert parents.stage.has_task(job_id)


def test_child_that_is_cancelled_with_the_earlier_parent_after_it_was_adopted_runs_again(
    parents: Parents,
) -> None:
    claim = parents.running()
    (child,) = parents.spawn(claim, 1)
    again = parents.retried(claim)
    assert parents.adopt(again) == "done"
    by = f"job:{claim.lease.job_id}"  # its list was read before the adoption
    parents.store(jobs.cancel, child, by=by, reason="its parent failed")
    assert [each.is_left for each in parents.outcomes(again)] == [True]
    assert parents.adopt(again) == "done"
    assert parents.outcomes(again) == []
    assert parents.ids(again) != [child]
    (child,) = parents.ids(again)
    parents.store(jobs.cancel, child, by="me", reason="enough")
    assert [each.is_left for each in parents.outcomes(again)] == [False]


def test_held_children_of_an_ended_job_are_given_up_in_bounded_statements(
    parents: Parents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "WITHDRAW_MAX", 2)
    claim = parents.running()
    parents.spawn(claim, 6, let_go=1)
    parents.stage.suspend(claim.lease, delay_s=600.0, on="sleep")
    parents.end(claim.lease.job_id)
    assert parents.store(children.cut).count == 5 + 1
    left = "SELECT FROM cortex.job_child WHERE lineage_id = $1 AND ended_at IS NULL"
    assert sql(parents.stage.dsn, left, claim.lease.job_id) == []


def test_child_that_a_person_retries_while_it_is_held_takes_the_place_of_no_other(
    parents: Parents,
) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 3, let_go=3)
    parents.end(*ids[1:])
    again = parents.retried(claim)
    assert parents.adopt(again, let_go=1) == "done"
    assert len(parents.submitted(parents.ids(again))) == 1
    new = new_id()
    sql(parents.stage.dsn, BY_HAND, new, ids[1])
    parents.end(ids[0])
    now = parents.ids(again)
    assert now[1] == new
    assert parents.submitted(now) == now


def test_child_that_a_person_has_retried_runs_beside_those_that_may_at_once(
    parents: Parents,
) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 2, let_go=2)
    parents.end(*ids)
    again = parents.retried(claim)
    new = new_id()
    sql(parents.stage.dsn, BY_HAND, new, ids[0])
    sql(parents.stage.dsn, "SELECT cortex.continue_child($1, $2)", new, ids[0])
    assert parents.adopt(again, let_go=1) == "done"
    now = parents.ids(again)  # its end lets no other one begin
    assert now[0] == new
    assert parents.submitted(now) == now


def test_parent_and_person_lock_a_child_that_a_decision_failed_before_its_place(
    parents: Parents,
) -> None:
    """Else each could wait for the other: it has no dead letter that both lock first."""
    claim = parents.running()
    (child,) = parents.spawn(claim, 1, kind=JOB_TYPE)
    parents.stage.claim(child)
    sql(parents.stage.dsn, DENIED, child)
    again = parents.retried(claim)
    adopt = "SELECT cortex.adopt_children($1, 1, $2, 'pages', 0, ARRAY[$3::uuid], 1)"
    given = (again.lease.job_id, parents.stage.pod_id, new_id())
    with open_transaction(parents.stage.dsn, adopt, *given):
        assert sql(parents.stage.dsn, FREE, child) == []
    (child,) = parents.ids(again)
    parents.stage.claim(child)
    sql(parents.stage.dsn, DENIED, child)
    retry = (
        *([child], [new_id()], [0.0], None, False, "ana", ["why"], False),
        *([None], [None], "os:1"),
    )
    with open_transaction(parents.stage.dsn, query_text("dead_letters.retry"), *retry):
        assert sql(parents.stage.dsn, FREE, child) == []
    assert len(sql(parents.stage.dsn, FREE, child)) == 1
