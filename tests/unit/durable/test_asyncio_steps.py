"""Steps in asyncio code: results, errors, limits and cancellation, beside the loop of trio."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from cortex.domain.errors import TimedOutError
from cortex.durable import asyncio_thread
from cortex.durable.asyncio_thread import on_asyncio
from cortex.durable.resources import Resources
from cortex.durable.stray_errors import StrayError
from tests.support.records.factories import Record, a_context, run_twice

WHERE: ContextVar[str] = ContextVar("where")


@attrs.frozen
class Page:
    url: str
    thread: int


class Client: ...


async def fetch(url: str, *, depth: int = 0) -> Page:
    assert asyncio.current_task() is not None
    return Page(url, threading.get_ident())


async def test_the_result_has_its_type_on_the_first_run_and_on_replay() -> None:
    first, second = await run_twice(lambda ctx: ctx.asyncio(fetch, "http://a"))
    assert first == second == Page("http://a", first.thread)
    assert first.thread != threading.get_ident()


async def test_the_step_has_the_name_and_the_values_of_the_function() -> None:
    record = Record()
    ctx = a_context(record)
    await ctx.asyncio(fetch, "http://a", depth=1)
    await ctx.asyncio(fetch, url="http://b", name="another")
    assert record.inputs == {
        "fetch": '{"depth":1,"url":"http://a"}',
        "another": '{"url":"http://b"}',
    }


async def test_many_run_at_once_in_one_loop() -> None:
    here = asyncio.Event()
    count = 0

    async def meet(number: int) -> int:
        nonlocal count
        count += 1
        if count == 100:
            here.set()
        await here.wait()
        return number

    ctx = a_context()
    with trio.fail_after(10):
        results = await ctx.gather(*(ctx.asyncio(meet, n) for n in range(100)))
    assert results == list(range(100))


async def test_a_limit_cancels_the_task_of_asyncio() -> None:
    ended: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    ctx = a_context()
    with pytest.raises(TimedOutError, match="step 'hangs' took longer than"):
        await ctx.asyncio(hangs, timeout=0.05)
    assert ended == ["cancelled"]


async def test_code_that_ignores_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio_thread, "CANCELLED_WITHIN_S", 0.05)
    go_on = asyncio.Event()

    async def deaf() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 -- it ignores its cancellation
                continue  # noqa: ASYNC104 -- it ignores its cancellation

    ctx = a_context()
    with trio.fail_after(5), pytest.raises(TimedOutError):
        await ctx.asyncio(deaf, timeout=0.05)

    async def release() -> None:
        go_on.set()

    await ctx.asyncio(release)


async def _value_error() -> None:
    raise ValueError("refused")


async def _exit() -> None:
    raise SystemExit(3)


async def _cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "function, error",
    [(_value_error, ValueError), (_exit, StrayError), (_cancelled, StrayError)],
    ids=["error", "exit", "cancelled"],
)
async def test_an_error_is_raised_and_the_loop_goes_on(
    function: Any, error: type[Exception]
) -> None:
    ctx = a_context()
    with pytest.raises(error):
        await ctx.asyncio(function)
    assert (await ctx.asyncio(fetch, "http://a")).url == "http://a"


async def test_a_task_that_ends_the_process_ends_neither_the_loop_nor_other_steps() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    tasks: list[Any] = []

    async def waits() -> str:
        began.set()
        await go_on.wait()
        return "goes on"

    async def spawns() -> None:
        async def exits() -> None:
            raise SystemExit(3)

        await began.wait()
        tasks.append(asyncio.ensure_future(exits()))

    async def release() -> None:
        go_on.set()

    ctx = a_context()

    async def then() -> None:
        await ctx.asyncio(spawns)
        await ctx.asyncio(release)

    with trio.fail_after(5):
        result, _ = await ctx.gather(ctx.asyncio(waits), then())
    assert result == "goes on"


async def test_a_step_that_is_cancelled_before_it_began_ends_at_once() -> None:
    block = threading.Event()

    async def blocks() -> None:
        block.wait(5)

    ctx = a_context()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ctx.asyncio, blocks)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await on_asyncio(fetch)("http://a")
        block.set()
    assert scope.cancelled_caught
    assert trio.current_time() - began < 3


async def test_context_variables_and_resources_reach_asyncio_code() -> None:
    client = Client()

    async def where(client: Client) -> str:
        return f"{WHERE.get()} {type(client).__name__}"

    where.__annotations__["client"] = Client
    WHERE.set("in the job")
    ctx = a_context(resources=Resources(opened={Client: client}))
    assert await ctx.asyncio(where) == "in the job Client"
