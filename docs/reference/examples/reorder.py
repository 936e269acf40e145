from cortex import Context, job


@job
async def reorder(ctx: Context, shelf: str, days: float = 3.0) -> str:
    first = await ctx.first(
        ctx.receive("restock", key=shelf),
        ctx.approve("order more", detail={"shelf": shelf}),
        ctx.sleep("too late", days=days),
    )
    if first.name == "restock":
        return f"{shelf}: {first.value} came"
    return f"{shelf}: {first.name}"
