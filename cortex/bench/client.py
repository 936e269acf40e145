"""Cost of a client over the bare calls of SQL that it makes, and how soon a wait wakes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from cortex.bench.arrivals import quantiles
from cortex.client.client import Client
from cortex.client.handles import Handle
from cortex.domain.clock import system_chance
from cortex.domain.errors import JobCancelledError
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex.postgres.session import run_alone

TYPE: Final = "bench_noop"
WARM_UP: Final = 20
BULKS: Final = 5
LATER_S: Final = 3_600.0
"""No pod takes jobs that are due later: their ends are those of a cancellation."""


def client(dsn: str, *, count: int, bulk: int) -> dict[str, Any]:
    """Submit jobs by a client and by bare calls in turn; wait for jobs that end."""

    async def measure() -> dict[str, Any]:
        bare = Dedicated(Profile(dsn=dsn), on_lost=lambda: None)
        await bare.open()
        try:
            async with await Client.connect(dsn) as opened:
                single = await _single(bare, opened, count)
                many = await _bulk(bare, opened, bulk)
                return {**single, **many, **await _wakes(dsn, opened, count)}
        finally:
            bare.cut()

    return run_alone(measure)


async def _single(bare: Dedicated, opened: Client, count: int) -> dict[str, Any]:
    async def by_call() -> None:
        await bare.fetch("bench.submit_one", TYPE, "{}")

    async def by_client() -> None:
        await opened.submit(TYPE)

    for _ in range(WARM_UP):
        await by_call()
        await by_client()
    pairs = [(await _ms(by_call), await _ms(by_client)) for _ in range(count)]
    bare_ms, client_ms = (quantiles(each)["p50_ms"] for each in zip(*pairs, strict=True))
    return {
        "jobs": count,
        "bare_p50_ms": bare_ms,
        "client_p50_ms": client_ms,
        "single_ratio": round(client_ms / bare_ms, 3),
    }


async def _bulk(bare: Dedicated, opened: Client, bulk: int) -> dict[str, Any]:
    chance = system_chance()
    payloads = [{"number": number} for number in range(bulk)]

    async def by_call() -> None:
        ids = [chance.new_id() for _ in payloads]
        texts = [f'{{"number":{each["number"]}}}' for each in payloads]
        await bare.fetch("bench.submit_many", ids, [TYPE] * bulk, texts)

    async def by_client() -> None:
        await opened.submit_many(TYPE, payloads)

    pairs = [(await _ms(by_call), await _ms(by_client)) for _ in range(BULKS)]
    bare_ms, client_ms = (quantiles(each)["p50_ms"] for each in zip(*pairs, strict=True))
    return {
        "bare_bulk_per_s": round(1000 * bulk / bare_ms),
        "client_bulk_per_s": round(1000 * bulk / client_ms),
        "bulk_ratio": round(bare_ms / client_ms, 3),
    }


async def _wakes(dsn: str, opened: Client, count: int) -> dict[str, Any]:
    """Return quantiles of the time from an acknowledged end of a job to the wake of its wait."""
    async with await Client.connect(dsn) as other:
        waits_ms = []
        for _ in range(max(1, count // 5)):
            handle = await opened.submit(TYPE, delay=LATER_S)
            woken = asyncio.create_task(_woken(handle))
            await asyncio.sleep(0.05)  # it listens
            await other.handle(handle.id).cancel("measured")
            ended = time.perf_counter()
            waits_ms.append(1000 * max(0.0, await woken - ended))
    return {f"wake_{name}": value for name, value in quantiles(waits_ms).items()}


async def _woken(handle: Handle[Any]) -> float:
    try:
        await handle.result(timeout=30)
    except JobCancelledError:
        return time.perf_counter()
    raise AssertionError("a job that is due later has not ended otherwise")


async def _ms(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return 1000 * (time.perf_counter() - began)
