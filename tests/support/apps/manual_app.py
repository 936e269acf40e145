"""App of the pod beside the manual's commands: a job that fails, one that asks, and a tool."""

from cortex import Context, RejectedError, job, tool


@job("invoice")
async def invoice(ctx: Context) -> None:
    raise RejectedError("the provider refuses")


@job("ask")
async def ask(ctx: Context) -> None:
    await ctx.approve("pay", detail={"euros": 1240})


@tool
def look_up(customer: str) -> str:
    """Find a customer."""
    return customer
