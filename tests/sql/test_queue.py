"""Claiming: each job once, in order, and named queues in turn, however many pods claim at once."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import asyncpg

from cortex.domain.job import Claim, Finish, JobStatus, Release, Submission
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import Session
from cortex.store import jobs, pods, tasks
from tests.support.eventually import WITHIN_S
from tests.support.records.rows import assert_one_truth, job_row, move_clock, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql


def test_smaller_priorities_first_then_the_oldest(
    submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    rng = seeded_random()
    priorities = [rng.randint(-3, 3) for _ in range(40)]
    ids = [submit(priority=priority) for priority in priorities]
    wanted = [ids[n] for n in sorted(range(40), key=lambda n: (priorities[n], n))]
    got: list[UUID] = []
    while claims := claim(new_id(), limit=7):
        got += sorted((c.lease.job_id for c in claims), key=wanted.index)
    assert got == wanted


def test_a_pod_gets_only_types_that_it_knows(
    submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    submit("other")
    mine = {submit("one"), submit("two")}
    assert {c.lease.job_id for c in claim(new_id(), "one", "two")} == mine


def test_eight_claimers_at_once_get_each_job_once(database: str) -> None:
    rng = seeded_random()
    count = 2_000

    async def claim_all() -> list[UUID]:
        stores = [
            await open_database(Profile(dsn=database, hot_path=True), rng=rng) for _ in range(8)
        ]
        batch = [Submission(id=new_id(), type="work") for _ in range(count)]
        await jobs.submit(stores[0], batch)
        got: list[UUID] = []

        async def claim_some(number: int) -> None:
            pod_id = new_id()
            while claims := await tasks.claim(
                stores[number], pod_id=pod_id, types=["work"], limit=rng.randint(1, 60)
            ):
                assert {c.lease.attempt for c in claims} == {1}
                got.extend(c.lease.job_id for c in claims)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(claim_some(number))
        for each in stores:
            await each.close()
        return got

    got = run_asyncio(claim_all)
    assert len(got) == len(set(got)) == count
    rows = sql(database, "SELECT attempt, count(*) AS n FROM cortex.job GROUP BY attempt")
    assert [tuple(row) for row in rows] == [(1, count)]
    assert_one_truth(database)


def test_a_named_queue_runs_one_after_another_in_order(database: str) -> None:
    """Three claimers with promoters of their own, as three pods; a job is released now and then."""
    rng = seeded_random()
    queues = {name: [new_id() for _ in range(25)] for name in ("a", "b")}
    active: set[str] = set()
    done: dict[str, list[UUID]] = {"a": [], "b": []}

    async def run_all() -> None:
        profile = Profile(dsn=database, hot_path=True)
        stores = [await open_database(profile, rng=rng) for _ in range(3)]
        for name, ids in queues.items():
            batch = [Submission(id=each, type="work", queue_name=name) for each in ids]
            await jobs.submit(stores[0], batch)

        async def work(number: int) -> None:
            db, pod_id = stores[number], new_id()
            while sum(map(len, done.values())) < 50:
                await tasks.promote(db)
                for claim in await tasks.claim(db, pod_id=pod_id, types=["work"], limit=10):
                    await run_one(db, pod_id, claim)

        async def run_one(db: Database, pod_id: UUID, claim: Claim) -> None:
            name = next(n for n, ids in queues.items() if claim.lease.job_id in ids)
            assert name not in active, "two of one queue at once"
            assert claim.lease.job_id == queues[name][len(done[name])], "out of order"
            active.add(name)
            await asyncio.gather(*(tasks.promote(each) for each in stores))
            active.remove(name)
            if claim.lease.attempt == 1 and rng.random() < 0.2:
                ending = Release(lease=claim.lease, outcome="handed_back", is_counted=False)
                assert await tasks.release(db, pod_id=pod_id, operations=[ending])
            else:
                done[name].append(claim.lease.job_id)
                end = Finish(lease=claim.lease, status=JobStatus.COMPLETED, result="null")
                assert await jobs.finish(db, pod_id=pod_id, operations=[end])

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(work(number))
        for each in stores:
            await each.close()

    run_asyncio(run_all)
    assert done == queues
    assert_one_truth(database)


def test_a_delayed_job_does_not_hold_its_queue_up(
    submit: Callable[..., UUID], claim: Callable[..., list[Claim]], database: str
) -> None:
    later = submit(queue_name="q", delay_s=60.0)
    now = submit(queue_name="q")
    (first,) = claim(new_id())
    assert first.lease.job_id == now
    move_clock(database, 61)
    assert claim(new_id()) == [], "its turn comes when the one before has ended"
    assert job_row(database, later)["task_state"] == "QUEUED"


def test_tasks_become_ready_when_they_are_due(
    store: Session, submit: Callable[..., UUID], database: str
) -> None:
    ids = [submit(delay_s=float(60 * n)) for n in range(1, 6)]
    for minutes in range(1, 6):
        assert store(tasks.promote) == 0
        move_clock(database, 60 * minutes + 1)
        assert store(tasks.promote) == 1
        ready = sql(database, "SELECT job_id FROM cortex_worker.task WHERE state = 'READY'")
        assert {row["job_id"] for row in ready} == set(ids[:minutes])


def test_claim_with_a_lost_reply_is_found_as_an_orphan(
    store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    submit()
    pod_id = new_id()
    (known,) = claim(pod_id)
    submit()
    (lost,) = claim(pod_id)
    assert store(tasks.orphans, pod_id=pod_id, known_ids=[known.lease.job_id]) == [lost.lease]
    assert store(tasks.orphans, pod_id=new_id(), known_ids=[]) == []


def test_each_due_batch_notifies_once_and_a_delayed_batch_never(database: str) -> None:
    async def hear() -> list[str]:
        heard: list[str] = []
        listener = await asyncpg.connect(database)
        await listener.add_listener("cortex_task", lambda *args: heard.append(args[-1]))
        db = await open_database(Profile(dsn=database), rng=seeded_random())
        for delay_s in (None, 3600.0):
            batch = [Submission(id=new_id(), type="work", delay_s=delay_s) for _ in range(100)]
            await jobs.submit(db, batch)
        await pods.probe(db, channel="cortex_task")
        async with asyncio.timeout(WITHIN_S):
            while heard[-1:] != [""]:
                await listener.fetch("SELECT 1")
        await listener.close()
        await db.close()
        return heard

    assert run_asyncio(hear) == ["ready", ""]
