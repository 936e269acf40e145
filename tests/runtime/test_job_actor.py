"""The actor of one attempt: whatever its handler does, the record shows the outcome."""

import re
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import RejectedError
from cortex.domain.job import Claim
from cortex.durable.context import Context
from cortex.runtime.running import RunningJob, Stop
from cortex.store import jobs, retries, steps, tasks
from cortex.view.jobs import state_of
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.holder import holding_task
from tests.support.records.factories import Bench
from tests.support.records.rows import (
    NoPause,
    assert_one_truth,
    attempts,
    history,
    job_row,
    move_clock,
)
from tests.support.records.rows import steps as steps_of
from tests.support.servers.postgres import sql


@pytest.fixture
async def committing(bench: Bench) -> Bench:
    """A pod whose committer runs."""
    await bench.start_committing()
    return bench


async def run_one(bench: Bench, handler: Callable[..., Awaitable[Any]], **fields: Any) -> UUID:
    """Run one attempt of a new job to its end; return the job."""
    bench.handle(handler)
    (claim,) = await bench.claimed(**fields)
    bench.run(claim)
    await ended(bench)
    return claim.lease.job_id


async def ended(bench: Bench) -> None:
    with trio.fail_after(WITHIN_S):
        await bench.running.wait_until_empty()


def output(dsn: str, job_id: UUID) -> tuple[str, Any, str | None, str | None]:
    row = job_row(dsn, job_id)
    return row["status"], row["result"], row["error_code"], row["error_message"]


trace: ContextVar[str] = ContextVar("trace", default="untouched")


@attrs.frozen
class Odd:
    """A value whose conversion runs code of the job, which fails."""

    inner: Any


class Explosive:
    def __repr__(self) -> str:
        raise RuntimeError("no picture")


async def returns(ctx: Context, value: Any = None) -> Any:
    return value


async def test_a_result_completes_the_job(committing: Bench, database: str) -> None:
    job_id = await run_one(committing, returns, payload='{"value": {"a": [1, null]}}')
    assert output(database, job_id) == ("COMPLETED", {"a": [1, None]}, None, None)
    assert [new for _, new, _ in history(database, job_id)] == ["PENDING", "RUNNING", "COMPLETED"]
    assert_one_truth(database)


