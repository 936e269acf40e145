"""Receipts of time-outs: there before the end of the attempt, bounded, and never in its way."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from cortex.domain.clock import system_chance
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError, TimedOutError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Claim, StepKind
from cortex.domain.timeouts import FinalAction, Interruption, Phase, Scope, TimeoutReceipt
from cortex.durable.codec import StepInput
from cortex.durable.context import Context
from cortex.durable.progress import ANSWER_CHARS_MAX, PartialAnswer
from cortex.durable.step_outcome import StepOutcome
from cortex.runtime.calls.fact_sink import FactSink
from cortex.runtime.jobs import receipts as receipts_module
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.running import Stop
from cortex.store import jobs, timeouts
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import attempts, job_row
from tests.support.servers.postgres import sql

TIMED_OUT = Failure(
    cls=FailureClass.TRANSIENT_APP, code="timed_out", message="late", scope="call", limit_s=5.0
)


@pytest.fixture
async def committing(bench: Bench, tmp_path: Path) -> Bench:
    """A pod whose committer runs, and whose jobs have a folder for their files."""
    bench.receipts = Receipts(
        bench.port, workspaces=tmp_path / "data" / "workspaces", unix_ms=system_chance().unix_ms
    )
    await bench.start_committing()
    return bench


async def run(bench: Bench, handler: Callable[..., Awaitable[Any]], **fields: Any) -> Claim:
    """Run one attempt of a new job to its end."""
    bench.handle(handler)
    (claim,) = await bench.claimed(**fields)
    bench.run(claim)
    await ended(bench)
    return claim


async def ended(bench: Bench) -> None:
    with trio.fail_after(WITHIN_S):
        await bench.running.wait_until_empty()


async def found(bench: Bench, claim: Claim) -> list[TimeoutReceipt]:
    recorded = await bench.port(timeouts.of_job, claim.lease.job_id)
    return [each.receipt for each in recorded]


async def the_only(bench: Bench, claim: Claim) -> TimeoutReceipt:
    (receipt,) = await found(bench, claim)
    return receipt


async def sleeps(ctx: Context) -> None:
    await ctx.step("begun", trio.lowlevel.checkpoint)
    await trio.sleep_forever()


def raising(error: BaseException) -> Callable[[Context], Awaitable[None]]:
    async def fails(ctx: Context) -> None:
        async def fail() -> None:
            raise error

        await ctx.step("fails", fail)

    return fails


# --- which limit, which step


async def test_a_time_out_between_steps_names_the_last_checkpoint(
    committing: Bench, database: str
) -> None:
    claim = await run(committing, sleeps, timeout_s=1)
    output = (await the_only(committing, claim)).interruption
    assert (output.scope, output.limit_s, output.final_action) == (Scope.JOB, 1, FinalAction.FAILED)
    assert (output.phase, output.step_key) == (Phase.HANDLER, None)
    assert (output.checkpoint_seq, output.checkpoint_key) == (1, "begun")
    assert output.elapsed_s >= 1
    assert output.step_elapsed_s <= output.elapsed_s
    assert job_row(database, claim.lease.job_id)["error_code"] == "job_timed_out"


async def test_receipt_names_one_of_the_steps_cut_together(committing: Bench) -> None:
    async def waits(ctx: Context) -> None:
        await ctx.gather(ctx.step("a", trio.sleep_forever), ctx.step("b", trio.sleep_forever))

    output = (await the_only(committing, await run(committing, waits, timeout_s=1))).interruption
    assert output.step_key in ("a", "b")
    assert output.phase is Phase.STEP
    assert output.step_elapsed_s >= 0.9


async def test_files_of_a_committed_sibling_step_are_not_left_over(
    committing: Bench, tmp_path: Path
) -> None:
    async def waits(ctx: Context) -> None:
        folder = tmp_path / "data" / "workspaces" / str(ctx.job_id)
        folder.mkdir(parents=True)
        whole = folder / "whole"

        async def write() -> None:
            whole.touch()
            first = whole.stat().st_ctime
            while whole.stat().st_ctime < first + 0.05:  # after the slow one began, for certain
                whole.unlink()
                whole.touch()
                await trio.lowlevel.checkpoint()

        await ctx.gather(ctx.step("slow", trio.sleep_forever), ctx.step("quick", write))

    receipt = await the_only(committing, await run(committing, waits, timeout_s=1))
    assert receipt.interruption.step_key == "slow"
    assert receipt.interruption.checkpoint_key == "quick"
    assert [each.path for each in receipt.artefacts if each.is_new] == []


async def test_a_step_that_the_job_gave_up_itself_is_not_blamed(committing: Bench) -> None:
    async def goes_on(ctx: Context) -> None:
        with trio.move_on_after(0.05):
            await ctx.step("given up", trio.sleep_forever)
        await trio.sleep_forever()

    output = (await the_only(committing, await run(committing, goes_on, timeout_s=1))).interruption
    assert (output.phase, output.step_key) == (Phase.HANDLER, None)


async def test_a_time_out_that_the_job_survives_leaves_no_receipt(committing: Bench) -> None:
    async def shrugs(ctx: Context) -> str:
        with contextlib.suppress(TimedOutError):
            await ctx.step("late", trio.sleep_forever, timeout=0.05)
        raise RejectedError("for another reason")

    assert await found(committing, await run(committing, shrugs)) == []


@pytest.mark.parametrize(
    "fields, action",
    [({}, FinalAction.RETRY), ({"max_retries": 0}, FinalAction.FAILED)],
)
async def test_receipt_records_the_final_action(
    committing: Bench, fields: dict[str, Any], action: FinalAction
) -> None:
    async def late(ctx: Context) -> None:
        await ctx.gather(
            ctx.step("late", trio.sleep_forever, timeout=0.05),
            ctx.step("beside", trio.sleep_forever),
        )

    output = (await the_only(committing, await run(committing, late, **fields))).interruption
    assert (output.scope, output.step_key, output.final_action) == (Scope.STEP, "late", action)
    assert output.elapsed_s >= output.limit_s == 0.05


async def test_an_infrastructure_time_out_is_released(committing: Bench) -> None:
    error = TimedOutError("no connection", scope="connect", limit_s=3.0)
    output = (await the_only(committing, await run(committing, raising(error)))).interruption
    assert (output.scope, output.final_action) == (Scope.CONNECT, FinalAction.RELEASED)


async def test_a_time_out_that_opened_a_breaker_is_why_the_job_waits(
    committing: Bench, database: str
) -> None:
    async def fails(ctx: Context) -> None:
        async def call() -> None:
            try:
                await silent()
            except TimedOutError:
                raise Suspended("llm:x", "llm:x is open", delay_s=30)  # noqa: B904 -- as breakers do

        async def silent() -> None:
            raise TimedOutError("no content", scope="idle", limit_s=3.0)

        await ctx.gather(ctx.step("call", call))

    claim = await run(committing, fails)
    output = (await the_only(committing, claim)).interruption
    assert (output.scope, output.step_key, output.final_action) == (
        Scope.IDLE,
        "call",
        FinalAction.RETRY,
    )
    assert attempts(database, claim.lease.job_id) == [(1, "suspended")]


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("g", [TimedOutError("t", scope="call", limit_s=1.0), RejectedError("no")]),
        Suspended("llm:x", "open before", delay_s=30),
        TimedOutError("of its own", scope="mine", limit_s=1.0),
        TimedOutError("of its own", scope="job", limit_s=1.0),
        TimedOutError("nobody knows", scope="call"),
        TimedOutError("nonsense", scope="call", limit_s=float("nan")),
        TimedOutError("nonsense", scope="call", limit_s=-1.0),
    ],
    ids=["permanent", "wish", "scope", "job", "no limit", "nan", "negative"],
)
async def test_error_without_a_limit_of_ours_leaves_no_receipt(
    committing: Bench, error: BaseException
) -> None:
    claim = await run(committing, raising(error))
    assert await found(committing, claim) == []


# --- once the job's own limit has fired


async def test_error_in_cleanup_at_the_limit_is_a_timeout(committing: Bench, database: str) -> None:
    async def breaks(ctx: Context) -> None:
        try:
            await ctx.step("cut", trio.sleep_forever)
        finally:
            raise ValueError("in the clean-up")

    claim = await run(committing, breaks, timeout_s=1)
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "job_timed_out")
    output = (await the_only(committing, claim)).interruption
    assert (output.scope, output.step_key) == (Scope.JOB, "cut")


async def test_a_time_that_was_over_before_the_attempt_knows_the_checkpoint(
    committing: Bench, database: str
) -> None:
    """Its steps are not even loaded; whatever lies there is from the attempts before."""
    committing.handle(sleeps)
    (claim,) = await committing.claimed(timeout_s=30)
    running = committing.run(claim)
    begun = "SELECT 1 FROM cortex.job_step"
    await eventually_async(lambda: sql(database, begun), what="its first step")
    running.end(Stop.HANDED_BACK)
    await ended(committing)
    sql(database, "UPDATE cortex.job_record SET started_at = started_at - interval '1 hour'")
    (again,) = await committing.claim()
    assert again.left_s == 0
    committing.run(again)
    await ended(committing)
    output = (await the_only(committing, again)).interruption
    assert (output.scope, output.lease.attempt) == (Scope.JOB, 2)
    assert (output.checkpoint_seq, output.checkpoint_key) == (1, "begun")
    assert output.step_elapsed_s >= 30


# --- what it leaves


async def test_receipt_lists_files_written_by_the_step(committing: Bench, tmp_path: Path) -> None:
    async def writes(ctx: Context) -> None:
        async def write() -> None:
            folder = tmp_path / "data" / "workspaces" / str(ctx.job_id)
            folder.mkdir(parents=True)
            (folder / "half").write_text("so far")
            await trio.sleep_forever()

        await ctx.step("writes", write)

    receipt = await the_only(committing, await run(committing, writes, timeout_s=1))
    assert [(each.path, each.size_bytes) for each in receipt.artefacts] == [("half", 6)]
    assert not receipt.is_clean


def test_partial_answer_keeps_only_its_bounded_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio, "current_time", lambda: 1.0)
    answer = PartialAnswer()
    assert answer.text is None
    hear = answer.begin()
    for _ in range(10):
        hear("x" * 10_000)
    assert answer.text == "x" * ANSWER_CHARS_MAX
    answer.begin()("anew")
    assert answer.text == "anew"


# --- calls whose attempts continue


@pytest.mark.parametrize(
    "kind, action",
    [
        (StepKind.MODEL, FinalAction.RETRIED_CALL),
        (StepKind.STEP, FinalAction.RETRIED_CALL),
        (StepKind.TOOL, FinalAction.TOLD_MODEL),
    ],
)
async def test_each_call_that_timed_out_in_a_step_is_one_receipt(
    committing: Bench, tmp_path: Path, kind: StepKind, action: FinalAction
) -> None:
    facts = FactSink(committing.port, pod_id=committing.pod.id, receipts=committing.receipts)

    async def calls(ctx: Context) -> None:
        async def attempt() -> StepOutcome:
            caller = await ctx.caller("call")
            folder = tmp_path / "data" / "workspaces" / str(ctx.job_id)
            folder.mkdir(parents=True)
            (folder / "half").touch()
            caller.answer.begin()("so far")
            await facts.failed(caller, TIMED_OUT, resolution="again")
            await facts.failed(caller, TIMED_OUT, resolution="again")
            await facts.failed(caller, attrs.evolve(TIMED_OUT, scope=None), resolution="again")
            await facts.failed(caller, TIMED_OUT, resolution="it waits", goes_on=False)
            return StepOutcome(value=None)

        await ctx._journal.once(
            kind, ctx._journal.key("call"), given=StepInput(b"x" * 32, b"[]"), run=attempt
        )

    claim = await run(committing, calls)
    left = await found(committing, claim)
    output = [receipt.interruption for receipt in left]
    assert {len(receipt.artefacts) for receipt in left} == {0 if kind is StepKind.MODEL else 1}
    assert [(each.nth, each.final_action) for each in output] == [(1, action), (2, action)]
    assert {each.partial_text for each in output} == {"so far"}
    assert committing.receipts._attempts == {}, "nothing is kept of an attempt that has ended"


# --- not in the way of others


async def test_the_receipt_is_in_the_record_before_the_end_is(
    committing: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Callable[..., Any]] = []
    port = type(committing.port)
    call = port.__call__

    async def noting(self: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        asked.append(method)
        return await call(self, method, *args, **kwargs)

    monkeypatch.setattr(port, "__call__", noting)
    await run(committing, sleeps, timeout_s=1)
    assert asked.index(timeouts.record) < asked.index(jobs.finish)


async def test_receipt_refused_in_an_outage_is_recorded_after_the_end(
    committing: Bench, database: str
) -> None:
    committing.port.refuse(timeouts.record)
    claim = await run(committing, sleeps, timeout_s=1)
    assert committing.port.faults_left == 0
    assert job_row(database, claim.lease.job_id)["status"] == "FAILED"
    assert len(await found(committing, claim)) == 1


async def test_receipt_with_a_lost_reply_is_recorded_once(committing: Bench) -> None:
    committing.port.lose_reply(timeouts.record)
    claim = await run(committing, sleeps, timeout_s=1)
    assert len(await found(committing, claim)) == 1


@pytest.fixture
def endless_look(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Looking at files never ends; set when it has begun."""
    begun = trio.Event()

    async def look(output: Interruption, **_: Any) -> TimeoutReceipt:
        begun.set()
        await trio.sleep_forever()
        raise AssertionError(output)

    monkeypatch.setattr(receipts_module, "take_receipt", look)
    return begun


