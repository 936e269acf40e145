"""Which submits become jobs: one job per customer, one after a burst, one per minute."""

from cortex import Context, Debounce, Singleton, Throttle, job


@job(singleton=Singleton("{customer}", when="queue"))
async def bill(ctx: Context, customer: int, month: str) -> None:
    """Two jobs of one customer never run at once: the second waits for the first."""


@job(debounce=Debounce("30s", key="{product}", longest="5m"))
async def reindex(ctx: Context, product: str, price: float) -> None:
    """Runs when the price has not changed for half a minute, at the latest after five."""


@job(throttle=Throttle("1m", key="{customer}"))
async def remind(ctx: Context, customer: int) -> None:
    """At most once a minute for each customer."""
