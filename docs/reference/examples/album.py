from cortex import ChildFailedError, Context, job


def shrunk(image: str, width: int) -> str:
    return f"{image}-{width}"


@job
async def resize(ctx: Context, image: str, width: int = 800) -> str:
    return await ctx.step("resize", shrunk, image, width)


@job
async def mourn(ctx: Context, image: str) -> None:
    ctx.log(f"{image} could not be resized")


@job
async def album(ctx: Context, images: list[str]) -> list[str]:
    cover = await ctx.spawn(resize, name="cover", image=images[0], width=1600)
    pages = [page async for page in ctx.map(resize, images, concurrency=10, width=400)]
    try:
        pages.append(await ctx.call(resize, name="back", image=images[-1], max_retries=0))
    except ChildFailedError as error:
        await ctx.submit(mourn, image=str(error.job_id))  # nobody waits for it
    return [await cover.result(), *pages]
