"""The heartbeat: the pod's lock, its jobs' leases, and the pod's reaction to their loss."""

import signal
import time
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from cortex.domain.errors import Trouble, UnavailableError
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.postgres.migrate import migrate
from cortex.runtime.liveness.database_watch import DatabaseWatch
from cortex.runtime.liveness.heartbeat import Heartbeat
from cortex.runtime.running import RunningJob, Stop
from cortex.runtime.self_fence import SelfFence
from cortex.store import jobs, pods
from tests.support.eventually import eventually, eventually_async
from tests.support.holder import holding_task
from tests.support.records.factories import VITALS, Bench
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import job_row, seeded_random
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.proxy import Proxy, proxy

Lines = list[MutableMapping[str, Any]]


def a_heartbeat(bench: Bench, *, interval_s: float = 60.0) -> Heartbeat:
    return Heartbeat(
        bench.port,
        pod=bench.pod,
        running=bench.running,
        self_fence=bench.self_fence,
        vitals=lambda: VITALS,
        interval_s=interval_s,
        rng=bench.rng,
    )


def lock_holders(dsn: str, key: int) -> list[int]:
    query = """
        SELECT pid FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
          AND (classid::bigint << 32) + objid::bigint = $1
    """
    return [row["pid"] for row in sql(dsn, query, key)]


def pod_state(dsn: str) -> str | None:
    rows = sql(dsn, "SELECT state FROM cortex.pod")
    return rows[0]["state"] if rows else None


@pytest.fixture
def new_standing(bench: Bench) -> SelfFence:
    """The self-fence of a pod that has not started."""
    bench.self_fence = SelfFence(fence_s=60.0, settle_s=5.0)
    return bench.self_fence


