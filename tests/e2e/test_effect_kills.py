"""kill -9 at every point of the effect protocol; what counts is what the other side has seen.

Each doomed pod gets one job and dies at its point; then other pods inherit the jobs. Where the
other side does not honour the key, only asking it keeps a payment from being made twice; where it
cannot be asked either, a person is, and only about what is truly open.
"""

import itertools
from uuid import UUID

import pytest

from chaos.cluster.ledger import Application
from cortex.durable.crash_points import POINTS
from tests.support.doom import Fallen, Payments
from tests.support.postgres import sql
from tests.support.rows import assert_one_truth, job_row, until_status

OF_A_CALL = (
    "before_intent:1",
    "after_intent:1",
    "during_call:1",
    "during_call:2",
    "after_call:1",
    "before_step:1",
    "after_step:1",
)
IN_DOUBT = frozenset(OF_A_CALL) - {"before_intent:1", "after_step:1"}
"""The intent is committed, the outcome is not: the call may have been made."""
APPLIED = frozenset({"during_call:2", "after_call:1", "before_step:1", "after_step:1"})
"""What the ledger has seen by then."""
OF_A_DECISION = ("before_approval:1", "after_approval:1")
OF_A_WISH = ("before_suspend:1", "after_suspend:1")
OF_A_QUESTION = ("before_reconcile:1", "after_reconcile:1")

pytestmark = pytest.mark.timeout(120)


def submitted(payments: Payments, kind: str, count: int) -> list[str]:
    """Jobs of a kind, one for each account; nobody but the key's own kind honours keys."""
    accounts = [f"{kind}-{number}" for number in range(count)]
    for account in accounts:
        payments.ledger.set(account, honours_key=kind == "keyed")
        payments.submit(kind, account)
    return accounts


def the_one(payments: Payments, account: str) -> Application:
    """What was done for an account, which was done once."""
    (application,) = payments.ledger.applied(account)
    return application


def assert_paid_once(payments: Payments, jobs: list[Fallen]) -> None:
    """Each was applied once, under its own key, and the job knows with what result."""
    for job in jobs:
        application = the_one(payments, job.account)
        row = job_row(payments.dsn, job.job_id)
        assert (row["status"], row["result"]) == ("COMPLETED", application.result), job.point
        effect = payments.effect(job.job_id)
        assert (effect["status"], str(effect["id"])) == ("COMPLETED", application.key), job.point
    assert_nothing_is_open(payments)


def assert_nothing_is_open(payments: Payments) -> None:
    """No effect of an ended job is without an end, and the record is one truth."""
    query = """
        SELECT e.key FROM cortex.effect e JOIN cortex.job j ON j.id = e.job_id
        WHERE e.status IN ('PENDING', 'UNKNOWN') AND j.finished_at IS NOT NULL
    """
    assert not sql(payments.dsn, query)
    assert_one_truth(payments.dsn)


def inherited(payments: Payments, *, heirs: int = 1) -> None:
    """Pods that start at once take over what the dead left behind."""
    for pod in [payments.launch() for _ in range(heirs)]:
        pod.until_ready()


def test_every_point_is_enumerated() -> None:
    named = {*OF_A_CALL, *OF_A_DECISION, *OF_A_WISH, *OF_A_QUESTION}
    assert {name.partition(":")[0] for name in named} == set(POINTS)


@pytest.mark.parametrize("kind", ["keyed", "asked", "effect"])
def test_a_call_that_can_be_taken_up_again_is_made_once(payments: Payments, kind: str) -> None:
    doomed = payments.doomed(OF_A_CALL)
    submitted(payments, kind, len(OF_A_CALL))
    fallen = payments.fallen(doomed)
    for job in fallen:
        assert len(payments.ledger.applied(job.account)) == (job.point in APPLIED), job.point
    inherited(payments, heirs=2)
    payments.until(len(fallen), "COMPLETED")
    assert_paid_once(payments, fallen)
    for job in fallen:
        called_again = payments.ledger.asked_count(job.account) == 2
        assert called_again == (kind == "keyed" and job.point in APPLIED - {"after_step:1"})


