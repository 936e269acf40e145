import os
import time
from pathlib import Path

import httpx
from sale import sale

from cortex import SyncClient

client = SyncClient(os.environ["CORTEX_DSN"])
handle = client.submit(sale, order="8812")
handle.signal("address", "Kingsway 4", idempotency_key="address-8812")  # before it is asked for
while not (url := Path("8812.url")).exists():
    time.sleep(0.1)
print(httpx.post(url.read_text(), json={"euros": 48}).status_code)
print(handle.result(timeout=60))
client.signal("restock", {"item": 7}, key="shelf-3")  # for the job that asks for this key
client.close()
