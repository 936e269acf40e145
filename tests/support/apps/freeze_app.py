"""The application of pods that are frozen: jobs that do one thing after another outside."""

from pathlib import Path

import trio

from cortex.domain.effect import Invocation
from cortex.durable.context import Context
from cortex.durable.registry import job
from tests.support.apps.pod_app import steps

__all__ = ["deliver", "steps"]

CALL_S = 0.02


@job("deliver")
async def deliver(ctx: Context, folder: str, count: int) -> int:
    """Deliver a number of things, one after another."""
    for number in range(count):
        await ctx.effect("put", put, folder, number)
    return count


async def put(invocation: Invocation, folder: str, number: int) -> None:
    """Add a line to the job's file; it does not record its author."""
    with (Path(folder) / str(invocation.job_id)).open("a") as file:  # noqa: ASYNC230 -- short
        file.write(f"{number}\n")
    await trio.sleep(CALL_S)