def test_a_call_that_nothing_tells_of_is_a_persons_to_judge(payments: Payments) -> None:
    doomed = payments.doomed(OF_A_CALL)
    submitted(payments, "blind", len(OF_A_CALL))
    fallen = payments.fallen(doomed)
    inherited(payments)
    payments.until(len(IN_DOUBT), "WAITING_FOR_APPROVAL")
    payments.until(len(OF_A_CALL) - len(IN_DOUBT), "COMPLETED")
    assert_paid_once(payments, [job for job in fallen if job.point not in IN_DOUBT])
    ways = itertools.cycle(("applied", "not-applied", "give-up"))
    for job in (job for job in fallen if job.point in IN_DOUBT):
        assert payments.effect(job.job_id)["status"] == "UNKNOWN", job.point
        assert len(payments.ledger.applied(job.account)) == (job.point in APPLIED), job.point
        assert_judged(payments, job, next(ways))
    assert_nothing_is_open(payments)


def assert_judged(payments: Payments, job: Fallen, said: str) -> None:
    """A person's word ends it: what was applied before is not called again unless they say so."""
    before = len(payments.ledger.applied(job.account))
    key = str(payments.effect(job.job_id)["id"])
    payments.resolve(job.job_id, said, result="4711" if said == "applied" else None)
    ended = until_status(payments.dsn, job.job_id, "COMPLETED", "FAILED")
    after = payments.ledger.applied(job.account)
    if said == "not-applied":
        assert (ended["status"], ended["result"]) == ("COMPLETED", after[-1].result)
        assert [each.key for each in after] == [key] * (before + 1)
        assert after[-1].attempt > 1
    else:
        expected = ("COMPLETED", 4711) if said == "applied" else ("FAILED", None)
        assert (ended["status"], ended["result"]) == expected
        assert len(after) == before


def test_an_approved_call_is_made_once_and_nobody_is_asked_again(payments: Payments) -> None:
    points = (*OF_A_DECISION, *OF_A_CALL)
    asking = payments.start()
    submitted(payments, "approved", len(points))
    payments.until(len(points), "WAITING_FOR_APPROVAL")
    asking.kill()
    doomed = payments.doomed(points)
    payments.approve()
    fallen = payments.fallen(doomed)
    inherited(payments)
    payments.until(len(points), "COMPLETED")
    assert_paid_once(payments, fallen)
    for job in fallen:
        assert payments.requests(job.job_id) == ["APPROVED"]
        assert payments.effect(job.job_id)["approval_id"] is not None


def test_what_is_asked_of_a_person_is_asked_once(payments: Payments) -> None:
    doomed = payments.doomed(OF_A_WISH)
    submitted(payments, "approved", len(OF_A_WISH))
    for each in doomed:
        each.fell()
    inherited(payments)
    payments.until(len(OF_A_WISH), "WAITING_FOR_APPROVAL")
    ids = list(payments.accounts.values())
    assert [payments.requests(job_id) for job_id in ids] == [["PENDING"]] * len(ids)
    payments.approve()
    payments.until(len(OF_A_WISH), "COMPLETED")
    for account in payments.accounts:
        assert the_one(payments, account).account == account
    assert_nothing_is_open(payments)


def left_open(payments: Payments, kind: str, point: str, count: int) -> list[UUID]:
    """Jobs whose effects were cut off at a point, free for others."""
    doomed = payments.doomed([point] * count)
    submitted(payments, kind, count)
    fallen = payments.fallen(doomed)
    payments.take_from_the_dead()
    return [job.job_id for job in fallen]


@pytest.mark.parametrize(
    "kind, point",
    [("asked", "during_call:1"), ("asked", "during_call:2"), ("effect", "during_call:2")],
)
def test_asking_the_other_side_can_be_cut_off_anywhere(
    payments: Payments, kind: str, point: str
) -> None:
    left_open(payments, kind, point, len(OF_A_QUESTION))
    fallen = payments.fallen(payments.doomed(OF_A_QUESTION))
    inherited(payments)
    payments.until(len(fallen), "COMPLETED")
    assert_paid_once(payments, fallen)
    for job in fallen:
        assert payments.ledger.asked_count(job.account) == 1


def test_the_question_to_a_person_can_be_cut_off_anywhere(payments: Payments) -> None:
    open_ids = left_open(payments, "blind", "during_call:2", len(OF_A_WISH))
    for each in payments.doomed(OF_A_WISH):
        each.fell()
    inherited(payments)
    payments.until(len(OF_A_WISH), "WAITING_FOR_APPROVAL")
    for job_id in open_ids:
        assert payments.effect(job_id)["status"] == "UNKNOWN"
        payments.resolve(job_id, "applied", result="1")
        assert until_status(payments.dsn, job_id, "COMPLETED")["result"] == 1
    for account in payments.accounts:
        assert the_one(payments, account).account == account
    assert_nothing_is_open(payments)
