import asyncio
import os

from pages import import_pages

from cortex import Client


async def main() -> None:
    async with await Client.connect(os.environ["CORTEX_DSN"]) as client:
        handle = await client.submit(import_pages, pages=3)
        async for chunk in handle.stream(timeout=60):
            print("page", chunk["page"], "has", chunk["rows"], "rows")
        shown = await handle.state()
        print("batch", shown.state["batch"] == (await handle.result())["batch"])


asyncio.run(main())
