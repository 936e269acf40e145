"""Jobs that would never end: a test fails within a bounded time, with one line."""

import threading

import pytest
import trio

from cortex import Context, Invocation, job
from cortex.testing import Cortex, StuckError, background


async def hang_up(_: Invocation) -> None:
    raise ConnectionResetError("no answer came")


def test_missing_answer_of_model_is_named(harness: Cortex) -> None:
    @job
    async def talk(ctx: Context) -> None:
        message = {"role": "user", "content": "hello"}
        await ctx.llm("ask", model="m", messages=[message])
        await ctx.llm("ask", model="m", messages=[message])

    harness.model.script(["hi"])
    with pytest.raises(
        StuckError,
        match=r"^job 'talk' waits for an answer of model 'm' in step 'ask#2', and the script has "
        r"none left: call cortex.model.says",
    ):
        harness.run_sync(talk)


def test_effect_of_unknown_outcome_is_named(harness: Cortex) -> None:
    @job
    async def send(ctx: Context) -> None:
        await ctx.effect("send", hang_up)

    with pytest.raises(StuckError, match=r"whether effect 'send' was applied \(.*no answer came"):
        harness.run_sync(send)


def test_job_that_sleeps_for_ever_is_named(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.testing.job_run.ATTEMPTS_MAX", 5)

    @job
    async def nightly(ctx: Context) -> None:
        while True:
            await ctx.sleep("night", days=1)

    with pytest.raises(StuckError, match=r"^job 'nightly' has not ended after 5 attempts"):
        harness.run_sync(nightly)


def test_wait_for_thread_is_named_and_left(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "REAL_S", 0.1)
    never = threading.Event()

    @job
    async def waits(ctx: Context) -> None:
        await ctx.step("listen", never.wait)

    try:
        with pytest.raises(
            StuckError,
            match=r"^job 'waits' has not ended after 0 real seconds: in step 'listen' it waits ",
        ):
            harness.run_sync(waits)
    finally:
        never.set()


def test_wait_outside_of_steps_is_named(harness: Cortex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REAL_S", 0.1)
    never = threading.Event()

    @job
    async def waits(ctx: Context) -> None:
        await trio.to_thread.run_sync(never.wait, abandon_on_cancel=True)

    try:
        with pytest.raises(StuckError, match="outside of its steps it waits"):
            harness.run_sync(waits)
    finally:
        never.set()


def test_loop_is_named(harness: Cortex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REAL_S", 0.05)

    async def one() -> int:
        return 1

    @job
    async def loops(ctx: Context) -> None:
        while True:
            await ctx.step("one", one)

    with pytest.raises(
        StuckError, match=r"real seconds: in step 'one#\d+' it waits .* or it loops"
    ):
        harness.run_sync(loops)


def test_tool_that_is_not_there_is_named(harness: Cortex) -> None:
    @job
    async def calls(ctx: Context) -> None:
        await ctx.tool("pay", "pay", {})

    with pytest.raises(StuckError, match="would wait for other code: this pod has no tool 'pay'"):
        harness.run_sync(calls)


def test_code_that_blocks_is_named(harness: Cortex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REAL_S", 0.05)
    monkeypatch.setattr(background, "LEAVES_S", 0.05)

    @job
    async def blocks(ctx: Context) -> None:
        threading.Event().wait(0.5)

    with pytest.raises(StuckError, match="blocks or computes without an await"):
        harness.run_sync(blocks)


async def test_cancelled_test_ends_its_job(harness: Cortex) -> None:
    began, ended = threading.Event(), threading.Event()

    @job
    async def waits(ctx: Context) -> None:
        began.set()
        try:
            await trio.Event().wait()
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.run, waits)
        assert await trio.to_thread.run_sync(began.wait, 10)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, 10)
