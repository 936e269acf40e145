"""Mistakes in job code that fail the job at once, and the libraries it may use."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.durable.context import Context
from cortex.runtime.running import Stop
from cortex.store import steps
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import attempts, job_row
from tests.support.servers.postgres import sql


@pytest.fixture
async def committing(bench: Bench) -> Bench:
    """A pod whose committer runs."""
    await bench.start_committing()
    return bench


async def run_one(bench: Bench, handler: Callable[..., Awaitable[Any]], **options: Any) -> UUID:
    """Run one attempt of a new job to its end; return the job."""
    bench.handle(handler, **options)
    (claim,) = await bench.claimed()
    bench.run(claim)
    await ended(bench)
    return claim.lease.job_id


async def ended(bench: Bench) -> None:
    with trio.fail_after(WITHIN_S):
        await bench.running.wait_until_empty()


def output(dsn: str, job_id: UUID) -> tuple[str, Any, str | None, str | None]:
    row = job_row(dsn, job_id)
    return row["status"], row["result"], row["error_code"], row["error_message"]


async def waits_asyncio(ctx: Context) -> None:
    await asyncio.to_thread(len, "asyncio")


class BareYield:
    """A bare yield, as asyncio's own code uses to let others run."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def yields_to_asyncio(ctx: Context) -> None:
    await BareYield()


async def asks_for_loop(ctx: Context) -> None:
    await ctx.step("ask", ask_for_loop)


async def ask_for_loop() -> None:
    asyncio.get_running_loop()


async def queues(ctx: Context) -> None:
    await asyncio.Queue[int]().get()


async def runs_asyncio(ctx: Context) -> None:
    coroutine = ask_for_loop()
    with closing(coroutine):
        asyncio.run(coroutine)


async def makes_loop(ctx: Context) -> None:
    asyncio.new_event_loop()


async def limits_time(ctx: Context) -> None:
    async with asyncio.timeout(1):
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "handler",
    [
        *(waits_asyncio, yields_to_asyncio, asks_for_loop, queues),
        *(runs_asyncio, makes_loop, limits_time),
    ],
)
async def test_asyncio_call_fails_the_job_at_once_with_a_hint(
    committing: Bench, database: str, handler: Callable[..., Awaitable[Any]]
) -> None:
    job_id = await run_one(committing, handler)
    status, _, code, message = output(database, job_id)
    assert (status, code) == ("FAILED", "asyncio_called")
    assert job_row(database, job_id)["error_class"] == "PERMANENT"
    assert message is not None
    assert all(word in message for word in ("jobs run on trio", "anyio", "ctx.asyncio"))


class MissingKeyError(KeyError):
    """The error of a lookup in the job's own code."""


@pytest.mark.parametrize("in_step", [False, True])
async def test_final_error_of_a_type_is_not_retried(
    committing: Bench, database: str, in_step: bool
) -> None:
    calls = 0

    async def look_up() -> None:
        nonlocal calls
        calls += 1
        raise MissingKeyError("customer 7")

    async def handler(ctx: Context) -> None:
        await (ctx.step("look", look_up, repeat="default") if in_step else look_up())

    committing.handle(handler, final=(KeyError,))
    (claim,) = await committing.claimed()
    committing.run(claim)
    await ended(committing)
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["error_class"], row["error_code"]) == (
        "FAILED",
        "PERMANENT",
        "final",
    )
    assert "customer 7" in row["error_message"]
    assert calls == 1


async def test_other_errors_are_retried(committing: Bench, database: str) -> None:
    async def handler(ctx: Context) -> None:
        raise OSError("no route")

    committing.handle(handler, final=(KeyError,))
    (claim,) = await committing.claimed()
    committing.run(claim)
    await ended(committing)
    assert job_row(database, claim.lease.job_id)["status"] == "RUNNING"
    assert attempts(database, claim.lease.job_id) == [(1, "failed")]


@pytest.mark.filterwarnings("error")
async def test_a_step_that_is_not_awaited_fails_the_job_and_is_named(
    committing: Bench, database: str
) -> None:
    done = []

    async def note(what: str) -> None:
        done.append(what)

    async def handler(ctx: Context) -> str:
        await ctx.step("first", note, "first")
        forgotten = [ctx.step("second", note, "second"), ctx.effect("third", note, "third")]
        assert len(forgotten) == 2
        del forgotten
        ctx.gather(ctx.tool("fourth", "echo", {})).close()
        return "all is well"

    job_id = await run_one(committing, handler)
    gc.collect()
    status, _, code, message = output(database, job_id)
    assert (status, code) == ("FAILED", "usage")
    assert message is not None
    assert "without awaiting 'second', 'third', 'fourth'" in message
    assert done == ["first"]


async def test_a_function_that_is_not_async_runs_in_a_thread(
    committing: Bench, database: str
) -> None:
    """And one that gives something to await is awaited."""

    def where(number: int) -> list[object]:
        return [number, threading.current_thread() is threading.main_thread()]

    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return "awaited"

    async def handler(ctx: Context) -> Any:
        return [
            await ctx.step("where", where, 7),
            await ctx.effect("effect", where, 8),
            await ctx.step("lambda", lambda: later()),  # noqa: PLW0108 -- that is the point
        ]

    job_id = await run_one(committing, handler)
    assert output(database, job_id)[:2] == ("COMPLETED", [[7, False], [8, False], "awaited"])


async def test_a_thread_that_does_not_end_holds_up_neither_a_time_out_nor_a_drain(
    committing: Bench, database: str
) -> None:
    ends = threading.Event()

    async def handler(ctx: Context) -> None:
        await ctx.step("stuck", ends.wait)

    committing.handle(handler)
    one, other = await committing.claimed(2)
    committing.run(attrs.evolve(one, left_s=0.05))
    committing.run(other)
    await eventually_async(lambda: len(committing.running) == 1, what="one has timed out")
    committing.running.end_all(Stop.HANDED_BACK)
    await ended(committing)
    ends.set()
    assert job_row(database, one.lease.job_id)["error_code"] == "job_timed_out"
    assert attempts(database, other.lease.job_id) == [(1, "handed_back")]


async def test_a_record_of_a_newer_release_hands_its_job_back_uncounted(
    committing: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(ctx: Context) -> None:
        await ctx.step("a", int)
        raise OSError("cut off")

    committing.handle(work)
    (claim,) = await committing.claimed()
    committing.run(claim)
    await ended(committing)
    sql(database, "UPDATE cortex_worker.task SET state = 'READY'")
    (again,) = await committing.claim()
    monkeypatch.setattr(steps, "_KINDS", frozenset())  # a release without this kind of step
    committing.run(again)
    await ended(committing)
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["unfit_codes"], row["retry_count"]) == ("RETRY", [0], 0)
    assert row["error_code"] is None