@pytest.mark.parametrize("why", [Stop.HANDED_BACK, Stop.CANCELLED])
async def test_stopping_a_job_does_not_wait_for_its_receipt(
    committing: Bench, database: str, endless_look: trio.Event, why: Stop
) -> None:
    committing.handle(sleeps)
    (claim,) = await committing.claimed(timeout_s=1)
    running = committing.run(claim)
    with trio.fail_after(WITHIN_S):
        await endless_look.wait()
        running.end(why)
        await committing.running.wait_until_empty()
    receipt = await the_only(committing, claim)
    assert receipt.problem == "examining its files was cut short"
    assert not receipt.is_clean
    assert job_row(database, claim.lease.job_id)["error_code"] == "job_timed_out"


async def test_a_receipt_of_a_lost_job_does_not_end_it(
    committing: Bench, database: str, endless_look: trio.Event
) -> None:
    committing.handle(sleeps)
    (claim,) = await committing.claimed(timeout_s=1)
    running = committing.run(claim)
    with trio.fail_after(WITHIN_S):
        await endless_look.wait()
        running.end(Stop.LEASE_LOST)
        await committing.running.wait_until_empty()
    assert job_row(database, claim.lease.job_id)["status"] == "RUNNING"


async def test_a_cancelled_pod_is_not_held(committing: Bench, endless_look: trio.Event) -> None:
    committing.handle(sleeps)
    (claim,) = await committing.claimed(timeout_s=1)
    running = committing.running.add(claim)
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committing.actors().run, claim, running)
            await endless_look.wait()
            nursery.cancel_scope.cancel()


async def test_failed_examination_does_not_end_the_pod(
    committing: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(output: Interruption, **_: Any) -> TimeoutReceipt:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(receipts_module, "take_receipt", look)
    claim = await run(committing, sleeps, timeout_s=1)
    receipt = await the_only(committing, claim)
    assert "can't start new thread" in (receipt.problem or "")
    assert job_row(database, claim.lease.job_id)["status"] == "FAILED"
