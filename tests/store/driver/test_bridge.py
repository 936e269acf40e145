"""The border between trio and asyncio: what was committed is never reported as cancelled."""

import asyncio
import random
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import attrs
import pytest
import structlog
import trio

from cortex.domain.errors import CortexError, OutcomeUnknownError, RejectedError, UnavailableError
from cortex.postgres.bridge import Lane, Port, open_port
from cortex.postgres.database import Database, Profile
from cortex.store import codes, jobs
from tests.support.eventually import WITHIN_S, eventually, eventually_async
from tests.support.records.factories import a_submission
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import backends, sql
from tests.support.servers.proxy import proxy

CALLS = 200
GIVEN_UP_S = 5.0
"""Less than the bound of a call."""


async def slow_submit(db: Database, job_id: UUID, delay_ms: float) -> UUID:
    """Submit a job in a transaction that takes its time before and after."""
    nap = "SELECT pg_sleep($1)"

    async def work(connection: Any) -> None:
        await connection.fetch(nap, delay_ms / 2000)
        await connection.fetch("SELECT cortex.submit_job('work', id => $1)", job_id)
        await connection.fetch(nap, delay_ms / 2000)

    await db.transact(work)
    return job_id


def submitted(dsn: str) -> set[UUID]:
    return {row["id"] for row in sql(dsn, "SELECT id FROM cortex.job")}


async def submit_many(
    port: Port, rng: random.Random, *, tolerate: type[CortexError] | tuple[()] = ()
) -> tuple[set[UUID], set[UUID], set[UUID]]:
    """Submit jobs, each cancelled at a random moment: those that returned, were cancelled, broke.

    The moments are points of real time: that is what the border is about.
    """
    returned: set[UUID] = set()
    cancelled: set[UUID] = set()
    broken: set[UUID] = set()

    async def one() -> None:
        job_id = a_submission().id
        with trio.CancelScope() as scope:
            if rng.random() < 0.7:
                scope.deadline = trio.current_time() + rng.uniform(0, 0.02)
            try:
                await port(slow_submit, job_id, rng.uniform(0, 4))
            except tolerate:
                broken.add(job_id)
            except trio.Cancelled:
                cancelled.add(job_id)
                raise
            else:
                returned.add(job_id)

    async def some() -> None:
        for _ in range(CALLS // 10):
            await one()

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(some)
    return returned, cancelled, broken


async def test_a_call_that_returned_is_committed_and_a_cancelled_one_never_began(
    database: str,
) -> None:
    rng = seeded_random()
    async with open_port(Profile(dsn=database), rng=rng) as port:
        returned, cancelled, _ = await submit_many(port, rng)
        # Nothing leaked: as many transactions as there are connections can be open together.
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(port, slow_submit, a_submission().id, 20.0)
        there = submitted(database)
        assert returned <= there
        assert not cancelled & there
        assert len(returned) + len(cancelled) == CALLS
        assert backends(database) <= 4
    eventually(lambda: backends(database) == 0, what="all sessions are closed")


async def test_killed_sessions_leave_only_their_own_calls_in_doubt(
    database: str,
) -> None:
    rng = seeded_random()

    async def kill_now_and_then(*, task_status: Any) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            while True:
                await trio.to_thread.run_sync(
                    sql,
                    database,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'cortex' "
                    "ORDER BY random() LIMIT 1",
                )

    async with open_port(Profile(dsn=database), rng=rng) as port, trio.open_nursery() as nursery:
        killing: trio.CancelScope = await nursery.start(kill_now_and_then)
        returned, cancelled, broken = await submit_many(port, rng, tolerate=UnavailableError)
        killing.cancel()
        there = submitted(database)
        assert broken, "no session was hit"
        assert returned <= there
        assert not cancelled & there
        assert there <= returned | broken

        probe: Callable[[], Any] = partial(works, port)
        await eventually_async(probe, what="the port works again")


async def works(port: Port) -> bool:
    try:
        await port(codes.types)
    except UnavailableError:
        return False
    return True


async def test_a_call_under_a_cancelled_scope_is_not_started(database: str) -> None:
    job_id = a_submission().id
    async with open_port(Profile(dsn=database), rng=seeded_random()) as port:
        with trio.CancelScope() as scope:
            scope.cancel()
            await port(slow_submit, job_id, 0.0)
        assert scope.cancelled_caught
    assert submitted(database) == set()


@attrs.define
class Fared:
    """A `Watch` that counts."""

    waiting: int = 0
    answered: int = 0
    given_up_count: int = 0

    def sent(self) -> None:
        self.waiting += 1

    def ended(self, method: object, error: UnavailableError | None) -> None:  # noqa: ARG002
        self.waiting -= 1
        self.answered += error is None

    def given_up(self) -> None:
        self.waiting -= 1
        self.given_up_count += 1


async def test_cancellation_abandons_a_queued_call_but_not_a_running_one(
    database: str,
) -> None:
    """The only connection is another call's, which hangs; then that one is cancelled, too."""
    hanging, queued = a_submission().id, a_submission().id
    is_under_way, go_on = trio.Event(), asyncio.Event()

    async def hangs(db: Database) -> None:
        async def work(connection: Any) -> None:
            await connection.fetch("SELECT cortex.submit_job('work', id => $1)", hanging)
            is_under_way.set()
            await go_on.wait()

        await db.transact(work)

    profile = Profile(dsn=database, connections_max=1)
    async with open_port(profile, rng=seeded_random()) as port:
        watch = port.watch = Fared()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(port, hangs)
            await is_under_way.wait()
            with trio.fail_after(GIVEN_UP_S), trio.move_on_after(0.1):
                await port(slow_submit, queued, 0.0)
            assert watch == Fared(waiting=1, given_up_count=1)
            nursery.cancel_scope.cancel(reason="it is under way")
            go_on.set()
        assert watch == Fared(answered=1, given_up_count=1)
    assert submitted(database) == {hanging}


async def test_a_call_that_waits_for_the_server_to_take_a_connection_is_given_up(
    database: str,
) -> None:
    with proxy(database) as network:
        async with open_port(Profile(dsn=network.dsn), rng=seeded_random()) as port:
            network.refuse()
            assert not await works(port), "so that it has no connection any more"
            network.heal()
            network.blackhole()
            watch = port.watch = Fared()
            with trio.fail_after(GIVEN_UP_S), trio.move_on_after(0.5):
                await port(slow_submit, a_submission().id, 0.0)
            assert watch.waiting == 0
            assert watch.given_up_count == 1
            network.heal()
    assert submitted(database) == set()


async def test_the_whole_program_can_be_cancelled_while_a_call_is_in_flight(database: str) -> None:
    """Also the island's own trio task is cancelled then: the call must not hang on it."""
    job_id = a_submission().id
    began = trio.Event()
    result: list[UUID] = []

    async def tells_that_it_began(db: Database) -> UUID:
        began.set()
        return await slow_submit(db, job_id, 200.0)

    async def program() -> None:
        async with open_port(Profile(dsn=database), rng=seeded_random()) as port:
            result.append(await port(tells_that_it_began))
            await trio.sleep_forever()

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program)
            await began.wait()
            nursery.cancel_scope.cancel()
    assert result == [job_id]
    assert submitted(database) == {job_id}
    eventually(lambda: backends(database) == 0, what="all sessions are closed")


