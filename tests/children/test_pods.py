"""Parents and children on pods, which are killed."""

import json
from collections import Counter
from functools import partial
from uuid import UUID

import pytest

from tests.children.conftest import Family
from tests.support.eventually import eventually
from tests.support.pods import run_cli
from tests.support.records.rows import assert_one_truth

NUMBERS = [1, 2, 3, 4, 5, 6, 7]
TOTAL = 2 * (100 + sum(NUMBERS) + 1000)
LEAVES = Counter(str(each) for each in (*NUMBERS, 100, 1000, 5))


def test_parent_gets_the_result_of_each_child_once(family: Family) -> None:
    family.start()
    job_id = family.submit("add", numbers=NUMBERS)
    assert family.result(job_id) == TOTAL
    eventually(lambda: family.states() == {"COMPLETED": 11}, what="all have ended")
    assert family.ran() == LEAVES
    children = family.children(job_id)
    assert [row["type"] for row in children] == ["double"] * 10
    assert {row["submitted_by"] for row in children} == {family.row(job_id)["submitted_by"]}
    assert_one_truth(family.dsn)


@pytest.mark.parametrize(
    "point", ["before_spawn:2", "after_spawn:2", "after_spawn:3", "before_waits:2", "after_waits:1"]
)
def test_killed_pod_leaves_children_that_run_once(family: Family, point: str) -> None:
    job_id = family.submit("add", numbers=NUMBERS)
    first = family.start(crash_at=point)
    eventually(lambda: not first.is_alive, what="the first pod dies")
    family.start()
    assert family.result(job_id) == TOTAL
    eventually(lambda: family.states() == {"COMPLETED": 11}, what="all have ended")
    assert len(family.children(job_id)) == 10
    assert_one_truth(family.dsn)


@pytest.mark.parametrize(
    "point", [None, "between_transactions.children.cut:3", "after_cut:1", "after_cut:2"]
)
def test_cancelled_parent_ends_all_below_it_but_detached_jobs(
    family: Family, point: str | None
) -> None:
    first = family.start() if point is None else family.start(crash_at=point)
    job_id = family.submit("hang", depth=2)
    waiting = {"RETRY": 4 + 3, "WAITING_FOR_APPROVAL": 3}
    eventually(lambda: family.states() == waiting, what="the leaves wait, and all above")
    if point is None:
        _people_see_the_family(family, job_id)
    done = run_cli(
        *("jobs", "cancel", str(job_id), "--reason", "enough", "--yes"),
        dsn=family.dsn,
        folder=family.pods.folder,
    )
    assert done.exit_code == 0, done.stderr
    if point is not None:
        eventually(lambda: not first.is_alive, what="the first pod dies")
        family.start()
    eventually(
        lambda: family.states() == {"CANCELLED": 4 + 3, "RETRY": 3}, what="all below are cancelled"
    )
    reasons = {row["cancel_reason"] for row in family.children(job_id)} - {None}
    assert reasons == {"the job that submitted it was cancelled: enough"}


def test_failed_child_raises_its_dead_letter(family: Family) -> None:
    family.start()
    job_id = family.submit("catch", number=3)
    caught = family.result(job_id)
    (child,) = family.children(job_id)
    assert caught == {
        "child": str(child["id"]),
        "code": "final",
        "text": f"child {child['id']} of step 'fail_at_once' failed: ValueError: number 3 is odd",
    }


def test_retried_parent_keeps_what_is_done_and_runs_the_rest_again(family: Family) -> None:
    family.start()
    job_id = family.submit("gather", numbers=[1, 3, 4, 5, 7, 9])
    row = family.until(job_id, "FAILED")
    assert row["error_code"] == "child_failed"
    eventually(lambda: family.states()["RUNNING"] == 0, what="nothing runs")
    before = family.ran()
    family.notes.with_suffix(".well").touch()
    done = run_cli(
        *("dead", "retry", str(job_id), "--reason", "mended", "--yes"),
        dsn=family.dsn,
        folder=family.pods.folder,
    )
    assert done.exit_code == 0, done.stderr
    eventually(lambda: family.states()["COMPLETED"] == 7, what="the retry completes")
    assert before["1"] == family.ran()["1"] == 1
    # The failed one goes on after its last step.
    assert family.ran() == dict.fromkeys("134579", 1)
    assert family.states() == {"FAILED": 2, "COMPLETED": 7} | (
        {"CANCELLED": family.states()["CANCELLED"]} if family.states()["CANCELLED"] else {}
    )
    assert_one_truth(family.dsn)


def test_job_that_submits_itself_without_end_fails(family: Family) -> None:
    family.start()
    job_id = family.submit("dig")
    row = family.until(job_id, "FAILED")
    assert "of step 'dig' failed: child " in row["error_message"]
    eventually(lambda: family.states() == {"FAILED": 21}, what="all have failed")


def _people_see_the_family(family: Family, job_id: UUID) -> None:
    """Of a parent that waits for two children, each of which waits for two."""
    run = partial(run_cli, dsn=family.dsn, folder=family.pods.folder)
    tree = run("jobs", "tree", str(job_id)).stdout.splitlines()
    assert [line.partition("hang")[0] for line in tree] == [
        *("", "├─ ", "├─ ", "│  ├─ ", "│  ├─ ", "│  └─ "),
        *("└─ ", "   ├─ ", "   ├─ ", "   └─ "),
    ]
    assert "▷ child" in tree[0]
    assert "detached" in tree[1]
    why = run("why", str(job_id)).stdout
    assert "it waits for its children of step hang: 2 waiting" in why
    assert f"cortex jobs tree {job_id}" in why
    (first, *_) = (row for row in family.children(job_id) if json.loads(row["payload"])["depth"])
    shown = run("jobs", "show", str(first["id"])).stdout
    assert f"child of {job_id}" in shown
