"""The dispatcher: as much as there is room for, only while sure, and nothing forgotten."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import trio

from cortex.domain.errors import CortexError, SchemaError, UnavailableError
from cortex.domain.job import JobStatus
from cortex.durable.context import Context
from cortex.runtime.jobs import dispatcher as dispatcher_module
from cortex.runtime.jobs.dispatcher import BATCH_AHEAD, FIRST, Dispatcher
from cortex.store import jobs, tasks
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import assert_one_truth, move_clock
from tests.support.servers.postgres import sql


@pytest.fixture
async def committing(bench: Bench) -> Bench:
    """A pod whose committer runs, with three slots."""
    bench.running.slots = bench.slots = 3
    await bench.start_committing()
    return bench


class Gate:
    """Handlers that wait here until they are let through, by turns or all."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.begun: list[Any] = []
        self.most_at_once = 0
        self._at_once = 0

    async def __call__(self, ctx: Context) -> None:
        self.begun.append(ctx.job_id)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.opened.wait()
        finally:
            self._at_once -= 1


def states(dsn: str) -> Counter[str]:
    rows = sql(dsn, "SELECT state::text FROM cortex_worker.task")
    return Counter(row["state"] for row in rows)


async def all_completed(bench: Bench, ids: list[Any]) -> None:
    async def done() -> Any:
        return (await bench.port(jobs.counts, ids)).get(JobStatus.COMPLETED) == len(ids)

    await eventually_async(done, what="all jobs completed")


def with_gate(bench: Bench) -> Gate:
    gate = Gate()

    async def handler(ctx: Context) -> None:
        await gate(ctx)

    bench.handle(handler)
    return gate


async def test_never_more_claims_than_slots(committing: Bench, database: str) -> None:
    gate = with_gate(committing)
    ids = await committing.submit(8)
    dispatcher = committing.dispatcher()
    await dispatcher.tick()
    assert states(database) == {"LOCKED": 3, "READY": 5}
    pause_s = await dispatcher.tick()
    assert pause_s > 0  # no busy loop while there is no room
    assert states(database) == {"LOCKED": 3, "READY": 5}
    gate.opened.set()
    await committing.start(dispatcher)
    await all_completed(committing, ids)
    assert gate.most_at_once == 3
    assert sorted(gate.begun) == sorted(ids)
    assert_one_truth(database)


async def test_dispatcher_of_one_job_claims_no_other(committing: Bench, database: str) -> None:
    gate = with_gate(committing)
    ids = await committing.submit(3)
    dispatcher = committing.dispatcher(only=ids[1])
    await dispatcher.tick()
    await dispatcher.tick()
    assert states(database) == {"LOCKED": 1, "READY": 2}
    gate.opened.set()
    await committing.start(dispatcher)
    await all_completed(committing, ids[1:2])
    assert gate.begun == ids[1:2]
    assert states(database) == {"READY": 2}
    assert_one_truth(database)


@pytest.mark.parametrize("doubt", ["lost", "fenced"])
async def test_unsure_pod_claims_nothing(committing: Bench, database: str, doubt: str) -> None:
    with_gate(committing)
    await committing.submit()
    dispatcher = committing.dispatcher()
    if doubt == "lost":
        committing.self_fence.lost()
    else:
        committing.self_fence.beaten(trio.current_time() - 61)
    assert await dispatcher.tick() > 0
    assert states(database) == {"READY": 1}
    committing.self_fence.locked()
    committing.self_fence.beaten(trio.current_time())
    await dispatcher.tick()
    assert states(database) == {"LOCKED": 1}


async def test_draining_pod_claims_nothing(committing: Bench, database: str) -> None:
    with_gate(committing)
    await committing.submit()
    dispatcher = committing.dispatcher()
    committing.running.is_drain_requested = True
    assert await dispatcher.tick() > 0
    assert (states(database), dispatcher.may_claim) == ({"READY": 1}, False)
    committing.running.is_drain_requested = False
    await dispatcher.tick()
    assert (states(database), dispatcher.may_claim) == ({"LOCKED": 1}, True)


