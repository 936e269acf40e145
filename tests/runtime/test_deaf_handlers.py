"""Handlers that ignore cancellation are reported: which, for how long, and where their code is."""

import time
from collections.abc import MutableMapping
from typing import Any

import attrs
import orjson
import pytest
import trio

from cortex.durable.context import Context
from cortex.runtime.jobs import deaf_handlers
from cortex.runtime.jobs.deaf_handlers import DeafHandlers
from cortex.runtime.jobs.running import Stop
from tests.support.eventually import eventually_async
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.servers.postgres import sql

Lines = list[MutableMapping[str, Any]]


def reports(lines: Lines) -> Lines:
    return [line for line in lines if line["event"] == "handler ignores cancellation"]


async def watched(bench: Bench) -> None:
    await bench.start_committing()
    await bench.start(
        DeafHandlers(
            bench.port,
            pod_id=bench.pod.id,
            running=bench.running,
            report_after_s=0.05,
            look_s=0.01,
        )
    )


async def reported(database: str) -> dict[str, Any]:
    query = "SELECT * FROM cortex.fact WHERE subtype = 'handler_ignores_cancellation'"
    await eventually_async(lambda: bool(sql(database, query)), what="the fact is recorded")
    return dict(sql(database, query)[0])


async def test_a_handler_that_shields_itself(bench: Bench, database: str, log_lines: Lines) -> None:
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


async def test_a_handler_that_computes_on_and_on(
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
async def test_a_stop_by_others_counts_too(
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


async def test_who_listens_is_not_reported(bench: Bench, log_lines: Lines) -> None:
    async def listens(ctx: Context) -> None:
        await trio.sleep_forever()

    bench.handle(listens)
    await watched(bench)
    (claim,) = await bench.claimed()
    bench.run(attrs.evolve(claim, left_s=0.5))
    await bench.running.wait_until_empty()
    assert reports(log_lines) == []
