"""Job types with rules about their submits."""

from cortex import Context, Debounce, Singleton, job


@job(singleton=Singleton("{customer}"))
async def export(_ctx: Context, customer: int) -> int:
    return customer


@job(debounce=Debounce("1s", key="{product}"))
async def reindex(_ctx: Context, product: str, price: int) -> int:
    return price
