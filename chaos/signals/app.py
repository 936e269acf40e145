"""The application of a storm of signals: its jobs receive, and return what they have received."""

from typing import Any, Final

from cortex import Context, Retry, job
from cortex.domain.backoff import Backoff

NAME: Final = "item"
QUICK: Final = Retry(max=50, worker_attempts=50, backoff=Backoff(base_s=0.05, cap_s=0.2))


@job("storm_receives", retry=QUICK, timeout=86_400)
async def receives(ctx: Context, count: int) -> list[Any]:
    """Receive so many signals, one after the other."""
    return [await ctx.receive(NAME) for _ in range(count)]
