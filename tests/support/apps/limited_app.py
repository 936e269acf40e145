"""The application of pods whose jobs have limits: each says when it began and when it ended.

`JOURNAL` names the file to which every run adds two lines.
"""

import json
import os
import time
from pathlib import Path

from cortex import Concurrency, Context, Rate, job


def note(ctx: Context, customer: str, what: str) -> None:
    """Add a line, in one write."""
    line = {"job": str(ctx.job_id), "customer": customer, "what": what, "at": time.monotonic()}
    with Path(os.environ["JOURNAL"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


@job(
    limits=[
        Concurrency(2, key="customer"),
        Concurrency(5),
        Rate(100, per="minute", key="customer"),
    ]
)
async def limited(ctx: Context, customer: str, pause_s: float = 0.0) -> None:
    """Work for a customer, in two attempts if it waits."""
    note(ctx, customer, "begun")
    if pause_s:
        await ctx.sleep("pause", seconds=pause_s)
    note(ctx, customer, "ended")