@pytest.mark.parametrize("fault", ["lose_reply", "lose_request", "refuse"])
async def test_a_claim_that_went_wrong_is_made_good(
    committing: Bench, database: str, fault: str
) -> None:
    gate = with_gate(committing)
    gate.opened.set()
    ids = await committing.submit(8)
    getattr(committing.port, fault)(tasks.claim)
    getattr(committing.port, fault)(tasks.orphans)
    await committing.start(committing.dispatcher(poll_s=0.05))
    await all_completed(committing, ids)
    assert gate.most_at_once <= 3
    assert sorted(gate.begun) == sorted(ids)  # none ran twice
    assert_one_truth(database)


async def test_claim_with_a_lost_reply_is_claimed_again(committing: Bench, database: str) -> None:
    with_gate(committing)
    await committing.submit(8)
    committing.port.lose_reply(tasks.claim)
    await committing.start(committing.dispatcher(poll_s=0.05))
    await eventually_async(lambda: len(committing.running) == 3, what="three jobs run")
    assert states(database) == {"LOCKED": 3, "READY": 5}
    assert {lease.attempt for lease in committing.running.leases} == {2}


async def test_a_pod_that_only_gave_jobs_back_is_named_by_their_record(committing: Bench) -> None:
    with_gate(committing)
    await committing.submit()
    await committing.claimed()
    assert not committing.running.has_run
    await committing.dispatcher().release_orphans()
    assert committing.running.has_run, "housekeeping would delete the pod"


async def test_claim_committed_long_after_its_loss_is_found(committing: Bench) -> None:
    """Its commit waited for a disk, or a standby, while the pod had looked and claimed on."""
    with_gate(committing)
    dispatcher = committing.dispatcher(poll_s=0.01)
    committing.self_fence.lost()
    await dispatcher.tick()
    committing.self_fence.locked()
    committing.self_fence.beaten(trio.current_time())
    await dispatcher.tick()
    (late,) = await committing.claimed()

    async def runs() -> Any:
        await dispatcher.tick()
        return bool(committing.running.leases)

    await eventually_async(runs, what="what came late runs")
    assert [lease.attempt for lease in committing.running.leases] == [late.lease.attempt + 1]


async def test_fenced_job_restarts_under_a_new_attempt(committing: Bench, database: str) -> None:
    """The pod was fenced in an outage and gave the job up; then it finds that it is still its own.

    A step that the first run had sent may be committed only now: it must not pass the fence of a
    second run.
    """
    with_gate(committing)
    await committing.submit()
    (claim,) = await committing.claim()
    dispatcher = committing.dispatcher()
    committing.self_fence.lost()
    await dispatcher.tick()
    committing.self_fence.locked()
    committing.self_fence.beaten(trio.current_time())
    await dispatcher.tick()
    assert [lease.attempt for lease in committing.running.leases] == [claim.lease.attempt + 1]
    spent = sql(database, "SELECT attempts_spent FROM cortex_worker.task")
    assert spent[0]["attempts_spent"] == 1


async def test_jobs_of_a_queue_follow_each_other_without_waiting_for_a_poll(
    committing: Bench, database: str
) -> None:
    order: list[Any] = []

    async def note(ctx: Context) -> None:
        order.append(ctx.job_id)
        await trio.lowlevel.checkpoint()

    committing.handle(note)
    ids = await committing.submit(6, queue_name="q")
    await committing.start(committing.dispatcher(poll_s=60.0))
    await all_completed(committing, ids)
    assert order == ids


async def test_a_delayed_job_runs_though_hints_never_let_the_pod_poll(
    committing: Bench, database: str
) -> None:
    gate = with_gate(committing)
    gate.opened.set()
    ids = await committing.submit(delay_s=3600.0)
    dispatcher = committing.dispatcher(poll_s=0.2)
    await committing.start(dispatcher)

    async def hint_all_the_time() -> None:
        while True:
            dispatcher.hint()
            await trio.lowlevel.checkpoint()

    committing.jobs.start_soon(hint_all_the_time)
    await trio.to_thread.run_sync(move_clock, database, 3601.0)
    await all_completed(committing, ids)


