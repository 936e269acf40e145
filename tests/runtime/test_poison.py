"""Deaths of pods make their jobs suspects, which run in processes of their own."""

from functools import partial
from uuid import UUID

import attrs
import pytest

from cortex.domain.job import Claim, Lease, NumberedStep, Release, StepDone, StepKind, Suspend
from cortex.durable.tally import Tally
from cortex.runtime.running import RunningJobs
from cortex.store import jobs, pods, retries, steps, tasks
from cortex.store.pods import Pod
from tests.support.records.factories import JOB_TYPE, Bench, a_pod
from tests.support.records.rows import assert_one_truth, job_row, move_clock
from tests.support.servers.postgres import sql

DEATHS_MAX = 3


@attrs.define
class Mortal:
    """A pod that claims as a dispatcher does, and dies."""

    bench: Bench
    pod: Pod
    running: RunningJobs

    @classmethod
    async def born(cls, bench: Bench, *, slots: int = 100) -> "Mortal":
        pod = a_pod()
        await bench.port(pods.register, pod)
        return cls(bench, pod, RunningJobs(slots=slots))

    async def claims(self) -> list[Claim]:
        """Claim until there is nothing more for it."""
        await self.bench.port(tasks.promote)
        found: list[Claim] = await self.bench.port(
            tasks.claim,
            pod_id=self.pod.id,
            types=[JOB_TYPE],
            limit=self.running.free_slots,
            isolated=self.running.free_slots,
        )
        for claim in found:
            self.running.add(claim)
        return found + await self.claims() if found else []

    async def dies(self, *, limit: int = 500) -> None:
        is_done = False
        while not is_done:
            taken = await self.bench.port(
                tasks.take_over,
                pod_id=self.pod.id,
                deaths_max=DEATHS_MAX,
                limit=limit,
            )
            is_done = taken.is_done


def a_step(lease: Lease) -> NumberedStep:
    done = StepDone(
        lease=lease,
        kind=StepKind.STEP,
        key="a",
        digest=b"digest",
        duration_s=0.1,
        output="1",
        ended_at=0.0,
        tally=Tally(()),
    )
    return NumberedStep(done, 1, '{"seq": 1}')


def deaths(dsn: str, job_id: UUID) -> int:
    return int(job_row(dsn, job_id)["pod_deaths"])


@pytest.mark.smoke("No innocent job is condemned")
async def test_no_death_of_a_pod_condemns_a_job(bench: Bench, database: str) -> None:
    """It becomes a suspect, and so do those beside it."""
    ids = await bench.submit(2)
    for number in range(20):
        pod = await Mortal.born(bench)
        claims = await pod.claims()
        assert {claim.lease.job_id: claim.is_suspect for claim in claims} == dict.fromkeys(
            ids, number >= DEATHS_MAX - 1
        )
        await pod.dies(limit=1)
    assert [deaths(database, job_id) for job_id in ids] == [20, 20]
    assert job_count(database, "RUNNING") == 2
    assert_one_truth(database)


async def test_suspects_are_claimed_up_to_the_free_processes(bench: Bench, database: str) -> None:
    await bench.submit(5)
    sql(database, "UPDATE cortex_worker.task SET is_suspect = true")
    found = [len(await bench.claim(isolated=isolated)) for isolated in (0, 3, 3)]
    assert found == [0, 3, 2]


async def test_jobs_of_an_isolated_type_wait_for_a_process(bench: Bench) -> None:
    await bench.submit(3)
    types = {"types": [], "isolated_types": [JOB_TYPE]}
    claim = partial(bench.port, tasks.claim, pod_id=bench.pod.id, limit=9, **types)
    assert [len(await claim(isolated=isolated)) for isolated in (0, 2, 2)] == [0, 2, 1]


@pytest.mark.parametrize(
    "outcome, is_suspect, counts",
    [("process_died", True, (2, 2)), ("handed_back", True, (2, 1)), ("failed", False, (0, 0))],
)
async def test_only_a_failed_attempt_or_a_step_clears_a_suspect(
    bench: Bench,
    database: str,
    suspect: UUID,
    outcome: str,
    *,
    is_suspect: bool,
    counts: tuple[int, int],
) -> None:
    sql(database, "UPDATE cortex.job_record SET process_deaths = 1")
    (claim,) = await bench.claim()
    release = Release(lease=claim.lease, outcome=outcome, is_counted=False)
    await bench.port(tasks.release, pod_id=bench.pod.id, operations=[release])
    row = job_row(database, suspect)
    assert (row["pod_deaths"], row["process_deaths"]) == counts
    (again,) = await bench.claim()
    assert (again.is_suspect, again.process_deaths) == (is_suspect, counts[1])
    step = a_step(again.lease)
    await bench.port(steps.commit, pod_id=bench.pod.id, operations=[step])
    row = job_row(database, suspect)
    assert (row["pod_deaths"], row["process_deaths"]) == (0, 0)


