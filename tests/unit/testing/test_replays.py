"""Replays of runs: code that asks for other steps than its record has fails with one line."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from cortex import Context, job
from cortex.testing import Cortex, PromiseBrokenError

Handler = Callable[[Context, int], Any]


async def same(value: Any) -> Any:
    return value


async def other_input(ctx: Context, number: int) -> None:
    await ctx.step("a", same, number)


async def other_name(ctx: Context, number: int) -> None:
    await ctx.step(f"a{number}", same, 1)


async def one_more(ctx: Context, number: int) -> None:
    await ctx.step("a", same, 1)
    if number > 0:
        await ctx.step("b", same, 1)


async def one_less(ctx: Context, number: int) -> None:
    await ctx.step("a", same, 1)
    if number == 0:
        await ctx.step("b", same, 1)


async def raising(ctx: Context, number: int) -> None:
    await ctx.step("a", same, 1)
    if number > 0:
        raise ValueError("only now")


async def other_effect(ctx: Context, number: int) -> None:
    await ctx.effect("send", same, number)


@pytest.mark.parametrize(
    "handler, message",
    [
        (other_input, r" at 'a': step 'a' has another input now than the recorded one: .*0 → 1"),
        (other_name, r" at 'a1': not on record: 'a1', but 'a0' with the same input"),
        (one_more, r" at 'b': the code asks for it, and it is not on record"),
        (one_less, r" at 'b': .*"),
        (raising, r": ValueError: only now"),
        (other_effect, r" at 'send': step 'send' has another input now"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_code_that_differs_from_its_record_is_named(
    harness: Cortex, handler: Handler, message: str
) -> None:
    runs = count()

    @job("work")
    async def work(ctx: Context) -> None:
        await handler(ctx, next(runs))

    run = harness.run_sync(work)
    assert run.error is None
    with pytest.raises(PromiseBrokenError, match=f"^job 'work' does not replay{message}") as info:
        run.replays()
    assert "\n" not in str(info.value)


async def test_replay_calls_nothing_again(harness: Cortex) -> None:
    calls: list[str] = []

    async def note(text: str) -> str:
        calls.append(text)
        return text

    @job
    async def work(ctx: Context) -> str:
        await ctx.sleep("night", hours=8)
        message = {"role": "user", "content": "hello"}
        answer = await ctx.llm("ask", model="m", messages=[message])
        await ctx.approve("ready")
        await ctx.gather(ctx.step("a", note, "a"), ctx.step("b", note, "b"))
        return await ctx.effect("send", note, answer.text)

    harness.model.says("hi")
    harness.approve_all()
    run = await harness.run(work)
    calls.sort()
    run.replays()
    run.replays()
    assert calls == ["a", "b", "hi"]
    assert len(harness.model.requests) == 1


def test_job_that_failed_in_a_step_replays(harness: Cortex) -> None:
    async def fail() -> None:
        raise ValueError("no")

    @job
    async def work(ctx: Context) -> None:
        await ctx.step("a", same, 1)
        await ctx.step("b", fail)

    run = harness.run_sync(work)
    assert run.steps == ["a"]
    run.replays()