def busy(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def returns_late(ctx: Context) -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep_until(trio.current_time() + 0.1)
    return "done"


async def computes_on(ctx: Context) -> str:
    busy(0.1)
    return "done"


async def fails_late(ctx: Context) -> str:
    busy(0.1)
    raise RejectedError("never")


@pytest.mark.parametrize("handler", [returns_late, computes_on, fails_late])
async def test_end_after_the_deadline_is_a_timeout(
    committing: Bench, database: str, handler: Callable[..., Awaitable[Any]]
) -> None:
    committing.handle(handler)
    (claim,) = await committing.claimed()
    committing.run(attrs.evolve(claim, left_s=0.05))
    await ended(committing)
    status, result, code, message = output(database, claim.lease.job_id)
    assert (status, result, code) == ("FAILED", None, "job_timed_out")
    assert message == f"Job timed out after {claim.timeout_s} seconds"
    assert_one_truth(database)


async def test_an_error_frees_the_job_for_a_later_attempt(committing: Bench, database: str) -> None:
    async def fails(ctx: Context) -> None:
        raise OSError("no route")

    job_id = await run_one(committing, fails)
    row = job_row(database, job_id)
    assert (row["status"], row["task_state"], row["pod_id"]) == ("RUNNING", "LATER", None)
    assert 2.0 < (row["task_run_at"] - row["now"]).total_seconds() <= 2.72
    assert attempts(database, job_id) == [(1, "failed")]
    assert_one_truth(database)


@pytest.mark.parametrize("payload", ['{"m": 2, "o": [], "n": "x"}', '{"n": "1", "m": 2, "o": 3}'])
async def test_a_payload_that_does_not_fit_is_handed_back(
    committing: Bench, database: str, payload: str
) -> None:
    async def takes(ctx: Context, n: int) -> None: ...

    row = job_row(database, await run_one(committing, takes, payload=payload))
    assert (row["status"], row["unfit_codes"], row["retry_count"]) == ("RETRY", [0], 0)
    (attempt,) = sql(database, "SELECT * FROM cortex.job_attempt WHERE job_id = $1", row["id"])
    assert (attempt["outcome"], attempt["error_source"]) == ("misfit", "arguments")
    assert re.search("has unknown keys 'm', 'o'; .*payload.n", attempt["error"])
    assert sql(database, "SELECT FROM cortex.fact WHERE type = 'error'") == []
    assert await committing.claim() == [], "the same code does not look again"
    assert_one_truth(database)


@pytest.mark.parametrize(
    "value",
    [object(), Odd(Explosive()), float("nan"), "x" * 5_000_000],
    ids=lambda v: type(v).__name__,
)
async def test_a_result_that_cannot_be_stored_fails_the_job_and_not_the_pod(
    committing: Bench, database: str, value: object
) -> None:
    async def returns_it(ctx: Context) -> object:
        return value

    job_id = await run_one(committing, returns_it, worker_attempts=1)
    assert output(database, job_id)[0] == "FAILED"
    assert_one_truth(database)


async def test_text_that_postgres_lacks_is_made_visible(committing: Bench, database: str) -> None:
    async def returns_it(ctx: Context) -> str:
        return "a\0b\ud800c"

    job_id = await run_one(committing, returns_it)
    assert output(database, job_id)[:2] == ("COMPLETED", "a\ufffdb\ufffdc")


@pytest.mark.parametrize(
    "error", [SystemExit(3), RejectedError("a\0b"), GeneratorExit()], ids=lambda e: type(e).__name__
)
async def test_no_error_of_a_handler_ends_the_pod(
    committing: Bench, database: str, error: BaseException
) -> None:
    async def raises(ctx: Context) -> None:
        raise error

    job_id = await run_one(committing, raises, worker_attempts=1)
    assert output(database, job_id)[0] == "FAILED"


async def test_timed_out_job_fails_with_its_time_limit(committing: Bench, database: str) -> None:
    async def sleeps(ctx: Context) -> None:
        await trio.sleep_forever()

    job_id = await run_one(committing, sleeps, timeout_s=1)
    assert output(database, job_id)[2:] == ("job_timed_out", "Job timed out after 1 seconds")


async def test_job_time_counts_from_its_first_attempt(committing: Bench, database: str) -> None:
    committing.handle(returns)
    (claim,) = await committing.claimed(timeout_s=30)
    sql(database, "UPDATE cortex.job_record SET started_at = cortex.now() - interval '1 hour'")
    row = job_row(database, claim.lease.job_id)
    assert (row["now"] - row["started_at"]).total_seconds() > 3600
    await committing.port(tasks.sweep, silent_s=-1.0, limit=10, rng=NoPause())
    await committing.port(retries.due)
    (again,) = await committing.claim()
    assert again.left_s == 0

    async def never(ctx: Context) -> None:
        begun.append(ctx)

    begun: list[Context] = []
    committing.registry._types.clear()
    committing.handle(never)
    committing.run(again)
    await ended(committing)
    assert output(database, claim.lease.job_id)[2] == "job_timed_out"
    assert begun == []


# --- stopped from outside


async def stopped(
    bench: Bench, why: Stop, handler: Callable[..., Awaitable[Any]] | None = None
) -> Claim:
    """Stop a handler that waits for ever, or this one, once it is in the middle."""
    begun = trio.Event()

    async def waits(ctx: Context) -> Any:
        begun.set()
        if handler is not None:
            return await handler(ctx)
        await trio.sleep_forever()
        return None

    bench.handle(waits)
    (claim,) = await bench.claimed()
    running = bench.run(claim)
    await begun.wait()
    running.end(why)
    await ended(bench)
    return claim


async def test_a_cancelled_job_ends_as_cancelled(committing: Bench, database: str) -> None:
    claim = await stopped(committing, Stop.CANCELLED)
    assert output(database, claim.lease.job_id)[0] == "CANCELLED"
    assert_one_truth(database)


async def test_claim_during_shutdown_is_handed_back_before_its_code_runs(
    committing: Bench, database: str
) -> None:
    async def runs(ctx: Context) -> None:
        raise AssertionError("a line of it ran")

    committing.running.leaving.set()
    job_id = await run_one(committing, runs)
    row = job_row(database, job_id)
    assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "READY", 0)
    assert attempts(database, job_id) == [(1, "handed_back")]


