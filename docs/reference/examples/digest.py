from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import trio

from cortex import Context, File, RejectedError, Retry, TimedOutError, TransientError, job, resource


@resource
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as client:
        yield client


@job(retry=Retry(max=5), timeout=300)
async def digest(ctx: Context, urls: list[str]) -> dict[str, int]:
    sizes = await ctx.gather(*(ctx.step("fetch", fetch, url) for url in urls))
    return dict(zip(urls, sizes))


@job
async def patient(ctx: Context, url: str) -> int | None:
    ctx.log("asks", url=url)
    try:
        return await ctx.step("fetch", fetch, url, timeout=20)
    except TimedOutError:
        ctx.log("no answer", level="warning", url=url)
        return None


@job
async def describe(ctx: Context, path: str) -> str:
    photo = File(await trio.to_thread.run_sync(Path(path).read_bytes))
    messages = [{"role": "user", "content": [photo, "What is in this picture?"]}]
    return (await ctx.llm("look", model="claude-sonnet-5", messages=messages)).text


async def fetch(url: str, client: httpx2.AsyncClient) -> int:
    answer = await client.get(url)
    if answer.status_code == 404:
        raise RejectedError(f"{url} does not exist")  # fails for good
    if answer.status_code == 503:
        raise TransientError(f"{url} is busy", retry_after_s=30)  # is tried again
    return len(answer.content)
