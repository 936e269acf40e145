from cortex import Context, job


def read_page(number: int) -> list[str]:  # stands for a page of somebody's API
    return [f"row {number}.{row}" for row in range(3)]


@job
async def import_pages(ctx: Context, pages: int) -> dict[str, str]:
    began = await ctx.now()
    batch = ctx.uuid()
    ctx.state["batch"] = str(batch)
    for number in range(1, pages + 1):
        rows = await ctx.step("read", read_page, number)
        await ctx.emit({"page": number, "rows": len(rows)})
        ctx.progress(number, pages, "pages")
    return {"batch": str(batch), "began": began.isoformat()}