async def test_errors_cross_the_border_as_they_are(database: str) -> None:
    async with open_port(Profile(dsn=database), rng=seeded_random()) as port:
        with pytest.raises(RejectedError, match='job type "no type!" is not valid'):
            await port(jobs.submit, [a_submission(type="no type!")])

        async def buggy(_: Database) -> None:
            raise KeyError("bug")

        with pytest.raises(KeyError, match="bug"):
            await port(buggy)


async def test_an_unreachable_database_shows_when_the_port_is_opened() -> None:
    profile = Profile(dsn="postgresql://u:hunter2@127.0.0.1:1/d")
    unreachable = pytest.RaisesExc(UnavailableError, match="cannot reach")
    with pytest.RaisesGroup(unreachable, flatten_subgroups=True) as caught:
        async with open_port(profile, rng=seeded_random()):
            pytest.fail("it opened")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_errors_reported_by_asyncio_are_logged_and_harmless(database: str) -> None:
    def raises(_: str) -> None:
        raise KeyError("in a callback")

    async with open_port(Profile(dsn=database), rng=seeded_random()) as port:
        session = port.dedicated(on_lost=lambda: None)
        await port.cross(session.open)
        await port.cross(session.listen, "cortex_test", raises)
        with structlog.testing.capture_logs() as lines:
            sql(database, "SELECT pg_notify('cortex_test', '')")
            await eventually_async(lambda: bool(lines), what="the trouble is logged")
        assert "in a callback" in lines[0]["error"]
        assert await port(codes.types)
        await port.cross(session.close)


async def test_connection_lost_during_commit_raises_outcome_unknown(database: str) -> None:
    async def cut_itself(db: Database) -> None:
        await db.transact(
            lambda connection: connection.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
        )

    async with open_port(Profile(dsn=database, role=None), rng=seeded_random()) as port:
        with pytest.raises(OutcomeUnknownError):
            await port(cut_itself)


async def test_lane_limits_its_calls_and_leaves_connections_free(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.postgres.bridge.LANE_WAIT_S", 0.2)
    profile = Profile(dsn=database)
    refused: list[UnavailableError] = []
    answered: list[Port] = []

    async def ask(lane: Port) -> None:
        try:
            await lane(slow_submit, a_submission().id, 2_000.0)
            answered.append(lane)
        except UnavailableError as error:
            refused.append(error)

    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        lane = Lane(port, calls_max=2)
        for _ in range(2 * profile.connections_max):
            nursery.start_soon(ask, lane)
        await eventually_async(lambda: backends(database) == 2, what="two are asking")
        await port(jobs.counts, [])
        assert not answered
        await eventually_async(lambda: len(refused) == 6, what="the others are refused")
