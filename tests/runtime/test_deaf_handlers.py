"""Handlers that ignore cancellation are reported: which, for how long, and where their code is."""

import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import attrs
import orjson
import pytest
import trio

from cortex.durable.context import Context
from cortex.runtime.jobs import deaf_handlers
from cortex.runtime.jobs.deaf_handlers import DeafHandlers
from cortex.runtime.running import Stop
from tests.support.eventually import eventually_async
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.many_jobs import ManyJobs, statuses
from tests.support.records.rows import assert_one_truth
from tests.support.servers.postgres import sql

Lines = list[MutableMapping[str, Any]]


def reports(lines: Lines) -> Lines:
    return [line for line in lines if line["event"] == "handler ignores cancellation"]


def watching(bench: Bench, *, abandon_after_s: float = 30.0) -> DeafHandlers:
    deaf = DeafHandlers(
        bench.port,
        pod_id=bench.pod.id,
        running=bench.running,
        report_after_s=0.05,
        abandon_after_s=abandon_after_s,
        check_s=0.01,
    )
    bench.running.observers.append(deaf)
    return deaf


async def watched(bench: Bench) -> None:
    await bench.start_committing()
    await bench.start(watching(bench))


async def reported(database: str) -> dict[str, Any]:
    query = "SELECT * FROM cortex.fact WHERE subtype = 'handler_ignores_cancellation'"
    await eventually_async(lambda: bool(sql(database, query)), what="the fact is recorded")
    return dict(sql(database, query)[0])


async def test_shielded_handler_is_reported(bench: Bench, database: str, log_lines: Lines) -> None:
    ends = trio.Event()

    async def covers_its_ears(ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await ends.wait()

    bench.handle(covers_its_ears)
    await watched(bench)
    (claim,) = await bench.claimed()
    bench.run(attrs.evolve(claim, left_s=0.5))
    fact = await reported(database)
    ends.set()
    await bench.running.wait_until_empty()
    data = orjson.loads(fact["data"])
    assert (fact["job_id"], fact["attempt"]) == (claim.lease.job_id, 1)
    assert (data["job_type"], data["stopped_by"]) == (JOB_TYPE, "time-out")
    assert data["over_s"] >= 0
    assert "covers_its_ears" in data["stands_at"][-1]
    assert data["holds_event_loop"] is False
    assert reports(log_lines)[0]["job"] == str(claim.lease.job_id)


async def test_computing_handler_is_reported(
    bench: Bench, database: str, log_lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaf_handlers, "ANSWER_S", 0.05)

    async def computes(ctx: Context) -> None:
        until = time.monotonic() + 10
        while not reports(log_lines) and time.monotonic() < until:
            pass

    bench.handle(computes)
    await watched(bench)
    (claim,) = await bench.claimed()
    bench.run(attrs.evolve(claim, left_s=0.5))
    await bench.running.wait_until_empty()
    (line, *_) = reports(log_lines)
    assert line["job"] == str(claim.lease.job_id)
    assert line["holds_event_loop"] is True
    assert any("computes" in each for each in line["stands_at"])
    assert (await reported(database))["job_id"] == claim.lease.job_id


@pytest.mark.parametrize("why", [Stop.CANCELLED, Stop.HANDED_BACK])
async def test_stop_by_others_is_reported_too(
    bench: Bench, database: str, log_lines: Lines, why: Stop
) -> None:
    begun, ends = trio.Event(), trio.Event()

    async def deaf(ctx: Context) -> None:
        begun.set()
        with trio.CancelScope(shield=True):
            await ends.wait()

    bench.handle(deaf)
    await watched(bench)
    (claim,) = await bench.claimed()
    bench.run(claim)
    await begun.wait()
    bench.running.end(claim.lease.job_id, claim.lease.attempt, why)
    fact = await reported(database)
    ends.set()
    await bench.running.wait_until_empty()
    assert orjson.loads(fact["data"])["stopped_by"] == why.name.lower()


async def test_responsive_handler_is_not_reported(bench: Bench, log_lines: Lines) -> None:
    async def listens(ctx: Context) -> None:
        await trio.sleep_forever()

    bench.handle(listens)
    await watched(bench)
    (claim,) = await bench.claimed()
    bench.run(attrs.evolve(claim, left_s=0.5))
    await bench.running.wait_until_empty()
    assert reports(log_lines) == []


# --- abandoned


async def swallows(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            await trio.lowlevel.checkpoint()


async def swallows_in_steps(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            await ctx.step("x", trio.sleep_forever)


async def swallows_in_gather(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            await ctx.gather(*(ctx.step("x", trio.sleep_forever) for _ in range(3)))


async def swallows_below(ctx: Context) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(swallows, ctx)


async def shields(ctx: Context) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def shields_again(ctx: Context) -> None:
    while True:
        with suppress(BaseException):
            await shields(ctx)


async def shields_below(ctx: Context) -> None:
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shields_again, ctx)
            nursery.start_soon(swallows_in_steps, ctx)


async def stays(ctx: Context) -> None:
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(RELEASED.wait)


RELEASED = threading.Event()
DEAF = (
    *(swallows, swallows_in_steps, swallows_in_gather, swallows_below, shields, shields_again),
    *(shields_below, stays),
)


@pytest.mark.parametrize("why", [None, Stop.CANCELLED, Stop.HANDED_BACK, Stop.LEASE_LOST])
async def test_pod_abandons_a_handler_that_does_not_end(
    bench: Bench, database: str, log_lines: Lines, why: Stop | None
) -> None:
    RELEASED.clear()
    pod, deaf = ManyJobs(bench), watching(bench, abandon_after_s=0.3)
    await bench.start_committing()
    await bench.start(deaf)
    handlers = {each.__name__: each for each in DEAF}
    bench.dispatcher()
    ids = await pod.begin(handlers, timeout_s=1 if why is None else 60)
    await eventually_async(lambda: all(job.task for job in bench.running.jobs), what="all run")
    if why is not None:
        bench.running.end_all(why)
    await bench.running.wait_until_empty()
    ends = {None: "FAILED", Stop.CANCELLED: "CANCELLED"}
    assert set(statuses(database, ids).values()) == {ends.get(why, "RUNNING")}
    await eventually_async(lambda: deaf.left_count == 1, what="all have ended but the thread")
    RELEASED.set()
    await eventually_async(lambda: deaf.left_count == 0, what="all have ended")
    assert len([each for each in log_lines if each["event"] == "handler abandoned"]) == len(DEAF)
    assert_one_truth(database)
