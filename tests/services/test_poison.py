"""The poison guard: what kills its pods fails, and who merely ran beside it does not."""

from uuid import UUID

import attrs
import pytest

from cortex.domain.job import Claim, Lease, NumberedStep, Release, StepDone, StepKind
from cortex.services.running import RunningJobs
from cortex.store import jobs, pods, steps, tasks
from cortex.store.pods import Pod
from tests.support.factories import JOB_TYPE, Bench, a_pod
from tests.support.postgres import sql
from tests.support.rows import assert_one_truth, attempts, job_row

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
            suspects=0 if self.running.has_suspect else 1,
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
                lock_key=self.pod.lock_key,
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
        number=lambda: (1, '{"seq": 1}'),
    )
    return NumberedStep(done, 1, '{"seq": 1}')


def deaths(dsn: str, job_id: UUID) -> int:
    return int(job_row(dsn, job_id)["pod_deaths"])


async def test_of_a_suspect_and_its_neighbours_only_the_suspect_is_blamed(
    bench: Bench, database: str
) -> None:
    (poison,) = await bench.submit()
    for _ in range(DEATHS_MAX - 1):
        pod = await Mortal.born(bench)
        await pod.claims()
        await pod.dies()
    neighbours = await bench.submit(5)
    last = await Mortal.born(bench)
    assert len(await last.claims()) == 6
    await last.dies(limit=2)
    row = job_row(database, poison)
    assert (row["status"], row["error_code"], row["error_class"]) == (
        "FAILED",
        "poison",
        "PERMANENT",
    )
    assert [deaths(database, job_id) for job_id in neighbours] == [0] * 5
    assert attempts(database, neighbours[0]) == [(1, "pod_died")]
    (fact,) = sql(database, "SELECT subtype, job_id FROM cortex.fact")
    assert tuple(fact) == ("poison", poison)
    assert [row["job_id"] for row in sql(database, "SELECT * FROM cortex.dead_letter")] == [poison]
    assert_one_truth(database)


async def test_poison_ends_within_bounded_deaths_and_long_jobs_beside_it_live(
    bench: Bench, database: str
) -> None:
    """Three pods, twenty jobs that kill at once, and fifty that are long at one step."""
    poison = set(await bench.submit(20))
    innocent = set(await bench.submit(50))
    alive = [await Mortal.born(bench) for _ in range(3)]
    death_count = 0
    while job_count(database, "FAILED") < len(poison):
        for number, pod in enumerate(alive):
            await pod.claims()
            if poison & set(pod.running.job_ids):
                await pod.dies()
                death_count += 1
                alive[number] = await Mortal.born(bench)
        assert death_count <= len(poison) + 2 * len(alive)
    failed = sql(database, "SELECT id FROM cortex.job WHERE error_code = 'poison'")
    assert {row["id"] for row in failed} == poison
    for pod in alive:
        await pod.claims()
    # Suspects among the innocent wait for their turn, one in a pod.
    assert job_count(database, "RUNNING") == len(innocent)
    waiting = sql(database, "SELECT is_suspect FROM cortex_worker.task WHERE state = 'READY'")
    assert all(row["is_suspect"] for row in waiting)
    assert sum(pod.running.has_suspect for pod in alive) == (len(alive) if waiting else 0)
    assert_one_truth(database)


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


async def test_a_suspect_that_commits_a_step_is_none_any_more(
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


async def test_a_suspect_that_ends_by_an_error_is_none_any_more(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    release = Release(lease=claim.lease, outcome="failed", error="broken")
    await bench.port(tasks.release, pod_id=pod.pod.id, operations=[release])
    (again,) = await bench.claim()
    assert (again.lease.job_id, again.is_suspect) == (suspect, False)


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
