"""Many clients wait for the ends of jobs, and the database hardly notices."""

import math
from uuid import UUID

import pytest
import trio
from attrs import define, field

from cortex.domain.errors import NotFoundError, UnavailableError
from cortex.domain.job import Finish, JobStatus
from cortex.domain.job_feed import CodeWait, JobState
from cortex.domain.poll_rate import PollRate
from cortex.durable.context import Context
from cortex.runtime.clients.result_waiters import ResultWaiters
from cortex.runtime.running import RunningJob
from cortex.store import jobs
from tests.support.counting import CountingPort
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench, a_lease
from tests.support.records.rows import new_id

LONG_S = 20.0
CROWD = 1_000
WATCHED_S = 2.5


@define
class Hall:
    """Waiting clients and their results."""

    bench: Bench
    port: CountingPort
    waiters: ResultWaiters = field(init=False)
    results: list[JobState | None] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.waiters = ResultWaiters(self.port)

    def never_look_without_a_reason(self) -> None:
        self.waiters.poller.pace = PollRate(gap_s=60.0, quiet_gap_s=60.0, burst=100)

    async def wait(self, job_id: UUID, wait_s: float = LONG_S) -> None:
        result = await self.waiters.result(job_id, wait_s)
        assert not isinstance(result, CodeWait)
        self.results.append(result)

    async def finish(self, *job_ids: UUID) -> None:
        """Let these jobs end in some other pod."""
        claims = [each for each in await self.bench.claim() if each.lease.job_id in job_ids]
        operations = [
            Finish(lease=each.lease, status=JobStatus.COMPLETED, result="7") for each in claims
        ]
        await self.bench.port(jobs.finish, pod_id=self.bench.pod.id, operations=operations)

    @property
    def looks(self) -> int:
        return self.port.counts["results"]


@pytest.fixture
async def hall(bench: Bench) -> Hall:
    opened = Hall(bench, CountingPort(bench.port))
    await bench.start(opened.waiters)
    return opened


async def test_all_waiting_clients_get_the_result_of_an_ended_job(
    hall: Hall, nursery: trio.Nursery
) -> None:
    one, other = await hall.bench.submit(2)
    for _ in range(3):
        nursery.start_soon(hall.wait, one)
    await eventually_async(lambda: hall.looks > 1, what="they are looked for")
    assert hall.results == []
    await hall.finish(one)
    await eventually_async(lambda: len(hall.results) == 3, what="all are notified")
    assert {state and (state.job_id, state.status, state.result) for state in hall.results} == {
        (one, JobStatus.COMPLETED, "7")
    }
    assert len(hall.waiters) == 0
    assert await hall.waiters.result(other, 0) is None


async def test_result_of_a_job_of_this_pod_is_delivered_at_once(
    hall: Hall, nursery: trio.Nursery
) -> None:
    bench = hall.bench
    gate = trio.Event()

    async def handler(_: Context) -> None:
        await gate.wait()

    bench.handle(handler)
    bench.running.observers.append(hall.waiters)
    await bench.start_committing()
    (claim,) = await bench.claimed()
    hall.never_look_without_a_reason()
    nursery.start_soon(hall.wait, claim.lease.job_id)
    await eventually_async(lambda: hall.looks == 1, what="the newcomer is looked for")
    bench.run(claim)
    gate.set()
    await eventually_async(lambda: hall.results, what="it is notified")
    assert hall.looks == 2
    bench.committer.close()


async def test_a_thousand_clients_cost_less_than_five_statements_a_second(hall: Hall) -> None:
    ids = await hall.bench.submit(CROWD)
    began = trio.current_time()
    async with trio.open_nursery() as clients:
        for job_id in ids:
            clients.start_soon(hall.wait, job_id, WATCHED_S)
    elapsed_s = trio.current_time() - began
    assert hall.results == [None] * CROWD
    assert 2 <= hall.looks < 5 * elapsed_s


