import asyncio
import os

from bank import settle

from cortex import Client, CortexError, Handle, JobCancelledError, JobFailedError


async def show(handle: Handle[str]) -> None:
    try:
        print("receipt", await handle.result(timeout=60))
    except JobFailedError as error:
        print(error.error_code, error.message)
    except JobCancelledError as error:
        print("cancelled by", error.by, error.reason)


async def main() -> None:
    async with await Client.connect(os.environ["CORTEX_DSN"]) as client:
        await show(await client.submit(settle, customer="Ada", euros=48.0, key="invoice-8812"))
        try:
            await client.submit(settle, customer="Ada", euros="many")
        except CortexError as error:
            print(error.message)


asyncio.run(main())
