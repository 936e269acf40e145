"""The common mechanism of waits: what wakes a suspended job, whichever side is first."""

import pytest

from cortex.domain.waits import DecisionWait, SignalWait
from cortex.store import jobs, retries, waits
from tests.signals.conftest import Stage, open_transaction
from tests.support.records.rows import job_row, new_id
from tests.support.servers.postgres import sql

LATER = """
    WITH left_signal AS (UPDATE cortex.signal SET sent_at = sent_at - interval '1 second')
    UPDATE cortex.job_wake SET due_at = '-infinity'
"""


def test_a_signal_wakes_the_job_that_waits_for_it(stage: Stage) -> None:
    job_id = stage.waiting()
    row = job_row(stage.dsn, job_id)
    assert (row["status"], row["waiting_on"]) == ("WAITING_FOR_APPROVAL", "signal:x")
    assert not row["has_open"], "its next claim need not look for effects and questions"
    stage.send(job_id, name="other")
    assert stage.wake() == 0
    stage.send(job_id)
    assert stage.wake() == 1
    assert stage.has_task(job_id)
    assert stage.wait_count(job_id) == 0
    assert stage.take(stage.claim(job_id)) is not None


def test_a_signal_sent_before_the_wait_wakes_it_at_once(stage: Stage) -> None:
    claim = stage.running()
    stage.send(claim.lease.job_id)
    assert stage.wake() == 0, "it runs"
    stage.suspend(claim.lease, SignalWait(name="x"))
    assert stage.wake() == 1


@pytest.mark.smoke("A signal is received once, in the order of arrival")
def test_neither_side_sees_the_other_and_the_job_is_woken(stage: Stage) -> None:
    """The signal is sent in a transaction that ends after the job has begun to wait."""
    claim = stage.running()
    send = "SELECT cortex.send_signal('x', '1', job => $1)"
    with open_transaction(stage.dsn, send, claim.lease.job_id):
        stage.suspend(claim.lease, SignalWait(name="x"))
        assert stage.wake() == 0, "nothing is committed, and nobody waits for the sender"
    assert stage.wake() == 1


def test_a_wait_ends_at_its_time(stage: Stage) -> None:
    lease = stage.running().lease
    stage.suspend(lease, SignalWait(name="x"), delay_s=3_600.0)
    row = job_row(stage.dsn, lease.job_id)
    assert (row["status"], row["waiting_on"]) == ("RETRY", "signal:x")
    sql(
        stage.dsn,
        "UPDATE cortex.job_record SET next_retry_at = cortex.now() WHERE id = $1",
        lease.job_id,
    )
    assert stage.store(retries.due).count == 1
    assert stage.wait_count(lease.job_id) == 0
    stage.send(lease.job_id)
    assert stage.wake() == 0, "it has a task"


def test_any_of_several_waits_wakes_the_job_once(stage: Stage) -> None:
    lease = stage.running().lease
    approval = DecisionWait(id=new_id())
    stage.suspend(lease, SignalWait(name="x"), SignalWait(name="y"), SignalWait(name="y"), approval)
    assert stage.wait_count(lease.job_id) == 3
    stage.send(lease.job_id, name="y")
    stage.send(lease.job_id, name="x")
    assert stage.wake() == 1
    assert stage.wait_count(lease.job_id) == 0


def test_a_cancelled_job_waits_for_nothing(stage: Stage) -> None:
    job_id = stage.waiting(key="gone")
    stage.store(jobs.cancel, job_id, by="ana", reason="enough")
    assert stage.wait_count(job_id) == 0
    stage.send(key="gone")
    assert stage.wake() == 0


def test_a_job_that_another_session_holds_is_woken_later(stage: Stage) -> None:
    job_id = stage.waiting()
    stage.send(job_id)
    hold = "SELECT id FROM cortex.job_record WHERE id = $1 FOR UPDATE"
    with open_transaction(stage.dsn, hold, job_id):
        done = stage.store(waits.wake, limit=500)
        assert (done.woken, done.postponed) == (0, 1)
    assert stage.wake() == 1


def test_a_signal_to_a_key_wakes_one_job_and_more_until_one_takes_it(stage: Stage) -> None:
    ids = sorted(stage.waiting(key="popular") for _ in range(9))  # they are looked at in this order
    stage.send(key="popular")
    woken = [stage.store(waits.wake, limit=500).woken for _ in range(2)]
    assert woken == [1, 0], "it has a moment to take the signal"
    for expected in (2, 4, 2):
        sql(stage.dsn, LATER)
        woken.append(stage.store(waits.wake, limit=500).woken)
        assert woken[-1] == expected
    assert stage.take(stage.claim(ids[-1]), key="popular") is not None


def test_a_stream_of_signals_to_a_key_wakes_as_many_jobs(stage: Stage) -> None:
    ids = sorted(stage.waiting(key="stream") for _ in range(9))
    stage.send(key="stream")
    for number in range(3):
        assert stage.store(waits.wake, limit=500).woken == 1
        assert stage.take(stage.claim(ids[number]), key="stream") is not None
        sql(stage.dsn, LATER)
        stage.send(key="stream")  # on its way when the key is looked at again
    assert stage.store(waits.wake, limit=500).woken == 1
    sql(stage.dsn, LATER)
    assert stage.store(waits.wake, limit=500).woken == 2, "it is left by now"
    assert stage.take(stage.claim(ids[5]), key="stream") is not None
    sql(stage.dsn, LATER)
    assert stage.wake() == 0


def test_a_key_whose_signals_are_taken_is_not_looked_at_for_ever(stage: Stage) -> None:
    ids = sorted(stage.waiting(key="raced") for _ in range(5))  # they are looked at in this order
    for _ in range(2):
        stage.send(key="raced")
    done = stage.store(waits.wake, limit=500)
    assert (done.woken, done.postponed) == (2, 1), "as many as there are signals"
    for each in ids[:2]:
        assert stage.take(stage.claim(each), key="raced") is not None
    waiting = stage.store(waits.wake, limit=500)
    assert (waiting.handled, waiting.postponed) == (0, 1), "the runner looks again soon"
    sql(stage.dsn, LATER)
    passes = [stage.store(waits.wake, limit=500) for _ in range(2)]
    assert [(each.handled, each.woken, each.postponed) for each in passes] == [
        (1, 0, 0),
        (0, 0, 0),
    ]


def test_jobs_that_may_not_take_a_signal_keep_none_from_those_that_may(stage: Stage) -> None:
    may = max(stage.waiting(key="own") for _ in range(4))  # they are looked at in this order
    login = f"db:{new_id()}"
    sql(stage.dsn, "UPDATE cortex.job_record SET submitted_with = $1 WHERE id = $2", login, may)
    stage.send(key="own")
    sql(stage.dsn, "UPDATE cortex.signal SET only_for = $1 WHERE key = 'own'", login)
    woken = [stage.store(waits.wake, limit=2).woken for _ in range(3)]
    assert (woken, stage.has_task(may)) == ([1, 0, 0], True)