async def test_thousand_clients_stay_cheap_while_jobs_end_and_clients_return(
    hall: Hall,
) -> None:
    ids = await hall.bench.submit(CROWD)
    began = trio.current_time()

    async def client(job_id: UUID) -> None:
        while trio.current_time() < began + WATCHED_S or not hall.results:
            if await hall.waiters.result(job_id, 0.5):
                hall.results.append(None)
                return

    async with trio.open_nursery() as clients:
        for job_id in ids:
            clients.start_soon(client, job_id)
        for portion in range(0, CROWD, 50):
            await hall.finish(*ids[portion : portion + 50])
            ended = RunningJob(a_lease(job_id=ids[portion]), is_queued=False, deadline=math.inf)
            hall.waiters.job_ended(ended)
    assert hall.looks < 5 * (trio.current_time() - began) + 2  # and what was saved up before


async def test_cancelled_client_is_forgotten_and_polling_stops(hall: Hall) -> None:
    (job_id,) = await hall.bench.submit()
    async with trio.open_nursery() as clients:
        clients.start_soon(hall.wait, job_id)
        await eventually_async(lambda: hall.looks, what="it is looked for")
        clients.cancel_scope.cancel()
    assert len(hall.waiters) == 0
    assert hall.waiters._waiting == {}
    hall.waiters.poller.pace = PollRate(gap_s=0.001, quiet_gap_s=0.001)
    await hall.waiters.result(job_id, 0)
    looks = hall.looks
    for _ in range(50):
        await hall.bench.port(jobs.counts, [])
    assert hall.looks == looks


async def test_wait_without_time_polls_once(hall: Hall) -> None:
    ended, going = await hall.bench.submit(2)
    await hall.finish(ended)
    assert await hall.waiters.result(going, 0) is None
    state = await hall.waiters.result(ended, 0)
    assert isinstance(state, JobState)


async def test_waiting_for_an_unknown_job_is_refused(hall: Hall) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        await hall.waiters.result(new_id(), LONG_S)


async def test_number_of_waiting_clients_is_limited(
    hall: Hall, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.result_waiters.WAITERS_MAX", 1)
    (job_id,) = await hall.bench.submit()
    nursery.start_soon(hall.wait, job_id)
    await eventually_async(lambda: len(hall.waiters) == 1, what="one waits")
    with pytest.raises(UnavailableError, match="1 clients wait"):
        await hall.waiters.result(job_id, 0)


@pytest.mark.parametrize("how", ["is_down", "is_silent"])
async def test_client_gets_an_error_at_its_deadline_without_the_database(
    hall: Hall, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.result_waiters.FIRST_POLL_S", 0.3)
    (job_id,) = await hall.bench.submit()
    setattr(hall.port, how, True)
    with trio.fail_after(LONG_S), pytest.raises(UnavailableError):
        await hall.waiters.result(job_id, 0.2)


async def test_unfinished_is_never_reported_without_a_recent_poll(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.result_waiters.STALE_S", 0.4)
    (job_id,) = await hall.bench.submit()

    async def lose_the_database() -> None:
        await eventually_async(lambda: hall.looks, what="it was looked for")
        hall.port.is_down = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose_the_database)
        with pytest.raises(UnavailableError, match="does not answer"):
            await hall.waiters.result(job_id, 1.5)


async def test_an_outage_in_between_is_waited_out(hall: Hall, nursery: trio.Nursery) -> None:
    (job_id,) = await hall.bench.submit()
    hall.port.is_down = True
    nursery.start_soon(hall.wait, job_id)
    await eventually_async(lambda: hall.looks > 1, what="it tries again")
    await hall.finish(job_id)
    hall.port.is_down = False
    await eventually_async(lambda: hall.results, what="it is notified")
    assert hall.results[0] is not None


async def test_results_too_large_for_one_poll_arrive_with_the_next(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.store.feed.RESULT_BYTES_MAX", 1)
    hall.never_look_without_a_reason()
    ids = await hall.bench.submit(3)
    await hall.finish(*ids)
    async with trio.open_nursery() as clients:
        for job_id in ids:
            clients.start_soon(hall.wait, job_id)
    assert {state and state.job_id for state in hall.results} == set(ids)
