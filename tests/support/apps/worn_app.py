"""An application whose pod is worn out by the first thread that a time-out leaves behind."""

import threading

from cortex import Context, Retry, job
from cortex.runtime.jobs import deaf_handlers

setattr(deaf_handlers, "is_worn_out", bool)  # noqa: B010 -- mypy knows a constant there


@job("stays", retry=Retry(max=0, worker_attempts=1))
async def stays(ctx: Context) -> None:
    """Leave a thread behind for good."""
    await ctx.step("call", threading.Event().wait, timeout=1)


@job("quick")
async def quick(ctx: Context) -> int:
    """End at once."""
    return ctx.attempt
