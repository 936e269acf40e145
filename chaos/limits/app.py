"""The application of the storm: each job writes down when it began and when it ended."""

import json
import os
import time
from pathlib import Path
from typing import Final

from cortex import Concurrency, Context, Retry, job

OF_KEY: Final = 5
OF_ALL: Final = 40
TYPE: Final = "limited"
FILE: Final = "runs"
"""In the folder of the pods: a line for each begin and end, with the clock of the machine."""


def note(ctx: Context, key: str, what: str) -> None:
    """Add a line, in one write."""
    line = [str(ctx.job_id), os.getpid(), key, what, time.monotonic()]
    with (Path(os.environ["CORTEX_DATA"]) / FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")


@job(
    TYPE,
    retry=Retry(max=20, worker_attempts=100),
    limits=[Concurrency(OF_KEY, key="key"), Concurrency(OF_ALL)],
)
async def limited(ctx: Context, key: str, ms: int) -> None:
    """Work a little."""
    note(ctx, key, "begun")
    await ctx.asyncio(_work, ms)
    note(ctx, key, "ended")


async def _work(ms: int) -> None:
    import asyncio  # noqa: PLC0415 -- stands for the code of a library

    await asyncio.sleep(ms / 1000)