async def test_a_job_handed_back_costs_no_attempt_and_is_due_at_once(
    committing: Bench, database: str
) -> None:
    claim = await stopped(committing, Stop.HANDED_BACK)
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "READY", 0)
    (again,) = await committing.claim()
    assert again.lease.attempt == 2


async def test_job_with_a_lost_lease_writes_nothing(committing: Bench, database: str) -> None:
    claim = await stopped(committing, Stop.LEASE_LOST)
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["task_state"], row["attempt"]) == ("RUNNING", "LOCKED", 1)
    assert attempts(database, claim.lease.job_id) == []


@pytest.mark.parametrize("why", Stop)
async def test_a_handler_that_fails_while_it_is_stopped_is_still_stopped(
    committing: Bench, database: str, why: Stop
) -> None:
    async def fails_to_clean_up(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in the clean-up")

    claim = await stopped(committing, why, fails_to_clean_up)
    row = job_row(database, claim.lease.job_id)
    expected = {
        Stop.CANCELLED: ("CANCELLED", None),
        Stop.HANDED_BACK: ("RUNNING", "READY"),
        Stop.LEASE_LOST: ("RUNNING", "LOCKED"),
    }
    assert (row["status"], row["task_state"]) == expected[why]


async def deaf(ctx: Context) -> str:
    """Swallow the cancellation, and return all the same."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:  # noqa: ASYNC103 -- what bad handlers do
        return "done"  # noqa: ASYNC104
    return "never"


async def test_handler_that_returns_despite_a_cancel_completes(
    committing: Bench, database: str
) -> None:
    claim = await stopped(committing, Stop.CANCELLED, deaf)
    assert output(database, claim.lease.job_id)[:2] == ("COMPLETED", "done")


async def test_handler_that_returns_after_losing_its_lease_writes_nothing(
    committing: Bench, database: str
) -> None:
    """The fence stopped it: in the database the job may still be its own."""
    claim = await stopped(committing, Stop.LEASE_LOST, deaf)
    assert output(database, claim.lease.job_id)[:2] == ("RUNNING", None)


async def test_a_request_to_cancel_is_obeyed_before_the_handler_runs(
    committing: Bench, database: str
) -> None:
    async def never(ctx: Context) -> None:
        raise AssertionError("it ran")

    committing.handle(never)
    (claim,) = await committing.claimed()
    committing.run(attrs.evolve(claim, cancel_requested=True))
    await ended(committing)
    assert output(database, claim.lease.job_id)[0] == "CANCELLED"


async def test_a_lease_lost_at_a_step_ends_a_handler_that_swallows_errors(
    committing: Bench, database: str
) -> None:
    swallowed: list[BaseException] = []

    async def swallows(ctx: Context) -> str:
        await trio.to_thread.run_sync(steal, database, ctx.job_id)
        try:
            await ctx.step("a", trio.lowlevel.checkpoint)
        except Exception as error:  # noqa: BLE001
            swallowed.append(error)
        return "went on"

    job_id = await run_one(committing, swallows)
    assert swallowed == []
    row = job_row(database, job_id)
    assert (row["status"], row["attempt"], row["result"]) == ("RUNNING", 2, None)
    assert steps_of(database, job_id) == []


def steal(dsn: str, job_id: UUID) -> None:
    """Another attempt begins elsewhere."""
    sql(dsn, "UPDATE cortex_worker.task SET attempt = attempt + 1 WHERE job_id = $1", job_id)


# --- resumed


async def test_next_attempt_continues_after_the_last_committed_step(
    committing: Bench, database: str
) -> None:
    ran: list[str] = []

    async def note(name: str) -> str:
        ran.append(name)
        return name

    async def work(ctx: Context) -> list[str]:
        done = [await ctx.step("a", note, "a"), await ctx.step("b", note, "b")]
        if ctx.attempt == 1:
            raise OSError("cut off")
        return [*done, await ctx.step("c", note, "c")]

    committing.handle(work)
    (claim,) = await committing.claimed()
    committing.run(claim)
    await ended(committing)
    sql(database, "UPDATE cortex_worker.task SET state = 'READY'")
    (again,) = await committing.claim()
    committing.port.refuse(steps.record_of)  # an outage costs time, but no attempt
    committing.run(again)
    await ended(committing)
    assert ran == ["a", "b", "c"]
    assert output(database, claim.lease.job_id)[:2] == ("COMPLETED", ["a", "b", "c"])
    assert [step[1] for step in steps_of(database, claim.lease.job_id)] == [1, 1, 2]
    assert_one_truth(database)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_diverging_code_hands_back_unless_it_has_done_something_new(
    committing: Bench, database: str, is_clean: bool
) -> None:
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            with pytest.raises(ValueError, match="x"):
                await ctx.step("fails", int, "x")
        elif not is_clean:
            await ctx.step("new", int)  # after a failure, "a" need not be asked for again
        await ctx.step("a", returns, ctx.attempt)
        raise OSError("cut off")

    committing.handle(work)
    (claim,) = await committing.claimed()
    committing.run(claim)
    await ended(committing)
    sql(database, "UPDATE cortex_worker.task SET state = 'READY'")
    (again,) = await committing.claim()
    committing.run(again)
    await ended(committing)
    row = job_row(database, claim.lease.job_id)
    ends = {True: ("RETRY", [0], None), False: ("FAILED", None, "diverged")}
    assert (row["status"], row["unfit_codes"], row["error_code"]) == ends[is_clean]


# --- what the database says at the end


async def test_an_end_that_is_refused_fails_the_job_with_the_reason(
    committing: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that `encode` accepts is refused today: a broken encoder simulates it."""
    monkeypatch.setattr("cortex.durable.handling.encode", lambda *_, **__: "{")
    job_id = await run_one(committing, returns)
    status, _, code, message = output(database, job_id)
    assert (status, code) == ("FAILED", "invalid_value")
    assert message is not None
    assert "json" in message


async def test_an_end_that_is_not_acknowledged_is_no_crash(
    committing: Bench, database: str
) -> None:
    async def loses(ctx: Context) -> str:
        await trio.to_thread.run_sync(steal, database, ctx.job_id)
        return "done"

    job_id = await run_one(committing, loses)
    assert output(database, job_id)[:2] == ("RUNNING", None)


async def test_a_pod_that_is_cut_off_leaves_the_job_to_others(bench: Bench, database: str) -> None:
    """The committer does not run: the end waits for it until the pod's phase is cancelled."""
    bench.handle(returns)
    (claim,) = await bench.claimed()
    running: RunningJob = bench.running.add(claim)
    async with trio.open_nursery() as phase:
        phase.start_soon(bench.actors().run, claim, running)
        await eventually_async(lambda: len(bench.committer._mailbox), what="the end is sent")
        phase.cancel_scope.cancel()
    assert len(bench.running) == 0
    assert output(database, claim.lease.job_id)[0] == "RUNNING"


async def test_a_committer_that_stops_leaves_posted_ends_to_others(
    bench: Bench, database: str
) -> None:
    """The pod is closed while the end is being written."""
    bench.handle(returns)
    (claim,) = await bench.claimed()
    async with trio.open_nursery() as writers:
        await writers.start(bench.committer.run)
        with holding_task(database, claim.lease.job_id):
            bench.run(claim)
            await eventually_async(lambda: len(bench.committer._blocked), what="the end waits")
            assert (len(bench.running), bench.running.free_slots) == (1, bench.slots)
            writers.cancel_scope.cancel()
    assert len(bench.running) == 0
    assert bench.running.left_behind == [claim.lease.job_id]
    assert output(database, claim.lease.job_id)[0] == "RUNNING"


async def test_actor_reuses_its_task_with_fresh_context_variables(
    committing: Bench, database: str
) -> None:
    """Each job finds the context variables of a new task, whatever the one before has set."""
    tasks_seen, values = set(), []

    async def leaves_a_trace(ctx: Context) -> None:
        tasks_seen.add(trio.lowlevel.current_task())
        values.append(trace.get())
        trace.set(str(ctx.job_id))

    committing.handle(leaves_a_trace)
    actors = committing.actors()
    for _ in range(3):
        (claim,) = await committing.claimed()
        actors.start(committing.jobs, claim, committing.running.add(claim))
        await ended(committing)
        await eventually_async(lambda: len(actors.idle), what="its actor waits")
        assert output(database, claim.lease.job_id)[0] == "COMPLETED"
    assert (len(tasks_seen), values) == (1, ["untouched"] * 3)


async def test_actor_of_a_cancelled_job_is_not_reused(committing: Bench, database: str) -> None:
    begun = trio.Event()

    async def waits(ctx: Context) -> None:
        begun.set()
        await trio.sleep_forever()

    committing.handle(waits)
    actors = committing.actors()
    (claim,) = await committing.claimed()
    job = committing.running.add(claim)
    actors.start(committing.jobs, claim, job)
    await begun.wait()
    job.end(Stop.CANCELLED)
    await ended(committing)
    assert output(database, claim.lease.job_id)[0] == "CANCELLED"
    assert len(actors.idle) == 0


async def test_a_stop_after_the_end_does_not_reach_the_next_job(
    committing: Bench, database: str
) -> None:
    committing.handle(returns)
    actors = committing.actors()
    first, second = await committing.claimed(2)
    job = committing.running.add(first)
    actors.start(committing.jobs, first, job)
    await eventually_async(lambda: len(actors.idle), what="its actor waits")
    job.end(Stop.CANCELLED)
    actors.start(committing.jobs, second, committing.running.add(second))
    await ended(committing)
    for claim in (first, second):
        assert output(database, claim.lease.job_id)[0] == "COMPLETED"


async def test_a_scope_that_a_job_leaves_entered_fails_it_and_no_other(
    committing: Bench, database: str
) -> None:
    async def leaves_a_scope(ctx: Context) -> None:
        trio.CancelScope().__enter__()

    job_id = await run_one(committing, leaves_a_scope, worker_attempts=1, max_retries=0)
    status, _, _, message = output(database, job_id)
    assert status == "FAILED"
    assert message is not None
    assert "Cancel scope stack corrupted" in message


async def test_actors_that_wait_end_when_they_are_closed(committing: Bench) -> None:
    committing.handle(returns)
    actors = committing.actors()
    first, second = await committing.claimed(2)
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as phase:
            actors.start(phase, first, committing.running.add(first))
            await eventually_async(lambda: len(actors.idle), what="its actor waits")
            actors.idle.close()
        async with trio.open_nursery() as phase:
            actors.start(phase, second, committing.running.add(second))
    assert len(actors.idle) == 0


async def test_a_closed_committer_leaves_the_job_to_others(bench: Bench, database: str) -> None:
    bench.handle(returns)
    (claim,) = await bench.claimed()
    bench.committer.close()
    bench.run(claim)
    await ended(bench)
    assert output(database, claim.lease.job_id)[0] == "RUNNING"
    with pytest.raises(LeaseLost):
        await bench.committer.record(attrs.evolve)  # type: ignore[arg-type]
    counts = await bench.port(jobs.counts, [claim.lease.job_id])
    assert list(counts.values()) == [1]


async def test_a_job_sleeps_without_a_pod_and_without_a_retry(
    committing: Bench, database: str
) -> None:
    async def rests(ctx: Context) -> int:
        await ctx.sleep("cool off", hours=24)
        return ctx.attempt

    job_id = await run_one(committing, rests)
    row = job_row(database, job_id)
    assert (row["status"], row["waiting_on"], row["retry_count"]) == ("RETRY", "sleep", 0)
    assert (row["pod"], row["task_state"]) == (None, None), "no pod can die with it"
    due_s = (row["next_retry_at"] - row["updated_at"]).total_seconds()
    assert due_s == pytest.approx(86_400, abs=5)
    shown = await committing.port(jobs.show, job_id)
    assert str(state_of(shown)) == "◔ sleep"
    assert (await committing.port(retries.due, limit=10)).count == 0
    move_clock(database, 86_400)
    assert (await committing.port(retries.due, limit=10)).count == 1
    (claim,) = await committing.claim()
    committing.run(claim)
    await ended(committing)
    assert output(database, job_id)[:2] == ("COMPLETED", 2)
    assert attempts(database, job_id) == [(1, "suspended")]
