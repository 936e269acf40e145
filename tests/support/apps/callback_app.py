"""Jobs that hand out a callback URL and wait for what is posted to it."""

from pathlib import Path
from typing import Any

from cortex import Context, job

PAID = {"type": "object", "required": ["euros"], "properties": {"euros": {"type": "number"}}}


@job
async def sells(ctx: Context, file: str) -> Any:
    return await _sold(ctx, file)


@job(isolated=True)
async def sells_apart(ctx: Context, file: str) -> Any:
    return await _sold(ctx, file)


async def _sold(ctx: Context, file: str) -> Any:
    url = await ctx.callback_url("paid", schema=PAID)
    await ctx.step("publish", publish, file, url)
    return await ctx.receive("paid")


def publish(file: str, url: str) -> str:
    """Hand the URL out, once more after a crash; what it returns would be recorded."""
    with Path(file).open("a") as published:
        published.write(f"{url}\n")
    return url