async def test_work_is_found_without_any_hint(committing: Bench, database: str) -> None:
    gate = with_gate(committing)
    gate.opened.set()
    await committing.start(committing.dispatcher(poll_s=0.05))
    ids = await committing.submit(2)
    await all_completed(committing, ids)


async def test_a_hint_is_followed_at_once(committing: Bench) -> None:
    gate = with_gate(committing)
    gate.opened.set()
    dispatcher = committing.dispatcher(poll_s=60.0)
    await committing.start(dispatcher)
    ids = await committing.submit(2)
    dispatcher.hint()
    await all_completed(committing, ids)


async def test_many_jobs_that_are_due_at_once_do_not_wait_for_the_next_poll(
    committing: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PROMOTE_BATCH", 2)
    gate = with_gate(committing)
    gate.opened.set()
    ids = await committing.submit(7, delay_s=60.0)
    move_clock(database, 61)
    await committing.start(committing.dispatcher(poll_s=60.0))
    await all_completed(committing, ids)


async def test_an_outage_is_waited_out(committing: Bench) -> None:
    gate = with_gate(committing)
    gate.opened.set()
    for method in (tasks.promote, tasks.claim, tasks.claim):
        committing.port.refuse(method)
    ids = await committing.submit(2)
    await committing.start(committing.dispatcher(poll_s=0.05))
    await all_completed(committing, ids)
    assert committing.port.faults_left == 0


@pytest.mark.parametrize(
    "error", [UnavailableError("busy"), SchemaError("there is no such table")], ids=["away", "ill"]
)
async def test_dispatcher_with_failing_claims_does_not_report_claiming(
    committing: Bench, error: CortexError
) -> None:
    dispatcher = committing.dispatcher(poll_s=60.0)
    committing.port.fail(tasks.claim, error)

    async def run() -> None:
        with suppress(SchemaError):  # then its supervisor restarts it
            await dispatcher.run()

    async with trio.open_nursery() as nursery:
        assert dispatcher.may_claim
        nursery.start_soon(run)
        await eventually_async(lambda: not dispatcher.may_claim, what="it has failed")
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await eventually_async(lambda: dispatcher.may_claim, what="it has claimed")
        nursery.cancel_scope.cancel()


async def test_after_an_outage_claims_begin_with_a_few_and_end_with_all(
    committing: Bench, database: str
) -> None:
    committing.running.slots = committing.slots = 3 * FIRST
    gate = with_gate(committing)
    ids = await committing.submit(3 * FIRST)
    dispatcher = committing.dispatcher()
    committing.self_fence.lost()
    await dispatcher.tick()
    committing.self_fence.locked()
    committing.self_fence.beaten(trio.current_time())
    await dispatcher.tick()
    dispatcher.hint()
    assert states(database)["LOCKED"] < 2 * FIRST
    gate.opened.set()
    await committing.start(dispatcher)
    await all_completed(committing, ids)


@pytest.mark.parametrize("count", [3, 2 * BATCH_AHEAD], ids=["few", "a batch"])
async def test_claim_arriving_during_cancellation_is_still_started(
    committing: Bench, database: str, count: int
) -> None:
    """Else the jobs would be locked by a pod that does not run them."""
    committing.running.slots = committing.slots = count
    gate = with_gate(committing)
    dispatcher = committing.dispatcher()
    ids = await committing.submit(count)
    sql(database, "GRANT UPDATE ON cortex.job_history TO cortex_runtime")  # for the lock
    holder = await hold_claims(committing)
    async with trio.open_nursery() as intake:
        intake.start_soon(dispatcher.run)
        await eventually_async(lambda: waits_for_lock(database), what="the claim waits for a row")
        intake.cancel_scope.cancel()
        holder.cancel()
    assert sorted(committing.running.job_ids) == sorted(ids)
    await eventually_async(lambda: len(gate.begun) == count, what="the handlers run")


async def hold_claims(bench: Bench) -> trio.CancelScope:
    """Let no claim write history until the scope is cancelled."""

    async def hold(*, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        release = trio.Event()

        async def in_transaction(db: Any) -> None:
            async def work(connection: Any) -> None:
                await connection.fetch("LOCK TABLE cortex.job_history IN SHARE MODE")
                held.set()
                while not release.is_set():
                    await connection.fetch("SELECT pg_sleep(0.01)")

            await db.transact(work)

        held = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.port, in_transaction)
            await held.wait()
            with trio.CancelScope() as scope:
                task_status.started(scope)
                await trio.sleep_forever()
            release.set()

    scope: trio.CancelScope = await bench.jobs.start(hold)
    return scope


def waits_for_lock(dsn: str) -> bool:
    query = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    return bool(sql(dsn, query))


async def test_two_pods_share_the_work_and_none_of_it_runs_twice(
    committing: Bench, database: str
) -> None:
    other = Bench(committing.port, committing.jobs, slots=3)
    await other.start_committing()
    gates = [with_gate(bench) for bench in (committing, other)]
    for gate in gates:
        gate.opened.set()
    ids = await committing.submit(60)
    ids += await committing.submit(10, queue_name="q")
    for bench in (committing, other):
        await bench.start(bench.dispatcher(poll_s=0.05))
    await all_completed(committing, ids)
    begun = gates[0].begun + gates[1].begun
    assert sorted(begun) == sorted(ids)
    assert all(gate.begun for gate in gates)
    assert_one_truth(database)


def test_the_dispatcher_has_a_name_for_its_supervisor() -> None:
    assert Dispatcher.name == "dispatcher"


async def test_suspects_of_pods_deaths_follow_each_other_without_waiting_for_a_poll(
    committing: Bench, database: str
) -> None:
    may_end = trio.Event()

    async def at_once_or_in_two_steps(ctx: Context) -> None:
        await ctx.step("one", trio.lowlevel.checkpoint)
        if ctx.job_id in ids[:2]:
            await may_end.wait()

    committing.handle(at_once_or_in_two_steps)
    ids = await committing.submit(8)
    sql(database, "UPDATE cortex_worker.task SET is_suspect = true")
    await committing.start(committing.dispatcher(poll_s=60.0))
    await all_completed(committing, ids[2:])
    # The record knows of an end before the pod has heard that it does.
    await eventually_async(
        lambda: sorted(committing.running.job_ids) == sorted(ids[:2]), what="only those two run"
    )
    may_end.set()
    await all_completed(committing, ids)


async def test_a_claim_ahead_counts_the_processes_of_the_batch_that_has_not_started(
    committing: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Processes:
        slots = 2

        async def attempt(self, *_: object, **__: object) -> None:
            await trio.sleep_forever()

    batch = 2 * BATCH_AHEAD
    monkeypatch.setattr(dispatcher_module, "BATCH_MAX", batch)
    committing.running.slots = committing.slots = 3 * batch
    monkeypatch.setattr(committing, "isolation", Processes())
    with_gate(committing)
    await committing.submit(batch - Processes.slots)
    suspects = await committing.submit(2 * Processes.slots)
    await committing.submit(batch)
    mark = "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = ANY ($1::uuid[])"
    sql(database, mark, suspects)
    dispatcher = committing.dispatcher()
    for _ in range(2):
        await dispatcher.tick()
    locked = "SELECT is_suspect FROM cortex_worker.task WHERE state = 'LOCKED'"
    rows = Counter(row["is_suspect"] for row in sql(database, locked))
    assert rows == {False: 2 * batch - Processes.slots, True: Processes.slots}


async def test_jobs_do_not_run_far_ahead_of_a_committer_that_is_held_up(
    bench: Bench, database: str
) -> None:
    bench.running.slots = bench.slots = 3
    gate = with_gate(bench)
    gate.opened.set()
    ids = await bench.submit(30)
    dispatcher = bench.dispatcher(poll_s=0.05)
    await bench.start(dispatcher)
    await eventually_async(lambda: len(gate.begun) == 6, what="as many again have run")
    assert await dispatcher.tick() > 0
    assert states(database) == {"LOCKED": 6, "READY": 24}
    await bench.start_committing()
    await all_completed(bench, ids)
