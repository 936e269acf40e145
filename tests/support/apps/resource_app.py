"""Jobs, steps, effects and tools that share a resource, which may also misbehave."""

import os
from collections.abc import AsyncIterator
from decimal import Decimal

import pydantic
import trio

from cortex import Context, job, resource, tool

__all__ = ["apart", "ask", "counter", "shared"]


class Counter:
    """Counts its uses, in one process."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> int:
        self._count += 1
        return self._count


class Order(pydantic.BaseModel):
    number: int
    total: Decimal


@resource
async def counter() -> AsyncIterator[Counter]:
    how = os.environ.get("RESOURCE", "well")
    if how == "does not open":
        raise ConnectionRefusedError("nobody listens")
    yield Counter()
    if how == "does not close":
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


async def load(number: int, counter: Counter) -> Order:
    return Order(number=number, total=Decimal(counter.next()))


def load_in_thread(number: int, counter: Counter) -> Order:
    return Order(number=number, total=Decimal(counter.next()))


@tool(local=True)
async def ask(order: Order, counter: Counter) -> Order:
    """Ask for an order."""
    return Order(number=order.number, total=order.total + counter.next())


@job
async def shared(ctx: Context, number: int, counter: Counter) -> Order:
    orders = [
        await ctx.step("load", load, number),
        await ctx.step("load in a thread", load_in_thread, number),
        await ctx.effect("pay", load, number, idempotent=True),
        await ctx.tool("ask", ask, {"order": {"number": number, "total": 0}}),
    ]
    total = sum((each.total for each in orders), Decimal(counter.next()))
    return Order(number=number, total=total)


@job(isolated=True)
async def apart(ctx: Context, number: int, counter: Counter) -> Order:
    return await shared(ctx, number, counter)
