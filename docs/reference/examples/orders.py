from cortex import Context, Message, handler, job


@job
async def take_order(ctx: Context, number: int) -> None:
    await ctx.publish("order.taken", {"number": number}, key=str(number))


@handler("order.*")
async def on_order(message: Message) -> None:
    number = message.payload["number"]
    print(f"order {number}, attempt {message.attempt} of {message.id}", flush=True)
