"""kill -9 in a call that leaves no trace: a person is asked, only about what is truly open.

Each doomed pod gets one job and dies at its point; then another pod inherits the jobs. The cases
that need no person are in `python -m chaos points`: every point, every kind of step.
"""

import itertools

import pytest

from chaos.cluster.ledger import Application
from tests.support.doom import Fallen, Payments
from tests.support.records.rows import assert_one_truth, job_row, until_job, until_status
from tests.support.servers.postgres import sql

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
ATTEMPTS = "SELECT outcome, error FROM cortex.job_attempt WHERE job_id = $1 ORDER BY attempt"


def the_one(payments: Payments, account: str) -> Application:
    """The single payment of an account."""
    (application,) = payments.ledger.applied(account)
    return application


def assert_paid_once(payments: Payments, jobs: list[Fallen]) -> None:
    """Check that each was applied once, under its own key, and that the job has the result."""
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


def test_untraceable_call_is_left_to_a_person(payments: Payments) -> None:
    doomed = payments.doomed(OF_A_CALL)
    for number in range(len(OF_A_CALL)):
        payments.ledger.set(f"blind-{number}", honours_key=False)
        payments.submit("blind", f"blind-{number}")
    fallen = payments.fallen(doomed)
    payments.start()
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
    """Resolve an effect, and check that it is called again only if not applied."""
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


@pytest.mark.smoke("An effect is applied once, or a person decides")
def test_a_release_that_renames_an_effect_does_not_apply_it_again(payments: Payments) -> None:
    """Nor does one that renames its function, but then its job goes on."""
    doomed = payments.doomed(("after_intent:1", "after_step:1", "during_call:2"))
    for number in range(len(doomed) - 1):
        payments.submit("effect", f"renamed-{number}")
    payments.submit("moved", "moved")
    fallen = payments.fallen(doomed)
    payments.pods.environment["EFFECT_NAME"] = "pay_customer"
    payments.start()
    payments.until(1, "COMPLETED")
    assert the_one(payments, "moved").result
    payments.until(len(fallen) - 1, "RETRY")
    for job in (job for job in fallen if job.account != "moved"):
        row = until_job(
            payments.dsn, job.job_id, lambda row: row["waiting_on"] == "code", "to wait for code"
        )
        assert row["retry_count"] == 0
        (*_, misfit) = sql(payments.dsn, ATTEMPTS, job.job_id)
        assert misfit["outcome"] == "misfit"
        assert "'pay_customer'" in misfit["error"]
        assert "effect 'pay'" in misfit["error"]
        assert len(payments.ledger.applied(job.account)) == (job.point in APPLIED)
    assert_one_truth(payments.dsn)