async def test_pod_is_ready_with_its_lock_and_registration(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    assert not new_standing.is_sure
    await bench.start(a_heartbeat(bench))
    assert new_standing.is_sure
    assert len(lock_holders(database, bench.pod.lock_key)) == 1
    assert pod_state(database) == "READY"


async def test_end_of_the_heartbeat_frees_the_lock_at_once(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    async with trio.open_nursery() as liveness:
        await liveness.start(a_heartbeat(bench).run)
        liveness.cancel_scope.cancel()
    assert not new_standing.is_sure
    eventually(lambda: not lock_holders(database, bench.pod.lock_key), what="the lock is free")


async def test_each_beat_keeps_the_jobs_that_run_here(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed()
    bench.running.add(claim)
    await bench.start(a_heartbeat(bench, interval_s=0.05))
    sql(database, "UPDATE cortex_worker.task SET heartbeat_at = NULL")
    await eventually_async(
        lambda: job_row(database, claim.lease.job_id)["heartbeat_at"], what="a heartbeat"
    )


async def test_a_job_that_is_not_ours_any_more_is_stopped_and_the_others_are_not(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    kept, stolen, retried = await bench.claimed(3)
    running = {claim.lease.job_id: bench.running.add(claim) for claim in (kept, stolen, retried)}
    scope = running[stolen.lease.job_id].scope = trio.CancelScope()
    heartbeat = a_heartbeat(bench)
    await bench.start(heartbeat)
    query = "UPDATE cortex_worker.task SET locked_by = gen_random_uuid() WHERE job_id = $1"
    sql(database, query, stolen.lease.job_id)
    sql(
        database,
        "UPDATE cortex_worker.task SET attempt = 2 WHERE job_id = $1",
        retried.lease.job_id,
    )
    await heartbeat.tick()
    stops = {job_id: job.stop for job_id, job in running.items()}
    assert stops == {
        kept.lease.job_id: None,
        stolen.lease.job_id: Stop.LEASE_LOST,
        retried.lease.job_id: Stop.LEASE_LOST,
    }
    assert scope.cancel_called
    lost = [line["job"] for line in log_lines if line["event"] == "lease lost"]
    assert sorted(lost) == sorted(str(c.lease.job_id) for c in (stolen, retried))


async def test_a_lock_that_was_lost_is_taken_again_and_the_jobs_are_checked(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    kept, stolen = await bench.claimed(2)
    jobs = [bench.running.add(claim) for claim in (kept, stolen)]
    await bench.start(a_heartbeat(bench))
    (first,) = lock_holders(database, bench.pod.lock_key)
    query = "UPDATE cortex_worker.task SET locked_by = gen_random_uuid() WHERE job_id = $1"
    sql(database, query, stolen.lease.job_id)
    sql(database, "SELECT pg_terminate_backend($1)", first)
    await eventually_async(lambda: not new_standing.may_judge, what="the loss is noticed")
    await eventually_async(
        lambda: lock_holders(database, bench.pod.lock_key) not in ([], [first]),
        what="the lock is held by another session",
    )
    await eventually_async(lambda: jobs[1].stop, what="the stolen job is stopped")
    assert (jobs[0].stop, jobs[1].stop) == (None, Stop.LEASE_LOST)
    assert new_standing.is_sure
    assert not new_standing.may_judge  # not so soon after its own reconnect


@pytest.mark.parametrize("how", ["its session ended", "it was stopped"])
async def test_a_pod_that_slept_until_its_row_was_deleted_registers_again(
    bench: Bench, new_standing: SelfFence, database: str, how: str
) -> None:
    heartbeat = a_heartbeat(bench)
    await bench.start(heartbeat)
    sql(database, "DELETE FROM cortex.pod")
    if how == "its session ended":
        (session,) = lock_holders(database, bench.pod.lock_key)
        sql(database, "SELECT pg_terminate_backend($1)", session)
    else:
        new_standing._beat_sent_at -= 61.0  # of a clock that goes on while a process is stopped
        heartbeat.beat_soon()
    await eventually_async(lambda: pod_state(database) == "READY", what="it is there again")


async def test_pod_waits_while_another_session_holds_its_lock(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    """After a reconnect that is the pod's own old session, which the server has not seen die."""
    other = bench.port.dedicated(on_lost=lambda: None)
    await bench.port.cross(other.open)
    assert await bench.port.cross(pods.lock, other, bench.pod.lock_key)
    bench.jobs.start_soon(a_heartbeat(bench).run)
    await eventually_async(lambda: count_sessions(database) >= 3, what="it has connected")
    assert not new_standing.is_sure
    await bench.port.cross(other.close)
    await eventually_async(lambda: new_standing.is_sure, what="it holds the lock")


def count_sessions(dsn: str) -> int:
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database()"
    return len(sql(dsn, query))


@pytest.fixture
def server(private_postgres: PrivatePostgres) -> PrivatePostgres:
    """A migrated server that may be broken."""
    run_asyncio(lambda: migrate(private_postgres.dsn))
    return private_postgres


@pytest.mark.parametrize("how", ["stopped", "silent"])
async def test_pod_without_a_heartbeat_for_too_long_stops_all_jobs(
    server: PrivatePostgres, how: str, log_lines: Lines
) -> None:
    profile = Profile(dsn=server.dsn, hot_path=True, bound_s=0.3)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        bench = Bench(FaultyPort(port), nursery)
        bench.self_fence = SelfFence(fence_s=1.0, settle_s=0.0)
        await bench.start(a_heartbeat(bench, interval_s=0.05))
        *claims, late = await bench.claimed(4)
        jobs = [bench.running.add(claim) for claim in claims]
        if how == "stopped":
            await trio.to_thread.run_sync(server.stop_immediate)
        else:
            server.kill_backends(signal.SIGSTOP)
        fenced_at = bench.self_fence.fence_in_s + trio.current_time()
        await eventually_async(lambda: all(job.stop for job in jobs), what="the jobs are stopped")
        assert trio.current_time() >= fenced_at - 0.01
        assert {job.stop for job in jobs} == {Stop.LEASE_LOST}
        came_late = bench.running.add(late)
        await eventually_async(lambda: came_late.stop, what="so is one that comes afterwards")
        if how == "silent":
            server.kill_backends(signal.SIGCONT)
        nursery.cancel_scope.cancel()
    output = [line for line in log_lines if "fence reached" in line["event"]]
    assert len(output) == 1


async def test_heartbeat_recovers_after_an_outage(server: PrivatePostgres) -> None:
    profile = Profile(dsn=server.dsn, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        bench = Bench(FaultyPort(port), nursery)
        await bench.start(a_heartbeat(bench, interval_s=0.05))
        (claim,) = await bench.claimed()
        job = bench.running.add(claim)
        await trio.to_thread.run_sync(server.stop_immediate)
        await eventually_async(lambda: not bench.self_fence.is_sure, what="the loss is noticed")
        await trio.to_thread.run_sync(server.start)
        await eventually_async(lambda: bench.self_fence.is_sure, what="the lock is held again")
        await eventually_async(
            lambda: len(lock_holders(server.dsn, bench.pod.lock_key)) == 1,
            what="on the server, too",
        )
        assert job.stop is None
        nursery.cancel_scope.cancel()


@pytest.fixture
def line(database: str) -> Iterator[Proxy]:
    """A network between the pod and its database."""
    with proxy(database) as running:
        yield running


@pytest.mark.parametrize("each_way_s, beats", [(0.3, 3), (2.2, 1)])
async def test_a_slow_network_makes_heartbeats_late_and_costs_no_job(
    line: Proxy, each_way_s: float, beats: int
) -> None:
    profile = Profile(dsn=line.dsn, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        bench = Bench(FaultyPort(port), nursery)
        port.watch = watch = DatabaseWatch()
        bench.self_fence = SelfFence(fence_s=30 * each_way_s, settle_s=0.0)
        heartbeat = a_heartbeat(bench)
        await bench.start(heartbeat)
        job = bench.running.add(*await bench.claimed())
        line.slow(each_way_s)
        for _ in range(beats):
            sent_at = trio.current_time()
            await heartbeat.tick()
            assert trio.current_time() - sent_at > 1.8 * each_way_s
            assert bench.self_fence._beat_sent_at >= sent_at
            assert bench.self_fence.is_sure
            assert watch.report is None
        assert job.stop is None
        line.slow(0)
        nursery.cancel_scope.cancel()


BREAKS: dict[str, Callable[[Proxy], None]] = {
    "requests are lost": lambda line: line.blackhole(down=False),
    "replies are lost": lambda line: line.blackhole(up=False),
    "both are lost": lambda line: line.blackhole(),
    "it refuses": lambda line: line.refuse(),
}


@pytest.mark.parametrize("how", BREAKS)
async def test_a_broken_network_shows_long_before_the_next_beat(
    line: Proxy, database: str, how: str
) -> None:
    """One call that fails has the heartbeat look for itself; what it finds ends with the fault."""
    profile = Profile(dsn=line.dsn, hot_path=True, bound_s=0.5)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        bench = Bench(FaultyPort(port), nursery)
        heartbeat = a_heartbeat(bench, interval_s=3600.0)
        port.watch = watch = DatabaseWatch(on_change=heartbeat.beat_soon)
        await bench.start(heartbeat)
        job = bench.running.add(*await bench.claimed())
        BREAKS[how](line)
        with pytest.raises(UnavailableError):
            await port(pods.live_types)
        assert watch.report is not None
        expected = {Trouble.UNREACHABLE} if how == "it refuses" else {Trouble.SILENT}
        assert watch.report.trouble in expected
        await eventually_async(lambda: not bench.self_fence.is_sure, what="it is not sure any more")
        line.heal()
        await eventually_async(lambda: bench.self_fence.is_sure, what="it holds its lock again")
        assert watch.report is None
        assert job.stop is None
        assert job_row(database, job.lease.job_id)["attempt"] == 1
        nursery.cancel_scope.cancel()


async def test_heartbeats_do_not_wait_for_the_pool(database: str) -> None:
    """One connection, and a statement that keeps it: the heartbeat has its own."""
    profile = Profile(dsn=database, hot_path=True, connections_max=1)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        bench = Bench(FaultyPort(port), nursery)
        await bench.start(a_heartbeat(bench, interval_s=0.05))
        job = bench.running.add(*await bench.claimed())
        with holding_task(database, job.lease.job_id):
            cancel = partial(jobs.cancel, by="ana", reason="")
            nursery.start_soon(bench.port, cancel, job.lease.job_id)
            await eventually_async(lambda: is_blocked(database), what="the pool is used up")
            waits_at = trio.current_time()
            await eventually_async(
                lambda: bench.self_fence._beat_sent_at > waits_at + 0.2, what="beats meanwhile"
            )
            assert is_blocked(database)
        nursery.cancel_scope.cancel()


def is_blocked(dsn: str) -> bool:
    query = """
        SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND NOT granted
    """
    return bool(sql(dsn, query))


async def test_a_loop_that_stood_still_beats_as_soon_as_it_runs(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    """A job that computes holds up everything in its pod, but for less than the fence."""
    job = bench.running.add(*await bench.claimed())
    await bench.start(a_heartbeat(bench, interval_s=0.05))
    stand_still(1.0)
    stood_still_until = trio.current_time()
    assert new_standing.is_sure
    await eventually_async(lambda: new_standing._beat_sent_at >= stood_still_until, what="a beat")
    assert job.stop is None


async def test_no_call_begins_between_a_lost_lock_and_the_check_of_the_jobs(
    bench: Bench, new_standing: SelfFence, database: str
) -> None:
    kept, stolen = [bench.running.add(claim) for claim in await bench.claimed(2)]
    await bench.port(pods.register, bench.pod)
    heartbeat = a_heartbeat(bench)
    await heartbeat.tick()
    new_standing.lost()
    begun: list[RunningJob] = []

    async def call(job: RunningJob) -> None:
        with trio.CancelScope() as scope:
            job.scope = scope
            await new_standing.until_it_may_begin(90.0)
            begun.append(job)

    async with trio.open_nursery() as nursery:
        for job in (kept, stolen):
            nursery.start_soon(call, job)
        await trio.testing.wait_all_tasks_blocked()
        query = "UPDATE cortex_worker.task SET locked_by = gen_random_uuid() WHERE job_id = $1"
        sql(database, query, stolen.lease.job_id)
        await heartbeat.tick()
    assert begun == [kept]
    assert stolen.stop is Stop.LEASE_LOST
    await bench.port.cross(heartbeat._session.close)


async def test_fenced_pod_begins_no_call(bench: Bench) -> None:
    """A pod that stood still for long finds the reply to its intent before anything else."""
    bench.self_fence = SelfFence(fence_s=0.5, settle_s=0.0)
    job = bench.running.add(*await bench.claimed())
    await bench.start(a_heartbeat(bench))
    stand_still(0.6)
    with trio.CancelScope() as scope:
        job.scope = scope
        await bench.self_fence.until_it_may_begin(1.0)
    assert scope.cancelled_caught
    assert job.stop is Stop.LEASE_LOST


def stand_still(seconds: float) -> None:
    """Keep the loop from running, as a job does that computes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
