"""The application of pods whose jobs end in every way that there is, in every kind of step."""

import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import trio

from cortex.agent.tools.tool import tool
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

LIMIT_S: Final = 0.3
THREAD_S: Final = 30.0
ONCE: Final = Retry(max=0, worker_attempts=1)


def throw() -> None:
    raise KeyboardInterrupt


async def hang(raises: bool) -> None:
    if raises:
        throw()
    await trio.sleep_forever()


def stay(raises: bool) -> None:
    if raises:
        throw()
    threading.Event().wait(THREAD_S)


@tool(name="hangs")
async def hangs(raises: bool) -> None:
    """Hang, or raise what is meant for the interpreter."""
    await hang(raises)


Wait = Callable[[Context, bool, float | None], Awaitable[Any]]


async def in_nothing(_: Context, raises: bool, limit_s: float | None) -> Any:
    with trio.fail_after(limit_s or float("inf")):
        await hang(raises)


async def in_step(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    return await ctx.step("x", hang, raises, timeout=limit_s)


async def in_sync_step(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    return await ctx.step("x", stay, raises, timeout=limit_s)


async def in_effect(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    return await ctx.effect("x", hang, raises, timeout=limit_s)


async def in_sync_effect(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    return await ctx.effect("x", stay, raises, timeout=limit_s)


async def in_tool(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    return await ctx.tool("x", "hangs", {"raises": raises}, timeout=limit_s)


async def in_model_call(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    if raises:
        throw()
    messages = [{"role": "user", "content": "?"}]
    return await ctx.llm("x", model="silent", messages=messages, timeout=limit_s)


async def in_http_call(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    if raises:
        throw()
    request = {"url": os.environ["SILENT_URL"]}
    return await ctx.tool("x", "http_request", request, timeout=limit_s)


async def in_approval(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    with trio.fail_after(limit_s or float("inf")):
        await ctx.approve("x")
        await hang(raises)


async def in_sleep(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    with trio.fail_after(limit_s or float("inf")):
        for _ in range(3):
            await ctx.sleep("x", seconds=4.5)
        await hang(raises)


async def in_gather(ctx: Context, raises: bool, limit_s: float | None) -> Any:
    hanging = ctx.step("x", hang, raises, timeout=limit_s)
    return await ctx.gather(hanging, ctx.step("y", stay, raises=False, timeout=60))


KINDS: Final[dict[str, Wait]] = {
    each.__name__.removeprefix("in_"): each
    for each in (
        *(in_nothing, in_step, in_sync_step, in_effect, in_sync_effect),
        *(in_tool, in_model_call, in_http_call, in_approval, in_sleep, in_gather),
    )
}


async def run(ctx: Context, kind: str, way: str, handler: str) -> str:
    limit_s = LIMIT_S if way == "own" else None
    wait = KINDS[kind]
    if handler == "catches":
        try:
            await wait(ctx, way == "raises", limit_s)
        except Exception:  # noqa: BLE001 -- as job code does
            return "caught"
    while handler == "swallows":
        with suppress(BaseException):
            await wait(ctx, way == "raises", limit_s)
        with suppress(BaseException), trio.CancelScope(shield=True):
            await trio.sleep(LIMIT_S)
    await wait(ctx, way == "raises", limit_s)
    return "done"


@job("ends", retry=ONCE)
async def ends(ctx: Context, kind: str, way: str, handler: str) -> str:
    """Wait in a step of this kind, end in this way, with a handler that does this about it."""
    return await run(ctx, kind, way, handler)


@job("ends_isolated", retry=ONCE, isolated=True)
async def ends_isolated(ctx: Context, kind: str, way: str, handler: str) -> str:
    """The same in a process of its own."""
    return await run(ctx, kind, way, handler)
