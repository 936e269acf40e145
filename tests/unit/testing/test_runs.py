"""Jobs in memory: results, steps, retries, waits, threads, resources and models."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
import trio

from cortex import (
    Context,
    Invocation,
    RejectedError,
    Retry,
    TimedOutError,
    TransientError,
    job,
    resource,
    tool,
)
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.runtime.open_resources import ResourceError
from cortex.testing import Cortex


@attrs.frozen
class Digest:
    words: int
    text: str


class Shelf:
    def __init__(self, books: list[str]) -> None:
        self.books = books


opened: list[str] = []


@resource
async def library() -> AsyncIterator[Shelf]:
    opened.append("open")
    yield Shelf(["Faust"])
    opened.append("closed")


async def count(text: str) -> Digest:
    return Digest(len(text.split()), text)


def in_thread(text: str) -> str:
    return text.upper()


async def on_loop(text: str) -> str:
    return await asyncio.to_thread(text.title)


async def first_book(shelf: Shelf) -> str:
    return shelf.books[0]


@tool
async def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()


def test_run_returns_typed_result_and_steps(harness: Cortex) -> None:
    @job
    async def digest(ctx: Context, texts: list[str]) -> list[Digest]:
        return await ctx.gather(*(ctx.step("count", count, text) for text in texts))

    run = harness.run_sync(digest, texts=["a b", "c"])
    assert run.result == [Digest(2, "a b"), Digest(1, "c")]
    assert run.steps == ["count", "count#2"]
    assert (run.error, run.attempts, run.type) == (None, 1, "digest")
    run.replays()


async def test_runs_await_on_trio(harness: Cortex) -> None:
    @job
    async def one(ctx: Context) -> int:
        return (await ctx.step("count", count, "a")).words

    results = []

    async def run() -> None:
        results.append((await harness.run(one)).result)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(run)
    assert results == [1, 1]


def test_runs_await_on_asyncio(harness: Cortex) -> None:
    @job
    async def one(ctx: Context) -> int:
        return (await ctx.step("count", count, "a")).words

    async def both() -> list[int]:
        runs = await asyncio.gather(harness.run(one), harness.run(one))
        return [run.result for run in runs]

    assert asyncio.run(both()) == [1, 1]


def test_waits_take_no_time(harness: Cortex) -> None:
    async def pause() -> None:
        with trio.move_on_after(60):
            await trio.sleep_forever()

    @job
    async def patient(ctx: Context) -> None:
        await ctx.sleep("cool off", days=2)
        await ctx.sleep("breathe", seconds=1)
        await ctx.step("pause", pause)

    began, real = harness.clock.now, time.perf_counter()
    run = harness.run_sync(patient)
    assert harness.clock.now - began >= timedelta(days=2, seconds=61)
    assert time.perf_counter() - real < 5
    assert run.steps == ["cool off", "breathe", "pause"]


def test_clock_advances_between_runs(harness: Cortex) -> None:
    @job
    async def late(ctx: Context) -> None:
        await ctx.sleep_until("new year", began + timedelta(days=1))

    began = harness.clock.now
    harness.clock.advance(days=3)
    harness.run_sync(late)
    assert harness.clock.now - began < timedelta(days=3, seconds=1)
    with pytest.raises(ValueError, match="cannot go back"):
        harness.clock.advance(days=-1)


def test_failed_step_is_retried_after_its_pause(harness: Cortex) -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TransientError("not now")
        return "done"

    @job(retry=Retry(max=5))
    async def stubborn(ctx: Context) -> str:
        await ctx.step("first", count, "a")
        return await ctx.step("flaky", flaky)

    began = harness.clock.now
    run = harness.run_sync(stubborn)
    assert (run.result, run.steps) == ("done", ["first", "flaky"])
    assert run.attempts == len(tries) == 3
    assert harness.clock.now > began


def test_failed_job_has_error_and_raises_it_as_result(harness: Cortex) -> None:
    @job
    async def fails(ctx: Context) -> None:
        await ctx.step("first", count, "a")
        raise ValueError("no such order")

    run = harness.run_sync(fails)
    assert isinstance(run.error, ValueError)
    assert run.steps == ["first"]
    with pytest.raises(ValueError, match="no such order"):
        _ = run.result
    run.replays()


def test_step_runs_in_thread_and_on_asyncio(harness: Cortex) -> None:
    @job
    async def mixed(ctx: Context) -> list[str]:
        return [await ctx.step("thread", in_thread, "ab"), await ctx.asyncio(on_loop, "cd")]

    run = harness.run_sync(mixed)
    assert run.result == ["AB", "Cd"]
    assert run.steps == ["thread", "on_loop"]


def test_time_limit_of_thread_passes_in_real_time(harness: Cortex) -> None:
    @job(retry=Retry(worker_attempts=1, max=0))
    async def slow(ctx: Context) -> None:
        await ctx.step("block", threading.Event().wait, 0.5, timeout=0.02)

    real = time.perf_counter()
    assert isinstance(harness.run_sync(slow).error, TimedOutError)
    assert time.perf_counter() - real < 0.4


def test_job_fails_at_its_own_time_limit(harness: Cortex) -> None:
    @job(timeout=60)
    async def endless(ctx: Context) -> None:
        while True:
            with trio.move_on_after(1):
                await trio.sleep_forever()

    run = harness.run_sync(endless)
    assert isinstance(run.error, TimedOutError)
    assert str(run.error) == "Job timed out after 60 seconds"


def test_resource_is_opened_and_closed_for_each_run(harness: Cortex) -> None:
    @job
    async def read(ctx: Context, shelf: Shelf) -> list[str]:
        return [*shelf.books, await ctx.step("first", first_book)]

    opened.clear()
    assert harness.run_sync(read).result == ["Faust", "Faust"]
    assert opened == ["open", "closed"]
    harness.resources[Shelf] = Shelf(["Momo"])
    assert harness.run_sync(read).result == ["Momo", "Momo"]
    assert opened == ["open", "closed"], "the stand-in takes its place"


def test_resource_that_does_not_open_is_named(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    @resource
    async def broken() -> AsyncIterator[Shelf]:
        raise ConnectionRefusedError("no library here")
        yield

    @job
    async def read(ctx: Context, shelf: Shelf) -> list[str]:
        return shelf.books

    monkeypatch.setitem(globals(), "library", broken)
    with pytest.raises(
        ResourceError, match=r"^resource broken \(.*\) failed to open: .*no library"
    ):
        harness.run_sync(read)


def test_job_calls_tool_of_its_module(harness: Cortex) -> None:
    @job
    async def loud(ctx: Context) -> str:
        return await ctx.tool("shout", shout, {"text": "ab"})

    run = harness.run_sync(loud)
    assert (run.result, run.steps) == ("AB", ["shout"])


def test_model_answers_by_script_and_then_as_it_always_does(harness: Cortex) -> None:
    @job
    async def talk(ctx: Context) -> list[str]:
        answers = []
        for text in ("one", "two", "three"):
            message = {"role": "user", "content": text}
            answers.append((await ctx.llm(text, model="m", messages=[message])).text)
        return answers

    harness.model.script(["a", "b"])
    harness.model.says("c")
    assert harness.run_sync(talk).result == ["a", "b", "c"]
    assert harness.run_sync(talk).result == ["a", "b", "c"], "each run begins with the first"
    assert [each.messages[0]["content"] for each in harness.model.requests[:3]] == [
        "one",
        "two",
        "three",
    ]


def test_concurrent_calls_are_answered_in_the_order_of_their_steps(harness: Cortex) -> None:
    @job
    async def talk(ctx: Context) -> list[str]:
        message = {"role": "user", "content": "hello"}
        calls = [ctx.llm("ask", model="m", messages=[message]) for _ in range(5)]
        return [answer.text for answer in await ctx.gather(*calls)]

    harness.model.script("abcde")
    run = harness.run_sync(talk)
    assert run.result == [*"abcde"]
    assert run.steps == ["ask", "ask#2", "ask#3", "ask#4", "ask#5"]


@pytest.mark.parametrize("answer", [7, {"name": "look_up"}, None])
def test_answer_that_is_none_is_named(harness: Cortex, answer: Any) -> None:
    with pytest.raises(UsageError, match="no answer of a model"):
        harness.model.says(answer)
    with pytest.raises(UsageError, match="no answer of a model"):
        harness.model.script(["hi", answer])


def test_error_of_model_is_retried(harness: Cortex) -> None:
    @job
    async def talk(ctx: Context) -> str:
        message = {"role": "user", "content": "hello"}
        return (await ctx.llm("ask", model="m", messages=[message])).text

    overloaded = TransientError("overloaded")
    harness.model.script([overloaded, "hi"])
    run = harness.run_sync(talk)
    assert (run.result, run.steps) == ("hi", ["ask"])


def test_effects_show_calls_and_outcomes(harness: Cortex) -> None:
    async def send(call: Invocation, text: str) -> int:
        if text == "bad":
            raise RejectedError("no such address")
        return len(text)

    @job
    async def report(ctx: Context, text: str) -> int:
        return await ctx.effect("send", send, text)

    good, bad = harness.run_sync(report, text="abc"), harness.run_sync(report, text="bad")
    assert good.result == 3
    assert isinstance(bad.error, RejectedError)
    for run, status in ((good, "COMPLETED"), (bad, "FAILED")):
        (effect,) = run.effects
        assert (effect.key, effect.status, effect.calls) == ("send", status, 1)
        assert effect.arguments == {"text": "abc" if run is good else "bad"}


def test_run_has_lines_of_its_job(harness: Cortex) -> None:
    @job
    async def chatty(ctx: Context) -> None:
        async def load() -> None:
            ctx.log("slow", "warning", number=7)

        ctx.log("begins")
        await ctx.step("load", load)

    first, second = harness.run_sync(chatty).logs
    assert (first.message, first.level, first.step, first.attempt) == ("begins", "info", None, 1)
    assert (second.level, second.step, second.fields) == ("warning", "load", {"number": 7})


def test_job_notifies_people(harness: Cortex) -> None:
    @job
    async def notifies(ctx: Context) -> None:
        await ctx.tool("notify", "send_notification", {"text": "It is late."})

    run = harness.run_sync(notifies)
    assert run.error is None
    assert [each.tool for each in run.effects] == ["send_notification"]


def test_patched_job_takes_new_branch(harness: Cortex) -> None:
    @job
    async def changed(ctx: Context) -> str:
        await ctx.publish("order.paid", {"number": 1})
        return "new" if ctx.patched("2027-01 prompt") else "old"

    run = harness.run_sync(changed)
    assert run.result == "new"
    run.replays()


def test_arguments_that_do_not_fit_are_named(harness: Cortex) -> None:
    @job
    async def one(ctx: Context, number: int) -> int:
        return number

    with pytest.raises(InvalidValueError, match="number"):
        harness.run_sync(one, number="three")
    with pytest.raises(InvalidValueError, match="other"):
        harness.run_sync(one, number=1, other=2)


def test_plain_function_is_no_job(harness: Cortex) -> None:
    with pytest.raises(UsageError, match="count is not a job type"):
        harness.run_sync(count, text="a")  # type: ignore[arg-type]


def test_resource_that_nothing_declares_is_named(harness: Cortex) -> None:
    @job
    async def lonely(ctx: Context, path: trio.Path) -> str:
        return str(path)

    with pytest.raises(UsageError, match=r"job 'lonely' takes a trio\S*Path, which no loaded"):
        harness.run_sync(lonely)
    harness.resources[trio.Path] = trio.Path("here")
    assert harness.run_sync(lonely).result == "here"
