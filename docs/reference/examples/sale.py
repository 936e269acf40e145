from pathlib import Path

from cortex import Context, job


def show(order: str, url: str) -> None:
    Path(f"{order}.url").write_text(url)  # stands for a request to the shop that will call it


@job
async def sale(ctx: Context, order: str) -> dict[str, object]:
    schema = {"type": "object", "required": ["euros"], "properties": {"euros": {"type": "number"}}}
    url = await ctx.callback_url("paid", expires=3600, schema=schema)
    await ctx.step("show", show, order, url)
    paid = await ctx.receive("paid", timeout=3600)
    address = await ctx.receive("address", str)
    return {"paid": paid["euros"], "to": address}
