import asyncio
import os

from offer import offer

from cortex import Client


async def main() -> None:
    async with await Client.connect(os.environ["CORTEX_DSN"]) as client:
        first, second = await client.submit_many(offer, [{"text": "New"}, {"text": "Old"}])
        async for event in first.events():
            if event.data.get("new") == "WAITING_FOR_APPROVAL":
                break
        for request in await client.approvals.list():
            if request.job_id == first.id:
                await client.approvals.deny(request, by="ann", reason="too early")
        await second.cancel("no longer sold", by="ann")
        print(await client.handle(first.id, offer).result())
        for each in await client.jobs.list("type:offer status:cancelled"):
            print(each.type, each.status)
        for letter in await client.dead.list():
            if "later.py does not exist" in letter.error_message:
                (again,) = await client.dead.retry(letter.job_id, reason="it is there", by="ann")
                print(await again.result(timeout=60))
        sql, _ = client.sql.submit_many(offer, [{"text": "Soon"}])
        print(sql.split("(")[0])  # for the caller's own transaction


asyncio.run(main())
