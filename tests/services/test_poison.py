"""The poison guard: what kills its pods fails, and who merely ran beside it does not."""

from uuid import UUID

import attrs
import pytest

from cortex.domain.job import Claim, Lease, NumberedStep, Release, StepDone, StepKind, Suspend
from cortex.services.running import RunningJobs
from cortex.store import jobs, pods, retries, steps, tasks
from cortex.store.pods import Pod
from tests.support.eventually import eventually_async
from tests.support.factories import JOB_TYPE, VITALS, Bench, a_pod
from tests.support.holder import holding_task
from tests.support.postgres import sql
from tests.support.rows import assert_one_truth, attempts, job_row, move_clock

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


async def test_of_a_suspect_and_those_beside_it_that_go_on_the_suspect_is_blamed(
    bench: Bench, database: str, suspect: UUID
) -> None:
    neighbours = await bench.submit(5)
    last = await Mortal.born(bench)
    for claim in await last.claims():
        if claim.lease.job_id != suspect:
            await bench.port(steps.commit, pod_id=last.pod.id, operations=[a_step(claim.lease)])
    await last.dies(limit=2)
    row = job_row(database, suspect)
    assert (row["status"], row["error_code"], row["error_class"]) == (
        "FAILED",
        "poison",
        "PERMANENT",
    )
    assert [deaths(database, job_id) for job_id in neighbours] == [0] * 5
    assert attempts(database, neighbours[0]) == [(1, "pod_died")]
    (fact,) = sql(database, "SELECT subtype, job_id FROM cortex.fact")
    assert tuple(fact) == ("poison", suspect)
    assert [row["job_id"] for row in sql(database, "SELECT * FROM cortex.dead_letter")] == [suspect]
    assert_one_truth(database)


async def test_fresh_poison_beside_suspects_convicts_none_of_them(
    bench: Bench, database: str, suspect: UUID
) -> None:
    """It is taken in small batches, and somebody holds a row of its for a while: it is the same."""
    (poison,) = await bench.submit()
    for number in (1, 2):
        pod = await Mortal.born(bench)
        assert len(await pod.claims()) == 2
        with holding_task(database, poison):
            take = {"pod_id": pod.pod.id, "lock_key": pod.pod.lock_key, "deaths_max": DEATHS_MAX}
            await bench.port(tasks.take_over, **take, limit=2)
        await eventually_async(lambda: not locks(database), what="its rows are free")
        await pod.dies(limit=1)
        assert [deaths(database, job_id) for job_id in (suspect, poison)] == [2 + number, number]
    assert job_row(database, suspect)["status"] == "RUNNING"
    # From now on both are suspects, and never in one pod.
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    (other,) = {suspect, poison} - {claim.lease.job_id}
    await pod.dies()
    assert job_row(database, claim.lease.job_id)["error_code"] == "poison"
    assert job_row(database, other)["status"] == "RUNNING"
    assert_one_truth(database)


async def test_poison_that_is_never_alone_fails_all_the_same(
    bench: Bench, database: str, suspect: UUID
) -> None:
    for number in range(DEATHS_MAX + 1):
        assert job_row(database, suspect)["status"] == "RUNNING", number
        (neighbour,) = await bench.submit()
        pod = await Mortal.born(bench)
        assert len(await pod.claims()) == 2
        await pod.dies()
        await bench.port(jobs.cancel, neighbour, by="ana", reason="enough")
    assert job_row(database, suspect)["error_message"] == (
        f"it was running in {2 * DEATHS_MAX} pods in a row when they died"
    )
    assert job_count(database, "FAILED") == 1
    assert_one_truth(database)


async def test_a_suspect_that_waits_is_a_suspect_still(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    wait = Suspend(lease=claim.lease, delay_s=0.0, is_counted=False, waiting_on="timer")
    await bench.port(tasks.suspend, pod_id=pod.pod.id, operations=[wait])
    assert await bench.port(retries.due) == 1
    (again,) = await bench.claim()
    assert (again.lease.job_id, again.is_suspect) == (suspect, True)
    step = a_step(again.lease)
    await bench.port(steps.commit, pod_id=bench.pod.id, operations=[step])
    wait = attrs.evolve(wait, lease=again.lease)
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[wait])
    assert await bench.port(retries.due) == 1
    (last,) = await bench.claim()
    assert not last.is_suspect


async def test_a_silence_does_not_clear_a_suspect(
    bench: Bench, database: str, suspect: UUID
) -> None:
    """It may have been a death that nobody could take over in time."""
    pod = await Mortal.born(bench)
    await pod.claims()
    move_clock(database, 400)
    assert (await bench.port(tasks.sweep, silent_s=300.0, limit=5, rng=bench.rng)).count == 1
    assert deaths(database, suspect) == 2
    move_clock(database, 800)
    assert await bench.port(retries.due) == 1
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


async def test_of_a_pod_that_dies_while_it_leaves_its_jobs_may_be_to_blame(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    await pod.claims()
    leaves = "UPDATE cortex.pod SET state = 'DRAINING', phase = 'jobs' WHERE id = $1"
    sql(database, leaves, pod.pod.id)
    await pod.dies()
    assert job_row(database, suspect)["error_code"] == "poison"


async def test_a_pod_that_came_back_to_life_is_judged_anew(
    bench: Bench, database: str, suspect: UUID
) -> None:
    pod = await Mortal.born(bench)
    (claim,) = await pod.claims()
    with holding_task(database, suspect):
        take = {"pod_id": pod.pod.id, "lock_key": pod.pod.lock_key, "deaths_max": DEATHS_MAX}
        assert (await bench.port(tasks.take_over, **take, limit=2)).is_dead
    await eventually_async(lambda: not locks(database), what="its rows are free")
    session = bench.port.dedicated(on_lost=lambda: None)
    await bench.port.cross(session.open)
    beat = {"pod_id": pod.pod.id, "leases": [claim.lease], "vitals": VITALS}
    assert await bench.port.cross(pods.beat, session, **beat)
    await bench.port.cross(session.close)
    await bench.submit()
    await pod.claims()
    await pod.dies()
    assert (job_row(database, suspect)["status"], deaths(database, suspect)) == ("RUNNING", 3)


def locks(dsn: str) -> bool:
    query = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND backend_xid IS NOT NULL
    """
    return bool(sql(dsn, query))


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
        assert death_count <= len(poison) + 3 * len(alive)
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
