"""Types that handlers, tools and clients see: checked by mypy and pyright, and never run."""

from datetime import UTC, datetime
from typing import Any, TypedDict, assert_type

import attrs

from cortex import Client, Context, Handle, SyncClient, ToolContext, job, tool
from cortex.durable.registry import JobType


@attrs.frozen
class Order:
    number: int
    placed_at: datetime


class Place(TypedDict):
    city: str


async def load_order(number: int) -> Order:
    return Order(number, datetime(2027, 1, 1, tzinfo=UTC))


def total(order: Order, *, with_tax: bool = True) -> float:
    return order.number * (1.2 if with_tax else 1.0)


@tool
async def find(context: ToolContext, number: int) -> Order:
    """Find an order."""
    return await load_order(number)


@tool(timeout=5)
def count(text: str) -> int:
    """Count letters."""
    return len(text)


@job
async def bare(ctx: Context, number: int) -> Order:
    order = await ctx.step("load", load_order, number)
    assert_type(order, Order)
    assert_type(await ctx.step("total", total, order), float)
    assert_type(await ctx.effect("total", total, order), float)
    assert_type(await ctx.effect("load", load_order, number), Order)
    assert_type(await ctx.asyncio(load_order, number), Order)
    assert_type(await ctx.tool("find", find, {"number": number}), Order)
    assert_type(await ctx.tool("count", count, {"text": "abc"}), int)
    assert_type(await ctx.tool("by name", "find", {"number": number}), Any)
    assert_type((await ctx.llm("ask", model="m", messages=())).text, str)
    assert_type(await ctx.llm("ask", model="m", messages=(), output=Order), Order)
    assert_type(await ctx.llm("ask", model="m", messages=(), output=list[Order]), list[Order])
    assert_type(await ctx.llm("ask", model="m", messages=(), output=Place), Place)
    assert_type(await ctx.llm("ask", model="m", messages=(), output={"type": "null"}), Any)
    two = await ctx.gather(ctx.step("a", load_order, 1), ctx.step("b", total, order))
    assert_type(two, tuple[Order, float])
    many = await ctx.gather(*(ctx.step("load", load_order, each) for each in range(number)))
    assert_type(many, list[Order])
    return order


@job("named", timeout=60)
async def named(ctx: Context, number: int, note: str = "") -> float:
    return total(await load_order(number))


async def calls(ctx: Context, context: ToolContext) -> None:
    assert_type(await bare(ctx, 1), Order)
    assert_type(await named(ctx, number=1, note="x"), float)
    assert_type(await find(context, 1), Order)
    assert_type(count("abc"), int)
    job_type: JobType[[int], Order] = bare
    await bare(ctx, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert job_type.name == "bare"


async def clients(client: Client, sync: SyncClient) -> None:
    handle = await client.submit(bare, number=1)
    assert_type(handle, Handle[Order])
    assert_type(await handle.result(timeout=1), Order)
    assert_type(await (await client.submit("named", number=1)).result(), Any)
    assert_type(sync.submit(named, number=1).result(timeout=1), float)
    many = await client.submit_many(named, [{"number": 1}])
    assert_type(await many[0].result(), float)