async def test_job_whose_process_died_stays_suspect_when_its_pod_dies(
    bench: Bench, database: str
) -> None:
    await bench.submit()
    sql(database, "UPDATE cortex.job_record SET process_deaths = 1")
    pod = await Mortal.born(bench)
    await pod.claims()
    await pod.dies()
    (again,) = await bench.claim()
    assert (again.is_suspect, again.process_deaths) == (True, 1)


async def test_a_suspect_that_waits_is_a_suspect_still(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    wait = Suspend(lease=claim.lease, delay_s=0.0, is_counted=False, waiting_on="timer")
    await bench.port(tasks.suspend, pod_id=pod.pod.id, operations=[wait])
    assert (await bench.port(retries.due)).count == 1
    (again,) = await bench.claim()
    assert (again.lease.job_id, again.is_suspect) == (suspect, True)
    step = a_step(again.lease)
    await bench.port(steps.commit, pod_id=bench.pod.id, operations=[step])
    wait = attrs.evolve(wait, lease=again.lease)
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[wait])
    assert (await bench.port(retries.due)).count == 1
    (last,) = await bench.claim()
    assert not last.is_suspect


async def test_a_silence_does_not_clear_a_suspect(
    bench: Bench, database: str, suspect: UUID
) -> None:
    """It may have been a death that no pod could take over in time."""
    pod = await Mortal.born(bench)
    await pod.claims()
    move_clock(database, 400)
    assert (await bench.port(tasks.sweep, silent_s=300.0, limit=5, rng=bench.rng)).count == 1
    assert deaths(database, suspect) == 2
    move_clock(database, 800)
    assert (await bench.port(retries.due)).count == 1
    (again,) = await bench.claim()
    assert (again.lease.job_id, again.is_suspect) == (suspect, True)


@pytest.mark.parametrize("left", ["state = 'STOPPED'", "state = 'DRAINING', phase = 'hand_back'"])
async def test_a_pod_that_had_stopped_its_jobs_is_not_counted_as_killed(
    bench: Bench, database: str, suspect: UUID, left: str
) -> None:
    """It could not say so any more: the database was away."""
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    sql(database, f"UPDATE cortex.pod SET {left} WHERE id = $1", pod.pod.id)  # noqa: S608
    await pod.dies()
    assert deaths(database, suspect) == 2
    (again,) = await bench.claim()
    assert (again.lease, again.is_suspect) == (Lease(suspect, claim.lease.attempt + 1), True)


async def test_the_death_of_a_pod_that_waits_for_its_jobs_to_leave_is_counted(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    await pod.claims()
    leaves = "UPDATE cortex.pod SET state = 'DRAINING', phase = 'jobs' WHERE id = $1"
    sql(database, leaves, pod.pod.id)
    await pod.dies()
    assert deaths(database, suspect) == DEATHS_MAX


def job_count(dsn: str, status: str) -> int:
    rows = sql(dsn, "SELECT FROM cortex.job WHERE status::text = $1", status)
    return len(rows)


@pytest.fixture
async def suspect(bench: Bench) -> UUID:
    """A job that was there at two deaths."""
    (job_id,) = await bench.submit()
    for _ in range(DEATHS_MAX - 1):
        pod = await Mortal.born(bench)
        await pod.claims()
        await pod.dies()
    return job_id


async def test_suspect_that_commits_a_step_is_cleared(
    bench: Bench, database: str, suspect: UUID
) -> None:
    await bench.submit(1)
    pod = await Mortal.born(bench)
    claim = next(each for each in await pod.claims() if each.is_suspect)
    assert claim.lease.job_id == suspect
    assert await bench.port(steps.commit, pod_id=pod.pod.id, operations=[a_step(claim.lease)])
    await pod.dies()
    assert deaths(database, suspect) == 1
    ready = "SELECT bool_or(is_suspect) AS any FROM cortex_worker.task"
    assert not sql(database, ready)[0]["any"]


async def test_a_dead_pods_job_that_a_person_gave_up_is_cancelled(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    await pod.claims()
    await bench.port(jobs.cancel, suspect, by="ana", reason="enough")
    await pod.dies()
    row = job_row(database, suspect)
    assert (row["status"], row["cancelled_by"], row["task_state"]) == ("CANCELLED", "ana", None)
    assert_one_truth(database)
