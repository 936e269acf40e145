"""The jobs that a pod runs: its slots, and why each was stopped."""

import trio

from cortex.runtime.jobs.running import RunningJob, RunningJobs, Stop
from tests.support.records.factories import a_claim, a_lease


async def test_slots_are_taken_and_given_back() -> None:
    running = RunningJobs(slots=2)
    ended: list[RunningJob] = []
    running.on_ended = ended.append
    claim = a_claim()
    job = running.add(claim)
    assert (running.free_slots, running.job_ids, running.leases) == (
        1,
        [claim.lease.job_id],
        [claim.lease],
    )
    running.remove(job)
    assert (running.free_slots, len(running), ended) == (2, 0, [job])


async def test_the_scope_of_a_job_ends_with_its_time() -> None:
    job = RunningJobs(slots=1).add(a_claim(left_s=30.0))
    assert 29 < job.scope.deadline - trio.current_time() <= 30


async def test_the_first_reason_stays_unless_the_lease_is_lost() -> None:
    running = RunningJobs(slots=3)
    claim = a_claim()
    job, lease = running.add(claim), claim.lease
    running.end(lease.job_id, lease.attempt + 1, Stop.CANCELLED)
    assert job.stop is None
    running.end(lease.job_id, lease.attempt, Stop.CANCELLED)
    running.end_all(Stop.HANDED_BACK)
    assert job.stop is Stop.CANCELLED
    assert job.scope.cancel_called
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


async def test_what_the_database_does_not_confirm_is_stopped_and_told() -> None:
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


async def test_waiting_until_nothing_runs() -> None:
    running = RunningJobs(slots=3)
    await running.wait_until_empty()
    jobs = [running.add(a_claim()) for _ in range(2)]
    emptied = False

    async def wait() -> None:
        nonlocal emptied
        await running.wait_until_empty()
        emptied = True

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            running.remove(jobs[0])
            await trio.testing.wait_all_tasks_blocked()
            assert not emptied
            running.remove(jobs[1])
    assert emptied
