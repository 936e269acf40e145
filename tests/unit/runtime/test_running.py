"""The jobs that a pod runs: its slots, and why each was stopped."""

import pytest
import trio

from cortex.runtime.running import Observer, RunningJob, RunningJobs, Stop
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import a_claim, a_lease


class Reports(Observer):
    """Records what it is called with."""

    def __init__(self, running: RunningJobs) -> None:
        self._running = running
        self.firsts: list[bool] = []
        self.freed: list[int] = []
        self.ended: list[RunningJob] = []
        running.observers.append(self)

    def first_job_began(self) -> None:
        self.firsts.append(self._running.has_run)

    def slot_freed(self) -> None:
        self.freed.append(self._running.free_slots)

    def job_ended(self, job: RunningJob) -> None:
        self.ended.append(job)


async def test_slots_are_taken_and_given_back() -> None:
    running = RunningJobs(slots=2)
    ended = Reports(running).ended
    claim = a_claim()
    job = running.add(claim)
    assert (running.free_slots, running.job_ids, running.leases) == (
        1,
        [claim.lease.job_id],
        [claim.lease],
    )
    running.remove(job)
    assert (running.free_slots, len(running), ended) == (2, 0, [job])


async def test_a_handler_is_cancelled_when_its_time_is_over() -> None:
    running = RunningJobs(slots=3)
    now = trio.current_time()
    late, early, unbegun = (running.add(a_claim(left_s=left_s)) for left_s in (60.0, 30.0, 20.0))
    late.scope, early.scope = trio.CancelScope(), trio.CancelScope()
    assert running.next_deadline == pytest.approx(now + 20.0, abs=1.0)
    running.cancel_overdue(now + 29.0)
    assert not early.scope.cancel_called
    assert running.next_deadline == early.deadline
    running.cancel_overdue(now + 31.0)
    assert (early.scope.cancel_called, late.scope.cancel_called) == (True, False)
    assert running.next_deadline == late.deadline
    assert unbegun.scope is None


async def test_a_posted_end_frees_its_slot_and_keeps_its_lease() -> None:
    running = RunningJobs(slots=1)
    freed = Reports(running).freed
    claim = a_claim()
    job = running.add(claim)
    running.posted(job)
    assert freed == [1]
    assert (len(running), running.leases, running.known_ids) == (
        1,
        [claim.lease],
        [claim.lease.job_id],
    )
    job.is_recorded = job.is_answered = True
    running.remove(job)
    assert (running.free_slots, len(running), freed) == (1, 0, [1])
    assert running.left_behind == []


async def test_an_end_that_is_answered_before_it_counts_as_posted_is_not_counted() -> None:
    running = RunningJobs(slots=1)
    job = running.add(a_claim())
    running.remove(job)
    running.posted(job)
    assert running.free_slots == 1


async def test_no_more_posted_ends_than_slots_give_their_slots_back() -> None:
    running = RunningJobs(slots=2)
    freed = Reports(running).freed
    posted = [running.add(a_claim()) for _ in range(2)]
    for each in posted:
        running.posted(each)
    assert running.free_slots == 2
    more = [running.add(a_claim()) for _ in range(2)]
    for each in more:
        running.posted(each)
    assert (running.free_slots, len(running)) == (0, 4)
    freed.clear()
    for each in posted + more:
        running.remove(each)
    assert freed == [1, 2]
    assert running.free_slots == 2


async def test_posted_ends_that_are_given_up_leave_their_jobs_to_others() -> None:
    running = RunningJobs(slots=3)
    posted, runs = running.add(a_claim()), running.add(a_claim())
    running.posted(posted)
    running.give_up_posted()
    assert running.left_behind == [posted.lease.job_id]
    assert running.job_ids == [runs.lease.job_id]
    running.remove(posted)  # the answer comes after all
    assert (running.free_slots, len(running.left_behind)) == (2, 1)


async def test_the_first_job_that_the_record_names_is_reported_once() -> None:
    running = RunningJobs(slots=3)
    reports = Reports(running).firsts
    running.add(a_claim(type="sweep_zombies"))
    assert (running.has_run, reports) == (False, [])
    for _ in range(2):
        running.add(a_claim())
    assert reports == [True]


async def test_a_newer_attempt_takes_the_place_of_a_posted_end() -> None:
    running = RunningJobs(slots=3)
    first = a_claim()
    older = running.add(first)
    running.posted(older)
    newer = running.add(a_claim(lease=a_lease(2, job_id=first.lease.job_id)))
    assert (running.free_slots, running.leases) == (2, [newer.lease])
    assert running.left_behind == []


async def test_the_first_reason_stays_unless_the_lease_is_lost() -> None:
    running = RunningJobs(slots=3)
    claim = a_claim()
    job, lease = running.add(claim), claim.lease
    scope = job.scope = trio.CancelScope()
    running.end(lease.job_id, lease.attempt + 1, Stop.CANCELLED)
    assert job.stop is None
    running.end(lease.job_id, lease.attempt, Stop.CANCELLED)
    running.end_all(Stop.HANDED_BACK)
    assert job.stop is Stop.CANCELLED
    assert scope.cancel_called
    running.end_all(Stop.LEASE_LOST)
    running.end_all(Stop.CANCELLED)
    assert job.stop is Stop.LEASE_LOST


async def test_a_newer_attempt_of_a_job_ends_the_older_one_and_keeps_its_place() -> None:
    running = RunningJobs(slots=3)
    first = a_claim()
    older = running.add(first)
    newer = running.add(a_claim(lease=a_lease(2, job_id=first.lease.job_id)))
    assert older.stop is Stop.LEASE_LOST
    assert newer.stop is None
    running.remove(older)
    assert running.leases == [newer.lease]


async def test_unconfirmed_jobs_are_stopped_and_returned() -> None:
    running = RunningJobs(slots=3)
    kept, lost, ended = (a_claim() for _ in range(3))
    jobs = [running.add(claim) for claim in (kept, lost, ended)]
    leases = running.leases
    running.remove(jobs[2])  # while the heartbeat was on its way
    assert running.keep_only(leases, {kept.lease.job_id}) == [lost.lease]
    assert [job.stop for job in jobs] == [None, Stop.LEASE_LOST, None]


async def test_a_job_claimed_again_meanwhile_is_not_ended_by_an_old_answer() -> None:
    running = RunningJobs(slots=3)
    old = a_claim()
    running.remove(running.add(old))
    new = running.add(a_claim(lease=a_lease(2, job_id=old.lease.job_id)))
    assert running.keep_only([old.lease], set()) == []
    assert new.stop is None


async def test_wait_until_empty_returns_when_no_job_runs() -> None:
    running = RunningJobs(slots=3)
    await running.wait_until_empty()
    jobs = [running.add(a_claim()) for _ in range(2)]
    emptied = False

    async def wait() -> None:
        nonlocal emptied
        await running.wait_until_empty()
        emptied = True

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            running.remove(jobs[0])
            await trio.testing.wait_all_tasks_blocked()
            assert not emptied
            running.remove(jobs[1])
    assert emptied
