from dataclasses import dataclass
from datetime import timedelta

from cortex import Context, InvalidSignalError, Message, handler, job


@dataclass
class Payment:
    cents: int


@job
async def take_order(ctx: Context, number: int) -> None:
    await ctx.publish("order.taken", {"number": number}, key=str(number))


@job
async def collect(ctx: Context, number: int) -> str:
    key, days = f"order-{number}", timedelta(days=14)
    try:
        payment = await ctx.receive("payment", Payment, key=key, timeout=days, default=None)
    except InvalidSignalError as error:  # the next one may fit
        return f"{error.payload} is no payment"
    return "never paid" if payment is None else f"{payment.cents} cents"


@handler("order.*")
async def on_order(message: Message) -> None:
    number = message.payload["number"]
    print(f"order {number}, attempt {message.attempt} of {message.id}", flush=True)
